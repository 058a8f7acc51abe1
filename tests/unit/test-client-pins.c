/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds: what the counters say, what is refused, and the agreement with a daemon that frees slots, played by a thread.
 */
#include <pthread.h>

#include "client/lib/lookup.h"
#include "client/lib/pins.h"
#include "tests/unit/index-fake.h"

typedef struct Fixture {
        FakeIndex fake;
        Space *space;
} Fixture;

static void fixture_new(Fixture *f)
{
        fake_index_new(&f->fake, 3000, 16, 16);
        assert_int_equal(fake_index_open(&f->fake, &f->space), 0);
        fake_index_add(&f->fake, &(FakeObject){ .key = fake_key("key"), .state = LAYOUT_SLOT_SEALED });
}

static void fixture_free(Fixture *f)
{
        space_unref(f->space);
        fake_index_free(&f->fake);
}

static bool drop(Space *space, uint32_t slot, uint64_t generation)
{
        return pins_drop(space, slot, &generation);
}

static void test_hold_and_drop(void **state)
{
        Fixture f;

        fixture_new(&f);
        assert_int_equal(f.space->pin_summary[0], 0);
        assert_true(pins_hold(f.space, 0, 1));
        assert_int_equal(f.space->pin_summary[0], 1);
        assert_int_equal(f.space->pin_counters[0], 1);
        assert_true(pins_hold(f.space, 0, 1));
        assert_true(pins_hold(f.space, 0, 1));
        assert_int_equal(f.space->pin_counters[0], 3);
        for (unsigned i = 0; i < 3; i++)
                assert_false(drop(f.space, 0, 1));
        assert_int_equal(f.space->pin_counters[0], 0);
        /* Never cleared: the daemon may look there from now on. */
        assert_int_equal(f.space->pin_summary[0], 1);
        assert_int_equal(f.space->pin_summary[1], 0);
        fixture_free(&f);
}

static void test_hold_refused(void **state)
{
        static const struct {
                uint32_t slot;
                uint64_t generation;
                uint8_t slot_state;
                bool is_held;
        } rows[] = {
                { 0, 1, LAYOUT_SLOT_SEALED, true },      { 0, 1, LAYOUT_SLOT_WRITING, true },
                { 0, 1, LAYOUT_SLOT_MUTABLE, true },     { 0, 1, LAYOUT_SLOT_FREE, false },
                { 0, 1, LAYOUT_SLOT_RETRACTED, false },  { 0, 0, LAYOUT_SLOT_SEALED, false },
                { 0, 2, LAYOUT_SLOT_SEALED, false },     { 0, UINT64_MAX, LAYOUT_SLOT_SEALED, false },
                { 1, 1, LAYOUT_SLOT_SEALED, false },     { 2999, 1, LAYOUT_SLOT_SEALED, false },
                { 3000, 1, LAYOUT_SLOT_SEALED, false },  { UINT32_MAX, 1, LAYOUT_SLOT_SEALED, false },
        };
        Fixture f;

        fixture_new(&f);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                fake_slot_set_state(&f.fake, 0, rows[i].slot_state);
                assert_int_equal(pins_hold(f.space, rows[i].slot, rows[i].generation), rows[i].is_held);
                if (rows[i].is_held)
                        drop(f.space, rows[i].slot, rows[i].generation);
                if (rows[i].slot < 3000)
                        assert_int_equal(f.space->pin_counters[rows[i].slot], 0);
        }
        fixture_free(&f);
}

static void test_every_summary_byte(void **state)
{
        static const uint32_t slots[] = { 0, 1023, 1024, 2047, 2048, 2999 };
        Fixture f;

        fixture_new(&f);
        for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
                f.fake.slots[slots[i]].generation = 9;
                f.fake.slots[slots[i]].state = LAYOUT_SLOT_SEALED;
                assert_true(pins_hold(f.space, slots[i], 9));
                assert_int_equal(f.space->pin_summary[slots[i] / 1024], 1);
                assert_int_equal(f.space->pin_counters[slots[i]], 1);
                assert_false(drop(f.space, slots[i], 9));
        }
        fixture_free(&f);
}

static void test_last_drop_of_what_has_no_name(void **state)
{
        Fixture f;

        fixture_new(&f);
        assert_true(pins_hold(f.space, 0, 1));
        assert_true(pins_hold(f.space, 0, 1));
        fake_index_retract(&f.fake, 0, FOLIO_EVENT_DELETED);
        assert_false(pins_hold(f.space, 0, 1));
        assert_false(drop(f.space, 0, 1));
        assert_true(drop(f.space, 0, 1));
        /* Another object there: none of our business. */
        fake_index_reuse(&f.fake, 0, &(FakeObject){ .key = fake_key("key"), .state = LAYOUT_SLOT_SEALED });
        f.space->pin_counters[0] = 1;
        assert_false(drop(f.space, 0, 1));
        fixture_free(&f);
}

/* One that is held before its seal gets another generation by it; that it has lost its name is said of that one. */
static void test_last_drop_of_what_was_held_before_its_seal(void **state)
{
        uint64_t generation = 1;
        Fixture f;

        fixture_new(&f);
        fake_slot_set_state(&f.fake, 0, LAYOUT_SLOT_WRITING);
        assert_true(pins_hold(f.space, 0, 1));
        f.fake.slots[0].generation = 5;
        fake_slot_set_state(&f.fake, 0, LAYOUT_SLOT_SEALED);
        fake_index_retract(&f.fake, 0, FOLIO_EVENT_DELETED);
        assert_true(pins_drop(f.space, 0, &generation));
        assert_int_equal(generation, 5);
        fixture_free(&f);
}

/* A daemon that stopped in the middle of a slot: no hold, and a word too many rather than one too few. */
static void test_slot_never_whole(void **state)
{
        Fixture f;

        fixture_new(&f);
        assert_true(pins_hold(f.space, 0, 1));
        f.fake.slots[0].sequence |= 1;
        assert_false(pins_hold(f.space, 0, 1));
        assert_int_equal(f.space->pin_counters[0], 1);
        assert_true(drop(f.space, 0, 1));
        f.fake.slots[0].sequence++;
        fixture_free(&f);
}

static void test_without_the_read_right(void **state)
{
        ProtoNamespace ns = { .name = "test", .id = 7 };
        Space *space;

        assert_int_equal(space_new(&ns, 1, -1, -1, &space), 0);
        assert_false(pins_hold(space, 0, 0));
        space_unref(space);
}

/* -- the agreement ------------------------------------------------------------------------------------------------ */

typedef struct Race {
        Fixture f;
        LayoutPinsHeader *table;     /* as the daemon maps it */
        _Atomic uint64_t bytes;      /* "the memory of the object": the generation that is in it, 0 while it is freed */
        atomic_bool is_over;
        atomic_uint n_bad;
        atomic_uint n_held;
} Race;

static void *race_hold(void *userdata)
{
        Race *race = userdata;
        Lookup found;

        while (!atomic_load(&race->is_over)) {
                if (lookup_find(race->f.space, fake_key("key"), 1, &found) != LOOKUP_FOUND ||
                    !pins_hold(race->f.space, found.slot, found.copy.generation))
                        continue;
                /* Held: it must not be freed under us. */
                for (unsigned i = 0; i < 3; i++)
                        if (atomic_load_explicit(&race->bytes, memory_order_relaxed) != found.copy.generation)
                                atomic_fetch_add(&race->n_bad, 1);
                atomic_fetch_add(&race->n_held, 1);
                (void)drop(race->f.space, found.slot, found.copy.generation);
        }
        return NULL;
}

static bool race_is_pinned(const Race *race)
{
        const uint8_t *base = (const uint8_t *)race->table;
        const _Atomic uint8_t *summary = (const _Atomic uint8_t *)(base + race->table->summary_offset);
        const _Atomic uint32_t *counters = (const _Atomic uint32_t *)(base + race->table->counters_offset);

        return atomic_load_explicit(summary, memory_order_acquire) != 0 &&
               atomic_load_explicit(counters, memory_order_acquire) != 0;
}

static void test_held_is_never_freed(void **state)
{
        Race *race = test_calloc(1, sizeof(*race));
        pthread_t threads[2];
        FakeObject object = { .key = fake_key("key"), .state = LAYOUT_SLOT_SEALED };
        size_t n_table;

        fixture_new(&race->f);
        n_table = race->f.space->pins_bytes;
        race->table = mmap(NULL, n_table, PROT_READ, MAP_SHARED, race->f.fake.pins_fd, 0);
        assert_true(race->table != MAP_FAILED);
        atomic_store(&race->bytes, 1);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, race_hold, race), 0);
        /* At least so often, and until both sides have met. */
        for (unsigned i = 0; i < 20000 || (atomic_load(&race->n_held) < 1000 && i < 100000000); i++) {
                fake_index_retract(&race->f.fake, 0, FOLIO_EVENT_DELETED);
                while (race_is_pinned(race))
                        sched_yield();
                atomic_store_explicit(&race->bytes, 0, memory_order_relaxed);
                atomic_store_explicit(&race->bytes, race->f.fake.generation + 1, memory_order_relaxed);
                fake_index_reuse(&race->f.fake, 0, &object);
                if (i % 64 == 0)
                        sched_yield();
        }
        atomic_store(&race->is_over, true);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(race->n_bad, 0);
        assert_true(race->n_held >= 1000);
        munmap(race->table, n_table);
        fixture_free(&race->f);
        test_free(race);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_hold_and_drop),
                UNIT_TEST(test_hold_refused),
                UNIT_TEST(test_every_summary_byte),
                UNIT_TEST(test_last_drop_of_what_has_no_name),
                UNIT_TEST(test_last_drop_of_what_was_held_before_its_seal),
                UNIT_TEST(test_slot_never_whole),
                UNIT_TEST(test_without_the_read_right),
                UNIT_TEST(test_held_is_never_freed),
        };

        return cmocka_run_group_tests_name("client-pins", tests, NULL, NULL);
}
