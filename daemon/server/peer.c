/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading goes in turns of at most PEER_PACKETS_PER_TURN packets and PEER_TURN_NS, so that one client cannot keep the
 * loop to itself. A packet that takes longer is put off in the middle, and its rest has a turn of its own each time,
 * behind whoever is ready; nothing is read meanwhile, so nothing overtakes it. Reading also pauses while too many
 * replies wait for the client to read them, or too many requests are under way.
 *
 * A message that finds the side (a ring) with something undone is kept, and carried out when that is done; nothing is
 * read meanwhile. A hang-up waits for it in the same way.
 *
 * Sending is direct while nothing waits; else in order through a queue, whose descriptors are duplicates. Two things
 * hold a message back although the socket has room: descriptors that the client has been sent and has not picked up
 * (they count against a limit that all clients share in the kernel), and that limit itself (ETOOMANYREFS). No poll
 * tells when that is over, so a timer tries again.
 *
 * Over 600 lines: reading, sending and the end of one connection hold each other up, and share all of its state.
 */
#include "daemon/server/peer.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "daemon/server/outgoing.h"
#include "daemon/server/process.h"
#include "daemon/service/log.h"
#include "proto/channel.h"

#define RETRY_MS_MIN 2
#define RETRY_MS_MAX 100
#define DRAIN_PACKETS_MAX 1024
#define BREACH_LINES_PER_S 5
#define FAILURE_LINES_PER_S 2
/* A client in a debugger may leave this many descriptors unread for as long as it likes. */
#define FDS_UNREAD_FOR_EVER_MAX 16

/* A message that waits for the side. */
typedef struct Kept {
        size_t n_bytes;
        uint8_t bytes[];
} Kept;

struct Peer {
        unsigned n_references;
        int fd;                      /* -1: hung up */
        bool is_dying;               /* nothing is read or sent any more; closed on the loop's next turn */
        bool is_finishing;           /* nothing is read any more; closed when the queue is empty */
        PeerConfig config;           /* cred.groups and comm are not in it, but here: */
        gid_t *groups;
        char comm[PEER_COMM_BYTES_MAX + 1];
        const char *end_reason;      /* why it is dying; static */
        Session *session;
        const PeerSide *side;        /* NULL: none */
        void *side_userdata;
        Kept *kept;                  /* NULL: none */
        List queue;                  /* of Outgoing */
        size_t n_queued;
        size_t n_queued_bytes;
        size_t n_queued_fds;
        size_t n_fds_in_flight;      /* sent since the client was last seen to have read everything */
        uint64_t n_sent;             /* messages, ever */
        uint64_t n_stall_sent;       /* and when the stall timer was started */
        int n_unread_bytes;          /* of the socket, then */
        size_t n_requests;
        size_t n_request_bytes;
        unsigned retry_ms;
        uint64_t turn_until_ns;      /* of the turn it has, or had last */
        void (*rest)(void *userdata); /* of a message, put off; NULL: there is none */
        void *rest_userdata;
        struct event *resume;        /* for the rest, or what is kept */
        struct event *readable;
        struct event *writable;
        struct event *retry;
        struct event *stall;
        struct event *closing;
};

/* Shared by all: a flood of breaches comes over many connections. */
static LogLimit breach_limit, failure_limit;

static const char no_timer[] = "no memory for an event", no_way[] = "it takes no reply any more",
                  finished[] = "it was told why, and let go";

static uint64_t monotonic_ns(void)
{
        struct timespec now;

        if (clock_gettime(CLOCK_MONOTONIC, &now) < 0)
                return 0;
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void peer_free(Peer *peer)
{
        assert(peer->fd < 0);
        assert(!peer->session && !peer->side && !peer->kept);
        assert(list_is_empty(&peer->queue));
        assert(peer->n_requests == 0);
        free(peer->groups);
        free(peer);
}

Peer *peer_ref(Peer *peer)
{
        peer->n_references++;
        return peer;
}

void peer_unref(Peer *peer)
{
        assert(peer->n_references > 0);
        if (--peer->n_references == 0)
                peer_free(peer);
}

static void free_event(struct event **event)
{
        if (*event)
                event_free(*event);
        *event = NULL;
}

static void free_events(Peer *peer)
{
        free_event(&peer->readable);
        free_event(&peer->writable);
        free_event(&peer->retry);
        free_event(&peer->stall);
        free_event(&peer->closing);
        free_event(&peer->resume);
}

static void carry_on(Peer *peer)
{
        void (*rest)(void *userdata) = peer->rest;

        peer->rest = NULL;
        if (rest)
                rest(peer->rest_userdata);
}

static void end(Peer *peer, bool is_left)
{
        Session *session = steal_ptr(&peer->session);
        const PeerSide *side = peer->side;

        if (peer->fd < 0)
                return;
        peer->is_dying = true;
        free_events(peer);
        for (List *link; (link = list_take_front(&peer->queue));)
                outgoing_free(LIST_ENTRY(link, Outgoing, link));
        peer->n_queued = peer->n_queued_bytes = peer->n_queued_fds = 0;
        peer->fd = close_fd(peer->fd);
        free(steal_ptr(&peer->kept));
        if (side)
                (is_left ? side->leave : side->close)(peer->side_userdata);
        if (session)
                (is_left ? session_leave : session_close)(session);
        peer->side = NULL;
        if (side)
                side->release(steal_ptr(&peer->side_userdata));
        carry_on(peer); /* to its end: nothing can be begun any more */
        log_debug("client %s, pid %d, uid %u, is gone: %s", peer->comm, (int)peer->config.cred.pid,
                  (unsigned)peer->config.cred.uid, peer->end_reason ? peer->end_reason : "foliod ends it");
        peer->config.on_hangup(peer, peer->config.hangup_userdata);
}

void peer_close(Peer *peer)
{
        end(peer, false);
}

void peer_leave(Peer *peer)
{
        end(peer, true);
}

/* The socket may be of no use, but the store may be our caller: the rest is for the loop. */
static void die(Peer *peer, const char *reason)
{
        if (peer->fd < 0 || peer->is_dying)
                return;
        peer->is_dying = true;
        peer->end_reason = reason;
        (void)event_del(peer->readable); /* cannot fail for an event of ours */
        (void)event_del(peer->writable);
        event_active(peer->closing, EV_TIMEOUT, 0);
}

/* Closed with something unread, the socket would tell the client of an error before it gives out our last replies. */
static void drain_input(Peer *peer)
{
        char byte;

        for (unsigned i = 0; i < DRAIN_PACKETS_MAX; i++)
                if (recv(peer->fd, &byte, sizeof(byte), MSG_DONTWAIT) <= 0)
                        break;
}

/* From inside the store, perhaps. */
static void on_drained(void *userdata)
{
        /* A timer, not event_active(): the loop looks at all others before it runs. */
        static const struct timeval at_once = { 0, 0 };
        Peer *peer = userdata;

        if (peer->fd < 0)
                return;
        if (peer->is_dying)
                event_active(peer->closing, EV_TIMEOUT, 0);
        else if (event_add(peer->resume, &at_once) < 0)
                die(peer, no_timer);
}

static bool drain_side(Peer *peer)
{
        return !peer->side || peer->side->drain(peer->side_userdata, on_drained, peer);
}

static void on_closing(evutil_socket_t fd, short what, void *userdata)
{
        Peer *peer = userdata;

        if (peer->is_finishing)
                drain_input(peer);
        if (drain_side(peer))
                peer_close(peer);
}

static void log_dropped(const Peer *peer, const char *rule)
{
        const LogField fields[] = {
                LOG_FIELD_TEXT("FOLIO_CLIENT", peer->comm),
                LOG_FIELD_NUMBER("FOLIO_CLIENT_PID", (uint64_t)peer->config.cred.pid),
                LOG_FIELD_NUMBER("FOLIO_CLIENT_UID", peer->config.cred.uid),
                LOG_FIELD_TEXT("FOLIO_RULE", rule),
        };

        log_event(LOG_EVENT_CLIENT_DROPPED, LOG_LEVEL_WARNING, fields, ARRAY_SIZE(fields),
                  "client %s, pid %d, uid %u, is disconnected: %s", peer->comm, (int)peer->config.cred.pid,
                  (unsigned)peer->config.cred.uid, rule);
}

void peer_breach(Peer *peer, const char *format, ...)
{
        uint64_t n_dropped;
        char rule[256];
        va_list arguments;

        if (peer->fd < 0 || peer->is_dying)
                return;
        va_start(arguments, format);
        (void)vsnprintf(rule, sizeof(rule), format, arguments); /* what is cut off is only for people */
        va_end(arguments);
        if (log_limit_pass(&breach_limit, BREACH_LINES_PER_S, monotonic_ns(), &n_dropped)) {
                if (n_dropped > 0)
                        log_warning("%llu more clients were disconnected for breaking a rule",
                                    (unsigned long long)n_dropped);
                log_dropped(peer, rule);
        }
        die(peer, "it broke a rule");
}

void peer_log_failure(Peer *peer, const char *what, const char *detail)
{
        uint64_t n_dropped;

        if (!log_limit_pass(&failure_limit, FAILURE_LINES_PER_S, monotonic_ns(), &n_dropped))
                return;
        if (n_dropped > 0)
                log_error("%llu more requests failed inside", (unsigned long long)n_dropped);
        log_error("%s for client %s, pid %d, uid %u, failed: %s", what, peer->comm, (int)peer->config.cred.pid,
                  (unsigned)peer->config.cred.uid, detail);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool is_throttled(const Peer *peer)
{
        return peer->n_queued >= PEER_REPLIES_MAX || peer->n_queued_bytes >= PEER_REPLY_BYTES_MAX ||
               peer->n_queued_fds >= PEER_REPLY_FDS_MAX;
}

static bool may_read(const Peer *peer)
{
        return !peer->is_dying && !peer->is_finishing && !peer->rest && !peer->kept && !is_throttled(peer) &&
               peer->n_request_bytes < PEER_REQUEST_BYTES_MAX;
}

/* What the client has not read yet, as the kernel counts it. */
static int count_unread(const Peer *peer)
{
        int n_bytes = 0;

        return ioctl(peer->fd, SIOCOUTQ, &n_bytes) == 0 ? n_bytes : 0;
}

static void start_stall(Peer *peer)
{
        struct timeval timeout = { .tv_sec = (time_t)peer->config.stall_s };

        peer->n_unread_bytes = count_unread(peer);
        peer->n_stall_sent = peer->n_sent;
        if (event_add(peer->stall, &timeout) < 0)
                die(peer, no_timer);
}

/* After anything that may_read() depends on. */
static void update_reading(Peer *peer)
{
        bool is_reading;

        if (peer->fd < 0 || peer->is_dying)
                return;
        if (is_throttled(peer) && !event_pending(peer->stall, EV_TIMEOUT, NULL))
                start_stall(peer);
        is_reading = event_pending(peer->readable, EV_READ, NULL);
        if (is_reading && !may_read(peer))
                (void)event_del(peer->readable); /* cannot fail for an event of ours */
        else if (!is_reading && may_read(peer) && event_add(peer->readable, NULL) < 0)
                die(peer, no_timer);
}

/* Until the side is drained. */
static void keep_message(Peer *peer, const void *bytes, size_t n_bytes)
{
        Kept *kept = malloc(sizeof(*kept) + n_bytes);

        if (!kept) {
                peer_log_failure(peer, "keeping a message", strerror(ENOMEM));
                die(peer, "a message of it could not be kept");
                return;
        }
        kept->n_bytes = n_bytes;
        memcpy(kept->bytes, bytes, n_bytes);
        peer->kept = kept;
}

static void carry_out_kept(Peer *peer)
{
        Kept *kept = steal_ptr(&peer->kept);

        if (peer_is_open(peer))
                peer->config.on_message(peer, kept->bytes, kept->n_bytes, peer->config.message_userdata);
        free(kept);
}

static void read_packet(Peer *peer, bool *ret_more)
{
        /* The loop is one thread, and nobody keeps what lies here. */
        static uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes = 0, n_uninvited = 0;
        int r = channel_receive(peer->fd, bytes, sizeof(bytes), &n_bytes, NULL, 0, NULL, &n_uninvited);

        *ret_more = false;
        if (r == CHANNEL_E_AGAIN)
                return;
        if (r == CHANNEL_E_TRUNCATED) {
                peer_breach(peer, "a message has at most %u bytes", PROTO_MESSAGE_BYTES_MAX);
        } else if (r != CHANNEL_OK) {
                /* Gone; or the kernel says no in a way that asking again would not change. */
                die(peer, r == CHANNEL_E_HANGUP ? "it has hung up" : "nothing can be received from it");
        } else if (n_uninvited > 0) {
                peer_breach(peer, "a request carries no descriptors");
        } else {
                *ret_more = true;
                if (!drain_side(peer))
                        keep_message(peer, bytes, n_bytes);
                else if (!peer->is_dying)
                        peer->config.on_message(peer, bytes, n_bytes, peer->config.message_userdata);
        }
}

static void on_readable(evutil_socket_t fd, short what, void *userdata)
{
        Peer *peer = peer_ref(userdata);
        bool more = true;

        peer->turn_until_ns = peer->config.now_ns() + PEER_TURN_NS;
        for (unsigned i = 0; i < PEER_PACKETS_PER_TURN && more && peer->fd >= 0 && may_read(peer); i++) {
                read_packet(peer, &more);
                if (peer_turn_is_over(peer))
                        break;
        }
        update_reading(peer);
        peer_unref(peer);
}

static void on_resume(evutil_socket_t fd, short what, void *userdata)
{
        Peer *peer = peer_ref(userdata);

        peer->turn_until_ns = peer->config.now_ns() + PEER_TURN_NS;
        assert(!peer->kept || !peer->rest);
        if (peer->kept)
                carry_out_kept(peer);
        else
                carry_on(peer);
        update_reading(peer);
        peer_unref(peer);
}

bool peer_turn_is_over(const Peer *peer)
{
        return peer->config.now_ns() > peer->turn_until_ns;
}

void peer_put_off(Peer *peer, void (*rest)(void *userdata), void *userdata)
{
        /* A timer, not event_active(): the loop looks at all others before it runs. */
        static const struct timeval at_once = { 0, 0 };

        assert(!peer->rest && peer->fd >= 0);
        peer->rest = rest;
        peer->rest_userdata = userdata;
        if (event_add(peer->resume, &at_once) < 0)
                die(peer, no_timer);
}

void peer_begin_request(Peer *peer, size_t n_bytes)
{
        (void)peer_ref(peer);
        peer->n_requests++;
        peer->n_request_bytes += n_bytes;
}

void peer_end_request(Peer *peer, size_t n_bytes)
{
        assert(peer->n_requests > 0 && peer->n_request_bytes >= n_bytes);
        peer->n_requests--;
        peer->n_request_bytes -= n_bytes;
        update_reading(peer);
        peer_unref(peer);
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static int try_send(Peer *peer, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds)
{
        int r;

        if (n_fds > 0 && peer->n_fds_in_flight > 0 &&
            peer->n_fds_in_flight + n_fds > peer->config.fds_in_flight_max) {
                if (count_unread(peer) > 0)
                        return CHANNEL_E_TOO_MANY;
                peer->n_fds_in_flight = 0;
        }
        r = channel_send(peer->fd, bytes, n_bytes, fds, n_fds);
        if (r != CHANNEL_OK)
                return r;
        peer->n_sent++;
        peer->n_fds_in_flight += n_fds;
        if (peer->n_fds_in_flight > FDS_UNREAD_FOR_EVER_MAX && !event_pending(peer->stall, EV_TIMEOUT, NULL))
                start_stall(peer);
        return r;
}

/* @how: the outcome that made us wait. */
static void wait_for_room(Peer *peer, int how, bool was_writable)
{
        struct timeval timeout;

        /* Writable, and yet no room: the kernel is short of something that no poll knows of. */
        if (how == CHANNEL_E_AGAIN && !was_writable) {
                if (event_add(peer->writable, NULL) < 0)
                        die(peer, no_timer);
                return;
        }
        peer->retry_ms = CLAMP(peer->retry_ms * 2, RETRY_MS_MIN, RETRY_MS_MAX);
        timeout = (struct timeval){ .tv_usec = (suseconds_t)peer->retry_ms * 1000 };
        if (event_add(peer->retry, &timeout) < 0)
                die(peer, no_timer);
}

static void flush_queue(Peer *peer, bool was_writable)
{
        bool has_sent = false;

        while (!peer->is_dying && !list_is_empty(&peer->queue)) {
                Outgoing *outgoing = LIST_ENTRY(list_peek_front(&peer->queue), Outgoing, link);
                int r = try_send(peer, outgoing->bytes, outgoing->n_bytes, outgoing->fds, outgoing->n_fds);

                if (r == CHANNEL_E_AGAIN || r == CHANNEL_E_TOO_MANY) {
                        wait_for_room(peer, r, was_writable && !has_sent);
                        break;
                }
                if (r != CHANNEL_OK) {
                        die(peer, no_way);
                        break;
                }
                has_sent = true;
                peer->retry_ms = 0;
                list_unlink(&outgoing->link);
                peer->n_queued--;
                peer->n_queued_bytes -= outgoing->n_bytes;
                peer->n_queued_fds -= outgoing->n_fds;
                outgoing_free(outgoing);
        }
        if (has_sent && event_pending(peer->stall, EV_TIMEOUT, NULL))
                start_stall(peer);
        if (peer->is_finishing && list_is_empty(&peer->queue))
                die(peer, finished);
        update_reading(peer);
}

static void on_writable(evutil_socket_t fd, short what, void *userdata)
{
        flush_queue(userdata, true);
}

static void on_retry(evutil_socket_t fd, short what, void *userdata)
{
        flush_queue(userdata, false);
}

/*
 * No progress for so long. It is the end only for who has been asked to read: replies wait beyond the limit, the
 * connection is to be finished, a session was never begun, or many descriptors are kept in flight.
 */
static void on_stall(evutil_socket_t fd, short what, void *userdata)
{
        Peer *peer = userdata;
        int n_unread_bytes = count_unread(peer);

        if (!peer->session && !peer->is_finishing) {
                peer_breach(peer, "the first request, HELLO, comes within %u s", peer->config.stall_s);
        } else if (is_throttled(peer) || peer->is_finishing) {
                peer_breach(peer, "replies are read: %zu have waited for %u s", peer->n_queued, peer->config.stall_s);
        } else if (n_unread_bytes == 0) {
                peer->n_fds_in_flight = 0;
        } else if (peer->n_fds_in_flight > FDS_UNREAD_FOR_EVER_MAX) {
                /* As much is unread as was: with others sent since that is one of those, and the client reads. */
                if (n_unread_bytes == peer->n_unread_bytes && peer->n_sent == peer->n_stall_sent)
                        peer_breach(peer, "descriptors are received: %zu have waited for %u s", peer->n_fds_in_flight,
                                    peer->config.stall_s);
                else
                        start_stall(peer);
        }
}

static void enqueue(Peer *peer, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds)
{
        Outgoing *outgoing = NULL;
        int r = outgoing_new(bytes, n_bytes, fds, n_fds, &outgoing);

        if (r < 0) {
                peer_log_failure(peer, "keeping a reply", strerror(-r));
                die(peer, "a reply to it could not be kept");
                return;
        }
        list_push_back(&peer->queue, &outgoing->link);
        peer->n_queued++;
        peer->n_queued_bytes += n_bytes;
        peer->n_queued_fds += n_fds;
        update_reading(peer);
}

void peer_send(Peer *peer, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds)
{
        int r;

        if (peer->fd < 0 || peer->is_dying)
                return;
        if (!list_is_empty(&peer->queue)) {
                enqueue(peer, bytes, n_bytes, fds, n_fds);
                return;
        }
        r = try_send(peer, bytes, n_bytes, fds, n_fds);
        if (r == CHANNEL_E_AGAIN || r == CHANNEL_E_TOO_MANY) {
                enqueue(peer, bytes, n_bytes, fds, n_fds);
                if (!peer->is_dying)
                        wait_for_room(peer, r, false);
        } else if (r != CHANNEL_OK) {
                die(peer, no_way);
        }
}

void peer_finish(Peer *peer)
{
        if (!peer_is_open(peer))
                return;
        peer->is_finishing = true;
        if (list_is_empty(&peer->queue)) {
                die(peer, finished);
        } else {
                update_reading(peer);
                start_stall(peer);
        }
}

/* --- the beginning, and what it is -------------------------------------------------------------------------------- */

static int make_events(Peer *peer)
{
        struct event_base *base = peer->config.base;

        peer->readable = event_new(base, peer->fd, EV_READ | EV_PERSIST, on_readable, peer);
        peer->writable = event_new(base, peer->fd, EV_WRITE, on_writable, peer);
        peer->retry = event_new(base, -1, 0, on_retry, peer);
        peer->stall = event_new(base, -1, 0, on_stall, peer);
        peer->closing = event_new(base, -1, 0, on_closing, peer);
        peer->resume = event_new(base, -1, 0, on_resume, peer);
        if (!peer->resume || !peer->readable || !peer->writable || !peer->retry || !peer->stall || !peer->closing)
                return -ENOMEM;
        return event_add(peer->readable, NULL) < 0 ? -ENOMEM : 0;
}

int peer_new(const PeerConfig *config, int consume_fd, Peer **ret)
{
        Peer *peer = calloc(1, sizeof(*peer));
        int r = -ENOMEM;

        if (!peer)
                return -ENOMEM;
        peer->n_references = 1;
        peer->fd = consume_fd;
        peer->config = *config;
        peer->config.now_ns = config->now_ns ? config->now_ns : monotonic_ns;
        peer->config.stall_s = config->stall_s > 0 ? config->stall_s : PEER_STALL_S;
        peer->config.fds_in_flight_max = MAX(config->fds_in_flight_max, 1);
        peer->config.cred.groups = NULL;
        peer->config.comm = NULL;
        list_init(&peer->queue);
        (void)snprintf(peer->comm, sizeof(peer->comm), "%s", config->comm ? config->comm : "?"); /* cut if too long */
        if (config->cred.n_groups > 0) {
                peer->groups = reallocarray(NULL, config->cred.n_groups, sizeof(gid_t));
                if (!peer->groups)
                        goto failed;
                memcpy(peer->groups, config->cred.groups, config->cred.n_groups * sizeof(gid_t));
                peer->config.cred.groups = peer->groups;
        }
        r = make_events(peer);
        if (r < 0)
                goto failed;
        start_stall(peer); /* until HELLO */
        *ret = peer;
        return 0;

failed:
        free_events(peer);
        peer->fd = -1; /* the caller's still */
        peer_unref(peer);
        return r;
}

void peer_set_session(Peer *peer, Session *consume_session)
{
        assert(!peer->session);
        assert(peer->fd >= 0);
        peer->session = consume_session;
        (void)event_del(peer->stall); /* cannot fail for an event of ours */
}

void peer_set_side(Peer *peer, const PeerSide *side, void *consume_userdata)
{
        assert(peer->session && !peer->side);
        peer->side = side;
        peer->side_userdata = consume_userdata;
}

bool peer_has_side(const Peer *peer)
{
        return peer->side;
}

void *peer_get_side(const Peer *peer)
{
        return peer->side_userdata;
}

int peer_open_process(const Peer *peer)
{
        return peer->fd < 0 ? -1 : process_open(peer->fd);
}

Session *peer_get_session(const Peer *peer)
{
        return peer->session;
}

bool peer_is_open(const Peer *peer)
{
        return peer->fd >= 0 && !peer->is_dying && !peer->is_finishing;
}

const Cred *peer_get_cred(const Peer *peer)
{
        return &peer->config.cred;
}

const char *peer_get_comm(const Peer *peer)
{
        return peer->comm;
}

uint64_t peer_get_connected_ns(const Peer *peer)
{
        return peer->config.connected_ns;
}
