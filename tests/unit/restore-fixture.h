/* SPDX-License-Identifier: Apache-2.0 */
/* A store that ends, by SIGKILL or in order, and the next one that is made of what it has left. */
#ifndef TESTS_UNIT_RESTORE_FIXTURE_H
#define TESTS_UNIT_RESTORE_FIXTURE_H

#include "store-fixture.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "fake-keeper.h"

typedef struct Next {
        Fixture f;
        Keeper *keeper;
        StoreRestoreFacts facts;
} Next;

/* Everything in it lies on the heap of whoever calls, or in the child. */
static inline void restore_begin(Fixture *f, const StoreConfig *config, Keeper *keeper, StoreRestoreFacts *ret)
{
        StoreConfig mine = config ? *config : fixture_config();
        char *message = NULL;

        mine.keeper = keeper;
        fixture_init(f, &mine);
        assert_int_equal(store_restore(f->store, ret, &message), 0);
        assert_null(message);
        store_take_over(f->store, 4711);
}

/* @life in a process of its own, which is killed when that returns, or before. @keeper has then what it has left. */
static inline void restore_outlive(Keeper *keeper, const StoreConfig *config, void (*life)(Fixture *f, void *userdata),
                                   void *userdata)
{
        int pair[2], size = 8 << 20, status;
        pid_t pid;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        (void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
        (void)fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                StoreRestoreFacts ignored;
                Fixture f;

                close(pair[0]);
                fake_keeper_set_remote(keeper, pair[1]);
                restore_begin(&f, config, keeper, &ignored);
                life(&f, userdata);
                (void)raise(SIGKILL);
        }
        close(pair[1]);
        fake_keeper_collect(keeper, pair[0]);
        close(pair[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static inline void next_init(Next *next, const StoreConfig *config, Keeper *consume_keeper)
{
        next->keeper = consume_keeper;
        restore_begin(&next->f, config, consume_keeper, &next->facts);
}

/* The clients that were there do not come back. */
static inline void next_deinit(Next *next)
{
        Session *ghost;

        while ((ghost = session_next_ghost(next->f.store, NULL)))
                session_close(ghost);
        fixture_deinit(&next->f);
        fake_keeper_free(next->keeper);
}

#endif
