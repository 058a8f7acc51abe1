/* SPDX-License-Identifier: Apache-2.0 */
/* See idle.h. A mapping that is in use again meanwhile is not looked at: its handle finds out, when it lets go. */
#include "client/idle.h"

#include "client/lib/lookup.h"

static bool is_there(MapsOwner *owner)
{
        const Space *space = owner->space;
        uint64_t event = lookup_newest_event(space);
        LayoutSlot copy;

        if (atomic_load_explicit(&space->shared->is_closed, memory_order_relaxed))
                return false;
        if (event == owner->event)
                return true;
        owner->event = event;
        /* In doubt it goes: it can be mapped again. */
        return lookup_read_slot(space, owner->slot, &copy) && copy.generation == owner->generation &&
               (copy.state == LAYOUT_SLOT_SEALED || copy.state == LAYOUT_SLOT_MUTABLE);
}

void idle_release(Maps *maps, Mapping *mapping, Space *space, uint32_t slot, uint64_t generation)
{
        maps_unref_owned(maps, mapping, &(MapsOwner){ .space = space, .generation = generation, .slot = slot });
}

void idle_sweep(Maps *maps)
{
        maps_sweep(maps, is_there);
}
