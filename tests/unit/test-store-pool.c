/* SPDX-License-Identifier: Apache-2.0 */
/* Warm blanks: which are kept, who gets them, when they are given back. Counts and facts, no times. */
#include "store-fixture.h"

#define POOL_BYTES (256 * MIB)

static StoreConfig pool_config(void)
{
        StoreConfig config = fixture_config();

        config.budget_bytes = GIB;
        config.pool_bytes_max = POOL_BYTES;
        return config;
}

static void begin(Fixture *f, Client *c)
{
        StoreConfig config = pool_config();

        fixture_init(f, &config);
        client_open(f, c, geteuid(), "default");
        fixture_settle(f);
}

static void end(Fixture *f, Client *c)
{
        client_close(c);
        fixture_deinit(f);
}

/* Creates, says whether a blank was taken, deletes. */
static bool create_hits(Fixture *f, Client *c, uint64_t n_bytes)
{
        uint64_t n_hits = fixture_fact(f, "pool.hits");
        unsigned n_pending = worker_pool_n_pending(f->workers);
        Op op = { .item = { .key = key_of("k"), .size_bytes = n_bytes } };
        char byte = 1;
        bool is_hit;

        op_begin(c, &op, VERB_CREATE);
        is_hit = fixture_fact(f, "pool.hits") > n_hits;
        if (is_hit)
                assert_true(op.is_done); /* nothing to wait for */
        else
                assert_int_equal(worker_pool_n_pending(f->workers) > n_pending, true);
        op_wait(f, &op);
        assert_int_equal(op.op.status, STATUS_OK);
        assert_true(op.op.region_bytes >= n_bytes && op.op.region_bytes - n_bytes <= n_bytes / 8 + HUGE_BYTES);
        assert_int_equal(pread(op.op.fd, &byte, 1, (off_t)n_bytes - 1), 1);
        assert_int_equal(byte, 0);
        op_clear(&op);
        assert_int_equal(client_delete(c, "k", 0), STATUS_OK);
        fixture_settle(f);
        return is_hit;
}

static void test_what_was_asked_for_is_there_the_next_time(void **state)
{
        static const uint64_t sizes[] = { MIB + 1, 3 * MIB, 5 * MIB + 77, 20 * MIB, 35 * MIB, 48 * MIB, 64 * MIB };
        Fixture f;
        Client c;

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                begin(&f, &c);
                assert_false(create_hits(&f, &c, sizes[i]));
                assert_true(create_hits(&f, &c, sizes[i]));
                if (sizes[i] % PAGE_BYTES == 0)
                        assert_true(create_hits(&f, &c, sizes[i] - sizes[i] / 100));
                assert_true(fixture_fact(&f, "pool.bytes") <= POOL_BYTES);
                end(&f, &c);
        }
}

static void test_what_is_too_large_for_it_is_not_kept(void **state)
{
        Fixture f;
        Client c;

        begin(&f, &c);
        for (int i = 0; i < 3; i++)
                assert_false(create_hits(&f, &c, POOL_BYTES / 4 + HUGE_BYTES));
        for (int i = 0; i < 3; i++)
                assert_false(create_hits(&f, &c, 300 * MIB));
        end(&f, &c);
}

static void test_many_sizes_stay_within_the_limit(void **state)
{
        Fixture f;
        Client c;

        begin(&f, &c);
        for (uint64_t n_bytes = 3 * MIB; n_bytes <= 64 * MIB; n_bytes += 5 * MIB) {
                (void)create_hits(&f, &c, n_bytes);
                assert_true(fixture_fact(&f, "pool.bytes") <= POOL_BYTES);
        }
        /* The newest among them, whatever is left of the others. */
        (void)create_hits(&f, &c, 33 * MIB);
        (void)create_hits(&f, &c, 33 * MIB);
        (void)create_hits(&f, &c, 33 * MIB);
        assert_true(create_hits(&f, &c, 33 * MIB));
        end(&f, &c);
}

static void test_what_is_not_asked_for_any_more_goes(void **state)
{
        uint64_t n_usual, i;
        Fixture f;
        Client c;

        begin(&f, &c);
        n_usual = fixture_fact(&f, "pool.bytes");
        assert_true(n_usual > 0);
        for (i = 0; i < 20; i++)
                (void)create_hits(&f, &c, 48 * MIB);
        assert_true(fixture_fact(&f, "pool.bytes") >= n_usual + 48 * MIB);
        for (i = 0; i < 200 && fixture_fact(&f, "pool.bytes") > n_usual; i++) {
                store_tick(f.store);
                fixture_settle(&f);
        }
        assert_in_range(i, 20, 120);
        assert_int_equal(fixture_fact(&f, "pool.bytes"), n_usual);
        end(&f, &c);
}

/* --- for the sake of others ------------------------------------------------------------------------------------------ */

static void test_pressure_empties_it_for_a_while(void **state)
{
        uint64_t n_usual, i;
        Fixture f;
        Client c;

        begin(&f, &c);
        n_usual = fixture_fact(&f, "pool.bytes");
        assert_int_equal(fixture_fact(&f, "pool.drained_bytes"), 0);
        store_relieve(f.store);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "pool.bytes"), 0);
        assert_int_equal(fixture_fact(&f, "pool.drained_bytes"), n_usual);
        /* Asking changes nothing, and works. */
        assert_false(create_hits(&f, &c, 8 * MIB));
        assert_int_equal(fixture_fact(&f, "pool.bytes"), 0);
        for (i = 0; i < 100 && fixture_fact(&f, "pool.bytes") < n_usual; i++) {
                if (i < 20)
                        assert_int_equal(fixture_fact(&f, "pool.bytes"), 0);
                store_tick(f.store);
                fixture_settle(&f);
        }
        assert_in_range(i, 21, 60);
        end(&f, &c);
}

static void test_pressure_while_blanks_are_made(void **state)
{
        StoreConfig config = pool_config();
        Fixture f;
        Client c;

        /* They are on their way when it comes. */
        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        store_relieve(f.store);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "pool.bytes"), 0);
        assert_int_equal(fixture_fact(&f, "pool.blank"), 0);
        end(&f, &c);
}

static void test_a_tenth_of_the_limit_stays_free(void **state)
{
        uint64_t n_usual;
        Fixture f;
        Client c;

        begin(&f, &c);
        n_usual = fixture_fact(&f, "pool.bytes");
        store_set_host(f.store, UINT64_MAX, UINT64_MAX);
        store_set_host(f.store, 1000 * MIB, 900 * MIB);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "pool.bytes"), n_usual);
        /* One byte over: something goes, not everything; and it does not come back. */
        store_set_host(f.store, 1000 * MIB, 900 * MIB + 1);
        fixture_settle(&f);
        assert_true(fixture_fact(&f, "pool.bytes") < n_usual);
        assert_true(fixture_fact(&f, "pool.bytes") > 0);
        for (int i = 0; i < 12; i++)
                store_tick(f.store);
        fixture_settle(&f);
        assert_true(fixture_fact(&f, "pool.bytes") < n_usual);
        /* Far over, and limits that make no sense. */
        store_set_host(f.store, 1000 * MIB, 2000 * MIB);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "pool.bytes"), 0);
        assert_int_equal(fixture_fact(&f, "pool.drained_bytes"), n_usual);
        store_set_host(f.store, 0, 0);
        store_set_host(f.store, 0, UINT64_MAX);
        store_set_host(f.store, UINT64_MAX - 1, UINT64_MAX);
        /* Room again; what there is room for comes, and no more. */
        store_set_host(f.store, 1000 * MIB, 900 * MIB - 9 * MIB);
        for (int i = 0; i < 12; i++)
                store_tick(f.store);
        fixture_settle(&f);
        assert_in_range(fixture_fact(&f, "pool.bytes"), 1, 9 * MIB);
        store_set_host(f.store, UINT64_MAX, 0);
        for (int i = 0; i < 12; i++)
                store_tick(f.store);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "pool.bytes"), n_usual);
        end(&f, &c);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_what_was_asked_for_is_there_the_next_time),
                UNIT_TEST(test_what_is_too_large_for_it_is_not_kept),
                UNIT_TEST(test_many_sizes_stay_within_the_limit),
                UNIT_TEST(test_what_is_not_asked_for_any_more_goes),
                UNIT_TEST(test_pressure_empties_it_for_a_while),
                UNIT_TEST(test_pressure_while_blanks_are_made),
                UNIT_TEST(test_a_tenth_of_the_limit_stays_free),
        };

        return cmocka_run_group_tests_name("store-pool", tests, NULL, NULL);
}
