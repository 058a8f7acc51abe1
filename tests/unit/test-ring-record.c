/* SPDX-License-Identifier: Apache-2.0 */
/* One record at a time, by table: what each verb becomes, what is refused or ends the connection; and the numbers. */
#include "harness.h"

#include <stdbool.h>

#include "base/macro.h"
#include "daemon/server/ring-record.h"

#define OWN_BYTES_MAX (UINT64_C(1) << 20)

static RingMade made[RING_MADE_MAX];
static StoreOp op;
static ProtoItem item;
static Status status;
static const char *sentence;

static int setup(void **state)
{
        harness_setup(state);
        memset(made, 0, sizeof(made));
        return 0;
}

#define RECORD_TEST(function) cmocka_unit_test_setup_teardown(function, setup, harness_teardown)

static RingFate translate(const RingRecord *record)
{
        memset(&op, 0xa5, sizeof(op));
        memset(&item, 0xa5, sizeof(item));
        status = STATUS_OK;
        sentence = NULL;
        return ring_record_translate(record, made, OWN_BYTES_MAX, &op, &item, &status, &sentence);
}

#define K .key = "k", .key_bytes = 1

static void test_what_each_verb_becomes(void **state)
{
        static const struct { RingRecord record; ProtoVerb verb; uint64_t leased; ProtoItem item; } rows[] = {
                { { .verb = RING_VERB_PUT, K, .namespace_id = 3, .size_bytes = 9, .offset_bytes = 64,
                    .flags = FOLIO_REPLACE | RING_FLAG_RESULT, .lifetime = 2, .expires_ns = 5 }, VERB_PUT, 0,
                  { .flags = FOLIO_REPLACE, .size_bytes = 9, .staging_offset = 64, .lifetime = 2, .expires_ns = 5 } },
                { { .verb = RING_VERB_PUT, K, .namespace_id = 3, .size_bytes = UINT64_MAX, .offset_bytes = 128,
                    .region_id = UINT64_MAX }, VERB_PUT, UINT64_MAX,
                  { .size_bytes = UINT64_MAX, .offset_bytes = 128 } },
                { { .verb = RING_VERB_CREATE, K, .namespace_id = 3, .slot = 255, .size_bytes = OWN_BYTES_MAX },
                  VERB_CREATE, 0,
                  { .flags = PROTO_ITEM_STAGED, .size_bytes = OWN_BYTES_MAX } },
                { { .verb = RING_VERB_CREATE, K, .namespace_id = 3, .slot = 1, .size_bytes = OWN_BYTES_MAX + 1,
                    .region_id = 4, .offset_bytes = 8 }, VERB_CREATE, 4,
                  { .size_bytes = OWN_BYTES_MAX + 1, .offset_bytes = 8 } },
                { { .verb = RING_VERB_DELETE, K, .namespace_id = 3, .flags = PROTO_ITEM_IF_EXISTS }, VERB_DELETE, 0,
                  { .flags = PROTO_ITEM_IF_EXISTS } },
                { { .verb = RING_VERB_DELETE, .namespace_id = 3, .slot = 7, .generation = 8 }, VERB_DELETE, 0,
                  { .flags = PROTO_ITEM_BY_SLOT, .slot = 7, .generation = 8 } },
                { { .verb = RING_VERB_RELEASE, .namespace_id = 3, .slot = UINT32_MAX, .generation = UINT64_MAX },
                  VERB_RELEASE, 0, { .flags = PROTO_ITEM_BY_SLOT, .slot = UINT32_MAX, .generation = UINT64_MAX } },
                { { .verb = RING_VERB_TRUNCATE, K, .namespace_id = 3, .size_bytes = 100 }, VERB_TRUNCATE, 0,
                  { .size_bytes = 100 } },
                { { .verb = RING_VERB_TRUNCATE, .namespace_id = 3, .slot = 7, .generation = 8 }, VERB_TRUNCATE, 0,
                  { .flags = PROTO_ITEM_BY_SLOT, .slot = 7, .generation = 8 } },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                const RingRecord *record = &rows[i].record;

                assert_int_equal(translate(record), RING_FATE_SUBMIT);
                assert_int_equal(op.verb, rows[i].verb);
                assert_int_equal(ring_record_verb(record), rows[i].verb);
                assert_int_equal(op.namespace_id, 3);
                assert_true(op.leased_region_id == rows[i].leased);
                assert_int_equal(item.key.n_bytes, record->key_bytes);
                assert_ptr_equal(item.key.bytes, record->key);
                assert_int_equal(item.flags, rows[i].item.flags);
                assert_int_equal(item.slot, rows[i].item.slot);
                assert_true(item.generation == rows[i].item.generation);
                assert_true(item.size_bytes == rows[i].item.size_bytes);
                assert_int_equal(item.capacity_bytes, 0);
                assert_true(item.offset_bytes == rows[i].item.offset_bytes);
                assert_true(item.staging_offset == rows[i].item.staging_offset);
                assert_int_equal(item.lifetime, rows[i].item.lifetime);
                assert_int_equal(item.expires_ns, rows[i].item.expires_ns);
                assert_int_equal(item.metadata.n_bytes + item.content_type.n_bytes, 0);
        }
}

static void test_breaches(void **state)
{
        RingRecord record = { K };

        for (unsigned verb = 0; verb < 256; verb++) {
                record.verb = (uint8_t)verb;
                assert_int_equal(translate(&record) == RING_FATE_BREACH, verb == 0 || verb >= _RING_VERB_MAX);
                assert_int_equal(ring_record_verb(&record) == VERB_NONE, verb == 0 || verb >= _RING_VERB_MAX);
        }
        for (unsigned verb = 1; verb < _RING_VERB_MAX; verb++) {
                record = (RingRecord){ K, .verb = (uint8_t)verb, .reserved = 1 };
                assert_int_equal(translate(&record), RING_FATE_BREACH);
                assert_non_null(sentence);
                record.reserved = 255;
                assert_int_equal(translate(&record), RING_FATE_BREACH);
                record.reserved = 0;
                for (unsigned bit = 0; bit < 32; bit++) {
                        bool is_known = UINT32_C(1) << bit & (FOLIO_REPLACE | PROTO_ITEM_IF_EXISTS | RING_FLAG_RESULT);

                        record.flags = UINT32_C(1) << bit;
                        assert_int_equal(translate(&record) == RING_FATE_BREACH, !is_known);
                }
        }
}

static void test_refusals(void **state)
{
#define PUT(...) { .verb = RING_VERB_PUT, K, __VA_ARGS__ }
#define CREATE(...) { .verb = RING_VERB_CREATE, K, __VA_ARGS__ }
        static const struct { RingRecord record; Status status; } rows[] = {
                /* Fields and flags that the verb does not take. */
                { PUT(.flags = PROTO_ITEM_IF_EXISTS), STATUS_INVALID },
                { CREATE(.flags = PROTO_ITEM_IF_EXISTS), STATUS_INVALID },
                { { .verb = RING_VERB_DELETE, K, .flags = FOLIO_REPLACE }, STATUS_INVALID },
                { { .verb = RING_VERB_SEAL, .flags = FOLIO_REPLACE }, STATUS_INVALID },
                { { .verb = RING_VERB_RELEASE, .flags = PROTO_ITEM_IF_EXISTS }, STATUS_INVALID },
                { { .verb = RING_VERB_DELETE, K, .size_bytes = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_DELETE, K, .region_id = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_DELETE, K, .offset_bytes = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_DELETE, K, .lifetime = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_TRUNCATE, K, .expires_ns = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_ABORT, .size_bytes = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_SEAL, .size_bytes = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_RELEASE, .slot = 1, .size_bytes = 1 }, STATUS_INVALID },
                /* How it is named. */
                { { .verb = RING_VERB_PUT }, STATUS_INVALID },
                { { .verb = RING_VERB_CREATE }, STATUS_INVALID },
                { PUT(.slot = 1), STATUS_INVALID },
                { PUT(.generation = UINT64_MAX), STATUS_INVALID },
                { CREATE(.generation = 1), STATUS_INVALID },
                { CREATE(.slot = RING_MADE_MAX), STATUS_INVALID },
                { CREATE(.slot = UINT32_MAX), STATUS_INVALID },
                { { .verb = RING_VERB_SEAL, .slot = RING_MADE_MAX }, STATUS_INVALID },
                { { .verb = RING_VERB_ABORT, .slot = UINT32_MAX }, STATUS_INVALID },
                { { .verb = RING_VERB_SEAL, K }, STATUS_INVALID },
                { { .verb = RING_VERB_ABORT, K }, STATUS_INVALID },
                { { .verb = RING_VERB_SEAL, .generation = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_RELEASE, K }, STATUS_INVALID },
                { { .verb = RING_VERB_DELETE, K, .slot = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_DELETE, K, .generation = 1 }, STATUS_INVALID },
                /* Keys. */
                { { .verb = RING_VERB_PUT, .key = "a\0b", .key_bytes = 3 }, STATUS_INVALID },
                { { .verb = RING_VERB_DELETE, .key_bytes = 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_PUT, .key = { 'x' }, .key_bytes = RING_KEY_BYTES_MAX + 1 }, STATUS_INVALID },
                { { .verb = RING_VERB_PUT, .key = { 'x' }, .key_bytes = 255 }, STATUS_INVALID },
                /* States. */
                { CREATE(.size_bytes = OWN_BYTES_MAX + 1), STATUS_STATE },
                { CREATE(.size_bytes = UINT64_MAX), STATUS_STATE },
                { { .verb = RING_VERB_SEAL, .slot = 0 }, STATUS_STATE },
                { { .verb = RING_VERB_SEAL, .slot = RING_MADE_MAX - 1 }, STATUS_STATE },
                { { .verb = RING_VERB_ABORT, .slot = RING_MADE_MAX - 1 }, STATUS_STATE },
        };
        RingRecord longest = { .verb = RING_VERB_PUT, .key_bytes = RING_KEY_BYTES_MAX };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_int_equal(translate(&rows[i].record), RING_FATE_REFUSED);
                assert_int_equal(status, rows[i].status);
                assert_non_null(sentence);
        }
        memset(longest.key, 'x', sizeof(longest.key));
        assert_int_equal(translate(&longest), RING_FATE_SUBMIT);
        longest.key[RING_KEY_BYTES_MAX - 1] = 0;
        assert_int_equal(translate(&longest), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_INVALID);
}

static const RingRecord create = { .verb = RING_VERB_CREATE, K, .slot = 5, .namespace_id = 3, .size_bytes = 1 };
static const RingRecord seal = { .verb = RING_VERB_SEAL, .slot = 5, .namespace_id = 3, .offset_bytes = 192 };
static const RingRecord give_up = { .verb = RING_VERB_ABORT, .slot = 5, .namespace_id = 3 };

static void test_a_number_stands_for_what_was_created(void **state)
{
        ring_record_settle(&create, made, STATUS_OK, 77, 88);
        assert_int_equal(made[5].state, RING_MADE_OBJECT);
        assert_int_equal(translate(&seal), RING_FATE_SUBMIT);
        assert_int_equal(op.verb, VERB_SEAL);
        assert_int_equal(item.slot, 77);
        assert_int_equal(item.generation, 88);
        assert_int_equal(item.staging_offset, 192);
        assert_int_equal(item.offset_bytes, 0);
        assert_int_equal(op.leased_region_id, 0);
        assert_int_equal(item.flags, PROTO_ITEM_STAGED | PROTO_ITEM_BY_SLOT);
        /* The number is not free. */
        assert_int_equal(translate(&create), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_STATE);
        ring_record_settle(&create, made, status, 0, 0);
        assert_int_equal(made[5].slot, 77);
        /* A seal that fails changes nothing. */
        ring_record_settle(&seal, made, STATUS_FULL, 0, 0);
        assert_int_equal(translate(&give_up), RING_FATE_SUBMIT);
        assert_int_equal(op.verb, VERB_ABORT);
        assert_int_equal(item.slot, 77);
        assert_int_equal(item.flags, PROTO_ITEM_BY_SLOT);
        assert_int_equal(translate(&seal), RING_FATE_SUBMIT);
        ring_record_settle(&seal, made, STATUS_OK, 77, 89);
        assert_int_equal(translate(&seal), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_STATE);
        assert_int_equal(translate(&create), RING_FATE_SUBMIT);
}

static void test_a_number_of_a_lease(void **state)
{
        RingRecord leased = create, sealed = seal;

        leased.region_id = sealed.region_id = 9;
        leased.offset_bytes = 192;
        ring_record_settle(&leased, made, STATUS_OK, 77, 88);
        assert_int_equal(translate(&sealed), RING_FATE_SUBMIT);
        assert_int_equal(item.flags, PROTO_ITEM_BY_SLOT);
        assert_int_equal(item.staging_offset, 0);
        assert_int_equal(item.offset_bytes, 0);
        /* Named wrong, and nothing comes of it. */
        sealed.region_id = 10;
        assert_int_equal(translate(&sealed), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_INVALID);
        assert_int_equal(translate(&seal), RING_FATE_REFUSED);
        sealed = give_up;
        sealed.namespace_id = 4;
        assert_int_equal(translate(&sealed), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_INVALID);
        ring_record_settle(&sealed, made, status, 0, 0);
        assert_int_equal(made[5].state, RING_MADE_OBJECT);
        assert_int_equal(translate(&give_up), RING_FATE_SUBMIT);
        ring_record_settle(&give_up, made, STATUS_DELETED, 0, 0);
        assert_int_equal(made[5].state, RING_MADE_NONE);
}

static void test_a_creation_that_failed(void **state)
{
        ring_record_settle(&create, made, STATUS_FULL, 0, 0);
        assert_int_equal(translate(&seal), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_FULL);
        assert_non_null(sentence);
        ring_record_settle(&seal, made, status, 0, 0);
        assert_int_equal(translate(&seal), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_FULL);
        /* Nothing to give up is no failure. */
        assert_int_equal(translate(&give_up), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_OK);
        ring_record_settle(&give_up, made, status, 0, 0);
        assert_int_equal(translate(&give_up), RING_FATE_REFUSED);
        assert_int_equal(status, STATUS_STATE);
        /* Or the number is just used again. */
        ring_record_settle(&create, made, STATUS_EXISTS, 0, 0);
        assert_int_equal(translate(&create), RING_FATE_SUBMIT);
        ring_record_settle(&create, made, STATUS_OK, 1, 2);
        assert_int_equal(translate(&seal), RING_FATE_SUBMIT);
}

static void test_settling_touches_only_its_number(void **state)
{
        static const RingMade none[RING_MADE_MAX];
        RingRecord record = create;

        record.slot = RING_MADE_MAX;
        ring_record_settle(&record, made, STATUS_OK, 1, 2);
        record.slot = UINT32_MAX;
        ring_record_settle(&record, made, STATUS_OK, 1, 2);
        for (uint8_t verb = RING_VERB_DELETE; verb < _RING_VERB_MAX; verb++) {
                record = (RingRecord){ .verb = verb, .slot = 5, .generation = 1 };
                ring_record_settle(&record, made, STATUS_OK, 1, 2);
        }
        record = (RingRecord){ .verb = RING_VERB_PUT, K };
        ring_record_settle(&record, made, STATUS_OK, 1, 2);
        assert_memory_equal(made, none, sizeof(made));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                RECORD_TEST(test_what_each_verb_becomes),
                RECORD_TEST(test_breaches),
                RECORD_TEST(test_refusals),
                RECORD_TEST(test_a_number_stands_for_what_was_created),
                RECORD_TEST(test_a_number_of_a_lease),
                RECORD_TEST(test_a_creation_that_failed),
                RECORD_TEST(test_settling_touches_only_its_number),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
