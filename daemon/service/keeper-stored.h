/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors that a keeper process holds, each under a name; several may have one name. Handed to a child as a
 * service manager does it: at the numbers from 3 on, with LISTEN_FDS, LISTEN_FDNAMES and LISTEN_PID.
 */
#ifndef DAEMON_SERVICE_KEEPER_STORED_H
#define DAEMON_SERVICE_KEEPER_STORED_H

#include <stddef.h>

typedef struct KeeperStored {
        size_t n;
        size_t n_max;
        char **names;
        int *fds;
} KeeperStored;

#define KEEPER_STORED_NULL { 0 }

/* 0 or a negative errno. */
int keeper_stored_init(KeeperStored *stored, size_t n_max);
void keeper_stored_deinit(KeeperStored *stored);

enum { KEEPER_STORED_E_FULL = 1 };

/* 0; KEEPER_STORED_E_FULL: it is closed; or a negative errno, then it is closed, too. */
int keeper_stored_add(KeeperStored *stored, const char *name, int consume_fd);

/* All of that name. */
void keeper_stored_remove(KeeperStored *stored, const char *name);

/* In a child that is about to exec. 0 or a negative errno. */
int keeper_stored_hand_over(const KeeperStored *stored);

#endif
