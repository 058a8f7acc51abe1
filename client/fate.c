/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fate.h. The items of a request are carried out in their order, each that changes something leaves an event, and
 * the event is there before the change is, or with it. So the last item that an event is found of has been done, those
 * behind it have not, and one before it that has none was refused.
 */
#include "client/fate.h"

#include <string.h>

#include "client/create.h"
#include "client/lib/lookup.h"
#include "proto/status.h"

#define FATE_UNKNOWN "foliod ended before it answered, and whether it was done is not known"
#define FATE_REFUSED "foliod refused it, and ended before it could say why"
#define FATE_OTHER "foliod ended, and the one that came after it knows nothing of the store that there was"
#define FATE_NO_LONGER "foliod ended, and the one that came after it has closed what this session was writing"

static Space *find_space(const Client *client, uint32_t namespace_id)
{
        Name *name = atomic_load_explicit(&client->names, memory_order_acquire);

        while (name && (name->space->id != namespace_id || !resume_is_current(client, name->space)))
                name = name->next;
        return name ? name->space : NULL;
}

/* An event tells of it. */
static bool is_told_of(ProtoVerb verb)
{
        return verb == VERB_PUT || verb == VERB_SEAL || verb == VERB_DELETE;
}

uint64_t fate_mark(void *userdata, const ProtoRequest *message)
{
        const Space *space = is_told_of(message->verb) ? find_space(userdata, message->namespace_id) : NULL;

        return space && space->shared ? lookup_newest_event(space) : 0;
}

typedef struct Trail {
        const Space *space;
        uint32_t session;
        uint64_t id;
        size_t n_items;
        size_t n_done;               /* behind the last item that was found */
        bool is_found[PROTO_ITEMS_MAX];
        ProtoItemReply *items;
} Trail;

/* As foliod would have answered; where it lies, as far as the slot is still its own. */
static void note(Trail *trail, size_t i, const LayoutEvent *event)
{
        ProtoItemReply *item = &trail->items[i];
        LayoutSlot copy;

        trail->is_found[i] = true;
        trail->n_done = MAX(trail->n_done, i + 1);
        item->slot = event->slot;
        item->generation = event->generation;
        if (!lookup_read_slot(trail->space, event->slot, &copy) || copy.generation != event->generation)
                return;
        item->placement = copy.placement;
        item->region_id = copy.region_id;
        if (copy.placement == FOLIO_PLACEMENT_PACKED)
                item->offset_bytes = (uint64_t)copy.offset_units * LAYOUT_CHUNK_UNIT_BYTES;
}

/* False: some of the events are gone already. */
static bool follow(Trail *trail, uint64_t after)
{
        uint64_t newest = lookup_newest_event(trail->space), oldest;

        for (uint64_t sequence = after + 1; sequence <= newest; sequence++) {
                LayoutEvent event;

                switch (lookup_read_event(trail->space, sequence, &event, &oldest)) {
                case LOOKUP_EVENT_LAPPED:
                        return false;
                case LOOKUP_EVENT_NONE:
                        return true;
                case LOOKUP_EVENT:
                        break;
                }
                for (size_t i = 0; event.origin != 0 && i < trail->n_items; i++)
                        if (event.origin == layout_origin_of_message(trail->session, trail->id, (uint32_t)i))
                                note(trail, i, &event);
        }
        return true;
}

static void judge_told_of(const Resume *resume, const ProtoRequest *message, uint64_t mark, RequestFate *ret)
{
        Trail trail = {
                .space = find_space(resume->client, message->namespace_id),
                .session = resume->last_session,
                .id = message->id,
                .n_items = message->n_items,
                .items = ret->items,
        };

        if (!trail.space || !trail.space->shared || !names_is_open(trail.space) || !follow(&trail, mark)) {
                ret->status = STATUS_GONE;
                ret->detail = FATE_UNKNOWN;
                return;
        }
        ret->n_done = trail.n_done;
        for (size_t i = 0; i < trail.n_done; i++)
                if (!trail.is_found[i]) {
                        ret->items[i] = (ProtoItemReply){ .status = STATUS_GONE, .detail = { FATE_REFUSED, strlen(FATE_REFUSED) } };
                }
}

/* How many blocks of a stream are in it: its size tells. */
static void judge_write(const Client *client, const ProtoRequest *message, RequestFate *ret)
{
        const Space *space = find_space(client, message->namespace_id);

        for (; space && space->shared && ret->n_done < message->n_items; ret->n_done++) {
                const ProtoItem *item = &message->items[ret->n_done];
                LayoutSlot copy;

                if (!lookup_read_slot(space, item->slot, &copy) || copy.generation != item->generation ||
                    copy.size_bytes < item->offset_bytes + item->size_bytes)
                        return;
                ret->items[ret->n_done].slot = item->slot;
                ret->items[ret->n_done].generation = item->generation;
        }
}

/*
 * An object that nobody has been told of, as its creation was not answered. Those that are made through the ring have
 * another way: see PROTOCOL.md for how their slots tell.
 */
static bool is_orphan(const Client *client, const LayoutSlot *copy)
{
        return copy->state == LAYOUT_SLOT_WRITING && copy->session == client->resume->session &&
               (copy->placement == FOLIO_PLACEMENT_OWN || copy->allocated_pages == 0) &&
               copy->generation > atomic_load(&client->newest_made);
}

/*
 * What foliod may have made before it could answer, and will be asked to make again, is given up first: it is in the
 * way of the next one, or only in memory. One that is to replace another is under no name yet: all slots are looked at.
 */
static void give_up_orphans(Client *client, const ProtoRequest *message)
{
        const Space *space = find_space(client, message->namespace_id);
        uint32_t n_slots = space && space->shared ? lookup_n_slots(space) : 0;

        for (uint32_t slot = 0; slot < n_slots; slot++) {
                LayoutSlot copy;

                if (lookup_read_slot(space, slot, &copy) && is_orphan(client, &copy))
                        create_tell_abort(client, space->id, slot, copy.generation);
        }
}

/* Of the session that there was: a new one knows nothing of what is being written. */
static bool is_of_session(ProtoVerb verb)
{
        return verb == VERB_WRITE || verb == VERB_SEAL || verb == VERB_ABORT;
}

void fate_judge(void *userdata, const ProtoRequest *message, bool is_sent, uint64_t mark, RequestFate *ret)
{
        Client *client = userdata;
        const Resume *resume = client->resume;
        bool is_admin = message->verb == VERB_NAMESPACE_ADD || message->verb == VERB_NAMESPACE_SET ||
                        message->verb == VERB_NAMESPACE_REMOVE;

        if (resume->is_other_store && message->namespace_id != 0) {
                ret->status = STATUS_GONE;
                ret->detail = FATE_OTHER;
        } else if (is_sent && is_admin) {
                ret->status = STATUS_GONE;
                ret->detail = FATE_UNKNOWN;
        } else if (is_sent && is_told_of(message->verb)) {
                judge_told_of(resume, message, mark, ret);
        } else if (is_sent && resume->is_resumed && message->verb == VERB_WRITE) {
                judge_write(client, message, ret);
        } else if (is_sent && resume->is_resumed && message->verb == VERB_CREATE) {
                give_up_orphans(client, message);
        }
        if (ret->status == STATUS_OK && ret->n_done == 0 && !resume->is_resumed && is_of_session(message->verb)) {
                ret->status = STATUS_GONE;
                ret->detail = FATE_NO_LONGER;
        }
}
