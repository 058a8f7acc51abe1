/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Truncating and deleting: one record in the ring each, or one request, and none where the index shows that nothing is to
 * be done. A delete returns when it is asked for, a truncate when it is done.
 */
#include "client/call.h"
#include "client/direct.h"
#include "client/resume.h"

typedef struct ChangeOp {
        Op op;
        ProtoVerb verb;
        ProtoItem item;
        bool may_fit;                /* TRUNCATE, by a handle: to no more than the capacity */
} ChangeOp;

/* Does the index show all that has been asked for before? An asynchronous one, as this may be, counts itself. */
static bool is_alone(const Op *op)
{
        return atomic_load(&op->client->n_changing) == (op->is_changing ? 1 : 0) &&
               order_is_caught_up(op->client, order_hash(op->space, op->key));
}

static void change_send(Op *op)
{
        ChangeOp *change = CONTAINER_OF(op, ChangeOp, op);
        Lookup look;

        if (op->error) {
                op_complete(op);
                return;
        }
        change->item.key = op->key;
        /*
         * The size it has already: nothing to do, and nobody to ask, where nothing that is under way can change that. All other
         * refusals are the daemon's.
         */
        if (change->verb == VERB_TRUNCATE && is_alone(op) && op->space->shared && (op->space->rights & FOLIO_RIGHT_WRITE) &&
            get_look(op->client, op->space, op->key, op->name, false, &look) == 0 &&
            look.copy.state == LAYOUT_SLOT_MUTABLE && look.copy.size_bytes == change->item.size_bytes) {
                op_complete(op);
                return;
        }
        op_send_item(op, change->verb, &change->item, op_complete);
}

static void change_begin(Op *op)
{
        Key namespace;

        if (op->error || !key_split_name(op->name, false, &namespace, &op->key))
                op_complete(op);
        else
                names_open(op, namespace, change_send);
}

static int change_wait(Client *client, const char *name, ProtoVerb verb, ProtoItem item)
{
        ChangeOp change = { .verb = verb, .item = item };
        int r;

        op_init(&change.op, client);
        (void)op_set_name(&change.op, name);
        r = call_wait(&change.op, change_begin);
        idle_sweep(client->maps);
        return r;
}

static int change_async(Client *client, const char *name, ProtoVerb verb, ProtoItem item, folio_done_fn done, void *userdata)
{
        ChangeOp change = { .verb = verb, .item = item };

        op_init(&change.op, client);
        change.op.is_changing = true;
        (void)op_set_name(&change.op, name);
        return call_async(&change.op, sizeof(change), change_begin, done, userdata);
}

/* 0, an error, or DIRECT_NOT. */
static int truncate_now(Client *client, const char *name, uint64_t size_bytes)
{
        LookupOutcome outcome;
        RingResult result;
        RingRecord *record;
        uint64_t sequence;
        Direct direct;
        Lookup look;
        int r;

        if (!direct_begin(&direct, client, name))
                return DIRECT_NOT;
        r = direct_look(&direct, false, &outcome, &look);
        if (r != 0)
                return r;
        /* Why it cannot be is for the daemon to say. */
        if (outcome != LOOKUP_FOUND || look.copy.state != LAYOUT_SLOT_MUTABLE || size_bytes > look.copy.capacity_bytes)
                return DIRECT_NOT;
        if (look.copy.size_bytes == size_bytes)
                return 0;
        if (!direct_want(&direct))
                return DIRECT_NOT;
        r = pipe_begin(client, direct.ring, &record, &sequence);
        if (r < 0)
                return r;
        direct_fill(&direct, RING_VERB_TRUNCATE, record);
        record->size_bytes = size_bytes;
        ring_submit(direct.ring, direct.hash, true);
        return pipe_result(client, direct.ring, sequence, name, &result);
}

static int check_size(Client *client, uint64_t size_bytes)
{
        int r = client_check(client);

        if (r == 0 && size_bytes > FOLIO_OBJECT_BYTES_MAX)
                r = error_set(FOLIO_E_TOO_LARGE, "%llu bytes: no object is larger than %llu", (unsigned long long)size_bytes,
                              (unsigned long long)FOLIO_OBJECT_BYTES_MAX);
        return r;
}

_public_ int folio_truncate(struct folio_client *client, const char *name, uint64_t size_bytes)
{
        int r = check_size(client, size_bytes);

        if (r == 0)
                r = truncate_now(client, name, size_bytes);
        return r == DIRECT_NOT ? change_wait(client, name, VERB_TRUNCATE, (ProtoItem){ .size_bytes = size_bytes }) : r;
}

_public_ int folio_truncate_async(struct folio_client *client, const char *name, uint64_t size_bytes, folio_done_fn done,
                                  void *userdata)
{
        int r = check_size(client, size_bytes);

        return r < 0 ? r : change_async(client, name, VERB_TRUNCATE, (ProtoItem){ .size_bytes = size_bytes }, done, userdata);
}

static void truncate_begin(Op *op)
{
        ChangeOp *change = CONTAINER_OF(op, ChangeOp, op);

        op_send_item(op, VERB_TRUNCATE, &change->item, op_complete);
}

static void truncate_nothing(Op *op)
{
        op_complete(op);
}

/* *@ret_first: the step to begin with. 0 or an error. */
static int truncate_init(ChangeOp *change, struct folio_object *handle, uint64_t size_bytes, OpStep *ret_first)
{
        int r;
        Object *object = object_find(handle, &r);

        if (!object)
                return r;
        r = check_size(object->client, size_bytes);
        if (r < 0)
                return r;
        if (!object->is_mutable)
                return error_set(FOLIO_E_STATE, "only a mutable object can be truncated");
        op_init(&change->op, object->client);
        change->op.space = object->space;
        change->item = object_slot_item(object);
        change->item.size_bytes = size_bytes;
        change->may_fit = size_bytes <= object->capacity_bytes;
        *ret_first = truncate_begin;
        if (object->space->shared && (object->space->rights & FOLIO_RIGHT_WRITE) && order_is_free(object->client) &&
            object_size(object) == size_bytes)
                *ret_first = truncate_nothing;
        return 0;
}

/* By slot. 0, an error, or DIRECT_NOT. */
static int truncate_object_now(const ChangeOp *change)
{
        Client *client = change->op.client;
        Ring *ring = change->op.space->shared && resume_is_current(client, change->op.space) ? pipe_want(client) : NULL;
        RingResult result;
        RingRecord *record;
        uint64_t sequence;
        int r;

        if (!ring)
                return DIRECT_NOT;
        r = pipe_begin(client, ring, &record, &sequence);
        if (r < 0)
                return r;
        *record = (RingRecord){
                .verb = RING_VERB_TRUNCATE,
                .namespace_id = change->op.space->id,
                .slot = change->item.slot,
                .generation = change->item.generation,
                .size_bytes = change->item.size_bytes,
        };
        ring_submit(ring, 0, true);
        return pipe_result(client, ring, sequence, "the object", &result);
}

_public_ int folio_object_truncate(struct folio_object *handle, uint64_t size_bytes)
{
        ChangeOp change;
        OpStep first = NULL;
        int r = truncate_init(&change, handle, size_bytes, &first);

        if (r == 0)
                r = first == truncate_begin && change.may_fit ? truncate_object_now(&change) : DIRECT_NOT;
        return r == DIRECT_NOT ? call_wait(&change.op, first) : r;
}

_public_ int folio_object_truncate_async(struct folio_object *handle, uint64_t size_bytes, folio_done_fn done, void *userdata)
{
        ChangeOp change;
        OpStep first = NULL;
        int r = truncate_init(&change, handle, size_bytes, &first);

        if (r < 0)
                return r;
        change.op.is_changing = true;
        return call_async(&change.op, sizeof(change), first, done, userdata);
}

static int delete_item(Client *client, uint32_t flags, ProtoItem *ret)
{
        int r = client_check(client);

        if (r == 0 && (flags & ~FOLIO_IF_EXISTS))
                r = error_set(FOLIO_E_INVALID, "unknown flags 0x%x for a delete", flags & ~FOLIO_IF_EXISTS);
        *ret = (ProtoItem){ .flags = flags & FOLIO_IF_EXISTS ? PROTO_ITEM_IF_EXISTS : 0 };
        return r;
}

/* 0, an error, or DIRECT_NOT. */
static int delete_now(Client *client, const char *name, uint32_t flags)
{
        LookupOutcome outcome;
        RingResult result;
        RingRecord *record;
        uint64_t sequence;
        Direct direct;
        Lookup look;
        int r;

        if (!direct_begin(&direct, client, name))
                return DIRECT_NOT;
        r = direct_look(&direct, !flags, &outcome, &look);
        if (r != 0)
                return r;
        if (outcome == LOOKUP_MISSING && direct.is_in_gap)
                return DIRECT_NOT;
        if (outcome == LOOKUP_MISSING)
                return flags & PROTO_ITEM_IF_EXISTS ? 0 : get_explain_missing(name, &look);
        /* One that takes memory of its own is worth a message: then that is free when this returns, with what we keep of it. */
        if (look.copy.state == LAYOUT_SLOT_WRITING || look.copy.placement == FOLIO_PLACEMENT_OWN || !direct_want(&direct))
                return DIRECT_NOT;
        r = pipe_begin(client, direct.ring, &record, &sequence);
        if (r < 0)
                return r;
        direct_fill(&direct, RING_VERB_DELETE, record);
        record->flags = flags;
        ring_submit(direct.ring, direct.hash, client->is_visible);
        leases_note_freed(direct.entry);
        return client->is_visible ? pipe_result(client, direct.ring, sequence, name, &result) : 0;
}

_public_ int folio_delete(struct folio_client *client, const char *name, uint32_t flags)
{
        ProtoItem item;
        int r = delete_item(client, flags, &item);

        if (r == 0)
                r = delete_now(client, name, item.flags);
        return r == DIRECT_NOT ? change_wait(client, name, VERB_DELETE, item) : r;
}

_public_ int folio_delete_async(struct folio_client *client, const char *name, uint32_t flags, folio_done_fn done,
                                void *userdata)
{
        ProtoItem item;
        int r = delete_item(client, flags, &item);

        return r < 0 ? r : change_async(client, name, VERB_DELETE, item, done, userdata);
}
