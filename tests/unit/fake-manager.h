/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service manager as far as the keeper knows one: a thread that reads datagrams from an abstract socket, stores
 * descriptors by name, removes them by name, and closes barriers. It counts, and can be told not to listen.
 */
#ifndef TESTS_UNIT_FAKE_MANAGER_H
#define TESTS_UNIT_FAKE_MANAGER_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <fcntl.h>

#include "daemon/service/keeper.h"

#ifndef FAKE_STORED_MAX
#define FAKE_STORED_MAX 2048
#endif

typedef struct FakeManager {
        int socket;
        int stop[2];
        pthread_t thread;
        pthread_mutex_t lock;
        char address[64];
        bool is_mute;                /* reads nothing */
        size_t n_max;                /* what it stores */
        size_t n_stored;
        char *names[FAKE_STORED_MAX];
        int fds[FAKE_STORED_MAX];
        atomic_uint n_stores;
        atomic_uint n_refused;
        atomic_uint n_removals;         /* messages */
        atomic_uint n_barriers;
        atomic_uint n_strange;
} FakeManager;

static inline void fake_manager_forget(FakeManager *manager, size_t i)
{
        close(manager->fds[i]);
        free(manager->names[i]);
        manager->n_stored--;
        manager->names[i] = manager->names[manager->n_stored];
        manager->fds[i] = manager->fds[manager->n_stored];
}

static inline void fake_manager_store(FakeManager *manager, const char *name, int fd)
{
        if (manager->n_stored >= manager->n_max) {
                manager->n_refused++;
                close(fd);
                return;
        }
        manager->n_stores++;
        manager->names[manager->n_stored] = strdup(name);
        manager->fds[manager->n_stored++] = fd;
}

static inline void fake_manager_do(FakeManager *manager, char *text, int fd)
{
        char *name = strstr(text, "\nFDNAME=");

        if (name) {
                *name = '\0';
                name += strlen("\nFDNAME=");
                name[strcspn(name, "\n")] = '\0';
        }
        if (strcmp(text, "FDSTORE=1") == 0 && name && fd >= 0 && strlen(name) <= 255 && !strchr(name, ':')) {
                fake_manager_store(manager, name, fd);
                return;
        }
        if (strcmp(text, "BARRIER=1") == 0 && !name && fd >= 0) {
                manager->n_barriers++;
        } else if (strcmp(text, "FDSTOREREMOVE=1") == 0 && name && fd < 0) {
                manager->n_removals++;
                for (size_t i = manager->n_stored; i-- > 0;)
                        if (strcmp(manager->names[i], name) == 0)
                                fake_manager_forget(manager, i);
        } else {
                manager->n_strange++;
        }
        if (fd >= 0)
                close(fd);
}

static inline bool fake_manager_receive(FakeManager *manager)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control;
        char text[1024];
        struct iovec part = { text, sizeof(text) - 1 };
        struct msghdr message = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        struct cmsghdr *header;
        ssize_t n = recvmsg(manager->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        int fd = -1;

        if (n < 0)
                return false;
        text[n] = '\0';
        header = CMSG_FIRSTHDR(&message);
        if (header && header->cmsg_type == SCM_RIGHTS)
                memcpy(&fd, CMSG_DATA(header), sizeof(int));
        fake_manager_do(manager, text, fd);
        return true;
}

static inline void *fake_manager_run(void *userdata)
{
        FakeManager *manager = userdata;

        for (;;) {
                struct pollfd wait[] = { { .fd = manager->socket, .events = POLLIN },
                                         { .fd = manager->stop[0], .events = POLLIN } };

                if (poll(wait, 2, -1) < 0)
                        continue;
                if (wait[1].revents)
                        return NULL;
                pthread_mutex_lock(&manager->lock);
                while (!manager->is_mute && fake_manager_receive(manager))
                        ;
                pthread_mutex_unlock(&manager->lock);
        }
}

static inline void fake_manager_start(FakeManager *manager, size_t n_max)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        socklen_t n = sizeof(address);

        *manager = (FakeManager){ .n_max = n_max };
        manager->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_true(manager->socket >= 0);
        /* The kernel chooses an address that nobody has. */
        assert_int_equal(bind(manager->socket, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
        assert_int_equal(getsockname(manager->socket, (struct sockaddr *)&address, &n), 0);
        snprintf(manager->address, sizeof(manager->address), "@%.*s",
                 (int)(n - offsetof(struct sockaddr_un, sun_path) - 1), address.sun_path + 1);
        assert_int_equal(pipe2(manager->stop, O_CLOEXEC), 0);
        pthread_mutex_init(&manager->lock, NULL);
        assert_int_equal(pthread_create(&manager->thread, NULL, fake_manager_run, manager), 0);
}

/* No socket, no thread; what it has stored is still there. */
static inline void fake_manager_die(FakeManager *manager)
{
        if (manager->socket < 0)
                return;
        assert_int_equal(write(manager->stop[1], "x", 1), 1);
        pthread_join(manager->thread, NULL);
        close(manager->socket);
        close(manager->stop[0]);
        close(manager->stop[1]);
        manager->socket = -1;
}

static inline void fake_manager_stop(FakeManager *manager)
{
        fake_manager_die(manager);
        while (manager->n_stored > 0)
                fake_manager_forget(manager, manager->n_stored - 1);
        pthread_mutex_destroy(&manager->lock);
}

/* A copy of what it has, as a process gets it that it starts. */
static inline KeeperPassed fake_manager_pass(FakeManager *manager)
{
        KeeperPassed passed;

        pthread_mutex_lock(&manager->lock);
        passed = (KeeperPassed){ manager->n_stored, calloc(manager->n_stored + 1, sizeof(char *)),
                                 calloc(manager->n_stored + 1, sizeof(int)) };
        for (size_t i = 0; i < passed.n; i++) {
                passed.names[i] = strdup(manager->names[i]);
                passed.fds[i] = fcntl(manager->fds[i], F_DUPFD_CLOEXEC, 3);
                assert_true(passed.fds[i] >= 0);
        }
        pthread_mutex_unlock(&manager->lock);
        return passed;
}

static inline void fake_manager_free_passed(KeeperPassed *passed)
{
        for (size_t i = 0; i < passed->n; i++)
                free(passed->names[i]);
        free(passed->names);
        free(passed->fds);
}

/* Around a fork: the child has the table as it was, and the lock is nobody's. */
static inline void fake_manager_lock_out(FakeManager *manager)
{
        pthread_mutex_lock(&manager->lock);
}

static inline void fake_manager_let_in(FakeManager *manager)
{
        pthread_mutex_unlock(&manager->lock);
}

static inline Keeper *fake_manager_start_keeper_as(FakeManager *manager, unsigned n_stored_max, bool is_guess)
{
        KeeperConfig config = { .n_stored_max = n_stored_max, .is_guess = is_guess };
        KeeperPassed passed = fake_manager_pass(manager);
        Keeper *keeper = NULL;

        assert_int_equal(keeper_new_from(&config, manager->address, &passed, &keeper), 0);
        fake_manager_free_passed(&passed);
        return keeper;
}

static inline Keeper *fake_manager_start_keeper(FakeManager *manager, unsigned n_stored_max)
{
        return fake_manager_start_keeper_as(manager, n_stored_max, false);
}

#endif
