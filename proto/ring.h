/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of one connection, version 1: shared memory by which a client asks for small things without a system call.
 * This file is a protocol, as layout.h is.
 *
 *      header | records | results
 *
 * A memfd that the daemon makes, of a fixed, sealed size; both sides map it for writing. The client writes records and
 * `tail`; the daemon carries records out one after the other, in order, and writes `head`. Record number n (from 0)
 * stands at n modulo n_records, and is the client's again when head is greater than n. Both numbers only grow.
 *
 * Nothing in it is trusted: the daemon copies a record once and checks the copy, takes no number from it but `tail`,
 * which it checks, and keeps its own of the rest. Whatever a client does to its ring it does to itself.
 *
 * Bell. Where `bell` is 1 the daemon does not look at the ring by itself. The client publishes `tail`, fences, and where
 * it finds 1 exchanges it for 0; who got the 1 writes to the eventfd. The daemon, before it stops looking, stores 1, fences,
 * and looks at `tail` once more. Before it writes, who rings says in bell_cpu which processor it runs on: a daemon that finds itself
 * on the same one would keep it from going on, and moves to another.
 *
 * Sleep. A client that waits for head counts itself in n_sleeping, fences, looks at head again, and waits on head_futex
 * (the low half of head). The daemon stores head and head_futex, fences, and wakes where n_sleeping is not 0.
 *
 * Results. The result of a record stands at the same place, and is written before head passes it: always where the
 * record failed, else only where it asks (RING_FLAG_RESULT). n_failed counts those that failed. The sentence of one failure at a time is in
 * `failure_text`, and is that of record failure_sequence - 1; the client stores 0 there when it has read it, and the
 * daemon writes only where there is 0.
 *
 * Leases. lease_use[i] counts the client's threads that are placing something in the lease of number i, or must not lose
 * it for another reason: see lease.h.
 */
#ifndef PROTO_RING_H
#define PROTO_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC UINT64_C(0x31474e524c4f4621) /* "!FOLRNG1" */
#define RING_VERSION 1
#define RING_RECORDS 512u            /* a power of two */
#define RING_KEY_BYTES_MAX 72        /* longer keys go through the socket, as do metadata and content types */
#define RING_LEASES_MAX 64
#define RING_MADE_MAX 256u           /* objects a client is writing through its ring at one time */
#define RING_FAILURE_BYTES_MAX 480

typedef enum RingVerb {
        RING_VERB_NONE = 0,
        RING_VERB_PUT = 1,           /* a sealed object of bytes that are there already: in staging memory, or in a lease */
        RING_VERB_CREATE = 2,        /* an object that is being written there; `slot` is the client's number for it */
        RING_VERB_SEAL = 3,          /* of that number; region_id and offset_bytes as at its creation */
        RING_VERB_ABORT = 4,         /* of that number */
        RING_VERB_DELETE = 5,
        RING_VERB_RELEASE = 6,       /* by slot and generation; a hint, as on the socket */
        RING_VERB_TRUNCATE = 7,
        _RING_VERB_MAX
} RingVerb;

/* RingRecord.flags, besides FOLIO_REPLACE (PUT, CREATE) and PROTO_ITEM_IF_EXISTS (DELETE). */
#define RING_FLAG_RESULT (1u << 31)  /* write a result also where it succeeds */

typedef struct RingRecord {
        uint8_t verb;                /* RingVerb */
        uint8_t key_bytes;           /* 0: named by slot and generation, or by the client's number */
        uint8_t lifetime;
        uint8_t reserved;
        uint32_t flags;
        uint32_t namespace_id;
        uint32_t slot;               /* CREATE, SEAL, ABORT: the client's number, below RING_MADE_MAX */
        uint64_t generation;
        uint64_t size_bytes;
        uint64_t region_id;          /* of the lease in which the bytes lie; 0: in staging memory */
        uint64_t offset_bytes;       /* there */
        uint64_t expires_ns;
        uint8_t key[RING_KEY_BYTES_MAX];
} RingRecord;

typedef struct RingResult {
        _Atomic uint32_t sequence;   /* low half of the record's number + 1: whose result this is */
        uint32_t status;             /* Status */
        uint32_t slot;
        uint32_t reserved;
        uint64_t generation;
        uint64_t reserved_1;
} RingResult;

typedef struct RingHeader {
        /* Written once, before the client has it. */
        uint64_t magic;
        uint32_t version;
        uint32_t n_records;
        uint64_t region_bytes;
        uint64_t records_offset;
        uint64_t results_offset;
        uint8_t reserved_0[64 - 40];
        /* The client's line. */
        _Atomic uint64_t tail;       /* records published */
        _Atomic uint32_t n_sleeping;
        uint8_t reserved_1[64 - 12];
        /* The daemon's line. */
        _Atomic uint64_t head;       /* records carried out */
        _Atomic uint64_t n_failed;
        _Atomic uint32_t head_futex;
        uint8_t reserved_2[64 - 20];
        /* Both write. */
        _Atomic uint32_t bell;
        _Atomic uint32_t bell_cpu;   /* of who rang last, + 1; 0: not said */
        uint8_t reserved_3[64 - 8];
        _Atomic uint32_t lease_use[RING_LEASES_MAX];
        _Atomic uint64_t failure_sequence; /* record + 1; 0: none unread */
        uint32_t failure_status;
        uint32_t failure_bytes;
        char failure_text[RING_FAILURE_BYTES_MAX];
        uint8_t reserved_4[1024 - 512 - 16 - RING_FAILURE_BYTES_MAX];
        /*
         * For the next daemon, should this one end without a word (PROTOCOL.md, Restart): `head` is told after several
         * records, this counts each. The client never looks here, so the line is the daemon's alone.
         */
        _Atomic uint64_t carried_out;
        uint8_t reserved_5[64 - 8];
        /*
         * How many daemons have taken the ring over: each raises it before it carries anything out. A client that finds more
         * than when it last had an index may not find there what its records have done.
         */
        _Atomic uint32_t n_restarts;
        uint8_t reserved_6[4096 - 1088 - 4];
} RingHeader;

static_assert(sizeof(RingRecord) == 128, "record");
static_assert(offsetof(RingRecord, generation) == 16, "record");
static_assert(offsetof(RingRecord, key) == 56, "record");
static_assert(sizeof(RingResult) == 32, "result");
static_assert(sizeof(RingHeader) == 4096, "ring header");
static_assert(offsetof(RingHeader, tail) == 64, "ring header");
static_assert(offsetof(RingHeader, head) == 128, "ring header");
static_assert(offsetof(RingHeader, bell) == 192, "ring header");
static_assert(offsetof(RingHeader, lease_use) == 256, "ring header");
static_assert(offsetof(RingHeader, failure_sequence) == 512, "ring header");
static_assert(offsetof(RingHeader, carried_out) == 1024, "ring header");
static_assert(offsetof(RingHeader, n_restarts) == 1088, "ring header");

#define RING_RECORDS_OFFSET sizeof(RingHeader)
#define RING_RESULTS_OFFSET (sizeof(RingHeader) + RING_RECORDS * sizeof(RingRecord))
#define RING_REGION_BYTES                                                                                              \
        (sizeof(RingHeader) + RING_RECORDS * sizeof(RingRecord) + RING_RECORDS * sizeof(RingResult))

/* --- the fences of the two agreements, one verb a side ------------------------------------------------------------ */

/* Client: everything up to record @tail - 1 is there. True: the daemon sleeps, and the caller has to ring. */
static inline int ring_publish_tail(RingHeader *ring, uint64_t tail)
{
        atomic_store_explicit(&ring->tail, tail, memory_order_release);
        /* For the daemon: either it sees this tail after its 1, or we see its 1. */
        atomic_thread_fence(memory_order_seq_cst);
        return atomic_load_explicit(&ring->bell, memory_order_relaxed) != 0 &&
               atomic_exchange_explicit(&ring->bell, 0, memory_order_acq_rel) != 0;
}

/* Daemon: from here on it has to be rung for. True: something has come before that, so go on instead. */
static inline int ring_hang_bell(RingHeader *ring, uint64_t head)
{
        atomic_store_explicit(&ring->bell, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&ring->tail, memory_order_relaxed) == head)
                return 0;
        atomic_store_explicit(&ring->bell, 0, memory_order_relaxed);
        return 1;
}

/* Daemon: true: somebody may be asleep on head_futex, and is to be woken. After one or more ring_publish_head(). */
static inline void ring_publish_head(RingHeader *ring, uint64_t head)
{
        atomic_store_explicit(&ring->head, head, memory_order_release);
        atomic_store_explicit(&ring->head_futex, (uint32_t)head, memory_order_release);
}

static inline int ring_has_sleepers(RingHeader *ring)
{
        atomic_thread_fence(memory_order_seq_cst);
        return atomic_load_explicit(&ring->n_sleeping, memory_order_relaxed) != 0;
}

#endif
