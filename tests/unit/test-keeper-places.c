/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors a manager takes that does not say so: more, fewer or none, at a first start and at a later one. */
#include "keeper-fixture.h"

#define WAITS_MAX 1000

static Keeper *start_guessing(void)
{
        (void)count_stored(); /* what a predecessor has sent last has been done */
        return fake_manager_start_keeper_as(&manager, STORED_MAX, true);
}

static uint64_t places_of(Keeper *keeper)
{
        KeeperFacts facts;

        keeper_get_facts(keeper, &facts);
        return facts.n_stored_max;
}

static void test_found_out(void **state)
{
        static const size_t maxima[] = { 0, 1, 2, 3, 8, 100, STORED_MAX - 1, STORED_MAX, STORED_MAX + 1, 2000 };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(maxima); i++) {
                KeptRecord record = { .kind = KEPT_OWN };
                int fd = make_memfd(1);
                Keeper *keeper;
                Kept *kept;
                int r;

                manager.n_max = maxima[i];
                keeper = start_guessing();
                keeper_reserve(keeper);
                for (unsigned n = 0; places_of(keeper) != MIN(maxima[i], (size_t)STORED_MAX); n++) {
                        assert_true(n < WAITS_MAX);
                        keeper_settle(keeper);
                }
                keeper_settle(keeper);
                assert_int_equal(keeper_is_gone(keeper), maxima[i] == 0);
                manager.n_refused = 0;
                r = keeper_keep(keeper, &record, fd, false, &kept);
                assert_int_equal(r, maxima[i] == 0 ? KEEPER_E_GONE : 0);
                if (r == 0)
                        keeper_drop(keeper, kept);
                keeper_settle(keeper);
                assert_int_equal(manager.n_refused, 0);
                keeper_free(keeper);
                assert_int_equal(count_stored(), 0);
                close(fd);
        }
        manager.n_max = STORED_MAX;
}

/* Nothing is dropped without a word, up to the last. */
static void test_nothing_is_refused(void **state)
{
        KeptRecord record = { .kind = KEPT_OWN };
        int fd = make_memfd(1), r = 0;
        unsigned n = 0;
        Keeper *keeper;
        Kept *kept;

        (void)state;
        manager.n_max = 6;
        keeper = start_guessing();
        keeper_reserve(keeper);
        manager.n_refused = 0;
        while (n < 5000 && (r = keeper_keep(keeper, &record, fd, n % 2, &kept)) == 0) {
                record.id++;
                n++;
        }
        assert_int_equal(r, KEEPER_E_FULL);
        assert_true(n > 250);
        assert_int_equal(manager.n_refused, 0);
        keeper_free(keeper);

        keeper = start_guessing();
        assert_int_equal(take_all(keeper), 0);
        assert_int_equal(told.n, n);
        assert_int_equal(places_of(keeper), 6);
        drop_told(keeper);
        keeper_settle(keeper);
        keeper_free(keeper);
        assert_int_equal(count_stored(), 0);
        manager.n_max = STORED_MAX;
        close(fd);
}

/* What a start needs is found out at once, the rest when it is over. */
static void test_later_start(void **state)
{
        int fd = make_memfd(1);
        Keeper *keeper = start();

        (void)state;
        (void)keep(keeper, KEPT_PACKED, 1, fd, true);
        (void)keep(keeper, KEPT_PACKED, 2, fd, true);
        keeper_free(keeper);

        manager.n_max = 100;
        keeper = start_guessing();
        assert_int_equal(places_of(keeper), STORED_MAX);
        assert_int_equal(take_all(keeper), 0);
        assert_int_equal(told.n, 2);
        close_told();
        keeper_reserve(keeper);
        for (unsigned i = 0; places_of(keeper) != 100; i++) {
                assert_true(i < WAITS_MAX);
                keeper_settle(keeper);
        }
        keeper_free(keeper);

        manager.n_max = 4;
        keeper = start_guessing();
        assert_int_equal(places_of(keeper), 4);
        assert_int_equal(take_all(keeper), 0);
        drop_told(keeper);
        keeper_settle(keeper);
        keeper_free(keeper);
        assert_int_equal(count_stored(), 0);
        manager.n_max = STORED_MAX;
        close(fd);
}

/* One that was killed while it found out leaves empty segments, many of one name. */
static void test_killed_meanwhile(void **state)
{
        KeeperManager *connection;
        KeeperName name;
        Keeper *keeper;
        KeeperFacts facts;

        (void)state;
        keeper_record_to_segment_name(UINT64_C(77) << 32, name);
        assert_int_equal(keeper_manager_new(manager.address, &connection), 0);
        for (unsigned i = 0; i < 20; i++) {
                KeeperSegment end = KEEPER_SEGMENT_NULL;

                assert_int_equal(keeper_segment_open(&end), 0);
                assert_int_equal(keeper_manager_offer(connection, name, end.receive_fd), 0);
                keeper_segment_close(&end);
        }
        assert_int_equal(keeper_manager_confirm(connection), 0);
        keeper_manager_free(connection);
        assert_int_equal(count_stored(), 20);
        keeper = start_guessing();
        assert_int_equal(take_all(keeper), 0);
        assert_int_equal(told.n, 0);
        keeper_reserve(keeper);
        keeper_settle(keeper);
        keeper_get_facts(keeper, &facts);
        assert_true(facts.n_segments <= 1);
        keeper_free(keeper);
        assert_int_equal(count_stored(), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                KEEPER_TEST(test_found_out),
                KEEPER_TEST(test_nothing_is_refused),
                KEEPER_TEST(test_later_start),
                KEEPER_TEST(test_killed_meanwhile),
        };

        return cmocka_run_group_tests_name("keeper-places", tests, NULL, NULL);
}
