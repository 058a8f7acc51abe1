/* SPDX-License-Identifier: Apache-2.0 */
/* What a client finds that comes back: stories of the fixture's client, foliod and the next one. */
#include "resume-fixture.h"

/* --- stories ------------------------------------------------------------------------------------------------------ */

/* All that a session has goes on, on both sides, as it is. */
static void test_all_of_it(void **state)
{
        Keeper *keeper;
        First first;
        Server second;
        Client2 c;
        Wire wire;
        ProtoReply reply;
        uint64_t n;
        int index_fd;

        first_start(&first);
        client_begin(&c, &first.wire);
        put_by_ring(&c, 1, 0);
        for (unsigned i = 0; ring_head(&c) < 1; i++)
                assert_true(i < UINT32_MAX - 1);
        keeper = first_kill(&first);
        assert_false(beacon_is_lit(c.beacon));
        put_by_ring(&c, 2, 0); /* nobody is there */
        (void)!read(c.watch_fd, &n, sizeof(n));

        server_init(&second, keeper);
        assert_int_equal(second.facts.n_sessions, 1);
        second_connect(&second, &wire, geteuid());
        reply = wire_hello(&wire, c.token);
        assert_true(reply.is_resumed);
        assert_true(reply.session_token == c.token);
        assert_int_equal(reply.session_number, c.number);
        take_beacon(&c, wire.fds[0]);
        reply = wire_open(&wire);
        assert_int_equal(reply.namespaces[0].id, c.namespace_id);
        assert_false(same_file(wire.fds[0], c.index_fd));
        assert_true(same_file(wire.fds[1], c.pins_fd));
        index_fd = wire.fds[0];
        close(wire.fds[1]);
        assert_int_equal(wire_ask(&wire, (ProtoRequest){ .verb = VERB_RING }).status, STATUS_OK);
        assert_true(same_file(wire.fds[0], c.ring_fd));
        close(wire.fds[0]);
        close(wire.fds[1]);
        wait_for_head(&second, &c, 2);
        assert_int_equal(read(c.watch_fd, &n, sizeof(n)), sizeof(n));
        put_by_ring(&c, 3, 0);
        wait_for_head(&second, &c, 3);
        assert_int_equal(atomic_load(&c.ring->n_failed), 0);
        for (unsigned i = 1; i <= 3; i++) {
                char key[16];

                snprintf(key, sizeof(key), "key-%06u", i);
                assert_int_equal(wire_item(&wire, &c, VERB_DELETE, (ProtoItem){ .key = key_of(key) }).items[0].status,
                                 STATUS_OK);
        }
        wire_deinit(&wire);
        for (unsigned i = 0; second.peers[0]; i++) {
                assert_true(i < TURNS_MAX);
                server_turn(&second, true);
        }
        for (KeptKind kind = KEPT_STAGING; kind <= KEPT_WATCH; kind++)
                assert_int_equal(fake_keeper_count(keeper, kind), 0);
        server_deinit(&second);
        fake_keeper_free(keeper);
        close(index_fd);
        client_end(&c);
}

/* Killed at whatever moment: each record is carried out, once. */
static void test_each_record_once(void **state)
{
        for (unsigned round = 0; round < 40; round++) {
                enum { N = 400 };
                unsigned kill_at = round * 10;
                uint64_t n_doubles;
                Keeper *keeper;
                First first;
                Server second;
                Client2 c;
                Wire wire;

                first_start(&first);
                client_begin(&c, &first.wire);
                for (unsigned i = 0; i < N; i++) {
                        put_by_ring(&c, i, i % 7 == 0 ? RING_FLAG_RESULT : 0);
                        if (i == kill_at)
                                assert_int_equal(kill(first.pid, SIGKILL), 0);
                }
                keeper = first_kill(&first);
                server_init(&second, keeper);
                second_connect(&second, &wire, geteuid());
                assert_true(wire_hello(&wire, c.token).is_resumed);
                take_beacon(&c, wire.fds[0]);
                wait_for_head(&second, &c, N);
                assert_int_equal(ring_head(&c), N);
                assert_int_equal(atomic_load(&c.ring->n_failed), 0);
                (void)wire_open(&wire);
                assert_int_equal(count_events(wire.fds[0], c.number, &n_doubles), N);
                assert_int_equal(n_doubles, 0);
                close(wire.fds[0]);
                close(wire.fds[1]);
                for (unsigned i = 0; i < N; i += 7) {
                        assert_int_equal(atomic_load(&((RingResult *)(uintptr_t)c.results)[i].sequence), i + 1);
                        assert_int_equal(c.results[i].status, STATUS_OK);
                }
                wire_deinit(&wire);
                server_deinit(&second);
                fake_keeper_free(keeper);
                client_end(&c);
        }
}

/* Objects that are being written go on under the client's numbers. */
static void test_writing_goes_on(void **state)
{
        for (unsigned round = 0; round < 30; round++) {
                enum { N = 40 };
                unsigned kill_at = round * 3;
                unsigned n_published = 0, n_seals = 0;
                uint64_t n_doubles;
                Keeper *keeper;
                First first;
                Server second;
                Client2 c;
                Wire wire;

                first_start(&first);
                client_begin(&c, &first.wire);
                for (unsigned i = 0; i < 2 * N; i++) {
                        RingRecord *record = next_record(&c, i < N ? RING_VERB_CREATE : RING_VERB_SEAL);

                        record->slot = i % N;
                        record->flags = RING_FLAG_RESULT;
                        if (i < N) {
                                set_key(record, i);
                                record->size_bytes = record->key_bytes;
                        } else if (i % 3 == 0) {
                                record->verb = RING_VERB_ABORT;
                        } else {
                                record->offset_bytes = i * 64;
                                n_seals++;
                        }
                        publish(&c);
                        if (n_published++ == kill_at)
                                assert_int_equal(kill(first.pid, SIGKILL), 0);
                }
                keeper = first_kill(&first);
                server_init(&second, keeper);
                second_connect(&second, &wire, geteuid());
                assert_true(wire_hello(&wire, c.token).is_resumed);
                take_beacon(&c, wire.fds[0]);
                wait_for_head(&second, &c, 2 * N);
                for (unsigned i = 0; i < 2 * N; i++) {
                        assert_int_equal(atomic_load(&((RingResult *)(uintptr_t)c.results)[i].sequence), i + 1);
                        assert_int_equal(c.results[i].status, STATUS_OK);
                }
                assert_int_equal(atomic_load(&c.ring->n_failed), 0);
                (void)wire_open(&wire);
                assert_int_equal(count_events(wire.fds[0], c.number, &n_doubles), n_seals);
                assert_int_equal(n_doubles, 0);
                close(wire.fds[0]);
                close(wire.fds[1]);
                wire_deinit(&wire);
                server_deinit(&second);
                fake_keeper_free(keeper);
                client_end(&c);
        }
}

/* Who asks for a session that is not his, or that somebody has, gets one of his own. */
static void test_who_asks(void **state)
{
        Keeper *keeper;
        First first;
        Server second;
        Client2 c;
        Wire wires[4];
        ProtoReply reply;

        first_start(&first);
        client_begin(&c, &first.wire);
        keeper = first_kill(&first);
        server_init(&second, keeper);
        for (unsigned i = 0; i < 4; i++) {
                /* A guess; another uid; he himself; and somebody who comes too late. */
                second_connect(&second, &wires[i], i == 1 ? geteuid() + 1 : geteuid());
                reply = wire_hello(&wires[i], i == 0 ? c.token ^ 1 : c.token);
                assert_true(reply.is_resumed == (i == 2));
                assert_true((reply.session_token == c.token) == (i == 2));
                for (size_t n = 0; n < wires[i].n_fds; n++)
                        close(wires[i].fds[n]);
                assert_non_null(second.peers[i]); /* no breach */
        }
        for (unsigned i = 0; i < 4; i++)
                wire_deinit(&wires[i]);
        server_deinit(&second);
        fake_keeper_free(keeper);
        client_end(&c);
}

/* What a client has scribbled where it could is its own loss. */
static void test_scribblers(void **state)
{
        for (unsigned how = 0; how < 6; how++) {
                Keeper *keeper;
                First first;
                Server second;
                Client2 c;
                Wire wire;
                ProtoReply reply;

                first_start(&first);
                client_begin(&c, &first.wire);
                put_by_ring(&c, 1, 0);
                for (unsigned i = 0; ring_head(&c) < 1; i++)
                        assert_true(i < UINT32_MAX - 1);
                keeper = first_kill(&first);
                switch (how) {
                case 0:
                        atomic_store(&c.ring->tail, 514);
                        break;
                case 1:
                        atomic_store(&c.ring->tail, 0);
                        break;
                case 2:
                        memset(c.ring, 0xff, RING_REGION_BYTES);
                        break;
                case 3:
                        memset(c.ring, 0, RING_REGION_BYTES);
                        break;
                case 4:
                        memset(c.records, 0xff, RING_RECORDS * sizeof(RingRecord));
                        atomic_store(&c.ring->tail, 2);
                        break;
                default:
                        atomic_store(&c.ring->carried_out, UINT64_MAX);
                        break;
                }
                server_init(&second, keeper);
                for (unsigned i = 0; i < 100; i++)
                        server_turn(&second, false);
                second_connect(&second, &wire, geteuid());
                reply = wire_hello(&wire, c.token);
                assert_false(reply.is_resumed);
                for (size_t n = 0; n < wire.n_fds; n++)
                        close(wire.fds[n]);
                (void)wire_open(&wire);
                close(wire.fds[0]);
                close(wire.fds[1]);
                /* What was put is there. */
                assert_int_equal(wire_item(&wire, &c, VERB_DELETE,
                                           (ProtoItem){ .key = key_of("key-000001") }).items[0].status, STATUS_OK);
                wire_deinit(&wire);
                server_deinit(&second);
                fake_keeper_free(keeper);
                client_end(&c);
        }
}

/* An end in order: nothing of it is a hang-up. */
static void test_in_order(void **state)
{
        Keeper *keeper = fake_keeper_new();
        Server server;
        Client2 c;
        Wire wire;
        uint64_t n_doubles;

        server_init(&server, keeper);
        second_connect(&server, &wire, geteuid());
        client_begin(&c, &wire);
        for (unsigned i = 0; i < 100; i++)
                put_by_ring(&c, i, 0);
        assert_int_equal(wire_item(&wire, &c, VERB_CREATE,
                                   (ProtoItem){ .key = key_of("with-creator"), .size_bytes = 10,
                                                .lifetime = FOLIO_WITH_CREATOR, .flags = PROTO_ITEM_STAGED })
                                 .items[0].status, STATUS_OK);
        peer_leave(server.peers[0]);
        ghosts_free(server.ghosts);
        store_leave(server.f.store);
        poller_free(server.poller);
        dispatch_free(server.dispatch);
        daemon_beacon_free(server.beacon);
        worker_pool_free(server.f.workers);
        event_base_free(server.f.base);
        assert_false(beacon_is_lit(c.beacon));
        for (KeptKind kind = KEPT_STAGING; kind <= KEPT_WATCH; kind++)
                if (kind != KEPT_PROCESS)
                        assert_int_equal(fake_keeper_count(keeper, kind), 1);
        wire_deinit(&wire);

        server_init(&server, keeper);
        second_connect(&server, &wire, geteuid());
        assert_true(wire_hello(&wire, c.token).is_resumed);
        take_beacon(&c, wire.fds[0]);
        wait_for_head(&server, &c, 100);
        (void)wire_open(&wire);
        assert_int_equal(count_events(wire.fds[0], c.number, &n_doubles), 100);
        close(wire.fds[0]);
        close(wire.fds[1]);
        assert_int_equal(wire_item(&wire, &c, VERB_PUT, (ProtoItem){ .key = key_of("with-creator"), .size_bytes = 1 })
                                 .items[0].status, STATUS_EXISTS);
        wire_deinit(&wire);
        server_deinit(&server);
        fake_keeper_free(keeper);
        client_end(&c);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_all_of_it), UNIT_TEST(test_each_record_once), UNIT_TEST(test_writing_goes_on),
                UNIT_TEST(test_who_asks),  UNIT_TEST(test_scribblers),       UNIT_TEST(test_in_order),
        };

        return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
