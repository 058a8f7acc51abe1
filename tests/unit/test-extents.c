/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of zeros as a client reads them: good lists against a bitmap of pages, and lists that no daemon would write.
 * Whatever stands there, a run is never empty, never too long, and never zero where the model says data.
 */
#include "index-fake.h"

#include <errno.h>

#include "client/lib/extents.h"
#include "client/lib/lookup.h"
#include "fail-alloc.h"

#define BLOCK 3u                     /* of the list, in the heap */
#define HEAP_BYTES (64 * KIB)

typedef struct Fixture {
        FakeIndex index;
        Space *space;
        LayoutSlot copy;
} Fixture;

static void fixture_init(Fixture *f)
{
        FakeObject object = { .key = fake_key("k"), .state = LAYOUT_SLOT_SEALED };

        fake_index_new(&f->index, 8, 8, 8);
        assert_int_equal(fake_index_open(&f->index, &f->space), 0);
        assert_int_equal(fake_index_add(&f->index, &object), 0);
}

static void fixture_deinit(Fixture *f)
{
        space_unref(f->space);
        fake_index_free(&f->index);
}

/* The object has @list, which begins at @block; @f->copy is the slot as read. */
static void set_list(Fixture *f, const LayoutExtents *list, uint32_t block, uint64_t size_bytes)
{
        uint64_t offset = (uint64_t)block * LAYOUT_HEAP_UNIT_BYTES;
        LayoutSlot slot = f->index.slots[0];

        if (offset < HEAP_BYTES)
                memcpy(f->index.heap + offset, list, MIN(sizeof(*list), HEAP_BYTES - offset));
        slot.placement = FOLIO_PLACEMENT_OWN;
        slot.flags = LAYOUT_FLAG_ZEROS;
        slot.extents_block = block;
        slot.size_bytes = slot.capacity_bytes = size_bytes;
        fake_slot_write(&f->index, 0, &slot);
        assert_true(lookup_read_slot(f->space, 0, &f->copy));
}

static Extents *read_list(Fixture *f, const LayoutExtents *list, uint64_t size_bytes)
{
        Extents *extents = NULL;

        set_list(f, list, BLOCK, size_bytes);
        assert_int_equal(extents_read(f->space, 0, &f->copy, &extents), 0);
        return extents;
}

static uint32_t next_random(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(*state >> 33);
}

/* The whole object by runs; and at random places. Runs are as long as they can be. */
static void assert_as_model(const Extents *extents, const bool *is_zero, uint64_t size_bytes, uint64_t *random)
{
        bool is, was = false;

        for (uint64_t offset = 0, n; offset < size_bytes; offset += n) {
                n = extents_run(extents, offset, size_bytes - offset, &is);
                assert_true(n > 0 && n <= size_bytes - offset);
                assert_true(offset == 0 || is != was);
                was = is;
                for (uint64_t page = offset / PAGE_BYTES; page <= (offset + n - 1) / PAGE_BYTES; page++)
                        assert_int_equal(is, is_zero[page]);
        }
        for (unsigned i = 0; i < 200 && size_bytes > 0; i++) {
                uint64_t offset = next_random(random) % size_bytes;
                uint64_t n_max = 1 + next_random(random) % (i % 2 ? 10 : size_bytes), n, expected = 1;

                n = extents_run(extents, offset, n_max, &is);
                assert_int_equal(is, is_zero[offset / PAGE_BYTES]);
                while (expected < n_max && offset + expected < size_bytes &&
                       is_zero[(offset + expected) / PAGE_BYTES] == is)
                        expected++;
                /* Data has no end that is known of. */
                if (!is && offset + expected == size_bytes)
                        assert_int_equal(n, n_max);
                else
                        assert_int_equal(n, expected);
        }
}

static void test_good_lists(void **state)
{
        enum { N = 300 };
        Fixture f;

        fixture_init(&f);
        for (uint64_t seed = 1; seed <= 60; seed++) {
                uint64_t random = seed, size_bytes = 1 + next_random(&random) % (N * PAGE_BYTES);
                LayoutExtents list = { .is_partial = seed % 3 == 0 };
                bool is_zero[N] = { false }, has_any = false;
                Extents *extents;

                for (uint32_t page = next_random(&random) % 3, n; page < N; page += n + 1 + next_random(&random) % 9) {
                        n = 1 + next_random(&random) % (seed % 2 ? 2 : 30);
                        n = MIN(n, N - page);
                        list.extents[list.n_extents++] = (LayoutExtent){ page, n };
                        memset(is_zero + page, true, n);
                        has_any = has_any || page * PAGE_BYTES < size_bytes;
                }
                extents = read_list(&f, &list, size_bytes);
                assert_int_equal(extents != NULL, has_any || list.is_partial);
                assert_int_equal(extents_is_partial(extents), list.is_partial);
                assert_as_model(extents, is_zero, size_bytes, &random);
                extents_free(extents);
        }
        fixture_deinit(&f);
}

/* The last page in part: its bytes are zeros up to the object's end, and what is behind is not said to be. */
static void test_the_last_page(void **state)
{
        static const uint64_t sizes[] = { 1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 2 * PAGE_BYTES - 1 };
        LayoutExtents list = { .n_extents = 1, .extents = { { 0, 2 } } };
        Extents *extents;
        Fixture f;
        bool is;

        fixture_init(&f);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                extents = read_list(&f, &list, sizes[i]);
                assert_non_null(extents);
                assert_int_equal(extents_run(extents, 0, sizes[i], &is), sizes[i]);
                assert_true(is);
                assert_int_equal(extents_run(extents, 0, UINT64_MAX, &is), sizes[i]);
                assert_int_equal(extents_run(extents, sizes[i] - 1, UINT64_MAX, &is), 1);
                assert_true(is);
                assert_int_equal(extents_run(extents, sizes[i], 5, &is), 5);
                assert_false(is);
                assert_int_equal(extents_run(extents, UINT64_MAX, UINT64_MAX, &is), UINT64_MAX);
                assert_false(is);
                extents_free(extents);
        }
        /* One that may grow: up to what it may grow to. */
        extents = read_list(&f, &list, 1);
        extents_free(extents);
        f.copy.state = LAYOUT_SLOT_MUTABLE;
        f.copy.capacity_bytes = PAGE_BYTES + 9;
        assert_int_equal(extents_read(f.space, 0, &f.copy, &extents), 0);
        assert_int_equal(extents_run(extents, 0, UINT64_MAX, &is), PAGE_BYTES + 9);
        extents_free(extents);
        fixture_deinit(&f);
}

static void test_none(void **state)
{
        LayoutExtents list = { .n_extents = 1, .extents = { { 0, 2 } } };
        Extents *extents;
        Fixture f;
        bool is = true;

        assert_int_equal(extents_run(NULL, 0, 7, &is), 7);
        assert_false(is);
        assert_int_equal(extents_run(NULL, UINT64_MAX, UINT64_MAX, &is), UINT64_MAX);
        assert_false(extents_is_partial(NULL));
        extents_free(NULL);
        fixture_init(&f);
        extents = read_list(&f, &list, PAGE_BYTES);
        extents_free(extents);
        /* Each of these alone says that there is none. */
        for (unsigned i = 0; i < 4; i++) {
                LayoutSlot copy = f.copy;

                if (i == 0)
                        copy.flags = LAYOUT_FLAG_HOLES;
                if (i == 1)
                        copy.extents_block = 0;
                if (i == 2)
                        copy.placement = FOLIO_PLACEMENT_PACKED;
                if (i == 3)
                        copy.size_bytes = 0;
                extents = (Extents *)&f;
                assert_int_equal(extents_read(f.space, 0, &copy, &extents), 0);
                assert_null(extents);
        }
        extents = (Extents *)&f;
        assert_int_equal(extents_read(f.space, 8, &f.copy, &extents), 0);
        assert_null(extents);
        assert_int_equal(extents_read(f.space, UINT32_MAX, &f.copy, &extents), 0);
        assert_null(extents);
        fixture_deinit(&f);
}

static void test_changed_since(void **state)
{
        LayoutExtents list = { .n_extents = 1, .extents = { { 0, 2 } } };
        LayoutSlot slot;
        Extents *extents = NULL;
        Fixture f;

        fixture_init(&f);
        set_list(&f, &list, BLOCK, PAGE_BYTES);
        slot = f.index.slots[0];
        fake_slot_write(&f.index, 0, &slot);
        assert_int_equal(extents_read(f.space, 0, &f.copy, &extents), -EAGAIN);
        assert_null(extents);
        /* In the middle of a change. */
        assert_true(lookup_read_slot(f.space, 0, &f.copy));
        seqlock_write_begin(&f.index.slots[0].sequence);
        assert_int_equal(extents_read(f.space, 0, &f.copy, &extents), -EAGAIN);
        seqlock_write_end(&f.index.slots[0].sequence);
        assert_int_equal(extents_read(f.space, 0, &f.copy, &extents), -EAGAIN);
        assert_true(lookup_read_slot(f.space, 0, &f.copy));
        assert_int_equal(extents_read(f.space, 0, &f.copy, &extents), 0);
        assert_non_null(extents);
        extents_free(extents);
        fixture_deinit(&f);
}

/* Believed up to where the rules are broken, and known to be incomplete from there. */
static void test_lists_that_break_the_rules(void **state)
{
        static const struct {
                LayoutExtent extents[4];
                uint32_t n, n_believed;
        } rows[] = {
                { { { 0, 0 } }, 1, 0 },
                { { { 5, 2 }, { 5, 2 } }, 2, 1 },
                { { { 5, 2 }, { 6, 2 } }, 2, 1 },
                { { { 5, 2 }, { 7, 2 } }, 2, 1 },
                { { { 5, 2 }, { 8, 0 }, { 9, 1 } }, 3, 1 },
                { { { 5, 2 }, { 2, 1 }, { 9, 1 } }, 3, 1 },
                { { { 5, UINT32_MAX }, { 9, 1 } }, 2, 1 },
                { { { 1, 1 }, { 3, 1 }, { 5, 1 }, { 4, UINT32_MAX } }, 4, 3 },
                { { { 1, 1 }, { 3, UINT32_MAX }, { UINT32_MAX, UINT32_MAX } }, 3, 2 },
        };
        Fixture f;

        fixture_init(&f);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                LayoutExtents list = { .n_extents = rows[i].n };
                bool is_zero[20] = { false };
                uint64_t random = i;
                Extents *extents;

                memcpy(list.extents, rows[i].extents, sizeof(rows[i].extents));
                for (uint32_t k = 0; k < rows[i].n_believed; k++)
                        for (uint64_t p = rows[i].extents[k].first_page;
                             p < MIN(20, (uint64_t)rows[i].extents[k].first_page + rows[i].extents[k].n_pages); p++)
                                is_zero[p] = true;
                extents = read_list(&f, &list, 20 * PAGE_BYTES - 3);
                assert_non_null(extents);
                assert_true(extents_is_partial(extents));
                assert_as_model(extents, is_zero, 20 * PAGE_BYTES - 3, &random);
                extents_free(extents);
        }
        fixture_deinit(&f);
}

static void test_blocks_that_are_none(void **state)
{
        static const struct {
                uint32_t block, n_extents;
                bool is_list;
        } rows[] = {
                { BLOCK, 0, false },
                { BLOCK, 1, true },
                { BLOCK, LAYOUT_EXTENTS_MAX, true },
                { BLOCK, LAYOUT_EXTENTS_MAX + 1, false },
                { BLOCK, UINT32_MAX, false },
                { HEAP_BYTES / 64 - 1, 7, true },  /* to the last byte of the heap */
                { HEAP_BYTES / 64 - 1, 8, false },
                { HEAP_BYTES / 64 - 64, LAYOUT_EXTENTS_MAX, true },
                { HEAP_BYTES / 64 - 63, LAYOUT_EXTENTS_MAX, false },
                { HEAP_BYTES / 64, 1, false },
                { UINT32_MAX, 1, false },
        };
        LayoutExtents list = { 0 };
        Extents *extents;
        Fixture f;

        for (uint32_t i = 0; i < LAYOUT_EXTENTS_MAX; i++)
                list.extents[i] = (LayoutExtent){ i * 2, 1 };
        fixture_init(&f);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                list.n_extents = rows[i].n_extents;
                set_list(&f, &list, rows[i].block, GIB);
                assert_int_equal(extents_read(f.space, 0, &f.copy, &extents), 0);
                assert_int_equal(extents != NULL, rows[i].is_list);
                extents_free(extents);
        }
        fixture_deinit(&f);
}

/* Any bytes at all: runs come to an end, and a zero one never reaches over the object's. */
static void test_noise(void **state)
{
        Fixture f;

        fixture_init(&f);
        for (uint64_t seed = 1; seed <= 300; seed++) {
                uint64_t random = seed, size_bytes = 1 + next_random(&random) % (8 * MIB), offset = 0;
                uint32_t words[sizeof(LayoutExtents) / 4];
                LayoutExtents list;
                Extents *extents;
                unsigned n_runs = 0;
                bool is;

                for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                        words[i] = next_random(&random) % (seed % 4 ? 3000 : UINT32_MAX);
                words[0] = seed % 5 ? 1 + words[0] % LAYOUT_EXTENTS_MAX : words[0];
                memcpy(&list, words, sizeof(list));
                extents = read_list(&f, &list, size_bytes);
                while (offset < size_bytes) {
                        uint64_t n = extents_run(extents, offset, UINT64_MAX, &is);

                        assert_true(n > 0);
                        assert_true(!is || n <= size_bytes - offset);
                        assert_true(++n_runs <= 2 * LAYOUT_EXTENTS_MAX + 1);
                        offset += MIN(n, size_bytes - offset);
                }
                extents_free(extents);
        }
        fixture_deinit(&f);
}

static Fixture *swept;

static int attempt_read(void)
{
        Extents *extents = NULL;
        int r = extents_read(swept->space, 0, &swept->copy, &extents);

        extents_free(extents);
        return r;
}

/* An index that names another list each time it is looked at fills no memory with them. */
static void test_kept_ones_are_few(void **state)
{
        const LayoutExtents list = { .n_extents = 1, .extents = { { 1, 1 } } };
        Extents *newest = NULL;
        unsigned n_kept = 0;
        Fixture f;

        fixture_init(&f);
        for (unsigned i = 0; i < 1000; i++) {
                Extents *extents = read_list(&f, &list, 4 * PAGE_BYTES);

                if (extents_keep(extents, newest)) {
                        newest = extents;
                        n_kept++;
                } else {
                        extents_free(extents);
                }
        }
        assert_true(n_kept >= 3 && n_kept <= 16);
        assert_int_equal(extents_bytes(newest), PAGE_BYTES);
        extents_free(newest);
        fixture_deinit(&f);
}

static void test_no_memory(void **state)
{
        LayoutExtents list = { .n_extents = 1, .extents = { { 0, 2 } } };
        Fixture f;

        fail_alloc_skip_sanitized();
        fixture_init(&f);
        set_list(&f, &list, BLOCK, PAGE_BYTES);
        swept = &f;
        fail_alloc_sweep(attempt_read);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_good_lists),
                UNIT_TEST(test_the_last_page),
                UNIT_TEST(test_none),
                UNIT_TEST(test_changed_since),
                UNIT_TEST(test_lists_that_break_the_rules),
                UNIT_TEST(test_blocks_that_are_none),
                UNIT_TEST(test_noise),
                UNIT_TEST(test_kept_ones_are_few),
                UNIT_TEST(test_no_memory),
        };

        return cmocka_run_group_tests_name("extents", tests, NULL, NULL);
}
