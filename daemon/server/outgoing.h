/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message that waits to be sent: its bytes, and duplicates of its descriptors, so that it depends on nobody. Knows
 * neither whom it is for nor when it goes.
 */
#ifndef DAEMON_SERVER_OUTGOING_H
#define DAEMON_SERVER_OUTGOING_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

typedef struct Outgoing {
        List link;
        size_t n_bytes;
        size_t n_fds;
        int *fds;                    /* ours; behind the bytes */
        uint8_t bytes[];
} Outgoing;

/* 0, or a negative errno: no memory, or no descriptors. */
int outgoing_new(const void *bytes, size_t n_bytes, const int *fds, size_t n_fds, Outgoing **ret);
void outgoing_free(Outgoing *outgoing); /* in no list any more */

#endif
