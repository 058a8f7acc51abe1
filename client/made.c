/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See made.h. What changes an object here is done with its lock.
 *
 * Memory of a lease has been other objects' of the namespace, but for what was never used. What the program does not write reads as zeros, as that of any
 * other object does: everything up to `zero_from` is the program's or zeros, and that mark moves on before anything is stored
 * behind it. So who fills an object from its beginning to its end by folio_object_write() pays nothing for it; who takes
 * its address pays for all of it, which for a program that counts on zeros is less than what it would have to do itself.
 */
#include "client/made.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/lib/copy.h"
#include "client/settle.h"
#include "proto/status.h"

struct Made {
        Ring *ring;
        Lease *lease;                /* a reference; NULL: in staging memory, or not needed any more */
        Leases *leases;
        bool is_begun;               /* the lease cannot be taken away */
        bool is_guarded;
        bool is_visible;
        bool is_sent;                /* CREATE has been asked for */
        bool is_create_known;        /* the result of CREATE has been taken: slot and generation are the object's */
        bool is_seal_asked;          /* and its result has not been taken */
        uint32_t number;
        uint64_t create_sequence;
        uint64_t seal_sequence;
        uint64_t hash;
        uint64_t place;              /* offset in the lease, or in staging memory */
        uint64_t region_id;          /* 0: staging memory */
        uint64_t zero_from;
        uint8_t key_bytes;
        char key[RING_KEY_BYTES_MAX];
};

/* Waits for the result of a record about @object. 0 or an error with the thread's sentence. */
static int take_result(Object *object, uint64_t sequence, RingResult *ret)
{
        const Made *made = object->made;
        char text[RING_FAILURE_BYTES_MAX + 1], name[ERROR_SENTENCE_BYTES];
        int r = ring_wait_result(made->ring, sequence, object->client->timeout_ns, ret, text);

        if (r != 0)
                return order_fail(object->client, r);
        pipe_settle(object->client);
        if (LIKELY(ret->status == STATUS_OK))
                return 0;
        error_format(name, "%s:%.*s", object->space->name, (int)made->key_bytes, made->key);
        return pipe_refused(ret->status, name, text);
}

static int take_created(Object *object)
{
        Made *made = object->made;
        RingResult result;
        int r;

        if (made->is_create_known)
                return 0;
        made->is_create_known = true;
        r = take_result(object, made->create_sequence, &result);
        if (r < 0)
                return r;
        object->slot = result.slot;
        atomic_store_explicit(&object->generation, result.generation, memory_order_relaxed);
        return 0;
}

/* --- creating ------------------------------------------------------------------------------------------------------------------------- */

/* In a lease; nothing is sent yet. */
static bool place_leased(const Direct *direct, Object *object)
{
        Leases *leases = leases_of(direct->entry);
        Made *made = object->made;
        Placed placed;

        if (!leases)
                return false;
        if (!leases_place(direct->client, direct->ring, leases, direct->space, object->size_bytes, false, &placed)) {
                leases_count_other(leases, object->size_bytes);
                return false;
        }
        made->leases = leases;
        made->lease = placed.lease;
        made->is_begun = true;
        made->region_id = lease_region_id(placed.lease);
        made->place = placed.offset_bytes;
        made->zero_from = placed.is_zero ? object->size_bytes : 0;
        object->staged = placed.data;
        return true;
}

static bool place_staged(const Direct *direct, Object *object)
{
        Made *made = object->made;

        if (object->size_bytes > direct->client->packed_bytes_max)
                return false;
        made->zero_from = object->size_bytes;
        if (object->size_bytes == 0)
                return true;
        object->staged = pipe_take_staged(direct->client, direct->ring, (size_t)object->size_bytes);
        if (!object->staged)
                return false;
        made->place = staging_offset(direct->client->staging, object->staged);
        memset(object->staged, 0, (size_t)object->size_bytes);
        return true;
}

/* Nothing was sent. */
static void unplace(Object *object)
{
        Made *made = object->made;

        if (made->lease) {
                Placed placed = { .leases = made->leases, .lease = made->lease, .offset_bytes = made->place, .n_bytes = object->size_bytes };

                leases_lock(made->leases);
                leases_give(&placed);
                made->lease = NULL;
                made->is_begun = false;
        } else if (object->staged) {
                staging_give(object->client->staging, object->staged);
        }
        object->staged = NULL;
}

static int send_create(const Direct *direct, const ProtoItem *item, Object *object)
{
        Made *made = object->made;
        RingRecord *record;
        int r;

        if (made->lease)
                leases_lock(made->leases);
        r = pipe_begin(direct->client, direct->ring, &record, &made->create_sequence);
        if (r == 0) {
                direct_fill_new(direct, RING_VERB_CREATE, item, record);
                record->slot = made->number;
                record->region_id = made->region_id;
                record->offset_bytes = made->lease ? made->place : 0;
                if (made->lease)
                        lease_placed_at(made->lease, made->place, made->create_sequence);
                ring_submit(direct->ring, direct->hash, true);
        }
        if (made->lease)
                leases_unlock(made->leases);
        return r;
}

static void init(Object *object, const Direct *direct, const ProtoItem *item)
{
        Made *made = object->made;

        object->size_bytes = object->capacity_bytes = item->size_bytes;
        object->placement = FOLIO_PLACEMENT_PACKED;
        made->ring = direct->ring;
        made->hash = direct->hash;
        made->key_bytes = (uint8_t)direct->key.n_bytes;
        memcpy(made->key, direct->key.bytes, direct->key.n_bytes);
}

/* @object has its record of us, and its number. */
static int create(const Direct *direct, const ProtoItem *item, Object *object)
{
        Made *made = object->made;
        int r;

        if (!place_leased(direct, object) && !place_staged(direct, object))
                return DIRECT_NOT;
        r = send_create(direct, item, object);
        if (r < 0) {
                unplace(object);
                return r;
        }
        made->is_sent = true;
        atomic_store_explicit(&object->kind, made->lease ? OBJECT_LEASED : OBJECT_STAGED, memory_order_release);
        if (made->is_visible || pipe_is_careful(direct->client)) {
                r = take_created(object);
                pipe_note_result(direct->client, r);
        }
        return r;
}

static Object *made_new(const Direct *direct)
{
        Made *made = calloc(1, sizeof(*made));
        Object *object;

        if (!made)
                return NULL;
        object = pipe_take_number(direct->client, &made->number) ? object_new(direct->client, direct->space) : NULL;
        if (!object) {
                free(made);
                return NULL;
        }
        object->made = made;
        return object;
}

int made_create(Client *client, const char *name, const ProtoItem *item, bool is_visible, Object **ret)
{
        Direct direct;
        Object *object;
        int r;

        if (item->flags & ~FOLIO_REPLACE || item->metadata.n_bytes > 0 || item->content_type.n_bytes > 0)
                return DIRECT_NOT;
        if (!direct_begin(&direct, client, name))
                return DIRECT_NOT;
        if (item->size_bytes > (leases_of(direct.entry) ? LEASE_REGION_BYTES_MAX : client->packed_bytes_max))
                return DIRECT_NOT;
        r = direct_check_free(&direct, item->flags);
        if (r != 0)
                return r;
        if (!direct_want(&direct))
                return DIRECT_NOT;
        object = made_new(&direct);
        if (!object)
                return DIRECT_NOT;
        init(object, &direct, item);
        object->made->is_visible = is_visible;
        r = create(&direct, item, object);
        if (r == 0)
                *ret = object;
        else
                object_unref(object);
        return r;
}

/* --- filling -------------------------------------------------------------------------------------------------------------------------- */

/* With the lock. */
static void zero_to(Object *object, uint64_t end)
{
        Made *made = object->made;

        if (end <= made->zero_from)
                return;
        copy_fill((uint8_t *)object->staged + made->zero_from, (size_t)(end - made->zero_from));
        made->zero_from = end;
}

uint64_t made_prepare(Object *object, uint64_t offset_bytes, uint64_t n_bytes)
{
        Made *made = object->made;
        uint64_t zero_from;

        (void)pthread_mutex_lock(&object->lock);
        if (atomic_load(&object->kind) == OBJECT_LEASED)
                zero_to(object, offset_bytes);
        zero_from = made->zero_from;
        /* Others may be storing behind it at once: so the mark is there before the bytes are. */
        made->zero_from = MAX(zero_from, offset_bytes + n_bytes);
        (void)pthread_mutex_unlock(&object->lock);
        return zero_from;
}

void made_prepare_all(Object *object)
{
        (void)pthread_mutex_lock(&object->lock);
        if (atomic_load(&object->kind) == OBJECT_LEASED)
                zero_to(object, object->size_bytes);
        (void)pthread_mutex_unlock(&object->lock);
}

/* --- sealing; with the lock ----------------------------------------------------------------------------------------------------------- */

static void end_use(Made *made)
{
        if (made->is_begun)
                lease_end(made->lease);
        made->is_begun = false;
}

static void unguard(Object *object)
{
        Made *made = object->made;

        if (!made->is_guarded)
                return;
        leases_lock(made->leases);
        lease_unguard(made->lease, made->place, object->size_bytes);
        leases_unlock(made->leases);
        made->is_guarded = false;
}

static void leave_lease(Object *object)
{
        Made *made = object->made;

        if (!made->lease)
                return;
        unguard(object);
        end_use(made);
        lease_unref(steal_ptr(&made->lease));
        object->staged = NULL;
}

/* What keeps the bytes until the handle is let go of, whoever deletes the object meanwhile. 0 or an error. */
static int hold(Object *object)
{
        Made *made = object->made;
        int r = 0;

        if (!made->is_create_known && (!made->lease || made->is_visible || ring_head(made->ring) > made->create_sequence))
                r = take_created(object);
        if (r < 0)
                return r;
        if (made->is_create_known)
                (void)object_pin(object);
        if (object->is_pinned || !made->lease || made->is_guarded)
                return 0;
        leases_lock(made->leases);
        made->is_guarded = lease_guard(made->lease, made->place, object->size_bytes);
        leases_unlock(made->leases);
        return made->is_guarded ? 0 : error_set(FOLIO_E_NO_MEMORY, "this process has no memory left to keep the object");
}

static int send_seal(Object *object)
{
        Made *made = object->made;
        RingRecord *record;
        int r = pipe_begin(object->client, made->ring, &record, &made->seal_sequence);

        if (r < 0)
                return r;
        *record = (RingRecord){
                .verb = RING_VERB_SEAL,
                .namespace_id = object->space->id,
                .slot = made->number,
                .region_id = made->region_id,
                .offset_bytes = made->place,
        };
        if (made->region_id == 0)
                pipe_keep_staged(object->client, made->seal_sequence, steal_ptr(&object->staged));
        ring_submit(made->ring, made->hash, true);
        made->is_seal_asked = true;
        end_use(made);
        atomic_store_explicit(&object->kind, OBJECT_PIPED, memory_order_release);
        return 0;
}

static int seal_begin(Object *object)
{
        ObjectKind kind = (ObjectKind)atomic_load(&object->kind);
        int r;

        if (kind == OBJECT_READER || kind == OBJECT_PIPED)
                return error_set(FOLIO_E_STATE, "the object is sealed already, or was not made through this handle");
        if (kind == OBJECT_ENDED)
                return error_set(FOLIO_E_STATE, "an earlier seal has failed: abort the object");
        if (kind == OBJECT_LEASED)
                zero_to(object, object->size_bytes);
        r = hold(object);
        /* One that could not be created never will be. */
        if (r < 0 && r != FOLIO_E_NO_MEMORY)
                atomic_store_explicit(&object->kind, OBJECT_ENDED, memory_order_release);
        return r < 0 ? r : send_seal(object);
}

/* The object is sealed, as @result tells. */
static void become_reader(Object *object, const RingResult *result)
{
        LayoutSlot copy;

        if (result->generation != 0)
                atomic_store_explicit(&object->generation, result->generation, memory_order_relaxed);
        if (object_pin(object) && settle_read_slot(object->client, object->space, object->slot, true, &copy) > 0 &&
            copy.generation == object->generation && copy.state != LAYOUT_SLOT_RETRACTED) {
                object_fill(object, object->slot, &copy);
                leave_lease(object);
        }
        atomic_store_explicit(&object->kind, OBJECT_READER, memory_order_release);
}

/*
 * What came of it will never be told. Who has been told that the object is sealed, and has the bytes, goes on with them:
 * they are as they were.
 */
static int become_orphan(Object *object, int error)
{
        bool is_kept = !object->made->is_visible && object->made->lease;

        atomic_store_explicit(&object->kind, is_kept ? OBJECT_READER : OBJECT_ENDED, memory_order_release);
        return is_kept ? 0 : error;
}

static int seal_end(Object *object)
{
        Made *made = object->made;
        RingResult result;
        int r;

        r = take_created(object);
        made->is_seal_asked = false;
        if (r < 0) {
                ring_forget_result(made->ring, made->seal_sequence);
        } else {
                r = take_result(object, made->seal_sequence, &result);
                if (r == 0)
                        become_reader(object, &result);
        }
        if (r == FOLIO_E_TIMEOUT || r == FOLIO_E_DAEMON_GONE)
                return become_orphan(object, r);
        if (r < 0)
                atomic_store_explicit(&object->kind, OBJECT_ENDED, memory_order_release);
        return r;
}

int made_seal_begin(Object *object)
{
        int r;

        (void)pthread_mutex_lock(&object->lock);
        r = seal_begin(object);
        (void)pthread_mutex_unlock(&object->lock);
        return r;
}

int made_seal_end(Object *object)
{
        int r;

        (void)pthread_mutex_lock(&object->lock);
        r = atomic_load(&object->kind) == OBJECT_PIPED ? seal_end(object) : 0;
        (void)pthread_mutex_unlock(&object->lock);
        return r;
}

int made_seal(Object *object)
{
        int r = made_seal_begin(object);

        return r == 0 && object->made->is_visible ? made_seal_end(object) : r;
}

int made_resolve(Object *object)
{
        int r = made_seal_end(object);

        /* Its seal was said to be done: so the flush is told too. */
        if (r < 0)
                pipe_keep_failure(object->client, r);
        return r;
}

int made_know_slot(Object *object)
{
        int r;

        (void)pthread_mutex_lock(&object->lock);
        r = object->made->is_sent ? take_created(object) : 0;
        (void)pthread_mutex_unlock(&object->lock);
        return r;
}

/* --- the end -------------------------------------------------------------------------------------------------------------------------- */

static void tell_abort(Object *object)
{
        Made *made = object->made;
        RingRecord *record;
        uint64_t sequence;

        if (client_is_closing(object->client) || ring_begin(made->ring, object->client->timeout_ns, &record, &sequence) != 0)
                return;
        *record = (RingRecord){ .verb = RING_VERB_ABORT, .namespace_id = object->space->id, .slot = made->number };
        ring_submit(made->ring, made->hash, false);
}

void made_end(Object *object)
{
        Made *made = object->made;

        if (object_is_unsealed(object) && made->is_sent)
                tell_abort(object);
        if (!made->is_create_known && made->is_sent)
                ring_forget_result(made->ring, made->create_sequence);
        if (made->is_seal_asked)
                ring_forget_result(made->ring, made->seal_sequence);
        if (made->region_id == 0 && object->staged)
                staging_give(object->client->staging, object->staged);
        object->staged = NULL;
        leave_lease(object);
        pipe_give_number(object->client, made->number);
        free(made);
        object->made = NULL;
}
