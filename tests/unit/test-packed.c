/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator of chunks, against a model that knows only what was handed out: no two overlap, all lie inside, what is
 * given back comes together again, and little is wasted. The regions are never touched, so most have no file at all.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/macro.h"
#include "daemon/memory/packed.h"
#include "tests/unit/fail-alloc.h"

static uint64_t random_state;

static uint64_t next_random(void)
{
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return random_state;
}

static uint64_t random_between(uint64_t least, uint64_t most)
{
        return least + next_random() % (most - least + 1);
}

static int create_no_file(Backend *backend, const char *label, uint64_t size_bytes, int *ret_fd)
{
        *ret_fd = -1;
        return 0;
}

static const BackendOps no_file_ops = { .name = "none", .create_file = create_no_file };
static Backend no_files = { .ops = &no_file_ops };

static Region *new_region(uint64_t size_bytes)
{
        Region *region = NULL;

        assert_int_equal(region_new(&no_files, "test", size_bytes, &region), 0);
        return region;
}

static Packed *new_packed(void)
{
        Packed *packed = NULL;

        assert_int_equal(packed_new(&packed), 0);
        return packed;
}

static Packed *new_packed_with(uint64_t size_bytes)
{
        Packed *packed = new_packed();

        assert_int_equal(packed_add_region(packed, new_region(size_bytes)), 0);
        return packed;
}

static Chunk *take(Packed *packed, uint64_t n_bytes)
{
        Chunk *chunk = NULL;

        assert_int_equal(packed_take_chunk(packed, n_bytes, &chunk), 0);
        assert_true(chunk->size_bytes >= n_bytes && chunk->size_bytes < n_bytes + 64);
        assert_true(IS_ALIGNED(chunk->offset_bytes, 64) && IS_ALIGNED(chunk->size_bytes, 64));
        assert_true(chunk->offset_bytes + chunk->size_bytes <= chunk->region->size_bytes);
        assert_false(chunk->is_free);
        return chunk;
}

static void give_kept(Packed *packed, Chunk *chunk)
{
        Region *empty = (Region *)&no_files;

        packed_give_chunk(packed, chunk, true, &empty);
        assert_null(empty);
}

static PackedUsage usage_of(const Packed *packed)
{
        PackedUsage usage;

        packed_get_usage(packed, &usage);
        return usage;
}

static void test_empty(void **state)
{
        Packed *packed = new_packed();
        Chunk *chunk = NULL;

        assert_int_equal(packed_take_chunk(packed, 1, &chunk), PACKED_E_NO_ROOM);
        assert_null(chunk);
        assert_false(packed_is_low(packed, &(uint64_t){ 0 }));
        assert_int_equal(usage_of(packed).n_regions, 0);
        assert_int_equal(usage_of(packed).largest_free_bytes, 0);
        packed_free(packed);
        packed_free(NULL);
}

static void test_requests_by_table(void **state)
{
        static const struct {
                uint64_t n_bytes, taken;
        } rows[] = {
                { 1, 64 },          { 63, 64 },         { 64, 64 },
                { 65, 128 },        { 4096, 4096 },     { HUGE_BYTES - 64, HUGE_BYTES - 64 },
                { HUGE_BYTES - 63, HUGE_BYTES },        { HUGE_BYTES, HUGE_BYTES },
                { HUGE_BYTES + 1, 0 },                  { 64 * MIB, 0 },
                { UINT64_C(1) << 46, 0 },               { UINT64_C(1) << 63, 0 },
                { UINT64_MAX - 63, 0 },                 { UINT64_MAX, 0 },
        };
        Packed *packed = new_packed_with(HUGE_BYTES);

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                Chunk *chunk = NULL;

                if (rows[i].taken == 0) {
                        assert_int_equal(packed_take_chunk(packed, rows[i].n_bytes, &chunk), PACKED_E_NO_ROOM);
                        assert_null(chunk);
                        continue;
                }
                chunk = take(packed, rows[i].n_bytes);
                assert_int_equal(chunk->size_bytes, rows[i].taken);
                assert_int_equal(usage_of(packed).used_bytes, rows[i].taken);
                give_kept(packed, chunk);
                assert_int_equal(usage_of(packed).largest_free_bytes, HUGE_BYTES);
        }
        packed_free(packed);
}

/* A region of every size serves a request for all of it, also where rounding to the next bin would look past it. */
static void test_a_region_made_to_measure_is_used(void **state)
{
        for (uint64_t n_bytes = 3 * PAGE_BYTES; n_bytes < 300 * MIB; n_bytes = n_bytes * 9 / 8 + 64) {
                Packed *packed = new_packed_with(n_bytes);
                Chunk *chunk = take(packed, n_bytes);
                Region *empty;

                assert_int_equal(chunk->offset_bytes, 0);
                packed_give_chunk(packed, chunk, false, &empty);
                assert_non_null(empty);
                region_unref(empty);
                assert_int_equal(usage_of(packed).n_regions, 0);
                packed_free(packed);
        }
}

static void test_neighbours_merge_in_every_order(void **state)
{
        static const int orders[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

        for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
                Packed *packed = new_packed_with(HUGE_BYTES);
                Chunk *chunks[3];
                Chunk *whole;

                for (int j = 0; j < 3; j++)
                        chunks[j] = take(packed, 1000 * (uint64_t)(j + 1));
                for (int j = 0; j < 3; j++)
                        give_kept(packed, chunks[orders[i][j]]);
                whole = take(packed, HUGE_BYTES);
                assert_null(whole->previous);
                assert_null(whole->next);
                give_kept(packed, whole);
                packed_free(packed);
        }
}

static void test_empty_regions_are_handed_out(void **state)
{
        Packed *packed = new_packed();
        Region *a = new_region(HUGE_BYTES), *b = new_region(HUGE_BYTES), *empty = NULL;
        Chunk *in_a, *in_b;

        assert_int_equal(packed_add_region(packed, a), 0);
        in_a = take(packed, HUGE_BYTES);
        assert_int_equal(packed_add_region(packed, b), 0);
        in_b = take(packed, 64);
        assert_ptr_equal(in_a->region, a);
        assert_ptr_equal(in_b->region, b);
        assert_int_equal(usage_of(packed).n_regions, 2);
        packed_give_chunk(packed, in_b, true, &empty);
        assert_null(empty);
        assert_int_equal(usage_of(packed).n_regions, 2);
        in_b = take(packed, 64);
        packed_give_chunk(packed, in_b, false, &empty);
        assert_ptr_equal(empty, b);
        assert_int_equal(usage_of(packed).region_bytes, HUGE_BYTES);
        region_unref(empty);
        packed_give_chunk(packed, in_a, false, &empty);
        assert_ptr_equal(empty, a);
        region_unref(empty);
        assert_int_equal(usage_of(packed).region_bytes, 0);
        packed_free(packed);
}

/* --- against the model -------------------------------------------------------------------------------------------- */

enum { N_MODEL_REGIONS = 4, N_UNITS = 8 * 1024 * 1024 / 64, N_LIVE_MAX = 4000 };

typedef struct Model {
        Region *regions[N_MODEL_REGIONS];
        bool *is_taken[N_MODEL_REGIONS]; /* by unit */
        Chunk *live[N_LIVE_MAX];
        size_t n_live;
        uint64_t used_bytes;
} Model;

static void model_mark(Model *model, const Chunk *chunk, bool taken)
{
        size_t i = 0;

        while (i < N_MODEL_REGIONS && model->regions[i] != chunk->region)
                i++;
        assert_true(i < N_MODEL_REGIONS);
        for (uint64_t unit = chunk->offset_bytes / 64; unit < (chunk->offset_bytes + chunk->size_bytes) / 64; unit++) {
                assert_int_equal(model->is_taken[i][unit], !taken);
                model->is_taken[i][unit] = taken;
        }
        if (taken)
                model->used_bytes += chunk->size_bytes;
        else
                model->used_bytes -= chunk->size_bytes;
}

static uint64_t random_request(void)
{
        switch (next_random() % 8) {
        case 0:
                return random_between(1, 64);
        case 1:
                return random_between(4096, 70000);
        case 2:
                return random_between(1, 1 << 20) >> (next_random() % 12);
        default:
                return random_between(100, 3000);
        }
}

static void model_step(Model *model, Packed *packed)
{
        bool is_taking = model->n_live == 0 || (model->n_live < N_LIVE_MAX && next_random() % 100 < 52);
        Chunk *chunk = NULL;

        if (is_taking) {
                uint64_t n_bytes = random_request() + 1;
                int r = packed_take_chunk(packed, n_bytes, &chunk);

                if (r == PACKED_E_NO_ROOM)
                        return;
                assert_int_equal(r, 0);
                assert_true(chunk->size_bytes >= n_bytes && chunk->size_bytes < n_bytes + 64);
                assert_true(chunk->offset_bytes + chunk->size_bytes <= chunk->region->size_bytes);
                model_mark(model, chunk, true);
                model->live[model->n_live++] = chunk;
        } else {
                size_t at = next_random() % model->n_live;

                chunk = model->live[at];
                model->live[at] = model->live[--model->n_live];
                model_mark(model, chunk, false);
                give_kept(packed, chunk);
        }
}

static void test_a_hundred_thousand_random_operations(void **state)
{
        Model *model = calloc(1, sizeof(*model));
        Packed *packed = new_packed();

        random_state = 0x9e3779b97f4a7c15;
        assert_non_null(model);
        for (size_t i = 0; i < N_MODEL_REGIONS; i++) {
                model->is_taken[i] = calloc(N_UNITS, sizeof(bool));
                assert_non_null(model->is_taken[i]);
                model->regions[i] = new_region((uint64_t)N_UNITS * 64);
                assert_int_equal(packed_add_region(packed, model->regions[i]), 0);
        }
        for (int i = 0; i < 100 * 1000; i++) {
                model_step(model, packed);
                if (i % 1000 == 0) {
                        assert_int_equal(usage_of(packed).used_bytes, model->used_bytes);
                        assert_int_equal(usage_of(packed).n_chunks, model->n_live);
                }
        }
        while (model->n_live > 0) {
                Chunk *chunk = model->live[--model->n_live];

                model_mark(model, chunk, false);
                give_kept(packed, chunk);
        }
        assert_int_equal(usage_of(packed).used_bytes, 0);
        /* One free chunk a region again. */
        for (size_t i = 0; i < N_MODEL_REGIONS; i++)
                model->live[i] = take(packed, (uint64_t)N_UNITS * 64);
        for (size_t i = 0; i < N_MODEL_REGIONS; i++) {
                give_kept(packed, model->live[i]);
                free(model->is_taken[i]);
        }
        packed_free(packed);
        free(model);
}

static void add_next_region(Packed *packed, uint64_t n_bytes)
{
        assert_int_equal(packed_add_region(packed, new_region(packed_next_region_bytes(packed, n_bytes))), 0);
}

/*
 * A05, packed: small objects, every second one deleted, refilled. What was asked for to what is reserved, in chunks and
 * in whole regions.
 */
static void test_a05_waste_after_deleting_every_second(void **state)
{
        enum { N = 20000, N_ROUNDS = 6 };
        Packed *packed = new_packed();
        Chunk **chunks = calloc(N, sizeof(*chunks));
        uint64_t *asked = calloc(N, sizeof(*asked)), asked_bytes = 0;
        PackedUsage usage;

        random_state = 0x1234567;
        assert_true(chunks && asked);
        for (int round = 0; round <= N_ROUNDS; round++) {
                for (int i = 0; i < N; i++) {
                        int r;

                        if (chunks[i])
                                continue;
                        asked[i] = random_between(100, 3000);
                        asked_bytes += asked[i];
                        while ((r = packed_take_chunk(packed, asked[i], &chunks[i])) == PACKED_E_NO_ROOM)
                                add_next_region(packed, asked[i]);
                        assert_int_equal(r, 0);
                }
                usage = usage_of(packed);
                print_message("# round %d: chunks %.1f %%, regions %.1f %% more than asked\n", round,
                              100.0 * (double)usage.used_bytes / (double)asked_bytes - 100,
                              100.0 * (double)usage.region_bytes / (double)asked_bytes - 100);
                assert_true(usage.used_bytes * 100 < asked_bytes * 115);
                assert_true(usage.region_bytes * 100 < asked_bytes * 115 + 100 * 2 * HUGE_BYTES);
                for (int i = round % 2; round < N_ROUNDS && i < N; i += 2) {
                        give_kept(packed, chunks[i]);
                        chunks[i] = NULL;
                        asked_bytes -= asked[i];
                }
        }
        for (int i = 0; i < N; i++) {
                Region *empty;

                packed_give_chunk(packed, chunks[i], false, &empty);
                region_unref(empty);
        }
        assert_int_equal(usage_of(packed).n_regions, 0);
        packed_free(packed);
        free(chunks);
        free(asked);
}

static void test_next_region(void **state)
{
        static const struct {
                uint64_t n_bytes, least;
        } rows[] = {
                { 1, HUGE_BYTES },
                { HUGE_BYTES, HUGE_BYTES },
                { HUGE_BYTES + 1, 2 * HUGE_BYTES },
                { 100 * MIB, 100 * MIB },
                { UINT64_MAX - HUGE_BYTES + 2, UINT64_MAX - HUGE_BYTES + 2 },
                { UINT64_MAX, UINT64_MAX },
        };
        Packed *packed = new_packed();
        uint64_t last = 0;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_true(packed_next_region_bytes(packed, rows[i].n_bytes) == rows[i].least);
        while (usage_of(packed).region_bytes < 2 * GIB) {
                uint64_t next = packed_next_region_bytes(packed, 1);

                assert_true(IS_ALIGNED(next, HUGE_BYTES) && next >= last && next <= 64 * MIB);
                assert_true(next <= MAX(HUGE_BYTES, usage_of(packed).region_bytes));
                last = next;
                add_next_region(packed, 1);
        }
        assert_int_equal(last, 64 * MIB);
        packed_free(packed);
}

static void test_low(void **state)
{
        Packed *packed = new_packed_with(HUGE_BYTES);
        uint64_t n_bytes = 7;
        Chunk *most, *rest;

        assert_false(packed_is_low(packed, &n_bytes));
        most = take(packed, HUGE_BYTES - 512 * KIB);
        assert_false(packed_is_low(packed, &n_bytes));
        assert_int_equal(n_bytes, 7);
        rest = take(packed, 64);
        assert_true(packed_is_low(packed, &n_bytes));
        assert_int_equal(n_bytes, 512 * KIB);
        add_next_region(packed, 1);
        assert_false(packed_is_low(packed, &n_bytes));
        give_kept(packed, most);
        give_kept(packed, rest);
        packed_free(packed);
}

/* Who had to wait makes the next be asked for earlier, up to a limit; who need not have, later again. */
static void test_lead(void **state)
{
        Packed *packed = new_packed_with(128 * MIB);
        uint64_t n_bytes, last = 2 * MIB; /* for so much, what is left over of large regions counts as little */
        Chunk *all = take(packed, 128 * MIB);

        packed_tune(packed, true);
        packed_tune(packed, true);

        for (unsigned i = 0; i < 20; i++) {
                assert_true(packed_is_low(packed, &n_bytes));
                assert_int_equal(n_bytes, last);
                packed_tune(packed, true);
                last = MIN(last * 2, 32 * MIB);
        }
        assert_int_equal(last, 32 * MIB);
        /* In time, but only just: as it is. */
        packed_tune(packed, false);
        assert_true(packed_is_low(packed, &n_bytes));
        assert_int_equal(n_bytes, 32 * MIB);
        /* One of the size that was wanted ends the want. */
        add_next_region(packed, n_bytes);
        assert_false(packed_is_low(packed, &n_bytes));
        for (unsigned i = 0; i < 100; i++)
                packed_tune(packed, false);
        /* As little as the size of the regions asks for. */
        give_kept(packed, all);
        all = take(packed, 126 * MIB);
        assert_false(packed_is_low(packed, &n_bytes));
        give_kept(packed, all);
        packed_free(packed);
}

/* Little that there is keeps the lead small, however late the regions come. */
static void test_lead_is_a_share(void **state)
{
        Packed *packed = new_packed_with(16 * MIB);
        Chunk *all = take(packed, 16 * MIB);
        uint64_t n_bytes;

        for (unsigned i = 0; i < 20; i++)
                packed_tune(packed, true);
        assert_true(packed_is_low(packed, &n_bytes));
        assert_int_equal(n_bytes, 4 * MIB);
        give_kept(packed, all);
        packed_free(packed);
}

static int attempt(void)
{
        Packed *packed = NULL;
        Region *region = NULL, *empty;
        Chunk *chunks[2] = { NULL };
        int r;

        r = packed_new(&packed);
        if (r == 0)
                r = region_new(&no_files, "test", HUGE_BYTES, &region);
        if (r == 0)
                r = packed_add_region(packed, region);
        if (r == 0)
                r = packed_take_chunk(packed, 100, &chunks[0]);
        if (r == 0)
                r = packed_take_chunk(packed, 100, &chunks[1]);
        for (int i = 0; i < 2; i++)
                if (chunks[i])
                        packed_give_chunk(packed, chunks[i], true, &empty);
        packed_free(packed);
        return r;
}

static void test_allocation_failures(void **state)
{
        fail_alloc_sweep(attempt);
}

/* Too large to be counted in units: refused, and freed all the same. */
static void test_regions_too_large(void **state)
{
        Packed *packed = new_packed();
        Region *region = new_region((UINT64_C(1) << 41) + HUGE_BYTES);

        assert_int_equal(packed_add_region(packed, region), -EFBIG);
        assert_int_equal(usage_of(packed).n_regions, 0);
        packed_free(packed);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_empty),
                UNIT_TEST(test_requests_by_table),
                UNIT_TEST(test_a_region_made_to_measure_is_used),
                UNIT_TEST(test_neighbours_merge_in_every_order),
                UNIT_TEST(test_empty_regions_are_handed_out),
                UNIT_TEST(test_a_hundred_thousand_random_operations),
                UNIT_TEST(test_a05_waste_after_deleting_every_second),
                UNIT_TEST(test_next_region),
                UNIT_TEST(test_low),
                UNIT_TEST(test_lead),
                UNIT_TEST(test_lead_is_a_share),
                UNIT_TEST(test_allocation_failures),
                UNIT_TEST(test_regions_too_large),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
