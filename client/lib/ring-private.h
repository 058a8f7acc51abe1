/* SPDX-License-Identifier: Apache-2.0 */
/* What a ring is made of: for ring.c, which works with it, and ring-new.c, which makes it. */
#ifndef CLIENT_LIB_RING_PRIVATE_H
#define CLIENT_LIB_RING_PRIVATE_H

#include <pthread.h>

#include "client/lib/kept.h"
#include "client/lib/ring.h"
#include "client/lib/spin.h"

#define RING_LATEST 4096u            /* places in the table of hashes; a power of two */
#define RING_LINE_BYTES 64

struct Ring {
        /* Never written again. */
        RingHeader *shared;
        RingRecord *records;
        RingResult *results;
        uint64_t n_bytes;
        uint64_t n_records;
        uint64_t mask;
        uint8_t *is_wanted;          /* a place each; with the lock */
        _Atomic uint64_t *hashes;    /* a place each: what the record there is about; 0: none. Written with the lock */
        int bell_fd;
        RingConfig config;
        /* With the lock, but `tail`, which anybody reads. */
        _Alignas(RING_LINE_BYTES) pthread_mutex_t lock;
        _Atomic uint64_t tail;
        uint64_t look_at;            /* the number at which to look at the daemon's lines again; 0: broken */
        _Alignas(RING_LINE_BYTES) uint64_t n_failed; /* that we have found */
        Kept kept;
        Spin spin;
        /* Written seldom, read by every reader. */
        _Alignas(RING_LINE_BYTES) _Atomic uint64_t seen;
        atomic_bool is_broken;       /* it is of no use any more */
        _Atomic uint32_t n_restarts; /* as it was when what the daemon at work has done could be seen */
        atomic_bool is_gone;         /* there is nobody to wait for */
        atomic_bool has_rung;        /* the daemon was asleep, and nobody has waited since */
        _Alignas(RING_LINE_BYTES) _Atomic uint32_t latest[RING_LATEST];
};

#endif
