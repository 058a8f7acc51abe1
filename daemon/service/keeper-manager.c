/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One datagram socket, connected, so that poll() tells when there is room for the next message; written without
 * blocking. A confirmation is BARRIER=1 with the end of a pipe, which the manager closes when it comes to it.
 */
#include "daemon/service/keeper-manager.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#include "base/cleanup.h"
#include "base/macro.h"

#define MESSAGE_BYTES_MAX 320
#define SEND_MS_MAX 5000
#define CONFIRM_MS_MAX 20000 /* PID 1 of a large machine takes its time over a daemon-reload */

struct KeeperManager {
        struct sockaddr_un address;
        socklen_t n_address;
        pthread_mutex_t lock;
        pthread_cond_t answered;
        int fd;                      /* -1: to be connected */
        uint64_t n_sent;             /* messages */
        uint64_t n_confirmed;        /* of these */
        uint64_t n_failed;           /* of these: asked about in vain */
        int failure;                 /* the last */
        bool is_asking;              /* some thread is */
};

static uint64_t now_ms(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* there is such a clock */
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* 0: @events; -ETIMEDOUT, or another. */
static int await(int fd, short events, uint64_t deadline_ms)
{
        for (;;) {
                struct pollfd wait = { .fd = fd, .events = events };
                uint64_t now = now_ms();
                int n = poll(&wait, 1, now < deadline_ms ? (int)(deadline_ms - now) : 0);

                if (n > 0)
                        return 0;
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n == 0 && now >= deadline_ms)
                        return -ETIMEDOUT;
        }
}

static int reconnect(KeeperManager *manager)
{
        manager->fd = close_fd(manager->fd);
        manager->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (manager->fd < 0)
                return -errno;
        if (connect(manager->fd, (const struct sockaddr *)&manager->address, manager->n_address) < 0) {
                int r = -errno;

                manager->fd = close_fd(manager->fd);
                return r;
        }
        return 0;
}

static int send_once(KeeperManager *manager, const char *text, int fd)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = { .bytes = { 0 } };
        struct iovec part = { (char *)(uintptr_t)text, strlen(text) };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

        if (fd >= 0) {
                struct cmsghdr *header;

                message.msg_control = control.bytes;
                message.msg_controllen = sizeof(control.bytes);
                header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(header), &fd, sizeof(int));
        }
        return sendmsg(manager->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* With the lock held. A manager that was started again has another socket at the same address. */
static int send_text(KeeperManager *manager, const char *text, int fd)
{
        uint64_t deadline_ms = now_ms() + SEND_MS_MAX;
        bool is_fresh = false;

        for (;;) {
                int r = manager->fd < 0 ? -ENOTCONN : send_once(manager, text, fd);

                if (r == -EAGAIN) {
                        r = await(manager->fd, POLLOUT, deadline_ms);
                        if (r < 0)
                                return r;
                } else if (!is_fresh && (r == -ENOTCONN || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE)) {
                        r = reconnect(manager);
                        if (r < 0)
                                return r;
                        is_fresh = true;
                } else if (r != -EINTR) {
                        manager->n_sent += r == 0;
                        return r;
                }
        }
}

/* With the lock held, which is given up while it waits. */
static int ask(KeeperManager *manager)
{
        _cleanup_(cleanup_fd) int mine = -1, theirs = -1;
        int ends[2], r;

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        mine = ends[0];
        theirs = ends[1];
        r = send_text(manager, "BARRIER=1", theirs);
        if (r < 0)
                return r;
        theirs = close_fd(theirs);
        (void)pthread_mutex_unlock(&manager->lock);
        r = await(mine, 0, now_ms() + CONFIRM_MS_MAX);
        (void)pthread_mutex_lock(&manager->lock);
        return r;
}

/* With the lock held: until all of the first @n_sent is answered for. */
static int confirm(KeeperManager *manager, uint64_t n_sent)
{
        while (manager->n_confirmed < n_sent) {
                uint64_t n;
                int r;

                if (manager->is_asking) {
                        (void)pthread_cond_wait(&manager->answered, &manager->lock);
                        if (manager->n_failed >= n_sent && manager->n_confirmed < n_sent)
                                return manager->failure;
                        continue;
                }
                n = manager->n_sent;
                manager->is_asking = true;
                r = ask(manager);
                manager->is_asking = false;
                if (r == 0) {
                        manager->n_confirmed = MAX(manager->n_confirmed, n);
                } else {
                        manager->n_failed = MAX(manager->n_failed, n);
                        manager->failure = r;
                }
                (void)pthread_cond_broadcast(&manager->answered);
                if (r < 0)
                        return r;
        }
        return 0;
}

int keeper_manager_store(KeeperManager *manager, const char *name, int fd)
{
        char text[MESSAGE_BYTES_MAX];
        int r;

        (void)snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
        (void)pthread_mutex_lock(&manager->lock);
        r = send_text(manager, text, fd);
        if (r == 0) {
                r = confirm(manager, manager->n_sent);
                if (r < 0) {
                        (void)snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
                        (void)send_text(manager, text, -1); /* if it does not arrive, neither did the other */
                }
        }
        (void)pthread_mutex_unlock(&manager->lock);
        return r;
}

int keeper_manager_offer(KeeperManager *manager, const char *name, int fd)
{
        char text[MESSAGE_BYTES_MAX];
        int r;

        (void)snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
        (void)pthread_mutex_lock(&manager->lock);
        r = send_text(manager, text, fd);
        (void)pthread_mutex_unlock(&manager->lock);
        return r;
}

int keeper_manager_remove(KeeperManager *manager, const char *name)
{
        char text[MESSAGE_BYTES_MAX];
        int r;

        (void)snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
        (void)pthread_mutex_lock(&manager->lock);
        r = send_text(manager, text, -1);
        (void)pthread_mutex_unlock(&manager->lock);
        return r;
}

int keeper_manager_confirm(KeeperManager *manager)
{
        int r;

        (void)pthread_mutex_lock(&manager->lock);
        r = confirm(manager, manager->n_sent);
        (void)pthread_mutex_unlock(&manager->lock);
        return r;
}

int keeper_manager_new(const char *address, KeeperManager **ret)
{
        size_t n = strlen(address);
        KeeperManager *manager;
        int r;

        if ((address[0] != '/' && address[0] != '@') || n < 2 || n >= sizeof(manager->address.sun_path))
                return -EINVAL;
        manager = calloc(1, sizeof(*manager));
        if (!manager)
                return -ENOMEM;
        manager->address.sun_family = AF_UNIX;
        memcpy(manager->address.sun_path, address, n);
        if (address[0] == '@')
                manager->address.sun_path[0] = '\0';
        manager->n_address = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
        manager->fd = -1;
        (void)pthread_mutex_init(&manager->lock, NULL);
        (void)pthread_cond_init(&manager->answered, NULL);
        r = reconnect(manager);
        if (r < 0) {
                keeper_manager_free(manager);
                return r;
        }
        *ret = manager;
        return 0;
}

void keeper_manager_free(KeeperManager *manager)
{
        (void)close_fd(manager->fd);
        (void)pthread_cond_destroy(&manager->answered);
        (void)pthread_mutex_destroy(&manager->lock);
        free(manager);
}
