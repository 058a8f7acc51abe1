/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept comes back, as often as it was kept, and what was dropped is released at once, whoever kept it. Names are
 * read as they were written, and nothing else is.
 */
#include "keeper-fixture.h"

/* --- names -------------------------------------------------------------------------------------------------------- */

static void test_names(void **state)
{
        KeptRecord record = { .version = KEEPER_RECORD_VERSION, .kind = KEPT_INDEX, .owner = 1, .id = 2, .detail = 3,
                              .inode = 4, .size_bytes = 5, .n_text = 2, .text = "ab" }, back;
        KeeperName name;
        uint64_t serial;

        assert_true(keeper_record_to_name(&record, 10, name));
        assert_string_equal(name, "folio-index-1-a-1-2-3-4-5-6162");
        for (uint32_t kind = KEPT_INDEX; kind <= KEPT_LISTENER; kind++) {
                record.kind = kind;
                assert_true(keeper_record_to_name(&record, kind, name));
                memset(&back, 0xff, sizeof(back));
                assert_int_equal(keeper_record_from_name(name, &back, &serial), 0);
                assert_memory_equal(&back, &record, sizeof(back));
                assert_int_equal(serial, kind);
        }
        /* The longest: all numbers, and as much text as fits. */
        record = (KeptRecord){ .version = KEEPER_RECORD_VERSION, .kind = KEPT_PROCESS, .owner = UINT32_MAX,
                               .id = UINT64_MAX, .detail = UINT64_MAX, .inode = UINT64_MAX, .size_bytes = UINT64_MAX };
        memset(record.text, 0xff, sizeof(record.text));
        assert_true(keeper_record_to_name(&record, UINT64_MAX, name));
        record.n_text = (uint32_t)(KEEPER_NAME_BYTES_MAX - strlen(name)) / 2;
        assert_true(record.n_text < KEEPER_TEXT_BYTES_MAX);
        assert_true(keeper_record_to_name(&record, UINT64_MAX, name));
        assert_true(strlen(name) <= KEEPER_NAME_BYTES_MAX);
        assert_int_equal(keeper_record_from_name(name, &back, &serial), 0);
        assert_int_equal(back.n_text, record.n_text);
        record.n_text++;
        assert_false(keeper_record_to_name(&record, UINT64_MAX, name));
        keeper_record_to_segment_name(UINT64_MAX, name);
        assert_int_equal(keeper_record_from_name(name, &back, &serial), KEEPER_RECORD_E_SEGMENT);
        assert_true(serial == UINT64_MAX);
}

static void test_strange_names(void **state)
{
        static const struct {
                const char *name;
                int expected;
        } rows[] = {
                { "", KEEPER_RECORD_E_FOREIGN },
                { "folio", KEEPER_RECORD_E_FOREIGN },
                { "client", KEEPER_RECORD_E_FOREIGN },
                { "Folio-index-1-a-1-2-3-4-5-", KEEPER_RECORD_E_FOREIGN },
                { "folio-", KEEPER_RECORD_E_BAD },
                { "folio--", KEEPER_RECORD_E_BAD },
                { "folio-index", KEEPER_RECORD_E_BAD },
                { "folio-index-", KEEPER_RECORD_E_BAD },
                { "folio-index-1-a-1-2-3-4-5-", 0 },
                { "folio-index-1-a-1-2-3-4-5", KEEPER_RECORD_E_BAD },
                { "folio-index-1-a-1-2-3-4-5-6", KEEPER_RECORD_E_BAD },
                { "folio-index-1-a-1-2-3-4-5-6g", KEEPER_RECORD_E_BAD },
                { "folio-index-1-a-1-2-3-4-5-61-", KEEPER_RECORD_E_BAD },
                { "folio-index-1-a-100000000-2-3-4-5-", KEEPER_RECORD_E_BAD },
                { "folio-index-1-a-ffffffff-2-3-4-5-", 0 },
                { "folio-index-1-a-1-10000000000000000-3-4-5-", KEEPER_RECORD_E_BAD },
                { "folio-index-1-a-1-ffffffffffffffff-3-4-5-", 0 },
                { "folio-index-1-A-1-2-3-4-5-", KEEPER_RECORD_E_BAD },
                { "folio-index-0-a-1-2-3-4-5-", KEEPER_RECORD_E_BAD },
                { "folio-index-2-a-1-2-3-4-5-", KEEPER_RECORD_E_NEWER },
                { "folio-index-2", KEEPER_RECORD_E_NEWER },
                { "folio-other-1-a-1-2-3-4-5-", KEEPER_RECORD_E_BAD },
                { "folio-other-2-whatever", KEEPER_RECORD_E_NEWER },
                { "folio-index-123456789-a", KEEPER_RECORD_E_BAD },
                { "folio-index-ffffffff-a", KEEPER_RECORD_E_NEWER },
                { "folio-segment-1-0", KEEPER_RECORD_E_SEGMENT },
                { "folio-segment-1-", KEEPER_RECORD_E_BAD },
                { "folio-segment-1-0-", KEEPER_RECORD_E_BAD },
                { "folio-segment-2-0", KEEPER_RECORD_E_NEWER },
                { "folio-segments-1-0", KEEPER_RECORD_E_BAD },
        };
        KeptRecord record;
        uint64_t serial;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                if (keeper_record_from_name(rows[i].name, &record, &serial) != rows[i].expected)
                        fail_msg("%s: %d", rows[i].name, keeper_record_from_name(rows[i].name, &record, &serial));
}

/* --- keeping and taking ------------------------------------------------------------------------------------------- */

static void test_comes_back(void **state)
{
        KeptRecord record = { .kind = KEPT_STAGING, .owner = UINT32_MAX, .id = UINT64_MAX, .detail = 1, .n_text = 80 };
        Keeper *keeper = start();
        KeeperFacts facts;
        Kept *kept;
        int fd = make_memfd(1);
        size_t i;

        memset(record.text, 'x', sizeof(record.text));
        record.text[79] = '\0';
        keeper_settle(keeper);
        assert_int_equal(manager.n_stores, 1); /* the spare one */
        /* A secret is never a name. */
        assert_int_equal(keeper_keep(keeper, &record, fd, true, &kept), 0);
        keep(keeper, KEPT_INDEX, 2, fd, true);
        keep(keeper, KEPT_OWN, 3, fd, false);
        keeper_settle(keeper);
        assert_int_equal(manager.n_stores, 3); /* the index, the next spare one */
        assert_int_equal(count_names("folio-segment-1-"), 2);
        assert_int_equal(count_names("folio-index-1-"), 1);
        assert_int_equal(count_names("folio-"), 3);
        keeper_get_facts(keeper, &facts);
        assert_int_equal(facts.n_direct, 1);
        assert_int_equal(facts.n_parked, 2);
        assert_int_equal(facts.n_segments, 1);
        assert_int_equal(facts.n_stored_max, STORED_MAX);
        assert_int_equal(facts.n_failed, 0);
        keeper_free(keeper);
        assert_int_equal(manager.n_strange, 0);

        /* Twice: nothing is consumed by being told. */
        for (unsigned round = 0; round < 2; round++) {
                struct stat st;

                keeper = start();
                assert_int_equal(take_all(keeper), 0);
                assert_int_equal(told.n, 3);
                assert_int_equal(fstat(fd, &st), 0);
                for (i = 0; i < told.n; i++) {
                        assert_int_equal(read_memfd(told.fds[i]), 1);
                        assert_int_equal(told.records[i].inode, st.st_ino);
                        assert_int_equal(told.records[i].size_bytes, 8);
                        assert_int_equal(told.records[i].version, KEEPER_RECORD_VERSION);
                }
                i = find_told(UINT64_MAX);
                assert_memory_equal(&told.records[i], &record, sizeof(record));
                assert_int_equal(told.records[find_told(2)].kind, KEPT_INDEX);
                assert_int_equal(told.records[find_told(3)].owner, 7);
                close_told();
                keeper_free(keeper);
        }
        keeper = start();
        assert_int_equal(take_all(keeper), 0);
        drop_told(keeper);
        keeper_settle(keeper);
        keeper_get_facts(keeper, &facts);
        assert_int_equal(facts.n_direct + facts.n_parked, 0);
        keeper_free(keeper);
        assert_int_equal(count_stored(), 0);
        close(fd);
}

static void test_null_is_nothing(void **state)
{
        Keeper *keeper = start();

        keeper_drop(keeper, NULL);
        keeper_settle(keeper);
        assert_int_equal(take_all(keeper), 0);
        assert_int_equal(told.n, 0);
        keeper_free(keeper);
}

static unsigned random_state = 1;

static unsigned next_random(void)
{
        random_state = random_state * 1664525u + 1013904223u;
        return random_state >> 8;
}

typedef struct Piped {
        int read_fd;
        Kept *kept;
} Piped;

static Piped *keep_pipes(Keeper *keeper, size_t n)
{
        Piped *pipes = calloc(n, sizeof(*pipes));

        assert_non_null(pipes);
        for (size_t i = 0; i < n; i++) {
                int fd;

                pipes[i].read_fd = make_pipe(&fd);
                pipes[i].kept = keep(keeper, KEPT_OWN, i, fd, false);
                close(fd);
        }
        return pipes;
}

static void check_pipes(const Piped *pipes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                assert_int_equal(has_hung_up(pipes[i].read_fd), pipes[i].kept == NULL);
}

static void free_pipes(Piped *pipes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                close(pipes[i].read_fd);
        free(pipes);
}

static void drop_some(Keeper *keeper, Piped *pipes, size_t n, size_t n_drops)
{
        for (size_t i = 0; i < n_drops; i++) {
                size_t at = next_random() % n;

                for (; !pipes[at].kept; at = (at + 1) % n)
                        ;
                keeper_drop(keeper, pipes[at].kept);
                pipes[at].kept = NULL;
        }
}

/* Each alone, then some at a time, then the rest; and the same after a restart, where the queues cannot be written. */
static void drop_at_random(bool is_restarted)
{
        enum { N = 1000 };
        Keeper *keeper = start();
        Piped *pipes = keep_pipes(keeper, N);
        size_t n_left = N;
        KeeperFacts facts;

        if (is_restarted) {
                keeper_free(keeper);
                keeper = start();
                assert_int_equal(take_all(keeper), 0);
                assert_int_equal(told.n, N);
                for (size_t i = 0; i < told.n; i++)
                        pipes[told.records[i].id].kept = told.kepts[i];
                close_told();
        }
        check_pipes(pipes, N);
        for (unsigned i = 0; i < 60; i++) {
                drop_some(keeper, pipes, N, 1);
                n_left--;
                keeper_settle(keeper);
                check_pipes(pipes, N);
        }
        while (n_left > 0) {
                size_t n = 1 + next_random() % 120;

                n = MIN(n_left, n);
                drop_some(keeper, pipes, N, n);
                n_left -= n;
                keeper_settle(keeper);
                check_pipes(pipes, N);
                keeper_get_facts(keeper, &facts);
                assert_int_equal(facts.n_parked, n_left);
                assert_true(facts.n_segments <= 64);
        }
        assert_true(facts.n_moved > 0);
        keeper_free(keeper);
        assert_int_equal(count_stored(), 0);
        free_pipes(pipes, N);
}

static void test_dropped_is_released(void **state)
{
        drop_at_random(false);
}

static void test_dropped_is_released_after_a_restart(void **state)
{
        drop_at_random(true);
}

static void test_dropped_in_order_moves_little(void **state)
{
        enum { N = 1000 };
        Keeper *keeper = start();
        Piped *pipes = keep_pipes(keeper, N);
        KeeperFacts facts;

        for (size_t i = 0; i < N; i++) {
                keeper_drop(keeper, pipes[i].kept);
                pipes[i].kept = NULL;
        }
        keeper_settle(keeper);
        check_pipes(pipes, N);
        keeper_get_facts(keeper, &facts);
        /* The oldest are in front; only the first segments were filled beyond their size and mixed. */
        assert_true(facts.n_moved < N);
        keeper_free(keeper);
        free_pipes(pipes, N);
}

static void test_direct_is_released(void **state)
{
        Keeper *keeper = start();
        Kept *kept[100];
        int reads[100], fd;
        KeeperFacts facts;

        for (unsigned i = 0; i < 100; i++) {
                reads[i] = make_pipe(&fd);
                kept[i] = keep(keeper, KEPT_PACKED, i, fd, true);
                close(fd);
        }
        keeper_get_facts(keeper, &facts);
        assert_int_equal(facts.n_direct, 64);
        assert_int_equal(facts.n_parked, 36); /* more than the few are parked */
        assert_int_equal(count_names("folio-packed-1-"), 64);
        keeper_drop(keeper, kept[0]);
        keeper_drop(keeper, kept[99]);
        keeper_settle(keeper);
        for (unsigned i = 0; i < 100; i++)
                assert_int_equal(has_hung_up(reads[i]), i == 0 || i == 99);
        fd = make_memfd(1);
        kept[0] = keep(keeper, KEPT_PACKED, 0, fd, true);
        keeper_get_facts(keeper, &facts);
        assert_int_equal(facts.n_direct, 64);
        for (unsigned i = 0; i < 99; i++)
                keeper_drop(keeper, kept[i]);
        keeper_settle(keeper);
        for (unsigned i = 0; i < 100; i++) {
                assert_true(has_hung_up(reads[i]));
                close(reads[i]);
        }
        keeper_get_facts(keeper, &facts);
        assert_int_equal(facts.n_direct + facts.n_parked, 0);
        close(fd);
        keeper_free(keeper);
        assert_int_equal(count_stored(), 0);
}

static void test_frozen_stays(void **state)
{
        KeptRecord record = { .kind = KEPT_OWN };
        Keeper *keeper = start();
        int fd = make_memfd(9);
        Kept *first = keep(keeper, KEPT_OWN, 1, fd, false), *second = keep(keeper, KEPT_INDEX, 2, fd, true), *third;

        keeper_drop(keeper, keep(keeper, KEPT_OWN, 3, fd, false));
        keeper_freeze(keeper);
        keeper_drop(keeper, first);
        keeper_drop(keeper, second);
        assert_int_equal(keeper_keep(keeper, &record, fd, false, &third), KEEPER_E_GONE);
        assert_int_equal(keeper_keep(keeper, &record, fd, true, &third), KEEPER_E_GONE);
        keeper_free(keeper);
        keeper = start();
        assert_int_equal(take_all(keeper), 0);
        assert_int_equal(told.n, 2);
        (void)find_told(1);
        (void)find_told(2);
        close_told();
        keeper_free(keeper);
        close(fd);
}

static void test_sockets_and_listeners(void **state)
{
        KeptRecord record = { .kind = KEPT_LISTENER, .detail = 77, .n_text = 2, .text = "/s" };
        Keeper *keeper = start();
        int fd = make_memfd(1), other = make_memfd(2), taken;
        Kept *kept;

        /* Directly, whatever is asked for. */
        assert_int_equal(keeper_keep(keeper, &record, fd, false, &kept), 0);
        assert_int_equal(count_names("folio-listener-1-"), 1);
        keeper_free(keeper);
        pthread_mutex_lock(&manager.lock);
        fake_manager_store(&manager, "client", other);
        pthread_mutex_unlock(&manager.lock);

        keeper = start();
        taken = keeper_take_socket(keeper);
        assert_int_equal(read_memfd(taken), 2);
        close(taken);
        assert_int_equal(keeper_take_socket(keeper), -1);
        record = (KeptRecord){ 0 };
        taken = keeper_take_listener(keeper, &record, &kept);
        assert_int_equal(read_memfd(taken), 1);
        close(taken);
        assert_int_equal(record.detail, 77);
        assert_memory_equal(record.text, "/s", 3);
        assert_int_equal(keeper_take_listener(keeper, &record, &kept), -1);
        assert_int_equal(take_all(keeper), 0);
        assert_int_equal(told.n, 0);
        keeper_drop(keeper, kept);
        keeper_free(keeper);
        /* Not taken: closed with the keeper. */
        keeper = start();
        keeper_free(keeper);
        assert_int_equal(count_names("client"), 1);
        close(fd);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_names),
                UNIT_TEST(test_strange_names),
                KEEPER_TEST(test_comes_back),
                KEEPER_TEST(test_null_is_nothing),
                KEEPER_TEST(test_dropped_is_released),
                KEEPER_TEST(test_dropped_is_released_after_a_restart),
                KEEPER_TEST(test_dropped_in_order_moves_little),
                KEEPER_TEST(test_direct_is_released),
                KEEPER_TEST(test_frozen_stays),
                KEEPER_TEST(test_sockets_and_listeners),
        };

        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
