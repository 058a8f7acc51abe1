/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index in which names come and go for a long time: what a reader has to walk, the slots and the overflow buckets
 * that were ever used stay what the number of live objects asks for. Times are not looked at.
 */
#include "index-fixture.h"

enum {
        N_LIVE = 20000,
        N_CHURNED = 200000,
        N_SLOTS_MAX = 24000,
};

/* What readers walk, as the region has it. */
typedef struct Shape {
        uint32_t n_buckets;
        uint32_t n_entries;
        uint32_t n_overflow;         /* buckets in chains */
        uint32_t overflow_end;       /* every overflow bucket in a chain is below this */
        uint32_t longest_buckets;
        uint32_t n_slots;
} Shape;

static Shape measure(const Fixture *f)
{
        const uint8_t *base = index_region(f->index)->data;
        const LayoutIndexHeader *h = (const void *)base;
        const LayoutBucket *buckets = (const void *)(base + h->buckets_offset);
        const LayoutBucket *overflow = (const void *)(base + h->overflow_offset);
        Shape shape = { .n_buckets = atomic_load(&h->n_buckets), .n_slots = index_n_slots(f->index) };

        for (uint32_t i = 0; i < shape.n_buckets; i++) {
                uint32_t n_chain = 0, next;

                for (const LayoutBucket *b = &buckets[i]; b; b = next ? &overflow[next - 1] : NULL) {
                        uint32_t n_filled = 0;

                        for (unsigned j = 0; j < LAYOUT_BUCKET_ENTRIES; j++)
                                n_filled += atomic_load(&b->slot[j]) ? 1 : 0;
                        next = atomic_load(&b->next);
                        assert_true(next <= h->n_overflow_max);
                        /* Dense: only the last one has room, and it is not empty unless it is the first. */
                        assert_true(n_filled == LAYOUT_BUCKET_ENTRIES || !next);
                        assert_true(n_filled > 0 || n_chain == 0);
                        shape.n_entries += n_filled;
                        shape.n_overflow += n_chain ? 1 : 0;
                        shape.overflow_end = MAX(shape.overflow_end, next);
                        n_chain++;
                        assert_true(n_chain <= h->n_overflow_max + 1);
                }
                shape.longest_buckets = MAX(shape.longest_buckets, n_chain);
        }
        return shape;
}

static uint32_t add(Fixture *f, uint32_t id)
{
        uint32_t slot;

        assert_int_equal(fixture_make(f, id, LAYOUT_SLOT_SEALED, &slot), 0);
        index_insert(f->index, slot);
        return slot;
}

static void take_out(Fixture *f, uint32_t id)
{
        uint32_t slot;

        assert_true(fixture_find(f, id, &slot));
        index_retract(f->index, slot, FOLIO_EVENT_DELETED);
        index_free_slot(f->index, slot);
}

static void assert_all_there(const Fixture *f, const uint32_t *ids)
{
        Lookup lookup;
        uint32_t slot;

        assert_int_equal(index_n_named(f->index), N_LIVE);
        for (uint32_t i = 0; i < N_LIVE; i++) {
                assert_true(fixture_find(f, ids[i], &slot));
                assert_int_equal(fixture_look(f, ids[i], &lookup), LOOKUP_FOUND);
                assert_int_equal(lookup.slot, slot);
        }
}

static void assert_as_small(const Shape *now, const Shape *before)
{
        assert_int_equal(now->n_entries, N_LIVE);
        assert_int_equal(now->n_buckets, before->n_buckets);
        assert_int_equal(now->n_slots, before->n_slots);
}

/* The same names come back, in another order: chains hold what they held, so they are as long as they were. */
static void test_same_names(void **state)
{
        uint32_t *ids = calloc(N_LIVE, sizeof(*ids));
        uint64_t random = 1;
        Shape before, now;
        Fixture f;

        assert_non_null(ids);
        fixture_init(&f, N_SLOTS_MAX, 64);
        for (uint32_t i = 0; i < N_LIVE; i++) {
                ids[i] = i;
                (void)add(&f, i);
        }
        before = measure(&f);
        for (uint32_t i = 0; i < N_CHURNED; i++) {
                uint32_t id = fixture_random(&random) % N_LIVE;

                take_out(&f, id);
                (void)add(&f, id);
        }
        now = measure(&f);
        assert_as_small(&now, &before);
        assert_int_equal(now.n_overflow, before.n_overflow);
        assert_int_equal(now.longest_buckets, before.longest_buckets);
        assert_true(now.overflow_end <= before.overflow_end + 1);
        assert_all_there(&f, ids);
        fixture_deinit(&f);
        free(ids);
}

/*
 * Every name is a new one, and the set is another one ten times over: as small as a set of that size ever is. Half of
 * it goes at once in between, which leaves nothing behind either.
 */
static void test_new_names(void **state)
{
        uint32_t *ids = calloc(N_LIVE, sizeof(*ids)), next_id = N_LIVE, n_overflow_max = 0;
        uint64_t random = 2;
        Shape before, now = { 0 };
        Fixture f;

        assert_non_null(ids);
        fixture_init(&f, N_SLOTS_MAX, 64);
        for (uint32_t i = 0; i < N_LIVE; i++) {
                ids[i] = i;
                (void)add(&f, i);
        }
        before = measure(&f);
        for (unsigned round = 0; round < 10; round++) {
                for (uint32_t i = 0; i < N_CHURNED / 20; i++) {
                        uint32_t victim = fixture_random(&random) % N_LIVE;

                        take_out(&f, ids[victim]);
                        ids[victim] = next_id++;
                        (void)add(&f, ids[victim]);
                }
                for (uint32_t i = 0; i < N_LIVE; i += 2)
                        take_out(&f, ids[i]);
                assert_int_equal(measure(&f).n_entries, N_LIVE / 2);
                for (uint32_t i = 0; i < N_LIVE; i += 2) {
                        ids[i] = next_id++;
                        (void)add(&f, ids[i]);
                }
                now = measure(&f);
                assert_as_small(&now, &before);
                /* Three entries a bucket in the mean: more than a second overflow bucket would be more than chance. */
                assert_true(now.longest_buckets <= before.longest_buckets + 1 && now.longest_buckets <= 3);
                n_overflow_max = MAX(n_overflow_max, now.n_overflow);
        }
        print_message("# overflow buckets: %u at first, %u at most, of the first %u; the longest chain has %u\n",
                      before.n_overflow, n_overflow_max, now.overflow_end, now.longest_buckets);
        /* As chance has it from one set of names to the next; ten rounds of growth would be ten times as many. */
        assert_true(n_overflow_max <= 2 * before.n_overflow);
        assert_true(now.overflow_end <= 2 * before.overflow_end);
        assert_int_equal(next_id, N_LIVE + N_CHURNED);
        assert_all_there(&f, ids);
        fixture_deinit(&f);
        free(ids);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_same_names),
                UNIT_TEST(test_new_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
