/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that writes whatever it likes into its ring, against the daemon's end of it and a store that checks what it
 * is asked for: never two operations at a time, every field in its place, and of an object that is being written only
 * such a one as was created through this ring.
 *
 * Input: steps of one byte and what belongs to it.
 *   0 and 128 bytes   a record at the tail, which moves on by one     4   the oldest operation under way ends
 *   1 and 8 bytes     the tail                                        5 and 1 byte   what becomes of operations
 *   2, 2 and 8 bytes  eight bytes anywhere in the ring                6   the bell
 *   3                 a turn                                          7   a message, before which all must be done
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/macro.h"
#include "daemon/server/ring.h"
#include "daemon/service/log.h"
#include "proto/channel.h"
#include "proto/layout.h"
#include "proto/ring.h"
#include "tests/fuzz/replay.h"

#define SESSION_NUMBER 7
#define TURNS_PER_STEP_MAX 64
#define OBJECTS_MAX 4096u
#define MESSAGES_MAX 1024u           /* more than the kernel keeps */

struct Session {
        RingHeader *ring;
        bool is_closed;
};

typedef struct Input {
        const uint8_t *bytes;
        size_t n_bytes;
} Input;

typedef struct World {
        struct event_base *base;
        Poller *poller;
        Session session;
        Peer *peer;                  /* NULL: it has hung up */
        RingHeader *ring;            /* the client's mapping */
        int client, bell_fd;
        StoreOp *op;                 /* under way */
        uint8_t fate;                /* bit 0: operations fail; 1: with a sentence; 2: they take longer */
        uint64_t now_ns;
        uint32_t n_created;
        bool is_written[OBJECTS_MAX];
        bool is_disorderly;          /* the client wrote more than records and the tails that go with them */
        uint64_t tails_at_send[MESSAGES_MAX];
        uint32_t n_sent, n_received; /* messages */
} World;

static World world;

/* --- the store ---------------------------------------------------------------------------------------------------- */

static void end(StoreOp *op)
{
        const uint32_t slot = op->item->slot;

        op->status = world.fate & 1 ? STATUS_FULL : STATUS_OK;
        op->detail = world.fate & 2 && op->status != STATUS_OK ? strdup("there is no room") : NULL;
        op->slot = 0;
        op->generation = 0;
        op->fd = op->book_fd = -1;
        if (op->status == STATUS_OK && op->verb == VERB_CREATE) {
                op->slot = world.n_created % OBJECTS_MAX;
                op->generation = ++world.n_created;
                world.is_written[op->slot] = true;
        } else if ((op->status == STATUS_OK && op->verb == VERB_SEAL) || op->verb == VERB_ABORT) {
                world.is_written[slot] = false;
        }
        op->done(op);
}

static void check_named(const StoreOp *op)
{
        const ProtoItem *item = op->item;

        if (item->flags & PROTO_ITEM_BY_SLOT) {
                assert(item->key.n_bytes == 0);
                return;
        }
        assert(item->slot == 0 && item->generation == 0);
        assert(item->key.n_bytes <= RING_KEY_BYTES_MAX && key_is_valid(item->key.bytes, item->key.n_bytes));
}

static void check_op(const StoreOp *op)
{
        const ProtoItem *item = op->item;
        uint32_t flags = item->flags & ~PROTO_ITEM_BY_SLOT;

        check_named(op);
        assert(op->origin >> 32 == SESSION_NUMBER && layout_origin_is_record(op->origin));
        assert(item->metadata.n_bytes == 0 && item->content_type.n_bytes == 0 && item->capacity_bytes == 0);
        assert(op->leased_region_id == 0 || op->verb == VERB_PUT || op->verb == VERB_CREATE);
        assert(item->offset_bytes == 0 || op->leased_region_id != 0);
        switch ((int)op->verb) {
        case VERB_PUT:
                assert(!(flags & ~FOLIO_REPLACE) && item->key.n_bytes > 0);
                assert(item->staging_offset == 0 || op->leased_region_id == 0);
                break;
        case VERB_CREATE:
                assert(!(flags & ~(FOLIO_REPLACE | PROTO_ITEM_STAGED)) && item->key.n_bytes > 0);
                assert(!(flags & PROTO_ITEM_STAGED) == (op->leased_region_id != 0));
                break;
        case VERB_SEAL:
        case VERB_ABORT:
                assert(item->flags & PROTO_ITEM_BY_SLOT && item->slot < OBJECTS_MAX);
                assert(world.is_written[item->slot] && item->size_bytes == 0);
                assert(world.n_created > OBJECTS_MAX || item->generation == item->slot + 1);
                break;
        case VERB_DELETE:
                assert(!(flags & ~PROTO_ITEM_IF_EXISTS));
                break;
        case VERB_RELEASE:
                assert(flags == 0 && item->flags & PROTO_ITEM_BY_SLOT);
                break;
        case VERB_TRUNCATE:
                assert(flags == 0);
                break;
        default:
                abort();
        }
}

void store_submit(Store *store, StoreOp *op)
{
        assert(!world.op && op->session == &world.session && !world.session.is_closed);
        check_op(op);
        if (world.fate & 4)
                world.op = op;
        else
                end(op);
}

/* A hint; whatever is in the ring, its key lies there whole. */
uint64_t store_expect(Store *store, uint32_t namespace_id, Key key)
{
        assert(key.n_bytes > 0 && key.n_bytes <= RING_KEY_BYTES_MAX);
        return 1;
}

void store_expect_object(Store *store, uint32_t namespace_id, uint64_t hash)
{
        assert(hash == 1);
}

Status session_charge_ring(Session *session, uint64_t n_bytes, char **ret_detail)
{
        return STATUS_OK;
}

void session_set_ring(Session *session, struct RingHeader *ring,
                      bool (*is_drained)(void *userdata, uint64_t region_id), void *userdata)
{
        session->ring = ring;
}

void session_close(Session *session)
{
        session->is_closed = true;
}

/* Nobody keeps anything here, and no daemon comes after this one. */
void session_leave(Session *session)
{
        abort();
}

void session_keep_ring(Session *session, int ring_fd, int bell_fd)
{
}

struct SessionRing *session_get_restored_ring(Session *session)
{
        return NULL;
}

uint32_t session_number(const Session *session)
{
        return SESSION_NUMBER;
}

/* --- what stands around it ---------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
        return world.now_ns += 1000;
}

static void flush(void *userdata)
{
}

static void on_message(Peer *peer, const void *bytes, size_t n_bytes, void *userdata)
{
        uint64_t tail = world.tails_at_send[world.n_received++ % MESSAGES_MAX];

        /* Where the client has not changed these numbers itself: nothing that came before has been overtaken. */
        assert(world.is_disorderly || world.ring->head >= tail);
}

static void on_hangup(Peer *peer, void *userdata)
{
        world.peer = NULL;
        peer_unref(peer);
}

static void begin(void)
{
        PollerConfig poller_config = { .spin_ns_max = 5000, .now_ns = now_ns, .cpu_ns = now_ns, .flush = flush };
        PeerConfig peer_config = { .base = world.base, .comm = "fuzz", .now_ns = now_ns, .on_message = on_message,
                                   .on_hangup = on_hangup };
        RingHost host = { .base = world.base, .packed_bytes_max = MIB, .now_ns = now_ns };
        DaemonRing *ring;
        char *detail;
        int sockets[2];

        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        if (!world.base)
                world.base = peer_config.base = host.base = event_base_new();
        if (!world.base || poller_new(&poller_config, &world.poller) < 0 ||
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) < 0 ||
            peer_new(&peer_config, sockets[1], &world.peer) < 0)
                abort();
        world.client = sockets[0];
        peer_set_session(world.peer, &world.session);
        host.poller = world.poller;
        if (daemon_ring_new(&host, world.peer, &ring, &detail) != STATUS_OK)
                abort();
        world.ring = mmap(NULL, RING_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, daemon_ring_fd(ring), 0);
        world.bell_fd = dup(daemon_ring_bell_fd(ring));
        if (world.ring == MAP_FAILED || world.bell_fd < 0)
                abort();
}

static void end_oldest(void)
{
        StoreOp *op = world.op;

        world.op = NULL;
        if (op)
                end(op);
}

static void turn(void)
{
        (void)poller_turn(world.poller);
        if (event_base_loop(world.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) < 0)
                abort();
}

/* What was published at the hang-up is done, and no more; and nothing is left behind. */
static void finish(void)
{
        (void)close(world.client);
        for (unsigned i = 0; world.peer && i < TURNS_PER_STEP_MAX; i++) {
                turn();
                end_oldest();
        }
        if (world.peer)
                peer_close(world.peer); /* it went on writing */
        assert(world.session.is_closed && !poller_has_hot(world.poller));
        end_oldest();
        (void)munmap(world.ring, RING_REGION_BYTES);
        (void)close(world.bell_fd);
        poller_free(world.poller);
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static void take(Input *input, void *to, size_t n_bytes)
{
        size_t n = MIN(n_bytes, input->n_bytes);

        memset(to, 0, n_bytes);
        if (n > 0)
                memcpy(to, input->bytes, n);
        input->bytes += n;
        input->n_bytes -= n;
}

static void step(Input *input, uint8_t kind)
{
        uint8_t *memory = (uint8_t *)world.ring;
        uint64_t word = 1, tail = world.ring->tail;
        uint16_t at;

        switch (kind % 8) {
        case 0:
                take(input, memory + sizeof(RingHeader) + tail % RING_RECORDS * sizeof(RingRecord), sizeof(RingRecord));
                (void)ring_publish_tail(world.ring, tail + 1);
                break;
        case 1:
                take(input, &word, sizeof(word));
                world.is_disorderly = true;
                (void)ring_publish_tail(world.ring, word);
                break;
        case 2:
                take(input, &at, sizeof(at));
                take(input, &word, sizeof(word));
                world.is_disorderly = true;
                memcpy(memory + (uint64_t)at * 8 % RING_REGION_BYTES, &word, sizeof(word));
                break;
        case 3:
                turn();
                break;
        case 4:
                end_oldest();
                break;
        case 5:
                take(input, &world.fate, 1);
                break;
        case 6:
                if (write(world.bell_fd, &word, sizeof(word)) < 0)
                        return; /* it rings already */
                break;
        case 7:
                if (channel_send(world.client, "m", 1, NULL, 0) == CHANNEL_OK)
                        world.tails_at_send[world.n_sent++ % MESSAGES_MAX] = tail;
                break;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
        struct event_base *base = world.base;
        Input input = { bytes, n_bytes };
        uint8_t kind;

        world = (World){ .base = base, .now_ns = 1000 };
        begin();
        while (input.n_bytes > 0) {
                take(&input, &kind, 1);
                step(&input, kind);
        }
        for (unsigned i = 0; i < 4; i++)
                turn();
        finish();
        return 0;
}
