/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keeper with a manager of the test's own, what is told of a predecessor, and pipes, by which it is seen that the last
 * duplicate of a descriptor has gone.
 */
#ifndef TESTS_UNIT_KEEPER_FIXTURE_H
#define TESTS_UNIT_KEEPER_FIXTURE_H

#include "harness.h"

#include "fake-manager.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/macro.h"
#include "daemon/service/keeper-manager.h"
#include "daemon/service/keeper-record.h"
#include "daemon/service/keeper-segment.h"
#include "daemon/service/log.h"

#define STORED_MAX 512

static FakeManager manager;

static inline int setup(void **state)
{
        harness_setup(state);
        fake_manager_start(&manager, STORED_MAX);
        return 0;
}

static inline int teardown(void **state)
{
        fake_manager_stop(&manager);
        return harness_teardown(state);
}

#define KEEPER_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static inline Keeper *start(void)
{
        return fake_manager_start_keeper(&manager, STORED_MAX);
}

/* When it has done all that was sent so far. */
static inline size_t count_stored(void)
{
        KeeperManager *connection;
        size_t n;

        assert_int_equal(keeper_manager_new(manager.address, &connection), 0);
        /* It confirms only what it was told. */
        assert_int_equal(keeper_manager_remove(connection, "nothing"), 0);
        assert_int_equal(keeper_manager_confirm(connection), 0);
        keeper_manager_free(connection);
        pthread_mutex_lock(&manager.lock);
        n = manager.n_stored;
        pthread_mutex_unlock(&manager.lock);
        return n;
}

static inline size_t count_names(const char *prefix)
{
        size_t n = 0;

        pthread_mutex_lock(&manager.lock);
        for (size_t i = 0; i < manager.n_stored; i++)
                n += strncmp(manager.names[i], prefix, strlen(prefix)) == 0;
        pthread_mutex_unlock(&manager.lock);
        return n;
}

static inline int make_memfd(uint64_t number)
{
        int fd = memfd_create("test-keeper", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, &number, sizeof(number), 0), sizeof(number));
        return fd;
}

static inline uint64_t read_memfd(int fd)
{
        uint64_t number = 0;

        assert_int_equal(pread(fd, &number, sizeof(number), 0), sizeof(number));
        return number;
}

static inline Kept *keep(Keeper *keeper, KeptKind kind, uint64_t id, int fd, bool is_direct)
{
        KeptRecord record = { .kind = kind, .owner = 7, .id = id };
        Kept *kept = NULL;

        assert_int_equal(keeper_keep(keeper, &record, fd, is_direct, &kept), 0);
        return kept;
}

/* --- what came back ----------------------------------------------------------------------------------------------- */

#define TOLD_MAX 4096

typedef struct Told {
        size_t n;
        KeptRecord records[TOLD_MAX];
        int fds[TOLD_MAX];
        Kept *kepts[TOLD_MAX];
} Told;

static Told told;

static inline void on_told(void *userdata, const KeptRecord *record, int consume_fd, Kept *kept)
{
        assert_ptr_equal(userdata, &told);
        assert_true(told.n < TOLD_MAX);
        assert_true(fcntl(consume_fd, F_GETFD) & FD_CLOEXEC);
        assert_non_null(kept);
        told.records[told.n] = *record;
        told.fds[told.n] = consume_fd;
        told.kepts[told.n++] = kept;
}

static inline uint64_t take_all(Keeper *keeper)
{
        uint64_t n_bad = UINT64_MAX;

        told.n = 0;
        assert_int_equal(keeper_take_all(keeper, on_told, &told, &n_bad), 0);
        return n_bad;
}

static inline void close_told(void)
{
        for (size_t i = 0; i < told.n; i++)
                close(told.fds[i]);
        told.n = 0;
}

/* The only one with that id. */
static inline size_t find_told(uint64_t id)
{
        size_t found = told.n;

        for (size_t i = 0; i < told.n; i++)
                if (told.records[i].id == id) {
                        assert_int_equal(found, told.n);
                        found = i;
                }
        assert_true(found < told.n);
        return found;
}

static inline void drop_told(Keeper *keeper)
{
        for (size_t i = 0; i < told.n; i++)
                keeper_drop(keeper, told.kepts[i]);
        close_told();
}

/* A pipe's writing end is kept; the reading end tells when it is released. */
static inline int make_pipe(int *ret_write)
{
        int ends[2];

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        *ret_write = ends[1];
        return ends[0];
}

static inline bool has_hung_up(int fd)
{
        struct pollfd wait = { .fd = fd };

        return poll(&wait, 1, 0) == 1 && (wait.revents & POLLHUP) != 0;
}

#endif
