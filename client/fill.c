/* SPDX-License-Identifier: Apache-2.0 */
/* See fill.h. */
#include "client/fill.h"

#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/macro.h"
#include "client/error.h"
#include "client/lib/copy.h"
#include "client/lib/lookup.h"
#include "client/lib/maps.h"

bool fill_is_huge(const Space *space, uint32_t slot, uint64_t generation, uint64_t capacity_bytes)
{
        LayoutSlot copy;

        if (capacity_bytes < HUGE_BYTES || !space->shared || !lookup_read_slot(space, slot, &copy))
                return false;
        return copy.generation == generation && copy.huge_folios >= capacity_bytes / HUGE_BYTES;
}

/* False: it cannot be mapped, and nothing is done. */
static bool fill_mapped(int fd, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        size_t end = (size_t)offset_bytes + n_bytes;
        void *region;

        if (maps_map(fd, end, PROT_READ | PROT_WRITE, &region) < 0)
                return false;
        copy_bytes((uint8_t *)region + offset_bytes, data, n_bytes);
        maps_unmap(region, end);
        return true;
}

int fill_region(int fd, uint64_t region_bytes, bool is_huge, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        int r;

        if (is_huge && n_bytes >= FILL_MAPPED_BYTES_MIN && region_bytes <= SIZE_MAX &&
            checked_range(offset_bytes, n_bytes, region_bytes) && fill_mapped(fd, offset_bytes, data, n_bytes))
                return 0;
        r = copy_to_fd(fd, offset_bytes, data, n_bytes);
        return r < 0 ? error_set(error_from_errno(r), "writing %llu bytes failed: %s", (unsigned long long)n_bytes,
                                 strerror(-r)) : 0;
}
