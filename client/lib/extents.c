/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See extents.h. The list is checked once, as it is made: afterwards its ranges are in bytes, not empty, in ascending
 * order, apart from each other, and inside the object; of a mutable one, which may grow, inside its capacity. A list
 * that breaks its own rules is believed up to there, and is partial then.
 */
#include "client/lib/extents.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macro.h"
#include "client/lib/lookup.h"

static_assert(sizeof(LayoutExtent) == sizeof(uint64_t), "ranges are copied as words");

/* Of a sealed object there are two lists at most: from the seal, and from the look at its pieces. */
#define EXTENTS_OLDER_MAX 8u

typedef struct Range {
        uint64_t begin_bytes;
        uint64_t end_bytes;
} Range;

struct Extents {
        Extents *older;              /* whom others may still be looking at */
        uint32_t n_older;            /* in that chain */
        uint32_t n_ranges;
        bool is_partial;
        Range ranges[];
};

static void add_ranges(Extents *extents, const LayoutExtents *list, uint64_t size_bytes)
{
        uint64_t last_end = 0;

        for (uint32_t i = 0; i < list->n_extents; i++) {
                uint64_t begin = list->extents[i].first_page * PAGE_BYTES;
                uint64_t end = begin + list->extents[i].n_pages * PAGE_BYTES;

                if (begin == end || (i > 0 && begin <= last_end)) {
                        extents->is_partial = true;
                        return;
                }
                last_end = end;
                if (begin >= size_bytes)
                        return;
                extents->ranges[extents->n_ranges++] = (Range){ begin, MIN(end, size_bytes) };
        }
}

int extents_read(const Space *space, uint32_t slot, const LayoutSlot *copy, Extents **ret)
{
        LayoutExtents list;
        Extents *extents;

        switch (lookup_read_extents(space, slot, copy, &list)) {
        case LOOKUP_FOUND:
                break;
        case LOOKUP_MISSING:
                *ret = NULL;
                return 0;
        case LOOKUP_UNSURE:
                return -EAGAIN;
        }
        extents = malloc(sizeof(*extents) + list.n_extents * sizeof(Range));
        if (!extents)
                return -ENOMEM;
        extents->older = NULL;
        extents->n_older = 0;
        extents->n_ranges = 0;
        extents->is_partial = list.is_partial != 0;
        add_ranges(extents, &list, copy->state == LAYOUT_SLOT_MUTABLE ? copy->capacity_bytes : copy->size_bytes);
        if (extents->n_ranges == 0 && !extents->is_partial) {
                free(extents);
                extents = NULL;
        }
        *ret = extents;
        return 0;
}

void extents_free(Extents *extents)
{
        while (extents) {
                Extents *older = extents->older;

                free(extents);
                extents = older;
        }
}

bool extents_keep(Extents *extents, Extents *older)
{
        if (older && older->n_older >= EXTENTS_OLDER_MAX)
                return false;
        extents->older = older;
        extents->n_older = older ? older->n_older + 1 : 0;
        return true;
}

uint64_t extents_bytes(const Extents *extents)
{
        uint64_t n_bytes = 0;

        for (uint32_t i = 0; extents && i < extents->n_ranges; i++)
                n_bytes += extents->ranges[i].end_bytes - extents->ranges[i].begin_bytes;
        return n_bytes;
}

/* The first range that ends behind @offset_bytes. */
static uint32_t find_range(const Extents *extents, uint64_t offset_bytes)
{
        uint32_t low = 0, high = extents->n_ranges;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (extents->ranges[middle].end_bytes <= offset_bytes)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

uint64_t extents_run(const Extents *extents, uint64_t offset_bytes, uint64_t n_bytes, bool *ret_is_zero)
{
        uint32_t at = extents ? find_range(extents, offset_bytes) : 0;
        const Range *range;

        *ret_is_zero = false;
        if (!extents || at == extents->n_ranges)
                return n_bytes;
        range = &extents->ranges[at];
        if (range->begin_bytes > offset_bytes)
                return MIN(n_bytes, range->begin_bytes - offset_bytes);
        *ret_is_zero = true;
        return MIN(n_bytes, range->end_bytes - offset_bytes);
}

bool extents_is_partial(const Extents *extents)
{
        return extents && extents->is_partial;
}
