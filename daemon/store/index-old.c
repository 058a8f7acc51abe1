/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an index that has no writer. The file is sealed against other sizes, or nobody else can change it, so what was
 * found inside it once stays inside; but the numbers in it are looked at as if anybody had written them.
 */
#include "daemon/store/index-old.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/macro.h"
#include "daemon/store/index-checksum.h"

/* --- the header --------------------------------------------------------------------------------------------------- */

static bool is_area(uint64_t offset, uint64_t n, uint64_t each_bytes, uint64_t size_bytes)
{
        uint64_t n_bytes;

        return offset >= sizeof(LayoutIndexHeader) && IS_ALIGNED(offset, 64) && checked_mul(n, each_bytes, &n_bytes) &&
               checked_range(offset, n_bytes, size_bytes);
}

static int check_header(const LayoutIndexHeader *h, uint64_t size_bytes)
{
        if (h->magic != LAYOUT_INDEX_MAGIC)
                return INDEX_OLD_E_BROKEN;
        if (h->layout_version != LAYOUT_VERSION || h->incompatible_flags != 0)
                return INDEX_OLD_E_VERSION;
        if (h->header_bytes < sizeof(*h) || h->region_bytes != size_bytes || h->n_slots_max == 0 ||
            h->n_slots_max == UINT32_MAX || !IS_POWER_OF_TWO(h->n_graves) || !IS_POWER_OF_TWO(h->n_events) ||
            atomic_load(&h->n_slots) > h->n_slots_max || h->namespace_id == 0 ||
            !memchr(h->namespace_name, 0, sizeof(h->namespace_name)) ||
            !key_is_valid_namespace(h->namespace_name, strlen(h->namespace_name)))
                return INDEX_OLD_E_BROKEN;
        if (!is_area(h->slots_offset, h->n_slots_max, sizeof(LayoutSlot), size_bytes) ||
            !is_area(h->graves_offset, h->n_graves, sizeof(LayoutGrave), size_bytes) ||
            !is_area(h->events_offset, h->n_events, sizeof(LayoutEvent), size_bytes) ||
            !is_area(h->heap_offset, h->heap_bytes, 1, size_bytes))
                return INDEX_OLD_E_BROKEN;
        return 0;
}

int index_old_open(int fd, uint64_t size_bytes, IndexOld *ret)
{
        void *base;
        int r;

        *ret = (IndexOld){ .fd = fd };
        if (size_bytes < sizeof(LayoutIndexHeader) || size_bytes > SIZE_MAX)
                return INDEX_OLD_E_BROKEN;
        base = mmap(NULL, (size_t)size_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED)
                return -errno;
        memcpy(&ret->header, base, sizeof(ret->header));
        r = check_header(&ret->header, size_bytes);
        if (r) {
                (void)munmap(base, (size_t)size_bytes);
                return r;
        }
        ret->base = base;
        ret->size_bytes = size_bytes;
        ret->slots = (const LayoutSlot *)(const void *)(ret->base + ret->header.slots_offset);
        ret->graves = (const LayoutGrave *)(const void *)(ret->base + ret->header.graves_offset);
        ret->events = (const LayoutEvent *)(const void *)(ret->base + ret->header.events_offset);
        ret->heap = ret->base + ret->header.heap_offset;
        return 0;
}

void index_old_close(IndexOld *old)
{
        if (old->base)
                (void)munmap((void *)(uintptr_t)old->base, (size_t)old->size_bytes);
        old->base = NULL;
}

bool index_old_settings(const IndexOld *old, LayoutSettings *ret)
{
        uint32_t current = atomic_load(&old->header.settings_current) & 1;

        for (uint32_t i = 0; i < 2; i++) {
                *ret = old->header.settings[current ^ i];
                /* One of zeros has been written never. */
                if (ret->objects_max != 0 && ret->checksum == index_checksum_settings(ret))
                        return true;
        }
        return false;
}

/* --- records ------------------------------------------------------------------------------------------------------ */

static const void *heap_at(const IndexOld *old, uint32_t block, uint64_t n_bytes)
{
        uint64_t offset = (uint64_t)block * LAYOUT_HEAP_UNIT_BYTES;

        return block != 0 && checked_range(offset, n_bytes, old->header.heap_bytes) ? old->heap + offset : NULL;
}

static const LayoutExtents *find_extents(const IndexOld *old, const LayoutSlot *record)
{
        const LayoutExtents *extents;

        if (!(record->flags & LAYOUT_FLAG_ZEROS))
                return NULL;
        extents = heap_at(old, record->extents_block, layout_extents_bytes(0));
        if (!extents || extents->n_extents == 0 || extents->n_extents > LAYOUT_EXTENTS_MAX)
                return NULL;
        return heap_at(old, record->extents_block, layout_extents_bytes(extents->n_extents));
}

/* Is it shaped as a record can be, and what would its checksum be? */
static bool compute(const IndexOld *old, uint32_t slot, const LayoutSlot *record, uint32_t *ret)
{
        uint64_t n_heap = layout_heap_bytes(record);
        const void *texts = n_heap > 0 ? heap_at(old, record->heap_block, n_heap) : NULL;
        const LayoutExtents *extents = find_extents(old, record);

        if (record->key_bytes == 0 || record->metadata_bytes > FOLIO_METADATA_BYTES_MAX || (n_heap > 0) != (texts != NULL) ||
            (record->heap_block != 0) != (n_heap > 0) || !!(record->flags & LAYOUT_FLAG_ZEROS) != (extents != NULL))
                return false;
        *ret = index_checksum(slot, record, texts, extents);
        return true;
}

static bool is_state(uint8_t state)
{
        return state > LAYOUT_SLOT_FREE && state < _LAYOUT_SLOT_STATE_MAX;
}

static bool is_right(const IndexOld *old, uint32_t slot, const LayoutSlot *record)
{
        uint32_t checksum;

        return is_state(record->state) && compute(old, slot, record, &checksum) && checksum == record->checksum;
}

/* Right but for the state, which was being changed. */
static bool is_being_retracted(const IndexOld *old, uint32_t slot, const LayoutSlot *record)
{
        uint32_t checksum;

        if (!is_state(record->state) || !compute(old, slot, record, &checksum))
                return false;
        for (uint8_t state = LAYOUT_SLOT_FREE + 1; state < _LAYOUT_SLOT_STATE_MAX; state++)
                if (index_checksum_change_state(checksum, record->state, state) == record->checksum)
                        return true;
        return false;
}

IndexVerdict index_old_judge(const IndexOld *old, uint32_t slot, LayoutSlot *ret)
{
        const LayoutIndexHeader *h = &old->header;

        if (atomic_load(&h->journal_slot) == slot + 1 && is_right(old, slot, &h->journal)) {
                *ret = h->journal;
                return INDEX_WHOLE;
        }
        *ret = old->slots[slot];
        if (ret->sequence & 1) {
                if (!is_being_retracted(old, slot, ret))
                        return INDEX_TORN;
                ret->state = LAYOUT_SLOT_RETRACTED;
                return INDEX_WHOLE;
        }
        if (ret->state == LAYOUT_SLOT_FREE)
                return INDEX_FREE;
        return is_right(old, slot, ret) ? INDEX_WHOLE : INDEX_BAD;
}

void index_old_texts(const IndexOld *old, const LayoutSlot *record, char buffer[FOLIO_KEY_BYTES_MAX], Key *ret_key,
                     Key *ret_content_type, Key *ret_metadata)
{
        size_t n_inline = MIN(record->key_bytes, LAYOUT_SLOT_KEY_BYTES), n_tail = record->key_bytes - n_inline;
        const char *texts = heap_at(old, record->heap_block, layout_heap_bytes(record));

        memcpy(buffer, record->key, n_inline);
        if (n_tail > 0)
                memcpy(buffer + n_inline, texts, n_tail);
        *ret_key = (Key){ buffer, record->key_bytes };
        *ret_content_type = (Key){ texts ? texts + n_tail : "", record->content_type_bytes };
        *ret_metadata = (Key){ texts ? texts + n_tail + record->content_type_bytes : "", record->metadata_bytes };
}

const LayoutExtents *index_old_extents(const IndexOld *old, const LayoutSlot *record)
{
        return find_extents(old, record);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static const LayoutEvent *find_event(const IndexOld *old, uint64_t sequence)
{
        const LayoutEvent *event = &old->events[layout_event_place(sequence, old->header.n_events)];

        return sequence != 0 && event->sequence == sequence && event->key_bytes > 0 ? event : NULL;
}

const LayoutEvent *index_old_pending_event(const IndexOld *old)
{
        return find_event(old, atomic_load(&old->header.event_sequence) + 1);
}

const LayoutEvent *index_old_event(const IndexOld *old, uint64_t sequence)
{
        uint64_t newest = atomic_load(&old->header.event_sequence);

        return sequence <= newest ? find_event(old, sequence) : NULL;
}

bool index_old_has_happened(const IndexOld *old, const LayoutEvent *event)
{
        LayoutSlot record;
        bool is_it;

        if (event->slot >= atomic_load(&old->header.n_slots))
                return false;
        is_it = index_old_judge(old, event->slot, &record) == INDEX_WHOLE && record.generation == event->generation;
        if (event->type == FOLIO_EVENT_SEALED || event->type == FOLIO_EVENT_REPLACED)
                return is_it && (record.state == LAYOUT_SLOT_SEALED || record.state == LAYOUT_SLOT_MUTABLE);
        return !is_it || record.state == LAYOUT_SLOT_RETRACTED;
}
