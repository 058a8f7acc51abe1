/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wake-ups: those who sleep are woken, and where nobody says that he sleeps the kernel is not asked. The FUTEX_WAKEs of
 * this process are counted on their way.
 */
#include "store-fixture.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>

static atomic_uint n_wakes;

/* In place of the C library's: all of the process come by here. */
long syscall(long number, ...)
{
        long a[6];
        va_list arguments;

        va_start(arguments, number);
        for (size_t i = 0; i < ARRAY_SIZE(a); i++)
                a[i] = va_arg(arguments, long);
        va_end(arguments);
        if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE)
                atomic_fetch_add(&n_wakes, 1);
#if defined(__x86_64__)
        {
                register long r10 __asm__("r10") = a[3];
                register long r8 __asm__("r8") = a[4];
                register long r9 __asm__("r9") = a[5];
                long r;

                __asm__ volatile("syscall" : "=a"(r)
                                 : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                                 : "rcx", "r11", "memory");
                if (r < 0) {
                        errno = (int)-r;
                        return -1;
                }
                return r;
        }
#else
        errno = ENOSYS;
        return -1;
#endif
}

static void skip_elsewhere(void)
{
#if !defined(__x86_64__)
        skip();
#endif
}

static unsigned wakes_of_puts(Client *c, unsigned n_puts)
{
        static unsigned n_keys;
        unsigned before = atomic_load(&n_wakes);
        char key[16];

        for (unsigned i = 0; i < n_puts; i++) {
                snprintf(key, sizeof(key), "%u", n_keys++);
                assert_int_equal(client_put_text(c, key, "x", 0), STATUS_OK);
        }
        return atomic_load(&n_wakes) - before;
}

static void test_nobody_is_woken_who_does_not_sleep(void **state)
{
        Client clients[17];
        Fixture f;

        skip_elsewhere();
        fixture_init(&f, NULL);
        for (size_t i = 0; i < 16; i++)
                client_open(&f, &clients[i], geteuid(), "default");
        (void)wakes_of_puts(&clients[0], 1); /* the first packed region */
        assert_int_equal(wakes_of_puts(&clients[0], 100), 0);
        assert_int_equal(client_delete(&clients[0], "0", 0), STATUS_OK);
        /* One of them says so, whichever: a bucket, and the events. */
        for (size_t i = 0; i < 16; i += 5) {
                atomic_store(&clients[i].space->pins->n_waiting, 1);
                assert_true(wakes_of_puts(&clients[0], 10) >= 20);
                atomic_store(&clients[i].space->pins->n_waiting, 0);
        }
        assert_int_equal(wakes_of_puts(&clients[0], 10), 0);
        /* More than are looked at: always. */
        client_open(&f, &clients[16], geteuid(), "default");
        assert_true(wakes_of_puts(&clients[0], 10) >= 20);
        client_close(&clients[16]);
        assert_int_equal(wakes_of_puts(&clients[0], 10), 0);
        for (size_t i = 0; i < 16; i++)
                client_close(&clients[i]);
        fixture_deinit(&f);
}

/* More changes in a turn than are remembered: those in between are looked after too. */
static void test_many_changes_before_a_flush(void **state)
{
        enum { N = 700 };
        Op *ops = calloc(N, sizeof(*ops));
        char (*keys)[16] = calloc(N, sizeof(*keys));
        unsigned before;
        Fixture f;
        Client c;

        skip_elsewhere();
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        (void)wakes_of_puts(&c, 1);
        for (int is_waiting = 0; is_waiting < 2; is_waiting++) {
                atomic_store(&c.space->pins->n_waiting, (unsigned)is_waiting);
                before = atomic_load(&n_wakes);
                for (size_t i = 0; i < N; i++) {
                        snprintf(keys[i], sizeof(keys[i]), "many-%d-%zu", is_waiting, i);
                        ops[i] = (Op){ .item = { .key = key_of(keys[i]), .size_bytes = 1 } };
                        op_begin(&c, &ops[i], VERB_PUT);
                }
                for (size_t i = 0; i < N; i++)
                        op_wait(&f, &ops[i]);
                for (size_t i = 0; i < N; i++) {
                        assert_int_equal(ops[i].op.status, STATUS_OK);
                        op_clear(&ops[i]);
                }
                if (is_waiting)
                        assert_true(atomic_load(&n_wakes) - before > 256);
                else
                        assert_int_equal(atomic_load(&n_wakes) - before, 0);
        }
        atomic_store(&c.space->pins->n_waiting, 0);
        client_close(&c);
        fixture_deinit(&f);
        free(ops);
        free(keys);
}

/* --- who really sleeps ----------------------------------------------------------------------------------------------- */

enum { N_ROUNDS = 1000 };

typedef struct Waiter {
        Space *space;
        atomic_uint round;           /* the key that is waited for */
        unsigned n_timeouts;
        bool is_for_events;
} Waiter;

static void *run_waiter(void *userdata)
{
        Waiter *waiter = userdata;
        char key[16];

        for (unsigned round = 1; round <= N_ROUNDS; round++) {
                Lookup found;

                snprintf(key, sizeof(key), "r%u", round);
                atomic_store(&waiter->round, round);
                if (waiter->is_for_events) {
                        while (lookup_newest_event(waiter->space) < round)
                                waiter->n_timeouts += !lookup_wait_event(waiter->space, round - 1, UINT64_MAX);
                        continue;
                }
                while (lookup_find(waiter->space, key_of(key), 0, &found) != LOOKUP_FOUND)
                        waiter->n_timeouts += !lookup_wait(waiter->space, &found, UINT64_MAX);
        }
        return NULL;
}

/* A wake-up that is lost costs a whole slice: some may be the machine's doing, not one in each round. */
static void test_sleepers_are_woken(void **state)
{
        for (int is_for_events = 0; is_for_events < 2; is_for_events++) {
                Waiter waiter = { .is_for_events = is_for_events };
                pthread_t thread;
                char key[16];
                Fixture f;
                Client c;

                fixture_init(&f, NULL);
                client_open(&f, &c, geteuid(), "default");
                waiter.space = c.space;
                assert_int_equal(pthread_create(&thread, NULL, run_waiter, &waiter), 0);
                for (unsigned round = 1; round <= N_ROUNDS; round++) {
                        while (atomic_load(&waiter.round) < round)
                                sched_yield();
                        /* Asleep, just about to be, or not yet: all of it happens. */
                        for (unsigned i = 0; i < round % 8; i++)
                                sched_yield();
                        snprintf(key, sizeof(key), "r%u", round);
                        assert_int_equal(client_put_text(&c, key, "x", 0), STATUS_OK);
                }
                pthread_join(thread, NULL);
                assert_int_equal(atomic_load(&c.space->pins->n_waiting), 0);
                assert_true(waiter.n_timeouts < N_ROUNDS / 50);
                client_close(&c);
                fixture_deinit(&f);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_nobody_is_woken_who_does_not_sleep),
                UNIT_TEST(test_many_changes_before_a_flush),
                UNIT_TEST(test_sleepers_are_woken),
        };

        return cmocka_run_group_tests_name("store-wakes", tests, NULL, NULL);
}
