/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes to plain structs and back.
 *
 * Decoding. protobuf-c wants an allocator for whatever a packet makes it keep; ours is a bump arena inside the
 * decoder, so that a packet made to amplify (thousands of unknown fields of two bytes) runs into the arena's end and
 * is refused, and a good one never does. Each block carries its length, which is how a string with a NUL inside is
 * told from one without: the generated struct has only the pointer.
 *
 * Encoding goes piece by piece, one repeated element at a time, each measured before it is written: neither an array
 * of generated structs nor a buffer larger than the caller's is ever needed. All field numbers of the envelope are
 * below 16, so a tag is one byte.
 *
 * Refuses to know which fields a verb needs, and what any number in them means.
 */
#include "proto/codec.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "folio.pb-c.h"

/*
 * What a full request takes at most: 256 items of 168 bytes, three byte strings each with a header and rounding
 * (31 bytes), their bytes (a packet's worth), the array, and protobuf-c's list of 262 fields: under 110 KiB.
 */
#define ARENA_BYTES (160u * 1024u)
#define ARENA_ALIGNMENT alignof(max_align_t)

#define FACT_NAME_BYTES_MAX 63u
#define FACT_TEXT_BYTES_MAX 127u
#define COMM_BYTES_MAX 63u
#define VERSION_BYTES_MAX 63u

typedef struct Block {
        alignas(max_align_t) size_t n_bytes;
} Block;

struct ProtoDecoder {
        ProtobufCAllocator allocator;
        size_t n_used;
        union {
                ProtoItem items[PROTO_ITEMS_MAX];
                struct {
                        ProtoItemReply items[PROTO_ITEMS_MAX];
                        ProtoNamespace namespaces[PROTO_NAMESPACES_MAX];
                        ProtoHolder holders[PROTO_HOLDERS_MAX];
                        ProtoFact facts[PROTO_FACTS_MAX];
                } reply;
        } decoded;
        alignas(max_align_t) uint8_t arena[ARENA_BYTES];
};

static void *arena_allocate(void *userdata, size_t n_bytes)
{
        ProtoDecoder *decoder = userdata;
        size_t n_room = ARENA_BYTES - decoder->n_used;
        Block *block;

        if (n_room < sizeof(Block) || n_bytes > n_room - sizeof(Block))
                return NULL;
        block = (Block *)(void *)(decoder->arena + decoder->n_used);
        block->n_bytes = n_bytes;
        decoder->n_used = MIN(ALIGN_UP(decoder->n_used + sizeof(Block) + n_bytes, ARENA_ALIGNMENT), ARENA_BYTES);
        return block + 1;
}

static void arena_release(void *userdata, void *pointer)
{
        /* Everything goes at once, with the next decode. */
        (void)userdata;
        (void)pointer;
}

int proto_decoder_new(ProtoDecoder **ret)
{
        ProtoDecoder *decoder = malloc(sizeof(*decoder));

        if (!decoder)
                return -ENOMEM;
        decoder->n_used = 0;
        decoder->allocator = (ProtobufCAllocator){ arena_allocate, arena_release, decoder };
        *ret = decoder;
        return 0;
}

void proto_decoder_free(ProtoDecoder *decoder)
{
        free(decoder);
}

/* --- decoding ---------------------------------------------------------------------------------------------------- */

static bool take_bytes(const ProtobufCBinaryData *data, size_t n_bytes_max, bool may_hold_nul, Key *ret)
{
        if (data->len > n_bytes_max)
                return false;
        if (data->len > 0 && !may_hold_nul && memchr(data->data, '\0', data->len))
                return false;
        *ret = (Key){ data->len > 0 ? (const char *)data->data : "", data->len };
        return true;
}

static bool take_string(const ProtoDecoder *decoder, const char *string, size_t n_bytes_max, Key *ret)
{
        const uint8_t *at = (const uint8_t *)string;
        size_t n_bytes = strnlen(string, n_bytes_max + 1);

        if (n_bytes > n_bytes_max)
                return false;
        /* The default of a field that is not there is static; everything else is ours, with its terminator. */
        if (at >= decoder->arena && at < decoder->arena + ARENA_BYTES) {
                const Block *block = (const Block *)(const void *)string - 1;

                if (block->n_bytes != n_bytes + 1)
                        return false;
        }
        *ret = (Key){ string, n_bytes };
        return true;
}

static bool decode_namespace(const ProtoDecoder *decoder, const Folio__Namespace *from, ProtoNamespace *ret)
{
        Key name;

        if (!take_string(decoder, from->name, FOLIO_NAMESPACE_BYTES_MAX, &name) ||
            !key_is_valid_namespace(name.bytes, name.n_bytes))
                return false;
        *ret = (ProtoNamespace){
                .id = from->id,
                .fields = from->fields,
                .owner_uid = from->owner_uid,
                .owner_gid = from->owner_gid,
                .mode = from->mode,
                .backing = from->backing,
                .huge = from->huge,
                .rights = from->rights,
                .quota_bytes = from->quota_bytes,
                .quota_objects = from->quota_objects,
                .objects_max = from->objects_max,
                .used_bytes = from->used_bytes,
                .n_objects = from->n_objects,
                .held_bytes = from->held_bytes,
                .n_held = from->n_held,
                .unsealed_bytes = from->unsealed_bytes,
                .n_unsealed = from->n_unsealed,
                .index_bytes = from->index_bytes,
                .pins_bytes = from->pins_bytes,
                .writers = from->writers,
                .leased_bytes = from->leased_bytes,
        };
        memcpy(ret->name, name.bytes, name.n_bytes);
        return true;
}

static bool decode_item(const Folio__Item *from, ProtoItem *ret)
{
        *ret = (ProtoItem){
                .slot = from->slot,
                .flags = from->flags,
                .generation = from->generation,
                .size_bytes = from->size_bytes,
                .capacity_bytes = from->capacity_bytes,
                .offset_bytes = from->offset_bytes,
                .staging_offset = from->staging_offset,
                .expires_ns = from->expires_ns,
                .lifetime = from->lifetime,
        };
        return take_bytes(&from->key, FOLIO_KEY_BYTES_MAX, false, &ret->key) &&
               take_bytes(&from->metadata, FOLIO_METADATA_BYTES_MAX, true, &ret->metadata) &&
               take_bytes(&from->content_type, FOLIO_CONTENT_TYPE_BYTES_MAX, false, &ret->content_type);
}

static bool is_verb(int verb)
{
        return verb > VERB_NONE && verb < _VERB_MAX;
}

bool proto_decode_request(ProtoDecoder *decoder, const void *bytes, size_t n_bytes, ProtoRequest *ret)
{
        const Folio__Request *from;
        ProtoRequest request = { 0 };

        if (n_bytes == 0 || n_bytes > PROTO_MESSAGE_BYTES_MAX)
                return false;
        decoder->n_used = 0;
        from = folio__request__unpack(&decoder->allocator, n_bytes, bytes);
        if (!from || !is_verb((int)from->verb) || from->n_items > PROTO_ITEMS_MAX)
                return false;

        request.id = from->id;
        request.verb = (ProtoVerb)from->verb;
        request.namespace_id = from->namespace_id;
        request.n_items = from->n_items;
        request.items = decoder->decoded.items;
        for (size_t i = 0; i < from->n_items; i++)
                if (!decode_item(from->items[i], &decoder->decoded.items[i]))
                        return false;
        request.client_name = (Key){ "", 0 };
        if (from->hello) {
                request.version_min = from->hello->version_min;
                request.version_max = from->hello->version_max;
                request.is_tool = from->hello->is_tool;
                request.resume = from->hello->resume;
                if (!take_string(decoder, from->hello->client_name, PROTO_CLIENT_NAME_BYTES_MAX, &request.client_name))
                        return false;
        }
        request.has_namespace = from->ns != NULL;
        if (from->ns && !decode_namespace(decoder, from->ns, &request.ns))
                return false;
        if (!take_bytes(&from->after, FOLIO_NAMESPACE_BYTES_MAX, false, &request.after))
                return false;
        *ret = request;
        return true;
}

static bool decode_item_reply(const ProtoDecoder *decoder, const Folio__ItemReply *from, ProtoItemReply *ret)
{
        *ret = (ProtoItemReply){
                .status = from->status,
                .slot = from->slot,
                .generation = from->generation,
                .region_id = from->region_id,
                .region_bytes = from->region_bytes,
                .offset_bytes = from->offset_bytes,
                .placement = from->placement,
                .descriptor = from->descriptor,
        };
        return from->placement <= FOLIO_PLACEMENT_OWN && from->descriptor <= PROTO_FDS_MAX &&
               take_string(decoder, from->detail, PROTO_DETAIL_BYTES_MAX, &ret->detail);
}

static bool decode_reply_lists(ProtoDecoder *decoder, const Folio__Reply *from, ProtoReply *ret)
{
        if (from->n_items > PROTO_ITEMS_MAX || from->n_namespaces > PROTO_NAMESPACES_MAX ||
            from->n_holders > PROTO_HOLDERS_MAX || from->n_facts > PROTO_FACTS_MAX)
                return false;

        for (size_t i = 0; i < from->n_items; i++)
                if (!decode_item_reply(decoder, from->items[i], &decoder->decoded.reply.items[i]))
                        return false;
        for (size_t i = 0; i < from->n_namespaces; i++)
                if (!decode_namespace(decoder, from->namespaces[i], &decoder->decoded.reply.namespaces[i]))
                        return false;
        for (size_t i = 0; i < from->n_holders; i++) {
                ProtoHolder *holder = &decoder->decoded.reply.holders[i];

                *holder = (ProtoHolder){ from->holders[i]->pid, from->holders[i]->uid, from->holders[i]->n_pins,
                                         from->holders[i]->connected_ns, { "", 0 } };
                if (!take_string(decoder, from->holders[i]->comm, COMM_BYTES_MAX, &holder->comm))
                        return false;
        }
        for (size_t i = 0; i < from->n_facts; i++) {
                ProtoFact *fact = &decoder->decoded.reply.facts[i];

                fact->value = from->facts[i]->value;
                if (!take_string(decoder, from->facts[i]->name, FACT_NAME_BYTES_MAX, &fact->name) ||
                    !take_string(decoder, from->facts[i]->text, FACT_TEXT_BYTES_MAX, &fact->text))
                        return false;
        }
        ret->n_items = from->n_items;
        ret->items = decoder->decoded.reply.items;
        ret->n_namespaces = from->n_namespaces;
        ret->namespaces = decoder->decoded.reply.namespaces;
        ret->n_holders = from->n_holders;
        ret->holders = decoder->decoded.reply.holders;
        ret->n_facts = from->n_facts;
        ret->facts = decoder->decoded.reply.facts;
        return true;
}

bool proto_decode_reply(ProtoDecoder *decoder, const void *bytes, size_t n_bytes, ProtoReply *ret)
{
        const Folio__Reply *from;
        ProtoReply reply = { 0 };

        if (n_bytes == 0 || n_bytes > PROTO_MESSAGE_BYTES_MAX)
                return false;
        decoder->n_used = 0;
        from = folio__reply__unpack(&decoder->allocator, n_bytes, bytes);
        if (!from || !decode_reply_lists(decoder, from, &reply))
                return false;

        reply.id = from->id;
        reply.status = from->status;
        reply.n_more = from->n_more;
        if (!take_string(decoder, from->detail, PROTO_DETAIL_BYTES_MAX, &reply.detail))
                return false;
        reply.has_welcome = from->welcome != NULL;
        reply.daemon_version = (Key){ "", 0 };
        if (from->welcome) {
                reply.version = from->welcome->version;
                reply.instance = from->welcome->instance;
                reply.staging_bytes = from->welcome->staging_bytes;
                reply.packed_bytes_max = from->welcome->packed_bytes_max;
                reply.budget_bytes = from->welcome->budget_bytes;
                reply.daemon_pid = from->welcome->daemon_pid;
                reply.session_token = from->welcome->session_token;
                reply.session_number = from->welcome->session_number;
                reply.is_resumed = from->welcome->is_resumed;
                if (!take_string(decoder, from->welcome->daemon_version, VERSION_BYTES_MAX, &reply.daemon_version))
                        return false;
        }
        *ret = reply;
        return true;
}

/* --- encoding ---------------------------------------------------------------------------------------------------- */

typedef struct Writer {
        uint8_t *bytes;              /* room for PROTO_MESSAGE_BYTES_MAX */
        size_t n_bytes;
} Writer;

static size_t varint_bytes(size_t value)
{
        size_t n = 1;

        for (; value > 0x7f; value >>= 7)
                n++;
        return n;
}

/* A tag of one byte, the length, the message. */
static size_t element_bytes(size_t n_message_bytes)
{
        return 1 + varint_bytes(n_message_bytes) + n_message_bytes;
}

static bool write_message(Writer *writer, const ProtobufCMessage *message)
{
        size_t n = protobuf_c_message_get_packed_size(message);

        if (n > PROTO_MESSAGE_BYTES_MAX - writer->n_bytes)
                return false;
        writer->n_bytes += protobuf_c_message_pack(message, writer->bytes + writer->n_bytes);
        return true;
}

static bool write_element(Writer *writer, unsigned field, const ProtobufCMessage *message)
{
        size_t n = protobuf_c_message_get_packed_size(message);
        size_t rest = n;

        assert(field > 0 && field < 16);
        if (n > PROTO_MESSAGE_BYTES_MAX || element_bytes(n) > PROTO_MESSAGE_BYTES_MAX - writer->n_bytes)
                return false;
        writer->bytes[writer->n_bytes++] = (uint8_t)(field << 3 | 2); /* wire type 2: a length follows */
        for (; rest > 0x7f; rest >>= 7)
                writer->bytes[writer->n_bytes++] = (uint8_t)(rest | 0x80);
        writer->bytes[writer->n_bytes++] = (uint8_t)rest;
        writer->n_bytes += protobuf_c_message_pack(message, writer->bytes + writer->n_bytes);
        return true;
}

/* Generated strings end with NUL and ours do not: through @buffer, of @n_bytes_max + 1. */
static bool give_string(Key from, char *buffer, size_t n_bytes_max, char **ret)
{
        if (from.n_bytes > n_bytes_max || (from.n_bytes > 0 && memchr(from.bytes, '\0', from.n_bytes)))
                return false;
        if (from.n_bytes > 0) {
                memcpy(buffer, from.bytes, from.n_bytes);
                buffer[from.n_bytes] = '\0';
                *ret = buffer;
        }
        return true;
}

static bool give_bytes(Key from, size_t n_bytes_max, ProtobufCBinaryData *ret)
{
        if (from.n_bytes > n_bytes_max)
                return false;
        *ret = (ProtobufCBinaryData){ from.n_bytes, (uint8_t *)(uintptr_t)from.bytes };
        return true;
}

static bool fill_item(const ProtoItem *from, Folio__Item *ret)
{
        Folio__Item item = FOLIO__ITEM__INIT;

        item.slot = from->slot;
        item.flags = from->flags;
        item.generation = from->generation;
        item.size_bytes = from->size_bytes;
        item.capacity_bytes = from->capacity_bytes;
        item.offset_bytes = from->offset_bytes;
        item.staging_offset = from->staging_offset;
        item.expires_ns = from->expires_ns;
        item.lifetime = from->lifetime;
        *ret = item;
        return give_bytes(from->key, FOLIO_KEY_BYTES_MAX, &ret->key) &&
               give_bytes(from->metadata, FOLIO_METADATA_BYTES_MAX, &ret->metadata) &&
               give_bytes(from->content_type, FOLIO_CONTENT_TYPE_BYTES_MAX, &ret->content_type);
}

static bool write_namespace(Writer *writer, unsigned field, const ProtoNamespace *from)
{
        Folio__Namespace ns = FOLIO__NAMESPACE__INIT;

        if (!key_is_valid_namespace(from->name, strnlen(from->name, sizeof(from->name))))
                return false;
        ns.name = (char *)(uintptr_t)from->name;
        ns.id = from->id;
        ns.fields = from->fields;
        ns.owner_uid = from->owner_uid;
        ns.owner_gid = from->owner_gid;
        ns.mode = from->mode;
        ns.backing = from->backing;
        ns.huge = from->huge;
        ns.rights = from->rights;
        ns.quota_bytes = from->quota_bytes;
        ns.quota_objects = from->quota_objects;
        ns.objects_max = from->objects_max;
        ns.used_bytes = from->used_bytes;
        ns.n_objects = from->n_objects;
        ns.held_bytes = from->held_bytes;
        ns.n_held = from->n_held;
        ns.unsealed_bytes = from->unsealed_bytes;
        ns.n_unsealed = from->n_unsealed;
        ns.index_bytes = from->index_bytes;
        ns.pins_bytes = from->pins_bytes;
        ns.writers = from->writers;
        ns.leased_bytes = from->leased_bytes;
        return write_element(writer, field, &ns.base);
}

bool proto_encode_request(const ProtoRequest *request, void *bytes, size_t *ret_n_bytes)
{
        Folio__Request envelope = FOLIO__REQUEST__INIT;
        Folio__Hello hello = FOLIO__HELLO__INIT;
        char client_name[PROTO_CLIENT_NAME_BYTES_MAX + 1];
        Writer writer = { bytes, 0 };

        if (!is_verb((int)request->verb) || request->n_items > PROTO_ITEMS_MAX)
                return false;
        envelope.id = request->id;
        envelope.verb = (Folio__Verb)request->verb;
        envelope.namespace_id = request->namespace_id;
        if (!give_bytes(request->after, FOLIO_NAMESPACE_BYTES_MAX, &envelope.after) ||
            !write_message(&writer, &envelope.base))
                return false;
        for (size_t i = 0; i < request->n_items; i++) {
                Folio__Item item;

                if (!fill_item(&request->items[i], &item) || !write_element(&writer, 4, &item.base))
                        return false;
        }
        if (request->version_min || request->version_max || request->client_name.n_bytes > 0) {
                hello.version_min = request->version_min;
                hello.version_max = request->version_max;
                hello.is_tool = request->is_tool;
                hello.resume = request->resume;
                if (!give_string(request->client_name, client_name, PROTO_CLIENT_NAME_BYTES_MAX, &hello.client_name) ||
                    !write_element(&writer, 5, &hello.base))
                        return false;
        }
        if (request->has_namespace && !write_namespace(&writer, 6, &request->ns))
                return false;
        *ret_n_bytes = writer.n_bytes;
        return true;
}

/* @detail: PROTO_DETAIL_BYTES_MAX + 1, for the result to point into. */
static bool fill_item_reply(const ProtoItemReply *from, char *detail, Folio__ItemReply *ret)
{
        Folio__ItemReply item = FOLIO__ITEM_REPLY__INIT;

        item.status = from->status;
        item.slot = from->slot;
        item.generation = from->generation;
        item.region_id = from->region_id;
        item.region_bytes = from->region_bytes;
        item.offset_bytes = from->offset_bytes;
        item.placement = from->placement;
        item.descriptor = from->descriptor;
        *ret = item;
        return give_string(from->detail, detail, PROTO_DETAIL_BYTES_MAX, &ret->detail);
}

static bool write_welcome(Writer *writer, const ProtoReply *reply)
{
        Folio__Welcome welcome = FOLIO__WELCOME__INIT;
        char version[VERSION_BYTES_MAX + 1];

        welcome.version = reply->version;
        welcome.instance = reply->instance;
        welcome.staging_bytes = reply->staging_bytes;
        welcome.packed_bytes_max = reply->packed_bytes_max;
        welcome.budget_bytes = reply->budget_bytes;
        welcome.daemon_pid = reply->daemon_pid;
        welcome.session_token = reply->session_token;
        welcome.session_number = reply->session_number;
        welcome.is_resumed = reply->is_resumed;
        return give_string(reply->daemon_version, version, VERSION_BYTES_MAX, &welcome.daemon_version) &&
               write_element(writer, 5, &welcome.base);
}

static bool write_holder(Writer *writer, const ProtoHolder *from)
{
        Folio__Holder holder = FOLIO__HOLDER__INIT;
        char comm[COMM_BYTES_MAX + 1];

        holder.pid = from->pid;
        holder.uid = from->uid;
        holder.n_pins = from->n_pins;
        holder.connected_ns = from->connected_ns;
        return give_string(from->comm, comm, COMM_BYTES_MAX, &holder.comm) && write_element(writer, 7, &holder.base);
}

static bool write_fact(Writer *writer, const ProtoFact *from)
{
        Folio__Fact fact = FOLIO__FACT__INIT;
        char name[FACT_NAME_BYTES_MAX + 1], text[FACT_TEXT_BYTES_MAX + 1];

        fact.value = from->value;
        return give_string(from->name, name, FACT_NAME_BYTES_MAX, &fact.name) &&
               give_string(from->text, text, FACT_TEXT_BYTES_MAX, &fact.text) && write_element(writer, 8, &fact.base);
}

bool proto_encode_reply(const ProtoReply *reply, void *bytes, size_t *ret_n_bytes)
{
        Folio__Reply envelope = FOLIO__REPLY__INIT;
        char detail[PROTO_DETAIL_BYTES_MAX + 1];
        Writer writer = { bytes, 0 };

        if (reply->n_items > PROTO_ITEMS_MAX || reply->n_namespaces > PROTO_NAMESPACES_MAX ||
            reply->n_holders > PROTO_HOLDERS_MAX || reply->n_facts > PROTO_FACTS_MAX)
                return false;
        envelope.id = reply->id;
        envelope.status = reply->status;
        envelope.n_more = reply->n_more;
        if (!give_string(reply->detail, detail, PROTO_DETAIL_BYTES_MAX, &envelope.detail) ||
            !write_message(&writer, &envelope.base))
                return false;
        for (size_t i = 0; i < reply->n_items; i++) {
                Folio__ItemReply item;

                if (!fill_item_reply(&reply->items[i], detail, &item) || !write_element(&writer, 4, &item.base))
                        return false;
        }
        if (reply->has_welcome && !write_welcome(&writer, reply))
                return false;
        for (size_t i = 0; i < reply->n_namespaces; i++)
                if (!write_namespace(&writer, 6, &reply->namespaces[i]))
                        return false;
        for (size_t i = 0; i < reply->n_holders; i++)
                if (!write_holder(&writer, &reply->holders[i]))
                        return false;
        for (size_t i = 0; i < reply->n_facts; i++)
                if (!write_fact(&writer, &reply->facts[i]))
                        return false;
        /* A message with nothing in it would be an empty packet, which looks like a hang-up. */
        if (writer.n_bytes == 0)
                return false;
        *ret_n_bytes = writer.n_bytes;
        return true;
}

size_t proto_item_bytes(const ProtoItem *item)
{
        Folio__Item from;

        if (!fill_item(item, &from))
                return SIZE_MAX;
        return element_bytes(folio__item__get_packed_size(&from));
}

size_t proto_item_reply_bytes(const ProtoItemReply *item)
{
        char detail[PROTO_DETAIL_BYTES_MAX + 1];
        Folio__ItemReply from;

        if (!fill_item_reply(item, detail, &from))
                return SIZE_MAX;
        return element_bytes(folio__item_reply__get_packed_size(&from));
}
