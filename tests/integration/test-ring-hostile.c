/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that lie: about the ring's own numbers, about what there is to do, about memory that is not theirs. Each is
 * refused, or ends the connection that it came by; nobody else notices, and nothing is left of it.
 */
#include "tests/integration/raw-ring.h"
#include "tests/integration/spaces.h"

#define MIB (UINT64_C(1) << 20)

/* As it should be: 64 bytes in the lease. */
static uint32_t put(const RawHolder *holder, const char *key, uint64_t offset_bytes)
{
        return raw_ring_call(holder->ring, raw_holder_put(holder, key, offset_bytes, 64));
}

/* --- the numbers of the ring -------------------------------------------------------------------------------------- */

static void test_tails(void **state)
{
        static const struct {
                uint64_t distance;   /* added to the tail that would be right, wrapping */
                bool is_breach;
        } rows[] = {
                { 0, false },          { UINT64_MAX, true },          { UINT64_MAX - 2, true },
                { RING_RECORDS + 1, true }, { RING_RECORDS * 2, true }, { UINT64_C(1) << 32, true },
                { (UINT64_C(1) << 32) + 1, true }, { UINT64_C(1) << 62, true }, { UINT64_C(1) << 63, true },
        };
        Scene scene = scene_begin();

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                RawHolder hostile = raw_holder_open(scene.foliod);

                for (unsigned j = 0; j < 3; j++)
                        (void)raw_ring_call(hostile.ring, raw_record(RING_VERB_DELETE, hostile.trusted_id, "nothing"));
                raw_ring_publish(hostile.ring, hostile.ring->tail + rows[i].distance);
                if (rows[i].is_breach)
                        raw_await_hangup(hostile.raw);
                else
                        assert_int_equal(put(&hostile, "good", 0), STATUS_OK);
                scene_work(&scene);
                raw_holder_close(&hostile);
        }
        /* Just as many as there is room for is right. */
        {
                RawHolder hostile = raw_holder_open(scene.foliod);

                for (unsigned i = 0; i < RING_RECORDS; i++)
                        hostile.ring->records[i] = raw_record(RING_VERB_DELETE, hostile.trusted_id, "nothing");
                hostile.ring->tail = RING_RECORDS;
                raw_ring_publish(hostile.ring, RING_RECORDS);
                assert_true(raw_ring_await(hostile.ring, RING_RECORDS));
                raw_holder_close(&hostile);
        }
        scene_end(&scene);
}

/* Refused, or the end of the connection; never carried out. A refusal leaves the ring as good as it was. */
static bool is_refused(uint32_t status)
{
        return status != STATUS_OK;
}

static void test_verbs_unknown(void **state)
{
        static const uint8_t verbs[] = { RING_VERB_NONE, _RING_VERB_MAX, 100, 255 };
        Scene scene = scene_begin();

        (void)state;
        for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
                RawHolder hostile = raw_holder_open(scene.foliod);
                RingRecord record = raw_holder_put(&hostile, "unknown", 0, 64);

                record.verb = verbs[i];
                assert_int_equal(raw_ring_call(hostile.ring, record), _STATUS_MAX);
                raw_await_hangup(hostile.raw);
                scene_work(&scene);
                raw_holder_close(&hostile);
        }
        scene_end(&scene);
}

/* --- what a record may say ---------------------------------------------------------------------------------------- */

typedef struct Row {
        const char *what;
        RingRecord record;
} Row;

static void try_rows(Scene *scene, RawHolder *hostile, const Row *rows, size_t n_rows)
{
        for (size_t i = 0; i < n_rows; i++) {
                RingRecord record = rows[i].record;
                uint32_t status;

                /* Rows are written for the first connection: the next has other numbers. */
                if (record.region_id == UINT64_MAX - 1)
                        record.region_id = hostile->lease.region_id;
                status = raw_ring_call(hostile->ring, record);
                if (!is_refused(status))
                        fail_msg("\"%s\" is carried out", rows[i].what);
                if (status == _STATUS_MAX) {
                        raw_holder_close(hostile);
                        *hostile = raw_holder_open(scene->foliod);
                }
                scene_work(scene);
        }
}

#define MINE (UINT64_MAX - 1)        /* the region of one's own lease */
#define PUT(id, offset, size, region)                                                                                  \
        {                                                                                                              \
                .verb = RING_VERB_PUT, .key_bytes = 3, .key = "bad", .namespace_id = (id), .offset_bytes = (offset),   \
                .size_bytes = (size), .region_id = (region)                                                            \
        }

static void test_places(void **state)
{
        Scene scene = scene_begin();
        RawHolder other = raw_holder_open(scene.foliod), hostile = raw_holder_open(scene.foliod);
        uint64_t end = hostile.lease.region_bytes, staging = hostile.raw->staging_bytes;
        uint32_t trusted = hostile.trusted_id, untrusted = hostile.default_id;
        uint64_t not_mine = other.lease.region_id;
        const Row rows[] = {
                { "behind the end", PUT(trusted, end, 64, MINE) },
                { "over the end", PUT(trusted, end - 64, 65, MINE) },
                { "all and one", PUT(trusted, 0, end + 1, MINE) },
                { "offset and size wrap", PUT(trusted, 64, UINT64_MAX - 63, MINE) },
                { "offset and size wrap to 0", PUT(trusted, UINT64_MAX - 63, 64, MINE) },
                { "size of all ones", PUT(trusted, 0, UINT64_MAX, MINE) },
                { "size that rounds to 0", PUT(trusted, 0, UINT64_MAX - 10, MINE) },
                { "size of 2^63", PUT(trusted, 0, UINT64_C(1) << 63, MINE) },
                { "size of 2^37", PUT(trusted, 0, LEASE_REGION_BYTES_MAX, MINE) },
                { "offset of all ones", PUT(trusted, UINT64_MAX, 0, MINE) },
                { "not on a unit", PUT(trusted, 32, 64, MINE) },
                { "taken", PUT(trusted, 4096, 64, MINE) },
                { "the end of it is taken", PUT(trusted, 4096 - 64, 128, MINE) },
                { "around what is taken", PUT(trusted, 0, 65536, MINE) },
                { "empty, and taken", PUT(trusted, 4096, 0, MINE) },
                { "another's lease", PUT(trusted, 0, 64, not_mine) },
                { "no such region", PUT(trusted, 0, 64, 12345678) },
                { "region of all ones", PUT(trusted, 0, 64, UINT64_MAX) },
                { "leased, in another namespace", PUT(untrusted, 0, 64, MINE) },
                { "staging: behind the end", PUT(untrusted, staging, 1, 0) },
                { "staging: over the end", PUT(untrusted, staging - 1, 2, 0) },
                { "staging: wraps", PUT(untrusted, UINT64_MAX, 2, 0) },
                { "staging: wraps to 0", PUT(untrusted, 1, UINT64_MAX, 0) },
                { "staging: too large", PUT(untrusted, 0, hostile.raw->packed_bytes_max + 1, 0) },
                { "no such namespace", PUT(12345, 0, 64, 0) },
                { "namespace of all ones", PUT(UINT32_MAX, 0, 64, MINE) },
        };

        (void)state;
        /* What is taken: also of the next connection, should this one be ended. */
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                if (!hostile.lease.data[4096]) {
                        char key[32];

                        (void)snprintf(key, sizeof(key), "taken %zu", i);
                        memset(hostile.lease.data + 4096, 0x77, 64);
                        assert_int_equal(put(&hostile, key, 4096), STATUS_OK);
                }
                try_rows(&scene, &hostile, &rows[i], 1);
        }
        assert_int_equal(spaces_count(scene.client, "trusted:bad"), 0);
        assert_int_equal(spaces_count(scene.client, "default:bad"), 0);
        raw_holder_close(&hostile);
        raw_holder_close(&other);
        scene_end(&scene);
}

static void test_nonsense(void **state)
{
        Scene scene = scene_begin();
        RawHolder hostile = raw_holder_open(scene.foliod);
        uint32_t id = hostile.trusted_id;
        const Row rows[] = {
                { "seal of nothing", { .verb = RING_VERB_SEAL, .namespace_id = id, .slot = 5, .region_id = MINE } },
                { "seal beyond the numbers", { .verb = RING_VERB_SEAL, .namespace_id = id, .slot = RING_MADE_MAX } },
                { "seal of all ones", { .verb = RING_VERB_SEAL, .namespace_id = id, .slot = UINT32_MAX } },
                { "abort of nothing", { .verb = RING_VERB_ABORT, .namespace_id = id, .slot = 7 } },
                { "create beyond the numbers",
                  { .verb = RING_VERB_CREATE, .namespace_id = id, .slot = RING_MADE_MAX, .region_id = MINE,
                    .size_bytes = 64, .key_bytes = 3, .key = "bad" } },
                { "create of all ones",
                  { .verb = RING_VERB_CREATE, .namespace_id = id, .slot = UINT32_MAX, .region_id = MINE,
                    .size_bytes = UINT64_MAX, .key_bytes = 3, .key = "bad" } },
                { "delete of what is not there",
                  { .verb = RING_VERB_DELETE, .namespace_id = id, .key_bytes = 3, .key = "bad" } },
                { "delete by a slot of all ones",
                  { .verb = RING_VERB_DELETE, .namespace_id = id, .slot = UINT32_MAX, .generation = UINT64_MAX } },
                { "truncate of nothing",
                  { .verb = RING_VERB_TRUNCATE, .namespace_id = id, .key_bytes = 3, .key = "bad",
                    .size_bytes = UINT64_MAX } },
                { "a key longer than there is room",
                  { .verb = RING_VERB_PUT, .namespace_id = id, .key_bytes = RING_KEY_BYTES_MAX + 1,
                    .region_id = MINE } },
                { "a key of 255", { .verb = RING_VERB_PUT, .namespace_id = id, .key_bytes = 255, .region_id = MINE } },
                { "no key", { .verb = RING_VERB_PUT, .namespace_id = id, .region_id = MINE } },
                { "a key with a NUL",
                  { .verb = RING_VERB_PUT, .namespace_id = id, .key_bytes = 3, .key = "a\0b", .region_id = MINE } },
                { "flags of all ones",
                  { .verb = RING_VERB_PUT, .namespace_id = id, .key_bytes = 3, .key = "bad", .region_id = MINE,
                    .flags = UINT32_MAX } },
                { "a lifetime that is none",
                  { .verb = RING_VERB_PUT, .namespace_id = id, .key_bytes = 3, .key = "bad", .region_id = MINE,
                    .lifetime = 99 } },
                { "a reserved byte",
                  { .verb = RING_VERB_PUT, .namespace_id = id, .key_bytes = 3, .key = "bad", .region_id = MINE,
                    .reserved = 1 } },
        };

        (void)state;
        try_rows(&scene, &hostile, rows, sizeof(rows) / sizeof(rows[0]));
        assert_int_equal(spaces_count(scene.client, "trusted:"), 0);
        raw_holder_close(&hostile);
        scene_end(&scene);
}

/* Rights: in a namespace that one may read and not write, neither a lease nor a record does anything. */
static void write_without_right(Child *child)
{
        ProtoItem item = { .size_bytes = 4096, .offset_bytes = 2 * MIB };
        uint32_t id, own_id;
        RawLease lease;
        RawRing *ring;
        Raw *raw;

        child_become(65534, 65534);
        raw = raw_open(child->foliod);
        id = raw_namespace(raw, "readable");
        own_id = raw_namespace(raw, "trusted");
        ring = raw_ring_open(raw);
        CHECK(raw_item(raw, VERB_LEASE, id, item) != STATUS_OK);
        CHECK(raw_lease_open(raw, own_id, 4096, 2 * MIB, &lease) == STATUS_OK);
        for (unsigned i = 0; i < 2; i++) {
                RingRecord record = raw_record(RING_VERB_PUT, id, "bad");

                record.size_bytes = 64;
                record.region_id = i ? lease.region_id : 0;
                CHECK(is_refused(raw_ring_call(ring, record)));
                record.verb = RING_VERB_DELETE;
                CHECK(is_refused(raw_ring_call(ring, record)));
                memcpy(record.key, "there", 5);
                record.key_bytes = 5;
                CHECK(is_refused(raw_ring_call(ring, record)));
        }
        raw_lease_close(&lease);
        raw_ring_close(ring);
        raw_close(raw);
}

static void test_rights(void **state)
{
        Foliod *foliod;
        Alive before;
        struct folio_client *client;

        (void)state;
        if (geteuid() != 0) {
                print_message("# only root can be another user\n");
                skip();
        }
        foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, FOLIOD_TRUSTED, "--namespace",
                              "readable:writers=trusted,mode=0744", NULL);
        before = alive_begin(foliod);
        client = foliod_connect(foliod);
        ASSERT_OK(folio_put(client, "readable:there", "there", 5, NULL));
        child_finish(child_start(foliod, write_without_right, NULL));
        assert_int_equal(spaces_delete_all(client, "readable:"), 1);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_tails),
                INTEGRATION_TEST(test_verbs_unknown),
                INTEGRATION_TEST(test_places),
                INTEGRATION_TEST(test_nonsense),
                INTEGRATION_TEST(test_rights),
        };

        return cmocka_run_group_tests_name("ring-hostile", tests, NULL, NULL);
}
