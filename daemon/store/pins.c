/* SPDX-License-Identifier: Apache-2.0 */
/* Lays a pin table out, and reads counters of it through a read-only mapping. Decides nothing. */
#include "daemon/store/pins.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "proto/layout.h"

struct Pins {
        Region *region;
        uint32_t n_slots_max;
        const _Atomic uint8_t *summary;
        const _Atomic uint32_t *counters;
};

DEFINE_CLEANUP(Pins *, cleanup_pins, pins_free)

static bool plan(uint32_t n_slots_max, uint64_t *ret_counters_offset, uint64_t *ret_bytes)
{
        uint64_t n_summary = ((uint64_t)n_slots_max + LAYOUT_PINS_PER_SUMMARY - 1) / LAYOUT_PINS_PER_SUMMARY;
        uint64_t counters, n_counter_bytes, end;

        if (!checked_align_up(sizeof(LayoutPinsHeader) + n_summary, PAGE_BYTES, &counters) ||
            !checked_mul(n_slots_max, sizeof(uint32_t), &n_counter_bytes) ||
            !checked_add(counters, n_counter_bytes, &end) ||
            !region_round_size(end, &end))
                return false;
        *ret_counters_offset = counters;
        *ret_bytes = end;
        return true;
}

bool pins_plan_bytes(uint32_t n_slots_max, uint64_t *ret_bytes)
{
        uint64_t counters;

        return plan(n_slots_max, &counters, ret_bytes);
}

/* By write, so that the daemon never needs a writable mapping of what is the client's. */
static int write_header(Region *region, uint32_t n_slots_max, uint64_t counters_offset)
{
        LayoutPinsHeader header = {
                .magic = LAYOUT_PINS_MAGIC,
                .layout_version = LAYOUT_VERSION,
                .n_slots_max = n_slots_max,
                .region_bytes = region->size_bytes,
                .summary_offset = sizeof(header),
                .counters_offset = counters_offset,
        };
        ssize_t n;

        do
                n = pwrite(region->fd, &header, sizeof(header), 0);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        return n == sizeof(header) ? 0 : -EIO;
}

static int map(Pins *pins, uint64_t counters_offset)
{
        int r = region_map(pins->region, false);

        if (r < 0)
                return r;
        /* Own arithmetic, never the header: that can be written by the client from now on. */
        pins->summary = (const _Atomic uint8_t *)(pins->region->data + sizeof(LayoutPinsHeader));
        pins->counters = (const _Atomic uint32_t *)(void *)(pins->region->data + counters_offset);
        return 0;
}

int pins_restore(Backend *backend, uint32_t n_slots_max, int consume_fd, Pins **ret)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        _cleanup_(cleanup_pins) Pins *pins = NULL;
        uint64_t counters_offset, n_bytes;
        int r;

        if (!plan(n_slots_max, &counters_offset, &n_bytes))
                return PINS_E_FOREIGN;
        pins = calloc(1, sizeof(*pins));
        if (!pins)
                return -ENOMEM;
        pins->n_slots_max = n_slots_max;
        r = region_restore(backend, 0, n_bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, steal_fd(&fd),
                           &pins->region);
        if (r == REGION_E_FOREIGN)
                return PINS_E_FOREIGN;
        if (r == 0)
                r = map(pins, counters_offset);
        if (r < 0)
                return r;
        *ret = steal_ptr(&pins);
        return 0;
}

int pins_new(Backend *backend, uint32_t n_slots_max, Pins **ret)
{
        _cleanup_(cleanup_pins) Pins *pins = NULL;
        uint64_t counters_offset, n_bytes;
        int r;

        if (!plan(n_slots_max, &counters_offset, &n_bytes))
                return -EOVERFLOW;
        pins = calloc(1, sizeof(*pins));
        if (!pins)
                return -ENOMEM;
        pins->n_slots_max = n_slots_max;
        r = region_new(backend, "folio-pins", n_bytes, &pins->region);
        if (r < 0)
                return r;
        r = write_header(pins->region, n_slots_max, counters_offset);
        if (r < 0)
                return r;
        r = region_seal_size_for_good(pins->region);
        if (r < 0)
                return r;
        r = map(pins, counters_offset);
        if (r < 0)
                return r;
        *ret = steal_ptr(&pins);
        return 0;
}

void pins_free(Pins *pins)
{
        if (!pins)
                return;
        if (pins->region)
                region_unref(pins->region);
        free(pins);
}

int pins_fd(const Pins *pins)
{
        return pins->region->fd;
}

uint64_t pins_region_bytes(const Pins *pins)
{
        return pins->region->size_bytes;
}

uint64_t pins_allocated_bytes(const Pins *pins)
{
        uint64_t n_bytes;

        return region_get_allocated(pins->region, &n_bytes) == 0 ? n_bytes : pins->region->size_bytes;
}

bool pins_is_untouched(const Pins *pins)
{
        uint32_t n = (pins->n_slots_max - 1) / LAYOUT_PINS_PER_SUMMARY + 1;

        /* The counters are not looked at: that is as long as whoever writes the summary likes, and makes memory of holes. */
        for (uint32_t i = 0; i < n; i++)
                if (atomic_load_explicit(&pins->summary[i], memory_order_seq_cst) != 0)
                        return false;
        return true;
}

uint32_t pins_count(const Pins *pins, uint32_t slot)
{
        assert(slot < pins->n_slots_max);
        /*
         * The client sets the summary before it first counts, in program order with a sequentially consistent add
         * behind it: a counter whose summary we see as 0 is one whose pin comes after our fence, and so after the
         * retraction that its holder will find when it looks at the slot again.
         */
        if (atomic_load_explicit(&pins->summary[slot / LAYOUT_PINS_PER_SUMMARY], memory_order_seq_cst) == 0)
                return 0;
        return atomic_load_explicit(&pins->counters[slot], memory_order_seq_cst);
}

bool pins_is_waiting(const Pins *pins)
{
        const LayoutPinsHeader *header = (const LayoutPinsHeader *)(const void *)pins->region->data;

        return atomic_load_explicit(&header->n_waiting, memory_order_seq_cst) != 0;
}
