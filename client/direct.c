/* SPDX-License-Identifier: Apache-2.0 */
/* See direct.h. */
#include "client/direct.h"

#include <string.h>

#include "client/resume.h"

bool direct_begin(Direct *direct, Client *client, const char *name)
{
        const uint32_t rights = FOLIO_RIGHT_READ | FOLIO_RIGHT_WRITE;
        Key namespace;

        if (UNLIKELY(!name || !key_split_name(name, false, &namespace, &direct->key)))
                return false;
        if (UNLIKELY(direct->key.n_bytes > RING_KEY_BYTES_MAX))
                return false;
        direct->entry = names_find_entry(client, namespace);
        if (UNLIKELY(!direct->entry || !direct->entry->space->shared))
                return false;
        direct->space = direct->entry->space;
        if (UNLIKELY((direct->space->rights & rights) != rights))
                return false;
        if (UNLIKELY(!order_is_free(client)))
                return false;
        direct->client = client;
        direct->ring = NULL;
        direct->is_in_gap = false;
        direct->name = name;
        direct->hash = lookup_hash_ahead(direct->space, direct->key);
        return true;
}

bool direct_want(Direct *direct)
{
        direct->ring = pipe_want(direct->client);
        return LIKELY(direct->ring);
}

static inline LookupOutcome find(const Direct *direct, bool is_to_explain, Lookup *ret)
{
        return is_to_explain ? lookup_find_hashed(direct->space, direct->key, direct->hash, 0, ret) :
                               lookup_find_only(direct->space, direct->key, direct->hash, ret);
}

int direct_look(Direct *direct, bool is_to_explain, LookupOutcome *ret_outcome, Lookup *ret)
{
        Ring *ring = atomic_load_explicit(&direct->client->ring, memory_order_acquire);
        const Beacon *beacon;
        int r = ring ? order_wait(direct->client, ring, direct->hash) : 0;

        if (UNLIKELY(r < 0))
                return r;
        beacon = resume_beacon(direct->client);
        *ret_outcome = find(direct, is_to_explain, ret);
        if (!resume_is_lit(beacon)) {
                direct->is_in_gap = true;
                if (pipe_is_ahead(direct->client))
                        return DIRECT_NOT;
                resume_enter(direct->client);
                *ret_outcome = find(direct, is_to_explain, ret);
                resume_leave(direct->client);
        }
        /* Whether its time has passed is a matter of the clock, and rare. */
        return *ret_outcome == LOOKUP_UNSURE || (*ret_outcome == LOOKUP_FOUND && ret->copy.expires_ns != 0) ? DIRECT_NOT : 0;
}

int direct_check_free(Direct *direct, uint32_t flags)
{
        LookupOutcome outcome;
        Lookup look;
        int r;

        if (flags & FOLIO_REPLACE)
                return 0;
        r = direct_look(direct, false, &outcome, &look);
        if (LIKELY(r == 0 && outcome == LOOKUP_MISSING))
                return 0;
        if (r != 0)
                return r;
        if (look.copy.state == LAYOUT_SLOT_WRITING)
                return DIRECT_NOT;
        return error_set(FOLIO_E_EXISTS, "%s: the name is taken in namespace %s", direct->name, direct->space->name);
}

void direct_fill(const Direct *direct, RingVerb verb, RingRecord *record)
{
        memset(record, 0, offsetof(RingRecord, key));
        record->verb = (uint8_t)verb;
        record->key_bytes = (uint8_t)direct->key.n_bytes;
        record->namespace_id = direct->space->id;
        memcpy(record->key, direct->key.bytes, direct->key.n_bytes);
}

void direct_fill_new(const Direct *direct, RingVerb verb, const ProtoItem *item, RingRecord *record)
{
        direct_fill(direct, verb, record);
        record->flags = item->flags & FOLIO_REPLACE;
        record->lifetime = (uint8_t)item->lifetime;
        record->expires_ns = item->expires_ns;
        record->size_bytes = item->size_bytes;
}
