/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index against a simple model, at its limits, and with readers in other threads. What a reader sees between two
 * instructions of the writer is test-index-step's.
 */
#include "index-fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "proto/seqlock.h"

#define N_EVENTS 64u

static void test_plan(void **state)
{
        static const struct {
                uint32_t n_slots_max, n_events;
                bool is_possible;
        } rows[] = {
                { 0, 64, false }, { 1, 64, true }, { 1, 0, false }, { 1, 63, false }, { 1, 1, true },
                { 1u << 20, 4096, true }, { UINT32_MAX - 1, 1u << 31, true }, { UINT32_MAX, 64, false },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                LayoutIndexHeader h;
                uint64_t offsets[7];

                memset(&h, 0, sizeof(h));
                assert_int_equal(index_plan(rows[i].n_slots_max, rows[i].n_events, &h), rows[i].is_possible);
                if (!rows[i].is_possible)
                        continue;
                memcpy(offsets, (uint64_t[]){ h.buckets_offset, h.overflow_offset, h.slots_offset, h.graves_offset,
                                              h.events_offset, h.heap_offset, h.region_bytes }, sizeof(offsets));
                for (size_t j = 0; j < 7; j++) {
                        assert_true(IS_ALIGNED(offsets[j], HUGE_BYTES));
                        assert_true(offsets[j] > (j ? offsets[j - 1] : 0));
                }
                assert_true(h.overflow_offset - h.buckets_offset >= (uint64_t)h.n_buckets_max * sizeof(LayoutBucket));
                assert_true(h.graves_offset - h.slots_offset >= (uint64_t)h.n_slots_max * sizeof(LayoutSlot));
                assert_true(h.region_bytes - h.heap_offset >= h.heap_bytes);
        }
}

static void test_only_the_daemon_writes(void **state)
{
        Fixture f;
        Region *region;

        (void)state;
        fixture_init(&f, 100, N_EVENTS);
        region = index_region(f.index);
        assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0), MAP_FAILED);
        assert_int_equal(pwrite(region->fd, "x", 1, 0), -1);
        assert_int_equal(ftruncate(region->fd, 0), -1);
        assert_int_equal(fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
        assert_int_equal(fcntl(region->fd_read_only, F_GETFL) & O_ACCMODE, O_RDONLY);
        fixture_deinit(&f);
}

static unsigned longest_chain(const Fixture *f)
{
        const Space *s = f->space;
        unsigned longest = 0;

        for (uint32_t i = 0; i < atomic_load(&s->shared->n_buckets); i++) {
                unsigned n = 0;
                uint32_t next = atomic_load(&s->buckets[i].next);

                while (next) {
                        assert_true(next <= s->header.n_overflow_max);
                        next = atomic_load(&s->overflow[next - 1].next);
                        n++;
                        assert_true(n < 64);
                }
                longest = MAX(longest, n);
        }
        return longest;
}

typedef struct Model {
        uint32_t n_ids;
        uint32_t *slots;             /* + 1; 0: not there */
        uint64_t *generations;
        uint32_t n_there;
} Model;

static void check_against_model(const Fixture *f, const Model *model)
{
        uint32_t n_in_buckets = 0;

        assert_int_equal(index_n_named(f->index), model->n_there);
        assert_int_equal(atomic_load(&f->space->shared->n_objects), model->n_there);
        for (uint32_t id = 0; id < model->n_ids; id++) {
                uint32_t slot = 0;
                Lookup found;
                LookupOutcome outcome = fixture_look(f, id, &found);
                bool is_there = fixture_find(f, id, &slot);

                assert_int_equal(is_there, model->slots[id] != 0);
                assert_int_equal(outcome, is_there ? LOOKUP_FOUND : LOOKUP_MISSING);
                if (!is_there)
                        continue;
                assert_int_equal(slot, model->slots[id] - 1);
                assert_int_equal(found.slot, slot);
                assert_int_equal(found.copy.generation, model->generations[id]);
                assert_true(fixture_is_whole(f, id, slot, &found.copy));
        }
        for (uint32_t i = 0; i < atomic_load(&f->space->shared->n_buckets); i++)
                for (const LayoutBucket *b = &f->space->buckets[i]; b;
                     b = atomic_load(&b->next) ? &f->space->overflow[atomic_load(&b->next) - 1] : NULL)
                        for (unsigned e = 0; e < LAYOUT_BUCKET_ENTRIES; e++)
                                n_in_buckets += atomic_load(&b->slot[e]) != 0;
        assert_int_equal(n_in_buckets, model->n_there);
        assert_true(longest_chain(f) <= 4);
}

static void model_step(Fixture *f, Model *model, uint32_t id, uint32_t choice)
{
        uint32_t slot, old = model->slots[id];
        int r;

        if (old && choice % 2) {
                index_retract(f->index, old - 1, FOLIO_EVENT_DELETED);
                index_free_slot(f->index, old - 1);
                model->slots[id] = 0;
                model->n_there--;
                return;
        }
        r = fixture_make(f, id, LAYOUT_SLOT_SEALED, &slot);
        assert_int_equal(r, 0);
        if (old) {
                index_replace(f->index, old - 1, slot);
                index_free_slot(f->index, old - 1);
        } else {
                index_insert(f->index, slot);
                model->n_there++;
        }
        model->slots[id] = slot + 1;
        model->generations[id] = f->generation;
}

static void test_model(void **state)
{
        enum { N_IDS = 24000, N_STEPS = 200000, N_CHECKS = 8 };
        Model model = { .n_ids = N_IDS, .slots = calloc(N_IDS, sizeof(uint32_t)),
                        .generations = calloc(N_IDS, sizeof(uint64_t)) };
        uint64_t random = 42;
        Fixture f;

        (void)state;
        fixture_init(&f, 65536, N_EVENTS);
        for (uint32_t i = 0; i < N_STEPS; i++) {
                uint32_t id = fixture_random(&random) % N_IDS;

                model_step(&f, &model, id, fixture_random(&random));
                if (i % (N_STEPS / N_CHECKS) == N_STEPS / N_CHECKS - 1)
                        check_against_model(&f, &model);
                if (i % 100 == 0)
                        (void)index_flush(f.index);
        }
        /* Slots and blocks come back: there were never more than there are ids, plus one while replacing. */
        assert_true(index_n_slots(f.index) <= N_IDS + 1);
        for (uint32_t id = 0; id < N_IDS; id++)
                if (model.slots[id])
                        model_step(&f, &model, id, 1);
        check_against_model(&f, &model);
        free(model.slots);
        free(model.generations);
        fixture_deinit(&f);
}

/* All hashes in one bucket would be the worst; all slots taken is the most that honest ones can do. */
static void test_full(void **state)
{
        enum { N = 1000 };
        uint32_t slots[N], slot;
        Fixture f;

        (void)state;
        fixture_init(&f, N, N_EVENTS);
        for (uint32_t i = 0; i < N; i++) {
                assert_int_equal(fixture_make(&f, i, LAYOUT_SLOT_SEALED, &slots[i]), 0);
                index_insert(f.index, slots[i]);
        }
        assert_int_equal(fixture_make(&f, N, LAYOUT_SLOT_SEALED, &slot), INDEX_E_SLOTS);
        index_retract(f.index, slots[3], 0);
        assert_int_equal(fixture_make(&f, N, LAYOUT_SLOT_SEALED, &slot), INDEX_E_SLOTS);
        index_free_slot(f.index, slots[3]);
        assert_int_equal(fixture_make(&f, N, LAYOUT_SLOT_SEALED, &slot), 0);
        assert_int_equal(slot, slots[3]);
        index_insert(f.index, slot);
        assert_int_equal(index_n_named(f.index), N);
        fixture_deinit(&f);
}

static void test_heap_full(void **state)
{
        static char bytes[FOLIO_METADATA_BYTES_MAX];
        Key key = { "k", 1 }, metadata = { bytes, sizeof(bytes) }, none = { "", 0 };
        uint32_t slot, last = 0, n = 0;
        LayoutSlot record;
        Fixture f;
        int r;

        (void)state;
        fixture_init(&f, 8192, N_EVENTS);
        while ((r = index_reserve_slot(f.index, key, none, metadata, &slot, &record)) == 0) {
                last = slot;
                n++;
                assert_true(n <= 8192);
        }
        assert_int_equal(r, INDEX_E_HEAP);
        assert_true(n >= 2000);
        /* A slot that could not have its texts is not lost. */
        assert_int_equal(index_reserve_slot(f.index, key, none, none, &slot, &record), 0);
        assert_int_equal(slot, n);
        index_free_slot(f.index, slot);
        index_free_slot(f.index, last);
        assert_int_equal(index_reserve_slot(f.index, key, none, metadata, &slot, &record), 0);
        assert_int_equal(index_reserve_slot(f.index, key, none, metadata, &slot, &record), INDEX_E_HEAP);
        fixture_deinit(&f);
}

static void test_graves(void **state)
{
        static const uint8_t reasons[] = { FOLIO_EVENT_DELETED, FOLIO_EVENT_EXPIRED, LAYOUT_GRAVE_WRITER_DIED };
        char buffer[FOLIO_KEY_BYTES_MAX + 1];
        Lookup found;
        Fixture f;

        (void)state;
        fixture_init(&f, 100, N_EVENTS);
        assert_int_equal(fixture_look(&f, 1, &found), LOOKUP_MISSING);
        assert_int_equal(found.reason, 0);
        for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
                uint32_t slot;

                assert_int_equal(fixture_make(&f, 1, LAYOUT_SLOT_WRITING, &slot), 0);
                index_insert(f.index, slot);
                index_retract(f.index, slot, reasons[i]);
                index_free_slot(f.index, slot);
                assert_int_equal(fixture_look(&f, 1, &found), LOOKUP_MISSING);
                assert_int_equal(found.reason, reasons[i]);
                assert_int_equal(index_grave_reason(f.index, index_hash(f.index, fixture_key(1, buffer))), reasons[i]);
                assert_int_equal(index_grave_reason(f.index, index_hash(f.index, fixture_key(2, buffer))), 0);
        }
        fixture_deinit(&f);
}

static void test_events(void **state)
{
        LayoutEvent event;
        uint64_t oldest;
        uint32_t slot;
        Fixture f;

        (void)state;
        fixture_init(&f, 100, N_EVENTS);
        assert_int_equal(fixture_make(&f, 4711, LAYOUT_SLOT_SEALED, &slot), 0);
        index_insert(f.index, slot);
        (void)index_flush(f.index);
        assert_int_equal(lookup_newest_event(f.space), 0);
        assert_false(index_flush(f.index));
        for (uint64_t i = 1; i <= N_EVENTS + 3; i++) {
                char buffer[FOLIO_KEY_BYTES_MAX + 1];
                Key key = fixture_key(4711, buffer);

                assert_int_equal(lookup_read_event(f.space, i, &event, &oldest), LOOKUP_EVENT_NONE);
                index_event(f.index, FOLIO_EVENT_SEALED, slot, i * 10);
                assert_int_equal(lookup_read_event(f.space, i, &event, &oldest), LOOKUP_EVENT);
                assert_int_equal(event.type, FOLIO_EVENT_SEALED);
                assert_int_equal(event.slot, slot);
                assert_int_equal(event.time_ns, i * 10);
                assert_int_equal(event.generation, f.generation);
                assert_int_equal(event.size_bytes, f.generation * 3);
                assert_int_equal(event.key_bytes, key.n_bytes);
                assert_memory_equal(event.key, key.bytes, key.n_bytes);
        }
        assert_true(index_flush(f.index));
        assert_false(index_flush(f.index));
        assert_int_equal(lookup_read_event(f.space, 3, &event, &oldest), LOOKUP_EVENT_LAPPED);
        assert_int_equal(oldest, 4);
        assert_int_equal(lookup_read_event(f.space, 4, &event, &oldest), LOOKUP_EVENT);
        fixture_deinit(&f);
}

/* What a waiting get goes by: the bucket's sequence, after an insert, a seal, a split, the end. */
static void test_changes_are_seen(void **state)
{
        uint32_t slot, other;
        LayoutSlot record;
        Lookup found;
        Fixture f;

        (void)state;
        fixture_init(&f, 100, N_EVENTS);
        assert_int_equal(fixture_look(&f, 1, &found), LOOKUP_MISSING);
        assert_false(lookup_wait(f.space, &found, 0));
        assert_int_equal(fixture_make(&f, 1, LAYOUT_SLOT_WRITING, &slot), 0);
        assert_false(lookup_wait(f.space, &found, 0));
        index_insert(f.index, slot);
        assert_true(lookup_wait(f.space, &found, 0));

        assert_int_equal(fixture_look(&f, 1, &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.state, LAYOUT_SLOT_WRITING);
        index_get(f.index, slot, &record);
        record.size_bytes = 77;
        index_update(f.index, slot, &record);
        assert_false(lookup_wait(f.space, &found, 0));
        record.state = LAYOUT_SLOT_SEALED;
        index_update(f.index, slot, &record);
        assert_true(lookup_wait(f.space, &found, 0));

        assert_int_equal(fixture_look(&f, 1, &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.size_bytes, 77);
        assert_int_equal(fixture_make(&f, 1, LAYOUT_SLOT_SEALED, &other), 0);
        index_replace(f.index, slot, other);
        assert_true(lookup_wait(f.space, &found, 0));
        index_get(f.index, slot, &record);
        assert_int_equal(record.state, LAYOUT_SLOT_RETRACTED);

        assert_int_equal(fixture_look(&f, 2, &found), LOOKUP_MISSING);
        assert_int_equal(atomic_load(&f.space->shared->is_closed), 0);
        index_close(f.index);
        assert_true(lookup_wait(f.space, &found, 0));
        assert_int_equal(atomic_load(&f.space->shared->is_closed), 1);
        fixture_deinit(&f);
}

/* --- with threads ------------------------------------------------------------------------------------------------ */

enum { N_THREAD_IDS = 300, N_THREAD_STEPS = 30000 };

typedef struct Threads {
        Fixture f;
        atomic_bool is_over;
        atomic_uint n_wrong;
        atomic_ulong n_found;
} Threads;

/* Ids below 10 are never taken away, only replaced: they may never be missing. */
static void *run_reader(void *userdata)
{
        Threads *t = userdata;
        uint64_t random = (uint64_t)(uintptr_t)&random;
        LayoutEvent event;
        uint64_t cursor = 1, oldest;

        while (!atomic_load(&t->is_over)) {
                uint32_t id = fixture_random(&random) % N_THREAD_IDS;
                Lookup found;
                LookupOutcome outcome = fixture_look(&t->f, id, &found);

                if (outcome == LOOKUP_FOUND) {
                        atomic_fetch_add(&t->n_found, 1);
                        if (!fixture_is_whole(&t->f, id, found.slot, &found.copy))
                                atomic_fetch_add(&t->n_wrong, 1);
                } else if (outcome == LOOKUP_MISSING && id < 10) {
                        atomic_fetch_add(&t->n_wrong, 1);
                }
                switch (lookup_read_event(t->f.space, cursor, &event, &oldest)) {
                case LOOKUP_EVENT:
                        if (event.time_ns != event.sequence)
                                atomic_fetch_add(&t->n_wrong, 1);
                        cursor++;
                        break;
                case LOOKUP_EVENT_LAPPED:
                        cursor = oldest;
                        break;
                case LOOKUP_EVENT_NONE:
                        break;
                }
        }
        return NULL;
}

/* Waits for an object that comes late, again and again, as a get does. */
static void *run_waiter(void *userdata)
{
        Threads *t = userdata;
        Lookup found;

        while (fixture_look(&t->f, N_THREAD_IDS, &found) != LOOKUP_FOUND)
                (void)lookup_wait(t->f.space, &found, UINT64_MAX);
        return NULL;
}

static void test_readers_in_threads(void **state)
{
        Threads t = { .is_over = false };
        Model model = { .n_ids = N_THREAD_IDS + 1, .slots = calloc(N_THREAD_IDS + 1, sizeof(uint32_t)),
                        .generations = calloc(N_THREAD_IDS + 1, sizeof(uint64_t)) };
        pthread_t threads[3];
        uint64_t random = 1;

        (void)state;
        fixture_init(&t.f, 4096, N_EVENTS);
        for (uint32_t id = 0; id < 10; id++)
                model_step(&t.f, &model, id, 0);
        for (int i = 0; i < 3; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? run_reader : run_waiter, &t), 0);
        for (uint32_t i = 0; i < N_THREAD_STEPS; i++) {
                uint32_t id = fixture_random(&random) % N_THREAD_IDS;

                model_step(&t.f, &model, id, id < 10 ? 0 : fixture_random(&random));
                if (model.slots[id])
                        index_event(t.f.index, FOLIO_EVENT_SEALED, model.slots[id] - 1,
                                    lookup_newest_event(t.f.space) + 1);
                if (i % 50 == 0)
                        (void)index_flush(t.f.index);
        }
        model_step(&t.f, &model, N_THREAD_IDS, 0);
        (void)index_flush(t.f.index);
        atomic_store(&t.is_over, true);
        for (int i = 0; i < 3; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(atomic_load(&t.n_wrong), 0);
        check_against_model(&t.f, &model);
        free(model.slots);
        free(model.generations);
        fixture_deinit(&t.f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_plan),
                UNIT_TEST(test_only_the_daemon_writes),
                UNIT_TEST(test_model),
                UNIT_TEST(test_full),
                UNIT_TEST(test_heap_full),
                UNIT_TEST(test_graves),
                UNIT_TEST(test_events),
                UNIT_TEST(test_changes_are_seen),
                UNIT_TEST(test_readers_in_threads),
        };

        return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
