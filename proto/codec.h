/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between bytes and plain structs, and nothing else: the one user of the generated code. Decoding never allocates
 * from the heap: a Decoder brings its own arena of fixed size, so a hostile packet costs at most that; what is
 * decoded borrows from the decoder (and from the packet) until the next decode.
 *
 * Shape is checked here: counts, lengths, verbs that exist. Whether a field makes sense for a verb is dispatch's.
 */
#ifndef PROTO_CODEC_H
#define PROTO_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "folio/types.h"
#include "proto/key.h"

#define PROTO_VERSION 1
#define PROTO_MESSAGE_BYTES_MAX 16384u
#define PROTO_ITEMS_MAX 256u
#define PROTO_FDS_MAX 250u
#define PROTO_DETAIL_BYTES_MAX 480u
#define PROTO_CLIENT_NAME_BYTES_MAX 63u
#define PROTO_NAMESPACES_MAX 64u  /* in one reply */
#define PROTO_HOLDERS_MAX 128u    /* in one reply */
#define PROTO_FACTS_MAX 128u      /* in one reply */

typedef enum ProtoVerb {
        VERB_NONE = 0,
        VERB_HELLO = 1,
        VERB_NAMESPACE_OPEN = 2,
        VERB_PUT = 3,
        VERB_CREATE = 4,
        VERB_WRITE = 5,
        VERB_SEAL = 6,
        VERB_ABORT = 7,
        VERB_REGION = 8,
        VERB_RELEASE = 9,
        VERB_TRUNCATE = 10,
        VERB_DELETE = 11,
        VERB_HOLDERS = 12,
        VERB_WATCH = 13,
        VERB_NAMESPACE_ADD = 14,
        VERB_NAMESPACE_SET = 15,
        VERB_NAMESPACE_REMOVE = 16,
        VERB_NAMESPACE_LIST = 17,
        VERB_STATUS = 18,
        VERB_PING = 19,
        VERB_RING = 20,
        VERB_LEASE = 21,
        _VERB_MAX
} ProtoVerb;

/* Item.flags on the wire: the public FOLIO_* of create, and these. */
#define PROTO_ITEM_IF_EXISTS (1u << 8)  /* DELETE: a name that is not there is no error */
#define PROTO_ITEM_WRITABLE (1u << 9)   /* REGION: a descriptor to write a mutable object through */
#define PROTO_ITEM_BY_SLOT (1u << 10)   /* the object is named by slot and generation, not by key */
#define PROTO_ITEM_STAGED (1u << 11)    /* CREATE, SEAL: the bytes of a packed object lie at staging_offset */

typedef struct ProtoItem {
        Key key;
        uint32_t slot;
        uint32_t flags;
        uint64_t generation;
        uint64_t size_bytes;
        uint64_t capacity_bytes;
        uint64_t offset_bytes;
        uint64_t staging_offset;
        uint64_t expires_ns;
        uint32_t lifetime;
        Key metadata;
        Key content_type;
} ProtoItem;

typedef struct ProtoNamespace {
        char name[FOLIO_NAMESPACE_BYTES_MAX + 1];
        uint32_t id;
        uint32_t fields;
        uint32_t owner_uid;
        uint32_t owner_gid;
        uint32_t mode;
        uint32_t backing;
        uint32_t huge;
        uint32_t rights;
        uint64_t quota_bytes;
        uint64_t quota_objects;
        uint64_t objects_max;
        uint64_t used_bytes;
        uint64_t n_objects;
        uint64_t held_bytes;
        uint64_t n_held;
        uint64_t unsealed_bytes;
        uint64_t n_unsealed;
        uint64_t index_bytes;
        uint64_t pins_bytes;
        uint32_t writers;
        uint64_t leased_bytes;
} ProtoNamespace;

typedef struct ProtoRequest {
        uint64_t id;
        ProtoVerb verb;
        uint32_t namespace_id;
        size_t n_items;
        const ProtoItem *items;
        uint32_t version_min;        /* HELLO */
        uint32_t version_max;
        Key client_name;
        bool is_tool;                /* the few connections that are kept for tools are for it */
        uint64_t resume;             /* HELLO: token of a session that was this client's before the daemon ended; 0: none */
        bool has_namespace;          /* NAMESPACE_*: ns is given */
        ProtoNamespace ns;
        Key after;                   /* NAMESPACE_LIST */
} ProtoRequest;

typedef struct ProtoItemReply {
        uint32_t status;
        Key detail;                  /* a sentence, where status is not OK */
        uint32_t slot;
        uint64_t generation;
        uint64_t region_id;
        uint64_t region_bytes;
        uint64_t offset_bytes;
        uint32_t placement;
        uint32_t descriptor;         /* 1 + its place among the descriptors of the message; 0: none */
} ProtoItemReply;

typedef struct ProtoHolder {
        int32_t pid;
        uint32_t uid;
        uint64_t n_pins;
        uint64_t connected_ns;
        Key comm;
} ProtoHolder;

typedef struct ProtoFact {
        Key name;
        uint64_t value;
        Key text;
} ProtoFact;

typedef struct ProtoReply {
        uint64_t id;
        uint32_t status;             /* of the request as a whole */
        Key detail;
        size_t n_items;
        const ProtoItemReply *items;
        bool has_welcome;            /* HELLO */
        uint32_t version;
        uint64_t instance;
        uint64_t staging_bytes;
        uint64_t packed_bytes_max;
        uint64_t budget_bytes;
        uint32_t daemon_pid;
        uint64_t session_token;      /* for ProtoRequest.resume, should the daemon end */
        uint32_t session_number;     /* of layout_origin_*() */
        bool is_resumed;             /* the session is the one that was asked for */
        Key daemon_version;
        size_t n_namespaces;
        const ProtoNamespace *namespaces;
        size_t n_holders;
        const ProtoHolder *holders;
        size_t n_facts;
        const ProtoFact *facts;
        uint32_t n_more;             /* HOLDERS: how many did not fit */
} ProtoReply;

typedef struct ProtoDecoder ProtoDecoder;

int proto_decoder_new(ProtoDecoder **ret);
void proto_decoder_free(ProtoDecoder *decoder);

/* False: not a message of the protocol (garbage, too many, too long, an unknown verb). */
bool proto_decode_request(ProtoDecoder *decoder, const void *bytes, size_t n_bytes, ProtoRequest *ret);
bool proto_decode_reply(ProtoDecoder *decoder, const void *bytes, size_t n_bytes, ProtoReply *ret);

/*
 * Into @bytes, which has room for PROTO_MESSAGE_BYTES_MAX. False: it would not fit. A caller that adds items until
 * this fails must take the last away again; proto_item_bytes() tells beforehand what an item takes at most.
 */
bool proto_encode_request(const ProtoRequest *request, void *bytes, size_t *ret_n_bytes);
bool proto_encode_reply(const ProtoReply *reply, void *bytes, size_t *ret_n_bytes);
size_t proto_item_bytes(const ProtoItem *item);
size_t proto_item_reply_bytes(const ProtoItemReply *item);

#endif
