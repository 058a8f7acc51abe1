/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what each verb takes, from both sides: every combination of fields, and a row for each kind of fault. */
#include "harness.h"

#include <stdbool.h>

#include "base/macro.h"
#include "daemon/server/shape.h"
#include "folio/admin.h"

static ProtoItem good_item(ProtoVerb verb)
{
        ProtoItem item = { .key = { "k", 1 } };

        if (verb == VERB_WRITE || verb == VERB_SEAL || verb == VERB_ABORT || verb == VERB_REGION ||
                verb == VERB_RELEASE)
                item = (ProtoItem){ .slot = 1, .generation = 2, .flags = PROTO_ITEM_BY_SLOT };
        if (verb == VERB_LEASE)
                item = (ProtoItem){ .size_bytes = 1 };
        return item;
}

/* Which of the five fields of a request each verb needs, and which it takes. */
enum { HELLO = 1, NS_ID = 2, ITEMS = 4, NS = 8, AFTER = 16 };

static const uint8_t needs[_VERB_MAX] = {
        [VERB_HELLO] = HELLO, [VERB_NAMESPACE_OPEN] = NS, [VERB_PUT] = ITEMS, [VERB_CREATE] = ITEMS,
                [VERB_WRITE] = ITEMS,
        [VERB_SEAL] = ITEMS, [VERB_ABORT] = ITEMS, [VERB_REGION] = ITEMS, [VERB_RELEASE] = ITEMS,
        [VERB_TRUNCATE] = ITEMS, [VERB_DELETE] = ITEMS, [VERB_HOLDERS] = ITEMS, [VERB_NAMESPACE_ADD] = NS,
        [VERB_NAMESPACE_SET] = NS, [VERB_NAMESPACE_REMOVE] = NS, [VERB_LEASE] = ITEMS,
};
static const uint8_t takes[_VERB_MAX] = {
        [VERB_HELLO] = HELLO, [VERB_NAMESPACE_OPEN] = NS, [VERB_PUT] = ITEMS | NS_ID, [VERB_CREATE] = ITEMS | NS_ID,
        [VERB_WRITE] = ITEMS | NS_ID, [VERB_SEAL] = ITEMS | NS_ID, [VERB_ABORT] = ITEMS | NS_ID,
        [VERB_REGION] = ITEMS | NS_ID, [VERB_RELEASE] = ITEMS | NS_ID, [VERB_TRUNCATE] = ITEMS | NS_ID,
        [VERB_DELETE] = ITEMS | NS_ID, [VERB_HOLDERS] = ITEMS | NS_ID, [VERB_NAMESPACE_ADD] = NS,
        [VERB_NAMESPACE_SET] = NS, [VERB_NAMESPACE_REMOVE] = NS, [VERB_WATCH] = NS_ID, [VERB_NAMESPACE_LIST] = AFTER,
        [VERB_LEASE] = ITEMS | NS_ID,
};

static void test_which_fields_break_a_rule(void **state)
{
        static const size_t n_items_max[_VERB_MAX] = { [VERB_REGION] = 250, [VERB_HOLDERS] = 1, [VERB_LEASE] = 1 };

        for (ProtoVerb verb = VERB_NONE + 1; verb < _VERB_MAX; verb++) {
                bool is_hello = verb == VERB_HELLO, is_silent = verb == VERB_ABORT || verb == VERB_RELEASE;
                size_t n_max = n_items_max[verb] ? n_items_max[verb] : PROTO_ITEMS_MAX;
                ProtoItem item = good_item(verb);

                for (unsigned fields = 0; fields < 32; fields++) {
                        ProtoRequest request = {
                                .id = 1, .verb = verb, .namespace_id = fields & NS_ID ? 3 : 0, .items = &item,
                                .n_items = fields & ITEMS ? 1 : 0, .has_namespace = fields & NS, .ns = { .name = "n" },
                                .version_min = fields & HELLO ? 1 : 0, .version_max = fields & HELLO ? 1 : 0,
                                .after = { "a", fields & AFTER ? 1 : 0 },
                        };
                        bool is_good = (fields & needs[verb]) == needs[verb] && !(fields & ~takes[verb]);

                        assert_int_equal(shape_find_breach(&request, !is_hello) == NULL, is_good);
                        assert_non_null(shape_find_breach(&request, is_hello));
                        if (!is_good)
                                continue;
                        request.id = 0;
                        assert_int_equal(shape_find_breach(&request, !is_hello) == NULL, is_silent);
                        request.id = 1;
                        if (!(takes[verb] & ITEMS))
                                continue;
                        request.n_items = n_max;
                        assert_null(shape_find_breach(&request, true));
                        request.n_items = n_max + 1;
                        assert_non_null(shape_find_breach(&request, true));
                }
        }
}

/* It is a field of HELLO like the others, whatever number it is. */
static void test_resume(void **state)
{
        static const uint64_t tokens[] = { 1, INT64_MAX, UINT64_MAX };

        for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
                ProtoRequest hello = { .id = 1, .verb = VERB_HELLO, .version_min = 1, .version_max = 1,
                                       .resume = tokens[i] };
                ProtoRequest ping = { .id = 1, .verb = VERB_PING, .resume = tokens[i] };

                assert_null(shape_find_breach(&hello, false));
                assert_non_null(shape_find_breach(&hello, true));
                assert_non_null(shape_find_breach(&ping, true));
        }
}

static void test_item_faults(void **state)
{
        static const struct { ProtoVerb verb; ProtoItem item; bool is_good; } rows[] = {
#define KEY .key = { "k", 1 }
#define SLOT .slot = 1, .generation = 2, .flags = PROTO_ITEM_BY_SLOT
                { VERB_PUT, { KEY, .size_bytes = 1, .staging_offset = 1, .flags = FOLIO_REPLACE, .lifetime = 1 },
                        true },
                { VERB_PUT, { KEY, .lifetime = FOLIO_UNTIL_TIME, .expires_ns = 1, .metadata = { "m", 1 } }, true },
                { VERB_PUT, { KEY, .size_bytes = UINT64_MAX, .staging_offset = UINT64_MAX }, true },
                { VERB_PUT, { .size_bytes = 1 }, false },
                { VERB_PUT, { SLOT }, false },
                { VERB_PUT, { KEY, .flags = FOLIO_MUTABLE }, false },
                { VERB_PUT, { KEY, .flags = FOLIO_STREAM }, false },
                { VERB_PUT, { KEY, .flags = PROTO_ITEM_STAGED }, false },
                { VERB_PUT, { KEY, .flags = 1u << 31 }, false },
                { VERB_PUT, { KEY, .offset_bytes = 1 }, false },
                { VERB_PUT, { KEY, .capacity_bytes = 1 }, false },
                { VERB_PUT, { KEY, .slot = 1 }, false },
                { VERB_PUT, { KEY, .generation = 1 }, false },
                { VERB_PUT, { KEY, .lifetime = 3 }, false },
                { VERB_PUT, { KEY, .lifetime = UINT32_MAX }, false },
                { VERB_PUT, { KEY, .expires_ns = 1 }, false },
                { VERB_CREATE, { KEY, .size_bytes = 1, .capacity_bytes = 2, .flags = 31 | PROTO_ITEM_STAGED }, true },
                { VERB_CREATE, { KEY, .flags = 32 }, false },
                { VERB_CREATE, { KEY, .staging_offset = 1 }, false },
                { VERB_CREATE, { KEY, .offset_bytes = 1 }, false },
                { VERB_WRITE, { SLOT, .offset_bytes = 1, .size_bytes = 1, .staging_offset = 1 }, true },
                { VERB_WRITE, { KEY }, false },
                { VERB_WRITE, { SLOT, KEY }, false },
                { VERB_WRITE, { SLOT, .content_type = { "c", 1 } }, false },
                { VERB_SEAL, { SLOT }, true },
                { VERB_SEAL, { SLOT, .staging_offset = 1 }, false },
                { VERB_SEAL, { .slot = 1, .generation = 2, .flags = PROTO_ITEM_BY_SLOT | PROTO_ITEM_STAGED,
                               .staging_offset = 1 }, true },
                { VERB_SEAL, { SLOT, .size_bytes = 1 }, false },
                { VERB_ABORT, { SLOT }, true },
                { VERB_ABORT, { KEY }, false },
                { VERB_REGION, { .flags = PROTO_ITEM_BY_SLOT | PROTO_ITEM_WRITABLE }, true },
                { VERB_REGION, { KEY, .flags = PROTO_ITEM_WRITABLE }, false },
                { VERB_REGION, { .flags = PROTO_ITEM_BY_SLOT | PROTO_ITEM_IF_EXISTS }, false },
                { VERB_RELEASE, { SLOT }, true },
                { VERB_RELEASE, { SLOT, .size_bytes = 1 }, false },
                { VERB_TRUNCATE, { SLOT, .size_bytes = UINT64_MAX }, true },
                { VERB_TRUNCATE, { KEY, .size_bytes = 1 }, true },
                { VERB_TRUNCATE, { KEY, .flags = PROTO_ITEM_WRITABLE }, false },
                { VERB_TRUNCATE, { SLOT, KEY }, false },
                { VERB_DELETE, { KEY, .flags = PROTO_ITEM_IF_EXISTS }, true },
                { VERB_DELETE, { SLOT }, true },
                { VERB_DELETE, { .flags = PROTO_ITEM_IF_EXISTS }, false },
                { VERB_DELETE, { KEY, .size_bytes = 1 }, false },
                { VERB_HOLDERS, { KEY }, true },
                { VERB_HOLDERS, { KEY, .flags = PROTO_ITEM_IF_EXISTS }, false },
                { VERB_LEASE, { .size_bytes = 0 }, true },
                { VERB_LEASE, { .size_bytes = UINT64_MAX, .offset_bytes = UINT64_MAX }, true },
                { VERB_LEASE, { KEY }, false },
                { VERB_LEASE, { SLOT }, false },
                { VERB_LEASE, { .slot = 1 }, false },
                { VERB_LEASE, { .generation = 1 }, false },
                { VERB_LEASE, { .flags = PROTO_ITEM_BY_SLOT }, false },
                { VERB_LEASE, { .flags = FOLIO_REPLACE }, false },
                { VERB_LEASE, { .capacity_bytes = 1 }, false },
                { VERB_LEASE, { .staging_offset = 1 }, false },
                { VERB_LEASE, { .lifetime = 1 }, false },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                if ((shape_find_item_fault(rows[i].verb, &rows[i].item) == NULL) != rows[i].is_good)
                        fail_msg("row %zu: %s", i, rows[i].is_good ? "refused" : "taken");
}

static void test_settings_by_table(void **state)
{
        static const struct { ProtoNamespace ns; bool is_good; } rows[] = {
                { { .fields = 0, .mode = UINT32_MAX, .backing = 99, .huge = 99 }, true },
                { { .fields = 511, .mode = 0777, .backing = 1, .huge = 2, .writers = 2, .owner_uid = UINT32_MAX - 1 }, true },
                { { .fields = 512 }, false },
                { { .fields = UINT32_MAX }, false },
                { { .fields = FOLIO_NAMESPACE_FIELD_BACKING, .backing = 0 }, false },
                { { .fields = FOLIO_NAMESPACE_FIELD_BACKING, .backing = 3 }, true },
                { { .fields = FOLIO_NAMESPACE_FIELD_BACKING, .backing = 4 }, false },
                { { .fields = FOLIO_NAMESPACE_FIELD_HUGE, .huge = 3 }, false },
                { { .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = 0 }, false },
                { { .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = 1 }, true },
                { { .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = 2 }, true },
                { { .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = 3 }, false },
                { { .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = UINT32_MAX }, false },
                { { .fields = FOLIO_NAMESPACE_FIELD_OWNER, .owner_uid = UINT32_MAX }, false },
                { { .fields = FOLIO_NAMESPACE_FIELD_GROUP, .owner_gid = UINT32_MAX }, false },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                ProtoRequest request = { .id = 1, .verb = VERB_NAMESPACE_SET, .has_namespace = true, .ns = rows[i].ns };

                assert_int_equal(shape_find_fault(&request, 0) == NULL, rows[i].is_good);
        }
}

/* A reply has room for 250 descriptors: every item that can end in a region of its own counts. */
static void test_descriptors_of_a_create_by_table(void **state)
{
        static const struct { uint32_t flags; uint64_t size_bytes; bool has_descriptor; } rows[] = {
                { 0, 1, true },
                { FOLIO_OWN_REGION, 1, true },
                { PROTO_ITEM_STAGED, 0, false },
                { PROTO_ITEM_STAGED, 1000, false },
                { PROTO_ITEM_STAGED, 1001, true },
                { PROTO_ITEM_STAGED, UINT64_MAX, true },
                { PROTO_ITEM_STAGED | FOLIO_REPLACE, 1000, false },
                { PROTO_ITEM_STAGED | FOLIO_OWN_REGION, 1, true },
                { PROTO_ITEM_STAGED | FOLIO_MUTABLE, 1, true },
                { PROTO_ITEM_STAGED | FOLIO_SPARSE, 1, true },
                { FOLIO_STREAM, 0, false },
                { FOLIO_STREAM | PROTO_ITEM_STAGED, 0, false },
                { FOLIO_STREAM | FOLIO_OWN_REGION | FOLIO_SPARSE, 0, false },
        };
        static ProtoItem items[PROTO_ITEMS_MAX];
        ProtoRequest request = { .id = 1, .verb = VERB_CREATE, .items = items };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                for (size_t j = 0; j < PROTO_ITEMS_MAX; j++)
                        items[j] = (ProtoItem){ KEY, .flags = rows[i].flags, .size_bytes = rows[i].size_bytes };
                request.n_items = SHAPE_DESCRIPTORS_MAX;
                assert_null(shape_find_fault(&request, 1000));
                request.n_items = SHAPE_DESCRIPTORS_MAX + 1;
                assert_int_equal(shape_find_fault(&request, 1000) != NULL, rows[i].has_descriptor);
                request.n_items = PROTO_ITEMS_MAX;
                assert_int_equal(shape_find_fault(&request, 1000) != NULL, rows[i].has_descriptor);
        }
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_descriptors_of_a_create_by_table),
                UNIT_TEST(test_which_fields_break_a_rule),
                UNIT_TEST(test_resume),
                UNIT_TEST(test_item_faults),
                UNIT_TEST(test_settings_by_table),
        };

        return cmocka_run_group_tests_name("shape", tests, NULL, NULL);
}
