/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object bytes from and to the program's own descriptors. What has a region of its own is copied by the kernel through
 * the region's descriptor, and nothing is mapped for it; what is in memory anyway goes straight from there, or there.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "client/fill.h"
#include "client/lib/maps.h"
#include "client/lib/splice.h"
#include "client/made.h"
#include "client/stream.h"

/* A descriptor that can never do is the caller's mistake. */
static int outside_failed(const char *what, uint64_t n_done, uint64_t n_bytes, int r)
{
        return error_set(r == -EBADF ? FOLIO_E_INVALID : FOLIO_E_IO, "the descriptor %s %llu of %llu bytes: %s", what,
                         (unsigned long long)n_done, (unsigned long long)n_bytes, strerror(-r));
}

static int region_failed(const char *what, int r)
{
        return error_set(error_from_errno(r), "%s the object's bytes failed: %s", what, strerror(-r));
}

/* The region, by a descriptor that is for this call only: descriptors must not add up. */
static int ask_descriptor(Object *object, bool writable, ProtoItemReply *ret_item, int *ret_fd)
{
        int r = object_ask_region(object, writable, ret_item, ret_fd);

        if (r < 0)
                return r;
        if (*ret_fd >= 0 && checked_range(ret_item->offset_bytes, object->capacity_bytes, ret_item->region_bytes))
                return 0;
        *ret_fd = close_fd(*ret_fd);
        return error_set(FOLIO_E_PROTOCOL, "foliod says %llu bytes at %llu of a region of %llu bytes: that cannot be",
                         (unsigned long long)object->capacity_bytes, (unsigned long long)ret_item->offset_bytes,
                         (unsigned long long)ret_item->region_bytes);
}

/* --- from a descriptor -------------------------------------------------------------------------------------------- */

static int write_memory(uint8_t *to, int fd, uint64_t n_bytes, uint64_t *ret_n_bytes)
{
        size_t n;
        int r = splice_read(fd, to, (size_t)n_bytes, &n);

        if (r < 0)
                return outside_failed("gave", n, n_bytes, r);
        *ret_n_bytes = n;
        return 0;
}

/* What does not come must not be what was there before. */
static int write_leased(Object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes, uint64_t *ret_n_bytes)
{
        uint8_t *data = object->staged;
        uint64_t zero_from = made_prepare(object, offset_bytes, n_bytes);
        size_t n;
        int r = splice_read(fd, data + offset_bytes, (size_t)n_bytes, &n);

        zero_from = MAX(zero_from, offset_bytes + n);
        if (zero_from < offset_bytes + n_bytes)
                memset(data + zero_from, 0, (size_t)(offset_bytes + n_bytes - zero_from));
        if (r < 0)
                return outside_failed("gave", n, n_bytes, r);
        *ret_n_bytes = n;
        return 0;
}

static int write_region(int region_fd, uint64_t offset_bytes, int fd, uint64_t n_bytes, uint64_t *ret_n_bytes)
{
        SpliceSide failed;
        uint64_t n;
        int r = splice_in(fd, region_fd, offset_bytes, n_bytes, &n, &failed);

        if (r < 0)
                return failed == SPLICE_REGION ? region_failed("writing", r) : outside_failed("gave", n, n_bytes, r);
        *ret_n_bytes = n;
        return 0;
}

/*
 * Is the object's memory there, zeroed, and in 2 MiB pages? Then read() into a mapping beats every copy between
 * descriptors, which goes by 4 KiB: 180 ms of the CPU for 1 GiB against 250. Where pages are small, or reserved only,
 * to map them costs more than that gains; of those the slot does not say they are huge.
 */
static bool is_huge(const Object *object, uint64_t n_bytes)
{
        return n_bytes >= HUGE_BYTES && fill_is_huge(object->space, object->slot, object->generation, object->capacity_bytes);
}

/* For this call only: what maps an object writable stands in the way of its seal. 1: cannot be mapped. */
static int write_mapped(Object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes, uint64_t *ret_n_bytes)
{
        void *data;
        int r;

        if (!checked_range(object->offset_bytes, object->capacity_bytes, object->region_bytes) ||
            maps_map(object->fd, object->region_bytes, PROT_READ | PROT_WRITE, &data) < 0)
                return 1;
        r = write_memory((uint8_t *)data + object->offset_bytes + offset_bytes, fd, n_bytes, ret_n_bytes);
        maps_unmap(data, (size_t)object->region_bytes);
        return r;
}

static int write_own(Object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes, uint64_t *ret_n_bytes)
{
        _cleanup_(cleanup_fd) int asked_fd = -1;
        Mapping *mapping = atomic_load(&object->writing);
        ProtoItemReply item;
        int r = 1;

        if (object->fd >= 0 && !mapping && is_huge(object, n_bytes))
                r = write_mapped(object, offset_bytes, fd, n_bytes, ret_n_bytes);
        if (r <= 0)
                return r;
        if (object->fd >= 0)
                return write_region(object->fd, object->offset_bytes + offset_bytes, fd, n_bytes, ret_n_bytes);
        if (mapping)
                return write_memory(mapping->data + object->offset_bytes + offset_bytes, fd, n_bytes, ret_n_bytes);
        r = ask_descriptor(object, true, &item, &asked_fd);
        return r < 0 ? r : write_region(asked_fd, item.offset_bytes + offset_bytes, fd, n_bytes, ret_n_bytes);
}

_public_ int folio_object_write_file(struct folio_object *handle, uint64_t offset_bytes, int fd, uint64_t n_bytes,
                                     uint64_t *ret_n_bytes)
{
        int r;
        Object *object = object_find(handle, &r);
        ObjectKind kind;

        if (!object)
                return r;
        if (fd < 0)
                return error_set(FOLIO_E_INVALID, "%d is no descriptor", fd);
        if (!ret_n_bytes)
                return error_set(FOLIO_E_INVALID, "there is no place for the count");
        r = object_check_writable(object, &kind);
        if (r < 0)
                return r;
        if (kind == OBJECT_STREAM)
                return stream_write_file(object, offset_bytes, fd, n_bytes, ret_n_bytes);
        r = object_check_range(object, offset_bytes, n_bytes);
        if (r < 0)
                return r;
        if (n_bytes == 0) {
                *ret_n_bytes = 0;
                return 0;
        }
        if (kind == OBJECT_LEASED)
                return write_leased(object, offset_bytes, fd, n_bytes, ret_n_bytes);
        if (kind == OBJECT_STAGED)
                return write_memory((uint8_t *)object->staged + offset_bytes, fd, n_bytes, ret_n_bytes);
        return write_own(object, offset_bytes, fd, n_bytes, ret_n_bytes);
}

/* --- to a descriptor ---------------------------------------------------------------------------------------------- */

static int read_memory(const uint8_t *from, int fd, uint64_t n_bytes)
{
        uint64_t n;
        int r = splice_write(fd, from, (size_t)n_bytes, &n);

        return r < 0 ? outside_failed("took", n, n_bytes, r) : 0;
}

static int read_region(int region_fd, uint64_t offset_bytes, int fd, uint64_t n_bytes)
{
        SpliceSide failed;
        uint64_t n;
        int r = splice_out(region_fd, offset_bytes, fd, n_bytes, &n, &failed);

        if (r == 0)
                return 0;
        return failed == SPLICE_REGION ? region_failed("reading", r) : outside_failed("took", n, n_bytes, r);
}

/* What is not in this process's memory. Small objects come with their neighbours: that mapping will be of use again. */
static int read_unmapped(Object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes)
{
        _cleanup_(cleanup_fd) int region_fd = -1;
        ProtoItemReply item;
        int r;

        if (!object->is_pinned)
                return error_set(FOLIO_E_ACCESS, "this user may not read in namespace %s", object->space->name);
        r = ask_descriptor(object, false, &item, &region_fd);
        if (r < 0)
                return r;
        if (item.placement != FOLIO_PLACEMENT_PACKED)
                return read_region(region_fd, item.offset_bytes + offset_bytes, fd, n_bytes);
        r = object_add_region(object, &item, steal_fd(&region_fd), false, false);
        return r < 0 ? r : read_memory(object_peek(object) + offset_bytes, fd, n_bytes);
}

_public_ int folio_object_read_file(struct folio_object *handle, uint64_t offset_bytes, int fd, uint64_t n_bytes)
{
        int r;
        Object *object = object_find(handle, &r);
        const uint8_t *data;

        if (!object)
                return r;
        if (fd < 0)
                return error_set(FOLIO_E_INVALID, "%d is no descriptor", fd);
        r = object_check_readable(object, offset_bytes, n_bytes);
        if (r < 0 || n_bytes == 0)
                return r;
        data = object->staged ? object->staged : object_peek(object);
        if (!data && object->fd >= 0)
                return read_region(object->fd, object->offset_bytes + offset_bytes, fd, n_bytes);
        if (!data) {
                r = object_attach_mapped(object, false);
                if (r < 0)
                        return r;
                data = r > 0 ? object_peek(object) : NULL;
        }
        return data ? read_memory(data + offset_bytes, fd, n_bytes) : read_unmapped(object, offset_bytes, fd, n_bytes);
}
