/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring and the leases of a client without manners: records go in as they are given, whatever they say, and the
 * memory that the daemon shares with its client lies open. Every wait is bounded.
 */
#ifndef TESTS_INTEGRATION_RAW_RING_H
#define TESTS_INTEGRATION_RAW_RING_H

#include "tests/integration/raw.h"

#include "proto/lease.h"
#include "proto/ring.h"

typedef struct RawRing {
        Raw *raw;
        int bell_fd;
        uint64_t tail;
        RingHeader *header;
        RingRecord *records;
        RingResult *results;
} RawRing;

typedef struct RawLease {
        uint32_t number, epoch;
        uint64_t region_id, region_bytes, book_bytes;
        int fd, book_fd;
        uint8_t *data;
        const LeaseBook *book;
} RawLease;

/* Asks for the ring of @raw and maps it. */
RawRing *raw_ring_open(Raw *raw);
void raw_ring_close(RawRing *ring); /* not @raw */

/* Writes the record, publishes it, and rings where that is needed. Its number. It must have room. */
uint64_t raw_ring_submit(RawRing *ring, RingRecord record);

/* Any tail at all, and the bell in any case. */
void raw_ring_publish(RawRing *ring, uint64_t tail);

/* Until everything up to @tail is carried out. False: the daemon has hung up instead. */
bool raw_ring_await(RawRing *ring, uint64_t tail);

/* One record and what came of it; _STATUS_MAX: the daemon has hung up. */
uint32_t raw_ring_call(RawRing *ring, RingRecord record);

/* Asks for a lease with room for @size_bytes, of a region of @wanted_bytes. STATUS_OK: *@ret is to be closed. */
Status raw_lease_open(Raw *raw, uint32_t namespace_id, uint64_t size_bytes, uint64_t wanted_bytes, RawLease *ret);
void raw_lease_close(RawLease *lease);

/* Both, of a fresh connection, with the ids of the two namespaces of spaces.h. The lease is of 2 MiB. */
typedef struct RawHolder {
        Raw *raw;
        RawRing *ring;
        RawLease lease;
        uint32_t trusted_id, default_id;
} RawHolder;

RawHolder raw_holder_open(const Foliod *foliod);
void raw_holder_close(RawHolder *holder);

/* A put of @size_bytes that lie at @offset_bytes of its lease. */
RingRecord raw_holder_put(const RawHolder *holder, const char *key, uint64_t offset_bytes, uint64_t size_bytes);

/* @verb of @key in @namespace_id, with nothing else. */
RingRecord raw_record(RingVerb verb, uint32_t namespace_id, const char *key);

#endif
