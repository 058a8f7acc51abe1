/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients without a library, whose foliod is killed and comes back by its keeper: what HELLO gives back to whom, that
 * what was published is carried out once, and that who has scribbled over what it shares with the dead daemon harms
 * itself alone.
 */
#include "tests/integration/raw-ring.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "proto/beacon.h"
#include "proto/staging.h"

static void kill_daemon(const Foliod *foliod)
{
        assert_int_equal(kill(foliod_serving_pid(foliod), SIGKILL), 0);
}

typedef struct Resumed {
        Raw *raw;
        bool is_resumed;
        uint64_t token;
        uint32_t number;
} Resumed;

/* That the welcome has come: without it, who has nothing else in the store is given up at the next restart. */
static void arrive(const Raw *raw)
{
        uint64_t start = 1;
        off_t offset = (off_t)(raw->reply.staging_bytes + offsetof(StagingEnd, start));

        assert_int_equal(pwrite(raw->fds[0], &start, sizeof(start), offset), sizeof(start));
}

/* As often as it takes until somebody answers. */
static Resumed say_hello(const Foliod *foliod, uint64_t resume)
{
        for (unsigned i = 0; i < 10000; i++) {
                ProtoRequest request = { .verb = VERB_HELLO, .version_min = PROTO_VERSION, .version_max = PROTO_VERSION,
                                         .resume = resume };
                Raw *raw = raw_connect(foliod);

                if (raw_call(raw, &request)) {
                        assert_int_equal(raw->reply.status, STATUS_OK);
                        assert_int_equal(raw->n_fds, raw->reply.is_resumed ? 1 : 2);
                        if (!raw->reply.is_resumed)
                                arrive(raw);
                        return (Resumed){ raw, raw->reply.is_resumed, raw->reply.session_token,
                                          raw->reply.session_number };
                }
                raw_close(raw);
                harness_pause();
        }
        fail_msg("nobody is there");
        return (Resumed){ 0 };
}

static const Beacon *map_beacon(Raw *raw, size_t place)
{
        const Beacon *beacon = mmap(NULL, BEACON_BYTES, PROT_READ, MAP_SHARED, raw->fds[place], 0);

        assert_true(beacon != MAP_FAILED);
        assert_true(beacon->magic == BEACON_MAGIC);
        return beacon;
}

static void unmap_beacon(const Beacon *beacon)
{
        (void)munmap((void *)(uintptr_t)beacon, BEACON_BYTES);
}

static void put_staged(RawRing *ring, uint32_t namespace_id, const char *key, uint8_t *staging, uint64_t offset)
{
        RingRecord record = raw_record(RING_VERB_PUT, namespace_id, key);

        memcpy(staging + offset, key, strlen(key));
        record.size_bytes = strlen(key);
        record.offset_bytes = offset;
        (void)raw_ring_submit(ring, record);
}

static Status delete(Raw *raw, uint32_t namespace_id, const char *key)
{
        return raw_item(raw, VERB_DELETE, namespace_id, (ProtoItem){ .key = raw_key(key) });
}

/* --- stories --------------------------------------------------------------------------------------------------------- */

/* Again and again, while a ring is filled: each record is done once, and the session is the same. */
static void test_a_session_goes_on(void **state)
{
        enum { KILLS = 8, EACH = 200 };
        Foliod *foliod = foliod_start("--keeper", "process", NULL);
        Resumed first = say_hello(foliod, 0);
        uint8_t *staging = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, first.raw->fds[0], 0);
        const Beacon *beacon = map_beacon(first.raw, 1);
        uint32_t namespace_id = raw_namespace(first.raw, "default");
        RawRing *ring = raw_ring_open(first.raw);
        Raw *raw = first.raw;
        unsigned n = 0;
        char key[32];

        assert_true(staging != MAP_FAILED);
        assert_true(first.token != 0);
        for (unsigned i = 0; i < KILLS; i++) {
                Resumed again;

                for (unsigned j = 0; j < EACH; j++, n++) {
                        (void)snprintf(key, sizeof(key), "key-%u", n);
                        put_staged(ring, namespace_id, key, staging, (uint64_t)(n % 512) * 64);
                        if (j == EACH / KILLS * i)
                                kill_daemon(foliod);
                }
                AWAIT(!beacon_is_lit(beacon));
                unmap_beacon(beacon);
                again = say_hello(foliod, first.token);
                assert_true(again.is_resumed);
                assert_true(again.token == first.token);
                assert_int_equal(again.number, first.number);
                beacon = map_beacon(again.raw, 0);
                assert_true(beacon_is_lit(beacon));
                raw_close(raw);
                ring->raw = raw = again.raw;
                assert_int_equal(raw_namespace(raw, "default"), namespace_id);
                assert_true(raw_ring_await(ring, n));
        }
        assert_int_equal(atomic_load(&ring->header->head), n);
        assert_int_equal(atomic_load(&ring->header->n_failed), 0);
        for (unsigned i = 0; i < n; i++) {
                (void)snprintf(key, sizeof(key), "key-%u", i);
                assert_int_equal(delete(raw, namespace_id, key), STATUS_OK);
        }
        raw_ring_close(ring);
        raw_close(raw);
        unmap_beacon(beacon);
        (void)munmap(staging, 1 << 20);
        foliod_stop(foliod);
}

/* Guesses, those of others, and those that come twice. */
static void test_who_gets_it(void **state)
{
        Foliod *foliod = foliod_start("--keeper", "process", NULL);
        Resumed first = say_hello(foliod, 0), other = say_hello(foliod, 0), again[6];

        assert_true(first.token != other.token && first.number != other.number);
        /* While it is somebody's it cannot be had. */
        again[0] = say_hello(foliod, first.token);
        assert_false(again[0].is_resumed);
        kill_daemon(foliod);
        (void)foliod_serving_pid(foliod);
        again[1] = say_hello(foliod, first.token + 1);
        again[2] = say_hello(foliod, first.token);
        again[3] = say_hello(foliod, first.token);
        again[4] = say_hello(foliod, other.token | UINT64_C(1) << 63);
        again[5] = say_hello(foliod, other.token);
        assert_false(again[1].is_resumed);
        assert_true(again[2].is_resumed);
        assert_false(again[3].is_resumed);
        assert_false(again[4].is_resumed);
        assert_true(again[5].is_resumed);
        for (unsigned i = 0; i < 6; i++)
                for (unsigned j = 0; j < i; j++)
                        assert_true(again[i].number != again[j].number || i == 0);
        for (unsigned i = 0; i < 6; i++)
                raw_close(again[i].raw);
        raw_close(first.raw);
        raw_close(other.raw);
        foliod_stop(foliod);
}

/* In a child: another uid, with somebody else's token. */
static void steal(Child *child)
{
        uint64_t token = child_hear(child);
        Resumed mine;

        child_become(65534, 65534);
        mine = say_hello(child->foliod, token);
        child_say(child, mine.is_resumed);
        raw_close(mine.raw);
}

static void test_not_for_others(void **state)
{
        Foliod *foliod;
        Resumed first, again;
        Child *thief;

        if (geteuid() != 0)
                skip();
        foliod = foliod_start("--keeper", "process", NULL);
        first = say_hello(foliod, 0);
        thief = child_start(foliod, steal, NULL);
        kill_daemon(foliod);
        (void)foliod_serving_pid(foliod);
        child_say(thief, first.token);
        assert_int_equal(child_hear(thief), false);
        child_finish(thief);
        again = say_hello(foliod, first.token);
        assert_true(again.is_resumed);
        raw_close(again.raw);
        raw_close(first.raw);
        foliod_stop(foliod);
}

/* In a child that ends while there is no daemon: what it has published is done, what it was writing is not. */
static void publish_and_wait(Child *child)
{
        Raw *raw = raw_open(child->foliod);
        uint32_t namespace_id = raw_namespace(raw, "default");
        RawRing *ring = raw_ring_open(raw);
        RingRecord record = raw_record(RING_VERB_CREATE, namespace_id, "unfinished");

        record.size_bytes = 10;
        CHECK(raw_ring_call(ring, record) == STATUS_OK);
        child_say(child, 1);
        (void)child_hear(child);
        put_staged(ring, namespace_id, "published", raw->staging, 0);
        child_say(child, 2);
        for (;;)
                (void)pause();
}

static void test_gone_with_the_daemon(void **state)
{
        Foliod *foliod = foliod_start("--keeper", "process", NULL);
        Child *child = child_start(foliod, publish_and_wait, NULL);
        struct folio_client *client;
        Resumed me;
        uint32_t namespace_id;
        pid_t pid;

        assert_int_equal(child_hear(child), 1);
        pid = foliod_serving_pid(foliod);
        assert_int_equal(kill(foliod->pid, SIGSTOP), 0); /* nobody follows yet */
        assert_int_equal(kill(pid, SIGKILL), 0);
        child_say(child, 1);
        assert_int_equal(child_hear(child), 2);
        child_kill(child);
        assert_int_equal(kill(foliod->pid, SIGCONT), 0);
        me = say_hello(foliod, 0);
        namespace_id = raw_namespace(me.raw, "default");
        AWAIT(delete(me.raw, namespace_id, "published") == STATUS_OK);
        AWAIT(delete(me.raw, namespace_id, "unfinished") == STATUS_WRITER_DIED);
        client = foliod_connect(foliod);
        AWAIT(foliod_fact(client, "sessions.ghosts") == 0);
        assert_int_equal(foliod_fact(client, "sessions.lost"), 1);
        assert_int_equal(foliod_fact(client, "unsealed.count"), 0);
        folio_client_unref(client);
        raw_close(me.raw);
        foliod_stop(foliod);
}

/* Whatever is written over a ring while there is nobody: others go on. */
static void test_scribblers(void **state)
{
        Foliod *foliod = foliod_start("--keeper", "process", NULL);
        Resumed good = say_hello(foliod, 0), again;
        unsigned seed = 7;

        for (unsigned how = 0; how < 8; how++) {
                Raw *raw = raw_open(foliod);
                uint64_t token = raw->reply.session_token;
                RawRing *ring;
                Resumed bad;

                (void)raw_namespace(raw, "default");
                ring = raw_ring_open(raw);
                kill_daemon(foliod);
                if (how == 0)
                        atomic_store(&ring->header->tail, UINT64_MAX);
                else if (how == 1)
                        atomic_store(&ring->header->head, 1);
                else
                        for (size_t i = how % 2 ? 0 : 4096; i < RING_REGION_BYTES; i++)
                                ((uint8_t *)ring->header)[i] = (uint8_t)rand_r(&seed);
                (void)foliod_serving_pid(foliod);
                bad = say_hello(foliod, token);
                again = say_hello(foliod, good.token);
                assert_true(again.is_resumed);
                raw_close(good.raw);
                good = again;
                assert_int_equal(raw_namespace(good.raw, "default"), raw_namespace(bad.raw, "default"));
                raw_ring_close(ring);
                raw_close(raw);
                raw_close(bad.raw);
        }
        raw_close(good.raw);
        foliod_stop(foliod);
}

/* Many at once: all come back, and are what they were. */
static void test_a_crowd(void **state)
{
        enum { N = 200 };
        Foliod *foliod = foliod_start("--keeper", "process", "--clients-per-uid-max", "1000", NULL);
        static Resumed clients[N];
        struct folio_client *client;

        for (unsigned i = 0; i < N; i++) {
                clients[i] = say_hello(foliod, 0);
                (void)raw_namespace(clients[i].raw, "default");
        }
        for (unsigned round = 0; round < 2; round++) {
                kill_daemon(foliod);
                (void)foliod_serving_pid(foliod);
                for (unsigned i = 0; i < N; i++) {
                        Resumed again = say_hello(foliod, clients[i].token);

                        assert_true(again.is_resumed);
                        assert_int_equal(again.number, clients[i].number);
                        raw_close(clients[i].raw);
                        clients[i] = again;
                }
        }
        client = foliod_connect(foliod);
        assert_int_equal(foliod_fact(client, "sessions.ghosts"), 0);
        assert_int_equal(foliod_fact(client, "sessions.count"), N + 1);
        assert_int_equal(foliod_fact(client, "sessions.unkept"), 0);
        for (unsigned i = 0; i < N; i++)
                raw_close(clients[i].raw);
        AWAIT(foliod_fact(client, "sessions.count") == 1);
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_a_session_goes_on), INTEGRATION_TEST(test_who_gets_it),
                INTEGRATION_TEST(test_not_for_others),    INTEGRATION_TEST(test_gone_with_the_daemon),
                INTEGRATION_TEST(test_scribblers),        INTEGRATION_TEST(test_a_crowd),
        };

        return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
