/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper at its limits, with what cannot be read, with a manager that does not answer, and with threads.
 */
#include "keeper-fixture.h"

#include <grp.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* --- limits ------------------------------------------------------------------------------------------------------- */

static void test_limit_of_what_is_stored(void **state)
{
        static const unsigned maxima[] = { 1, 2, 3, 5 };
        static const unsigned n_directs[] = { 0, 0, 1, 2 }; /* the reserve is for segments */
        int fd = make_memfd(1);

        for (size_t i = 0; i < ARRAY_SIZE(maxima); i++) {
                Keeper *keeper = fake_manager_start_keeper(&manager, maxima[i]);
                KeptRecord record = { .kind = KEPT_OWN, .id = 1 };
                unsigned n_direct = n_directs[i], n_parked = 250 * (maxima[i] - n_direct);
                Kept *last = NULL, *unused;
                KeeperFacts facts;

                for (unsigned k = 0; k < n_direct; k++)
                        keep(keeper, KEPT_PACKED, k, fd, true);
                keeper_get_facts(keeper, &facts);
                assert_int_equal(facts.n_parked, 0);
                for (unsigned k = 0; k < n_parked; k++)
                        last = keep(keeper, KEPT_OWN, k, fd, false);
                keeper_get_facts(keeper, &facts);
                assert_int_equal(facts.n_direct, n_direct);
                assert_int_equal(facts.n_parked, n_parked);
                assert_int_equal(facts.n_parked_max, n_parked);
                for (unsigned k = 0; k < 2; k++)
                        assert_int_equal(keeper_keep(keeper, &record, fd, k == 1, &unused), KEEPER_E_FULL);
                assert_non_null(strstr(keeper_explain(keeper, KEEPER_E_FULL), "may be stored for a restart are"));
                keeper_get_facts(keeper, &facts);
                assert_int_equal(facts.n_failed, 2);
                assert_int_equal(count_stored(), maxima[i]);
                assert_int_equal(manager.n_refused, 0);
                /* One goes, one comes. */
                keeper_drop(keeper, last);
                keeper_settle(keeper);
                keep(keeper, KEPT_OWN, n_parked, fd, false);
                assert_int_equal(keeper_keep(keeper, &record, fd, false, &unused), KEEPER_E_FULL);
                keeper_free(keeper);

                keeper = fake_manager_start_keeper(&manager, maxima[i] + 1);
                assert_int_equal(take_all(keeper), 0);
                assert_int_equal(told.n, n_direct + n_parked);
                drop_told(keeper);
                keeper_settle(keeper);
                keeper_free(keeper);
                assert_int_equal(count_stored(), 0);
        }
        close(fd);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IS_THREAD_SANITIZED true
#endif
#endif
#ifndef IS_THREAD_SANITIZED
#define IS_THREAD_SANITIZED false
#endif

/* In a child: an ordinary user with few descriptors. */
static int fill_in_flight(void)
{
        struct rlimit limit = { 64, 64 };
        KeptRecord record = { .kind = KEPT_OWN };
        Keeper *keeper = start();
        Kept *kept;
        int fd = make_memfd(1), r = 0;
        unsigned n = 0;

        keeper_free(keeper);
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0 ||
            (getuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(54321, 54321, 54321) < 0 ||
                               setresuid(54321, 54321, 54321) < 0)))
                return 1;
        keeper = start();
        while (n < 1000 && (r = keeper_keep(keeper, &record, fd, false, &kept)) == 0)
                n++;
        if (r != KEEPER_E_FULL || n != 56)
                return 2;
        if (!strstr(keeper_explain(keeper, r), "56 descriptors are parked"))
                return 3;
        /* One less, one more. */
        keeper_drop(keeper, kept);
        keeper_settle(keeper);
        if (keeper_keep(keeper, &record, fd, false, &kept) != 0 ||
            keeper_keep(keeper, &record, fd, false, &kept) != KEEPER_E_FULL)
                return 4;
        keeper_free(keeper);
        return 0;
}

static void test_limit_of_the_kernel(void **state)
{
        pid_t pid;
        int status;

        /* The child needs a thread, which it may not have there. */
        if (IS_THREAD_SANITIZED)
                skip();
        pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(fill_in_flight());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

/* --- what cannot be read ------------------------------------------------------------------------------------------ */

static KeptRecord make_record(uint32_t kind, uint64_t id, int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return (KeptRecord){ .version = KEEPER_RECORD_VERSION, .kind = kind, .owner = 7, .id = id, .inode = st.st_ino,
                             .size_bytes = (uint64_t)st.st_size };
}

/* Any bytes with any number of descriptors. */
static void push_raw(KeeperSegment *segment, const void *bytes, size_t n_bytes, int fd, size_t n_fds)
{
        union {
                char bytes[CMSG_SPACE(4 * sizeof(int))];
                struct cmsghdr align;
        } control = { .bytes = { 0 } };
        struct iovec part = { (void *)(uintptr_t)bytes, n_bytes };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

        if (n_fds > 0) {
                struct cmsghdr *header;

                message.msg_control = control.bytes;
                message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                for (size_t i = 0; i < n_fds; i++)
                        memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
        }
        assert_true(sendmsg(segment->send_fd, &message, MSG_NOSIGNAL) >= 0);
}

static void push(KeeperSegment *segment, const KeptRecord *record, int fd)
{
        assert_int_equal(keeper_segment_push(segment, record, fd), 0);
}

static void hand_over(KeeperSegment *segment, uint64_t serial)
{
        KeeperName name;

        keeper_record_to_segment_name(serial, name);
        pthread_mutex_lock(&manager.lock);
        fake_manager_store(&manager, name, segment->receive_fd);
        pthread_mutex_unlock(&manager.lock);
        segment->receive_fd = -1;
        keeper_segment_close(segment);
}

static void hand_over_direct(const char *name, int fd)
{
        pthread_mutex_lock(&manager.lock);
        fake_manager_store(&manager, name, fcntl(fd, F_DUPFD_CLOEXEC, 3));
        pthread_mutex_unlock(&manager.lock);
}

/* A predecessor that ended between sending again and consuming. */
static void test_twice_is_told_once(void **state)
{
        KeeperSegment first, second;
        KeeperName name;
        int write_fd, read_fd = make_pipe(&write_fd);
        KeptRecord a = make_record(KEPT_OWN, 1, write_fd), b = make_record(KEPT_OWN, 2, write_fd), c = a;
        Keeper *keeper;
        KeeperFacts facts;

        c.inode++;
        assert_int_equal(keeper_segment_open(&first), 0);
        assert_int_equal(keeper_segment_open(&second), 0);
        push(&first, &a, write_fd);
        push(&first, &b, write_fd);
        push(&first, &a, write_fd);
        push(&second, &b, write_fd);
        push(&second, &c, write_fd); /* another inode is another */
        hand_over(&first, 5);
        hand_over(&second, 0x10);
        assert_true(keeper_record_to_name(&b, 0x11, name));
        hand_over_direct(name, write_fd);
        keeper = start();
        assert_int_equal(take_all(keeper), 0);
        assert_int_equal(told.n, 3);
        keeper_settle(keeper);
        keeper_get_facts(keeper, &facts);
        assert_int_equal(facts.n_parked, 2);
        assert_int_equal(facts.n_direct, 1);
        close(write_fd);
        assert_false(has_hung_up(read_fd));
        drop_told(keeper);
        keeper_settle(keeper);
        assert_true(has_hung_up(read_fd));
        keeper_free(keeper);
        assert_int_equal(count_stored(), 0);
        close(read_fd);
}

static void test_bad_ones_are_dropped(void **state)
{
        int write_fd, read_fd = make_pipe(&write_fd);
        KeptRecord good = make_record(KEPT_OWN, 1, write_fd), record;
        char longer[256] = { 0 };
        KeeperSegment segment;
        Keeper *keeper;

        assert_int_equal(keeper_segment_open(&segment), 0);
        push(&segment, &good, write_fd);
        push_raw(&segment, &good, sizeof(good) - 1, write_fd, 1);
        push_raw(&segment, &good, 3, write_fd, 1);
        push_raw(&segment, &good, sizeof(good), write_fd, 2);
        push_raw(&segment, &good, sizeof(good), write_fd, 0);
        memcpy(longer, &good, sizeof(good));
        push_raw(&segment, longer, sizeof(longer), write_fd, 1);
        record = good;
        record.kind = 0;
        push(&segment, &record, write_fd);
        record.kind = KEPT_LISTENER + 1;
        push(&segment, &record, write_fd);
        record.kind = UINT32_MAX;
        push(&segment, &record, write_fd);
        record = good;
        record.n_text = KEEPER_TEXT_BYTES_MAX + 1;
        push(&segment, &record, write_fd);
        record.n_text = UINT32_MAX;
        push(&segment, &record, write_fd);
        record = good;
        record.version = 0;
        push(&segment, &record, write_fd);
        record = good;
        record.id = 2;
        push(&segment, &record, write_fd);
        hand_over(&segment, 1);
        hand_over_direct("folio-nonsense", write_fd);
        hand_over_direct("folio-own-1-2-3", write_fd);
        hand_over_direct("folio-segment-1-", write_fd);
        hand_over_direct("folio-segment-0-1", write_fd);
        close(write_fd);

        keeper = start();
        assert_int_equal(take_all(keeper), 11 + 4);
        assert_int_equal(told.n, 2);
        (void)find_told(1);
        (void)find_told(2);
        keeper_settle(keeper);
        assert_int_equal(count_names("folio-"), 3); /* its segment, where the first has gone, the spare one */
        drop_told(keeper);
        keeper_settle(keeper);
        assert_true(has_hung_up(read_fd));
        keeper_free(keeper);
        close(read_fd);
}

static void test_newer_stays(void **state)
{
        int fd = make_memfd(1);
        KeptRecord record = make_record(KEPT_OWN, 1, fd);
        char longer[KEEPER_MESSAGE_BYTES_MAX] = { 0 };
        uint64_t n_bad = 5;
        KeeperSegment segment;
        Keeper *keeper;

        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(keeper_segment_open(&segment), 0);
                push(&segment, &record, fd);
                record.version = KEEPER_RECORD_VERSION + 1;
                memcpy(longer, &record, sizeof(record));
                if (i == 0)
                        push(&segment, &record, fd);
                else if (i == 1)
                        push_raw(&segment, longer, sizeof(longer), fd, 1);
                else
                        hand_over_direct("folio-something-2-1", fd);
                record.version = KEEPER_RECORD_VERSION;
                hand_over(&segment, 1);
                for (unsigned round = 0; round < 3; round++) {
                        size_t n = count_stored();

                        keeper = start();
                        told.n = 0;
                        assert_int_equal(keeper_take_all(keeper, on_told, &told, &n_bad), KEEPER_E_NEWER);
                        assert_int_equal(told.n, 0);
                        assert_non_null(strstr(keeper_explain(keeper, KEEPER_E_NEWER), "later version"));
                        keeper_settle(keeper);
                        assert_int_equal(count_stored(), n + 1);
                        keeper_free(keeper);
                        assert_int_equal(count_stored(), n);
                }
                pthread_mutex_lock(&manager.lock);
                while (manager.n_stored > 0)
                        fake_manager_forget(&manager, 0);
                pthread_mutex_unlock(&manager.lock);
        }
        close(fd);
}

/* What one has sent at its end may be done when the next has begun already: it must not mean what that one has. */
static void test_no_two_use_one_name(void **state)
{
        KeeperConfig config = { .n_stored_max = STORED_MAX };
        KeeperPassed nothing = { 0 };
        Keeper *keepers[3];

        for (size_t i = 0; i < ARRAY_SIZE(keepers); i++) {
                assert_int_equal(keeper_new_from(&config, manager.address, &nothing, &keepers[i]), 0);
                keeper_settle(keepers[i]);
        }
        assert_int_equal(count_stored(), ARRAY_SIZE(keepers));
        for (size_t i = 0; i < ARRAY_SIZE(keepers); i++) {
                keeper_free(keepers[i]);
                assert_int_equal(count_stored(), ARRAY_SIZE(keepers) - 1 - i);
        }
}

/* --- what fails --------------------------------------------------------------------------------------------------- */

static void test_restarts_do_not_pile_up(void **state)
{
        enum { ROUNDS = 150, EACH = 3 };
        Keeper *keeper = start();
        int fd = make_memfd(1);
        KeeperFacts facts;

        for (unsigned round = 0; round < ROUNDS; round++) {
                assert_int_equal(take_all(keeper), 0);
                assert_int_equal(told.n, round * EACH);
                close_told();
                for (unsigned i = 0; i < EACH; i++)
                        keep(keeper, KEPT_OWN, round * EACH + i, fd, false);
                keeper_settle(keeper);
                keeper_get_facts(keeper, &facts);
                assert_int_equal(facts.n_parked, (round + 1) * EACH);
                assert_true(facts.n_segments <= 16 + 32 + 2);
                assert_int_equal(count_stored(), facts.n_segments + 1);
                keeper_free(keeper);
                keeper = start();
        }
        keeper_free(keeper);
        close(fd);
}

static void test_too_few_descriptors(void **state)
{
        struct rlimit before, few;
        Keeper *keeper = start();
        int fd = make_memfd(1);
        uint64_t n_bad;

        for (unsigned i = 0; i < 300; i++)
                keep(keeper, KEPT_OWN, i, fd, false);
        keeper_free(keeper);
        keeper = start();
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        few = before;
        few.rlim_cur = (rlim_t)harness_count_fds() + 150;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        told.n = 0;
        assert_int_equal(keeper_take_all(keeper, on_told, &told, &n_bad), -EMFILE);
        assert_int_equal(told.n, 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(take_all(keeper), 0);
        assert_int_equal(told.n, 300);
        close_told();
        keeper_free(keeper);
        close(fd);
}

static void test_manager_that_has_ended(void **state)
{
        KeptRecord record = { .kind = KEPT_OWN };
        Keeper *keeper = start();
        int fd = make_memfd(1);
        Kept *kept = keep(keeper, KEPT_OWN, 1, fd, false), *direct = keep(keeper, KEPT_PACKED, 2, fd, true), *other;

        keeper_settle(keeper);
        assert_false(keeper_is_gone(keeper));
        fake_manager_die(&manager);
        assert_int_equal(keeper_keep(keeper, &record, fd, true, &other), KEEPER_E_GONE);
        assert_true(keeper_is_gone(keeper));
        assert_int_equal(keeper_keep(keeper, &record, fd, false, &other), KEEPER_E_GONE);
        assert_non_null(strstr(keeper_explain(keeper, KEEPER_E_GONE), "nobody keeps"));
        keeper_drop(keeper, kept);
        keeper_drop(keeper, direct);
        keeper_settle(keeper);
        keeper_free(keeper);
        close(fd);
}

/* As when a supervisor ends that was watched. */
static void test_manager_that_is_known_to_have_ended(void **state)
{
        KeptRecord record = { .kind = KEPT_OWN };
        Keeper *keeper = start();
        int fd = make_memfd(1);
        Kept *kept = keep(keeper, KEPT_OWN, 1, fd, false), *other;

        keeper_set_gone(keeper);
        keeper_set_gone(keeper);
        assert_int_equal(keeper_keep(keeper, &record, fd, false, &other), KEEPER_E_GONE);
        keeper_drop(keeper, kept);
        keeper_settle(keeper);
        keeper_free(keeper);
        close(fd);
}

/* Who is waited for is waited for two seconds at most, and is asked again later. */
static void test_manager_that_does_not_read(void **state)
{
        KeptRecord record = { .kind = KEPT_OWN };
        Kept *kept;
        Keeper *keeper;
        int fd = make_memfd(1);

        pthread_mutex_lock(&manager.lock);
        manager.is_mute = true;
        pthread_mutex_unlock(&manager.lock);
        keeper = start();
        assert_int_equal(keeper_keep(keeper, &record, fd, false, &kept), KEEPER_E_GONE);
        pthread_mutex_lock(&manager.lock);
        manager.is_mute = false;
        pthread_mutex_unlock(&manager.lock);
        keeper_settle(keeper);
        assert_int_equal(keeper_keep(keeper, &record, fd, false, &kept), 0);
        keeper_drop(keeper, kept);
        keeper_settle(keeper);
        keeper_free(keeper);
        close(fd);
}

static void test_addresses(void **state)
{
        static const char *const wrong[] = {
                "", "@", "/", "relative", "vsock:2:1234", "/nowhere/at/all",
                ("@012345678901234567890123456789012345678901234567890123456789"
                 "012345678901234567890123456789012345678901234567890123456789"),
        };
        KeeperConfig config = { .n_stored_max = 8 };
        KeeperPassed passed = { 0 };
        Keeper *keeper;

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_true(keeper_new_from(&config, wrong[i], &passed, &keeper) < 0);
        unsetenv("NOTIFY_SOCKET");
        assert_int_equal(keeper_new(&config, &keeper), KEEPER_E_GONE);
}

static void test_what_cannot_be_kept(void **state)
{
        Keeper *keeper = start();
        KeptRecord record = { .kind = KEPT_OWN };
        Kept *kept;
        int fd = make_memfd(1);

        assert_int_equal(keeper_keep(keeper, &record, -1, false, &kept), -EBADF);
        record.n_text = KEEPER_TEXT_BYTES_MAX + 1;
        assert_int_equal(keeper_keep(keeper, &record, fd, false, &kept), -EINVAL);
        record = (KeptRecord){ .kind = 0 };
        assert_int_equal(keeper_keep(keeper, &record, fd, false, &kept), -EINVAL);
        record.kind = KEPT_LISTENER + 1;
        assert_int_equal(keeper_keep(keeper, &record, fd, true, &kept), -EINVAL);
        keeper_free(keeper);
        close(fd);
}

/* Many threads: the loop's and the workers'. */
static void *keep_and_drop(void *userdata)
{
        Keeper *keeper = userdata;
        Kept *kept[64] = { NULL };
        int fd = memfd_create("thread", MFD_CLOEXEC);
        unsigned seed = (unsigned)(uintptr_t)&kept;

        for (unsigned i = 0; i < 3000; i++) {
                KeptRecord record = { .kind = KEPT_OWN, .id = i, .owner = seed };
                unsigned at = (seed = seed * 1664525u + 1013904223u) >> 26;

                if (kept[at]) {
                        keeper_drop(keeper, kept[at]);
                        kept[at] = NULL;
                } else if (keeper_keep(keeper, &record, fd, i % 64 == 0, &kept[at]) != 0) {
                        break;
                }
        }
        for (unsigned i = 0; i < 64; i++)
                keeper_drop(keeper, kept[i]);
        close(fd);
        return NULL;
}

static void test_threads(void **state)
{
        Keeper *keeper = start();
        pthread_t threads[4];
        KeeperFacts facts;

        for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, keep_and_drop, keeper), 0);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
                pthread_join(threads[i], NULL);
        keeper_settle(keeper);
        keeper_get_facts(keeper, &facts);
        assert_int_equal(facts.n_direct + facts.n_parked, 0);
        assert_int_equal(facts.n_failed, 0);
        keeper_free(keeper);
        assert_int_equal(count_stored(), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                KEEPER_TEST(test_limit_of_what_is_stored),
                KEEPER_TEST(test_limit_of_the_kernel),
                KEEPER_TEST(test_twice_is_told_once),
                KEEPER_TEST(test_bad_ones_are_dropped),
                KEEPER_TEST(test_newer_stays),
                KEEPER_TEST(test_no_two_use_one_name),
                KEEPER_TEST(test_restarts_do_not_pile_up),
                KEEPER_TEST(test_too_few_descriptors),
                KEEPER_TEST(test_manager_that_has_ended),
                KEEPER_TEST(test_manager_that_is_known_to_have_ended),
                KEEPER_TEST(test_manager_that_does_not_read),
                UNIT_TEST(test_addresses),
                KEEPER_TEST(test_what_cannot_be_kept),
                KEEPER_TEST(test_threads),
        };

        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
