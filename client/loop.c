/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epoll instance of a client. The timerfds of namespaces are watched for edges: other watchers share them, so nobody
 * may read them empty. The timer is set when something is due earlier than what it is set to, and never put off: it
 * fires for nothing now and then instead of costing a system call for every request.
 */
#include "client/loop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/lib/connection.h"
#include "client/names.h"

/* A waiting get looks at least this often: a writer's death is no event. */
#define LOOP_SLICE_NS (UINT64_C(250) * 1000 * 1000)

enum { LOOP_SOCKET, LOOP_TIMER, LOOP_WATCH, LOOP_EVENTS = 16 };

static int add(int epoll_fd, int fd, uint32_t events, uint32_t kind)
{
        struct epoll_event event = { .events = events, .data.u32 = kind };

        return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void loop_watch(Client *client, int fd)
{
        int epoll_fd = atomic_load(&client->epoll_fd);

        /* Where this fails (a limit of epoll), the timer's slices make up for it. */
        if (epoll_fd >= 0)
                (void)add(epoll_fd, fd, EPOLLIN | EPOLLET, LOOP_WATCH);
}

/* With loop_lock. 0 or a negative errno. */
static int make(Client *client)
{
        _cleanup_(cleanup_fd) int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        _cleanup_(cleanup_fd) int timer_fd = -1;
        int r = 0;

        if (epoll_fd < 0)
                return -errno;
        timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (timer_fd < 0)
                return -errno;
        r = add(epoll_fd, timer_fd, EPOLLIN, LOOP_TIMER);
        if (r < 0)
                return r;
        client->timer_fd = steal_fd(&timer_fd);
        client->timer_ns = UINT64_MAX;
        /* loop_update() adds the socket. */
        client->epoll_has_room = client->epoll_has_socket = false;
        requests_lock(client->requests);
        atomic_store(&client->epoll_fd, steal_fd(&epoll_fd));
        for (Name *name = atomic_load(&client->names); name; name = name->next)
                if (name->watch_fd >= 0)
                        loop_watch(client, name->watch_fd);
        requests_unlock(client->requests);
        return 0;
}

int loop_get_fd(Client *client)
{
        int r = 0;

        (void)pthread_mutex_lock(&client->loop_lock);
        if (atomic_load(&client->epoll_fd) < 0)
                r = make(client);
        (void)pthread_mutex_unlock(&client->loop_lock);
        if (r < 0)
                return error_set(error_from_errno(r), "no descriptor for an event loop: %s", strerror(-r));
        loop_update(client);
        return atomic_load(&client->epoll_fd);
}

static uint64_t next_deadline_ns(Client *client)
{
        uint64_t deadline_ns = requests_next_deadline_ns(client->requests);

        requests_lock(client->requests);
        if (!list_is_empty(&client->gets)) {
                deadline_ns = MIN(deadline_ns, client->gets_deadline_ns);
                deadline_ns = MIN(deadline_ns, connection_now_ns() + LOOP_SLICE_NS);
        }
        /* Somebody must come along for what can go on already. */
        if (!list_is_empty(&client->ready))
                deadline_ns = 1;
        requests_unlock(client->requests);
        return deadline_ns;
}

static void set_timer(Client *client, uint64_t deadline_ns)
{
        struct itimerspec spec = {
                .it_value = {
                        .tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000)),
                        .tv_nsec = (long)(deadline_ns % UINT64_C(1000000000)),
                },
        };

        if (deadline_ns < client->timer_ns &&
            timerfd_settime(client->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0)
                client->timer_ns = deadline_ns;
}

static void set_socket(Client *client)
{
        uint32_t serial;
        int epoll_fd = atomic_load(&client->epoll_fd), socket = requests_get_connection(client->requests, &serial);
        int error = requests_get_error(client->requests);
        bool has_room = requests_wants_room(client->requests);
        struct epoll_event event = { .events = EPOLLIN | (has_room ? EPOLLOUT : 0), .data.u32 = LOOP_SOCKET };

        /* With the connection that it belonged to a socket has gone out of the instance by itself. */
        if (serial != client->epoll_serial)
                client->epoll_has_socket = false;
        client->epoll_serial = serial;
        if (!client->epoll_has_socket) {
                /* Not connected; one that has failed stays out. */
                if (socket < 0 || error || add(epoll_fd, socket, event.events, LOOP_SOCKET) < 0)
                        return;
                client->epoll_has_socket = true;
                client->epoll_has_room = has_room;
        }
        if (error) {
                /* A socket that has hung up would be readable for ever. */
                if (socket >= 0)
                        (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, socket, NULL);
                client->epoll_has_socket = false;
                return;
        }
        if (has_room != client->epoll_has_room && epoll_ctl(epoll_fd, EPOLL_CTL_MOD, socket, &event) == 0)
                client->epoll_has_room = has_room;
}

void loop_update(Client *client)
{
        if (atomic_load_explicit(&client->epoll_fd, memory_order_relaxed) < 0)
                return;
        (void)pthread_mutex_lock(&client->loop_lock);
        if (atomic_load(&client->epoll_fd) >= 0) {
                set_socket(client);
                set_timer(client, next_deadline_ns(client));
        }
        (void)pthread_mutex_unlock(&client->loop_lock);
}

bool loop_consume(Client *client)
{
        struct epoll_event events[LOOP_EVENTS];
        bool should_look = false;
        int epoll_fd, n;

        if (atomic_load_explicit(&client->epoll_fd, memory_order_relaxed) < 0)
                return true;
        (void)pthread_mutex_lock(&client->loop_lock);
        epoll_fd = atomic_load(&client->epoll_fd);
        /* A full answer may not be all; the next call of the event loop gets the rest. */
        n = epoll_fd >= 0 ? epoll_wait(epoll_fd, events, LOOP_EVENTS, 0) : 0;
        for (int i = 0; i < n; i++) {
                if (events[i].data.u32 == LOOP_SOCKET)
                        continue;
                should_look = true;
                if (events[i].data.u32 == LOOP_TIMER) {
                        uint64_t count;

                        (void)!read(client->timer_fd, &count, sizeof(count));
                        client->timer_ns = UINT64_MAX;
                }
        }
        (void)pthread_mutex_unlock(&client->loop_lock);
        return should_look;
}

void loop_deinit(Client *client)
{
        (void)pthread_mutex_lock(&client->loop_lock);
        (void)close_fd(atomic_exchange(&client->epoll_fd, -1));
        client->timer_fd = close_fd(client->timer_fd);
        (void)pthread_mutex_unlock(&client->loop_lock);
}
