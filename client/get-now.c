/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the index answers, and the mappings we have: the part of a get that takes no operation. The clock is looked at
 * only for objects that expire.
 */
#include <time.h>

#include "base/checked.h"
#include "client/get.h"
#include "client/order.h"
#include "client/pipe.h"
#include "client/read.h"
#include "client/resume.h"

enum {
        GET_TRIES_MAX = 1000,        /* at an object that is replaced every time we have found it */
};

static uint64_t realtime_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/*
 * foliod has ended: the index is its last. What is there was there, and is an answer. What is not may have come since,
 * and what this client itself has changed may be in the next index only: then that is waited for.
 */
static LookupOutcome find_in_gap(Client *client, const Space *space, Key key, bool may_wait, Lookup *ret, int *ret_unsure)
{
        LookupOutcome outcome;
        bool is_ahead = pipe_is_ahead(client);
        int r;

        resume_enter(client);
        outcome = lookup_find(space, key, 0, ret);
        resume_leave(client);
        if (outcome == LOOKUP_UNSURE || (outcome == LOOKUP_FOUND && !is_ahead))
                return outcome;
        r = resume_check(client);
        if (r == RESUME_GAP && !may_wait) {
                *ret_unsure = SETTLE_ASK;
                return LOOKUP_UNSURE;
        }
        if (r == RESUME_GAP)
                r = resume_wait(client);
        /* Nobody comes: nothing has. */
        if (r < 0 && !is_ahead)
                return outcome;
        if (r < 0) {
                *ret_unsure = order_fail(client, RING_E_GONE);
                return LOOKUP_UNSURE;
        }
        return lookup_find(space, key, 0, ret);
}

/* UNSURE: look again, where *@ret_unsure is 0; else it is what settle_bucket() says. */
static LookupOutcome find_now(Client *client, const Space *space, Key key, bool may_wait, Lookup *ret, int *ret_unsure)
{
        const Beacon *beacon = resume_beacon(client);
        LookupOutcome outcome = lookup_find(space, key, 0, ret);

        *ret_unsure = 0;
        return resume_is_lit(beacon) ? outcome : find_in_gap(client, space, key, may_wait, ret, ret_unsure);
}

static LookupOutcome find_later(Client *client, const Space *space, Key key, bool may_wait, Lookup *ret,
                                int *ret_unsure)
{
        Settle settle = settle_begin(client, space, may_wait);
        LookupOutcome outcome = LOOKUP_UNSURE;

        while (outcome == LOOKUP_UNSURE && *ret_unsure == 0) {
                *ret_unsure = settle_bucket(&settle, ret);
                if (*ret_unsure == 0)
                        outcome = find_now(client, space, key, may_wait, ret, ret_unsure);
        }
        return outcome;
}

/* The first look told nothing, or was of a foliod that has ended. */
static __attribute__((noinline)) LookupOutcome find_slowly(Client *client, const Space *space, Key key, bool may_wait,
                                                           LookupOutcome outcome, Lookup *ret, int *ret_unsure)
{
        *ret_unsure = 0;
        if (!resume_is_lit(resume_beacon(client)))
                outcome = find_in_gap(client, space, key, may_wait, ret, ret_unsure);
        return outcome == LOOKUP_UNSURE ? find_later(client, space, key, may_wait, ret, ret_unsure) : outcome;
}

/* UNSURE: *@ret_unsure is what settle_bucket() says. The clock is looked at only for objects that expire. */
static LookupOutcome find(Client *client, const Space *space, Key key, bool may_wait, Lookup *ret, int *ret_unsure)
{
        const Beacon *beacon = resume_beacon(client);
        LookupOutcome outcome = lookup_find(space, key, 0, ret);

        if (UNLIKELY(outcome == LOOKUP_UNSURE) || !resume_is_lit(beacon))
                outcome = find_slowly(client, space, key, may_wait, resume_is_lit(beacon) ? outcome : LOOKUP_UNSURE, ret, ret_unsure);
        if (outcome == LOOKUP_FOUND && UNLIKELY(ret->copy.expires_ns != 0) && ret->copy.expires_ns <= realtime_ns()) {
                ret->reason = FOLIO_EVENT_EXPIRED;
                return LOOKUP_MISSING;
        }
        return outcome;
}

enum { HOLD_NOT, HOLD_DONE, HOLD_OUTDATED };

/* object_pin(), in a table that stays, and by an index that somebody stands for. */
static int hold(Object *object, const Beacon *beacon)
{
        bool is_held = object_pin(object), is_outdated;

        if (resume_is_lit(beacon))
                return is_held ? HOLD_DONE : HOLD_NOT;
        object_unpin(object);
        resume_enter(object->client);
        is_held = object_pin(object);
        is_outdated = resume_is_outdated(object->client);
        resume_leave(object->client);
        if (!is_outdated)
                return is_held ? HOLD_DONE : HOLD_NOT;
        object_unpin(object);
        return HOLD_OUTDATED;
}

GetOutcome get_try(Object *object, Key key, uint32_t flags, bool may_wait, Lookup *look, int *ret_error)
{
        Space *space = object->space;

        for (unsigned i = 0; i < GET_TRIES_MAX; i++) {
                const Beacon *beacon = resume_beacon(object->client);
                bool writable = flags & FOLIO_GET_WRITABLE;
                int r;

                switch (find(object->client, space, key, may_wait, look, &r)) {
                case LOOKUP_FOUND:
                        break;
                case LOOKUP_MISSING:
                        return GET_MISSING;
                case LOOKUP_UNSURE:
                        if (r == SETTLE_ASK)
                                return GET_UNSURE;
                        *ret_error = r;
                        return GET_FAILED;
                }
                if (look->copy.state == LAYOUT_SLOT_WRITING)
                        return GET_WRITING;
                object_fill(object, look->slot, &look->copy);
                if (writable && !object->is_mutable) {
                        *ret_error = error_set(FOLIO_E_STATE, "%s:%.*s is not mutable: nobody can write it", space->name,
                                               (int)key.n_bytes, key.bytes);
                        return GET_FAILED;
                }
                r = hold(object, beacon);
                if (UNLIKELY(r == HOLD_OUTDATED) && !may_wait)
                        return GET_UNSURE;
                if (UNLIKELY(r == HOLD_OUTDATED) && resume_wait(object->client) < 0) {
                        *ret_error = order_fail(object->client, RING_E_GONE);
                        return GET_FAILED;
                }
                if (UNLIKELY(r != HOLD_DONE))
                        continue;
                atomic_store_explicit(&object->kind, writable ? OBJECT_MUTABLE : OBJECT_READER, memory_order_release);
                if (flags & FOLIO_GET_UNMAPPED)
                        return GET_DONE;
                r = object_attach_mapped(object, writable);
                if (LIKELY(r > 0))
                        return GET_DONE;
                if (r == 0)
                        return GET_REGION;
                object_unpin(object);
                *ret_error = r;
                return GET_FAILED;
        }
        *ret_error = error_set(FOLIO_E_PROTOCOL, "%s:%.*s is replaced faster than it can be held", space->name,
                               (int)key.n_bytes, key.bytes);
        return GET_FAILED;
}

Object *get_found(Client *client, Space *space, const Lookup *look, uint32_t flags)
{
        const LayoutSlot *copy = &look->copy;
        bool writable = flags & FOLIO_GET_WRITABLE;
        Object *object;

        if (copy->state != LAYOUT_SLOT_SEALED && copy->state != LAYOUT_SLOT_MUTABLE)
                return NULL;
        if (copy->placement == FOLIO_PLACEMENT_PACKED && copy->size_bytes > 0)
                object = object_take(client, space, copy->region_id);
        else
                object = object_new(client, space);
        if (!object)
                return NULL;
        object_fill(object, look->slot, copy);
        if (LIKELY(writable <= object->is_mutable && object_pin(object))) {
                atomic_store_explicit(&object->kind, writable ? OBJECT_MUTABLE : OBJECT_READER, memory_order_release);
                if (flags & FOLIO_GET_UNMAPPED)
                        return object;
                if (LIKELY(object_attach_mapped(object, writable) > 0)) {
                        /* Whoever gets it looks at it next. */
                        __builtin_prefetch(object_peek(object));
                        return object;
                }
        }
        object_unref(object);
        return NULL;
}

int get_explain_missing(const char *name, const Lookup *look)
{
        switch (look->reason) {
        case FOLIO_EVENT_DELETED:
                return error_set(FOLIO_E_DELETED, "%s was deleted", name);
        case FOLIO_EVENT_EVICTED:
                return error_set(FOLIO_E_EVICTED, "%s was evicted to make room", name);
        case FOLIO_EVENT_EXPIRED:
                return error_set(FOLIO_E_EXPIRED, "%s has expired", name);
        case LAYOUT_GRAVE_WRITER_DIED:
                return error_set(FOLIO_E_WRITER_DIED, "the writer of %s ended before it sealed it", name);
        }
        return error_set(FOLIO_E_NOT_FOUND, "there is no object %s", name);
}

int get_explain_writing(const char *name)
{
        return error_set(FOLIO_E_WRITING, "%s is still being written: get it with a timeout, or later", name);
}

int get_look(Client *client, Space *space, Key key, const char *name, bool may_wait, Lookup *ret_look)
{
        int unsure = 0;

        switch (find(client, space, key, may_wait, ret_look, &unsure)) {
        case LOOKUP_FOUND:
                return 0;
        case LOOKUP_MISSING:
                return get_explain_missing(name, ret_look);
        case LOOKUP_UNSURE:
                break;
        }
        return unsure;
}

int get_split_name(const char *name, Key *ret_namespace, Key *ret_key)
{
        if (LIKELY(name && key_split_name(name, false, ret_namespace, ret_key)))
                return 0;
        return error_set_name(name, false);
}

static inline Object *get_here(Client *client, Space *space, Key key, uint32_t flags)
{
        Lookup look;

        if (UNLIKELY(lookup_find_to_pin(space, key, 0, &look) != LOOKUP_FOUND))
                return NULL;
        if (UNLIKELY(look.copy.expires_ns != 0) && look.copy.expires_ns <= realtime_ns())
                return NULL;
        return get_found(client, space, &look, flags);
}

/* foliod has ended; what is found is held in a table that stays. */
static __attribute__((noinline)) Object *get_in_gap(Client *client, Space *space, Key key, uint32_t flags)
{
        bool is_outdated;
        Object *object;

        resume_enter(client);
        object = names_is_open(space) && !pipe_is_ahead(client) ? get_here(client, space, key, flags) : NULL;
        is_outdated = resume_is_outdated(client);
        resume_leave(client);
        if (!is_outdated)
                return object;
        object_unref(object);
        return NULL;
}

Object *get_now(Client *client, Key namespace, Key key, uint32_t flags)
{
        Space *space = names_find(client, namespace);
        const Beacon *beacon;
        Object *object;

        if (UNLIKELY(!space || !space->shared || order_catch_up(client, space, key) < 0))
                return NULL;
        beacon = resume_beacon(client);
        object = get_here(client, space, key, flags);
        if (resume_is_lit(beacon))
                return object;
        object_unref(object);
        return get_in_gap(client, space, key, flags);
}

/*
 * A packed object that is mapped is read without being held: while its slot is the same it has its name, and nobody can
 * have put anything else into its memory. 1: copied; 0: not so.
 */
static int read_unheld(Client *client, Space *space, const Lookup *look, uint64_t offset_bytes, void *buffer, size_t n_bytes)
{
        const LayoutSlot *copy = &look->copy;
        Object *object;
        int r = 0;

        if (copy->placement != FOLIO_PLACEMENT_PACKED || copy->state != LAYOUT_SLOT_SEALED || n_bytes == 0)
                return 0;
        object = object_take(client, space, copy->region_id);
        if (!object)
                return 0;
        object_fill(object, look->slot, copy);
        if (checked_range(offset_bytes, n_bytes, copy->size_bytes) && object_attach_mapped(object, false) > 0 &&
            object_read_now(object, offset_bytes, buffer, n_bytes) > 0)
                r = lookup_is_still(space, look->slot, copy);
        object_unref(object);
        return r;
}

int get_read_now(Client *client, const char *name, uint64_t offset_bytes, void *buffer, size_t n_bytes)
{
        const Beacon *beacon = resume_beacon(client);
        Key namespace, key;
        Lookup look;
        Object object;
        Space *space;
        int r = get_split_name(name, &namespace, &key);

        space = r == 0 ? names_find(client, namespace) : NULL;
        if (!space || !space->shared)
                return r;
        r = order_catch_up(client, space, key);
        if (r < 0)
                return r;
        switch (find(client, space, key, true, &look, &r)) {
        case LOOKUP_FOUND:
                /* Where foliod has ended meanwhile, nobody knows what may have come into that memory: it is held. */
                if (read_unheld(client, space, &look, offset_bytes, buffer, n_bytes) && resume_is_lit(beacon))
                        return 1;
                break;
        case LOOKUP_MISSING:
                return 0;
        case LOOKUP_UNSURE:
                return r;
        }
        object_init(&object, client, space);
        if (get_try(&object, key, FOLIO_GET_UNMAPPED, true, &look, &r) == GET_DONE) {
                r = object_check_range(&object, offset_bytes, n_bytes);
                if (r == 0)
                        r = object_read_now(&object, offset_bytes, buffer, n_bytes);
        } else {
                r = 0;
        }
        object_deinit(&object);
        return r;
}
