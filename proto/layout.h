/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in shared memory, version 1. This file is a protocol: offsets and meanings never change within a layout
 * version. All numbers are in the byte order of the host, naturally aligned, reserved fields are 0.
 *
 * The index of a namespace is one region: written by the daemon alone, mapped read-only by clients.
 *
 *      header | buckets | overflow buckets | slots | graves | events | heap
 *
 * Each area begins at a multiple of 2 MiB from the second on, so that an area that has grown can be made of huge
 * pages; the region is sparse, untouched parts take no memory. Areas are found through the header, never by
 * arithmetic on this description.
 *
 * Buckets. The table grows by linear hashing: `n_buckets` rises one at a time, and nothing ever moves but the
 * entries of the one bucket that is split. For a key's hash h and n = n_buckets, the bucket is layout_bucket(h, n). A bucket
 * has its own seqlock, which also covers the overflow buckets chained to it, and which is the futex word on which a
 * waiting get sleeps: it changes whenever an entry of the chain, or the state of a slot in it, changes. A negative answer is valid when the
 * bucket's sequence and n_buckets were the same before and after.
 *
 * Slots. A slot is an object's record. Its seqlock covers it, and the heap blocks it refers to. A slot is taken by a
 * new object only when the old one is freed, that is after the last pin has gone, so the index of a slot names its
 * object for as long as a pin is on it; `generation` tells the objects that use a slot one after the other apart.
 *
 * Graves remember why a name is not there any more: a direct-mapped table by hash, newest wins, so it forgets.
 *
 * Events are a ring of records, each with its number; `sequence` 0 while it is being written.
 *
 * A pin table belongs to one connection and one namespace: written by the client, read by the daemon. It has a
 * counter for each slot, and before that one byte for each 1024 counters, which the client sets to 1 before it first
 * touches one of them, and never clears: where it is 0 the daemon does not look, so holes stay holes.
 */
#ifndef PROTO_LAYOUT_H
#define PROTO_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "folio/types.h"

#define LAYOUT_INDEX_MAGIC UINT64_C(0x31585844494c4f46) /* "FOLIDXX1" */
#define LAYOUT_PINS_MAGIC UINT64_C(0x31534e49504c4f46)  /* "FOLPINS1" */
#define LAYOUT_VERSION 1

#define LAYOUT_BUCKET_ENTRIES 8
#define LAYOUT_SLOT_KEY_BYTES 24 /* longer keys continue in the heap */
#define LAYOUT_HEAP_UNIT_BYTES 64
#define LAYOUT_PINS_PER_SUMMARY 1024
#define LAYOUT_CHUNK_UNIT_BYTES 64 /* offsets of chunks are counted in these */

enum {
        LAYOUT_SLOT_FREE = 0,
        LAYOUT_SLOT_WRITING = FOLIO_STATE_WRITING,
        LAYOUT_SLOT_SEALED = FOLIO_STATE_SEALED,
        LAYOUT_SLOT_MUTABLE = FOLIO_STATE_MUTABLE,
        LAYOUT_SLOT_RETRACTED = 4, /* deleted or replaced, held by a pin: in no bucket any more, its bytes still there */
        _LAYOUT_SLOT_STATE_MAX
};

/* LayoutSlot.flags */
#define LAYOUT_FLAG_HOLES (1u << 0)
#define LAYOUT_FLAG_SPARSE (1u << 1)
#define LAYOUT_FLAG_WITH_CREATOR (1u << 2)
#define LAYOUT_FLAG_ZEROS (1u << 3) /* own regions: `extents_block` lists ranges that read as zeros */
#define LAYOUT_FLAG_REPLACING (1u << 4) /* being written: it has no name before it is sealed, and takes it from another then */
#define LAYOUT_FLAG_STREAM (1u << 5) /* being written: its file grows */

/* What a namespace is by its settings, as `NAMESPACE_ADD` gives them. */
typedef struct LayoutSettings {
        uint64_t quota_bytes;
        uint64_t quota_objects;
        uint64_t objects_max;
        uint32_t owner_uid;
        uint32_t owner_gid;
        uint32_t mode;
        uint8_t backing;
        uint8_t huge;
        uint8_t writers;
        uint8_t reserved;
        uint64_t checksum;           /* xxh3 of what is before */
} LayoutSettings;

/* Read and written as LAYOUT_SLOT_WORDS relaxed atomic words under `sequence`, and then looked at as a copy. */
typedef struct LayoutSlot {
        uint32_t sequence;           /* only through seqlock.h */
        uint8_t state;               /* LAYOUT_SLOT_* */
        uint8_t flags;               /* LAYOUT_FLAG_* */
        uint8_t key_bytes;           /* 1..255 */
        uint8_t placement : 2;       /* enum folio_placement */
        uint8_t protection : 3;      /* enum folio_protection */
        uint8_t backing : 3;         /* enum folio_backing */
        uint64_t generation;
        uint64_t hash;
        uint64_t size_bytes;
        uint64_t region_id;
        union {
                uint32_t offset_units;  /* packed: of the chunk in the region, in LAYOUT_CHUNK_UNIT_BYTES */
                uint32_t extents_block; /* own regions: of a LayoutExtents in the heap, in LAYOUT_HEAP_UNIT_BYTES; 0: none */
        };
        uint32_t heap_block;         /* in LAYOUT_HEAP_UNIT_BYTES from the heap's beginning; 0: none (block 0 is never used) */
        uint64_t capacity_bytes;     /* what the mapping of the object covers */
        uint32_t allocated_pages;    /* of 4 KiB; packed, while being written: 1 + the number it has in its client's ring */
        uint32_t huge_folios;        /* of 2 MiB */
        uint64_t created_ns;
        uint64_t changed_ns;
        uint64_t expires_ns;         /* 0: never. A reader treats a passed time as gone already. */
        uint32_t owner_uid;
        uint16_t metadata_bytes;
        uint8_t content_type_bytes;
        uint8_t reserved;
        uint32_t checksum;           /* layout_slot_checksum(): for a daemon that finds the record; readers have the sequence */
        uint32_t session;            /* number of the session that is writing it, or that it dies with; 0: of none */
        uint8_t key[LAYOUT_SLOT_KEY_BYTES]; /* its first bytes; rest 0 */
} LayoutSlot;

#define LAYOUT_SLOT_WORDS (sizeof(LayoutSlot) / sizeof(uint64_t))

typedef struct LayoutIndexHeader {
        /* Written once, before the region is shared. */
        uint64_t magic;
        uint32_t layout_version;
        uint32_t header_bytes;
        uint32_t compatible_flags;   /* a reader that does not know one may go on */
        uint32_t incompatible_flags; /* a reader that does not know one must refuse */
        uint64_t region_bytes;
        uint64_t instance;           /* of the daemon's store: a random number */
        uint64_t index_generation;
        uint64_t hash_seed;
        uint32_t namespace_id;
        uint32_t n_slots_max;
        uint32_t n_buckets_max;
        uint32_t n_overflow_max;
        uint32_t n_graves;           /* a power of two */
        uint32_t n_events;           /* a power of two */
        uint64_t buckets_offset;
        uint64_t overflow_offset;
        uint64_t slots_offset;
        uint64_t graves_offset;
        uint64_t events_offset;
        uint64_t heap_offset;
        uint64_t heap_bytes;
        char namespace_name[64];     /* NUL-terminated */
        /*
         * For the next daemon (PROTOCOL.md, Restore); no reader needs them. Two copies of the settings, of which
         * settings_current is in force: the other is written, then that.
         */
        LayoutSettings settings[2];
        _Atomic uint32_t settings_current;
        _Atomic uint32_t is_complete; /* 1: it holds all that it was made to hold, and stands for those before it */
        uint8_t reserved_0[1024 - 200 - 2 * sizeof(LayoutSettings) - 8];

        /* Written all the time; each on a cache line of its own. */
        _Atomic uint32_t n_buckets;  /* in use; 1 at the beginning */
        _Atomic uint32_t is_closed;  /* 1: the namespace is gone, or the daemon has ended in order: ask again */
        uint8_t reserved_1[56];
        _Atomic uint32_t n_slots;    /* every slot ever used is below this */
        uint8_t reserved_2[60];
        _Atomic uint64_t n_objects;  /* that have a name */
        uint8_t reserved_3[56];
        _Atomic uint64_t event_sequence; /* the number of the newest event; 0: none yet */
        _Atomic uint32_t event_futex;    /* its low half, for FUTEX_WAIT */
        uint8_t reserved_4[52];
        /*
         * The daemon's note of a record that it is about to write over one that is known to others: where it ends in the
         * middle, the next one writes it again. Valid while journal_slot is not 0: slot + 1.
         */
        _Atomic uint32_t journal_slot;
        uint8_t reserved_5[60];
        LayoutSlot journal;
        uint8_t reserved_6[4096 - 1344 - 128];
} LayoutIndexHeader;

typedef struct LayoutBucket {
        _Atomic uint32_t sequence;   /* seqlock of the chain, and futex word; of overflow buckets: unused */
        _Atomic uint32_t next;       /* overflow bucket + 1; 0: none */
        _Atomic uint32_t slot[LAYOUT_BUCKET_ENTRIES]; /* slot + 1; 0: none */
        _Atomic uint16_t tag[LAYOUT_BUCKET_ENTRIES];  /* layout_tag() of the hash */
        uint64_t reserved;
} LayoutBucket;

/*
 * The heap block of a slot: what is left of the key, then the content type, then the metadata, packed without gaps;
 * its length follows from the three lengths in the slot.
 */
static inline uint64_t layout_heap_bytes(const LayoutSlot *slot)
{
        uint64_t key = slot->key_bytes > LAYOUT_SLOT_KEY_BYTES ? (uint64_t)slot->key_bytes - LAYOUT_SLOT_KEY_BYTES : 0;

        return key + slot->content_type_bytes + slot->metadata_bytes;
}

/*
 * The ranges of an own region that read as zeros, in ascending order, apart from each other, in pages of 4 KiB: holes,
 * and pages that were reserved and never written, or hold nothing but zeros. The last page may lie in the object in
 * part, and ranges beyond its end are of no meaning. Of a sealed object this is true for ever, and pieces may be added
 * after the seal. Of a mutable one it was true when the daemon last looked: such a range is then to be read by
 * descriptor, which touches nothing where there is still nothing. Each new list changes the slot. A range that is not
 * listed is data, or was too small to be listed, or, of a mutable object, has become a hole since.
 */
typedef struct LayoutExtent {
        uint32_t first_page;
        uint32_t n_pages;
} LayoutExtent;

#define LAYOUT_EXTENTS_MAX 511
typedef struct LayoutExtents {
        uint32_t n_extents;          /* 1..LAYOUT_EXTENTS_MAX */
        uint32_t is_partial;         /* 1: holes are left out that were too many; what is not listed may still be one */
        LayoutExtent extents[LAYOUT_EXTENTS_MAX]; /* in the heap only the first @n_extents are there */
} LayoutExtents;

/* What a list takes in the heap. */
static inline size_t layout_extents_bytes(uint32_t n_extents)
{
        return offsetof(LayoutExtents, extents) + n_extents * sizeof(LayoutExtent);
}

/* One word: the high 56 bits of the hash, and below them why it is gone: an enum folio_event_type; 0: empty. */
typedef _Atomic uint64_t LayoutGrave;

#define LAYOUT_GRAVE_REASON_MASK UINT64_C(0xff)
#define LAYOUT_GRAVE_WRITER_DIED 0x20 /* a reason that is no event */

typedef struct LayoutEvent {
        _Atomic uint64_t sequence;   /* 0 while being written */
        uint64_t generation;
        uint64_t size_bytes;
        uint64_t time_ns;
        uint32_t type;               /* enum folio_event_type */
        uint32_t slot;
        uint64_t origin;             /* layout_origin_*(): whose request it came of; 0: of nobody's */
        uint8_t key_bytes;
        uint8_t key[255];            /* the first key_bytes of it; what is behind is of no meaning */
        uint8_t reserved[16];        /* of no meaning: short keys leave a record in one cache line */
} LayoutEvent;

#define LAYOUT_EVENT_WORDS (sizeof(LayoutEvent) / sizeof(uint64_t))

typedef struct LayoutPinsHeader {
        uint64_t magic;
        uint32_t layout_version;
        uint32_t n_slots_max;
        uint64_t region_bytes;
        uint64_t summary_offset;     /* n_slots_max / LAYOUT_PINS_PER_SUMMARY bytes, rounded up */
        uint64_t counters_offset;    /* n_slots_max of _Atomic uint32_t */
        uint8_t reserved_0[64 - 40];
        /*
         * How many threads of the client sleep on words of the index, or are about to: the client counts itself, fences, and
         * looks at the word again before it sleeps; the daemon changes the word, fences, and need wake nobody where it
         * finds 0 in all tables.
         */
        _Atomic uint32_t n_waiting;
        uint8_t reserved_1[4096 - 68];
} LayoutPinsHeader;

static_assert(sizeof(LayoutIndexHeader) == 4096, "index header");
static_assert(offsetof(LayoutIndexHeader, namespace_name) == 136, "index header");
static_assert(offsetof(LayoutIndexHeader, n_buckets) == 1024, "index header");
static_assert(offsetof(LayoutIndexHeader, n_slots) == 1088, "index header");
static_assert(offsetof(LayoutIndexHeader, n_objects) == 1152, "index header");
static_assert(offsetof(LayoutIndexHeader, event_sequence) == 1216, "index header");
static_assert(sizeof(LayoutBucket) == 64, "bucket");
static_assert(sizeof(LayoutSlot) == 128, "slot");
static_assert(offsetof(LayoutSlot, generation) == 8, "slot");
static_assert(offsetof(LayoutSlot, region_id) == 32, "slot");
static_assert(offsetof(LayoutSlot, capacity_bytes) == 48, "slot");
static_assert(offsetof(LayoutSlot, created_ns) == 64, "slot");
static_assert(offsetof(LayoutSlot, owner_uid) == 88, "slot");
static_assert(offsetof(LayoutSlot, checksum) == 96, "slot");
static_assert(offsetof(LayoutSlot, key) == 104, "slot");
static_assert(sizeof(LayoutSettings) == 48, "settings");
static_assert(offsetof(LayoutIndexHeader, settings) == 200, "index header");
static_assert(offsetof(LayoutIndexHeader, journal_slot) == 1280, "index header");
static_assert(offsetof(LayoutIndexHeader, journal) == 1344, "index header");
static_assert(offsetof(LayoutSlot, extents_block) == 40, "slot");
static_assert(sizeof(LayoutExtents) == 4096, "extents");
static_assert(sizeof(LayoutGrave) == 8, "grave");
static_assert(sizeof(LayoutEvent) == 320, "event");
static_assert(offsetof(LayoutEvent, origin) == 40, "event");
static_assert(offsetof(LayoutEvent, key) == 49, "event");
static_assert(sizeof(LayoutPinsHeader) == 4096, "pins header");
static_assert(offsetof(LayoutPinsHeader, n_waiting) == 64, "pins header");

/* Which of @n_buckets buckets (at least 1) a hash belongs to. */
static inline uint32_t layout_bucket(uint64_t hash, uint32_t n_buckets)
{
        uint32_t mask = n_buckets <= 1 ? 0 : (UINT32_MAX >> __builtin_clz(n_buckets - 1));
        uint32_t bucket = (uint32_t)hash & mask;

        return bucket < n_buckets ? bucket : bucket & (mask >> 1);
}

static inline uint16_t layout_tag(uint64_t hash)
{
        return (uint16_t)(hash >> 48);
}

static inline uint32_t layout_grave_place(uint64_t hash, uint32_t n_graves)
{
        return (uint32_t)(hash >> 24) & (n_graves - 1);
}

/*
 * Whose request an event came of: the number of the session, and, of the request, what tells those that can be under
 * way at one time apart. A client that has lost its daemon finds out by it what has been done.
 */
static inline uint64_t layout_origin_of_record(uint32_t session, uint64_t sequence)
{
        return (uint64_t)session << 32 | UINT32_C(1) << 31 | ((uint32_t)sequence & (UINT32_MAX >> 1));
}

static inline int layout_origin_is_record(uint64_t origin)
{
        return (origin & UINT32_C(1) << 31) != 0;
}

static inline uint64_t layout_origin_of_message(uint32_t session, uint64_t request_id, uint32_t item)
{
        return (uint64_t)session << 32 | ((uint32_t)request_id & 0x7fffff) << 8 | (item & 0xff);
}

/* Where event number @sequence (from 1) stands in the ring. */
static inline uint32_t layout_event_place(uint64_t sequence, uint32_t n_events)
{
        return (uint32_t)sequence & (n_events - 1);
}

static inline uint64_t layout_grave(uint64_t hash, uint8_t reason)
{
        return (hash & ~LAYOUT_GRAVE_REASON_MASK) | reason;
}

#endif
