/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer of the shared index, as plain as layout.h allows: for the tests of those who read it. It keeps the order of
 * stores that layout.h and PROTOCOL.md ask for, and none of the real writer's economy. One thread writes. Sizes are
 * small, places come one after the other and are not reused but by fake_index_reuse().
 */
#ifndef TESTS_UNIT_INDEX_FAKE_H
#define TESTS_UNIT_INDEX_FAKE_H

#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/space.h"
#include "proto/key.h"
#include "proto/layout.h"
#include "proto/seqlock.h"
#include "tests/unit/harness.h"

typedef struct FakeIndex {
        int index_fd;                /* both are given out as duplicates only */
        int pins_fd;
        uint8_t *base;
        LayoutIndexHeader *header;
        LayoutBucket *buckets;
        LayoutBucket *overflow;
        LayoutSlot *slots;
        LayoutGrave *graves;
        LayoutEvent *events;
        uint8_t *heap;
        uint32_t n_slots;
        uint32_t n_overflow;         /* given out by now */
        uint32_t heap_next;
        uint64_t generation;
} FakeIndex;

static inline uint64_t fake_area(uint64_t *at, uint64_t n_bytes)
{
        uint64_t begin = *at;

        *at = ALIGN_UP(*at + n_bytes, UINT64_C(64));
        return begin;
}

static inline void fake_pins_new(FakeIndex *fake, uint32_t n_slots_max)
{
        uint64_t summary = sizeof(LayoutPinsHeader);
        uint64_t counters = ALIGN_UP(summary + n_slots_max / LAYOUT_PINS_PER_SUMMARY + 1, UINT64_C(64));
        LayoutPinsHeader header = {
                .magic = LAYOUT_PINS_MAGIC,
                .layout_version = LAYOUT_VERSION,
                .n_slots_max = n_slots_max,
                .region_bytes = ALIGN_UP(counters + n_slots_max * UINT64_C(4), UINT64_C(4096)),
                .summary_offset = summary,
                .counters_offset = counters,
        };

        fake->pins_fd = memfd_create("fake-pins", MFD_CLOEXEC);
        assert_true(fake->pins_fd >= 0);
        assert_int_equal(ftruncate(fake->pins_fd, (off_t)header.region_bytes), 0);
        assert_int_equal(pwrite(fake->pins_fd, &header, sizeof(header), 0), sizeof(header));
}

static inline void fake_index_new(FakeIndex *fake, uint32_t n_slots_max, uint32_t n_buckets_max,
                                  uint32_t n_overflow_max)
{
        LayoutIndexHeader h = {
                .magic = LAYOUT_INDEX_MAGIC,
                .layout_version = LAYOUT_VERSION,
                .header_bytes = sizeof(h),
                .hash_seed = 42,
                .namespace_id = 7,
                .n_slots_max = n_slots_max,
                .n_buckets_max = n_buckets_max,
                .n_overflow_max = n_overflow_max,
                .n_graves = 64,
                .n_events = 16,
                .heap_bytes = 64 * KIB,
                .namespace_name = "test",
                .n_buckets = 1,
        };
        uint64_t at = sizeof(h);

        *fake = (FakeIndex){ .index_fd = -1, .pins_fd = -1, .heap_next = 1 };
        h.buckets_offset = fake_area(&at, n_buckets_max * sizeof(LayoutBucket));
        h.overflow_offset = fake_area(&at, n_overflow_max * sizeof(LayoutBucket));
        h.slots_offset = fake_area(&at, n_slots_max * sizeof(LayoutSlot));
        h.graves_offset = fake_area(&at, h.n_graves * sizeof(LayoutGrave));
        h.events_offset = fake_area(&at, h.n_events * sizeof(LayoutEvent));
        h.heap_offset = fake_area(&at, h.heap_bytes);
        h.region_bytes = ALIGN_UP(at, UINT64_C(4096));
        fake->index_fd = memfd_create("fake-index", MFD_CLOEXEC);
        assert_true(fake->index_fd >= 0);
        assert_int_equal(ftruncate(fake->index_fd, (off_t)h.region_bytes), 0);
        fake->base = mmap(NULL, h.region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fake->index_fd, 0);
        assert_true(fake->base != MAP_FAILED);
        memcpy(fake->base, &h, sizeof(h));
        fake->header = (LayoutIndexHeader *)fake->base;
        fake->buckets = (LayoutBucket *)(fake->base + h.buckets_offset);
        fake->overflow = (LayoutBucket *)(fake->base + h.overflow_offset);
        fake->slots = (LayoutSlot *)(fake->base + h.slots_offset);
        fake->graves = (LayoutGrave *)(fake->base + h.graves_offset);
        fake->events = (LayoutEvent *)(fake->base + h.events_offset);
        fake->heap = fake->base + h.heap_offset;
        fake_pins_new(fake, n_slots_max);
}

static inline void fake_index_free(FakeIndex *fake)
{
        munmap(fake->base, fake->header->region_bytes);
        close(fake->index_fd);
        close(fake->pins_fd);
}

/* As a client gets it after NAMESPACE_OPEN. */
static inline int fake_index_open(const FakeIndex *fake, Space **ret)
{
        ProtoNamespace ns = { .name = "test", .id = 7, .rights = FOLIO_RIGHT_READ };

        return space_new(&ns, 1, dup(fake->index_fd), dup(fake->pins_fd), ret);
}

static inline Key fake_key(const char *text)
{
        return (Key){ text, strlen(text) };
}

static inline uint64_t fake_hash(const FakeIndex *fake, Key key)
{
        return key_hash(key.bytes, key.n_bytes, fake->header->hash_seed);
}

static inline LayoutBucket *fake_bucket(FakeIndex *fake, uint64_t hash)
{
        return &fake->buckets[layout_bucket(hash, atomic_load(&fake->header->n_buckets))];
}

static inline void fake_bucket_begin(LayoutBucket *bucket)
{
        seqlock_write_begin((uint32_t *)&bucket->sequence);
}

static inline void fake_bucket_end(LayoutBucket *bucket)
{
        seqlock_write_end((uint32_t *)&bucket->sequence);
        syscall(SYS_futex, &bucket->sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Inside begin and end. */
static inline void fake_chain_put(FakeIndex *fake, LayoutBucket *bucket, uint64_t hash, uint32_t slot)
{
        for (;; bucket = &fake->overflow[atomic_load(&bucket->next) - 1]) {
                for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++)
                        if (atomic_load(&bucket->slot[i]) == 0) {
                                atomic_store_explicit(&bucket->tag[i], layout_tag(hash), memory_order_relaxed);
                                atomic_store_explicit(&bucket->slot[i], slot + 1, memory_order_relaxed);
                                return;
                        }
                if (atomic_load(&bucket->next) == 0) {
                        assert_true(fake->n_overflow < fake->header->n_overflow_max);
                        atomic_store(&bucket->next, ++fake->n_overflow);
                }
        }
}

static inline void fake_chain_take(FakeIndex *fake, LayoutBucket *bucket, uint32_t slot)
{
        for (;; bucket = &fake->overflow[atomic_load(&bucket->next) - 1]) {
                for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++)
                        if (atomic_load(&bucket->slot[i]) == slot + 1) {
                                atomic_store_explicit(&bucket->slot[i], 0, memory_order_relaxed);
                                return;
                        }
                if (atomic_load(&bucket->next) == 0)
                        return;
        }
}

/* One more bucket; the entries of the one that is split go where they belong now. */
static inline void fake_index_split(FakeIndex *fake)
{
        uint32_t n = atomic_load(&fake->header->n_buckets), top = n == 1 ? 1 : UINT32_C(1) << (31 - __builtin_clz(n));
        LayoutBucket *from = &fake->buckets[n - top], *to = &fake->buckets[n];

        assert_true(n < fake->header->n_buckets_max);
        fake_bucket_begin(from);
        fake_bucket_begin(to);
        for (LayoutBucket *at = from;; at = &fake->overflow[atomic_load(&at->next) - 1]) {
                for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++) {
                        uint32_t entry = atomic_load(&at->slot[i]);

                        if (entry && layout_bucket(fake->slots[entry - 1].hash, n + 1) == n) {
                                atomic_store_explicit(&at->slot[i], 0, memory_order_relaxed);
                                fake_chain_put(fake, to, fake->slots[entry - 1].hash, entry - 1);
                        }
                }
                if (atomic_load(&at->next) == 0)
                        break;
        }
        atomic_store_explicit(&fake->header->n_buckets, n + 1, memory_order_release);
        fake_bucket_end(to);
        fake_bucket_end(from);
}

/* All but the sequence, under it. */
static inline void fake_slot_write(FakeIndex *fake, uint32_t slot, const LayoutSlot *from)
{
        LayoutSlot *to = &fake->slots[slot], copy = *from;

        seqlock_write_begin(&to->sequence);
        /* The first word holds the sequence as well: it is odd now, and stays so. */
        copy.sequence = atomic_load((_Atomic uint32_t *)&to->sequence);
        seqlock_copy_in(to, &copy, LAYOUT_SLOT_WORDS);
        seqlock_write_end(&to->sequence);
}

static inline void fake_slot_set_state(FakeIndex *fake, uint32_t slot, uint8_t state)
{
        LayoutSlot copy;

        seqlock_copy_out(&copy, &fake->slots[slot], LAYOUT_SLOT_WORDS);
        copy.state = state;
        fake_slot_write(fake, slot, &copy);
}

typedef struct FakeObject {
        Key key;
        uint8_t state;
        uint64_t size_bytes;
        uint64_t expires_ns;
        Key content_type;
        Key metadata;
} FakeObject;

/* The object into @slot, which is in no bucket. */
static inline void fake_index_fill(FakeIndex *fake, uint32_t slot, const FakeObject *object)
{
        LayoutSlot copy = {
                .state = object->state,
                .key_bytes = (uint8_t)object->key.n_bytes,
                .generation = ++fake->generation,
                .hash = fake_hash(fake, object->key),
                .size_bytes = object->size_bytes,
                .region_id = slot + 100,
                .expires_ns = object->expires_ns,
                .content_type_bytes = (uint8_t)object->content_type.n_bytes,
                .metadata_bytes = (uint16_t)object->metadata.n_bytes,
        };
        size_t n_inline = MIN(object->key.n_bytes, LAYOUT_SLOT_KEY_BYTES), n_tail = object->key.n_bytes - n_inline;
        uint64_t text[640] = { 0 };
        uint8_t *bytes = (uint8_t *)text;
        size_t n = (size_t)layout_heap_bytes(&copy), n_units = ALIGN_UP(n, (size_t)64) / 64;

        memcpy(copy.key, object->key.bytes, n_inline);
        memcpy(bytes, object->key.bytes + n_inline, n_tail);
        if (object->content_type.n_bytes)
                memcpy(bytes + n_tail, object->content_type.bytes, object->content_type.n_bytes);
        if (object->metadata.n_bytes)
                memcpy(bytes + n_tail + object->content_type.n_bytes, object->metadata.bytes, object->metadata.n_bytes);
        seqlock_write_begin(&fake->slots[slot].sequence);
        if (n > 0) {
                copy.heap_block = fake->heap_next;
                if ((copy.heap_block + n_units) * 64 > fake->header->heap_bytes)
                        copy.heap_block = 1; /* round and round: the tests keep few */
                fake->heap_next = copy.heap_block + (uint32_t)n_units;
                seqlock_copy_in(fake->heap + copy.heap_block * 64, text, n_units * 8);
        }
        copy.sequence = atomic_load((_Atomic uint32_t *)&fake->slots[slot].sequence);
        seqlock_copy_in(&fake->slots[slot], &copy, LAYOUT_SLOT_WORDS);
        seqlock_write_end(&fake->slots[slot].sequence);
}

static inline void fake_index_show(FakeIndex *fake, uint32_t slot)
{
        LayoutBucket *bucket = fake_bucket(fake, fake->slots[slot].hash);

        fake_bucket_begin(bucket);
        fake_chain_put(fake, bucket, fake->slots[slot].hash, slot);
        fake_bucket_end(bucket);
}

/* A new object in a new slot. */
static inline uint32_t fake_index_add(FakeIndex *fake, const FakeObject *object)
{
        uint32_t slot = fake->n_slots++;

        assert_true(slot < fake->header->n_slots_max);
        atomic_store_explicit(&fake->header->n_slots, fake->n_slots, memory_order_release);
        fake_index_fill(fake, slot, object);
        fake_index_show(fake, slot);
        return slot;
}

/* The object loses its name; a pin may still be on it. */
static inline void fake_index_retract(FakeIndex *fake, uint32_t slot, uint8_t reason)
{
        uint64_t hash = fake->slots[slot].hash;
        LayoutBucket *bucket = fake_bucket(fake, hash);

        if (reason)
                atomic_store(&fake->graves[layout_grave_place(hash, fake->header->n_graves)],
                             layout_grave(hash, reason));
        fake_slot_set_state(fake, slot, LAYOUT_SLOT_RETRACTED);
        fake_bucket_begin(bucket);
        fake_chain_take(fake, bucket, slot);
        fake_bucket_end(bucket);
        atomic_thread_fence(memory_order_seq_cst);
}

/* Another object in a slot that nobody holds. */
static inline void fake_index_reuse(FakeIndex *fake, uint32_t slot, const FakeObject *object)
{
        fake_index_fill(fake, slot, object);
        fake_index_show(fake, slot);
}

/* The name of what is in @old goes to what is in @slot, in one step. */
static inline void fake_index_replace(FakeIndex *fake, uint32_t old, uint32_t slot)
{
        LayoutBucket *bucket = fake_bucket(fake, fake->slots[old].hash);

        fake_bucket_begin(bucket);
        fake_chain_take(fake, bucket, old);
        fake_chain_put(fake, bucket, fake->slots[slot].hash, slot);
        fake_bucket_end(bucket);
        fake_slot_set_state(fake, old, LAYOUT_SLOT_RETRACTED);
}

static inline void fake_index_event(FakeIndex *fake, uint32_t type, uint32_t slot, const char *key)
{
        uint64_t sequence = atomic_load(&fake->header->event_sequence) + 1;
        LayoutEvent *event = &fake->events[layout_event_place(sequence, fake->header->n_events)];
        LayoutEvent copy = { .type = type, .slot = slot, .generation = sequence, .key_bytes = (uint8_t)strlen(key) };

        memcpy(copy.key, key, strlen(key));
        atomic_store_explicit(&event->sequence, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        seqlock_copy_in((uint64_t *)event + 1, (uint64_t *)&copy + 1, LAYOUT_EVENT_WORDS - 1);
        atomic_store_explicit(&event->sequence, sequence, memory_order_release);
        atomic_store_explicit(&fake->header->event_sequence, sequence, memory_order_release);
        atomic_store_explicit(&fake->header->event_futex, (uint32_t)sequence, memory_order_release);
        syscall(SYS_futex, &fake->header->event_futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
