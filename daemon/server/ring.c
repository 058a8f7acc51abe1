/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring is *hot* while the poller looks at it, and *cold* while its bell hangs. While an operation is under way it is
 * neither: nobody looks, the bell is down, and the end of the operation goes on with it. Where the poller has no room a
 * ring has a turn on the loop for each ring of its bell, and hangs it again when it is empty.
 *
 * One operation at a time, embedded here, and no memory is taken for a record. What the client could change under our
 * eyes is copied once, in words, and never looked at again.
 *
 * A ring whose client has not come back after a restart has no peer: it is carried out all the same, and nobody is told
 * of rules that it breaks.
 *
 * Over 600 lines: how a ring begins, has its turns, waits and ends is one state, and all of it looks at that.
 */
#include "daemon/server/ring.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/ring-memory.h"
#include "daemon/server/ring-record.h"
#include "daemon/server/ring-resume.h"
#include "daemon/server/trace.h"
#include "daemon/store/fault.h"
#include "daemon/store/session.h"
#include "proto/layout.h"
#include "proto/ring.h"
#include "proto/seqlock.h"

#define RECORDS_PER_LOOK 8u          /* between two looks at the clock */
/*
 * The head is told after so many records, and where somebody waits for one or there is no more: who waits for room looks at
 * it all the time, and each change of it takes the line away from him, and him from us.
 */
#define RECORDS_PER_HEAD 16u
#define RECORDS_FETCHED 12u          /* ahead: they lie in the client's cache */
#define RECORDS_AHEAD 4u             /* copied before it is their turn, so that what they are about can be fetched too */
#define OBJECTS_AHEAD 2u

struct DaemonRing {
        unsigned n_references;       /* the peer's or the ghost's, and that of an operation under way */
        RingHost host;
        Peer *peer;                  /* NULL: a ghost's, or closed */
        uint32_t session_number;
        bool is_open;
        bool is_restored;
        bool is_left;                /* to another foliod: what comes of an operation under way, that one finds out */
        RingMemory memory;
        int bell_fd;
        RingHeader *header;
        const RingRecord *records;
        RingResult *results;
        uint64_t head;               /* records carried out */
        uint64_t told_head;          /* as the client knows it */
        uint64_t tail;               /* as last seen, and believed */
        uint64_t n_failed;
        bool is_submitting;          /* the store has it this moment */
        bool is_busy;                /* an operation is under way */
        bool is_broken;              /* a rule was: nothing more is carried out */
        PollerItem item;
        struct event *bell;
        struct event *resume;        /* for turns without the poller */
        uint64_t drain_until;        /* where @rest is to be called */
        void (*rest)(void *userdata); /* NULL: nobody waits */
        void *rest_userdata;
        StoreOp op;
        ProtoItem op_item;
        uint64_t n_copied;           /* records, by their number: up to here */
        struct {
                RingRecord record;   /* the copy */
                uint64_t hash;       /* of its key; 0: not known */
        } ahead[RECORDS_AHEAD];
        RingRecord *record;          /* of them the one under way */
        RingMade made[RING_MADE_MAX];
};

static RingFacts facts;

static uint64_t monotonic_ns(void)
{
        struct timespec now;

        if (clock_gettime(CLOCK_MONOTONIC, &now) < 0)
                return 0;
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- what the client sees ----------------------------------------------------------------------------------------- */

static void wake_sleepers(DaemonRing *ring)
{
        /* Not PRIVATE: they are another process. That nobody sleeps is no error; nothing else can go wrong. */
        if (ring_has_sleepers(ring->header))
                (void)syscall(SYS_futex, &ring->header->head_futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The sentence of a failure, where the client has read the last one. */
static void write_failure(DaemonRing *ring, Status status, const char *sentence)
{
        RingHeader *header = ring->header;
        size_t n_bytes = sentence ? strnlen(sentence, RING_FAILURE_BYTES_MAX) : 0;

        if (n_bytes == 0 || atomic_load_explicit(&header->failure_sequence, memory_order_acquire) != 0)
                return;
        header->failure_status = (uint32_t)status;
        header->failure_bytes = (uint32_t)n_bytes;
        memcpy(header->failure_text, sentence, n_bytes);
        atomic_store_explicit(&header->failure_sequence, ring->head + 1, memory_order_release);
}

static void write_result(DaemonRing *ring, Status status, uint32_t slot, uint64_t generation)
{
        RingResult *result = &ring->results[ring->head % RING_RECORDS];

        result->status = (uint32_t)status;
        result->slot = slot;
        result->generation = generation;
        atomic_store_explicit(&result->sequence, (uint32_t)(ring->head + 1), memory_order_release);
}

static void report_failure(DaemonRing *ring, Status status, const char *sentence)
{
        ring->n_failed++;
        write_failure(ring, status, sentence);
        atomic_store_explicit(&ring->header->n_failed, ring->n_failed, memory_order_relaxed); /* head publishes it */
        if (!ring->peer)
                return;
        trace_refusal(peer_get_comm(ring->peer), peer_get_cred(ring->peer), ring_record_verb(ring->record),
                      ring->record->key_bytes <= RING_KEY_BYTES_MAX
                              ? (Key){ (const char *)ring->record->key, ring->record->key_bytes }
                              : (Key){ "", 0 },
                      status, sentence);
        if (status == STATUS_INTERNAL)
                peer_log_failure(ring->peer, "a record of a ring", sentence ? sentence : "no reason was given");
}

static void publish_head(DaemonRing *ring)
{
        if (ring->head == ring->told_head)
                return;
        ring->told_head = ring->head;
        ring_publish_head(ring->header, ring->head);
}

/* The record at head has been carried out, and this came of it. */
static void finish_record(DaemonRing *ring, Status status, const char *sentence, uint32_t slot, uint64_t generation)
{
        FAULT("ring.done");
        ring_record_settle(ring->record, ring->made, status, slot, generation);
        if (UNLIKELY(status != STATUS_OK) || ring->record->flags & RING_FLAG_RESULT)
                write_result(ring, status, slot, generation);
        if (UNLIKELY(status != STATUS_OK))
                report_failure(ring, status, sentence);
        FAULT("ring.answered");
        ring->head++;
        atomic_store_explicit(&ring->header->carried_out, ring->head, memory_order_release);
        FAULT("ring.counted");
        facts.n_records++;
        if (ring->record->flags & RING_FLAG_RESULT || ring->head % RECORDS_PER_HEAD == 0)
                publish_head(ring);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

static void break_rule(DaemonRing *ring, const char *rule)
{
        ring->is_broken = true;
        if (ring->peer)
                peer_breach(ring->peer, "%s", rule);
}

/* False: a rule was broken, now or before. */
static bool look_at_tail(DaemonRing *ring)
{
        uint64_t tail = atomic_load_explicit(&ring->header->tail, memory_order_acquire);

        if (UNLIKELY(ring->is_broken))
                return false;
        if (UNLIKELY(tail < ring->tail || tail - ring->head > RING_RECORDS)) {
                break_rule(ring, tail < ring->tail ? "the tail of a ring only grows"
                                                   : "the tail of a ring is at most 512 records ahead of its head");
                return false;
        }
        ring->tail = tail;
        return true;
}

static void settle_op(DaemonRing *ring)
{
        StoreOp *op = &ring->op;

        ring->is_busy = false;
        /* Nobody here can be given one. */
        op->fd = close_fd(op->fd);
        op->book_fd = close_fd(op->book_fd);
        if (LIKELY(!ring->is_left))
                finish_record(ring, op->status, op->detail, op->slot, op->generation);
        if (UNLIKELY(op->detail))
                free(steal_ptr(&op->detail));
}

/*
 * Copies records that are published, the one at head at least: from then on the client can do nothing to them. And has
 * fetched what they will be about: first the bucket of the name, and then what that leads to.
 */
static void look_ahead(DaemonRing *ring, uint64_t until)
{
        Store *store = ring->host.store;

        static_assert(sizeof(RingRecord) % 8 == 0, "it is copied in words");
        if (until - ring->head > RECORDS_FETCHED) {
                const RingRecord *fetched = &ring->records[(ring->head + RECORDS_FETCHED) % RING_RECORDS];

                __builtin_prefetch(fetched);
                __builtin_prefetch(&fetched->key[8]);
        }
        if (ring->n_copied < ring->head)
                ring->n_copied = ring->head;
        for (; ring->n_copied < until && ring->n_copied - ring->head < RECORDS_AHEAD; ring->n_copied++) {
                RingRecord *record = &ring->ahead[ring->n_copied % RECORDS_AHEAD].record;
                uint64_t *hash = &ring->ahead[ring->n_copied % RECORDS_AHEAD].hash;

                seqlock_copy_out(record, &ring->records[ring->n_copied % RING_RECORDS], sizeof(*record) / 8);
                *hash = 0;
                if (record->key_bytes > 0 && record->key_bytes <= RING_KEY_BYTES_MAX)
                        *hash = store_expect(store, record->namespace_id,
                                             (Key){ (const char *)record->key, record->key_bytes });
        }
        if (ring->n_copied - ring->head > OBJECTS_AHEAD) {
                unsigned next = (ring->head + OBJECTS_AHEAD) % RECORDS_AHEAD;

                if (ring->ahead[next].hash)
                        store_expect_object(store, ring->ahead[next].record.namespace_id, ring->ahead[next].hash);
        }
}

/* The record at head, begun; and ended, unless it is busy then. */
static void begin_record(DaemonRing *ring)
{
        Status status = STATUS_OK;
        const char *sentence = NULL;

        ring->record = &ring->ahead[ring->head % RECORDS_AHEAD].record;
        ring->op.hash = ring->ahead[ring->head % RECORDS_AHEAD].hash;
        ring->op.origin = layout_origin_of_record(ring->session_number, ring->head);
        switch (ring_record_translate(ring->record, ring->made, ring->host.packed_bytes_max, &ring->op, &ring->op_item,
                                      &status, &sentence)) {
        case RING_FATE_SUBMIT:
                ring->is_busy = ring->is_submitting = true;
                store_submit(ring->host.store, &ring->op);
                ring->is_submitting = false;
                if (UNLIKELY(ring->is_busy)) {
                        ring->n_references++;
                        poller_remove(ring->host.poller, &ring->item);
                }
                break;
        case RING_FATE_REFUSED:
                finish_record(ring, status, sentence, 0, 0);
                break;
        case RING_FATE_BREACH:
                break_rule(ring, sentence);
                break;
        }
}

static void tell_drained(DaemonRing *ring)
{
        void (*rest)(void *userdata) = ring->rest;

        if (!rest || (!ring->is_broken && ring->head < ring->drain_until))
                return;
        ring->rest = NULL;
        rest(ring->rest_userdata);
}

/* Records up to @until, @n_max of them and not much longer than a turn. True: there was something. */
static bool carry_out(DaemonRing *ring, uint64_t until, unsigned n_max)
{
        uint64_t until_ns = 0;
        unsigned n = 0;

        while (ring->head != until && n < n_max && !ring->is_busy && !ring->is_broken) {
                /* Who asks for little does not pay for the clock. */
                if (UNLIKELY(n > 0 && n % RECORDS_PER_LOOK == 0)) {
                        uint64_t now_ns = ring->host.now_ns();

                        if (until_ns == 0)
                                until_ns = now_ns + RING_TURN_NS;
                        else if (now_ns > until_ns)
                                break;
                }
                look_ahead(ring, until);
                begin_record(ring);
                n++;
        }
        if (n > 0) {
                publish_head(ring);
                wake_sleepers(ring);
        }
        tell_drained(ring);
        return n > 0;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

static bool take_turn(PollerItem *item)
{
        DaemonRing *ring = CONTAINER_OF(item, DaemonRing, item);

        if (!look_at_tail(ring)) {
                poller_remove(ring->host.poller, item);
                tell_drained(ring);
                return false;
        }
        return ring->head != ring->tail && carry_out(ring, ring->tail, RING_TURN_RECORDS);
}

/* True: something came just before it hung. */
static bool hang_bell(PollerItem *item)
{
        DaemonRing *ring = CONTAINER_OF(item, DaemonRing, item);

        return !ring->is_broken && ring_hang_bell(ring->header, ring->head);
}

/* A turn later on the loop. */
static void put_off(DaemonRing *ring)
{
        /* A timer, not event_active(): the loop looks at all others before it runs. */
        static const struct timeval at_once = { 0, 0 };

        if (event_add(ring->resume, &at_once) < 0 && ring->peer)
                peer_log_failure(ring->peer, "a turn of a ring", "there is no memory for an event");
}

/* There is something, or may be: somebody looks at it from here on. Perhaps inside the store. */
static void go_on(DaemonRing *ring)
{
        if (!ring->is_open || ring->is_busy || ring->is_broken)
                return;
        if (!poller_heat(ring->host.poller, &ring->item))
                put_off(ring);
}

static void on_bell(evutil_socket_t fd, short what, void *userdata)
{
        DaemonRing *ring = userdata;

        facts.n_bells++;
        /* It may say what it likes: how often we move is bounded. What it has rung for does not wait for that. */
        if (atomic_load_explicit(&ring->header->bell_cpu, memory_order_relaxed) == (uint32_t)(sched_getcpu() + 1)) {
                if (!ring->is_busy && !ring->is_broken)
                        (void)take_turn(&ring->item); /* whether there was something does not matter */
                poller_meet(ring->host.poller);
        }
        go_on(ring);
}

/* The poller has no room, or had none. */
static void on_resume(evutil_socket_t fd, short what, void *userdata)
{
        DaemonRing *ring = userdata;

        if (ring->is_busy || ring->is_broken || poller_is_hot(&ring->item))
                return;
        (void)take_turn(&ring->item); /* whether there was something does not matter: the bell tells */
        if (!ring->is_busy && !ring->is_broken && hang_bell(&ring->item))
                put_off(ring);
}

static void daemon_ring_unref(DaemonRing *ring);

static void on_op_done(StoreOp *op)
{
        DaemonRing *ring = op->userdata;

        settle_op(ring);
        if (ring->is_submitting)
                return;
        publish_head(ring);
        wake_sleepers(ring);
        tell_drained(ring);
        go_on(ring);
        daemon_ring_unref(ring); /* the operation's */
}

bool daemon_ring_drain(DaemonRing *ring, void (*rest)(void *userdata), void *userdata)
{
        if (!look_at_tail(ring))
                return true; /* nothing more is carried out, ever */
        if (LIKELY(ring->head == ring->tail))
                return true;
        ring->rest = NULL;
        (void)carry_out(ring, ring->tail, RING_RECORDS);
        if (ring->head == ring->tail || ring->is_broken)
                return true;
        ring->drain_until = ring->tail;
        ring->rest = rest;
        ring->rest_userdata = userdata;
        go_on(ring);
        return false;
}

/*
 * For the store, which looks whether a lease is out of use. It may ask from within an operation of this very ring, which
 * wants the memory. Who changes what is published meanwhile is refused when its turn comes.
 */
static bool is_drained(void *userdata, uint64_t region_id)
{
        const DaemonRing *ring = userdata;
        uint64_t tail = atomic_load_explicit(&ring->header->tail, memory_order_acquire);

        if (ring->is_busy && ring->record->region_id == region_id)
                return false;
        if (ring->is_broken || tail == ring->head)
                return true;
        if (tail - ring->head > RING_RECORDS)
                return false; /* a rule is broken, which has not been noticed yet */
        for (uint64_t n = ring->head + ring->is_busy; n != tail; n++)
                if (*(const volatile uint64_t *)&ring->records[n % RING_RECORDS].region_id == region_id)
                        return false;
        return true;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static void free_event(struct event **event)
{
        if (*event)
                event_free(*event);
        *event = NULL;
}

static void daemon_ring_unref(DaemonRing *ring)
{
        if (--ring->n_references > 0)
                return;
        assert(!ring->is_busy && !poller_is_hot(&ring->item));
        free_event(&ring->bell);
        free_event(&ring->resume);
        ring_memory_deinit(&ring->memory);
        (void)close_fd(ring->bell_fd);
        free(ring);
}

DEFINE_CLEANUP(DaemonRing *, cleanup_ring, daemon_ring_unref)

static bool side_drain(void *userdata, void (*rest)(void *userdata), void *rest_userdata)
{
        return daemon_ring_drain(userdata, rest, rest_userdata);
}

/*
 * What is published now is carried out, what comes from here on is not. An operation that is still under way, where the
 * connection is ended by force, has the last word.
 */
static void side_close(void *userdata)
{
        daemon_ring_close(userdata);
}

static void side_leave(void *userdata)
{
        daemon_ring_leave(userdata);
}

void daemon_ring_leave(DaemonRing *ring)
{
        ring->is_broken = ring->is_left = true;
        daemon_ring_close(ring);
}

void daemon_ring_close(DaemonRing *ring)
{
        ring->rest = NULL;
        if (look_at_tail(ring))
                while (carry_out(ring, ring->tail, RING_RECORDS))
                        ;
        poller_remove(ring->host.poller, &ring->item);
        free_event(&ring->bell);
        free_event(&ring->resume);
        ring->is_broken = true; /* whoever looks */
        ring->is_open = false;
        ring->peer = NULL;
        facts.n_rings--;
}

static void side_release(void *userdata)
{
        daemon_ring_unref(userdata);
}

void daemon_ring_release(DaemonRing *consume_ring)
{
        daemon_ring_unref(consume_ring);
}

/* With neither memory nor bell; NULL: no memory for it. */
static DaemonRing *make_empty(const RingHost *host, Session *session)
{
        DaemonRing *ring = calloc(1, sizeof(*ring));

        if (!ring)
                return NULL;
        ring->n_references = 1;
        ring->memory = (RingMemory)RING_MEMORY_NULL;
        ring->bell_fd = -1;
        ring->host = *host;
        ring->host.now_ns = host->now_ns ? host->now_ns : monotonic_ns;
        ring->session_number = session_number(session);
        poller_item_init(&ring->item);
        ring->item.turn = take_turn;
        ring->item.cool = hang_bell;
        ring->op = (StoreOp){ .session = session, .item = &ring->op_item, .done = on_op_done, .userdata = ring,
                              .fd = -1, .book_fd = -1 };
        return ring;
}

/* It has both: from here on it can be rung for. */
static int open_ring(DaemonRing *ring)
{
        ring->header = ring->memory.header;
        ring->records = (const void *)((const uint8_t *)ring->header + RING_RECORDS_OFFSET);
        ring->results = (void *)((uint8_t *)ring->header + RING_RESULTS_OFFSET);
        /* By edges: each write is one, and nobody need read the number. */
        ring->bell = event_new(ring->host.base, ring->bell_fd, EV_READ | EV_PERSIST | EV_ET, on_bell, ring);
        ring->resume = event_new(ring->host.base, -1, 0, on_resume, ring);
        return !ring->bell || !ring->resume || event_add(ring->bell, NULL) < 0 ? -ENOMEM : 0;
}

/* Nothing can fail any more. */
static void start_ring(DaemonRing *ring)
{
        ring->is_open = true;
        facts.n_rings++;
}

static int make_ring(const RingHost *host, Session *session, DaemonRing **ret)
{
        _cleanup_(cleanup_ring) DaemonRing *ring = make_empty(host, session);
        int r;

        if (!ring)
                return -ENOMEM;
        r = ring_memory_init(&ring->memory);
        if (r < 0)
                return r;
        ring->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (ring->bell_fd < 0)
                return -errno;
        r = open_ring(ring);
        if (r == 0)
                *ret = steal_ptr(&ring);
        return r;
}

/* The session's leases look at it from now on. */
static void join(DaemonRing *consume_ring, Peer *peer)
{
        static const PeerSide side = { side_drain, side_close, side_leave, side_release };

        consume_ring->peer = peer;
        session_set_ring(peer_get_session(peer), consume_ring->header, is_drained, consume_ring);
        peer_set_side(peer, &side, consume_ring);
}

Status daemon_ring_new(const RingHost *host, Peer *peer, DaemonRing **ret, char **ret_detail)
{
        _cleanup_(cleanup_ring) DaemonRing *ring = NULL;
        Session *session = peer_get_session(peer);
        Status status;
        int r;

        *ret_detail = NULL;
        r = make_ring(host, session, &ring);
        if (r < 0) {
                if (asprintf(ret_detail, "a ring could not be made: %s", strerror(-r)) < 0)
                        *ret_detail = NULL; /* without memory for it, no sentence */
                return STATUS_INTERNAL;
        }
        status = session_charge_ring(session, RING_REGION_BYTES, ret_detail);
        if (status != STATUS_OK)
                return status;
        start_ring(ring);
        session_keep_ring(session, ring->memory.fd, ring->bell_fd);
        *ret = ring;
        join(steal_ptr(&ring), peer);
        return STATUS_OK;
}

/* --- ghosts' ------------------------------------------------------------------------------------------------------ */

int daemon_ring_restore(const RingHost *host, Session *session, DaemonRing **ret)
{
        _cleanup_(cleanup_ring) DaemonRing *ring = make_empty(host, session);
        SessionRing *from = session_get_restored_ring(session);
        int r;

        *ret = NULL;
        if (!ring)
                return -ENOMEM;
        ring->bell_fd = steal_fd(&from->bell_fd);
        r = ring_memory_restore(&ring->memory, steal_fd(&from->fd));
        if (r == 0)
                r = open_ring(ring);
        if (r < 0)
                return r;
        ring->is_restored = true;
        /* The client has the index of the one before still, and must not look there for what is carried out from now on. */
        (void)atomic_fetch_add_explicit(&ring->header->n_restarts, 1, memory_order_seq_cst);
        ring->told_head = atomic_load_explicit(&ring->header->head, memory_order_relaxed);
        ring->n_failed = atomic_load_explicit(&ring->header->n_failed, memory_order_relaxed);
        ring->head = ring_resume(from, ring->records, ring->results, ring->made);
        ring->tail = from->tail;
        ring->n_copied = ring->head;
        free(steal_ptr(&from->made));
        start_ring(ring);
        atomic_store_explicit(&ring->header->carried_out, ring->head, memory_order_release);
        publish_head(ring);
        wake_sleepers(ring);
        *ret = steal_ptr(&ring);
        return 0;
}

void daemon_ring_start(DaemonRing *ring)
{
        go_on(ring);
}

void daemon_ring_attach(DaemonRing *consume_ring, Peer *peer)
{
        DaemonRing *ring = consume_ring;

        join(ring, peer);
        go_on(ring);
}

bool daemon_ring_is_broken(const DaemonRing *ring)
{
        return ring->is_broken;
}

bool daemon_ring_is_restored(const DaemonRing *ring)
{
        return ring->is_restored;
}

int daemon_ring_fd(const DaemonRing *ring)
{
        return ring->memory.fd;
}

int daemon_ring_bell_fd(const DaemonRing *ring)
{
        return ring->bell_fd;
}

void daemon_ring_get_facts(RingFacts *ret)
{
        *ret = facts;
}
