/* SPDX-License-Identifier: Apache-2.0 */
/* See idle.h. A mapping that is in use again meanwhile is only marked: it goes with its last reference. */
#include "client/idle.h"

#include <string.h>

#include "client/lib/lookup.h"

void idle_init(Idle *idle)
{
        idle->n_mappings = 0;
        (void)pthread_mutex_init(&idle->lock, NULL);
}

void idle_deinit(Idle *idle)
{
        (void)pthread_mutex_destroy(&idle->lock);
}

static void drop(const IdleMapping *idle, Maps *maps)
{
        Mapping *mapping = maps_find(maps, idle->region_id, idle->is_writable);

        if (mapping)
                maps_unref(maps, mapping, true);
}

static bool is_there(IdleMapping *idle)
{
        uint64_t event = lookup_newest_event(idle->space);
        LayoutSlot copy;

        if (atomic_load_explicit(&idle->space->shared->is_closed, memory_order_relaxed))
                return false;
        if (event == idle->event)
                return true;
        idle->event = event;
        /* In doubt it goes: it can be mapped again. */
        return lookup_read_slot(idle->space, idle->slot, &copy) && copy.generation == idle->generation &&
               (copy.state == LAYOUT_SLOT_SEALED || copy.state == LAYOUT_SLOT_MUTABLE);
}

static void remove_at(Idle *idle, size_t i)
{
        idle->n_mappings--;
        memmove(&idle->mappings[i], &idle->mappings[i + 1], (idle->n_mappings - i) * sizeof(idle->mappings[0]));
}

void idle_add(Idle *idle, Maps *maps, Space *space, uint32_t slot, uint64_t generation, uint64_t region_id, bool writable)
{
        IdleMapping added = {
                .space = space,
                .region_id = region_id,
                .generation = generation,
                .slot = slot,
                .is_writable = writable,
        };
        IdleMapping oldest = { 0 };

        (void)pthread_mutex_lock(&idle->lock);
        for (size_t i = 0; i < idle->n_mappings; i++)
                if (idle->mappings[i].region_id == region_id && idle->mappings[i].is_writable == writable) {
                        remove_at(idle, i);
                        break;
                }
        if (idle->n_mappings == IDLE_MAX) {
                oldest = idle->mappings[0];
                remove_at(idle, 0);
        }
        idle->mappings[idle->n_mappings++] = added;
        (void)pthread_mutex_unlock(&idle->lock);
        /* Unmapping is slow, and needs no lock of ours. */
        if (oldest.space)
                drop(&oldest, maps);
}

void idle_sweep(Idle *idle, Maps *maps)
{
        IdleMapping gone[IDLE_MAX];
        size_t n_gone = 0;

        (void)pthread_mutex_lock(&idle->lock);
        for (size_t i = 0; i < idle->n_mappings;) {
                if (is_there(&idle->mappings[i])) {
                        i++;
                        continue;
                }
                gone[n_gone++] = idle->mappings[i];
                remove_at(idle, i);
        }
        (void)pthread_mutex_unlock(&idle->lock);
        for (size_t i = 0; i < n_gone; i++)
                drop(&gone[i], maps);
}
