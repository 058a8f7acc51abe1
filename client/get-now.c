/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the index answers, and the mappings we have: the part of a get that takes no operation. The clock is looked at
 * only for objects that expire.
 */
#include <time.h>

#include "base/checked.h"
#include "client/get.h"
#include "client/order.h"
#include "client/read.h"

enum {
        GET_TRIES_MAX = 1000,        /* at an object that is replaced every time we have found it */
};

static uint64_t realtime_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static LookupOutcome find_later(Client *client, const Space *space, Key key, bool may_wait, Lookup *ret,
                                int *ret_unsure)
{
        Settle settle = settle_begin(client, space, may_wait);
        LookupOutcome outcome;

        do {
                *ret_unsure = settle_bucket(&settle, ret);
                if (*ret_unsure != 0)
                        return LOOKUP_UNSURE;
                outcome = lookup_find(space, key, 0, ret);
        } while (outcome == LOOKUP_UNSURE);
        return outcome;
}

/* UNSURE: *@ret_unsure is what settle_bucket() says. The clock is looked at only for objects that expire. */
static LookupOutcome find(Client *client, const Space *space, Key key, bool may_wait, Lookup *ret, int *ret_unsure)
{
        LookupOutcome outcome = lookup_find(space, key, 0, ret);

        if (UNLIKELY(outcome == LOOKUP_UNSURE))
                outcome = find_later(client, space, key, may_wait, ret, ret_unsure);
        if (outcome == LOOKUP_FOUND && UNLIKELY(ret->copy.expires_ns != 0) && ret->copy.expires_ns <= realtime_ns()) {
                ret->reason = FOLIO_EVENT_EXPIRED;
                return LOOKUP_MISSING;
        }
        return outcome;
}

GetOutcome get_try(Object *object, Key key, uint32_t flags, bool may_wait, Lookup *look, int *ret_error)
{
        Space *space = object->space;

        for (unsigned i = 0; i < GET_TRIES_MAX; i++) {
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
                if (UNLIKELY(!object_pin(object)))
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

Object *get_now(Client *client, Key namespace, Key key, uint32_t flags)
{
        Space *space = names_find(client, namespace);
        Lookup look;

        if (UNLIKELY(!space || !space->shared || order_catch_up(client, space, key) < 0))
                return NULL;
        if (UNLIKELY(lookup_find_to_pin(space, key, 0, &look) != LOOKUP_FOUND))
                return NULL;
        if (UNLIKELY(look.copy.expires_ns != 0) && look.copy.expires_ns <= realtime_ns())
                return NULL;
        return get_found(client, space, &look, flags);
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
                if (read_unheld(client, space, &look, offset_bytes, buffer, n_bytes))
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
