/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap, smallest time first. Every move goes through place(), which keeps the objects' places true. */
#include "daemon/store/expiry.h"

#include <assert.h>
#include <errno.h>

#include "base/macro.h"
#include "daemon/memory/array.h"

void expiry_deinit(Expiry *expiry)
{
        assert(expiry->n_entries == 0 && expiry->n_reserved == 0);
        array_free(expiry->entries, expiry->n_room, sizeof(*expiry->entries));
        *expiry = (Expiry)EXPIRY_NULL;
}

int expiry_reserve(Expiry *expiry)
{
        if (expiry->n_entries + expiry->n_reserved == expiry->n_room) {
                size_t n_room = MAX(expiry->n_room * 2, 16);
                ExpiryEntry *entries;

                if (n_room >= OBJECT_NOT_PLACED)
                        return -ENOMEM;
                entries = array_grow(expiry->entries, expiry->n_room, n_room, sizeof(*entries));
                if (!entries)
                        return -ENOMEM;
                expiry->entries = entries;
                expiry->n_room = n_room;
        }
        expiry->n_reserved++;
        return 0;
}

void expiry_cancel_reservation(Expiry *expiry)
{
        assert(expiry->n_reserved > 0);
        expiry->n_reserved--;
}

static void place(Expiry *expiry, size_t i, ExpiryEntry entry)
{
        expiry->entries[i] = entry;
        entry.object->expiry_place = (uint32_t)i;
}

/* Puts @entry where it belongs, beginning at the gap @i. */
static void settle(Expiry *expiry, size_t i, ExpiryEntry entry)
{
        ExpiryEntry *e = expiry->entries;

        while (i > 0 && e[(i - 1) / 2].expires_ns > entry.expires_ns) {
                place(expiry, i, e[(i - 1) / 2]);
                i = (i - 1) / 2;
        }
        for (;;) {
                size_t child = 2 * i + 1;

                if (child + 1 < expiry->n_entries && e[child + 1].expires_ns < e[child].expires_ns)
                        child++;
                if (child >= expiry->n_entries || e[child].expires_ns >= entry.expires_ns)
                        break;
                place(expiry, i, e[child]);
                i = child;
        }
        place(expiry, i, entry);
}

void expiry_add(Expiry *expiry, Object *object, uint64_t expires_ns)
{
        assert(expiry->n_reserved > 0 && object->expiry_place == OBJECT_NOT_PLACED);
        expiry->n_reserved--;
        expiry->n_entries++;
        /* The gap is at the end, and nothing is below it. */
        settle(expiry, expiry->n_entries - 1, (ExpiryEntry){ expires_ns, object });
}

void expiry_remove(Expiry *expiry, Object *object)
{
        size_t i = object->expiry_place;
        ExpiryEntry last;

        if (i == OBJECT_NOT_PLACED)
                return;
        assert(i < expiry->n_entries && expiry->entries[i].object == object);
        last = expiry->entries[--expiry->n_entries];
        object->expiry_place = OBJECT_NOT_PLACED;
        if (last.object != object)
                settle(expiry, i, last);
}

Object *expiry_peek(const Expiry *expiry)
{
        return expiry->n_entries ? expiry->entries[0].object : NULL;
}

uint64_t expiry_next_ns(const Expiry *expiry)
{
        return expiry->n_entries ? expiry->entries[0].expires_ns : UINT64_MAX;
}
