/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects as a client holds them, and the calls on a handle that need no request of their own.
 *
 * A mapping is attached once, by compare-and-swap: of two threads that map at once the loser gives its reference
 * back, and what is attached stays until the object is let go. What the index or the daemon says of offsets and sizes is
 * checked against the mapping there, and nowhere else.
 */
#include "client/object.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "client/create.h"
#include "client/lib/handle.h"
#include "client/lib/pins.h"
#include "client/made.h"
#include "client/resume.h"
#include "client/settle.h"

static uint8_t empty_object[64];

uint8_t *object_empty_address(void)
{
        return empty_object;
}

/* --- birth and end ---------------------------------------------------------------------------------------------------------- */

Object *object_find_piped(struct folio_object *handle, int *ret_error)
{
        Object *object = handle ? handle_find(handle) : NULL;

        if (UNLIKELY(!object)) {
                *ret_error = error_set(FOLIO_E_INVALID, "%p is not a handle of an object: never was, or released already",
                                       (void *)handle);
                return NULL;
        }
        *ret_error = client_check(object->client);
        return LIKELY(*ret_error == 0) ? object : NULL;
}

Object *object_find(struct folio_object *handle, int *ret_error)
{
        Object *object = object_find_piped(handle, ret_error);

        if (UNLIKELY(object && atomic_load_explicit(&object->kind, memory_order_acquire) == OBJECT_PIPED)) {
                *ret_error = made_resolve(object);
                if (*ret_error < 0)
                        return NULL;
        }
        return object;
}

/* Its contents as those of a new one; what it has for life stays. */
static void object_reset(Object *object, Space *space)
{
        memset(object, 0, offsetof(Object, client));
        atomic_init(&object->n_references, 1);
        object->space = space;
        object->fd = -1;
}

void object_init(Object *object, Client *client, Space *space)
{
        object_reset(object, space);
        object->client = client;
        object->handle = NULL;
        object->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        client_add_user(client);
}

Object *object_new(Client *client, Space *space)
{
        Object *object = malloc(sizeof(*object));

        if (object)
                object_init(object, client, space);
        return object;
}

Object *object_take(Client *client, Space *space, uint64_t region_id)
{
        Object *object = spares_take(&client->spares, region_id);
        Mapping *mapping;

        if (!object)
                return object_new(client, space);
        object->space = space;
        mapping = atomic_load_explicit(&object->reading, memory_order_relaxed);
        if (mapping->region_id != region_id) {
                atomic_store_explicit(&object->reading, NULL, memory_order_relaxed);
                maps_unref(client->maps, mapping, false);
        }
        return object;
}

struct folio_object *object_give(Object *object)
{
        struct folio_object *kept = steal_ptr(&object->handle);

        return kept ? handle_renew(kept) : handle_new(object);
}

ProtoItem object_slot_item(const Object *object)
{
        return (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT, .slot = object->slot, .generation = object->generation };
}

/* Of @generation: its own, or a newer one, see pins_drop(). */
static void tell_release(const Object *object, uint64_t generation)
{
        ProtoItem item = { .flags = PROTO_ITEM_BY_SLOT, .slot = object->slot, .generation = generation };
        ProtoRequest message = { .verb = VERB_RELEASE, .namespace_id = object->space->id, .n_items = 1, .items = &item };

        if (!resume_is_current(object->client, object->space))
                return;
        if (!pipe_release(object->client, object->space->id, object->slot, generation))
                requests_tell(object->client->requests, &message, true);
}

bool object_pin(Object *object)
{
        bool is_pinned = atomic_load_explicit(&object->is_pinned, memory_order_relaxed);

        if (!object->space->pins || is_pinned)
                return is_pinned;
        is_pinned = pins_hold(object->space, object->slot, object->generation);
        atomic_store_explicit(&object->is_pinned, is_pinned, memory_order_relaxed);
        return is_pinned;
}

/* True: the object has lost its name, and now us: RELEASE is to be told. */
static bool drop_pin(Object *object, uint64_t *ret_generation)
{
        bool is_gone;

        *ret_generation = object->generation;
        is_gone = atomic_load_explicit(&object->is_pinned, memory_order_relaxed) &&
                  pins_drop(object->space, object->slot, ret_generation);
        atomic_store_explicit(&object->is_pinned, false, memory_order_relaxed);
        return is_gone;
}

void object_unpin(Object *object)
{
        uint64_t generation;

        if (drop_pin(object, &generation))
                tell_release(object, generation);
}

/* The mapping of what has gone would only keep its memory; that of a packed region is of use for others. */
static void release_mapping(Object *object, Mapping *mapping, bool is_gone)
{
        Maps *maps = object->client->maps;

        if (object->placement != FOLIO_PLACEMENT_OWN)
                maps_unref(maps, mapping, false);
        else if (is_gone || !object->space->shared)
                maps_unref(maps, mapping, true);
        else
                idle_release(maps, mapping, object->space, object->slot, object->generation);
}

static void extra_free(ObjectExtra *extra)
{
        extents_free(atomic_load(&extra->extents));
        (void)close_fd(atomic_load(&extra->fd));
        if (atomic_load(&extra->private_data))
                maps_unmap(atomic_load(&extra->private_data), extra->private_bytes);
        if (extra->sealed_data)
                maps_unmap(extra->sealed_data, extra->sealed_bytes);
        free(extra);
}

ObjectExtra *object_get_extra(Object *object)
{
        ObjectExtra *extra = atomic_load_explicit(&object->extra, memory_order_acquire), *made;

        if (extra)
                return extra;
        made = calloc(1, sizeof(*made));
        if (!made)
                return NULL;
        atomic_init(&made->fd, -1);
        if (atomic_compare_exchange_strong(&object->extra, &extra, made))
                return made;
        extra_free(made);
        return extra;
}

/* Lets go of all that it stands for. With @is_to_keep the mapping of a packed region may stay, and is the answer. */
static Mapping *object_let_go(Object *object, bool is_to_keep)
{
        Client *client = object->client;
        Mapping *reading = atomic_load(&object->reading), *writing = atomic_load(&object->writing), *kept = NULL;
        ObjectExtra *extra = atomic_load_explicit(&object->extra, memory_order_relaxed);
        uint64_t generation;
        bool is_unsealed = object_is_unsealed(object), is_last = drop_pin(object, &generation),
             is_gone = is_last || is_unsealed;

        if (reading && is_to_keep && object->placement == FOLIO_PLACEMENT_PACKED)
                kept = reading;
        else if (reading)
                release_mapping(object, reading, is_gone);
        if (writing)
                release_mapping(object, writing, is_gone);
        object->fd = close_fd(object->fd);
        if (UNLIKELY(extra))
                extra_free(extra);
        /* Not before it is unmapped: who lets go of it last gives the memory back, and that takes long. */
        if (is_last)
                tell_release(object, generation);
        if (UNLIKELY(object->made)) {
                made_end(object);
                return kept;
        }
        if (is_unsealed && resume_is_current(client, object->space))
                create_tell_abort(client, object->space->id, object->slot, object->generation);
        if (object->staged && is_unsealed)
                staging_give(client->staging, object->staged);
        return kept;
}

void object_deinit(Object *object)
{
        (void)object_let_go(object, false);
        (void)pthread_mutex_destroy(&object->lock);
        client_release_user(object->client);
}

static void object_free(Object *object)
{
        if (object->handle)
                handle_drop(object->handle);
        object_deinit(object);
        free(object);
}

static void spare_free(void *item)
{
        object_free(item);
}

void objects_close(Client *client)
{
        spares_close(&client->spares, spare_free);
}

Object *object_ref(Object *object)
{
        atomic_fetch_add_explicit(&object->n_references, 1, memory_order_relaxed);
        return object;
}

void object_unref(Object *object)
{
        Mapping *kept;

        if (!object)
                return;
        /* The only reference there is cannot become two meanwhile. */
        if (atomic_load_explicit(&object->n_references, memory_order_acquire) != 1 &&
            atomic_fetch_sub_explicit(&object->n_references, 1, memory_order_acq_rel) != 1)
                return;
        kept = object_let_go(object, true);
        object_reset(object, object->space);
        /* A spare is an object that stands for nothing, of a packed region. */
        atomic_store_explicit(&object->reading, kept, memory_order_relaxed);
        object->placement = FOLIO_PLACEMENT_PACKED;
        if (!kept || !spares_give(&object->client->spares, kept->region_id, object))
                object_free(object);
}

void object_fill(Object *object, uint32_t slot, const LayoutSlot *copy)
{
        object->slot = slot;
        atomic_store_explicit(&object->generation, copy->generation, memory_order_relaxed);
        object->placement = copy->placement;
        object->size_bytes = copy->size_bytes;
        object->is_mutable = copy->state == LAYOUT_SLOT_MUTABLE;
        object->capacity_bytes = object->is_mutable ? copy->capacity_bytes : copy->size_bytes;
        object->region_id = copy->region_id;
        object->protection = copy->protection;
        object->is_sparse = copy->flags & LAYOUT_FLAG_SPARSE;
        if (LIKELY(copy->placement == FOLIO_PLACEMENT_PACKED)) {
                object->offset_bytes = (uint64_t)copy->offset_units * LAYOUT_CHUNK_UNIT_BYTES;
                atomic_store_explicit(&object->zeros, OBJECT_ZEROS_NONE, memory_order_relaxed);
                return;
        }
        object->offset_bytes = 0;
        atomic_store_explicit(&object->zeros_sequence, copy->sequence, memory_order_relaxed);
        if (object->is_mutable)
                atomic_store_explicit(&object->zeros, object->is_sparse ? OBJECT_ZEROS_HINTS : OBJECT_ZEROS_NONE, memory_order_relaxed);
        else
                atomic_store_explicit(&object->zeros, copy->flags & LAYOUT_FLAG_ZEROS ? OBJECT_ZEROS_UNKNOWN : OBJECT_ZEROS_NONE,
                                      memory_order_relaxed);
}

/* --- mappings ------------------------------------------------------------------------------------------------------------------ */

/* What the index or the daemon says against what is mapped. False: the thread's sentence says why. */
static bool object_check_mapping(const Object *object, const Mapping *mapping)
{
        if (LIKELY(checked_range(object->offset_bytes, object->capacity_bytes, mapping->n_bytes)))
                return true;
        (void)error_set(FOLIO_E_PROTOCOL, "foliod says %llu bytes at %llu of a region of %zu bytes: that cannot be",
                        (unsigned long long)object->capacity_bytes, (unsigned long long)object->offset_bytes,
                        mapping->n_bytes);
        return false;
}

bool object_attach(Object *object, Mapping *mapping)
{
        Mapping *_Atomic *place = mapping->is_writable ? &object->writing : &object->reading;
        Mapping *none = NULL;

        if (!object_check_mapping(object, mapping)) {
                maps_unref(object->client->maps, mapping, false);
                return false;
        }
        if (!atomic_compare_exchange_strong(place, &none, mapping))
                maps_unref(object->client->maps, mapping, false);
        return true;
}

int object_attach_mapped(Object *object, bool writable)
{
        Mapping *mapping = atomic_load_explicit(writable ? &object->writing : &object->reading, memory_order_acquire);

        if (object->capacity_bytes == 0)
                return 1;
        /* It may have been there before the object was this one. */
        if (mapping)
                return object_check_mapping(object, mapping) ? 1 : FOLIO_E_PROTOCOL;
        mapping = maps_find(object->client->maps, object->region_id, writable);
        if (!mapping)
                return 0;
        return object_attach(object, mapping) ? 1 : FOLIO_E_PROTOCOL;
}

ProtoItem object_region_item(const Object *object, bool writable)
{
        ProtoItem item = object_slot_item(object);

        if (writable)
                item.flags |= PROTO_ITEM_WRITABLE;
        return item;
}

int object_explain_mapping(int r, uint64_t n_bytes)
{
        if (r == MAPS_E_TOO_MANY)
                return error_set(FOLIO_E_LIMIT, "this process has nearly as many mappings as vm.max_map_count allows; "
                                                "release some objects, or raise it");
        return error_set(error_from_errno(r), "mapping %llu bytes failed: %s", (unsigned long long)n_bytes, strerror(-r));
}

static bool is_placed(const Object *object)
{
        const ObjectExtra *extra = atomic_load_explicit(&object->extra, memory_order_acquire);

        return atomic_load(&object->reading) || atomic_load(&object->writing) ||
               (extra && (atomic_load(&extra->fd) >= 0 || atomic_load(&extra->private_data)));
}

int object_place(Object *object, const ProtoItemReply *item)
{
        /* Nearly always, and then there is nothing to store: others may be reading the object. */
        if (LIKELY(object->region_id == item->region_id && object->offset_bytes == item->offset_bytes))
                return 0;
        if (is_placed(object))
                return error_set(FOLIO_E_PROTOCOL, "foliod says that the object lies in region %llu at %llu, and before it "
                                                   "was region %llu at %llu", (unsigned long long)item->region_id,
                                 (unsigned long long)item->offset_bytes, (unsigned long long)object->region_id,
                                 (unsigned long long)object->offset_bytes);
        object->region_id = item->region_id;
        object->offset_bytes = item->offset_bytes;
        return 0;
}

int object_map_region(Object *object, const ProtoItemReply *item, int fd, bool writable, bool populate)
{
        Mapping *mapping = NULL;
        int r;

        if (fd < 0 || item->region_bytes == 0)
                return error_set(FOLIO_E_PROTOCOL, "foliod's answer lacks the region's descriptor");
        r = object_place(object, item);
        if (r < 0)
                return r;
        idle_sweep(object->client->maps);
        r = maps_open(object->client->maps, item->region_id, fd, item->region_bytes, writable, populate, &mapping);
        if (r != 0)
                return object_explain_mapping(r, item->region_bytes);
        return object_attach(object, mapping) ? 0 : FOLIO_E_PROTOCOL;
}

int object_add_region(Object *object, const ProtoItemReply *item, int consume_fd, bool writable, bool populate)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;

        return object_map_region(object, item, fd, writable, populate);
}

int object_ask_region(Object *object, bool writable, ProtoItemReply *ret_item, int *ret_fd)
{
        ProtoItem item = object_region_item(object, writable);
        Op op;
        int r;

        op_init(&op, object->client);
        op.space = object->space;
        op_send_item(&op, VERB_REGION, &item, op_complete);
        r = op_wait(&op);
        if (r == 0) {
                *ret_item = op.item;
                *ret_fd = steal_fd(&op.fd);
        }
        op_deinit(&op);
        return r;
}

const uint8_t *object_peek(const Object *object)
{
        const Mapping *mapping = atomic_load_explicit(&object->reading, memory_order_acquire);

        if (!mapping)
                mapping = atomic_load_explicit(&object->writing, memory_order_acquire);
        if (LIKELY(mapping))
                return mapping->data + object->offset_bytes;
        /* A copy of its own, or the lease it was made in. */
        if (object->staged)
                return object->staged;
        return object->capacity_bytes == 0 ? empty_object : NULL;
}

/* --- sizes and states -------------------------------------------------------------------------------------------------------------------- */

uint64_t object_size(const Object *object)
{
        LayoutSlot copy;

        if (!object->is_mutable || !object->space->shared)
                return object->size_bytes;
        if (settle_read_slot(object->client, object->space, object->slot, true, &copy) <= 0 || copy.generation != object->generation)
                return object->size_bytes;
        /* Never more than is mapped, whatever the index says. */
        return MIN(copy.size_bytes, object->capacity_bytes);
}

int object_check_range(const Object *object, uint64_t offset_bytes, uint64_t n_bytes)
{
        uint64_t size_bytes = object_size(object);

        if (LIKELY(checked_range(offset_bytes, n_bytes, size_bytes)))
                return 0;
        return error_set(FOLIO_E_RANGE, "%llu bytes at offset %llu are not all inside the object, which has %llu",
                         (unsigned long long)n_bytes, (unsigned long long)offset_bytes, (unsigned long long)size_bytes);
}

int object_check_writable(const Object *object, ObjectKind *ret)
{
        *ret = (ObjectKind)atomic_load(&object->kind);
        if (*ret == OBJECT_READER)
                return error_set(FOLIO_E_STATE, "the object is for reading: it is sealed, or was not got with FOLIO_GET_WRITABLE");
        if (*ret == OBJECT_ENDED)
                return error_set(FOLIO_E_STATE, "a seal of the object has begun: it can only be sealed again, or aborted");
        return 0;
}

int object_check_readable(Object *object, uint64_t offset_bytes, uint64_t n_bytes)
{
        ObjectKind kind = (ObjectKind)atomic_load(&object->kind);

        if (kind == OBJECT_LEASED)
                made_prepare_all(object);

        if (kind == OBJECT_STREAM)
                return error_set(FOLIO_E_INVALID, "an object that is being streamed cannot be read before it is sealed");
        if (kind == OBJECT_ENDED)
                return error_set(FOLIO_E_INVALID, "the object's seal has failed: seal it again, or abort it");
        return object_check_range(object, offset_bytes, n_bytes);
}

/* --- public ----------------------------------------------------------------------------------------------------------------------- */

_public_ uint64_t folio_object_size(struct folio_object *handle)
{
        int error;
        Object *object = object_find_piped(handle, &error);

        return object ? object_size(object) : 0;
}

_public_ int folio_object_release(struct folio_object *handle)
{
        int r;
        Object *object = object_find_piped(handle, &r);

        if (!object)
                return r;
        /* Of two that release at once, one has it. */
        object = handle_keep(handle);
        if (!object)
                return error_set(FOLIO_E_INVALID, "%p was released already", (void *)handle);
        object->handle = handle;
        object_unref(object);
        return 0;
}
