/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end, as the kernel said when it connected. */
#ifndef DAEMON_STORE_CRED_H
#define DAEMON_STORE_CRED_H

#include <stddef.h>
#include <sys/types.h>

typedef struct Cred {
        uid_t uid;
        gid_t gid;
        pid_t pid;                   /* 0: not visible from here. For showing, never for deciding. */
        size_t n_groups;
        gid_t *groups;               /* supplementary */
} Cred;

#endif
