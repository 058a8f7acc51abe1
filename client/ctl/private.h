/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A foliod of one's own: found, started on a socket in a fresh directory that nobody else can enter, ended by its pid,
 * and the directory removed, whatever happened in between. It is in a process group of its own, so that what the
 * terminal sends to the command does not end the store under it; and it ends when we are killed.
 */
#ifndef CTL_PRIVATE_H
#define CTL_PRIVATE_H

#include <sys/types.h>

#include "client/ctl/ctl.h"

typedef struct Private {
        pid_t pid; /* 0: none */
        char *directory;
        char *socket_path;
} Private;

#define PRIVATE_NULL                                                                                                   \
        {                                                                                                              \
                0                                                                                                      \
        }

/* @budget_bytes: 0 for what foliod thinks right. CTL_OK when clients can connect, or the status to end with: told. */
int private_start(Ctl *ctl, Private *private, uint64_t budget_bytes);

/* SIGTERM, and SIGKILL where that does not help; removes the directory. Legal in any state. */
void private_end(Private *private);

#endif
