/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookup over a hostile mapping. Every area of a small index ends at a page that cannot be touched, so that one step
 * too far is a fault; the input's bytes fill the areas and the part of the header that changes all the time.
 *
 * Input: one byte of choices; 28 bytes of counters; then buckets, overflow buckets, slots, graves, events, heap, as far
 * as it goes. Choices: 1 gives all entries and slots the tag and hash of the key that is looked up, which no fuzzer
 * would find; 2 makes all sequences even; 4 first tries the rest of the input as the header of a region.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/extents.h"
#include "client/lib/lookup.h"
#include "client/lib/pins.h"
#include "tests/fuzz/replay.h"

enum {
        N_SLOTS = 8,
        N_BUCKETS = 4,
        N_OVERFLOW = 4,
        N_GRAVES = 4,
        N_EVENTS = 4,
        N_HEAP_BYTES = 5120,
        N_COUNTER_BYTES = 28,
};

typedef struct Input {
        const uint8_t *bytes;
        size_t n_bytes;
} Input;

/* @n_bytes of zeros that end where the process may not go on. Kept for ever. */
static void *guarded(size_t n_bytes)
{
        size_t n = ALIGN_UP(n_bytes, (size_t)4096);
        uint8_t *data = mmap(NULL, n + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (data == MAP_FAILED || mprotect(data + 4096, n, PROT_READ | PROT_WRITE) < 0)
                abort();
        return data + 4096 + n - n_bytes;
}

static Space *guarded_space(void)
{
        static Space space;

        if (space.shared)
                return &space;
        space.shared = guarded(sizeof(LayoutIndexHeader));
        space.buckets = guarded(N_BUCKETS * sizeof(LayoutBucket));
        space.overflow = guarded(N_OVERFLOW * sizeof(LayoutBucket));
        space.slots = guarded(N_SLOTS * sizeof(LayoutSlot));
        space.graves = guarded(N_GRAVES * sizeof(LayoutGrave));
        space.events = guarded(N_EVENTS * sizeof(LayoutEvent));
        space.heap = guarded(N_HEAP_BYTES);
        space.pins = guarded(sizeof(LayoutPinsHeader));
        space.pin_summary = guarded(1);
        space.pin_counters = guarded(N_SLOTS * sizeof(uint32_t));
        space.header = (LayoutIndexHeader){
                .hash_seed = 42,
                .n_slots_max = N_SLOTS,
                .n_buckets_max = N_BUCKETS,
                .n_overflow_max = N_OVERFLOW,
                .n_graves = N_GRAVES,
                .n_events = N_EVENTS,
                .heap_bytes = N_HEAP_BYTES,
        };
        return &space;
}

static void take(Input *input, const void *to, size_t n_bytes)
{
        size_t n = MIN(n_bytes, input->n_bytes);

        memset((void *)(uintptr_t)to, 0, n_bytes);
        if (n > 0)
                memcpy((void *)(uintptr_t)to, input->bytes, n);
        input->bytes += n;
        input->n_bytes -= n;
}

static void fill(Space *space, Input *input)
{
        uint32_t counters[N_COUNTER_BYTES / 4];

        take(input, counters, sizeof(counters));
        space->shared->n_buckets = counters[0];
        space->shared->is_closed = counters[1];
        space->shared->n_slots = counters[2];
        space->shared->event_futex = counters[3];
        space->shared->n_objects = counters[4];
        space->shared->event_sequence = (uint64_t)counters[6] << 32 | counters[5];
        take(input, space->buckets, N_BUCKETS * sizeof(LayoutBucket));
        take(input, space->overflow, N_OVERFLOW * sizeof(LayoutBucket));
        take(input, space->slots, N_SLOTS * sizeof(LayoutSlot));
        take(input, space->graves, N_GRAVES * sizeof(LayoutGrave));
        take(input, space->events, N_EVENTS * sizeof(LayoutEvent));
        take(input, space->heap, N_HEAP_BYTES);
}

/* The key of slot 0, as far as it can be told. Never empty. */
static Key choose_key(const Space *space, char room[FOLIO_KEY_BYTES_MAX])
{
        const LayoutSlot *slot = &space->slots[0];
        size_t n = MAX(slot->key_bytes, 1), n_inline = MIN(n, LAYOUT_SLOT_KEY_BYTES);
        uint64_t at = (uint64_t)slot->heap_block * LAYOUT_HEAP_UNIT_BYTES;

        memset(room, 'k', FOLIO_KEY_BYTES_MAX);
        memcpy(room, slot->key, n_inline);
        if (at + FOLIO_KEY_BYTES_MAX <= N_HEAP_BYTES)
                memcpy(room + n_inline, space->heap + at, n - n_inline);
        return (Key){ room, n };
}

static void make_even(const void *sequence)
{
        *(uint32_t *)(uintptr_t)sequence &= ~UINT32_C(1);
}

static void make_likely(Space *space, Key key, unsigned choices)
{
        uint64_t hash = key_hash(key.bytes, key.n_bytes, space->header.hash_seed);

        for (unsigned i = 0; i < N_BUCKETS + N_OVERFLOW; i++) {
                LayoutBucket *bucket = (LayoutBucket *)(uintptr_t)(i < N_BUCKETS ? &space->buckets[i] :
                                                                                   &space->overflow[i - N_BUCKETS]);

                if (choices & 2)
                        make_even(&bucket->sequence);
                for (unsigned j = 0; (choices & 1) && j < LAYOUT_BUCKET_ENTRIES; j++)
                        bucket->tag[j] = layout_tag(hash);
        }
        for (unsigned i = 0; i < N_SLOTS; i++) {
                if (choices & 2)
                        make_even(&space->slots[i].sequence);
                if (choices & 1)
                        ((LayoutSlot *)(uintptr_t)&space->slots[i])->hash = hash;
        }
}

static void read_slots(const Space *space)
{
        static const uint32_t beyond[] = { N_SLOTS, N_SLOTS + 1, UINT32_MAX / 2, UINT32_MAX };
        uint32_t n = lookup_n_slots(space);
        /* To the byte, so that a sanitizer sees one too many. */
        char *key = malloc(FOLIO_KEY_BYTES_MAX), *type = malloc(FOLIO_CONTENT_TYPE_BYTES_MAX);
        char *metadata = malloc(FOLIO_METADATA_BYTES_MAX);
        LayoutSlot copy;

        if (!key || !type || !metadata)
                abort();
        assert(n <= space->header.n_slots_max);
        for (uint32_t slot = 0; slot < MIN(n, (uint32_t)N_SLOTS); slot++) {
                if (lookup_read_slot(space, slot, &copy))
                        (void)lookup_read_texts(space, slot, &copy, key, type, metadata);
                memcpy(&copy, &space->slots[slot], sizeof(copy));
                (void)lookup_read_texts(space, slot, &copy, key, type, metadata);
                (void)lookup_read_texts(space, slot, &copy, key, NULL, NULL);
                (void)lookup_read_texts(space, slot, &copy, NULL, type, NULL);
                (void)lookup_read_texts(space, slot, &copy, NULL, NULL, metadata);
        }
        memset(&copy, 0xff, sizeof(copy));
        for (unsigned i = 0; i < ARRAY_SIZE(beyond); i++) {
                if (beyond[i] < space->header.n_slots_max)
                        continue;
                assert(!lookup_read_slot(space, beyond[i], &copy));
                assert(!lookup_read_texts(space, beyond[i], &copy, key, type, metadata));
        }
        free(key);
        free(type);
        free(metadata);
}

/* Runs come to an end, take turns, and one of zeros never reaches over what the object claims to be. */
static void walk_runs(const LayoutSlot *copy, const Extents *extents)
{
        uint64_t size_bytes = copy->state == LAYOUT_SLOT_MUTABLE ? copy->capacity_bytes : copy->size_bytes;
        uint64_t offset = 0, n;
        bool is_zero, was_zero = false;

        for (unsigned i = 0; offset < size_bytes; i++) {
                n = extents_run(extents, offset, size_bytes - offset, &is_zero);
                assert(n > 0 && n <= size_bytes - offset);
                assert(i == 0 || is_zero != was_zero);
                assert(i <= 2 * LAYOUT_EXTENTS_MAX);
                was_zero = is_zero;
                offset += n;
        }
        n = extents_run(extents, size_bytes, UINT64_MAX, &is_zero);
        assert(n == UINT64_MAX && !is_zero);
        (void)extents_is_partial(extents);
}

static void read_extents(const Space *space)
{
        /* To the byte, so that a sanitizer sees one too many. */
        LayoutExtents *list = malloc(sizeof(*list));
        Extents *extents;
        LayoutSlot copy;

        if (!list)
                abort();
        for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
                memcpy(&copy, &space->slots[slot], sizeof(copy));
                /* As it stands, and as one that has a list. */
                for (unsigned i = 0; i < 2; i++) {
                        if (lookup_read_extents(space, slot, &copy, list) == LOOKUP_FOUND)
                                assert(list->n_extents > 0 && list->n_extents <= LAYOUT_EXTENTS_MAX);
                        if (extents_read(space, slot, &copy, &extents) == 0) {
                                walk_runs(&copy, extents);
                                extents_free(extents);
                        }
                        copy.placement = FOLIO_PLACEMENT_OWN;
                        copy.flags |= LAYOUT_FLAG_ZEROS;
                }
        }
        memset(&copy, 0xff, sizeof(copy));
        copy.placement = FOLIO_PLACEMENT_OWN;
        assert(lookup_read_extents(space, N_SLOTS, &copy, list) == LOOKUP_MISSING);
        assert(lookup_read_extents(space, UINT32_MAX, &copy, list) == LOOKUP_MISSING);
        free(list);
}

static void read_events(const Space *space)
{
        uint64_t newest = lookup_newest_event(space), oldest;
        const uint64_t sequences[] = { 0, 1, newest - 1, newest, newest + 1, UINT64_MAX - 1, UINT64_MAX };
        LayoutEvent event;

        for (unsigned i = 0; i < ARRAY_SIZE(sequences); i++) {
                /* Whoever follows the answers comes to an end: each leads onwards. */
                if (lookup_read_event(space, sequences[i], &event, &oldest) == LOOKUP_EVENT_LAPPED)
                        assert(oldest > sequences[i]);
        }
        (void)lookup_wait_event(space, newest, 0);
        (void)lookup_wait_event(space, newest - 1, 1);
}

static void read_everything(Space *space, Key key)
{
        Lookup found;

        switch (lookup_find(space, key, 1, &found)) {
        case LOOKUP_FOUND:
                assert(found.slot < space->header.n_slots_max && found.copy.key_bytes == key.n_bytes);
                if (pins_hold(space, found.slot, found.copy.generation))
                        (void)pins_drop(space, found.slot, &found.copy.generation);
                break;
        case LOOKUP_MISSING:
                (void)lookup_wait(space, &found, 0);
                (void)lookup_wait(space, &found, 1);
                break;
        case LOOKUP_UNSURE:
                (void)lookup_wait(space, &found, 1);
                break;
        }
        read_slots(space);
        read_extents(space);
        read_events(space);
}

/* The input as a whole index, header and all, through the front door. */
static void try_region(Input input)
{
        enum { REGION_BYTES = 32768 };
        ProtoNamespace ns = { .name = "fuzz", .id = 7 };
        LayoutPinsHeader pins = { .magic = LAYOUT_PINS_MAGIC,
                                  .layout_version = LAYOUT_VERSION,
                                  .n_slots_max = N_SLOTS,
                                  .region_bytes = REGION_BYTES,
                                  .summary_offset = 4096,
                                  .counters_offset = 8192 };
        int index_fd = memfd_create("index", MFD_CLOEXEC), pins_fd = memfd_create("pins", MFD_CLOEXEC);
        Space *space;

        if (index_fd < 0 || pins_fd < 0 || ftruncate(index_fd, REGION_BYTES) < 0 ||
            ftruncate(pins_fd, REGION_BYTES) < 0 ||
            pwrite(index_fd, input.bytes, MIN(input.n_bytes, (size_t)REGION_BYTES), 0) < 0 ||
            pwrite(pins_fd, &pins, sizeof(pins), 0) < 0)
                abort();
        if (space_new(&ns, 1, index_fd, pins_fd, &space) == 0) {
                read_everything(space, (Key){ "key", 3 });
                space_unref(space);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
        Space *space = guarded_space();
        Input input = { bytes, n_bytes };
        uint8_t choices = 0;
        char room[FOLIO_KEY_BYTES_MAX];
        Key key;

        take(&input, &choices, 1);
        if (choices & 4)
                try_region(input);
        fill(space, &input);
        key = choose_key(space, room);
        make_likely(space, key, choices);
        read_everything(space, key);
        read_everything(space, (Key){ "another", 7 });
        return 0;
}
