/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end of a ring, with a client that is a second mapping of its memory, a real connection, and a scripted
 * store: order, results, what waits for what, and what comes of a client that writes whatever it likes. Over 600 lines:
 * all of it is one fixture's.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/macro.h"
#include "daemon/server/ring.h"
#include "daemon/service/log.h"
#include "fail-alloc.h"
#include "fake-store.h"
#include "proto/channel.h"
#include "proto/ring.h"

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

#define TURNS_MAX 2000
#define SEEN_MAX 8192

typedef struct Client {
        int fd;
        Peer *peer;                  /* NULL: it has hung up */
        DaemonRing *ring;
        RingHeader *header;
        RingRecord *records;
        const RingResult *results;
        int bell_fd;                 /* as it arrived: a duplicate */
        uint64_t tail;
        unsigned n_messages;
        size_t n_submitted_before;   /* the last message */
} Client;

typedef struct Fixture {
        struct event_base *base;
        Poller *poller;
        RingHost host;
        Client client;
        Client others[POLLER_ITEMS_MAX + 2];
        unsigned n_flushes;
        uint64_t now_ns, step_ns;
        uint64_t sizes_seen[SEEN_MAX]; /* of what the store was asked for, in order */
        size_t n_seen;
} Fixture;

static Fixture f;

/* --- what stands around it ---------------------------------------------------------------------------------------- */

static uint64_t step_clock(void)
{
        f.now_ns += f.step_ns;
        return f.now_ns;
}

static void flush(void *userdata)
{
        f.n_flushes++;
}

static void see(StoreOp *op)
{
        assert_true(f.n_seen < SEEN_MAX);
        f.sizes_seen[f.n_seen++] = op->item->size_bytes;
}

static void on_message(Peer *peer, const void *bytes, size_t n_bytes, void *userdata)
{
        Client *client = userdata;

        assert_int_equal(n_bytes, ++client->n_messages); /* each is one longer than the last */
        client->n_submitted_before = fake.n_submitted;
}

static void on_hangup(Peer *peer, void *userdata)
{
        Client *client = userdata;

        assert_ptr_equal(client->peer, peer);
        client->peer = NULL;
        peer_unref(peer);
}

static void connect_peer(Client *client)
{
        PeerConfig config = { .base = f.base, .cred = { .uid = 5, .pid = 6 }, .comm = "tester", .now_ns = step_clock,
                              .fds_in_flight_max = 16, .on_message = on_message, .message_userdata = client,
                              .on_hangup = on_hangup, .hangup_userdata = client };
        SessionConfig session_config = { .comm = "tester" };
        Session *session;
        char *detail;
        int sockets[2];

        *client = (Client){ .fd = -1, .bell_fd = -1 };
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
        client->fd = sockets[0];
        assert_int_equal(peer_new(&config, sockets[1], &client->peer), 0);
        assert_int_equal(session_new(NULL, &session_config, &session, &detail), STATUS_OK);
        peer_set_session(client->peer, session);
}

static void map_ring(Client *client)
{
        int fd = daemon_ring_fd(client->ring);
        uint8_t *data = mmap(NULL, RING_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        assert_true(data != MAP_FAILED);
        client->header = (void *)data;
        client->records = (void *)(data + client->header->records_offset);
        client->results = (void *)(data + client->header->results_offset);
        client->bell_fd = fcntl(daemon_ring_bell_fd(client->ring), F_DUPFD_CLOEXEC, 3);
        assert_true(client->bell_fd >= 0);
}

static void connect_client(Client *client)
{
        char *detail = NULL;

        connect_peer(client);
        assert_int_equal(daemon_ring_new(&f.host, client->peer, &client->ring, &detail), STATUS_OK);
        map_ring(client);
}

static void disconnect_client(Client *client)
{
        if (client->peer)
                peer_close(client->peer);
        if (client->header)
                munmap(client->header, RING_REGION_BYTES);
        if (client->fd >= 0)
                close(client->fd);
        if (client->bell_fd >= 0)
                close(client->bell_fd);
        *client = (Client){ .fd = -1, .bell_fd = -1 };
}

static void hang_up(Client *client)
{
        close(client->fd);
        client->fd = -1;
}

static unsigned n_moves, n_done_before_move;
static uint64_t head_before_move;

static void move_away(void *userdata)
{
        n_moves++;
        n_done_before_move = (unsigned)fake.n_submitted;
        head_before_move = f.client.header->head;
}

static int setup_with_poller(void **state, uint64_t spin_ns_max)
{
        PollerConfig config = {
                .spin_ns_max = spin_ns_max, .now_ns = step_clock, .cpu_ns = step_clock, .flush = flush, .move = move_away,
        };

        n_moves = n_done_before_move = 0;
        head_before_move = 0;
        harness_setup(state);
        f = (Fixture){ .client = { .fd = -1, .bell_fd = -1 }, .now_ns = 1000, .step_ns = 10 };
        fake_reset();
        fake.submitted = see;
        f.base = event_base_new();
        if (!f.base || poller_new(&config, &f.poller) < 0)
                return -1;
        f.host = (RingHost){ .base = f.base, .poller = f.poller, .packed_bytes_max = MIB, .now_ns = step_clock };
        return 0;
}

static int setup_without_ring(void **state)
{
        return setup_with_poller(state, 0);
}

static int setup_spinning(void **state)
{
        int r = setup_with_poller(state, 1000);

        if (r == 0)
                connect_client(&f.client);
        return r;
}

static int setup(void **state)
{
        int r = setup_without_ring(state);

        if (r == 0)
                connect_client(&f.client);
        return r;
}

static int teardown(void **state)
{
        RingFacts facts;

        disconnect_client(&f.client);
        assert_int_equal(fake.n_sessions_open, 0);
        daemon_ring_get_facts(&facts);
        assert_int_equal(facts.n_rings, 0);
        poller_free(f.poller); /* asserts that nothing is hot */
        event_base_free(f.base);
        return harness_teardown(state);
}

#define RING_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

/* As the daemon's loop does. */
static void turn(void)
{
        (void)poller_turn(f.poller); /* nobody sleeps here */
        assert_true(event_base_loop(f.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
}

#define TURN_UNTIL(condition)                                                                                          \
        do {                                                                                                           \
                unsigned n_turns = 0;                                                                                  \
                while (!(condition)) {                                                                                 \
                        assert_true(n_turns++ < TURNS_MAX);                                                            \
                        turn();                                                                                        \
                }                                                                                                      \
        } while (0)

/* Until nothing happens any more. */
static void settle(void)
{
        for (unsigned i = 0; i < 20; i++)
                turn();
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static void ring_bell(Client *client)
{
        uint64_t one = 1;

        assert_int_equal(write(client->bell_fd, &one, sizeof(one)), sizeof(one));
}

/* Without telling anybody. */
static void fill_record(Client *client, RingRecord record)
{
        client->records[client->tail++ % RING_RECORDS] = record;
}

static void publish(Client *client)
{
        if (ring_publish_tail(client->header, client->tail))
                ring_bell(client);
}

static RingRecord put_record(uint64_t size_bytes)
{
        return (RingRecord){ .verb = RING_VERB_PUT, .namespace_id = 3, .key = "key", .key_bytes = 3,
                             .size_bytes = size_bytes };
}

static void put(Client *client, uint64_t size_bytes)
{
        fill_record(client, put_record(size_bytes));
        publish(client);
}

static uint64_t head(const Client *client)
{
        assert_int_equal((uint32_t)client->header->head, client->header->head_futex);
        return client->header->head;
}

/* The result of record @n, or NULL: none. */
static const RingResult *result_of(const Client *client, uint64_t n)
{
        const RingResult *result = &client->results[n % RING_RECORDS];

        return result->sequence == (uint32_t)(n + 1) ? result : NULL;
}

static void send_message(Client *client, size_t n_bytes)
{
        static const uint8_t bytes[64];

        assert_int_equal(channel_send(client->fd, bytes, n_bytes, NULL, 0), CHANNEL_OK);
}

/* --- the memory --------------------------------------------------------------------------------------------------- */

static void test_what_the_client_gets(void **state)
{
        struct stat st;
        const RingHeader *header = f.client.header;
        RingFacts facts;

        assert_true(header->magic == RING_MAGIC);
        assert_int_equal(header->version, RING_VERSION);
        assert_int_equal(header->n_records, RING_RECORDS);
        assert_int_equal(header->region_bytes, RING_REGION_BYTES);
        assert_int_equal(header->records_offset, 4096);
        assert_int_equal(header->results_offset, 4096 + 512 * 128);
        assert_int_equal(header->bell, 1);
        assert_int_equal(head(&f.client), 0);
        assert_int_equal(lseek(daemon_ring_fd(f.client.ring), 0, SEEK_END), RING_REGION_BYTES);
        assert_int_equal(fcntl(daemon_ring_fd(f.client.ring), F_GET_SEALS) & ~F_SEAL_EXEC,
                         F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        assert_int_equal(fstat(daemon_ring_fd(f.client.ring), &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(fake.n_ring_bytes, RING_REGION_BYTES);
        assert_non_null(fake.ring);
        assert_true(fake.is_drained(fake.ring_userdata, 0));
        daemon_ring_get_facts(&facts);
        assert_int_equal(facts.n_rings, 1);
}

static void test_over_a_limit(void **state)
{
        char *detail = NULL;

        connect_peer(&f.client);
        fake.ring_status = STATUS_LIMIT;
        assert_int_equal(daemon_ring_new(&f.host, f.client.peer, &f.client.ring, &detail), STATUS_LIMIT);
        assert_string_equal(detail, "no ring for you");
        free(detail);
        assert_false(peer_has_side(f.client.peer));
        fake.ring_status = STATUS_OK;
        assert_int_equal(daemon_ring_new(&f.host, f.client.peer, &f.client.ring, &detail), STATUS_OK);
        assert_true(peer_has_side(f.client.peer));
        map_ring(&f.client);
        put(&f.client, 1);
        settle();
        assert_int_equal(head(&f.client), 1);
}

static int attempt_ring(void)
{
        DaemonRing *ring;
        char *detail = NULL;
        Status status;

        status = daemon_ring_new(&f.host, f.client.peer, &ring, &detail);
        free(detail);
        return status == STATUS_OK ? 0 : -1;
}

static void test_without_memory(void **state)
{
        fail_alloc_skip_sanitized();
        connect_peer(&f.client);
        fail_alloc_sweep(attempt_ring);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

static void test_records_in_order(void **state)
{
        RingFacts before, after;
        uint64_t n = 0;

        daemon_ring_get_facts(&before);
        /* Around the ring several times, in pieces of every size. */
        for (unsigned piece = 1; piece < 60; piece++) {
                for (unsigned i = 0; i < piece; i++)
                        fill_record(&f.client, put_record(n++));
                publish(&f.client);
                TURN_UNTIL(head(&f.client) == n);
        }
        assert_int_equal(f.n_seen, n);
        for (uint64_t i = 0; i < n; i++)
                assert_int_equal(f.sizes_seen[i], i);
        for (uint64_t i = n - RING_RECORDS; i < n; i++)
                assert_null(result_of(&f.client, i)); /* nobody asked */
        assert_int_equal(f.client.header->n_failed, 0);
        daemon_ring_get_facts(&after);
        assert_int_equal(after.n_records - before.n_records, n);
        assert_int_equal(after.n_bells - before.n_bells, 59);
        assert_int_equal(f.client.header->bell, 1);
        assert_true(fake.is_drained(fake.ring_userdata, 0));
}

static void test_a_whole_ring_in_bounded_turns(void **state)
{
        for (uint64_t i = 0; i < RING_RECORDS; i++)
                fill_record(&f.client, put_record(i));
        publish(&f.client);
        assert_false(fake.is_drained(fake.ring_userdata, 0));
        assert_true(fake.is_drained(fake.ring_userdata, 7)); /* of that region there is nothing */
        TURN_UNTIL(head(&f.client) == RING_RECORDS);
        assert_int_equal(f.n_flushes, RING_RECORDS / RING_TURN_RECORDS);
        /* And where each takes long, by the clock. */
        f.n_flushes = 0;
        f.step_ns = RING_TURN_NS;
        for (uint64_t i = 0; i < RING_RECORDS; i++)
                fill_record(&f.client, put_record(i));
        publish(&f.client);
        TURN_UNTIL(head(&f.client) == 2 * RING_RECORDS);
        assert_in_range(f.n_flushes, RING_RECORDS / 24, RING_RECORDS / 8);
        assert_int_equal(f.n_seen, 2 * RING_RECORDS);
}

static void fill_op(StoreOp *op)
{
        op->slot = 100 + (uint32_t)op->item->size_bytes;
        op->generation = 200 + op->item->size_bytes;
}

static void test_results_are_for_who_asks(void **state)
{
        RingRecord record = put_record(1);

        fake.fill = fill_op;
        record.flags = RING_FLAG_RESULT;
        fill_record(&f.client, record);
        fill_record(&f.client, put_record(2));
        record.size_bytes = 3;
        fill_record(&f.client, record);
        publish(&f.client);
        TURN_UNTIL(head(&f.client) == 3);
        for (unsigned i = 0; i < 3; i += 2) {
                assert_non_null(result_of(&f.client, i));
                assert_int_equal(result_of(&f.client, i)->status, STATUS_OK);
                assert_int_equal(result_of(&f.client, i)->slot, 101 + i);
                assert_int_equal(result_of(&f.client, i)->generation, 201 + i);
        }
        assert_null(result_of(&f.client, 1));
}

static char long_sentence[1000];

static void fail_op(StoreOp *op)
{
        if (op->item->size_bytes == 0)
                return;
        op->status = STATUS_FULL;
        op->detail = op->item->size_bytes == 2 ? strdup(long_sentence) : op->item->size_bytes == 3 ? NULL
                                                                                                   : strdup("a first");
}

static void test_failures(void **state)
{
        RingHeader *header = f.client.header;

        memset(long_sentence, 's', sizeof(long_sentence) - 1);
        fake.fill = fail_op;
        for (unsigned i = 0; i < 4; i++)
                put(&f.client, i);
        TURN_UNTIL(head(&f.client) == 4);
        assert_int_equal(header->n_failed, 3);
        assert_null(result_of(&f.client, 0));
        for (unsigned i = 1; i < 4; i++)
                assert_int_equal(result_of(&f.client, i)->status, STATUS_FULL);
        /* The first that was not read yet stays. */
        assert_int_equal(header->failure_sequence, 2);
        assert_int_equal(header->failure_status, STATUS_FULL);
        assert_int_equal(header->failure_bytes, 7);
        assert_memory_equal(header->failure_text, "a first", 7);
        header->failure_sequence = 0;
        put(&f.client, 3); /* without a sentence */
        put(&f.client, 2);
        TURN_UNTIL(head(&f.client) == 6);
        assert_int_equal(header->failure_sequence, 6);
        assert_int_equal(header->failure_bytes, RING_FAILURE_BYTES_MAX);
        assert_memory_equal(header->failure_text, long_sentence, RING_FAILURE_BYTES_MAX);
        assert_int_equal(header->n_failed, 5);
        assert_non_null(f.client.peer); /* none of it is a breach */
}

static int given_fd;

static void give_descriptor(StoreOp *op)
{
        op->fd = fcntl(given_fd, F_DUPFD_CLOEXEC, 3);
        op->book_fd = fcntl(given_fd, F_DUPFD_CLOEXEC, 3);
        assert_true(op->fd >= 0 && op->book_fd >= 0);
}

static void test_a_descriptor_goes_nowhere(void **state)
{
        given_fd = f.client.fd;
        fake.fill = give_descriptor;
        put(&f.client, 1);
        TURN_UNTIL(head(&f.client) == 1); /* the harness counts */
}

static const ProtoVerb verbs_wanted[] = { VERB_CREATE, VERB_SEAL, VERB_CREATE, VERB_ABORT };
static unsigned n_verbs;

static void see_made(StoreOp *op)
{
        assert_int_equal(op->verb, verbs_wanted[n_verbs]);
        if (op->verb != VERB_CREATE) {
                assert_int_equal(op->item->slot, 70 + n_verbs);
                assert_int_equal(op->item->generation, 80 + n_verbs);
        }
        n_verbs++;
}

static void make(StoreOp *op)
{
        op->slot = 70 + n_verbs;
        op->generation = 80 + n_verbs;
        if (op->item->size_bytes == 13)
                op->status = STATUS_EXISTS;
}

static void test_create_and_seal_in_one_go(void **state)
{
        const RingRecord create = { .verb = RING_VERB_CREATE, .namespace_id = 3, .slot = 9, .key = "k",
                                    .key_bytes = 1 };
        const RingRecord seal = { .verb = RING_VERB_SEAL, .namespace_id = 3, .slot = 9, .flags = RING_FLAG_RESULT };
        const RingRecord give_up = { .verb = RING_VERB_ABORT, .namespace_id = 3, .slot = 9 };
        RingRecord refused = create;

        n_verbs = 0;
        fake.submitted = see_made;
        fake.fill = make;
        fill_record(&f.client, create);
        fill_record(&f.client, seal);
        fill_record(&f.client, create);
        fill_record(&f.client, give_up);
        publish(&f.client);
        TURN_UNTIL(head(&f.client) == 4);
        assert_int_equal(n_verbs, 4);
        assert_int_equal(result_of(&f.client, 1)->status, STATUS_OK);
        assert_int_equal(f.client.header->n_failed, 0);
        /* One that cannot be created, and then be sealed. */
        n_verbs = 0;
        refused.size_bytes = 13;
        fill_record(&f.client, refused);
        fill_record(&f.client, seal);
        publish(&f.client);
        TURN_UNTIL(head(&f.client) == 6);
        assert_int_equal(n_verbs, 1); /* the store was not asked */
        assert_int_equal(result_of(&f.client, 4)->status, STATUS_EXISTS);
        assert_int_equal(result_of(&f.client, 5)->status, STATUS_EXISTS);
        assert_int_equal(f.client.header->n_failed, 2);
}

/* --- what takes longer -------------------------------------------------------------------------------------------- */

static void test_one_that_takes_longer_stops_the_ring(void **state)
{
        fake.is_deferring = true;
        for (unsigned i = 0; i < 3; i++)
                put(&f.client, i);
        settle();
        assert_int_equal(f.n_seen, 1);
        assert_int_equal(head(&f.client), 0);
        assert_false(fake.is_drained(fake.ring_userdata, 0));
        assert_true(fake.is_drained(fake.ring_userdata, 7)); /* of that region there is nothing */
        assert_false(poller_has_hot(f.poller)); /* nobody spins for it */
        put(&f.client, 3);
        settle();
        assert_int_equal(f.n_seen, 1);
        fake_end(0);
        settle();
        assert_int_equal(f.n_seen, 2);
        assert_int_equal(head(&f.client), 1);
        fake.is_deferring = false;
        fake_end(1);
        TURN_UNTIL(head(&f.client) == 4);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(f.sizes_seen[i], i);
        settle();
        assert_int_equal(f.client.header->bell, 1);
        put(&f.client, 4);
        TURN_UNTIL(head(&f.client) == 5);
}

static void test_messages_come_after_what_was_published(void **state)
{
        /* Published, and the bell not rung: the message alone makes it be done. */
        for (unsigned i = 0; i < 100; i++)
                fill_record(&f.client, put_record(i));
        f.client.header->tail = f.client.tail;
        send_message(&f.client, 1);
        TURN_UNTIL(f.client.n_messages == 1);
        assert_int_equal(f.client.n_submitted_before, 100);
        assert_int_equal(head(&f.client), 100);
        send_message(&f.client, 2);
        TURN_UNTIL(f.client.n_messages == 2);
}

static void test_messages_wait_and_nothing_overtakes(void **state)
{
        fake.is_deferring = true;
        put(&f.client, 0);
        put(&f.client, 1);
        settle();
        send_message(&f.client, 1);
        send_message(&f.client, 2);
        settle();
        assert_int_equal(f.client.n_messages, 0);
        put(&f.client, 2); /* after the messages: they need not wait for it */
        fake_end(0);
        settle();
        assert_int_equal(f.client.n_messages, 0);
        fake_end(1);
        TURN_UNTIL(f.client.n_messages == 1);
        settle();
        /* But the second is looked at only now, when there is one more under way. */
        assert_int_equal(f.client.n_messages, 1);
        assert_int_equal(f.n_seen, 3);
        fake_end(2);
        TURN_UNTIL(f.client.n_messages == 2);
        assert_int_equal(head(&f.client), 3);
}

static void test_a_drain_that_takes_a_turn_is_put_off(void **state)
{
        f.step_ns = RING_TURN_NS;
        for (unsigned i = 0; i < RING_RECORDS; i++)
                fill_record(&f.client, put_record(i));
        f.client.header->tail = f.client.tail;
        send_message(&f.client, 1);
        turn();
        assert_int_equal(f.client.n_messages, 0);
        assert_in_range(f.n_seen, 8, RING_RECORDS - 1);
        TURN_UNTIL(f.client.n_messages == 1);
        assert_int_equal(f.client.n_submitted_before, RING_RECORDS);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void test_what_was_published_before_a_hangup_is_done(void **state)
{
        for (unsigned i = 0; i < RING_RECORDS; i++)
                fill_record(&f.client, put_record(i));
        f.client.header->tail = f.client.tail; /* it died before it could ring */
        hang_up(&f.client);
        TURN_UNTIL(!f.client.peer);
        assert_int_equal(f.n_seen, RING_RECORDS);
        assert_int_equal(fake.n_sessions_open, 0);
        f.client.header->tail = ++f.client.tail; /* nobody looks */
        settle();
        assert_int_equal(f.n_seen, RING_RECORDS);
}

static void test_a_hangup_waits_for_what_takes_longer(void **state)
{
        fake.is_deferring = true;
        put(&f.client, 0);
        put(&f.client, 1);
        send_message(&f.client, 1);
        settle();
        hang_up(&f.client);
        settle();
        assert_non_null(f.client.peer);
        fake_end(0);
        settle();
        assert_int_equal(fake.n_sessions_open, 1);
        assert_int_equal(f.n_seen, 2);
        fake_end(1);
        TURN_UNTIL(!f.client.peer);
        assert_int_equal(fake.n_sessions_open, 0);
        assert_int_equal(head(&f.client), 2);
}

static void test_an_end_by_force_waits_for_nothing(void **state)
{
        fake.is_deferring = true;
        put(&f.client, 0);
        put(&f.client, 1);
        send_message(&f.client, 1);
        settle();
        assert_int_equal(f.n_seen, 1);
        peer_close(f.client.peer);
        assert_null(f.client.peer);
        assert_int_equal(fake.n_sessions_open, 0);
        assert_int_equal(f.client.n_messages, 0);
        fake_end(0); /* its memory is there still */
        settle();
        assert_int_equal(f.n_seen, 1);
        assert_int_equal(head(&f.client), 1);
}

static void test_an_end_by_force_does_what_can_be_done_at_once(void **state)
{
        for (unsigned i = 0; i < 200; i++)
                fill_record(&f.client, put_record(i));
        f.client.header->tail = f.client.tail;
        f.step_ns = RING_TURN_NS;
        peer_close(f.client.peer);
        assert_int_equal(f.n_seen, 200);
}

/* --- who breaks the rules ----------------------------------------------------------------------------------------- */

static void test_hostile_tails(void **state)
{
        static const struct { uint64_t tail; bool is_good; } rows[] = {
                { 100 + RING_RECORDS, true }, { 101, true },          { 100, true },
                { 99, false },                { 0, false },           { 101 + RING_RECORDS, false },
                { UINT64_MAX, false },        { INT64_MAX, false },   { UINT64_C(1) << 32 | 100, false },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                for (uint64_t n = 0; n < 100; n++)
                        fill_record(&f.client, put_record(n));
                publish(&f.client);
                TURN_UNTIL(head(&f.client) == 100);
                settle();
                f.n_seen = 0;
                for (unsigned n = 0; n < RING_RECORDS; n++)
                        f.client.records[n] = put_record(n);
                f.client.header->tail = rows[i].tail;
                ring_bell(&f.client);
                settle();
                assert_int_equal(f.client.peer != NULL, rows[i].is_good);
                assert_int_equal(f.n_seen, rows[i].is_good ? rows[i].tail - 100 : 0);
                disconnect_client(&f.client);
                connect_client(&f.client);
                f.n_seen = 0;
        }
}

static void test_a_tail_that_runs_back_to_what_is_not_done(void **state)
{
        fake.is_deferring = true;
        for (unsigned i = 0; i < 10; i++)
                fill_record(&f.client, put_record(i));
        publish(&f.client);
        settle();
        f.client.header->tail = 5;
        fake_end(0);
        TURN_UNTIL(!f.client.peer);
        assert_int_equal(f.n_seen, 1);
}

static void test_a_breach_ends_it_there(void **state)
{
        RingRecord bad = put_record(2);

        bad.reserved = 1;
        fill_record(&f.client, put_record(0));
        fill_record(&f.client, put_record(1));
        fill_record(&f.client, bad);
        fill_record(&f.client, put_record(3));
        publish(&f.client);
        send_message(&f.client, 1);
        TURN_UNTIL(!f.client.peer);
        assert_int_equal(f.n_seen, 2);
        assert_int_equal(head(&f.client), 2);
        assert_int_equal(f.client.n_messages, 0);
}

static void test_a_breach_while_a_message_waits(void **state)
{
        RingRecord bad = { .verb = 99 };

        fake.is_deferring = true;
        fill_record(&f.client, put_record(0));
        fill_record(&f.client, bad);
        publish(&f.client);
        send_message(&f.client, 1);
        settle();
        fake_end(0);
        TURN_UNTIL(!f.client.peer);
        assert_int_equal(f.client.n_messages, 0);
        assert_int_equal(f.n_seen, 1);
}

static void test_refusals_are_no_breach(void **state)
{
        RingRecord record = put_record(1);

        record.key[1] = 0;
        fill_record(&f.client, record);
        fill_record(&f.client, (RingRecord){ .verb = RING_VERB_SEAL, .slot = 3 });
        fill_record(&f.client, (RingRecord){ .verb = RING_VERB_CREATE, .slot = RING_MADE_MAX, .key = "k",
                                             .key_bytes = 1 });
        fill_record(&f.client, put_record(2));
        publish(&f.client);
        TURN_UNTIL(head(&f.client) == 4);
        assert_int_equal(result_of(&f.client, 0)->status, STATUS_INVALID);
        assert_int_equal(result_of(&f.client, 1)->status, STATUS_STATE);
        assert_int_equal(result_of(&f.client, 2)->status, STATUS_INVALID);
        assert_int_equal(f.client.header->n_failed, 3);
        assert_int_equal(f.client.header->failure_sequence, 1);
        assert_int_equal(f.n_seen, 1);
        assert_non_null(f.client.peer);
}

static void test_everything_else_in_it_is_nothing_to_us(void **state)
{
        RingHeader *header = f.client.header;

        put(&f.client, 0);
        TURN_UNTIL(head(&f.client) == 1);
        settle();
        /* All but the tail, which stands where it should. */
        memset(header, 0xff, sizeof(*header));
        header->tail = f.client.tail = 1;
        memset((void *)(uintptr_t)f.client.results, 0xff, RING_RECORDS * sizeof(RingResult));
        fake.fill = fail_op;
        put(&f.client, 1);
        TURN_UNTIL(header->head == 2);
        assert_int_equal(header->n_failed, 1);
        assert_true(header->failure_sequence == UINT64_MAX); /* as the client left it */
        assert_int_equal(result_of(&f.client, 1)->status, STATUS_FULL);
        assert_non_null(f.client.peer);
}

/* --- on one processor -------------------------------------------------------------------------------------------- */

/* Who rings from our own processor: we go to another, but what it rang for is done before. */
static void test_what_is_rung_for_does_not_wait_for_a_move(void **state)
{
        Client *client = &f.client;
        cpu_set_t all, one;

        (void)state;
        assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
        CPU_ZERO(&one);
        CPU_SET((size_t)sched_getcpu(), &one);
        assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
        settle(); /* cold */
        /* From elsewhere, or who does not say: we stay. */
        fill_record(client, put_record(64));
        publish(client);
        TURN_UNTIL(client->header->head == 1);
        settle();
        assert_int_equal(n_moves, 0);
        client->header->bell_cpu = (uint32_t)sched_getcpu() + 1;
        fill_record(client, put_record(64));
        publish(client);
        TURN_UNTIL(n_moves > 0);
        assert_int_equal(n_done_before_move, 2);
        assert_int_equal(head_before_move, 2);
        settle();
        assert_int_equal(n_moves, 1);
        assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* --- bells and sleepers ------------------------------------------------------------------------------------------- */

static void test_more_rings_than_are_looked_at(void **state)
{
        RingFacts before, after;

        for (size_t i = 0; i < ARRAY_SIZE(f.others); i++) {
                connect_client(&f.others[i]);
                for (unsigned n = 0; n < 200; n++)
                        fill_record(&f.others[i], put_record(n));
                publish(&f.others[i]);
        }
        daemon_ring_get_facts(&before);
        for (size_t i = 0; i < ARRAY_SIZE(f.others); i++)
                TURN_UNTIL(head(&f.others[i]) == 200);
        settle();
        for (size_t i = 0; i < ARRAY_SIZE(f.others); i++)
                assert_int_equal(f.others[i].header->bell, 1);
        daemon_ring_get_facts(&after);
        assert_int_equal(after.n_bells - before.n_bells, ARRAY_SIZE(f.others));
        f.n_seen = 0;
        for (size_t i = 0; i < ARRAY_SIZE(f.others); i++) {
                put(&f.others[i], 1);
                TURN_UNTIL(head(&f.others[i]) == 201);
                disconnect_client(&f.others[i]);
        }
}

static void test_a_hot_ring_needs_no_bell(void **state)
{
        RingFacts before, after;
        PollerConfig config = { .spin_ns_max = 1000000000, .now_ns = step_clock, .cpu_ns = step_clock, .flush = flush };
        Poller *patient;

        assert_int_equal(poller_new(&config, &patient), 0);
        f.host.poller = patient;
        connect_client(&f.others[0]);
        put(&f.others[0], 0);
        TURN_UNTIL(poller_has_hot(patient));
        daemon_ring_get_facts(&before);
        for (unsigned i = 0; i < 50; i++) {
                assert_true(poller_turn(patient));
                assert_int_equal(f.others[0].header->bell, 0);
                put(&f.others[0], i);
        }
        assert_true(poller_turn(patient));
        assert_int_equal(head(&f.others[0]), 51);
        daemon_ring_get_facts(&after);
        assert_int_equal(after.n_bells, before.n_bells);
        disconnect_client(&f.others[0]);
        assert_false(poller_has_hot(patient));
        poller_free(patient);
}

static void *sleep_until_one(void *userdata)
{
        RingHeader *header = userdata;
        const struct timespec timeout = { .tv_sec = 20 };

        atomic_fetch_add(&header->n_sleeping, 1);
        while (atomic_load(&header->head) == 0) {
                if (syscall(SYS_futex, &header->head_futex, FUTEX_WAIT, 0, &timeout, NULL, 0) < 0 && errno == ETIMEDOUT)
                        return (void *)1;
        }
        atomic_fetch_sub(&header->n_sleeping, 1);
        return NULL;
}

static void test_who_sleeps_is_woken(void **state)
{
        pthread_t thread;
        void *failed;

        assert_int_equal(pthread_create(&thread, NULL, sleep_until_one, f.client.header), 0);
        while (atomic_load(&f.client.header->n_sleeping) == 0)
                sched_yield();
        put(&f.client, 0);
        TURN_UNTIL(head(&f.client) == 1);
        assert_int_equal(pthread_join(thread, &failed), 0);
        assert_null(failed);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                RING_TEST(test_what_the_client_gets),
                cmocka_unit_test_setup_teardown(test_over_a_limit, setup_without_ring, teardown),
                cmocka_unit_test_setup_teardown(test_without_memory, setup_without_ring, teardown),
                RING_TEST(test_records_in_order),
                RING_TEST(test_a_whole_ring_in_bounded_turns),
                RING_TEST(test_results_are_for_who_asks),
                RING_TEST(test_failures),
                RING_TEST(test_a_descriptor_goes_nowhere),
                RING_TEST(test_create_and_seal_in_one_go),
                RING_TEST(test_one_that_takes_longer_stops_the_ring),
                RING_TEST(test_messages_come_after_what_was_published),
                RING_TEST(test_messages_wait_and_nothing_overtakes),
                RING_TEST(test_a_drain_that_takes_a_turn_is_put_off),
                RING_TEST(test_what_was_published_before_a_hangup_is_done),
                RING_TEST(test_a_hangup_waits_for_what_takes_longer),
                RING_TEST(test_an_end_by_force_waits_for_nothing),
                RING_TEST(test_an_end_by_force_does_what_can_be_done_at_once),
                RING_TEST(test_hostile_tails),
                RING_TEST(test_a_tail_that_runs_back_to_what_is_not_done),
                RING_TEST(test_a_breach_ends_it_there),
                RING_TEST(test_a_breach_while_a_message_waits),
                cmocka_unit_test_setup_teardown(test_what_is_rung_for_does_not_wait_for_a_move, setup_spinning, teardown),
                RING_TEST(test_refusals_are_no_breach),
                RING_TEST(test_everything_else_in_it_is_nothing_to_us),
                RING_TEST(test_more_rings_than_are_looked_at),
                RING_TEST(test_a_hot_ring_needs_no_bell),
                RING_TEST(test_who_sleeps_is_woken),
        };

        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
