/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client whose foliod is killed, and who says HELLO to the next one: with a real store, ring and dispatch, real packets
 * and a real SIGKILL. The first foliod is a child; the second is this process, which plays the client too. The keeper is
 * a list (fake-keeper.h).
 */
#ifndef TESTS_UNIT_RESUME_FIXTURE_H
#define TESTS_UNIT_RESUME_FIXTURE_H

#include "restore-fixture.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/cleanup.h"
#include "daemon/server/dispatch.h"
#include "daemon/service/log.h"
#include "proto/beacon.h"
#include "proto/channel.h"
#include "proto/layout.h"
#include "proto/ring.h"

#define TURNS_MAX 200000

/* --- a foliod ----------------------------------------------------------------------------------------------------- */

typedef struct Server {
        Fixture f;
        StoreRestoreFacts facts;
        Poller *poller;
        DaemonBeacon *beacon;
        Ghosts *ghosts;
        Dispatch *dispatch;
        Peer *peers[4];
        size_t n_peers;
} Server;

static inline uint64_t clock_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline void flush(void *userdata)
{
        store_flush(((Server *)userdata)->f.store);
}

static inline void on_hangup(Peer *peer, void *userdata)
{
        Server *server = userdata;

        for (size_t i = 0; i < server->n_peers; i++)
                if (server->peers[i] == peer)
                        server->peers[i] = NULL;
        peer_unref(peer);
}

static inline void server_init(Server *server, Keeper *keeper)
{
        PollerConfig poller = { .now_ns = clock_ns, .cpu_ns = clock_ns, .flush = flush, .userdata = server };
        GhostsConfig ghosts = { .host = { .packed_bytes_max = MIB } };
        DispatchConfig dispatch = { .staging_bytes = 4 * MIB, .packed_bytes_max = MIB, .budget_bytes = 256 * MIB,
                                    .version = "test" };

        *server = (Server){ .n_peers = 0 };
        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        restore_begin(&server->f, NULL, keeper, &server->facts);
        assert_int_equal(poller_new(&poller, &server->poller), 0);
        ghosts.host.base = dispatch.base = server->f.base;
        ghosts.host.store = dispatch.store = server->f.store;
        ghosts.host.poller = dispatch.poller = server->poller;
        assert_int_equal(ghosts_new(&ghosts, &server->ghosts), 0);
        assert_int_equal(daemon_beacon_new(store_private_backend(server->f.store),
                                           store_instance(server->f.store), &server->beacon), 0);
        dispatch.beacon = server->beacon;
        dispatch.ghosts = server->ghosts;
        assert_int_equal(dispatch_new(&dispatch, &server->dispatch), 0);
}

static inline void server_add(Server *server, int consume_socket, uid_t uid)
{
        PeerConfig config = { .base = server->f.base, .cred = { .uid = uid, .gid = uid, .pid = getpid() },
                              .comm = "tester", .fds_in_flight_max = 16, .on_message = dispatch_message,
                              .message_userdata = server->dispatch, .on_hangup = on_hangup,
                              .hangup_userdata = server };

        assert_true(server->n_peers < ARRAY_SIZE(server->peers));
        assert_int_equal(peer_new(&config, consume_socket, &server->peers[server->n_peers++]), 0);
}

static inline void server_turn(Server *server, bool can_sleep)
{
        bool is_hot = poller_turn(server->poller);

        (void)event_base_loop(server->f.base, EVLOOP_ONCE | (is_hot || !can_sleep ? EVLOOP_NONBLOCK : 0));
        store_flush(server->f.store);
}

/* All of it goes, and what it had, too. */
static inline void server_deinit(Server *server)
{
        for (size_t i = 0; i < server->n_peers; i++)
                if (server->peers[i])
                        peer_close(server->peers[i]);
        ghosts_free(server->ghosts);
        fixture_settle(&server->f);
        store_free(server->f.store);
        poller_free(server->poller);
        dispatch_free(server->dispatch);
        daemon_beacon_free(server->beacon);
        worker_pool_free(server->f.workers);
        event_base_free(server->f.base);
}

/* --- a client ----------------------------------------------------------------------------------------------------- */

typedef struct Wire {
        int fd;
        Server *server;              /* that runs in this process; NULL: in another */
        ProtoDecoder *decoder;
        uint64_t last_id;
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        int fds[8];
        size_t n_fds;
} Wire;

/* What it keeps of one foliod to the next. */
typedef struct Client2 {
        uint64_t token;
        uint32_t number;
        int staging_fd, ring_fd, bell_fd, index_fd, pins_fd, watch_fd, beacon_fd;
        const Beacon *beacon;
        RingHeader *ring;
        RingRecord *records;
        const RingResult *results;
        uint64_t tail;
        uint32_t namespace_id;
} Client2;

static inline void wire_init(Wire *wire, int consume_fd, Server *server)
{
        *wire = (Wire){ .fd = consume_fd, .server = server };
        assert_int_equal(proto_decoder_new(&wire->decoder), 0);
}

static inline void wire_deinit(Wire *wire)
{
        proto_decoder_free(wire->decoder);
        if (wire->fd >= 0)
                close(wire->fd);
}

static inline ProtoReply wire_ask(Wire *wire, ProtoRequest request)
{
        ProtoReply reply;
        size_t n_bytes;

        request.id = ++wire->last_id;
        request.client_name = (Key){ "", 0 };
        if (request.verb == VERB_HELLO)
                request.client_name = key_of("raw");
        request.after = (Key){ "", 0 };
        assert_true(proto_encode_request(&request, wire->bytes, &n_bytes));
        assert_int_equal(channel_send(wire->fd, wire->bytes, n_bytes, NULL, 0), CHANNEL_OK);
        for (unsigned i = 0;; i++) {
                int r = channel_receive(wire->fd, wire->bytes, sizeof(wire->bytes), &n_bytes, wire->fds, 8,
                                        &wire->n_fds, NULL);

                if (r == CHANNEL_OK)
                        break;
                assert_int_equal(r, CHANNEL_E_AGAIN);
                assert_true(i < TURNS_MAX);
                if (wire->server)
                        server_turn(wire->server, false);
                else
                        assert_int_equal(poll(&(struct pollfd){ wire->fd, POLLIN, 0 }, 1, 60000), 1);
        }
        assert_true(proto_decode_reply(wire->decoder, wire->bytes, n_bytes, &reply));
        assert_true(reply.id == request.id);
        return reply;
}

static inline ProtoReply wire_hello(Wire *wire, uint64_t resume)
{
        ProtoReply reply = wire_ask(wire, (ProtoRequest){ .verb = VERB_HELLO, .version_min = PROTO_VERSION,
                                                          .version_max = PROTO_VERSION, .resume = resume });

        assert_int_equal(reply.status, STATUS_OK);
        assert_true(reply.has_welcome);
        assert_int_equal(wire->n_fds, reply.is_resumed ? 1 : 2);
        return reply;
}

static inline ProtoReply wire_open(Wire *wire)
{
        ProtoReply reply = wire_ask(wire, (ProtoRequest){ .verb = VERB_NAMESPACE_OPEN, .has_namespace = true,
                                                          .ns = { .name = "default" } });

        assert_int_equal(reply.status, STATUS_OK);
        assert_int_equal(wire->n_fds, 2);
        return reply;
}

static inline ProtoReply wire_item(Wire *wire, const Client2 *c, ProtoVerb verb, ProtoItem item)
{
        item.metadata = item.content_type = (Key){ "", 0 };
        if (!item.key.bytes)
                item.key = (Key){ "", 0 };
        return wire_ask(wire, (ProtoRequest){ .verb = verb, .namespace_id = c->namespace_id, .n_items = 1,
                                              .items = &item });
}

static inline void take_beacon(Client2 *c, int consume_fd)
{
        if (c->beacon)
                (void)munmap((void *)(uintptr_t)c->beacon, BEACON_BYTES);
        c->beacon = mmap(NULL, BEACON_BYTES, PROT_READ, MAP_SHARED, consume_fd, 0);
        assert_true(c->beacon != MAP_FAILED);
        assert_true(c->beacon->magic == BEACON_MAGIC);
        assert_true(beacon_is_lit(c->beacon));
        close(consume_fd);
}

/* Everything that a session can have. */
static inline void client_begin(Client2 *c, Wire *wire)
{
        ProtoReply reply = wire_hello(wire, 0);
        uint8_t *data;

        *c = (Client2){ .token = reply.session_token, .number = reply.session_number };
        assert_true(c->token != 0 && c->number != 0 && !reply.is_resumed);
        c->staging_fd = wire->fds[0];
        take_beacon(c, wire->fds[1]);
        c->namespace_id = wire_open(wire).namespaces[0].id;
        c->index_fd = wire->fds[0];
        c->pins_fd = wire->fds[1];
        assert_int_equal(wire_ask(wire, (ProtoRequest){ .verb = VERB_WATCH,
                                                        .namespace_id = c->namespace_id }).status, STATUS_OK);
        c->watch_fd = wire->fds[0];
        assert_int_equal(wire_ask(wire, (ProtoRequest){ .verb = VERB_RING }).status, STATUS_OK);
        assert_int_equal(wire->n_fds, 2);
        c->ring_fd = wire->fds[0];
        c->bell_fd = wire->fds[1];
        data = mmap(NULL, RING_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->ring_fd, 0);
        assert_true(data != MAP_FAILED);
        c->ring = (void *)data;
        c->records = (void *)(data + RING_RECORDS_OFFSET);
        c->results = (void *)(data + RING_RESULTS_OFFSET);
}

static inline void client_end(Client2 *c)
{
        const int fds[] = { c->staging_fd, c->index_fd, c->pins_fd, c->watch_fd, c->ring_fd, c->bell_fd };

        (void)munmap(c->ring, RING_REGION_BYTES);
        (void)munmap((void *)(uintptr_t)c->beacon, BEACON_BYTES);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                close(fds[i]);
}

static inline uint64_t ring_head(const Client2 *c)
{
        return atomic_load(&c->ring->head);
}

static inline RingRecord *next_record(Client2 *c, RingVerb verb)
{
        RingRecord *record = &c->records[c->tail % RING_RECORDS];

        *record = (RingRecord){ .verb = (uint8_t)verb, .namespace_id = c->namespace_id };
        return record;
}

static inline void set_key(RingRecord *record, unsigned n)
{
        record->key_bytes = (uint8_t)snprintf((char *)record->key, sizeof(record->key), "key-%06u", n);
}

static inline void publish(Client2 *c)
{
        if (ring_publish_tail(c->ring, ++c->tail))
                assert_int_equal(write(c->bell_fd, &(uint64_t){ 1 }, 8), 8);
}

/* Names its bytes after itself. */
static inline void put_by_ring(Client2 *c, unsigned n, uint32_t flags)
{
        RingRecord *record = next_record(c, RING_VERB_PUT);
        uint64_t offset = (uint64_t)n * 64 % (2 * MIB);

        set_key(record, n);
        assert_int_equal(pwrite(c->staging_fd, record->key, record->key_bytes, (off_t)offset), record->key_bytes);
        record->size_bytes = record->key_bytes;
        record->offset_bytes = offset;
        record->flags = flags;
        publish(c);
}

/* --- the first foliod, in a child --------------------------------------------------------------------------------- */

typedef struct First {
        pid_t pid;
        int kept;                    /* where what it keeps comes */
        Keeper *keeper;              /* and goes to */
        char *wish;                  /* shared with it: where it is to end by itself (daemon/store/fault.h); "": nowhere */
        Wire wire;
} First;

static inline void first_start(First *first)
{
        int clients[2], kept[2], size = 8 << 20;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, clients), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, kept), 0);
        (void)setsockopt(kept[1], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
        first->keeper = fake_keeper_new();
        first->wish = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(first->wish != MAP_FAILED);
        first->pid = fork();
        assert_true(first->pid >= 0);
        if (first->pid == 0) {
                static Server server;

                close(clients[0]);
                close(kept[0]);
                fake_keeper_set_remote(first->keeper, kept[1]);
                server_init(&server, first->keeper);
                server_add(&server, clients[1], geteuid());
                for (;;) {
                        if (*(volatile char *)first->wish)
                                (void)setenv("FOLIO_FAULT", first->wish, 1);
                        server_turn(&server, true);
                }
        }
        close(clients[1]);
        close(kept[1]);
        first->kept = kept[0];
        wire_init(&first->wire, clients[0], NULL);
}

/* What comes from here on is done with that wish. */
static inline void first_wish(First *first, const char *place, unsigned n)
{
        snprintf(first->wish, PAGE_BYTES, "%s:%u", place, n);
        assert_int_equal(wire_ask(&first->wire, (ProtoRequest){ .verb = VERB_PING }).status, STATUS_OK);
        assert_int_equal(wire_ask(&first->wire, (ProtoRequest){ .verb = VERB_PING }).status, STATUS_OK);
}

/* True: it has ended by itself; false: it has carried all out that is published. */
static inline bool first_wait(First *first, const Client2 *c)
{
        for (unsigned i = 0; i < 60000; i++) {
                siginfo_t info = { 0 };

                assert_int_equal(waitid(P_PID, (id_t)first->pid, &info, WEXITED | WNOWAIT | WNOHANG), 0);
                if (info.si_pid == first->pid)
                        return true;
                if (ring_head(c) == c->tail)
                        return false;
                (void)poll(NULL, 0, 1);
        }
        assert_true(false);
        return false;
}

static inline Keeper *first_kill(First *first)
{
        Keeper *keeper = first->keeper;
        int status;

        assert_int_equal(kill(first->pid, SIGKILL), 0);
        fake_keeper_collect(keeper, first->kept);
        close(first->kept);
        (void)munmap(first->wish, PAGE_BYTES);
        assert_int_equal(waitpid(first->pid, &status, 0), first->pid);
        assert_true(WIFSIGNALED(status));
        wire_deinit(&first->wire);
        return keeper;
}

static inline void second_connect(Server *server, Wire *wire, uid_t uid)
{
        int clients[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, clients), 0);
        server_add(server, clients[1], uid);
        wire_init(wire, clients[0], server);
}

static inline void wait_for_head(Server *server, const Client2 *c, uint64_t n)
{
        for (unsigned i = 0; ring_head(c) < n; i++) {
                assert_true(i < TURNS_MAX);
                server_turn(server, false);
        }
}

/* Events of one name that say it was put, in the index as a client of the second foliod has it. */
static inline uint64_t count_events(int index_fd, uint32_t session, uint64_t *ret_n_doubles)
{
        LayoutIndexHeader header;
        uint64_t n = 0, newest;
        uint64_t seen[4096] = { 0 };

        *ret_n_doubles = 0;
        assert_int_equal(pread(index_fd, &header, sizeof(header), 0), sizeof(header));
        newest = atomic_load(&header.event_sequence);
        for (uint64_t i = newest > header.n_events ? newest - header.n_events + 1 : 1; i <= newest; i++) {
                LayoutEvent event;
                uint64_t at = header.events_offset + layout_event_place(i, header.n_events) * sizeof(event);

                assert_int_equal(pread(index_fd, &event, sizeof(event), (off_t)at), sizeof(event));
                if (event.origin >> 32 != session)
                        continue;
                assert_true(layout_origin_is_record(event.origin));
                n++;
                if (seen[event.origin % 4096]++)
                        (*ret_n_doubles)++;
        }
        return n;
}

static inline bool same_file(int a, int b)
{
        struct stat first, second;

        assert_int_equal(fstat(a, &first), 0);
        assert_int_equal(fstat(b, &second), 0);
        return first.st_ino == second.st_ino;
}

#endif
