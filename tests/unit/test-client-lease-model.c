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

/* A thing that is placed and carried out at once. False: no room, whatever was tried. */
static bool model_fill_one(Model *m, uint64_t n_bytes)
{
        Thing thing = { .n_bytes = n_bytes, .n_units = (uint32_t)lease_units(n_bytes), .state = THING_LIVE };
        uint64_t offset, fit_bytes;
        void *data;
        int r;

        /* Every record has been carried out: nothing is ever behind. */
        assert_int_equal(lease_refresh(m->f->lease, n_bytes, UINT64_MAX), LEASE_PLACE_OK);
        fit_bytes = lease_fit_bytes(m->f->lease, n_bytes);
        r = lease_place(m->f->lease, n_bytes, UINT64_MAX, &offset, &data);
        if (r == LEASE_PLACE_FULL) {
                lease_insist(m->f->lease);
                r = lease_place(m->f->lease, n_bytes, UINT64_MAX, &offset, &data);
        }
        assert_true(r == LEASE_PLACE_OK || (r == LEASE_PLACE_FULL && fit_bytes == UINT64_MAX));
        if (r != LEASE_PLACE_OK)
                return false;
        thing.first = (uint32_t)(offset / 64);
        assert_true(lease_fixture_take(m->f, thing.first, thing.n_units));
        lease_placed_at(m->f->lease, offset, m->n_published++);
        model_mark(m, &thing, 1);
        assert_true(m->n_things < THINGS_MAX);
        m->things[m->n_things++] = thing;
        return true;
}

/* Is there a run of so many units? */
static bool model_has_run(const Model *m, uint32_t n_units)
{
        uint32_t n_run = 0;

        for (uint32_t i = 0; i < m->f->n_units && n_run < n_units; i++)
                n_run = m->uses[i] == 0 ? n_run + 1 : 0;
        return n_run >= n_units;
}

/* Of all sizes, each order of magnitude alike. A third goes at random, and others come: full is full. */
static void test_little_is_wasted(void **state)
{
        uint64_t n_percent = 0, n_rounds = 0;

        for (uint64_t seed = 1; seed <= 6; seed++) {
                Model *m = model_new(48 * MIB, seed * 7919);

                for (unsigned round = 0; round < 4; round++) {
                        uint64_t n_used = 0, n_bytes;

                        do
                                n_bytes = 1 + draw(m, UINT64_C(1) << draw(m, 20));
                        while (model_fill_one(m, n_bytes));
                        /* It does not say so before it is. */
                        assert_false(model_has_run(m, (uint32_t)lease_units(n_bytes)));
                        for (unsigned i = 0; i < m->n_things; i++)
                                n_used += m->things[i].n_bytes;
                        /* Where the first that does not fit is a large one some more is left than usual. */
                        assert_true(n_used * 100 >= 48 * MIB * 70);
                        n_percent += n_used * 100 / (48 * MIB);
                        n_rounds++;
                        for (unsigned i = m->n_things; i-- > 0;)
                                if (draw(m, 3) == 0) {
                                        lease_fixture_log(m->f, m->things[i].first, m->things[i].n_units);
                                        lease_fixture_clear(m->f, m->things[i].first, m->things[i].n_units);
                                        model_drop(m, &m->things[i]);
                                }
                }
                m->head = m->n_published;
                model_end(m);
        }
        assert_true(n_percent >= 92 * n_rounds);
}

/* Large ones lie at the end of what is free, small ones at its beginning, and each is put where it fits best. */
static void test_fit(void **state)
{
        LeaseFixture *f = lease_fixture_new(MIB);
        static const struct {
                uint32_t first, n_units;
        } holes[] = { { 100, 1000 }, { 3000, 600 }, { 5000, 900 }, { 9000, 70 } };
        uint64_t offset;
        void *data;

        assert_int_equal(lease_place(f->lease, MIB, 0, &offset, &data), LEASE_PLACE_OK);
        lease_placed_at(f->lease, offset, 0);
        assert_true(lease_fixture_take(f, 0, f->n_units));
        for (size_t i = 0; i < ARRAY_SIZE(holes); i++) {
                lease_fixture_log(f, holes[i].first, holes[i].n_units);
                lease_fixture_clear(f, holes[i].first, holes[i].n_units);
        }
        assert_int_equal(lease_refresh(f->lease, 600 * 64, 0), LEASE_PLACE_OK);
        assert_int_equal(lease_fit_bytes(f->lease, 600 * 64), 0);
        assert_int_equal(lease_refresh(f->lease, 850 * 64, 0), LEASE_PLACE_BEHIND);
        assert_int_equal(lease_refresh(f->lease, 850 * 64, 1), LEASE_PLACE_OK);
        assert_int_equal(lease_fit_bytes(f->lease, 850 * 64), 900 * 64);
        assert_int_equal(lease_fit_bytes(f->lease, 1001 * 64), UINT64_MAX);
        assert_int_equal(lease_fit_bytes(f->lease, UINT64_MAX), UINT64_MAX);
        assert_int_equal(lease_place(f->lease, 850 * 64, 1, &offset, &data), LEASE_PLACE_OK);
        assert_int_equal(offset, (5000 + 50) * 64);
        assert_int_equal(lease_place(f->lease, 700 * 64, 1, &offset, &data), LEASE_PLACE_OK);
        assert_int_equal(offset, (100 + 300) * 64);
        lease_unplace(f->lease, offset, 700 * 64);
        assert_int_equal(lease_place(f->lease, 1000 * 64, 1, &offset, &data), LEASE_PLACE_OK);
        assert_int_equal(offset, 100 * 64);
        assert_int_equal(lease_place(f->lease, 45 * 64, 1, &offset, &data), LEASE_PLACE_OK);
        assert_int_equal(offset, 5000 * 64);
        assert_int_equal(lease_place(f->lease, 70 * 64, 1, &offset, &data), LEASE_PLACE_OK);
        assert_int_equal(offset, 9000 * 64);
        assert_int_equal(lease_place(f->lease, 599 * 64, 1, &offset, &data), LEASE_PLACE_OK);
        assert_int_equal(offset, 3001 * 64);
        assert_int_equal(lease_place(f->lease, 64, 1, &offset, &data), LEASE_PLACE_OK);
        lease_fixture_free(f);
}

/* What is said to be fresh nothing was ever placed in; and of a region that is, most of what comes first is so. */
static void test_fresh(void **state)
{
        for (unsigned is_fresh = 0; is_fresh < 2; is_fresh++) {
                Model *m = model_new(8 * MIB, 4242);
                uint8_t *was_used = calloc(m->f->n_units, 1);
                uint64_t n_fresh = 0, offset;
                void *data;

                assert_non_null(was_used);
                lease_free(m->f->lease);
                m->f->book->is_fresh = is_fresh;
                assert_int_equal(lease_fixture_open(m->f), 0);
                for (unsigned i = 0; i < 20000; i++) {
                        uint64_t n_bytes = model_draw_size(m), first, n_units = lease_units(n_bytes);

                        if (lease_place(m->f->lease, n_bytes, UINT64_MAX, &offset, &data) != LEASE_PLACE_OK)
                                continue;
                        first = offset / 64;
                        if (lease_is_placed_fresh(m->f->lease)) {
                                n_fresh += n_units;
                                for (uint64_t u = first; u < first + n_units; u++)
                                        assert_int_equal(was_used[u], 0);
                        }
                        memset(was_used + first, 1, n_units);
                        if (draw(m, 4) == 0) {
                                lease_unplace(m->f->lease, offset, n_bytes);
                                continue;
                        }
                        assert_true(lease_fixture_take(m->f, (uint32_t)first, (uint32_t)n_units));
                        lease_placed_at(m->f->lease, offset, i);
                        if (draw(m, 2) == 0)
                                continue;
                        lease_fixture_log(m->f, (uint32_t)first, (uint32_t)n_units);
                        lease_fixture_clear(m->f, (uint32_t)first, (uint32_t)n_units);
                }
                assert_true(is_fresh ? n_fresh >= m->f->n_units / 2 : n_fresh == 0);
                free(was_used);
                free(m->uses);
                lease_fixture_free(m->f);
                free(m);
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
                UNIT_TEST(test_little_is_wasted),
                UNIT_TEST(test_fit),
                UNIT_TEST(test_fresh),
                UNIT_TEST(test_noise),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
