/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See region.h. Two lines are drawn here. A region's file keeps its size once anybody else has it, so whoever maps it
 * never meets the end of it. And seals are only ever added by these functions, which say in @seals what the kernel has
 * accepted.
 *
 * How undoing a failed reservation works: what this call itself has allocated, without a gap up to the place of
 * failure, is punched out again; a slice counts as its own where the file had no data in it before and grew by exactly
 * the slice. Where somebody had pages in a slice already, that slice, and those before it, are left: taking
 * another's bytes would be worse than keeping pages that the next attempt will use.
 *
 * Refuses to know: what the bytes are, who may see them, who pays.
 *
 * Over 600 lines: its seals, its pages and its end hang on each other.
 */
#include "daemon/memory/region.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/pages.h"

#define REGION_MADV_POPULATE_WRITE 23 /* newer than some headers */

#define SEALS_SIZE (F_SEAL_SHRINK | F_SEAL_GROW)
#define SEALS_DAEMON (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define SEALS_FINAL (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static _Atomic uint64_t last_id; /* of the process: also unique among all stores in it */

static uint64_t next_id(void)
{
        return atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
}

static void note_id(uint64_t id)
{
        uint64_t last = atomic_load_explicit(&last_id, memory_order_relaxed);

        while (last < id && !atomic_compare_exchange_weak_explicit(&last_id, &last, id, memory_order_relaxed,
                                                                   memory_order_relaxed))
                ;
}

static bool is_sealable(const Region *region)
{
        return region->backend->capabilities & BACKEND_SEALABLE;
}

DEFINE_CLEANUP(Region *, cleanup_region, region_unref)

bool region_round_size(uint64_t n_bytes, uint64_t *ret)
{
        uint64_t rounded;

        if (!checked_align_up(n_bytes, n_bytes < REGION_WHOLE_FOLIOS_BYTES ? PAGE_BYTES : HUGE_BYTES, &rounded) ||
            rounded > INT64_MAX)
                return false;
        *ret = rounded;
        return true;
}

int region_new(Backend *backend, const char *label, uint64_t size_bytes, Region **ret)
{
        _cleanup_(cleanup_region) Region *region = NULL;
        int r;

        if (size_bytes == 0)
                return -EINVAL;
        if (!region_round_size(size_bytes, &size_bytes))
                return -EFBIG;

        region = calloc(1, sizeof(*region));
        if (!region)
                return -ENOMEM;
        atomic_init(&region->n_references, 1);
        region->backend = backend;
        region->size_bytes = size_bytes;
        region->fd = region->fd_read_only = -1;
        r = backend->ops->create_file(backend, label, size_bytes, &region->fd);
        if (r < 0)
                return r;
        if (is_sealable(region)) {
                int seals = fcntl(region->fd, F_GET_SEALS);

                region->seals = seals < 0 ? 0 : (uint32_t)seals;
        }
        region->id = next_id();
        *ret = steal_ptr(&region);
        return 0;
}

int region_restore(Backend *backend, uint64_t id, uint64_t size_bytes, uint32_t seals, int consume_fd, Region **ret)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        Region *region;
        struct stat st;
        int found = 0;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (backend->capabilities & BACKEND_SEALABLE) {
                found = fcntl(fd, F_GET_SEALS);
                if (found < 0)
                        return errno == EINVAL ? REGION_E_FOREIGN : -errno;
                if (seals & ~(uint32_t)found)
                        return REGION_E_FOREIGN;
        }
        if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != size_bytes || size_bytes == 0 ||
            size_bytes % PAGE_BYTES != 0)
                return REGION_E_FOREIGN;
        region = calloc(1, sizeof(*region));
        if (!region)
                return -ENOMEM;
        atomic_init(&region->n_references, 1);
        region->backend = backend;
        region->size_bytes = size_bytes;
        region->fd = steal_fd(&fd);
        region->fd_read_only = -1;
        region->seals = (uint32_t)found;
        note_id(id);
        region->id = id ? id : next_id();
        *ret = region;
        return 0;
}

void region_skip_ids(uint64_t skipped_id)
{
        note_id(skipped_id);
}

Region *region_ref(Region *region)
{
        atomic_fetch_add_explicit(&region->n_references, 1, memory_order_relaxed);
        return region;
}

void region_unref(Region *region)
{
        if (!region || atomic_fetch_sub_explicit(&region->n_references, 1, memory_order_acq_rel) != 1)
                return;
        region_unmap(region);
        (void)close_fd(region->fd_read_only);
        (void)close_fd(region->fd);
        if (region->kept)
                keeper_drop(region->keeper, region->kept);
        free(region);
}

/* 1: the slice is this call's own, 0: it is not, or a negative errno. */
static int reserve_slice(Region *region, uint64_t offset, uint64_t n_bytes, const atomic_bool *cancelled)
{
        uint64_t data, data_end;
        struct stat before, after;
        int r;

        r = pages_find_data(region->fd, offset, offset + n_bytes, &data, &data_end);
        if (r < 0)
                return r;
        if (fstat(region->fd, &before) < 0)
                return -errno;
        r = pages_fallocate(region->fd, 0, offset, n_bytes, cancelled);
        if (r < 0) {
                /* Parts of the slice may be there, if it was cut by a signal; they are ours if nothing was before. */
                if (data == offset + n_bytes && before.st_blocks == 0)
                        (void)pages_fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, n_bytes,
                                              NULL);
                return r;
        }
        if (fstat(region->fd, &after) < 0)
                return -errno;
        return data == offset + n_bytes &&
               (uint64_t)(after.st_blocks - before.st_blocks) * 512 == ALIGN_UP(offset + n_bytes, PAGE_BYTES) -
                                                                               ALIGN_DOWN(offset, PAGE_BYTES);
}

int region_reserve(Region *region, uint64_t offset_bytes, uint64_t n_bytes, const atomic_bool *cancelled)
{
        uint64_t own_from = offset_bytes, end = offset_bytes + n_bytes, slice_bytes;
        int r;

        if (!checked_range(offset_bytes, n_bytes, region->size_bytes))
                return -EINVAL;
        for (uint64_t offset = offset_bytes; offset < end; offset += slice_bytes) {
                slice_bytes = MIN(end - offset, PAGES_SLICE_BYTES);
                r = reserve_slice(region, offset, slice_bytes, cancelled);
                if (r < 0) {
                        /* Nothing to be done where this fails too; the pages go with the region. */
                        if (own_from < offset)
                                (void)pages_fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, own_from,
                                                      offset - own_from, NULL);
                        return r == -ENOMEM ? -ENOSPC : r;
                }
                if (r == 0)
                        own_from = offset + slice_bytes;
        }
        return 0;
}

int region_punch(Region *region, uint64_t offset_bytes, uint64_t n_bytes, const atomic_bool *cancelled)
{
        uint64_t begin, end;

        if (!checked_range(offset_bytes, n_bytes, region->size_bytes))
                return -EINVAL;
        begin = ALIGN_UP(offset_bytes, PAGE_BYTES);
        end = ALIGN_DOWN(offset_bytes + n_bytes, PAGE_BYTES);
        if (begin >= end)
                return 0;
        return pages_fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, end - begin, cancelled);
}

int region_write(Region *region, uint64_t offset_bytes, const void *bytes, size_t n_bytes)
{
        const uint8_t *from = bytes;

        if (!checked_range(offset_bytes, n_bytes, region->size_bytes))
                return -EINVAL;
        while (n_bytes > 0) {
                ssize_t n = pwrite(region->fd, from, n_bytes, (off_t)offset_bytes);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                from += n;
                offset_bytes += (uint64_t)n;
                n_bytes -= (size_t)n;
        }
        return 0;
}

/* Within one page. One without data reads as zeros already, and writing to it would take memory nobody reserved. */
static int write_zeros(Region *region, uint64_t begin, uint64_t end)
{
        static const char zeros[PAGE_BYTES];
        uint64_t data, data_end;
        int r;

        r = pages_find_data(region->fd, begin, end, &data, &data_end);
        if (r < 0)
                return r;
        if (data == end)
                return 0;
        while (begin < end) {
                ssize_t n = pwrite(region->fd, zeros, (size_t)(end - begin), (off_t)begin);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                begin += (uint64_t)n;
        }
        return 0;
}

int region_zero(Region *region, uint64_t offset_bytes, uint64_t n_bytes, const atomic_bool *cancelled)
{
        uint64_t end = offset_bytes + n_bytes, first_page, last_page;
        int r;

        if (!checked_range(offset_bytes, n_bytes, region->size_bytes))
                return -EINVAL;
        if (pages_is_cancelled(cancelled))
                return -ECANCELED;
        first_page = ALIGN_UP(offset_bytes, PAGE_BYTES);
        last_page = ALIGN_DOWN(end, PAGE_BYTES);
        if (first_page > last_page)
                return write_zeros(region, offset_bytes, end);
        r = write_zeros(region, offset_bytes, first_page);
        if (r < 0)
                return r;
        r = write_zeros(region, last_page, end);
        if (r < 0)
                return r;
        return region_punch(region, first_page, last_page - first_page, cancelled);
}

int region_collapse(Region *region, uint64_t offset_bytes, uint64_t n_bytes, bool touch, const atomic_bool *cancelled,
                    uint64_t *ret_n_huge, uint64_t *ret_n_failed)
{
        uint64_t n_pieces;
        int r;

        *ret_n_huge = *ret_n_failed = 0;
        if (!checked_range(offset_bytes, n_bytes, region->size_bytes))
                return -EINVAL;
        if (!(region->backend->capabilities & BACKEND_COLLAPSIBLE))
                return 0;
        r = pages_collapse(region->fd, offset_bytes, offset_bytes + n_bytes, touch, cancelled, ret_n_huge,
                           ret_n_failed);
        if (r < 0 && r != -ECANCELED) {
                /* It could not even be looked at: that is soft as well, and none of it is huge. */
                n_pieces = ALIGN_DOWN(offset_bytes + n_bytes, HUGE_BYTES) / HUGE_BYTES -
                           ALIGN_UP(offset_bytes, HUGE_BYTES) / HUGE_BYTES;
                *ret_n_failed = MAX(*ret_n_failed, n_pieces);
                r = 0;
        }
        return r;
}

static uint64_t thread_cpu_ns(void)
{
        struct timespec now;

        /* Cannot fail for the calling thread. */
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int region_prepare_part(Region *region, uint64_t offset_bytes, uint64_t n_bytes, bool want_huge, uint64_t piece_ns_max,
                        atomic_bool *is_dear, const atomic_bool *cancelled, uint64_t *ret_n_huge,
                        uint64_t *ret_n_failed)
{
        uint64_t begun_ns;
        int r;

        *ret_n_huge = *ret_n_failed = 0;
        if (!checked_range(offset_bytes, n_bytes, region->size_bytes))
                return -EINVAL;
        if (want_huge && !(region->backend->capabilities & BACKEND_HUGE_AT_ALLOCATION) &&
            !atomic_load_explicit(is_dear, memory_order_relaxed)) {
                begun_ns = thread_cpu_ns();
                r = region_collapse(region, offset_bytes, n_bytes, true, cancelled, ret_n_huge, ret_n_failed);
                if (r < 0)
                        return r;
                /* Free folios are not always at hand: where the host has taken them back, one costs five times as much. */
                if (piece_ns_max && thread_cpu_ns() - begun_ns > n_bytes / HUGE_BYTES * piece_ns_max)
                        atomic_store_explicit(is_dear, true, memory_order_relaxed);
        }
        r = pages_fallocate(region->fd, 0, offset_bytes, n_bytes, cancelled);
        return r == -ENOMEM ? -ENOSPC : r;
}

int region_prepare(Region *region, uint64_t n_bytes, bool want_huge, uint64_t piece_ns_max,
                   const atomic_bool *cancelled, uint64_t *ret_n_huge, uint64_t *ret_n_failed)
{
        atomic_bool is_dear = false;

        *ret_n_huge = *ret_n_failed = 0;
        for (uint64_t offset = 0; offset < n_bytes; offset += REGION_PART_BYTES) {
                uint64_t n_huge, n_failed;
                int r = region_prepare_part(region, offset, MIN(n_bytes - offset, REGION_PART_BYTES), want_huge,
                                            piece_ns_max, &is_dear, cancelled, &n_huge, &n_failed);

                *ret_n_huge += n_huge;
                *ret_n_failed += n_failed;
                if (r < 0)
                        return r;
        }
        return 0;
}

int region_populate(Region *region, const atomic_bool *cancelled)
{
        assert(region->data && region->is_writable);

        /* A folio at a time: nobody can map anything meanwhile, and the loop, which may want to, would spin for it. */
        for (uint64_t offset = 0; offset < region->size_bytes; offset += HUGE_BYTES) {
                if (pages_is_cancelled(cancelled))
                        return -ECANCELED;
                /* A kernel that does not know it leaves the faults to the first writes. */
                (void)madvise(region->data + offset, (size_t)MIN(region->size_bytes - offset, HUGE_BYTES),
                              REGION_MADV_POPULATE_WRITE);
        }
        return 0;
}

int region_measure(Region *region, uint64_t *ret_allocated_bytes, uint64_t *ret_huge_bytes)
{
        uint64_t huge_bytes;
        struct stat st;
        int r;

        if (fstat(region->fd, &st) < 0)
                return -errno;
        r = pages_count_huge(region->fd, region->size_bytes, &huge_bytes);
        if (r < 0)
                return r;
        *ret_allocated_bytes = (uint64_t)st.st_blocks * 512;
        *ret_huge_bytes = huge_bytes;
        return 0;
}

int region_get_allocated(Region *region, uint64_t *ret_allocated_bytes)
{
        struct stat st;

        if (fstat(region->fd, &st) < 0)
                return -errno;
        *ret_allocated_bytes = (uint64_t)st.st_blocks * 512;
        return 0;
}

int region_resize(Region *region, uint64_t size_bytes)
{
        int r;

        assert(!region->data && !(region->seals & SEALS_SIZE));
        if (size_bytes == 0)
                return -EINVAL;
        if (!region_round_size(size_bytes, &size_bytes))
                return -EFBIG;
        do {
                r = ftruncate(region->fd, (off_t)size_bytes);
        } while (r < 0 && errno == EINTR);
        if (r < 0)
                return -errno;
        region->size_bytes = size_bytes;
        return 0;
}

int region_find_zeros(Region *region, uint64_t n_bytes, uint64_t n_max, const atomic_bool *cancelled,
                      LayoutExtents *ret)
{
        *ret = ZEROS_NULL;
        return n_bytes > region->size_bytes ? -EINVAL :
                                              zeros_add_holes(region->fd, n_bytes, n_max, cancelled, ret);
}

int region_scan_zeros(Region *region, ZerosScan *scan, uint64_t budget_bytes, const atomic_bool *cancelled,
                      LayoutExtents *zeros)
{
        return scan->n_bytes > region->size_bytes ? -EINVAL :
                                                    zeros_scan(region->fd, scan, budget_bytes, cancelled, zeros);
}

int region_map(Region *region, bool writable)
{
        void *address;
        int r;

        assert(!region->data);
        if (writable) {
                r = pages_map(region->fd, region->size_bytes, true, &address);
        } else {
                /* Through a descriptor that cannot write: only such a mapping never stands in the way of a seal. */
                r = region_open_read_only(region);
                if (r < 0)
                        return r;
                r = pages_map(region->fd_read_only, region->size_bytes, false, &address);
        }
        if (r < 0)
                return r;
        region->data = address;
        region->is_writable = writable;
        return 0;
}

void region_unmap(Region *region)
{
        if (!region->data)
                return;
        (void)munmap(region->data, (size_t)region->size_bytes);
        region->data = NULL;
        region->is_writable = false;
}

int region_open_read_only(Region *region)
{
        int r, fd;

        if (region->fd_read_only >= 0)
                return 0;
        r = pages_reopen_read_only(region->fd, &fd);
        if (r == -ENOENT && (region->seals & F_SEAL_WRITE)) {
                /* No /proc. The descriptor is open for writing, but of a file that nobody can write to any more. */
                fd = fcntl(region->fd, F_DUPFD_CLOEXEC, 3);
                r = fd < 0 ? -errno : 0;
        }
        if (r < 0)
                return r;
        region->fd_read_only = fd;
        return 0;
}

static int add_seals(Region *region, uint32_t seals)
{
        if ((region->seals & seals) == seals)
                return 0;
        if (fcntl(region->fd, F_ADD_SEALS, (int)seals) < 0)
                return -errno;
        region->seals |= seals;
        return 0;
}

int region_seal_size(Region *region)
{
        return is_sealable(region) ? add_seals(region, SEALS_SIZE) : region_open_read_only(region);
}

int region_seal_size_for_good(Region *region)
{
        return is_sealable(region) ? add_seals(region, SEALS_SIZE | F_SEAL_SEAL) : 0;
}

int region_seal_to_daemon(Region *region)
{
        if (is_sealable(region))
                return add_seals(region, SEALS_DAEMON);
        /* There the mode of the file is the guarantee, and it has that from birth. */
        return region->backend->capabilities & BACKEND_READONLY_BY_MODE ? 0 : -EOPNOTSUPP;
}

int region_seal_finally(Region *region)
{
        int r, seals;

        if (!is_sealable(region))
                return -EOPNOTSUPP;
        r = add_seals(region, SEALS_FINAL);
        if (r != -EPERM)
                return r == -EBUSY ? REGION_E_MAPPED : r;
        /* Somebody has been here before us. It may have been our own four. */
        seals = fcntl(region->fd, F_GET_SEALS);
        if (seals < 0)
                return -errno;
        region->seals = (uint32_t)seals;
        return (region->seals & SEALS_FINAL) == SEALS_FINAL ? 0 : REGION_E_SPOILED;
}

int region_restore_writing(Region *region)
{
        _cleanup_(cleanup_fd) int fd = -1;
        char path[sizeof("/proc/self/fd/") + 10];

        if ((fcntl(region->fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
                return 0;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", region->fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || dup3(fd, region->fd, O_CLOEXEC) < 0)
                return -errno;
        return 0;
}

/* Undoes the first half of region_end_writing(). */
static int reopen_writable(Region *region)
{
        _cleanup_(cleanup_fd) int fd = -1;
        char path[sizeof("/proc/self/fd/") + 10];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", region->fd_read_only);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || dup3(fd, region->fd, O_CLOEXEC) < 0)
                return -errno;
        return 0;
}

/*
 * A read lease is given only on a file that nobody has open for writing, and a mapping keeps its file open: so asking
 * for one, and giving it back, tells. It is asked for through the read-only descriptor once our own writable one is a
 * read-only one too; where the answer is no, that is undone.
 */
static int end_writing(Region *region)
{
        _cleanup_(cleanup_fd) int fd = -1;
        int r;

        assert(!region->is_writable);
        r = region_open_read_only(region);
        if (r < 0)
                return r;
        if ((fcntl(region->fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
                return 0;
        r = pages_reopen_read_only(region->fd, &fd);
        if (r < 0)
                return r;
        /* The number stays, so that whoever looks at it meanwhile never finds another file. */
        if (dup3(fd, region->fd, O_CLOEXEC) < 0)
                return -errno;
        if (fcntl(region->fd_read_only, F_SETLEASE, F_RDLCK) == 0) {
                (void)fcntl(region->fd_read_only, F_SETLEASE, F_UNLCK);
                return 0;
        }
        r = errno == EAGAIN ? REGION_E_MAPPED : -errno;
        (void)reopen_writable(region);
        return r;
}

/* Pages beyond the end can be there too; of huge ones the last may reach over it. */
static int check_size(const Region *region)
{
        struct stat st;

        if (fstat(region->fd, &st) < 0)
                return -errno;
        return (uint64_t)st.st_size == region->size_bytes &&
                               (uint64_t)st.st_blocks * 512 <= ALIGN_UP(region->size_bytes, HUGE_BYTES) ?
                       0 :
                       REGION_E_SPOILED;
}

int region_end_writing(Region *region)
{
        int r = end_writing(region), size;

        if (r == REGION_E_MAPPED)
                return r;
        /* Also where the kernel gives no leases: then it is only what is there now. */
        size = check_size(region);
        return r < 0 && size != REGION_E_SPOILED ? r : size;
}
