/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warm pool: blank regions, reserved, huge and zero, ready before anybody asks; made by a worker in idle time, up
 * to a limit, and given back when the memory is wanted for objects. Also keeps packed regions that a namespace has
 * emptied, for that namespace only: their old bytes never reach another.
 *
 * The pool pays for what it keeps through the hooks it is given, so its memory is within the budget like any other.
 */
#ifndef DAEMON_MEMORY_POOL_H
#define DAEMON_MEMORY_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/memory/region.h"
#include "daemon/service/worker.h"

typedef struct Pool Pool;

typedef struct PoolConfig {
        WorkerPool *workers;
        uint64_t bytes_max;          /* 0: keep nothing */
        /* Called on the loop. pay(): false where the budget has no room. */
        bool (*pay)(void *userdata, uint64_t n_bytes);
        void (*repay)(void *userdata, uint64_t n_bytes);
        void *userdata;
} PoolConfig;

int pool_new(const PoolConfig *config, Pool **ret);
void pool_free(Pool *pool); /* after the workers are drained */

/*
 * Kinds of blanks to keep: regions of @size_bytes of @backend (a multiple of PAGE_BYTES, @for_packed of HUGE_BYTES),
 * mapped writable by the daemon and sealed to it where @for_packed, else unmapped and with their size sealed. @n_target
 * of them, refilled in idle time, and what is above freed. What could not be made is tried again when somebody takes or
 * wants.
 */
void pool_want(Pool *pool, Backend *backend, uint64_t size_bytes, bool for_packed, unsigned n_target);

/*
 * A blank of at least @size_bytes and at most an eighth more, @for_packed at most twice that (or NULL), whole, zero; the payment goes with it: the caller
 * repays when it is freed. @tag 0, or the namespace's for a region it emptied itself (then the bytes are old).
 */
Region *pool_take(Pool *pool, Backend *backend, uint64_t size_bytes, bool for_packed, uint64_t tag, bool *ret_is_blank);

/* An emptied packed region, paid for, to be kept for @tag or freed as room allows. Taken over. */
void pool_give(Pool *pool, Region *consume_region, uint64_t tag);

/* A namespace is gone: frees what is kept for it. */
void pool_forget(Pool *pool, uint64_t tag);

/* Another limit; what is over it is freed. */
void pool_set_limit(Pool *pool, uint64_t bytes_max);

/* Frees at least @n_bytes if it has them (on a worker where large); returns what was repaid at once. */
uint64_t pool_drain(Pool *pool, uint64_t n_bytes);

typedef struct PoolUsage {
        uint64_t bytes;              /* paid for: also what is being made, or on its way back */
        uint64_t ready_bytes;        /* blanks, and what is kept */
        uint64_t n_blank;
        uint64_t n_kept;
        uint64_t n_hits;
        uint64_t n_misses;
        uint64_t n_collapse_failed;
} PoolUsage;

void pool_get_usage(const Pool *pool, PoolUsage *ret);

#endif
