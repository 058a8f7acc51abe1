/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request and as a reply: refused, or within the limits, and then what is said again means the same.
 * Packets at most half full are sure to fit again: the one thing that can grow is a negative pid sent short.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "tests/fuzz/replay.h"

static ProtoDecoder *decoders[2];
static uint8_t again[PROTO_MESSAGE_BYTES_MAX];

static bool is_same(Key a, Key b)
{
        return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.bytes, b.bytes, a.n_bytes) == 0);
}

static void check_item(const ProtoItem *item)
{
        assert(item->key.n_bytes <= FOLIO_KEY_BYTES_MAX);
        assert(item->metadata.n_bytes <= FOLIO_METADATA_BYTES_MAX);
        assert(item->content_type.n_bytes <= FOLIO_CONTENT_TYPE_BYTES_MAX);
        assert(item->key.n_bytes == 0 || key_is_valid(item->key.bytes, item->key.n_bytes));
}

static void try_request(const uint8_t *data, size_t n_bytes)
{
        ProtoRequest first, second;
        size_t n_again;

        if (!proto_decode_request(decoders[0], data, n_bytes, &first))
                return;
        assert(first.verb > VERB_NONE && first.verb < _VERB_MAX);
        assert(first.n_items <= PROTO_ITEMS_MAX);
        for (size_t i = 0; i < first.n_items; i++)
                check_item(&first.items[i]);
        assert(!first.has_namespace || key_is_valid_namespace(first.ns.name, strlen(first.ns.name)));
        assert(proto_encode_request(&first, again, &n_again));
        assert(n_again <= n_bytes);
        assert(proto_decode_request(decoders[1], again, n_again, &second));
        assert(first.id == second.id && first.verb == second.verb && first.n_items == second.n_items);
        assert(is_same(first.client_name, second.client_name) && is_same(first.after, second.after));
        for (size_t i = 0; i < first.n_items; i++)
                assert(is_same(first.items[i].key, second.items[i].key) &&
                           is_same(first.items[i].metadata, second.items[i].metadata) &&
                           first.items[i].size_bytes == second.items[i].size_bytes);
}

static void try_reply(const uint8_t *data, size_t n_bytes)
{
        ProtoReply first, second;
        size_t n_again;

        if (!proto_decode_reply(decoders[0], data, n_bytes, &first))
                return;
        assert(first.n_items <= PROTO_ITEMS_MAX && first.n_namespaces <= PROTO_NAMESPACES_MAX);
        assert(first.n_holders <= PROTO_HOLDERS_MAX && first.n_facts <= PROTO_FACTS_MAX);
        assert(first.detail.n_bytes <= PROTO_DETAIL_BYTES_MAX);
        for (size_t i = 0; i < first.n_items; i++)
                assert(first.items[i].descriptor <= PROTO_FDS_MAX);
        if (!proto_encode_reply(&first, again, &n_again)) {
                assert(n_bytes > PROTO_MESSAGE_BYTES_MAX / 2 ||
                           (first.id == 0 && first.status == 0 && first.n_items == 0 && first.n_namespaces == 0 &&
                            first.n_holders == 0 && first.n_facts == 0 && first.n_more == 0 && !first.has_welcome));
                return;
        }
        assert(proto_decode_reply(decoders[1], again, n_again, &second));
        assert(first.id == second.id && first.status == second.status && first.n_items == second.n_items);
        assert(is_same(first.detail, second.detail));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
        for (int i = 0; i < 2; i++)
                if (!decoders[i] && proto_decoder_new(&decoders[i]) < 0)
                        abort();
        try_request(data, n_bytes);
        try_reply(data, n_bytes);
        return 0;
}
