/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own keeper, where no service manager has a descriptor store: the process that was started stays as it is and
 * starts the daemon proper as its child, for which it plays the manager. It holds what is stored, starts the child
 * again when that has ended in disorder, and does as little as possible besides, so that it has no reason to end.
 *
 * SIGTERM, SIGINT and SIGHUP go on to the child. SIGUSR1: the program is started again, as it is then on disk. It ends
 * with the child, where that ends in order, and until the child was ready once: a daemon that cannot start has
 * nothing to keep.
 */
#ifndef DAEMON_SERVICE_KEEPER_PROCESS_H
#define DAEMON_SERVICE_KEEPER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct KeeperProcessConfig {
        char **argv;                 /* of the child, too */
        int consume_ready_fd;        /* written one byte and closed when the child is ready; -1 */
        unsigned n_slots;            /* descriptors it holds at most */
} KeeperProcessConfig;

/* Returns the exit status. */
int keeper_process_run(const KeeperProcessConfig *config);

/* How long until a child that has ended is followed by another: the @n_quick-th after one that did not last. */
uint64_t keeper_process_delay_ms(bool was_ready, unsigned n_quick);

/* In the child: the keeper's process. 0: we are nobody's child. */
pid_t keeper_process_of_child(void);

#endif
