/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placing, publishing, refusing, deleting, pinning and guarding at random, against a model that knows of each unit
 * whose it is: nothing is ever placed where something is. Then books full of noise: what is placed lies in the
 * region.
 */
#include "tests/unit/book-fixture.h"

enum { THING_PLACED, THING_PUBLISHED, THING_LIVE, THING_DELETED, THING_LOGGED };

typedef struct Thing {
        uint64_t n_bytes;
        uint64_t sequence;
        uint32_t first;
        uint32_t n_units;
        int state;
        unsigned n_guards;
} Thing;

#define THINGS_MAX 4000u

typedef struct Model {
        LeaseFixture *f;
        uint8_t *uses;               /* of each unit: by things, and by guards */
        Thing things[THINGS_MAX];
        unsigned n_things;
        uint64_t n_published;
        uint64_t head;
        uint64_t random;
        uint64_t n_placed;
        uint64_t n_full;
        uint64_t n_behind;
        uint64_t sizes_max;
        bool knows_which;            /* says lease_placed_at() */
} Model;

static uint64_t draw(Model *m, uint64_t n)
{
        m->random ^= m->random << 13;
        m->random ^= m->random >> 7;
        m->random ^= m->random << 17;
        return m->random % n;
}

static void model_mark(Model *m, const Thing *thing, int change)
{
        for (uint32_t i = 0; i < thing->n_units; i++)
                m->uses[thing->first + i] = (uint8_t)(m->uses[thing->first + i] + change);
}

static void model_drop(Model *m, Thing *thing)
{
        model_mark(m, thing, -1);
        if (thing->n_guards > 0) {
                lease_unguard(m->f->lease, (uint64_t)thing->first * 64, thing->n_bytes);
                model_mark(m, thing, -1);
        }
        *thing = m->things[--m->n_things];
}

static uint64_t model_draw_size(Model *m)
{
        uint64_t kind = draw(m, 100);

        return kind < 50   ? 64 * (1 + draw(m, 4))
               : kind < 75 ? draw(m, 8 * KIB)
               : kind < 95 ? MIN(32 * KIB + draw(m, 3) * 5000, m->sizes_max)
                           : draw(m, m->sizes_max);
}

static void model_place(Model *m)
{
        Thing thing = { .n_bytes = model_draw_size(m), .state = THING_PLACED };
        uint64_t offset;
        void *data;
        int r;

        if (m->n_things == THINGS_MAX)
                return;
        r = lease_place(m->f->lease, thing.n_bytes, m->head, &offset, &data);
        m->n_full += r == LEASE_PLACE_FULL;
        m->n_behind += r == LEASE_PLACE_BEHIND;
        if (r == LEASE_PLACE_BEHIND)
                assert_true(m->head < lease_last(m->f->lease));
        if (r != LEASE_PLACE_OK)
                return;
        m->n_placed++;
        thing.first = (uint32_t)(offset / 64);
        thing.n_units = (uint32_t)lease_units(thing.n_bytes);
        assert_true((uint64_t)thing.first + thing.n_units <= m->f->n_units);
        for (uint32_t i = 0; i < thing.n_units; i++) {
                assert_int_equal(m->uses[thing.first + i], 0);
                assert_false(lease_fixture_is_taken(m->f, thing.first + i));
        }
        model_mark(m, &thing, 1);
        m->things[m->n_things++] = thing;
}

static void model_publish(Model *m, Thing *thing)
{
        if (draw(m, 10) == 0) {
                lease_unplace(m->f->lease, (uint64_t)thing->first * 64, thing->n_bytes);
                model_drop(m, thing);
                return;
        }
        thing->sequence = m->n_published++;
        thing->state = THING_PUBLISHED;
        if (m->knows_which)
                lease_placed_at(m->f->lease, (uint64_t)thing->first * 64, thing->sequence);
        else
                lease_placed(m->f->lease, thing->sequence);
        if (draw(m, 8) == 0) {
                assert_true(lease_guard(m->f->lease, (uint64_t)thing->first * 64, thing->n_bytes));
                thing->n_guards = 1;
                model_mark(m, thing, 1);
        }
}

/* The daemon: the next record, which it may also refuse. */
static void model_carry_out(Model *m)
{
        for (unsigned i = 0; i < m->n_things; i++) {
                Thing *thing = &m->things[i];

                if (thing->state != THING_PUBLISHED || thing->sequence != m->head)
                        continue;
                m->head++;
                if (draw(m, 12) == 0) {
                        model_drop(m, thing);
                        return;
                }
                assert_true(lease_fixture_take(m->f, thing->first, thing->n_units));
                thing->state = THING_LIVE;
                return;
        }
}

static void model_end_guard(Model *m, Thing *thing)
{
        if (thing->n_guards == 0)
                return;
        lease_unguard(m->f->lease, (uint64_t)thing->first * 64, thing->n_bytes);
        model_mark(m, thing, -1);
        thing->n_guards = 0;
}

/* A thing's next step. What is deleted may be pinned for a while, and goes in two steps then. */
static void model_step(Model *m, Thing *thing)
{
        switch (thing->state) {
        case THING_PLACED:
                model_publish(m, thing);
                break;
        case THING_PUBLISHED:
                if (draw(m, 2) == 0)
                        model_carry_out(m);
                else
                        model_end_guard(m, thing);
                break;
        case THING_LIVE:
                if (draw(m, 4) > 0)
                        thing->state = THING_DELETED;
                break;
        case THING_DELETED:
                lease_fixture_log(m->f, thing->first, thing->n_units);
                thing->state = THING_LOGGED;
                break;
        case THING_LOGGED:
                lease_fixture_clear(m->f, thing->first, thing->n_units);
                /* A guard outlives the object. */
                if (thing->n_guards == 0) {
                        model_drop(m, thing);
                } else if (draw(m, 3) == 0) {
                        model_end_guard(m, thing);
                        model_drop(m, thing);
                }
                break;
        }
}

static void model_run(Model *m, unsigned n_steps)
{
        for (unsigned i = 0; i < n_steps; i++) {
                /* Times of much coming and times of much going. */
                unsigned coming = i / 2000 % 2 ? 30 : 55;

                if (draw(m, 100) < coming || m->n_things == 0)
                        model_place(m);
                else
                        model_step(m, &m->things[draw(m, m->n_things)]);
                if (draw(m, 500) == 0)
                        while (m->head < m->n_published)
                                model_carry_out(m);
        }
}

static void model_end(Model *m)
{
        uint64_t offset;
        void *data;

        while (m->n_things > 0)
                model_step(m, &m->things[draw(m, m->n_things)]);
        assert_int_equal(m->f->use, 0);
        for (uint32_t i = 0; i < m->f->n_units; i++) {
                assert_int_equal(m->uses[i], 0);
                lease_fixture_clear(m->f, i, 1);
        }
        lease_fixture_log(m->f, 0, m->f->n_units);
        assert_int_equal(lease_place(m->f->lease, m->f->region_bytes, m->head, &offset, &data), LEASE_PLACE_OK);
        assert_int_equal(offset, 0);
        lease_unplace(m->f->lease, 0, m->f->region_bytes);
        free(m->uses);
        lease_fixture_free(m->f);
        free(m);
}

static Model *model_new(uint64_t region_bytes, uint64_t seed)
{
        Model *m = calloc(1, sizeof(*m));

        assert_non_null(m);
        m->f = lease_fixture_new(region_bytes);
        m->uses = calloc(m->f->n_units, 1);
        assert_non_null(m->uses);
        m->random = seed;
        m->sizes_max = region_bytes / 8;
        m->knows_which = seed % 2;
        return m;
}

static void test_model(void **state)
{
        static const uint64_t sizes[] = { 64 * KIB, 256 * KIB, MIB, 2 * MIB, 8 * MIB };

        for (uint64_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
                Model *m = model_new(sizes[i / 2], 1000 + i);

                model_run(m, 40000);
                assert_true(m->n_placed > 1000);
                assert_true(m->n_behind > 0);
                model_end(m);
        }
}

/* The region has had a holder before: objects lie there, and the log has all sorts of entries. */
static void test_model_orphan(void **state)
{
        for (uint64_t seed = 1; seed < 20; seed++) {
                Model *m = model_new(MIB, seed * 977);

                lease_free(m->f->lease);
                for (uint32_t at = 0; at + 100 < m->f->n_units; at += (uint32_t)draw(m, 600) + 1) {
                        Thing thing = { .first = at, .n_units = (uint32_t)draw(m, 90) + 1, .state = THING_LIVE };

                        thing.n_bytes = (uint64_t)thing.n_units * 64;
                        if (!lease_fixture_take(m->f, thing.first, thing.n_units))
                                continue;
                        model_mark(m, &thing, 1);
                        m->things[m->n_things++] = thing;
                }
                for (unsigned i = 0; i < 300; i++)
                        lease_fixture_log(m->f, (uint32_t)draw(m, 50), 1 + (uint32_t)draw(m, 3));
                assert_int_equal(lease_fixture_open(m->f), 0);
                model_run(m, 20000);
                model_end(m);
        }
}

/* Whatever it says, what we place lies in the region, and each call ends. */
static void test_noise(void **state)
{
        LeaseFixture *f = lease_fixture_new(MIB);
        Model m = { .random = 4711 };

        for (unsigned i = 0; i < 30000; i++) {
                uint64_t n_bytes = i % 7 == 0 ? draw(&m, MIB) : draw(&m, 2000), offset;
                void *data;

                for (unsigned j = 0; j < 5; j++) {
                        uint64_t entry = draw(&m, 2) ? draw(&m, UINT64_MAX)
                                                     : lease_freed((uint32_t)draw(&m, 17000), (uint32_t)draw(&m, 40));

                        f->book->freed[draw(&m, LEASE_FREED_MAX)] = entry;
                        f->words[draw(&m, f->n_units / 64)] = draw(&m, 3) ? 0 : draw(&m, UINT64_MAX);
                }
                f->book->n_freed = draw(&m, 20) ? f->book->n_freed + draw(&m, 300) : draw(&m, UINT64_MAX);
                if (lease_place(f->lease, n_bytes, draw(&m, UINT64_MAX), &offset, &data) != LEASE_PLACE_OK)
                        continue;
                assert_true(offset <= MIB && n_bytes <= MIB - offset);
                if (draw(&m, 2))
                        lease_placed_at(f->lease, offset, i);
                else
                        lease_unplace(f->lease, offset, n_bytes);
        }
        lease_fixture_free(f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_model),
                UNIT_TEST(test_model_orphan),
                UNIT_TEST(test_noise),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
