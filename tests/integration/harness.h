/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every story shares: a private foliod on a socket in a fresh directory, clients of it in this process and in
 * forked children, and the certainty that nothing of it is left afterwards, also where the test has failed.
 *
 *      static void test_something(void **state)
 *      {
 *              Foliod *foliod = foliod_start("--budget", "256M", NULL);
 *              struct folio_client *client = foliod_connect(foliod);
 *              ...
 *              folio_client_unref(client);
 *              foliod_stop(foliod);
 *      }
 *
 *      INTEGRATION_TEST(test_something)
 *
 * cmocka's assertions belong into the process that runs the tests. In a child use CHECK(): it says what failed and
 * ends the child, and child_finish() makes that a failure of the test.
 */
#ifndef TESTS_INTEGRATION_HARNESS_H
#define TESTS_INTEGRATION_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <folio/folio.h>

/* --- a private foliod ------------------------------------------------------------------------------------------------ */

typedef struct Foliod {
        pid_t pid;                   /* 0: not running */
        char directory[64];          /* fresh; removed at the end */
        char socket_path[96];
        char log_path[96];           /* what it wrote to stderr */
        char pid_text[16];           /* for /proc */
} Foliod;

/* Further options of foliod, NULL at the end. Returns when clients can connect; fails the test where that never comes. */
Foliod *foliod_start(const char *option, ...);

/*
 * The same with the process that keeps for the next one, which is what foliod->pid is then; without it the harness says
 * `--keeper none`, unless told another.
 */
Foliod *foliod_start_kept(const char *option, ...);

/* Of such a one: the process that serves now, its keeper's child. Waits until there is one. */
pid_t foliod_serving_pid(const Foliod *foliod);

/* SIGTERM, and checks that it ended with status 0. Then, or after foliod_kill(), frees it and removes the directory. */
void foliod_stop(Foliod *foliod);

/* SIGKILL, and waits until it is gone, a keeper and its child both. The directory stays; foliod_stop() is still to be called. */
void foliod_kill(Foliod *foliod);

/* After foliod_kill(): another one with the same options on the same socket. */
void foliod_start_again(Foliod *foliod);

/*
 * Options: whose clients are trusted to write the memory of objects. The daemon of a user, whose `default` is so; or the
 * namespace `trusted` of a daemon of the machine, whose `default` is not.
 */
#define FOLIOD_OF_USER "--user"
#define FOLIOD_TRUSTED "--namespace", "trusted:writers=trusted,mode=0766"

/*
 * Open, with a timeout of 20 s on everything; fails the test where it does not work. What such a client has put is
 * there for every other when the call returns (FOLIO_OPEN_VISIBLE); with flags 0 of the second it is as programs have
 * it by default, and is there a little later.
 */
struct folio_client *foliod_connect(const Foliod *foliod);
struct folio_client *foliod_connect_with(const Foliod *foliod, uint32_t open_flags);

/* A fact of `status` by name: its number. Fails the test where there is no such fact. */
uint64_t foliod_fact(struct folio_client *client, const char *name);

/* Of the daemon's process. */
unsigned foliod_count_fds(const Foliod *foliod);
unsigned foliod_count_mappings(const Foliod *foliod);

/* --- children --------------------------------------------------------------------------------------------------------- */

/* A client in a process of its own. The two pass numbers to each other. */
typedef struct Child {
        pid_t pid;                   /* in the child: 0 */
        int socket;
        const Foliod *foliod;
        void *userdata;
} Child;

/* Forks; the child calls @run and ends. It also ends when the test's process ends. */
Child *child_start(const Foliod *foliod, void (*run)(Child *child), void *userdata);

/* Between the two, in either direction. child_hear() fails the test (or ends the child) where the other is gone, or says nothing for 60 s. */
void child_say(Child *child, uint64_t number);
uint64_t child_hear(Child *child);

/* Waits for its end and fails the test unless every CHECK() held. */
void child_finish(Child *child);

/* kill -9, and waits until it is gone. */
void child_kill(Child *child);

/* In a child: open or end. */
struct folio_client *child_connect(const Child *child);
struct folio_client *child_connect_with(const Child *child, uint32_t open_flags);

/* In a child: another user. Only root can. */
void child_become(uid_t uid, gid_t gid);

#define CHECK(condition) harness_check((condition) ? true : false, #condition, __FILE__, __LINE__)

/* Holds also where libfolio answers: says what it answered. */
#define CHECK_OK(call) harness_check_ok((call), #call, __FILE__, __LINE__)

void harness_check(bool is_true, const char *what, const char *file, int line);
void harness_check_ok(long answer, const char *what, const char *file, int line);

/* --- this and that ------------------------------------------------------------------------------------------------------ */

/* In the tests' process: an answer that must be 0, with libfolio's sentence where it is not. */
#define ASSERT_OK(call) harness_assert_ok((call), #call, __FILE__, __LINE__)
void harness_assert_ok(long answer, const char *what, const char *file, int line);

/* Looks again until @condition holds, for what nobody can wait for; 20 s at most. */
#define AWAIT(condition)                                                                                               \
        do {                                                                                                           \
                unsigned await_rounds = 0;                                                                             \
                while (!(condition)) {                                                                                 \
                        if (await_rounds++ > 10000)                                                                    \
                                fail_msg("never: %s", #condition);                                                     \
                        harness_pause();                                                                               \
                }                                                                                                      \
        } while (0)
void harness_pause(void); /* 2 ms */

/* @n_bytes of a pattern that depends on @seed and on the place, so that no two pieces are alike. */
void harness_fill(void *buffer, size_t n_bytes, uint64_t seed);
/* A sealed object with a region of its own, filled by large writes: each MiB by its offset. */
void harness_make_large(struct folio_client *client, const char *name, uint64_t n_bytes, uint32_t flags);
bool harness_is_filled(const void *buffer, size_t n_bytes, uint64_t seed, size_t offset);

/* Of this process. */
unsigned harness_count_own_fds(void);

int harness_setup(void **state);
int harness_teardown(void **state); /* ends daemons and children that are left; checks the descriptors of this process */

#define INTEGRATION_TEST(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

#endif
