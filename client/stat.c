/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the index: stat, exists, metadata; and asking the daemon who holds an object, which the index does not know. */
#include "client/stat.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/call.h"
#include "client/get.h"
#include "client/lib/extents.h"
#include "client/made.h"
#include "client/order.h"
#include "client/resume.h"

enum { STAT_TRIES_MAX = 1000 };

/* What every struct has that ends behind the texts. */
#define STAT_IN_PLACE_BYTES offsetof(struct folio_stat, zero_bytes)

/* False: the object has changed. Without memory for the list nothing is known to be zeros. */
static bool count_zeros(const Space *space, uint32_t slot, const LayoutSlot *copy, uint64_t *ret)
{
        Extents *extents = NULL;

        if (!(copy->flags & LAYOUT_FLAG_ZEROS) || copy->state == LAYOUT_SLOT_MUTABLE)
                return true;
        if (extents_read(space, slot, copy, &extents) == -EAGAIN)
                return false;
        *ret = extents_bytes(extents);
        extents_free(extents);
        return true;
}

/* All but the texts and what the list of zeros tells. */
static void fill_numbers(const LayoutSlot *copy, struct folio_stat *ret, size_t struct_bytes)
{
        bool is_packed = copy->placement == FOLIO_PLACEMENT_PACKED;

        ret->struct_bytes = struct_bytes;
        ret->generation = copy->generation;
        ret->size_bytes = copy->size_bytes;
        ret->capacity_bytes = copy->state == LAYOUT_SLOT_MUTABLE ? copy->capacity_bytes : copy->size_bytes;
        /* A chunk is not made of pages; whether those it lies in are huge is a matter of its region. */
        ret->allocated_bytes = is_packed ? ALIGN_UP(MAX(copy->size_bytes, 1), LAYOUT_CHUNK_UNIT_BYTES) :
                                           (uint64_t)copy->allocated_pages * PAGE_BYTES;
        ret->huge_bytes = is_packed ? 0 : (uint64_t)copy->huge_folios * HUGE_BYTES;
        ret->created_ns = copy->created_ns;
        ret->changed_ns = copy->changed_ns;
        ret->expires_ns = copy->expires_ns;
        /* One that has lost its name is as complete as it was. */
        ret->state = copy->state == LAYOUT_SLOT_RETRACTED ? FOLIO_STATE_SEALED : copy->state;
        ret->lifetime = copy->expires_ns != 0                    ? FOLIO_UNTIL_TIME :
                        copy->flags & LAYOUT_FLAG_WITH_CREATOR ? FOLIO_WITH_CREATOR :
                                                                   FOLIO_UNTIL_DELETED;
        ret->protection = copy->protection;
        ret->backing = copy->backing;
        ret->placement = copy->placement;
        ret->owner_uid = copy->owner_uid;
        ret->has_holes = copy->flags & LAYOUT_FLAG_HOLES ? 1 : 0;
        ret->metadata_bytes = copy->metadata_bytes;
}

/*
 * In place, and of the texts what they are long: clearing a struct of a kilobyte and copying it took longer than all
 * the rest. The texts come last of what can fail, and whole: where this is false nothing has been written.
 */
static bool fill(const Space *space, uint32_t slot, const LayoutSlot *copy, struct folio_stat *ret, size_t struct_bytes)
{
        size_t n_space = strlen(space->name);
        uint64_t zero_bytes = 0;

        if (!count_zeros(space, slot, copy, &zero_bytes) ||
            !lookup_read_texts(space, slot, copy, ret->name + n_space + 1, ret->content_type, NULL))
                return false;
        memcpy(ret->name, space->name, n_space);
        ret->name[n_space] = ':';
        ret->name[n_space + 1 + copy->key_bytes] = '\0';
        ret->content_type[copy->content_type_bytes] = '\0';
        fill_numbers(copy, ret, struct_bytes);
        if (struct_bytes >= sizeof(*ret))
                ret->zero_bytes = zero_bytes;
        return true;
}

/* Of a shorter struct, or of one that lies anywhere, in an array of structs of an odd size. By way of a whole one. */
static __attribute__((noinline)) bool fill_part(const Space *space, uint32_t slot, const LayoutSlot *copy,
                                                struct folio_stat *ret, size_t struct_bytes)
{
        struct folio_stat stat = { 0 };

        if (!fill(space, slot, copy, &stat, sizeof(stat)))
                return false;
        stat.struct_bytes = struct_bytes;
        memcpy(ret, &stat, MIN(struct_bytes, sizeof(stat)));
        return true;
}

bool stat_fill(const Space *space, uint32_t slot, const LayoutSlot *copy, struct folio_stat *ret, size_t struct_bytes)
{
        if (LIKELY(struct_bytes >= STAT_IN_PLACE_BYTES && IS_ALIGNED((uintptr_t)ret, _Alignof(struct folio_stat))))
                return fill(space, slot, copy, ret, struct_bytes);
        return fill_part(space, slot, copy, ret, struct_bytes);
}

int stat_look(Client *client, Space *space, Key key, const char *name, bool may_wait, struct folio_stat *ret,
              size_t struct_bytes)
{
        for (unsigned i = 0; i < STAT_TRIES_MAX; i++) {
                const Beacon *beacon = resume_beacon(client);
                unsigned count = UNLIKELY(!beacon_is_lit(beacon)) ? resume_count(client) : 0;
                Lookup look;
                int r = get_look(client, space, key, name, may_wait, &look);

                if (r != 0)
                        return r;
                if (LIKELY(stat_fill(space, look.slot, &look.copy, ret, struct_bytes)) &&
                    (resume_is_lit(beacon) || (count > 0 && resume_is_same(client, count))))
                        return 0;
        }
        return error_set(FOLIO_E_PROTOCOL, "%s changes faster than it can be read", name);
}

/* --- by name ------------------------------------------------------------------------------------------------------------------------ */

typedef struct StatOp {
        Op op;
        struct folio_stat *ret;      /* NULL: is it there? */
} StatOp;

static int exists_look(Client *client, Space *space, Key key, const char *name, bool may_wait)
{
        Lookup look;
        int r = get_look(client, space, key, name, may_wait, &look);

        switch (r) {
        case 0:
                return look.copy.state != LAYOUT_SLOT_WRITING;
        case FOLIO_E_NOT_FOUND:
        case FOLIO_E_DELETED:
        case FOLIO_E_EVICTED:
        case FOLIO_E_EXPIRED:
        case FOLIO_E_WRITER_DIED:
                return 0;
        }
        return r;
}

static int look(Client *client, Space *space, Key key, const char *name, bool may_wait, struct folio_stat *ret)
{
        return ret ? stat_look(client, space, key, name, may_wait, ret, ret->struct_bytes) :
                     exists_look(client, space, key, name, may_wait);
}

static void stat_opened(Op *op)
{
        if (op->error == 0 && !op->space->shared)
                op_fail(op, FOLIO_E_ACCESS, "this user may not read in namespace %s", op->space->name);
        if (op->error == 0) {
                int r = look(op->client, op->space, op->key, op->name, op->is_waited, CONTAINER_OF(op, StatOp, op)->ret);

                if (r == SETTLE_ASK) {
                        settle_ask(op, stat_opened);
                        return;
                }
                if (r < 0)
                        op_fail_as_thread(op, r);
                else
                        op->answer = r;
        }
        op_complete(op);
}

static void stat_begin(Op *op)
{
        Key namespace;

        if (op->error || !key_split_name(op->name, false, &namespace, &op->key))
                op_complete(op);
        else
                names_open_to_look(op, namespace, stat_opened);
}

static int stat_wait(Client *client, const char *name, struct folio_stat *ret)
{
        Key namespace, key;
        Space *space;
        StatOp stat;
        int r = client_check(client);

        if (r == 0)
                r = get_split_name(name, &namespace, &key);
        if (r < 0)
                return r;
        space = names_find(client, namespace);
        if (LIKELY(space && space->shared)) {
                r = order_catch_up(client, space, key);
                return r < 0 ? r : look(client, space, key, name, true, ret);
        }
        stat.ret = ret;
        op_init(&stat.op, client);
        (void)op_set_name(&stat.op, name);
        return call_wait(&stat.op, stat_begin);
}

static int stat_async(Client *client, const char *name, struct folio_stat *ret, folio_done_fn done, void *userdata)
{
        StatOp stat = { .ret = ret };
        int r = client_check(client);

        if (r < 0)
                return r;
        op_init(&stat.op, client);
        (void)op_set_name(&stat.op, name);
        return call_async(&stat.op, sizeof(stat), stat_begin, done, userdata);
}

static int check_room(const struct folio_stat *ret)
{
        return ret && ret->struct_bytes > 0 ? 0 : error_set(FOLIO_E_INVALID, "folio_stat.struct_bytes is not set");
}

_public_ int folio_stat(struct folio_client *client, const char *name, struct folio_stat *ret)
{
        int r = check_room(ret);

        return r < 0 ? r : stat_wait(client, name, ret);
}

_public_ int folio_stat_async(struct folio_client *client, const char *name, struct folio_stat *ret, folio_done_fn done,
                              void *userdata)
{
        int r = check_room(ret);

        return r < 0 ? r : stat_async(client, name, ret, done, userdata);
}

_public_ int folio_exists(struct folio_client *client, const char *name)
{
        return stat_wait(client, name, NULL);
}

_public_ int folio_exists_async(struct folio_client *client, const char *name, folio_done_fn done, void *userdata)
{
        return stat_async(client, name, NULL, done, userdata);
}

/* --- by handle ---------------------------------------------------------------------------------------------------------------------- */

/*
 * Is it that object's? While it is being sealed in another thread it can have got its new generation already, and we have not been told
 * yet; its pin keeps the slot from becoming another's.
 */
static bool is_of(const LayoutSlot *copy, const Object *object)
{
        if (copy->generation == object->generation)
                return true;
        if (atomic_load_explicit(&object->kind, memory_order_acquire) == OBJECT_ENDED)
                return object->is_pinned && copy->generation > object->generation;
        /* It may have been answered in between: whoever sees the kind that it has then sees the generation. */
        return copy->generation == object->generation;
}

/* The slot of a handle, while it is that object's. That it is being changed does not mean that it is gone. */
static int read_slot(Object *object, LayoutSlot *ret)
{
        int r = object->made ? made_know_slot(object) : 0;

        if (r < 0)
                return r;
        if (!object->space->shared)
                return error_set(FOLIO_E_ACCESS, "this user may not read in namespace %s", object->space->name);
        /* Twice: what was read before the seal is compared with the generation it gave, once at most in an object's life. */
        for (int i = 0; i < 2; i++) {
                r = settle_read_slot(object->client, object->space, object->slot, true, ret);
                if (r < 0)
                        return r;
                if (r > 0 && ret->state != LAYOUT_SLOT_FREE && is_of(ret, object))
                        return 0;
                /* Sealed through the ring since the handle was looked at: what came of it has the generation. */
                r = object->made ? made_resolve(object) : 0;
                if (r < 0)
                        return r;
        }
        return error_set(FOLIO_E_DELETED, "the object is gone from the index, and what was known of it with it");
}

_public_ int folio_object_stat(struct folio_object *handle, struct folio_stat *ret)
{
        int r;
        Object *object = object_find(handle, &r);
        LayoutSlot copy;

        if (!object)
                return r;
        if (!ret || ret->struct_bytes == 0)
                return error_set(FOLIO_E_INVALID, "folio_stat.struct_bytes is not set");
        for (unsigned i = 0; i < STAT_TRIES_MAX; i++) {
                unsigned count = resume_count(object->client);

                r = read_slot(object, &copy);
                if (r < 0)
                        return r;
                if (copy.state == LAYOUT_SLOT_RETRACTED && object->is_mutable)
                        copy.state = LAYOUT_SLOT_MUTABLE;
                if (stat_fill(object->space, object->slot, &copy, ret, ret->struct_bytes) && resume_is_same(object->client, count))
                        return 0;
        }
        return error_set(FOLIO_E_DELETED, "the object is gone from the index, and what was known of it with it");
}

_public_ int folio_object_metadata(struct folio_object *handle, void *buffer, size_t n_bytes)
{
        int r;
        Object *object = object_find(handle, &r);
        char metadata[FOLIO_METADATA_BYTES_MAX];
        LayoutSlot copy;

        if (!object)
                return r;
        if (!buffer && n_bytes > 0)
                return error_set(FOLIO_E_INVALID, "the buffer is NULL");
        for (unsigned i = 0; i < STAT_TRIES_MAX; i++) {
                unsigned count = resume_count(object->client);

                r = read_slot(object, &copy);
                if (r < 0)
                        return r == FOLIO_E_ACCESS ? FOLIO_E_DELETED : r;
                if (copy.metadata_bytes > n_bytes)
                        return error_set(FOLIO_E_RANGE, "the metadata are %u bytes, the room is %zu", copy.metadata_bytes,
                                         n_bytes);
                if (!lookup_read_texts(object->space, object->slot, &copy, NULL, NULL, metadata) ||
                    !resume_is_same(object->client, count))
                        continue;
                if (copy.metadata_bytes > 0)
                        memcpy(buffer, metadata, copy.metadata_bytes);
                return copy.metadata_bytes;
        }
        return error_set(FOLIO_E_DELETED, "the object is gone from the index, and its metadata with it");
}

/* --- holders ------------------------------------------------------------------------------------------------------------------------ */

typedef struct HoldersOp {
        Op op;
        struct folio_holder *holders;
        size_t n_max;
        size_t struct_bytes;
} HoldersOp;

static void take_holders(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        HoldersOp *ask = CONTAINER_OF(op, HoldersOp, op);

        if (reply->n_items == 1 && reply->items[0].status != 0) {
                op_fail_status(op, reply->items[0].status, reply->items[0].detail);
                return;
        }
        op->answer = (int)MIN(reply->n_holders + (uint64_t)reply->n_more, (uint64_t)INT32_MAX);
        for (size_t i = 0; i < reply->n_holders && i < ask->n_max; i++) {
                const ProtoHolder *from = &reply->holders[i];
                struct folio_holder holder = {
                        .struct_bytes = ask->struct_bytes,
                        .pid = from->pid,
                        .uid = from->uid,
                        .n_pins = from->n_pins,
                        .connected_ns = from->connected_ns,
                };

                (void)snprintf(holder.comm, sizeof(holder.comm), "%.*s", (int)from->comm.n_bytes, from->comm.bytes);
                memcpy((uint8_t *)ask->holders + i * ask->struct_bytes, &holder, MIN(ask->struct_bytes, sizeof(holder)));
        }
}

static void holders_opened(Op *op)
{
        ProtoItem item = { .key = op->key };
        ProtoRequest message = { .verb = VERB_HOLDERS, .n_items = 1, .items = &item };

        if (op->error) {
                op_complete(op);
                return;
        }
        message.namespace_id = op->space->id;
        op_send(op, &message, take_holders, op_complete);
}

static void holders_begin(Op *op)
{
        Key namespace;

        if (op->error || !key_split_name(op->name, false, &namespace, &op->key))
                op_complete(op);
        else
                names_open(op, namespace, holders_opened);
}

static int holders_init(HoldersOp *ask, Client *client, const char *name, struct folio_holder *holders, size_t n_holders)
{
        int r = client_check(client);

        *ask = (HoldersOp){ .holders = holders, .n_max = n_holders, .struct_bytes = sizeof(*holders) };
        if (r == 0 && n_holders > 0 && (!holders || holders->struct_bytes == 0))
                r = error_set(FOLIO_E_INVALID, "folio_holder.struct_bytes is not set");
        if (r < 0)
                return r;
        if (n_holders > 0)
                ask->struct_bytes = holders->struct_bytes;
        op_init(&ask->op, client);
        (void)op_set_name(&ask->op, name);
        return 0;
}

_public_ int folio_holders(struct folio_client *client, const char *name, struct folio_holder *holders, size_t n_holders)
{
        HoldersOp ask;
        int r = holders_init(&ask, client, name, holders, n_holders);

        return r < 0 ? r : call_wait(&ask.op, holders_begin);
}

_public_ int folio_holders_async(struct folio_client *client, const char *name, struct folio_holder *holders,
                                 size_t n_holders, folio_done_fn done, void *userdata)
{
        HoldersOp ask;
        int r = holders_init(&ask, client, name, holders, n_holders);

        return r < 0 ? r : call_async(&ask.op, sizeof(ask), holders_begin, done, userdata);
}
