/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel says it by EPOLLPRI, which libevent does not know: so an epoll of our own stands between, which is readable
 * when the trigger has gone off. To look at a trigger is to reset it, and the loop's own look counts: what our
 * epoll says afterwards is nothing, so it is only emptied.
 */
#include "daemon/service/pressure.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/macro.h"

struct Pressure {
        int fd;
        int epoll_fd;
        struct event *event;
        PressureFn on_pressure;
        void *userdata;
};

static void dispatch_pressure(evutil_socket_t fd, short what, void *userdata)
{
        Pressure *pressure = userdata;
        struct epoll_event ignored;

        (void)epoll_wait(pressure->epoll_fd, &ignored, 1, 0); /* whatever it says */
        pressure->on_pressure(pressure->userdata);
}

void pressure_free(Pressure *pressure)
{
        if (!pressure)
                return;
        if (pressure->event)
                event_free(pressure->event);
        (void)close_fd(pressure->epoll_fd);
        (void)close_fd(pressure->fd);
        free(pressure);
}

DEFINE_CLEANUP(Pressure *, cleanup_pressure, pressure_free)

int pressure_new_fd(struct event_base *base, int consume_fd, PressureFn on_pressure, void *userdata, Pressure **ret)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        _cleanup_(cleanup_pressure) Pressure *pressure = calloc(1, sizeof(*pressure));
        struct epoll_event interest = { .events = EPOLLPRI };

        if (!pressure)
                return -ENOMEM;
        pressure->fd = steal_fd(&fd);
        pressure->on_pressure = on_pressure;
        pressure->userdata = userdata;
        pressure->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (pressure->epoll_fd < 0 || epoll_ctl(pressure->epoll_fd, EPOLL_CTL_ADD, pressure->fd, &interest) < 0)
                return -errno;
        pressure->event = event_new(base, pressure->epoll_fd, EV_READ | EV_PERSIST, dispatch_pressure, pressure);
        if (!pressure->event || event_add(pressure->event, NULL) < 0)
                return -ENOMEM;
        *ret = steal_ptr(&pressure);
        return 0;
}

int pressure_new(struct event_base *base, const char *root, PressureFn on_pressure, void *userdata, Pressure **ret)
{
        /* Who is not privileged may only have windows of whole two seconds. */
        static const char *const triggers[] = { "some 150000 1000000", "some 300000 2000000" };
        char path[PATH_MAX];
        int fd, r = 0, n = snprintf(path, sizeof(path), "%s/proc/pressure/memory", root);

        if (n < 0 || (size_t)n >= sizeof(path))
                return -ENAMETOOLONG;
        fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        for (size_t i = 0; i < ARRAY_SIZE(triggers); i++) {
                /* With the NUL: that is how the kernel wants it. */
                r = write(fd, triggers[i], strlen(triggers[i]) + 1) < 0 ? -errno : 0;
                if (r == 0)
                        break;
        }
        if (r < 0) {
                (void)close_fd(fd);
                return r;
        }
        return pressure_new_fd(base, fd, on_pressure, userdata, ret);
}
