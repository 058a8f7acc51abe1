/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of one ring (proto/ring.h): a memfd of fixed size that both sides map for writing, with its header filled
 * in. Knows nothing of what goes through it, nor of who is at the other end.
 */
#ifndef DAEMON_MEMORY_RING_MEMORY_H
#define DAEMON_MEMORY_RING_MEMORY_H

#include "proto/ring.h"

typedef struct RingMemory {
        int fd;                      /* size sealed for good; for the client */
        RingHeader *header;          /* the daemon's mapping of all of it */
} RingMemory;

#define RING_MEMORY_NULL { .fd = -1 }

/* @memory is RING_MEMORY_NULL. The bell hangs. 0 or a negative errno. */
int ring_memory_init(RingMemory *memory);

/*
 * One that an earlier foliod has made, and that its client has still: @consume_fd goes over in any case. All that is
 * in it is the client's, the header too. -EBADF: it is not of that size, or could change it.
 */
int ring_memory_restore(RingMemory *memory, int consume_fd);
void ring_memory_deinit(RingMemory *memory);

#endif
