/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A watch: a cursor in the event log of a namespace. The daemon's timerfd is one for all watches that this client has
 * there, so nobody may read it empty: each watch that is asked for a descriptor has an epoll instance of its own, which sees the
 * edges, and that is what is given out.
 */
#include "client/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/lib/connection.h"
#include "client/lib/lookup.h"
#include "client/list.h"
#include "client/loop.h"
#include "client/resume.h"
#include "folio/watch.h"

#define WATCH_SLICE_NS (UINT64_C(250) * 1000 * 1000)
#define WATCH_GAP_NS 10000000L

struct folio_watch {
        struct folio_client *client; /* a reference */
        Space *space;
        uint64_t sequence;           /* the last one that was told, or passed over */
        int event_fd;                /* -1 until it is asked for */
        int epoll_fd;
        int timer_fd;                /* -1; for the time without a foliod, in which nobody else makes epoll_fd readable */
        List link;                   /* in client->watches, under the lock of `requests`, which covers the three descriptors too */
        uint32_t serial;             /* of the connection whose socket is in epoll_fd */
        size_t n_prefix;
        char prefix[FOLIO_KEY_BYTES_MAX + 1];
};

static void take_event_fd(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        if (n_fds != 1)
                op_fail_connection(op, FOLIO_E_PROTOCOL);
        else
                op->fd = steal_fd(&fds[0]);
}

typedef struct WatchOp {
        Op op;
        uint64_t after_sequence;
        uint64_t newest;
        struct folio_watch **ret;
} WatchOp;

static void watch_make(Op *op)
{
        WatchOp *open = CONTAINER_OF(op, WatchOp, op);
        struct folio_watch *watch = NULL;

        /* A watch has a reference, and there is none to be had any more. */
        if (op->error == 0 && client_is_closing(op->client))
                op_fail_connection(op, FOLIO_E_CANCELLED);
        if (op->error == 0) {
                watch = calloc(1, sizeof(*watch));
                if (!watch)
                        op_fail_connection(op, FOLIO_E_NO_MEMORY);
        }
        if (watch) {
                watch->client = folio_client_ref(op->client);
                watch->space = op->space;
                watch->sequence = open->after_sequence ? open->after_sequence : open->newest;
                watch->event_fd = steal_fd(&op->fd);
                watch->epoll_fd = watch->timer_fd = -1;
                watch->n_prefix = op->key.n_bytes;
                memcpy(watch->prefix, op->key.bytes, op->key.n_bytes);
                requests_lock(op->client->requests);
                watch->serial = UINT32_MAX;
                list_push_back(&op->client->watches, &watch->link);
                requests_unlock(op->client->requests);
                *open->ret = watch;
        }
        op_complete(op);
}

static void watch_opened(Op *op)
{
        WatchOp *open = CONTAINER_OF(op, WatchOp, op);
        ProtoRequest message = { .verb = VERB_WATCH };

        if (!list_check_readable(op)) {
                op_complete(op);
                return;
        }
        open->newest = lookup_newest_event(op->space);
        if (open->after_sequence > open->newest)
                op_fail(op, FOLIO_E_INVALID, "event %llu has not happened yet: the newest of namespace %s is %llu",
                        (unsigned long long)open->after_sequence, op->space->name, (unsigned long long)open->newest);
        /* Who does not block now shall not block in folio_watch_get_fd() either. */
        if (op->error || op->is_waited) {
                watch_make(op);
                return;
        }
        message.namespace_id = op->space->id;
        op_send(op, &message, take_event_fd, watch_make);
}

static void watch_begin(Op *op)
{
        list_open_prefix(op, watch_opened);
}

static int watch_init(WatchOp *open, Client *client, const char *prefix, uint64_t after_sequence, struct folio_watch **ret)
{
        int r = client_check(client);

        if (r == 0 && !ret)
                r = error_set(FOLIO_E_INVALID, "there is no place for the watch");
        if (r < 0)
                return r;
        *open = (WatchOp){ .after_sequence = after_sequence, .ret = ret };
        op_init(&open->op, client);
        (void)list_set_prefix(&open->op, prefix);
        return 0;
}

_public_ int folio_watch_open(struct folio_client *client, const char *prefix, uint64_t after_sequence,
                              struct folio_watch **ret)
{
        WatchOp open;
        int r = watch_init(&open, client, prefix, after_sequence, ret);

        return r < 0 ? r : call_wait(&open.op, watch_begin);
}

_public_ int folio_watch_open_async(struct folio_client *client, const char *prefix, uint64_t after_sequence,
                                    struct folio_watch **ret, folio_done_fn done, void *userdata)
{
        WatchOp open;
        int r = watch_init(&open, client, prefix, after_sequence, ret);

        return r < 0 ? r : call_async(&open.op, sizeof(open), watch_begin, done, userdata);
}

_public_ void folio_watch_close(struct folio_watch *watch)
{
        if (!watch)
                return;
        if (forked_is_mine(watch->client->fork_mark)) {
                requests_lock(watch->client->requests);
                list_unlink(&watch->link);
                requests_unlock(watch->client->requests);
        }
        watch->epoll_fd = close_fd(watch->epoll_fd);
        watch->timer_fd = close_fd(watch->timer_fd);
        watch->event_fd = close_fd(watch->event_fd);
        folio_client_unref(watch->client);
        free(watch);
}

static void fill(const struct folio_watch *watch, const struct folio_event *event, struct folio_event *ret)
{
        size_t struct_bytes = ret->struct_bytes;

        memcpy(ret, event, MIN(struct_bytes, sizeof(*event)));
        ret->struct_bytes = struct_bytes;
}

static void fill_event(const struct folio_watch *watch, const LayoutEvent *from, struct folio_event *ret)
{
        struct folio_event event = {
                .sequence = from->sequence,
                .generation = from->generation,
                .size_bytes = from->size_bytes,
                .time_ns = from->time_ns,
                .type = from->type,
        };
        size_t n_space = strlen(watch->space->name);

        memcpy(event.name, watch->space->name, n_space);
        event.name[n_space] = ':';
        memcpy(event.name + n_space + 1, from->key, from->key_bytes);
        fill(watch, &event, ret);
}

static void fill_missed(const struct folio_watch *watch, uint64_t n_missed, struct folio_event *ret)
{
        struct folio_event event = { .sequence = watch->sequence, .n_missed = n_missed, .type = FOLIO_EVENT_MISSED };
        size_t n_space = strlen(watch->space->name);

        memcpy(event.name, watch->space->name, n_space);
        event.name[n_space] = ':';
        memcpy(event.name + n_space + 1, watch->prefix, watch->n_prefix);
        fill(watch, &event, ret);
}

/* Without waiting: 1 an event, 0 none. */
static int next_now(struct folio_watch *watch, struct folio_event *ret)
{
        for (;;) {
                LayoutEvent event;
                uint64_t oldest = 0;

                switch (lookup_read_event(watch->space, watch->sequence + 1, &event, &oldest)) {
                case LOOKUP_EVENT_NONE:
                        return 0;
                case LOOKUP_EVENT_LAPPED: {
                        uint64_t n_missed = oldest - watch->sequence - 1;

                        watch->sequence = oldest - 1;
                        fill_missed(watch, n_missed, ret);
                        return 1;
                }
                case LOOKUP_EVENT:
                        watch->sequence++;
                        if (!list_has_prefix(event.key, event.key_bytes, (Key){ watch->prefix, watch->n_prefix }))
                                break;
                        fill_event(watch, &event, ret);
                        return 1;
                }
        }
}

/* --- the descriptor ---------------------------------------------------------------------------------------------------------------------- */

/* With the lock. That foliod has ended should wake too. Where it cannot be had, the next look finds it. */
static void add_socket(struct folio_watch *watch, int socket, uint32_t serial)
{
        struct epoll_event hangup = { .events = EPOLLRDHUP };

        if (watch->epoll_fd < 0 || socket < 0 || watch->serial == serial)
                return;
        (void)epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, socket, &hangup);
        watch->serial = serial;
}

void watches_wake(Client *client)
{
        const struct itimerspec at_once = { .it_value = { .tv_nsec = 1 } };
        uint32_t serial;
        int socket = requests_get_connection(client->requests, &serial);

        requests_lock(client->requests);
        LIST_FOREACH(link, &client->watches) {
                struct folio_watch *watch = LIST_ENTRY(link, struct folio_watch, link);

                add_socket(watch, socket, serial);
                if (watch->event_fd >= 0)
                        (void)timerfd_settime(watch->event_fd, 0, &at_once, NULL); /* as foliod does */
        }
        requests_unlock(client->requests);
}

bool watches_want(Client *client, const Space *space)
{
        bool want = false;

        requests_lock(client->requests);
        LIST_FOREACH(link, &client->watches) {
                const struct folio_watch *watch = LIST_ENTRY(link, struct folio_watch, link);

                want = want || (watch->space == space && watch->event_fd >= 0);
        }
        requests_unlock(client->requests);
        return want;
}

/* In the place of @old, which goes; with @epoll_fd, where there is one, watching it. */
static void replace(int *old, int event_fd, int epoll_fd)
{
        struct epoll_event event = { .events = EPOLLIN | EPOLLET };
        int copy = fcntl(event_fd, F_DUPFD_CLOEXEC, 3);

        if (copy < 0)
                return;
        *old = close_fd(*old);
        *old = copy;
        if (epoll_fd >= 0)
                (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, copy, &event);
}

void watches_replace(Client *client, const Space *space, int event_fd)
{
        Name *name = names_entry(client, space);

        requests_lock(client->requests);
        LIST_FOREACH(link, &client->watches) {
                struct folio_watch *watch = LIST_ENTRY(link, struct folio_watch, link);

                if (watch->space == space && watch->event_fd >= 0)
                        replace(&watch->event_fd, event_fd, watch->epoll_fd);
        }
        if (name && name->watch_fd >= 0) {
                replace(&name->watch_fd, event_fd, -1);
                loop_watch(client, name->watch_fd);
        }
        requests_unlock(client->requests);
}

/* Who sleeps on the descriptor comes back soon, to move the reconnect on. */
static void come_back(struct folio_watch *watch)
{
        const struct itimerspec soon = { .it_value.tv_nsec = WATCH_GAP_NS };
        struct epoll_event event = { .events = EPOLLIN };

        if (watch->epoll_fd < 0)
                return;
        if (watch->timer_fd < 0) {
                watch->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
                if (watch->timer_fd < 0 || epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, watch->timer_fd, &event) < 0)
                        return;
        }
        (void)timerfd_settime(watch->timer_fd, 0, &soon, NULL);
}

static void drain(const struct folio_watch *watch)
{
        struct epoll_event event;
        uint64_t count;

        if (watch->epoll_fd >= 0)
                (void)epoll_wait(watch->epoll_fd, &event, 1, 0);
        if (watch->timer_fd >= 0)
                (void)!read(watch->timer_fd, &count, sizeof(count));
}

/* --- events ------------------------------------------------------------------------------------------------------------------------------ */

/* 0; or none is left, and none will come. */
static int look(struct folio_watch *watch)
{
        Client *client = watch->client;
        char sentence[ERROR_SENTENCE_BYTES];
        int r = resume_check(client);

        /* In this order: what has been put in place meanwhile may say so. */
        if (r == RESUME_GAP)
                come_back(watch);
        else if (!names_is_open(watch->space))
                return error_set(FOLIO_E_DAEMON_GONE, "namespace %s has been closed: no more events will come",
                                 watch->space->name);
        if (r >= 0)
                return 0;
        operation_explain(client, r, sentence);
        return error_set(r, "%.400s: no more events will come", sentence);
}

_public_ int folio_watch_next(struct folio_watch *watch, int timeout_ms, struct folio_event *ret)
{
        uint64_t now_ns, deadline_ns = 0;
        int r;

        if (!watch || !ret || ret->struct_bytes == 0 || timeout_ms < FOLIO_TIMEOUT_FOREVER)
                return error_set(FOLIO_E_INVALID, "a watch, and an event with struct_bytes set, are wanted");
        r = client_check(watch->client);
        if (r < 0)
                return r;
        if (timeout_ms != 0)
                deadline_ns = timeout_ms < 0 ? UINT64_MAX : connection_now_ns() + (uint64_t)timeout_ms * 1000000;
        for (;;) {
                if (next_now(watch, ret))
                        return 1;
                idle_sweep(watch->client->maps);
                /* In this order: what comes after the look makes the descriptor readable again. */
                drain(watch);
                r = look(watch);
                if (next_now(watch, ret))
                        return 1;
                if (r < 0)
                        return r;
                now_ns = deadline_ns == 0 ? 0 : connection_now_ns();
                if (now_ns >= deadline_ns)
                        return 0;
                (void)lookup_wait_event(watch->space, watch->sequence,
                                        MIN(deadline_ns - now_ns, resume_slice_ns(watch->client, WATCH_SLICE_NS)));
        }
}

static int ask_event_fd(struct folio_watch *watch)
{
        ProtoRequest message = { .verb = VERB_WATCH, .namespace_id = watch->space->id };
        Op op;
        int r;

        op_init(&op, watch->client);
        op_send(&op, &message, take_event_fd, op_complete);
        r = op_wait(&op);
        requests_lock(watch->client->requests);
        if (r == 0)
                watch->event_fd = steal_fd(&op.fd);
        requests_unlock(watch->client->requests);
        op_deinit(&op);
        return r;
}

_public_ int folio_watch_get_fd(struct folio_watch *watch)
{
        struct epoll_event event = { .events = EPOLLIN | EPOLLET };
        _cleanup_(cleanup_fd) int epoll_fd = -1;
        uint32_t serial;
        int r, socket;

        if (!watch)
                return error_set(FOLIO_E_INVALID, "the watch is NULL");
        r = client_check(watch->client);
        if (r < 0)
                return r;
        if (watch->epoll_fd >= 0)
                return watch->epoll_fd;
        if (watch->event_fd < 0) {
                r = ask_event_fd(watch);
                if (r < 0)
                        return r;
        }
        epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, watch->event_fd, &event) < 0)
                return error_set(errno == ENOMEM ? FOLIO_E_NO_MEMORY : FOLIO_E_LIMIT, "no descriptor for the watch: %s",
                                 strerror(errno));
        socket = requests_get_connection(watch->client->requests, &serial);
        requests_lock(watch->client->requests);
        watch->epoll_fd = steal_fd(&epoll_fd);
        add_socket(watch, socket, serial);
        requests_unlock(watch->client->requests);
        return watch->epoll_fd;
}
