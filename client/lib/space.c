/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the descriptors of a namespace in: reads the two headers by pread() into private memory, checks every number
 * of them against the size of the file with arithmetic that cannot wrap, and only then maps. After that nothing in
 * shared memory can lead a reader outside the mapping, as long as it goes by the private copy.
 *
 * Areas may overlap or be empty of sense in a hostile file; that gives wrong answers, not wild reads, and is not
 * looked for. Knows nothing of keys or of what a slot means.
 */
#include "client/lib/space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "client/lib/copy.h"
#include "client/lib/maps.h"

/* What every area begins at a multiple of, at least: a cache line, and the alignment of all that is in them. */
#define SPACE_AREA_ALIGNMENT 64

static bool space_is_area(const LayoutIndexHeader *h, uint64_t offset, uint64_t n, uint64_t each_bytes)
{
        uint64_t length;

        return IS_ALIGNED(offset, SPACE_AREA_ALIGNMENT) && offset >= h->header_bytes &&
               checked_mul(n, each_bytes, &length) && checked_range(offset, length, h->region_bytes);
}

static bool space_is_index(const LayoutIndexHeader *h, const ProtoNamespace *ns, uint64_t file_bytes)
{
        if (h->magic != LAYOUT_INDEX_MAGIC || h->layout_version != LAYOUT_VERSION || h->incompatible_flags != 0)
                return false;
        if (h->header_bytes < sizeof(*h) || h->region_bytes > file_bytes || h->region_bytes < h->header_bytes)
                return false;
        if (h->namespace_id != ns->id || !memchr(h->namespace_name, '\0', sizeof(h->namespace_name)))
                return false;
        /* Slots and overflow buckets are referred to by number + 1. */
        if (h->n_slots_max == 0 || h->n_slots_max == UINT32_MAX || h->n_buckets_max == 0 ||
            h->n_overflow_max == UINT32_MAX)
                return false;
        if (!IS_POWER_OF_TWO(h->n_graves) || !IS_POWER_OF_TWO(h->n_events))
                return false;
        return space_is_area(h, h->buckets_offset, h->n_buckets_max, sizeof(LayoutBucket)) &&
               space_is_area(h, h->overflow_offset, h->n_overflow_max, sizeof(LayoutBucket)) &&
               space_is_area(h, h->slots_offset, h->n_slots_max, sizeof(LayoutSlot)) &&
               space_is_area(h, h->graves_offset, h->n_graves, sizeof(LayoutGrave)) &&
               space_is_area(h, h->events_offset, h->n_events, sizeof(LayoutEvent)) &&
               space_is_area(h, h->heap_offset, h->heap_bytes, 1);
}

static bool space_is_pins(const LayoutPinsHeader *h, uint32_t n_slots_max, uint64_t file_bytes)
{
        uint64_t n_summary = ((uint64_t)n_slots_max + LAYOUT_PINS_PER_SUMMARY - 1) / LAYOUT_PINS_PER_SUMMARY;

        if (h->magic != LAYOUT_PINS_MAGIC || h->layout_version != LAYOUT_VERSION || h->n_slots_max != n_slots_max)
                return false;
        if (h->region_bytes > file_bytes || h->region_bytes < sizeof(*h))
                return false;
        if (h->summary_offset < sizeof(*h) || h->counters_offset < sizeof(*h) ||
            !IS_ALIGNED(h->counters_offset, SPACE_AREA_ALIGNMENT))
                return false;
        return checked_range(h->summary_offset, n_summary, h->region_bytes) &&
               checked_range(h->counters_offset, (uint64_t)n_slots_max * sizeof(uint32_t), h->region_bytes);
}

/* The first @n_bytes of the file, and how long it is. Outcomes as of space_new(). */
static int space_read_header(int fd, void *header, size_t n_bytes, uint64_t *ret_file_bytes)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size < n_bytes)
                return SPACE_E_LAYOUT;
        *ret_file_bytes = (uint64_t)st.st_size;
        return copy_from_fd(fd, 0, header, n_bytes);
}

static int space_read_index(const ProtoNamespace *ns, int fd, LayoutIndexHeader *ret)
{
        uint64_t file_bytes = 0;
        int r = space_read_header(fd, ret, sizeof(*ret), &file_bytes);

        return r != 0 || space_is_index(ret, ns, file_bytes) ? r : SPACE_E_LAYOUT;
}

static int space_map_index(Space *space, const ProtoNamespace *ns, int fd)
{
        LayoutIndexHeader header;
        uint8_t *base;
        void *data;
        int r;

        r = space_read_index(ns, fd, &header);
        if (r != 0)
                return r;
        r = maps_map(fd, header.region_bytes, PROT_READ, &data);
        if (r < 0)
                return r;
        /* Heap blocks are whole units, and are read in whole words. */
        header.heap_bytes = ALIGN_DOWN(header.heap_bytes, (uint64_t)LAYOUT_HEAP_UNIT_BYTES);
        base = data;
        space->header = header;
        space->index_bytes = (size_t)header.region_bytes;
        space->shared = data;
        space->buckets = (const LayoutBucket *)(base + header.buckets_offset);
        space->overflow = (const LayoutBucket *)(base + header.overflow_offset);
        space->slots = (const LayoutSlot *)(base + header.slots_offset);
        space->graves = (LayoutGrave *)(base + header.graves_offset);
        space->events = (const LayoutEvent *)(base + header.events_offset);
        space->heap = base + header.heap_offset;
        return 0;
}

static int space_read_pins(const Space *space, int fd, LayoutPinsHeader *ret)
{
        uint64_t file_bytes = 0;
        int r = space_read_header(fd, ret, sizeof(*ret), &file_bytes);

        return r != 0 || space_is_pins(ret, space->header.n_slots_max, file_bytes) ? r : SPACE_E_LAYOUT;
}

static int space_map_pins(Space *space, int fd)
{
        LayoutPinsHeader header;
        void *data;
        int r;

        r = space_read_pins(space, fd, &header);
        if (r != 0)
                return r;
        r = maps_map(fd, header.region_bytes, PROT_READ | PROT_WRITE, &data);
        if (r < 0)
                return r;
        /* A child of fork() must not be able to take our pins away: the table is ours alone, or not used at all. */
        if (madvise(data, (size_t)header.region_bytes, MADV_DONTFORK) < 0) {
                r = -errno;
                maps_unmap(data, (size_t)header.region_bytes);
                return r;
        }
        space->pins_bytes = (size_t)header.region_bytes;
        space->pins = data;
        space->pin_summary = (_Atomic uint8_t *)((uint8_t *)data + header.summary_offset);
        space->pin_counters = (_Atomic uint32_t *)((uint8_t *)data + header.counters_offset);
        return 0;
}

static void space_free(Space *space)
{
        if (space->pins)
                maps_unmap(space->pins, space->pins_bytes);
        if (space->shared)
                maps_unmap(space->shared, space->index_bytes);
        free(space);
}

DEFINE_CLEANUP(Space *, cleanup_space, space_free)

int space_new(const ProtoNamespace *ns, uint64_t instance, int consume_index_fd, int consume_pins_fd, Space **ret)
{
        _cleanup_(cleanup_fd) int index_fd = consume_index_fd;
        _cleanup_(cleanup_fd) int pins_fd = consume_pins_fd;
        _cleanup_(cleanup_space) Space *space = NULL;
        int r;

        if ((index_fd < 0) != (pins_fd < 0))
                return SPACE_E_LAYOUT;
        space = calloc(1, sizeof(*space));
        if (!space)
                return -ENOMEM;
        atomic_init(&space->n_references, 1);
        memcpy(space->name, ns->name, sizeof(space->name));
        space->name[sizeof(space->name) - 1] = '\0';
        space->id = ns->id;
        space->rights = ns->rights;
        space->instance = instance;
        if (index_fd >= 0) {
                r = space_map_index(space, ns, index_fd);
                if (r != 0)
                        return r;
                r = space_map_pins(space, pins_fd);
                if (r != 0)
                        return r;
        }
        *ret = steal_ptr(&space);
        return 0;
}

/* --- another daemon's ----------------------------------------------------------------------------------------------- */

/* Everything but which index of its namespace it is, and what the daemon keeps there for its successor. */
static bool space_is_same_shape(const LayoutIndexHeader *a, const LayoutIndexHeader *b)
{
        return a->region_bytes == b->region_bytes && a->instance == b->instance && a->hash_seed == b->hash_seed &&
               a->namespace_id == b->namespace_id && a->n_slots_max == b->n_slots_max && a->n_buckets_max == b->n_buckets_max &&
               a->n_overflow_max == b->n_overflow_max && a->n_graves == b->n_graves && a->n_events == b->n_events &&
               a->buckets_offset == b->buckets_offset && a->overflow_offset == b->overflow_offset &&
               a->slots_offset == b->slots_offset && a->graves_offset == b->graves_offset &&
               a->events_offset == b->events_offset && a->heap_offset == b->heap_offset && a->heap_bytes == b->heap_bytes;
}

/* What is counted in the old table, to a new one that nobody uses yet, mapped at @base. */
static void space_copy_pins(const Space *space, const LayoutPinsHeader *header, uint8_t *base)
{
        _Atomic uint8_t *summary = (_Atomic uint8_t *)(base + header->summary_offset);
        _Atomic uint32_t *counters = (_Atomic uint32_t *)(base + header->counters_offset);
        uint32_t n_slots = space->header.n_slots_max;

        for (uint32_t slot = 0; slot < n_slots; slot++) {
                uint32_t n;

                if (!atomic_load_explicit(&space->pin_summary[slot / LAYOUT_PINS_PER_SUMMARY], memory_order_relaxed)) {
                        slot |= LAYOUT_PINS_PER_SUMMARY - 1;
                        continue;
                }
                n = atomic_load_explicit(&space->pin_counters[slot], memory_order_seq_cst);
                if (n == 0)
                        continue;
                atomic_store_explicit(&summary[slot / LAYOUT_PINS_PER_SUMMARY], 1, memory_order_relaxed);
                atomic_store_explicit(&counters[slot], n, memory_order_seq_cst);
        }
}

static int space_replace_pins(Space *space, int fd)
{
        LayoutPinsHeader header;
        void *data;
        int r;

        r = space_read_pins(space, fd, &header);
        if (r != 0)
                return r;
        if (header.region_bytes != space->pins_bytes ||
            header.summary_offset != (uint64_t)((uint8_t *)space->pin_summary - (uint8_t *)space->pins) ||
            header.counters_offset != (uint64_t)((uint8_t *)space->pin_counters - (uint8_t *)space->pins))
                return SPACE_E_LAYOUT;
        r = maps_map(fd, header.region_bytes, PROT_READ | PROT_WRITE, &data);
        if (r < 0)
                return r;
        space_copy_pins(space, &header, data);
        r = maps_map_over(fd, header.region_bytes, PROT_READ | PROT_WRITE, space->pins);
        if (r == 0 && madvise(space->pins, space->pins_bytes, MADV_DONTFORK) < 0)
                r = -errno;
        maps_unmap(data, (size_t)header.region_bytes);
        return r;
}

int space_replace(Space *space, const ProtoNamespace *ns, int consume_index_fd, int consume_pins_fd)
{
        _cleanup_(cleanup_fd) int index_fd = consume_index_fd;
        _cleanup_(cleanup_fd) int pins_fd = consume_pins_fd;
        LayoutIndexHeader header;
        int r;

        if (ns->id != space->id || (index_fd < 0) != !space->shared)
                return SPACE_E_LAYOUT;
        if (space->rights != ns->rights)
                space->rights = ns->rights;
        if (!space->shared)
                return 0;
        r = space_read_index(ns, index_fd, &header);
        if (r != 0)
                return r;
        header.heap_bytes = ALIGN_DOWN(header.heap_bytes, (uint64_t)LAYOUT_HEAP_UNIT_BYTES);
        if (!space_is_same_shape(&space->header, &header))
                return SPACE_E_LAYOUT;
        r = pins_fd >= 0 ? space_replace_pins(space, pins_fd) : 0;
        return r != 0 ? r : maps_map_over(index_fd, header.region_bytes, PROT_READ, space->shared);
}

void space_close(Space *space)
{
        size_t n_bytes = PAGE_BYTES;
        LayoutIndexHeader *page;

        atomic_store_explicit(&space->is_gone, true, memory_order_release);
        if (!space->shared)
                return;
        /* What says so is a word that only its daemon writes. So the page that it is in becomes ours. */
        page = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
                return;
        memcpy(page, space->shared, n_bytes);
        atomic_store(&page->is_closed, 1);
        if (mprotect(page, n_bytes, PROT_READ) < 0 ||
            mremap(page, n_bytes, n_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, space->shared) == MAP_FAILED)
                (void)munmap(page, n_bytes);
}

/* --- references ------------------------------------------------------------------------------------------------------ */

Space *space_ref(Space *space)
{
        unsigned n = atomic_fetch_add_explicit(&space->n_references, 1, memory_order_relaxed);

        assert(n > 0);
        (void)n;
        return space;
}

void space_unref(Space *space)
{
        if (!space)
                return;
        /* Release: what this thread did with the space; acquire: what all the others did, before it is unmapped. */
        if (atomic_fetch_sub_explicit(&space->n_references, 1, memory_order_acq_rel) == 1)
                space_free(space);
}
