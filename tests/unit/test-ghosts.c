/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ghosts: who gets a session back and who does not, when one ends, and what is carried out for one that nobody has come
 * back to. The store is scripted (fake-store.h); clients' processes are children.
 */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/ring-memory.h"
#include "daemon/server/ghosts.h"
#include "daemon/service/log.h"
#include "daemon/store/session.h"
#include "fail-alloc.h"
#include "fake-store.h"

#define TURNS_MAX 20000

static struct {
        struct event_base *base;
        Poller *poller;
        Ghosts *ghosts;
        RingMemory memory;           /* the client's side of the ring */
        SessionRing ring;            /* as the store has found it */
        uint64_t tail;
} f;

static uint64_t clock_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void flush(void *userdata)
{
}

static GhostsConfig config(unsigned wait_ms)
{
        return (GhostsConfig){ .host = { .base = f.base, .poller = f.poller, .packed_bytes_max = MIB },
                               .wait_ms = wait_ms };
}

static void begin(void)
{
        PollerConfig poller = { .now_ns = clock_ns, .cpu_ns = clock_ns, .flush = flush };

        memset(&f, 0, sizeof(f));
        f.memory = (RingMemory)RING_MEMORY_NULL;
        f.ring = (SessionRing){ .fd = -1, .bell_fd = -1 };
        fake_reset();
        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        f.base = event_base_new();
        assert_non_null(f.base);
        assert_int_equal(poller_new(&poller, &f.poller), 0);
}

static void start(unsigned wait_ms)
{
        GhostsConfig mine = config(wait_ms);

        assert_int_equal(ghosts_new(&mine, &f.ghosts), 0);
}

static void finish(void)
{
        ghosts_free(f.ghosts);
        poller_free(f.poller);
        event_base_free(f.base);
        ring_memory_deinit(&f.memory);
        assert_int_equal(fake.n_sessions_open, 0);
}

static void turn(void)
{
        bool is_hot = poller_turn(f.poller);

        (void)event_base_loop(f.base, EVLOOP_ONCE | (is_hot ? EVLOOP_NONBLOCK : 0));
}

static void turn_now(void)
{
        (void)poller_turn(f.poller);
        (void)event_base_loop(f.base, EVLOOP_NONBLOCK);
}

static GhostsFacts facts(void)
{
        GhostsFacts ret;

        ghosts_get_facts(f.ghosts, &ret);
        return ret;
}

static pid_t start_process(int *ret_fd)
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                for (;;)
                        (void)pause();
        *ret_fd = (int)syscall(SYS_pidfd_open, pid, 0);
        assert_true(*ret_fd >= 0);
        return pid;
}

static void end_process(pid_t pid)
{
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The ring that the ghost is found with: its client has published @n records. */
static void add_ring(uint64_t n)
{
        RingRecord *records;

        assert_int_equal(ring_memory_init(&f.memory), 0);
        records = (void *)((uint8_t *)f.memory.header + RING_RECORDS_OFFSET);
        for (uint64_t i = 0; i < n; i++)
                records[i] = (RingRecord){ .verb = RING_VERB_PUT, .key_bytes = 1, .key = "k", .namespace_id = 1,
                                           .size_bytes = i + 1 };
        f.tail = n;
        atomic_store(&f.memory.header->tail, n);
        f.ring = (SessionRing){ .fd = fcntl(f.memory.fd, F_DUPFD_CLOEXEC, 3),
                                .bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .tail = n };
        fake.ghost_ring = &f.ring;
}

static uint64_t head(void)
{
        return atomic_load(&f.memory.header->head);
}

/* --- who gets it back --------------------------------------------------------------------------------------------- */

static void test_tokens(void **state)
{
        static const struct {
                uint64_t token;
                uid_t uid;
                bool is_right;
        } rows[] = {
                { 0, 5, false },
                { 4710, 5, false },
                { 4711 + 256, 5, false },                       /* in the same list */
                { 4711 | UINT64_C(1) << 63, 5, false },
                { UINT64_MAX, 5, false },
                { 4711, 6, false },
                { 4711, 0, false },                             /* not even root: it is not root's */
                { 4711, 5, true },
                { 4711, 5, false },                             /* it is somebody's by now */
        };
        Session *session, *ghost;
        DaemonRing *ring;

        begin();
        ghost = fake_make_ghost(4711, 5, -1);
        start(0);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                SessionConfig mine = { .cred = { .uid = rows[i].uid } };

                session = ghosts_resume(f.ghosts, rows[i].token, &mine, &ring);
                assert_ptr_equal(session, rows[i].is_right ? ghost : NULL);
                assert_null(ring);
        }
        assert_int_equal(facts().n_resumed, 1);
        assert_int_equal(facts().n_ghosts, 0);
        session_close(ghost);
        finish();
}

/* One that lacks a part has no token. */
static void test_without_a_token(void **state)
{
        SessionConfig mine = { .cred = { .uid = 5 } };
        DaemonRing *ring;

        begin();
        (void)fake_make_ghost(0, 5, -1);
        start(0);
        assert_null(ghosts_resume(f.ghosts, 0, &mine, &ring));
        assert_int_equal(facts().n_ghosts, 1);
        finish();
        assert_int_equal(fake.n_left, 1);
}

/* --- when it ends ------------------------------------------------------------------------------------------------- */

static void test_process_ends(void **state)
{
        int fd;
        pid_t pid;

        begin();
        pid = start_process(&fd);
        (void)fake_make_ghost(4711, 5, fd);
        start(1); /* the wait is not for those whose process is known */
        for (unsigned i = 0; i < 20; i++)
                turn_now();
        assert_int_equal(facts().n_ghosts, 1);
        end_process(pid);
        for (unsigned i = 0; facts().n_ghosts > 0; i++) {
                assert_true(i < TURNS_MAX);
                turn();
        }
        assert_int_equal(facts().n_ended, 1);
        assert_int_equal(fake.n_sessions_open, 0);
        assert_int_equal(fake.n_left, 0);
        finish();
}

/* Its process lives, but its client has hung up, and said so where it is found: before the start, or after it. */
static void test_hung_up_unseen(void **state)
{
        for (unsigned later = 0; later < 2; later++) {
                int fd;
                pid_t pid;

                begin();
                pid = start_process(&fd);
                (void)fake_make_ghost(4711, 5, fd);
                fake.is_over = !later;
                start(0);
                assert_int_equal(facts().n_ghosts, 1);
                fake.is_over = true;
                for (unsigned i = 0; facts().n_ghosts > 0; i++) {
                        assert_true(i < TURNS_MAX);
                        turn();
                }
                assert_int_equal(facts().n_ended, 1);
                assert_int_equal(fake.n_sessions_open, 0);
                finish();
                end_process(pid);
        }
}

/* It had ended before we looked. */
static void test_process_has_ended(void **state)
{
        int fd;
        pid_t pid;

        begin();
        pid = start_process(&fd);
        end_process(pid);
        (void)fake_make_ghost(4711, 5, fd);
        start(0);
        for (unsigned i = 0; facts().n_ghosts > 0; i++) {
                assert_true(i < TURNS_MAX);
                turn();
        }
        finish();
        assert_int_equal(fake.n_left, 0);
}

/* Of a process that lives: who never had a token, and has nothing, has no reason to come back. */
static void test_never_welcomed(void **state)
{
        for (unsigned i = 0; i < 4; i++) {
                bool is_empty = i % 2, is_unwelcomed = i / 2;
                int fd;
                pid_t pid;

                begin();
                pid = start_process(&fd);
                (void)fake_make_ghost(4711, 5, fd);
                fake.is_empty = is_empty;
                fake.is_unwelcomed = is_unwelcomed;
                start(0);
                for (unsigned n = 0; fake.n_asked < 2 && facts().n_ghosts > 0; n++) {
                        assert_true(n < TURNS_MAX);
                        turn();
                }
                assert_int_equal(facts().n_ended, is_empty && is_unwelcomed);
                end_process(pid);
                finish();
        }
}

/* Its pidfd is not kept, but its number. */
static void test_number_is_known(void **state)
{
        for (unsigned i = 0; i < 2; i++) {
                Session *ghost;
                int fd;
                pid_t pid;

                begin();
                pid = start_process(&fd);
                ghost = fake_make_ghost(4711, 5, -1);
                ((Cred *)(uintptr_t)session_cred(ghost))->pid = pid;
                if (i == 0)
                        end_process(pid);
                start(0);
                for (unsigned n = 0; fake.n_asked < 2 && facts().n_ghosts > 0; n++) {
                        assert_true(n < TURNS_MAX);
                        turn();
                }
                assert_int_equal(facts().n_ended, i == 0);
                if (i > 0)
                        end_process(pid);
                close(fd);
                finish();
        }
}

/* Nobody knows it, or what is there is no process: a file, which cannot be waited for. */
static void test_wait_is_over(void **state)
{
        for (unsigned i = 0; i < 2; i++) {
                begin();
                (void)fake_make_ghost(4711, 5, i ? memfd_create("t", MFD_CLOEXEC) : -1);
                start(1);
                assert_int_equal(facts().n_ghosts, 1);
                for (unsigned n = 0; facts().n_ghosts > 0; n++) {
                        assert_true(n < TURNS_MAX);
                        turn();
                }
                assert_int_equal(facts().n_ended, 1);
                finish();
                assert_int_equal(fake.n_left, 0);
        }
}

/* --- its ring ----------------------------------------------------------------------------------------------------- */

static void test_ring_is_carried_out(void **state)
{
        SessionConfig mine = { .cred = { .uid = 5 } };
        DaemonRing *ring;
        Session *session;

        begin();
        add_ring(40);
        f.ring.head = 3;
        atomic_store(&f.memory.header->head, 2);
        session = fake_make_ghost(4711, 5, -1);
        start(0);
        assert_int_equal(head(), 3); /* what was known is told at once, */
        assert_int_equal(fake.n_submitted, 0); /* and the store is left alone until the loop turns */
        for (unsigned i = 0; head() < 40; i++) {
                assert_true(i < TURNS_MAX);
                turn_now();
        }
        assert_int_equal(fake.n_submitted, 37);
        assert_int_equal(atomic_load(&f.memory.header->carried_out), 40);
        assert_null(fake.ring); /* leases look at it only when the client is there */
        assert_ptr_equal(ghosts_resume(f.ghosts, 4711, &mine, &ring), session);
        assert_non_null(ring);
        assert_true(daemon_ring_is_restored(ring));
        daemon_ring_close(ring);
        session_close(session);
        daemon_ring_release(ring);
        finish();
}

/* What it has published before it ended is done, as with any hang-up. */
static void test_ring_before_the_end(void **state)
{
        int fd;
        pid_t pid;

        begin();
        pid = start_process(&fd);
        add_ring(4);
        end_process(pid);
        fake.is_deferring = true;
        (void)fake_make_ghost(4711, 5, fd);
        start(0);
        for (unsigned i = 0; i < 4; i++) {
                for (unsigned n = 0; fake.n_waiting <= i; n++) {
                        assert_true(n < TURNS_MAX);
                        turn_now();
                }
                assert_int_equal(facts().n_ghosts, 1);
                assert_int_equal(fake.n_sessions_open, 1);
                fake_end(i);
        }
        for (unsigned n = 0; facts().n_ghosts > 0; n++) {
                assert_true(n < TURNS_MAX);
                turn();
        }
        assert_int_equal(head(), 4);
        finish();
}

/* Nobody gets it back while it ends. */
static void test_not_while_it_ends(void **state)
{
        SessionConfig mine = { .cred = { .uid = 5 } };
        DaemonRing *ring;
        int fd;
        pid_t pid;

        begin();
        pid = start_process(&fd);
        add_ring(1);
        end_process(pid);
        fake.is_deferring = true;
        (void)fake_make_ghost(4711, 5, fd);
        start(0);
        for (unsigned n = 0; fake.n_waiting == 0; n++) {
                assert_true(n < TURNS_MAX);
                turn_now();
        }
        for (unsigned n = 0; n < 20; n++)
                turn_now();
        assert_null(ghosts_resume(f.ghosts, 4711, &mine, &ring));
        fake_end(0);
        for (unsigned n = 0; facts().n_ghosts > 0; n++) {
                assert_true(n < TURNS_MAX);
                turn();
        }
        finish();
}

/* A ghost that breaks a rule is not given back; there is no connection to end. */
static void test_broken_rules(void **state)
{
        SessionConfig mine = { .cred = { .uid = 5 } };
        DaemonRing *ring;

        for (unsigned i = 0; i < 3; i++) {
                RingRecord *records;

                begin();
                add_ring(2);
                records = (void *)((uint8_t *)f.memory.header + RING_RECORDS_OFFSET);
                if (i == 0)
                        records[1].verb = _RING_VERB_MAX;
                else
                        atomic_store(&f.memory.header->tail, i == 1 ? UINT64_C(513) : 1);
                (void)fake_make_ghost(4711, 5, -1);
                start(0);
                for (unsigned n = 0; n < 50; n++)
                        turn_now();
                assert_int_equal(fake.n_submitted, i == 0);
                assert_null(ghosts_resume(f.ghosts, 4711, &mine, &ring));
                assert_int_equal(facts().n_ghosts, 1);
                finish();
        }
}

/* An operation is under way when we end: nothing that it made is anybody's. */
static void test_leave_in_the_middle(void **state)
{
        begin();
        add_ring(3);
        fake.is_deferring = true;
        (void)fake_make_ghost(4711, 5, -1);
        start(0);
        for (unsigned n = 0; fake.n_waiting == 0; n++) {
                assert_true(n < TURNS_MAX);
                turn_now();
        }
        ghosts_free(steal_ptr(&f.ghosts));
        assert_int_equal(fake.n_left, 1);
        fake_end(0);
        assert_int_equal(fake.n_submitted, 1);
        finish();
}

#ifndef FAIL_ALLOC_SANITIZED
/* True: the allocation that failed was one of its. */
static bool try_with_failure(int n)
{
        GhostsConfig mine;
        bool was_reached;
        int r;

        begin();
        add_ring(3);
        (void)fake_make_ghost(4711, 5, -1);
        mine = config(0);
        atomic_store(&fail_alloc_countdown, n);
        r = ghosts_new(&mine, &f.ghosts);
        was_reached = atomic_exchange(&fail_alloc_countdown, 0) == 0;
        if (!was_reached)
                assert_int_equal(r, 0);
        if (r < 0 && fake.ghost) /* it had not come so far */
                session_close(fake.ghost);
        f.ring.fd = close_fd(f.ring.fd);
        f.ring.bell_fd = close_fd(f.ring.bell_fd);
        finish();
        return was_reached;
}
#endif

static void test_without_memory(void **state)
{
#ifdef FAIL_ALLOC_SANITIZED
        skip();
#else
        int n = 1;

        while (try_with_failure(n))
                assert_true(++n < 1000);
        assert_true(n > 3);
#endif
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_tokens),              UNIT_TEST(test_without_a_token),  UNIT_TEST(test_process_ends),
                UNIT_TEST(test_hung_up_unseen),      UNIT_TEST(test_never_welcomed),  UNIT_TEST(test_number_is_known),
                UNIT_TEST(test_process_has_ended),   UNIT_TEST(test_wait_is_over),     UNIT_TEST(test_ring_is_carried_out),
                UNIT_TEST(test_ring_before_the_end), UNIT_TEST(test_not_while_it_ends), UNIT_TEST(test_broken_rules),
                UNIT_TEST(test_leave_in_the_middle), UNIT_TEST(test_without_memory),
        };

        return cmocka_run_group_tests_name("ghosts", tests, NULL, NULL);
}
