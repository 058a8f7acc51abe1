/* SPDX-License-Identifier: Apache-2.0 */
/* One hash over all of it: XXH3 of the record, which is the seed of that of its texts, and that of the next. */
#include "daemon/store/index-checksum.h"

#include <stddef.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint32_t index_checksum(uint32_t slot, const LayoutSlot *record, const void *texts, const LayoutExtents *extents)
{
        LayoutSlot copy = *record;
        uint64_t hash;

        copy.sequence = copy.checksum = 0;
        copy.state = 0;
        hash = XXH3_64bits_withSeed(&copy, sizeof(copy), slot);
        if (texts)
                hash = XXH3_64bits_withSeed(texts, layout_heap_bytes(record), hash);
        if (extents)
                hash = XXH3_64bits_withSeed(extents, layout_extents_bytes(extents->n_extents), hash);
        return index_checksum_change_state((uint32_t)(hash ^ hash >> 32), 0, record->state);
}

uint64_t index_checksum_settings(const LayoutSettings *settings)
{
        return XXH3_64bits_withSeed(settings, offsetof(LayoutSettings, checksum), 0);
}
