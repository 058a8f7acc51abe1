/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reading of an object.
 *
 * Small objects come out of the mapping of their packed region, and that is all there is to it. One with a region of
 * its own is walked by runs: what is listed as zeros is filled in and not touched, as a hole that is read through a
 * mapping gets a page, which somebody pays for. The rest is copied out of the mapping, faulted in by windows, or read
 * by descriptor: where nothing is mapped and mapping would not pay, and where a hole may be that is not listed. Of a
 * mutable object what is listed may have been written since, so it is read by descriptor, which leaves holes alone.
 */
#include "client/read.h"

#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "client/resume.h"
#include "client/lib/copy.h"
#include "proto/seqlock.h"

#define READ_LOOKS_MAX 16

/* A copy by helpers is one: what it reads is faulted in before it begins. Smaller ones are copied window by window. */
#define READ_CREW_BYTES (64 * MIB)

/* --- mapping or not ------------------------------------------------------------------------------------------------------------- */

/* Up to here the round trip costs more than all else, and a mapping spares the next one. */
#define READ_MAP_BYTES_MIN MIB

/*
 * Whole, once, small pages: pread() against map, fault in, copy, unmap, in ms of CPU by getrusage, least of 5, with one
 * buffer written over and over: 2 MiB 0.24 against 0.28, 16 MiB 2.3 against 2.7, 128 MiB 29 against 24. With pages of
 * 2 MiB: 16 MiB 1.40 against 1.42, 128 MiB 18.5 against 15.7. So what fits the cache is read, and what is larger, or huge, is mapped.
 */
#define READ_ONCE_BYTES_MAX (32 * MIB)

bool read_should_map(const ReadCase *read)
{
        /* One piece of it: there will be others. */
        if (read->n_bytes < read->object_bytes || read->object_bytes <= READ_MAP_BYTES_MIN)
                return true;
        if (read->huge_bytes >= read->object_bytes - read->object_bytes / 2)
                return true;
        return read->was_read || read->object_bytes > READ_ONCE_BYTES_MAX;
}

static bool should_map(const Object *object, uint64_t n_bytes)
{
        ReadCase read = { .object_bytes = object->size_bytes, .n_bytes = n_bytes };
        LayoutSlot copy;

        if (object->space->shared && lookup_read_slot(object->space, object->slot, &copy))
                read.huge_bytes = (uint64_t)copy.huge_folios * HUGE_BYTES;
        read.was_read = maps_note_read(object->client->maps, object->region_id);
        return read_should_map(&read);
}

/* --- pieces ----------------------------------------------------------------------------------------------------------------------- */

typedef struct Piece {
        uint64_t offset_bytes;       /* in the object */
        uint8_t *buffer;
        size_t n_bytes;
} Piece;

static void piece_advance(Piece *piece, uint64_t n_bytes)
{
        piece->offset_bytes += n_bytes;
        piece->buffer += n_bytes;
        piece->n_bytes -= (size_t)n_bytes;
}

/* How far the memory may be touched from there on: of a mutable object it may have shrunk since the range was checked. */
static uint64_t data_end(const Object *object, const Piece *piece)
{
        return object->is_mutable ? MAX(object_size(object), piece->offset_bytes + piece->n_bytes) : object->size_bytes;
}

static int io_failed(int r, const Piece *piece)
{
        if (r == -EIO || r == -EHWPOISON)
                return error_set(FOLIO_E_IO, "the kernel reports bad memory somewhere in the %zu bytes at offset %llu of the "
                                             "object: what was there is lost", piece->n_bytes,
                                 (unsigned long long)piece->offset_bytes);
        return error_set(error_from_errno(r), "reading %zu bytes at offset %llu of the object failed: %s", piece->n_bytes,
                         (unsigned long long)piece->offset_bytes, strerror(-r));
}

static int piece_read(const Object *object, int fd, const Piece *piece)
{
        int r = copy_from_fd(fd, object->offset_bytes + piece->offset_bytes, piece->buffer, piece->n_bytes);

        return r < 0 ? io_failed(r, piece) : 1;
}

/*
 * Out of the mapping. @limit_bytes: how far into the object the data go on, at least the end of the piece.
 * @is_whole: there is no hole before the piece.
 */
static int piece_copy(const Object *object, const Mapping *mapping, Piece piece, uint64_t limit_bytes, bool is_whole)
{
        const uint8_t *data = mapping->data + object->offset_bytes;
        uint64_t base = object->offset_bytes;
        Crew *crew = object->client->crew;
        bool is_large = crew && piece.n_bytes >= READ_CREW_BYTES;
        size_t n_whole = piece.n_bytes;

        for (uint64_t n = 0; is_large && n < piece.n_bytes;)
                n += windows_prepare(mapping->windows, mapping->data, base + piece.offset_bytes + n, piece.n_bytes - n,
                                     base + limit_bytes, is_whole);
        while (piece.n_bytes > 0) {
                size_t n = piece.n_bytes, n_ahead;
                int r;

                if (!is_large)
                        n = (size_t)windows_prepare(mapping->windows, mapping->data, base + piece.offset_bytes, n,
                                                    base + limit_bytes, is_whole);
                n_ahead = (size_t)(limit_bytes - piece.offset_bytes - n);
                r = is_large ? copy_out_by(crew, piece.buffer, data + piece.offset_bytes, n, n_ahead) :
                               copy_out_part(piece.buffer, data + piece.offset_bytes, n, n_ahead, n_whole);
                if (r < 0)
                        return io_failed(r, &piece);
                piece_advance(&piece, n);
        }
        return 1;
}

/* --- what is zero ------------------------------------------------------------------------------------------------------------------ */

/* Is what is known of a sealed object all that is listed? Its slot has not changed since, then. */
static inline bool zeros_are_current(const Object *object)
{
        const LayoutSlot *slots = object->space->slots;
        uint32_t sequence;

        return object->is_mutable || !slots ||
               (seqlock_read_begin(&slots[object->slot].sequence, &sequence) &&
                sequence == atomic_load_explicit(&object->zeros_sequence, memory_order_relaxed));
}

/* With the object's lock: the list in @copy, which others may be walking from now on, and the old one still. */
static int list_renew(Object *object, const LayoutSlot *copy)
{
        bool is_listed = copy->flags & LAYOUT_FLAG_ZEROS;
        ObjectExtra *extra = is_listed ? object_get_extra(object) : NULL;
        Extents *extents = NULL;
        int r;

        if (!is_listed)
                return 0;
        if (!extra)
                return -ENOMEM;
        if (atomic_load(&extra->extents) && extra->extents_block == copy->extents_block)
                return 0;
        r = extents_read(object->space, object->slot, copy, &extents);
        if (r < 0 || !extents)
                return r;
        extra->extents_block = copy->extents_block;
        if (!extents_keep(extents, atomic_load(&extra->extents))) {
                extents_free(extents); /* what is known is true for ever */
                return 0;
        }
        atomic_store_explicit(&extra->extents, extents, memory_order_release);
        atomic_store_explicit(&object->zeros, OBJECT_ZEROS_LISTED, memory_order_release);
        return 0;
}

/* Of a sealed object. Where it cannot be told now, what was known stays, and it is asked again the next time. */
static void zeros_look(Object *object)
{
        LayoutSlot copy;
        int r = -EAGAIN;

        (void)pthread_mutex_lock(&object->lock);
        for (unsigned i = 0; r == -EAGAIN && i < READ_LOOKS_MAX && object->space->shared; i++) {
                unsigned count = resume_count(object->client);

                if (!lookup_read_slot(object->space, object->slot, &copy) ||
                    copy.generation != atomic_load_explicit(&object->generation, memory_order_relaxed))
                        break;
                r = list_renew(object, &copy);
                if (!resume_is_same(object->client, count))
                        r = -EAGAIN;
        }
        if (r == 0) {
                if (atomic_load(&object->zeros) == OBJECT_ZEROS_UNKNOWN)
                        atomic_store(&object->zeros, OBJECT_ZEROS_NONE);
                atomic_store_explicit(&object->zeros_sequence, copy.sequence, memory_order_relaxed);
        }
        (void)pthread_mutex_unlock(&object->lock);
}

static ObjectZeros zeros_of(Object *object)
{
        ObjectZeros zeros = (ObjectZeros)atomic_load_explicit(&object->zeros, memory_order_acquire);

        if (zeros == OBJECT_ZEROS_HINTS)
                return zeros;
        if (object_is_unsealed(object))
                return OBJECT_ZEROS_NONE;
        if (LIKELY(zeros != OBJECT_ZEROS_UNKNOWN && zeros_are_current(object)))
                return zeros;
        zeros_look(object);
        zeros = (ObjectZeros)atomic_load_explicit(&object->zeros, memory_order_acquire);
        return zeros == OBJECT_ZEROS_UNKNOWN ? OBJECT_ZEROS_NONE : zeros;
}

/* HINTS, with the object's lock: what is listed now. False: not known. */
static bool hints_renew(Object *object, ObjectExtra *extra)
{
        unsigned count = resume_count(object->client);
        Extents *extents = NULL;
        LayoutSlot copy;

        if (!object->space->shared || !lookup_read_slot(object->space, object->slot, &copy) ||
            copy.generation != atomic_load_explicit(&object->generation, memory_order_relaxed))
                return false;
        if (!(copy.flags & LAYOUT_FLAG_ZEROS))
                copy.extents_block = 0;
        if (extra->extents_ns == copy.changed_ns && extra->extents_block == copy.extents_block)
                return true;
        if (copy.extents_block != 0 && extents_read(object->space, object->slot, &copy, &extents) < 0)
                return false;
        if (!resume_is_same(object->client, count)) {
                extents_free(extents);
                return false;
        }
        extents_free(atomic_exchange(&extra->extents, extents));
        extra->extents_ns = copy.changed_ns;
        extra->extents_block = copy.extents_block;
        return true;
}

/* How long the run at the piece's beginning is, and whether it may be touched through a mapping. */
static uint64_t hints_run(Object *object, const Piece *piece, bool *ret_is_data)
{
        ObjectExtra *extra = object_get_extra(object);
        uint64_t n = piece->n_bytes;
        bool is_zero = true;

        if (extra) {
                (void)pthread_mutex_lock(&object->lock);
                if (hints_renew(object, extra))
                        n = extents_run(extra->extents, piece->offset_bytes, piece->n_bytes, &is_zero);
                (void)pthread_mutex_unlock(&object->lock);
        }
        *ret_is_data = !is_zero;
        return n;
}

/* --- walks -------------------------------------------------------------------------------------------------------------------------- */

/* All of them answer 1, an error, or 0: a descriptor is needed. */

static int walk_listed(Object *object, const Mapping *mapping, int fd, Piece piece)
{
        const Extents *extents = atomic_load_explicit(&atomic_load(&object->extra)->extents, memory_order_acquire);
        const Mapping *touched = extents_is_partial(extents) ? NULL : mapping;
        int r = 1;

        while (piece.n_bytes > 0 && r == 1) {
                bool is_zero;
                uint64_t run = extents_run(extents, piece.offset_bytes, object->size_bytes - piece.offset_bytes, &is_zero);
                Piece now = { piece.offset_bytes, piece.buffer, (size_t)MIN(run, piece.n_bytes) };

                if (is_zero)
                        copy_fill(now.buffer, now.n_bytes);
                else if (touched)
                        r = piece_copy(object, touched, now, now.offset_bytes + run, false);
                else
                        r = fd >= 0 ? piece_read(object, fd, &now) : 0;
                piece_advance(&piece, now.n_bytes);
        }
        return r;
}

static int walk_hinted(Object *object, const Mapping *mapping, int fd, Piece piece)
{
        int r = 1;

        if (!mapping)
                return fd >= 0 ? piece_read(object, fd, &piece) : 0;
        while (piece.n_bytes > 0 && r == 1) {
                bool is_data;
                Piece now = { piece.offset_bytes, piece.buffer, (size_t)hints_run(object, &piece, &is_data) };

                if (is_data)
                        r = piece_copy(object, mapping, now, now.offset_bytes + now.n_bytes, false);
                else
                        r = fd >= 0 ? piece_read(object, fd, &now) : 0;
                piece_advance(&piece, now.n_bytes);
        }
        return r;
}

/* From what there is; NULL and -1 for what is not. */
static int walk(Object *object, const Mapping *mapping, int fd, Piece piece)
{
        switch (zeros_of(object)) {
        case OBJECT_ZEROS_LISTED:
                return walk_listed(object, mapping, fd, piece);
        case OBJECT_ZEROS_HINTS:
                return walk_hinted(object, mapping, fd, piece);
        case OBJECT_ZEROS_UNKNOWN:
        case OBJECT_ZEROS_NONE:
                break;
        }
        /* Being written, and nobody lists its holes. */
        if (object->is_sparse && fd >= 0 && object_is_unsealed(object))
                mapping = NULL;
        if (mapping)
                return piece_copy(object, mapping, piece, data_end(object, &piece), true);
        return fd >= 0 ? piece_read(object, fd, &piece) : 0;
}

/* --- reading --------------------------------------------------------------------------------------------------------------------- */

/* Nothing stands in the way of copying it at once: no hole, no page to be faulted in. */
static bool is_plain(const Object *object, const Mapping *mapping, const Piece *piece)
{
        return object->placement == FOLIO_PLACEMENT_PACKED ||
               (atomic_load_explicit(&object->zeros, memory_order_relaxed) == OBJECT_ZEROS_NONE && zeros_are_current(object) &&
                windows_is_there(mapping->windows, object->offset_bytes + piece->offset_bytes, piece->n_bytes));
}

static int read_plain(const Object *object, const Mapping *mapping, const Piece *piece)
{
        /* The size that a mutable object had when it was held may be less than this by now. */
        size_t n_ahead = object->is_mutable ? 0 : (size_t)(object->size_bytes - piece->offset_bytes - piece->n_bytes);
        int r = copy_out(piece->buffer, mapping->data + object->offset_bytes + piece->offset_bytes, piece->n_bytes, n_ahead);

        return LIKELY(r == 0) ? 1 : io_failed(r, piece);
}

static int read_own(Object *object, Piece piece)
{
        const Mapping *mapping = atomic_load_explicit(&object->reading, memory_order_acquire);
        const ObjectExtra *extra = atomic_load_explicit(&object->extra, memory_order_acquire);
        int fd = object->fd, r;

        if (!mapping)
                mapping = atomic_load_explicit(&object->writing, memory_order_acquire);
        if (fd < 0 && extra)
                fd = atomic_load_explicit(&extra->fd, memory_order_acquire);
        if (!mapping && fd < 0) {
                r = object_attach_mapped(object, false);
                if (r < 0)
                        return r;
                mapping = atomic_load_explicit(&object->reading, memory_order_acquire);
        }
        if (mapping && object->placement == FOLIO_PLACEMENT_PACKED)
                return read_plain(object, mapping, &piece);
        r = walk(object, mapping, fd, piece);
        if (r == 0 && !object->is_pinned)
                return error_set(FOLIO_E_ACCESS, "this user may not read in namespace %s", object->space->name);
        return r;
}

int object_read_now(Object *object, uint64_t offset_bytes, void *buffer, size_t n_bytes)
{
        const Mapping *mapping = atomic_load_explicit(&object->reading, memory_order_acquire);
        Piece piece = { offset_bytes, buffer, n_bytes };
        int r;

        if (n_bytes == 0)
                return 1;
        if (LIKELY(mapping && is_plain(object, mapping, &piece)))
                return read_plain(object, mapping, &piece);
        if (!object->staged)
                return read_own(object, piece);
        r = copy_out(buffer, (const uint8_t *)object->staged + offset_bytes, n_bytes, 0);
        return r < 0 ? io_failed(r, &piece) : 1;
}

/* Is its descriptor needed for more than this read? */
static bool is_descriptor_kept(Object *object)
{
        switch (zeros_of(object)) {
        case OBJECT_ZEROS_LISTED:
                return extents_is_partial(atomic_load_explicit(&object->extra, memory_order_acquire)->extents);
        case OBJECT_ZEROS_HINTS:
                return true;
        case OBJECT_ZEROS_UNKNOWN:
        case OBJECT_ZEROS_NONE:
                break;
        }
        return false;
}

static void keep_descriptor(Object *object, int *fd)
{
        ObjectExtra *extra = object_get_extra(object);
        int none = -1;

        /* Without memory it is of use this once; of two threads that have one each the later's is. */
        if (extra && atomic_compare_exchange_strong(&extra->fd, &none, *fd))
                *fd = -1;
}

int object_read_region(Object *object, const ProtoItemReply *item, int consume_fd, uint64_t offset_bytes, void *buffer,
                       size_t n_bytes)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        bool is_own = item->placement != FOLIO_PLACEMENT_PACKED;
        Piece piece = { offset_bytes, buffer, n_bytes };
        int r;

        if (fd < 0 || !checked_range(item->offset_bytes, object->capacity_bytes, item->region_bytes))
                return error_set(FOLIO_E_PROTOCOL, "foliod's answer lacks the region's descriptor, or it is too small");
        r = object_place(object, item);
        if (r < 0)
                return r;
        if (is_own && is_descriptor_kept(object)) {
                r = walk(object, atomic_load(&object->reading), fd, piece);
                keep_descriptor(object, &fd);
                return r < 0 ? r : 0;
        }
        if (!is_own || object->is_mutable || should_map(object, n_bytes)) {
                r = object_map_region(object, item, fd, false, false);
                if (r == 0)
                        r = object_read_now(object, offset_bytes, buffer, n_bytes);
                if (r == 1)
                        return 0;
                /* A process that can map no more can still read. */
                if (r != FOLIO_E_LIMIT && r != FOLIO_E_NO_MEMORY && r != 0)
                        return r;
        }
        r = walk(object, NULL, fd, piece);
        return r < 0 ? r : 0;
}

int object_read_mapped(Object *object, uint64_t offset_bytes, void *buffer, size_t n_bytes)
{
        const uint8_t *data = object_peek(object);
        Piece piece = { offset_bytes, buffer, n_bytes };
        int r;

        if (!data)
                return error_set(FOLIO_E_PROTOCOL, "the region of the object has not come");
        r = copy_out(buffer, data + offset_bytes, n_bytes, 0);
        return r < 0 ? io_failed(r, &piece) : 0;
}
