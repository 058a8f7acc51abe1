/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec: every field there and back, every limit from both sides, and that damaged packets (every prefix, every
 * flipped bit, packets made to amplify) are refused or make sense, without a byte of heap.
 */
#include "harness.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/macro.h"
#include "proto/codec.h"

typedef struct Fixture {
        ProtoDecoder *decoder;
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        uint8_t again[PROTO_MESSAGE_BYTES_MAX];
} Fixture;

static Fixture fixture;

static int setup(void **state)
{
        harness_setup(state);
        return proto_decoder_new(&fixture.decoder);
}

static int teardown(void **state)
{
        proto_decoder_free(fixture.decoder);
        return harness_teardown(state);
}

#define CODEC_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static Key key_of(const char *text)
{
        return (Key){ text, strlen(text) };
}

static void assert_key(Key a, Key b)
{
        assert_int_equal(a.n_bytes, b.n_bytes);
        if (a.n_bytes > 0)
                assert_memory_equal(a.bytes, b.bytes, a.n_bytes);
}

static ProtoNamespace some_namespace(const char *name)
{
        ProtoNamespace ns = {
                .id = 1, .fields = 2, .owner_uid = UINT32_MAX, .owner_gid = 4, .mode = 0760, .backing = 2, .huge = 1,
                .rights = 7, .quota_bytes = UINT64_MAX, .quota_objects = 9, .objects_max = 10, .used_bytes = 11,
                .n_objects = 12, .held_bytes = 13, .n_held = 14, .unsealed_bytes = 15, .n_unsealed = 16,
                .index_bytes = 17, .pins_bytes = 18, .writers = 19, .leased_bytes = 20,
        };

        snprintf(ns.name, sizeof(ns.name), "%s", name);
        return ns;
}

static void assert_namespace(const ProtoNamespace *a, const ProtoNamespace *b)
{
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->id, b->id);
        assert_int_equal(a->fields, b->fields);
        assert_int_equal(a->owner_uid, b->owner_uid);
        assert_int_equal(a->owner_gid, b->owner_gid);
        assert_int_equal(a->mode, b->mode);
        assert_int_equal(a->backing, b->backing);
        assert_int_equal(a->huge, b->huge);
        assert_int_equal(a->rights, b->rights);
        assert_true(a->quota_bytes == b->quota_bytes);
        assert_true(a->quota_objects == b->quota_objects);
        assert_true(a->objects_max == b->objects_max);
        assert_true(a->used_bytes == b->used_bytes);
        assert_true(a->n_objects == b->n_objects);
        assert_true(a->held_bytes == b->held_bytes);
        assert_true(a->n_held == b->n_held);
        assert_true(a->unsealed_bytes == b->unsealed_bytes);
        assert_true(a->n_unsealed == b->n_unsealed);
        assert_true(a->index_bytes == b->index_bytes);
        assert_true(a->pins_bytes == b->pins_bytes);
        assert_true(a->writers == b->writers);
        assert_true(a->leased_bytes == b->leased_bytes);
}

static void assert_item(const ProtoItem *a, const ProtoItem *b)
{
        assert_key(a->key, b->key);
        assert_int_equal(a->slot, b->slot);
        assert_int_equal(a->flags, b->flags);
        assert_true(a->generation == b->generation);
        assert_true(a->size_bytes == b->size_bytes);
        assert_true(a->capacity_bytes == b->capacity_bytes);
        assert_true(a->offset_bytes == b->offset_bytes);
        assert_true(a->staging_offset == b->staging_offset);
        assert_true(a->expires_ns == b->expires_ns);
        assert_int_equal(a->lifetime, b->lifetime);
        assert_key(a->metadata, b->metadata);
        assert_key(a->content_type, b->content_type);
}

static void assert_request(const ProtoRequest *a, const ProtoRequest *b)
{
        assert_true(a->id == b->id);
        assert_int_equal(a->verb, b->verb);
        assert_int_equal(a->namespace_id, b->namespace_id);
        assert_int_equal(a->n_items, b->n_items);
        for (size_t i = 0; i < a->n_items; i++)
                assert_item(&a->items[i], &b->items[i]);
        assert_int_equal(a->version_min, b->version_min);
        assert_int_equal(a->version_max, b->version_max);
        assert_key(a->client_name, b->client_name);
        assert_int_equal(a->is_tool, b->is_tool);
        assert_int_equal(a->has_namespace, b->has_namespace);
        if (a->has_namespace)
                assert_namespace(&a->ns, &b->ns);
        assert_key(a->after, b->after);
}

static void assert_reply(const ProtoReply *a, const ProtoReply *b)
{
        assert_true(a->id == b->id);
        assert_int_equal(a->status, b->status);
        assert_key(a->detail, b->detail);
        assert_int_equal(a->n_items, b->n_items);
        for (size_t i = 0; i < a->n_items; i++) {
                assert_int_equal(a->items[i].status, b->items[i].status);
                assert_key(a->items[i].detail, b->items[i].detail);
                assert_int_equal(a->items[i].slot, b->items[i].slot);
                assert_true(a->items[i].generation == b->items[i].generation);
                assert_true(a->items[i].region_id == b->items[i].region_id);
                assert_true(a->items[i].region_bytes == b->items[i].region_bytes);
                assert_true(a->items[i].offset_bytes == b->items[i].offset_bytes);
                assert_int_equal(a->items[i].placement, b->items[i].placement);
                assert_int_equal(a->items[i].descriptor, b->items[i].descriptor);
        }
        assert_int_equal(a->has_welcome, b->has_welcome);
        if (a->has_welcome) {
                assert_int_equal(a->version, b->version);
                assert_true(a->instance == b->instance);
                assert_true(a->staging_bytes == b->staging_bytes);
                assert_true(a->packed_bytes_max == b->packed_bytes_max);
                assert_true(a->budget_bytes == b->budget_bytes);
                assert_int_equal(a->daemon_pid, b->daemon_pid);
                assert_key(a->daemon_version, b->daemon_version);
        }
        assert_int_equal(a->n_namespaces, b->n_namespaces);
        for (size_t i = 0; i < a->n_namespaces; i++)
                assert_namespace(&a->namespaces[i], &b->namespaces[i]);
        assert_int_equal(a->n_holders, b->n_holders);
        for (size_t i = 0; i < a->n_holders; i++) {
                assert_int_equal(a->holders[i].pid, b->holders[i].pid);
                assert_int_equal(a->holders[i].uid, b->holders[i].uid);
                assert_true(a->holders[i].n_pins == b->holders[i].n_pins);
                assert_true(a->holders[i].connected_ns == b->holders[i].connected_ns);
                assert_key(a->holders[i].comm, b->holders[i].comm);
        }
        assert_int_equal(a->n_facts, b->n_facts);
        for (size_t i = 0; i < a->n_facts; i++) {
                assert_key(a->facts[i].name, b->facts[i].name);
                assert_true(a->facts[i].value == b->facts[i].value);
                assert_key(a->facts[i].text, b->facts[i].text);
        }
        assert_int_equal(a->n_more, b->n_more);
}

static size_t full_request(ProtoItem *items, uint8_t *bytes)
{
        ProtoRequest request = {
                .id = UINT64_MAX, .verb = VERB_CREATE, .namespace_id = UINT32_MAX, .n_items = 2, .items = items,
                .version_min = 1, .version_max = UINT32_MAX, .client_name = key_of("a client"), .is_tool = true,
                .has_namespace = true, .ns = some_namespace("a-namespace"), .after = key_of("before"),
        };
        size_t n_bytes = 0;

        items[0] = (ProtoItem){
                .key = key_of("a key"), .slot = 1, .flags = 2, .generation = UINT64_MAX, .size_bytes = 4,
                .capacity_bytes = 5, .offset_bytes = 6, .staging_offset = UINT64_MAX - 1, .expires_ns = 8,
                .lifetime = FOLIO_UNTIL_TIME, .metadata = { "with\0nul", 8 }, .content_type = key_of("text/plain"),
        };
        items[1] = (ProtoItem){ 0 };
        assert_true(proto_encode_request(&request, bytes, &n_bytes));
        return n_bytes;
}

static size_t full_reply(uint8_t *bytes)
{
        ProtoItemReply items[] = {
                { 1, key_of("it is not there"), 2, 3, 4, 5, 6, FOLIO_PLACEMENT_OWN, PROTO_FDS_MAX }, { 0 },
        };
        ProtoNamespace namespaces[] = { some_namespace("one"), some_namespace("two") };
        ProtoHolder holders[] = { { -1, UINT32_MAX, UINT64_MAX, 4, key_of("comm") }, { INT32_MAX, 0, 1, 0, { "",
                0 } } };
        ProtoFact facts[] = { { key_of("memory.used_bytes"), UINT64_MAX, { "", 0 } }, { key_of("huge"), 0,
                key_of("auto") } };
        ProtoReply reply = {
                .id = 1, .status = 11, .detail = key_of("a limit"), .n_items = 2, .items = items, .has_welcome = true,
                .version = 1, .instance = UINT64_MAX, .staging_bytes = 4, .packed_bytes_max = 5, .budget_bytes = 6,
                .daemon_pid = UINT32_MAX, .daemon_version = key_of("0.1.0"), .n_namespaces = 2,
                        .namespaces = namespaces,
                .n_holders = 2, .holders = holders, .n_facts = 2, .facts = facts, .n_more = 77,
        };
        size_t n_bytes = 0;
        ProtoReply got;

        assert_true(proto_encode_reply(&reply, bytes, &n_bytes));
        assert_true(proto_decode_reply(fixture.decoder, bytes, n_bytes, &got));
        assert_reply(&reply, &got);
        return n_bytes;
}

static void test_request_round_trip(void **state)
{
        ProtoItem items[2];
        ProtoRequest request = {
                .id = UINT64_MAX, .verb = VERB_CREATE, .namespace_id = UINT32_MAX, .n_items = 2, .items = items,
                .version_min = 1, .version_max = UINT32_MAX, .client_name = key_of("a client"), .is_tool = true,
                .has_namespace = true, .ns = some_namespace("a-namespace"), .after = key_of("before"),
        };
        ProtoRequest got;
        size_t n_bytes = full_request(items, fixture.bytes);

        assert_true(proto_decode_request(fixture.decoder, fixture.bytes, n_bytes, &got));
        assert_request(&request, &got);
        for (ProtoVerb verb = VERB_NONE + 1; verb < _VERB_MAX; verb++) {
                ProtoRequest bare = { .verb = verb };

                assert_true(proto_encode_request(&bare, fixture.bytes, &n_bytes));
                assert_true(n_bytes > 0);
                assert_true(proto_decode_request(fixture.decoder, fixture.bytes, n_bytes, &got));
                assert_request(&bare, &got);
        }
}

static void test_reply_round_trip(void **state)
{
        ProtoReply nothing = { 0 };
        size_t n_bytes = 0;

        assert_true(full_reply(fixture.bytes) > 0);
        assert_false(proto_encode_reply(&nothing, fixture.bytes, &n_bytes)); /* it would be an empty packet */
}

/* Whatever is accepted can be said again, and means the same. */
static void check_request(const uint8_t *bytes, size_t n_bytes)
{
        static ProtoItem items[PROTO_ITEMS_MAX];
        ProtoRequest first, second;
        ProtoDecoder *other;
        size_t n_again = 0;

        if (!proto_decode_request(fixture.decoder, bytes, n_bytes, &first))
                return;
        memcpy(items, first.items, first.n_items * sizeof(items[0]));
        assert_true(proto_encode_request(&first, fixture.again, &n_again));
        assert_true(n_again <= n_bytes);
        assert_int_equal(proto_decoder_new(&other), 0);
        assert_true(proto_decode_request(other, fixture.again, n_again, &second));
        assert_request(&first, &second);
        proto_decoder_free(other);
}

static void check_reply(const uint8_t *bytes, size_t n_bytes)
{
        ProtoReply first, second;
        ProtoDecoder *other;
        size_t n_again = 0;

        if (!proto_decode_reply(fixture.decoder, bytes, n_bytes, &first))
                return;
        if (!proto_encode_reply(&first, fixture.again, &n_again)) {
                static const uint8_t zero[16];

                /* Only where nothing was said in many bytes. */
                assert_memory_equal(&first.id, zero, sizeof(first.id));
                assert_int_equal(first.n_items + first.n_namespaces + first.n_holders + first.n_facts, 0);
                return;
        }
        assert_int_equal(proto_decoder_new(&other), 0);
        assert_true(proto_decode_reply(other, fixture.again, n_again, &second));
        assert_reply(&first, &second);
        proto_decoder_free(other);
}

static void each_damage(size_t n_bytes, void (*check)(const uint8_t *bytes, size_t n_bytes))
{
        for (size_t n = 0; n <= n_bytes; n++) {
                /* On the heap and exactly as long, so that a sanitizer sees a read behind the end. */
                uint8_t *prefix = malloc(n > 0 ? n : 1);

                assert_non_null(prefix);
                memcpy(prefix, fixture.bytes, n);
                check(prefix, n);
                free(prefix);
        }
        for (size_t bit = 0; bit < n_bytes * 8; bit++) {
                uint8_t *flipped = malloc(n_bytes);

                assert_non_null(flipped);
                memcpy(flipped, fixture.bytes, n_bytes);
                flipped[bit / 8] ^= (uint8_t)(1u << bit % 8);
                check(flipped, n_bytes);
                free(flipped);
        }
}

static void test_damaged_requests(void **state)
{
        ProtoItem items[2];

        each_damage(full_request(items, fixture.bytes), check_request);
}

static void test_damaged_replies(void **state)
{
        each_damage(full_reply(fixture.bytes), check_reply);
}

static bool encodes(const ProtoItem *item, size_t n_items)
{
        static ProtoItem items[PROTO_ITEMS_MAX + 1];
        ProtoRequest request = { .id = 1, .verb = VERB_PUT, .n_items = n_items, .items = items }, got;
        size_t n_bytes;

        for (size_t i = 0; i < MIN(n_items, ARRAY_SIZE(items)); i++)
                items[i] = *item;
        if (!proto_encode_request(&request, fixture.bytes, &n_bytes))
                return false;
        assert_true(proto_decode_request(fixture.decoder, fixture.bytes, n_bytes, &got));
        assert_request(&request, &got);
        return true;
}

static void test_item_limits(void **state)
{
        static char text[FOLIO_METADATA_BYTES_MAX + 1];
        ProtoItem item = { .key = key_of("k") };

        memset(text, 't', sizeof(text));
        assert_true(encodes(&item, 0));
        assert_true(encodes(&item, PROTO_ITEMS_MAX));
        assert_false(encodes(&item, PROTO_ITEMS_MAX + 1));
        assert_false(encodes(&item, SIZE_MAX));

        item.key = (Key){ text, FOLIO_KEY_BYTES_MAX };
        assert_true(encodes(&item, 1));
        item.key.n_bytes++;
        assert_false(encodes(&item, 1));
        item.key.n_bytes = SIZE_MAX;
        assert_false(encodes(&item, 1));

        item = (ProtoItem){ .metadata = { text, FOLIO_METADATA_BYTES_MAX } };
        assert_true(encodes(&item, 1));
        item.metadata.n_bytes++;
        assert_false(encodes(&item, 1));

        item = (ProtoItem){ .content_type = { text, FOLIO_CONTENT_TYPE_BYTES_MAX } };
        assert_true(encodes(&item, 1));
        item.content_type.n_bytes++;
        assert_false(encodes(&item, 1));
}

/* The fullest packets there can be pass: as many items as fit, with everything set. */
static void test_arena_holds_the_fullest_packet(void **state)
{
        static const char bytes[64] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde";

        for (size_t n_key = 1; n_key < sizeof(bytes); n_key++) {
                ProtoItem item = {
                        .key = { bytes, n_key }, .metadata = { bytes, 1 }, .content_type = { bytes, 1 }, .slot = 1,
                        .generation = 1, .size_bytes = 1, .capacity_bytes = 1, .offset_bytes = 1, .staging_offset = 1,
                        .flags = 1, .lifetime = 1, .expires_ns = 1,
                };
                size_t n = MIN(PROTO_ITEMS_MAX, (PROTO_MESSAGE_BYTES_MAX - 16) / proto_item_bytes(&item));

                assert_true(encodes(&item, n));
        }
}

static void test_reply_limits(void **state)
{
        static char text[PROTO_DETAIL_BYTES_MAX + 1];
        static ProtoItemReply items[PROTO_ITEMS_MAX + 1];
        ProtoReply reply = { .id = 1, .items = items, .n_items = PROTO_ITEMS_MAX }, got;
        size_t n_bytes;

        memset(text, 't', sizeof(text));
        assert_true(proto_encode_reply(&reply, fixture.bytes, &n_bytes));
        assert_true(proto_decode_reply(fixture.decoder, fixture.bytes, n_bytes, &got));
        assert_int_equal(got.n_items, PROTO_ITEMS_MAX);
        reply.n_items++;
        assert_false(proto_encode_reply(&reply, fixture.bytes, &n_bytes));
        reply = (ProtoReply){ .id = 1, .detail = { text, PROTO_DETAIL_BYTES_MAX } };
        assert_true(proto_encode_reply(&reply, fixture.bytes, &n_bytes));
        assert_true(proto_decode_reply(fixture.decoder, fixture.bytes, n_bytes, &got));
        assert_key(got.detail, reply.detail);
        reply.detail.n_bytes++;
        assert_false(proto_encode_reply(&reply, fixture.bytes, &n_bytes));
        reply = (ProtoReply){ .id = 1, .n_namespaces = PROTO_NAMESPACES_MAX + 1 };
        assert_false(proto_encode_reply(&reply, fixture.bytes, &n_bytes));
        reply = (ProtoReply){ .id = 1, .n_holders = PROTO_HOLDERS_MAX + 1 };
        assert_false(proto_encode_reply(&reply, fixture.bytes, &n_bytes));
        reply = (ProtoReply){ .id = 1, .n_facts = PROTO_FACTS_MAX + 1 };
        assert_false(proto_encode_reply(&reply, fixture.bytes, &n_bytes));
}

static void test_item_bytes_are_exact(void **state)
{
        ProtoItem item = { .key = key_of("some key"), .size_bytes = 1u << 20, .metadata = { "0123", 4 } };
        ProtoItemReply answer = { .status = 3, .detail = key_of("some sentence"), .slot = 400,
                .region_bytes = UINT64_MAX };
        ProtoItem two[2] = { item, item };
        ProtoItemReply answers[2] = { answer, answer };
        ProtoRequest request = { .id = 1, .verb = VERB_PUT, .items = two };
        ProtoReply reply = { .id = 1, .items = answers };
        size_t n[3];

        for (size_t i = 0; i < 3; i++) {
                request.n_items = i;
                assert_true(proto_encode_request(&request, fixture.bytes, &n[i]));
        }
        assert_int_equal(n[1] - n[0], proto_item_bytes(&item));
        assert_int_equal(n[2] - n[1], proto_item_bytes(&item));
        for (size_t i = 0; i < 3; i++) {
                reply.n_items = i;
                assert_true(proto_encode_reply(&reply, fixture.bytes, &n[i]));
        }
        assert_int_equal(n[1] - n[0], proto_item_reply_bytes(&answer));
        assert_int_equal(n[2] - n[1], proto_item_reply_bytes(&answer));
}

/* Exactly 16 KiB can be said; a byte more cannot, and nothing is written behind the room. */
static void test_message_limit(void **state)
{
        static char text[FOLIO_METADATA_BYTES_MAX];
        struct { uint8_t bytes[PROTO_MESSAGE_BYTES_MAX]; uint8_t guard[64]; } *room = malloc(sizeof(*room));
        ProtoItem items[5];
        ProtoRequest request = { .id = 1, .verb = VERB_PUT, .n_items = 5, .items = items }, got;
        size_t n_bytes = 0, n_rest, n_fitting = 0;

        assert_non_null(room);
        memset(room->guard, 0xa5, sizeof(room->guard));
        for (size_t i = 0; i < 5; i++)
                items[i] = (ProtoItem){ .metadata = { text, i < 4 ? 3900 : 0 } };
        assert_true(proto_encode_request(&request, room->bytes, &n_bytes));
        n_rest = PROTO_MESSAGE_BYTES_MAX - n_bytes;
        for (size_t n = n_rest - 16; n <= n_rest + 1; n++) {
                items[4].metadata.n_bytes = n;
                if (!proto_encode_request(&request, room->bytes, &n_bytes))
                        break;
                n_fitting = n_bytes;
                assert_true(proto_decode_request(fixture.decoder, room->bytes, n_bytes, &got));
        }
        assert_int_equal(n_fitting, PROTO_MESSAGE_BYTES_MAX);
        for (size_t i = 0; i < sizeof(room->guard); i++)
                assert_int_equal(room->guard[i], 0xa5);
        free(room);
}

static bool decodes(const char *bytes, size_t n_bytes)
{
        ProtoRequest request;

        return proto_decode_request(fixture.decoder, bytes, n_bytes, &request);
}

#define DECODES(literal) decodes(literal, sizeof(literal) - 1)

static void test_hand_made_requests(void **state)
{
        ProtoRequest request;

        assert_true(DECODES("\x08\x01\x10\x13"));              /* id 1, PING */
        assert_false(DECODES(""));
        assert_false(DECODES("\x08\x01"));                     /* no verb */
        assert_false(DECODES("\x08\x01\x10\x16"));             /* a verb there is not */
        assert_false(DECODES("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")); /* verb -1 */
        assert_true(DECODES("\x10\x93\x80\x80\x80\x10"));      /* PING: protobuf drops what is above 32 bits */
        assert_false(DECODES("\x08\x01\x10\x13\x22\x03\x0a\x01\x00")); /* a key of NUL */
        assert_true(DECODES("\x08\x01\x10\x13\x22\x03\x0a\x01k"));
        assert_true(DECODES("\x10\x01\x2a\x03\x1a\x01n"));     /* a client name */
        assert_false(DECODES("\x10\x01\x2a\x05\x1a\x03n\x00m")); /* with a NUL inside */
        assert_false(DECODES("\x10\x01\x2a\x03\x1a\x01\x00"));
        assert_true(DECODES("\x10\x02\x32\x03\x0a\x01n"));     /* a namespace */
        assert_false(DECODES("\x10\x02\x32\x00"));             /* without a name */
        assert_false(DECODES("\x10\x02\x32\x03\x0a\x01N"));
        assert_false(DECODES("\x10\x02\x32\x04\x0a\x02n\x00"));
        assert_false(DECODES("\x10\x13\x22\x7f\x0a\x01k"));    /* an item longer than the packet */
        assert_false(DECODES("\x10\x13\x22\xff\xff\xff\xff\x0f\x0a\x01k"));
        assert_false(DECODES("\x10\x13\x0b"));                 /* a group: no such wire type here */
        assert_true(DECODES("\x10\x13\x7a\x01x"));             /* a field of a newer version is passed over */

        /* The last of a repeated singular field counts. */
        assert_true(proto_decode_request(fixture.decoder, "\x08\x01\x10\x13\x08\x02", 6, &request));
        assert_true(request.id == 2);
}

/* Packets made of what costs protobuf-c most: thousands of unknown or empty fields. */
static void test_amplifiers(void **state)
{
        static uint8_t junk[65536];
        ProtoRequest request;
        ProtoReply reply;

        for (size_t i = 0; i < sizeof(junk); i += 2) {
                junk[i] = 0x78; /* field 15, a number */
                junk[i + 1] = 1;
        }
        assert_false(proto_decode_request(fixture.decoder, junk, sizeof(junk), &request));
        assert_false(proto_decode_request(fixture.decoder, junk, PROTO_MESSAGE_BYTES_MAX + 1, &request));
        assert_false(proto_decode_request(fixture.decoder, junk, PROTO_MESSAGE_BYTES_MAX, &request));
        assert_false(proto_decode_reply(fixture.decoder, junk, PROTO_MESSAGE_BYTES_MAX, &reply));
        for (size_t i = 0; i < sizeof(junk); i += 2) {
                junk[i] = 0x22; /* empty items */
                junk[i + 1] = 0;
        }
        memcpy(junk, "\x10\x03", 2);
        assert_true(proto_decode_request(fixture.decoder, junk, 2 + 2 * PROTO_ITEMS_MAX, &request));
        assert_int_equal(request.n_items, PROTO_ITEMS_MAX);
        assert_false(proto_decode_request(fixture.decoder, junk, 2 + 2 * (PROTO_ITEMS_MAX + 1), &request));
        assert_false(proto_decode_request(fixture.decoder, junk, PROTO_MESSAGE_BYTES_MAX, &request));
        for (size_t i = 0; i < sizeof(junk); i += 2)
                junk[i] = 0x2a; /* HELLO, merged thousands of times */
        assert_false(proto_decode_request(fixture.decoder, junk, PROTO_MESSAGE_BYTES_MAX, &request));
        /* And the decoder is as good as new. */
        assert_true(DECODES("\x08\x01\x10\x13"));
}

static void test_limits_on_the_wire(void **state)
{
        /* By hand, as our encoder refuses to: HELLO with a name of 63, 64 and 100 bytes; `after` likewise. */
        for (size_t n = 63; n <= 100; n++) {
                char bytes[256] = "\x10\x01\x2a";
                size_t at = 3;

                bytes[at++] = (char)(n + 2);
                bytes[at++] = 0x1a;
                bytes[at++] = (char)n;
                memset(bytes + at, 'c', n);
                assert_int_equal(decodes(bytes, at + n), n <= PROTO_CLIENT_NAME_BYTES_MAX);

                memcpy(bytes, "\x10\x12\x3a", 3);
                bytes[3] = (char)n;
                memset(bytes + 4, 'a', n);
                assert_int_equal(decodes(bytes, 4 + n), n <= FOLIO_NAMESPACE_BYTES_MAX);
        }
        /* Replies: a descriptor beyond what a message can carry, a placement there is not. */
        {
                ProtoReply reply;

                assert_true(proto_decode_reply(fixture.decoder, "\x08\x01\x22\x03\x48\xfa\x01", 7, &reply));
                assert_false(proto_decode_reply(fixture.decoder, "\x08\x01\x22\x03\x48\xfb\x01", 7, &reply));
                assert_true(proto_decode_reply(fixture.decoder, "\x08\x01\x22\x02\x40\x02", 6, &reply));
                assert_false(proto_decode_reply(fixture.decoder, "\x08\x01\x22\x02\x40\x03", 6, &reply));
        }
}

static void test_encoder_refuses_what_the_decoder_would(void **state)
{
        ProtoRequest request = { .id = 1, .verb = VERB_NAMESPACE_ADD, .has_namespace = true };
        size_t n_bytes;

        assert_false(proto_encode_request(&request, fixture.bytes, &n_bytes)); /* no name */
        memset(request.ns.name, 'n', sizeof(request.ns.name));                 /* no end */
        assert_false(proto_encode_request(&request, fixture.bytes, &n_bytes));
        request.ns.name[FOLIO_NAMESPACE_BYTES_MAX] = '\0';
        assert_true(proto_encode_request(&request, fixture.bytes, &n_bytes));
        request = (ProtoRequest){ .id = 1, .verb = VERB_HELLO, .client_name = { "a\0b", 3 } };
        assert_false(proto_encode_request(&request, fixture.bytes, &n_bytes));
        request = (ProtoRequest){ .id = 1, .verb = VERB_NONE };
        assert_false(proto_encode_request(&request, fixture.bytes, &n_bytes));
        request = (ProtoRequest){ .id = 1, .verb = _VERB_MAX };
        assert_false(proto_encode_request(&request, fixture.bytes, &n_bytes));
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                CODEC_TEST(test_request_round_trip),
                CODEC_TEST(test_reply_round_trip),
                CODEC_TEST(test_damaged_requests),
                CODEC_TEST(test_damaged_replies),
                CODEC_TEST(test_item_limits),
                CODEC_TEST(test_arena_holds_the_fullest_packet),
                CODEC_TEST(test_reply_limits),
                CODEC_TEST(test_item_bytes_are_exact),
                CODEC_TEST(test_message_limit),
                CODEC_TEST(test_hand_made_requests),
                CODEC_TEST(test_amplifiers),
                CODEC_TEST(test_limits_on_the_wire),
                CODEC_TEST(test_encoder_refuses_what_the_decoder_would),
        };

        return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
