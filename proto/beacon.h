/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The beacon, version 1: one page of a daemon's, mapped read-only by its clients, by which they see that it has ended,
 * however it ended, without a system call. This file is a protocol.
 *
 * `owner` is a robust futex of the daemon's main thread (set_robust_list(2)): the kernel itself sets
 * BEACON_OWNER_DIED in it when that thread ends, also by SIGKILL. A daemon that comes after it has a beacon of its own.
 */
#ifndef PROTO_BEACON_H
#define PROTO_BEACON_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BEACON_MAGIC UINT64_C(0x314e4f434c4f4621) /* "!FOLCON1" */
#define BEACON_VERSION 1
#define BEACON_BYTES 4096
#define BEACON_OWNER_DIED UINT32_C(0x40000000) /* FUTEX_OWNER_DIED */

typedef struct Beacon {
        uint64_t magic;
        uint32_t version;
        uint32_t reserved;
        uint64_t instance;           /* of the store */
        uint64_t start;              /* a number that no two starts of daemons of that store share */
        uint8_t reserved_1[64 - 32];
        _Atomic uint32_t owner;
        uint8_t reserved_2[BEACON_BYTES - 68];
} Beacon;

static_assert(sizeof(Beacon) == BEACON_BYTES, "beacon");
static_assert(offsetof(Beacon, owner) == 64, "beacon");

/* A load of a line that nobody writes. */
static inline bool beacon_is_lit(const Beacon *beacon)
{
        return !(atomic_load_explicit((_Atomic uint32_t *)&beacon->owner, memory_order_acquire) & BEACON_OWNER_DIED);
}

#endif
