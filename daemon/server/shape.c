/* SPDX-License-Identifier: Apache-2.0 */
/* The table, and how it is read. A verb that is added without its row is found by the first test that sends it. */
#include "daemon/server/shape.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"
#include "folio/admin.h"

/* Fields of a request. */
#define HAS_HELLO (1u << 0)
#define HAS_NAMESPACE_ID (1u << 1)
#define HAS_ITEMS (1u << 2)
#define HAS_NS (1u << 3)
#define HAS_AFTER (1u << 4)

/* Fields of an item. */
#define ITEM_SIZE (1u << 0)
#define ITEM_CAPACITY (1u << 1)
#define ITEM_OFFSET (1u << 2)
#define ITEM_STAGING (1u << 3)
#define ITEM_OPTIONS (1u << 4) /* lifetime, expires_ns, metadata, content_type */

#define CREATE_FLAGS (FOLIO_REPLACE | FOLIO_MUTABLE | FOLIO_SPARSE | FOLIO_OWN_REGION | FOLIO_STREAM)

typedef enum Naming {
        BY_NOTHING,
        BY_KEY,
        BY_SLOT,
        BY_EITHER,
} Naming;

typedef struct Shape {
        uint32_t required;           /* HAS_* */
        uint32_t allowed;
        bool may_be_silent;          /* id 0: no answer */
        size_t n_items_max;
        Naming naming;
        uint32_t item_flags;
        uint32_t item_fields;        /* ITEM_* */
} Shape;

#define ABOUT_NAMESPACE(...) { .required = HAS_NS, .allowed = HAS_NS, ##__VA_ARGS__ }
#define ABOUT_OBJECTS(...)                                                                                             \
        { .required = HAS_ITEMS, .allowed = HAS_ITEMS | HAS_NAMESPACE_ID, .n_items_max = PROTO_ITEMS_MAX, __VA_ARGS__ }

static const Shape shapes[_VERB_MAX] = {
        [VERB_HELLO] = { .required = HAS_HELLO, .allowed = HAS_HELLO },
        [VERB_NAMESPACE_OPEN] = ABOUT_NAMESPACE(),
        [VERB_PUT] = ABOUT_OBJECTS(.naming = BY_KEY, .item_flags = FOLIO_REPLACE,
                                   .item_fields = ITEM_SIZE | ITEM_STAGING | ITEM_OPTIONS),
        [VERB_CREATE] = ABOUT_OBJECTS(.naming = BY_KEY, .item_flags = CREATE_FLAGS | PROTO_ITEM_STAGED,
                                      .item_fields = ITEM_SIZE | ITEM_CAPACITY | ITEM_OPTIONS),
        [VERB_WRITE] = ABOUT_OBJECTS(.naming = BY_SLOT, .item_fields = ITEM_SIZE | ITEM_OFFSET | ITEM_STAGING),
        [VERB_SEAL] = ABOUT_OBJECTS(.naming = BY_SLOT, .item_flags = PROTO_ITEM_STAGED, .item_fields = ITEM_STAGING),
        [VERB_ABORT] = ABOUT_OBJECTS(.naming = BY_SLOT, .may_be_silent = true),
        [VERB_REGION] = { .required = HAS_ITEMS, .allowed = HAS_ITEMS | HAS_NAMESPACE_ID, .n_items_max = PROTO_FDS_MAX,
                          .naming = BY_SLOT, .item_flags = PROTO_ITEM_WRITABLE },
        [VERB_RELEASE] = ABOUT_OBJECTS(.naming = BY_SLOT, .may_be_silent = true),
        [VERB_TRUNCATE] = ABOUT_OBJECTS(.naming = BY_EITHER, .item_fields = ITEM_SIZE),
        [VERB_DELETE] = ABOUT_OBJECTS(.naming = BY_EITHER, .item_flags = PROTO_ITEM_IF_EXISTS),
        [VERB_HOLDERS] = { .required = HAS_ITEMS, .allowed = HAS_ITEMS | HAS_NAMESPACE_ID, .n_items_max = 1,
                           .naming = BY_EITHER },
        [VERB_WATCH] = { .allowed = HAS_NAMESPACE_ID },
        [VERB_NAMESPACE_ADD] = ABOUT_NAMESPACE(),
        [VERB_NAMESPACE_SET] = ABOUT_NAMESPACE(),
        [VERB_NAMESPACE_REMOVE] = ABOUT_NAMESPACE(),
        [VERB_NAMESPACE_LIST] = { .allowed = HAS_AFTER },
        [VERB_STATUS] = { 0 },
        [VERB_PING] = { 0 },
        [VERB_RING] = { 0 },
        /* One: it is answered with two descriptors. */
        [VERB_LEASE] = { .required = HAS_ITEMS, .allowed = HAS_ITEMS | HAS_NAMESPACE_ID, .n_items_max = 1,
                         .naming = BY_NOTHING, .item_fields = ITEM_SIZE | ITEM_OFFSET },
};

static uint32_t fields_of(const ProtoRequest *request)
{
        uint32_t fields = 0;

        if (request->version_min || request->version_max || request->client_name.n_bytes > 0 || request->resume)
                fields |= HAS_HELLO;
        if (request->namespace_id != 0)
                fields |= HAS_NAMESPACE_ID;
        if (request->n_items > 0)
                fields |= HAS_ITEMS;
        if (request->has_namespace)
                fields |= HAS_NS;
        if (request->after.n_bytes > 0)
                fields |= HAS_AFTER;
        return fields;
}

const char *shape_find_breach(const ProtoRequest *request, bool has_session)
{
        const Shape *shape = &shapes[request->verb];
        uint32_t fields = fields_of(request);

        assert(request->verb > VERB_NONE && request->verb < _VERB_MAX);
        if (!has_session && request->verb != VERB_HELLO)
                return "the first request is HELLO";
        if (has_session && request->verb == VERB_HELLO)
                return "there is one HELLO";
        if (request->id == 0 && !shape->may_be_silent)
                return "a request that is answered has an id";
        if ((fields & shape->required) != shape->required)
                return "a field that the verb needs is missing";
        if (fields & ~shape->allowed)
                return "a field that the verb does not take is there";
        if (request->n_items > shape->n_items_max)
                return "there are more items than the verb takes";
        if (request->verb == VERB_HELLO && request->version_min > request->version_max)
                return "versions go from the lowest to the highest";
        return NULL;
}

static const char *find_settings_fault(const ProtoNamespace *ns)
{
        const uint32_t known = (FOLIO_NAMESPACE_FIELD_WRITERS << 1) - 1;

        if (ns->fields & ~known)
                return "a setting is unknown";
        if ((ns->fields & FOLIO_NAMESPACE_FIELD_MODE) && ns->mode > 0777)
                return "the mode is more than 0777";
        if ((ns->fields & FOLIO_NAMESPACE_FIELD_BACKING) && ns->backing != FOLIO_BACKING_MEMFD &&
            ns->backing != FOLIO_BACKING_TMPFS && ns->backing != FOLIO_BACKING_HUGETLB)
                return "the backing is unknown";
        if ((ns->fields & FOLIO_NAMESPACE_FIELD_HUGE) && ns->huge > FOLIO_HUGE_NEVER)
                return "the policy for huge pages is unknown";
        if ((ns->fields & FOLIO_NAMESPACE_FIELD_WRITERS) && ns->writers != FOLIO_WRITERS_UNTRUSTED &&
            ns->writers != FOLIO_WRITERS_TRUSTED)
                return "who may write is unknown";
        if (((ns->fields & FOLIO_NAMESPACE_FIELD_OWNER) && ns->owner_uid == UINT32_MAX) ||
            ((ns->fields & FOLIO_NAMESPACE_FIELD_GROUP) && ns->owner_gid == UINT32_MAX))
                return "the owner or group is no id";
        return NULL;
}

/* To be on the safe side of the store: whatever may get a region of its own, also where staging was offered. */
static bool may_have_descriptor(const ProtoItem *item, uint64_t packed_bytes_max)
{
        const uint32_t needs_own = FOLIO_OWN_REGION | FOLIO_MUTABLE | FOLIO_SPARSE;

        if (item->flags & FOLIO_STREAM)
                return false;
        return !(item->flags & PROTO_ITEM_STAGED) || item->flags & needs_own || item->size_bytes > packed_bytes_max;
}

const char *shape_find_fault(const ProtoRequest *request, uint64_t packed_bytes_max)
{
        size_t n_descriptors = 0;

        if (request->verb == VERB_NAMESPACE_ADD || request->verb == VERB_NAMESPACE_SET)
                return find_settings_fault(&request->ns);
        if (request->verb == VERB_HOLDERS)
                return shape_find_item_fault(VERB_HOLDERS, &request->items[0]);
        if (request->verb != VERB_CREATE)
                return NULL;
        for (size_t i = 0; i < request->n_items; i++)
                n_descriptors += may_have_descriptor(&request->items[i], packed_bytes_max);
        return n_descriptors > SHAPE_DESCRIPTORS_MAX ? "at most 250 items of one CREATE can have a region of their own"
                                                     : NULL;
}

static const char *find_naming_fault(Naming naming, const ProtoItem *item)
{
        bool by_slot = item->flags & PROTO_ITEM_BY_SLOT;

        if (naming == BY_NOTHING)
                return by_slot || item->key.n_bytes > 0 || item->slot != 0 || item->generation != 0
                               ? "it is about no object" : NULL;
        if (by_slot && naming == BY_KEY)
                return "it is named by its key";
        if (!by_slot && naming == BY_SLOT)
                return "it is named by slot and generation";
        if (by_slot && item->key.n_bytes > 0)
                return "it is named twice";
        if (!by_slot && (item->slot != 0 || item->generation != 0))
                return "slot or generation without BY_SLOT";
        if (!by_slot && !key_is_valid(item->key.bytes, item->key.n_bytes))
                return "a key has 1 to 255 bytes and no NUL";
        return NULL;
}

const char *shape_find_item_fault(ProtoVerb verb, const ProtoItem *item)
{
        const Shape *shape = &shapes[verb];
        uint32_t fields = 0;
        const char *fault;

        if (item->flags & ~(shape->item_flags | (shape->naming == BY_KEY ? 0 : PROTO_ITEM_BY_SLOT)))
                return "a flag that the verb does not know";
        fault = find_naming_fault(shape->naming, item);
        if (fault)
                return fault;
        if (item->size_bytes)
                fields |= ITEM_SIZE;
        if (item->capacity_bytes)
                fields |= ITEM_CAPACITY;
        if (item->offset_bytes)
                fields |= ITEM_OFFSET;
        if (item->staging_offset)
                fields |= ITEM_STAGING;
        if (item->lifetime || item->expires_ns || item->metadata.n_bytes > 0 || item->content_type.n_bytes > 0)
                fields |= ITEM_OPTIONS;
        if (fields & ~shape->item_fields)
                return "a field that the verb does not take";
        if (item->lifetime > FOLIO_UNTIL_TIME)
                return "the lifetime is unknown";
        if (item->expires_ns != 0 && item->lifetime != FOLIO_UNTIL_TIME)
                return "expires_ns needs the lifetime until-time";
        if (verb == VERB_SEAL && item->staging_offset != 0 && !(item->flags & PROTO_ITEM_STAGED))
                return "staging_offset without STAGED";
        return NULL;
}
