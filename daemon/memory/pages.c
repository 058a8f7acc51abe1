/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See pages.h. Two kernel facts shape this file. SEEK_DATA on tmpfs and memfd counts a page that was reserved by
 * fallocate() and not written as a hole, although it takes memory. And one read fault in a 2 MiB folio maps the
 * whole of it by one huge entry if the mapping is aligned like the file, so one page of each piece need be looked at.
 */
#include "daemon/memory/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"

/* Newer than the headers this builds with: the kernel's numbers under names of our own. */
#define PAGES_MADV_POPULATE_READ 22
#define PAGES_MADV_COLLAPSE 25
#define PAGES_IS_HUGE (UINT64_C(1) << 6)

typedef struct PagesScanRange {
        __u64 start;
        __u64 end;
        __u64 categories;
} PagesScanRange;

typedef struct PagesScanArguments {
        __u64 size;
        __u64 flags;
        __u64 start;
        __u64 end;
        __u64 walk_end;
        __u64 vec;
        __u64 vec_len;
        __u64 max_pages;
        __u64 category_inverted;
        __u64 category_mask;
        __u64 category_anyof_mask;
        __u64 return_mask;
} PagesScanArguments;

#define PAGES_PAGEMAP_SCAN _IOWR('f', 16, PagesScanArguments)

/* Small slices are not interrupted again by a signal each millisecond, whatever the kind of pages. */
#define SLICE_BYTES_MIN (UINT64_C(1) << 20)

/* Some milliseconds of collapsing: between two of these it is looked whether to go on. */
#define COLLAPSE_CALL_BYTES (UINT64_C(16) << 20)

DEFINE_CLEANUP(FILE *, cleanup_file, fclose)

int pages_reopen_read_only(int fd, int *ret_fd)
{
        char path[32];
        int new_fd;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        do {
                new_fd = open(path, O_RDONLY | O_CLOEXEC);
        } while (new_fd < 0 && errno == EINTR);
        if (new_fd < 0)
                return -errno;
        *ret_fd = new_fd;
        return 0;
}

int pages_map(int fd, uint64_t size_bytes, bool writable, void **ret_address)
{
        uint64_t reserved_bytes;
        size_t n_reserved, n_mapped;
        char *reserved, *begin;
        int r;

        if (!checked_align_up(size_bytes, PAGE_BYTES, &size_bytes) ||
            !checked_add(size_bytes, HUGE_BYTES, &reserved_bytes) || !checked_size(reserved_bytes, &n_reserved))
                return -ENOMEM;
        n_mapped = (size_t)size_bytes;

        /* The kernel aligns as it likes: take enough address space for an aligned piece, and give the ends back. */
        reserved = mmap(NULL, n_reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED)
                return -errno;
        begin = reserved + (ALIGN_UP((uintptr_t)reserved, (uintptr_t)HUGE_BYTES) - (uintptr_t)reserved);
        if (mmap(begin, n_mapped, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) ==
            MAP_FAILED) {
                r = -errno;
                (void)munmap(reserved, n_reserved);
                return r;
        }
        /* Ends that cannot be given back (the limit of mappings is reached) are address space lost, no memory. */
        if (begin > reserved)
                (void)munmap(reserved, (size_t)(begin - reserved));
        if (begin + n_mapped < reserved + n_reserved)
                (void)munmap(begin + n_mapped, (size_t)(reserved + n_reserved - begin) - n_mapped);
        (void)madvise(begin, n_mapped, MADV_DONTDUMP); /* what users store has no place in a core dump; a hint */
        *ret_address = begin;
        return 0;
}

/* A mapping for looking only, by a descriptor that cannot write; where there is no /proc, by @fd itself. */
static int map_to_look(int fd, uint64_t size_bytes, void **ret_address)
{
        _cleanup_(cleanup_fd) int fd_read_only = -1;
        int r;

        r = pages_reopen_read_only(fd, &fd_read_only);
        return pages_map(r < 0 ? fd : fd_read_only, size_bytes, false, ret_address);
}

int pages_find_data(int fd, uint64_t offset, uint64_t end, uint64_t *ret_offset, uint64_t *ret_end)
{
        off_t data, hole;

        if (offset >= end) {
                *ret_offset = *ret_end = end;
                return 0;
        }
        data = lseek(fd, (off_t)offset, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
                return -errno;
        if (data < 0 || (uint64_t)data >= end) {
                *ret_offset = *ret_end = end;
                return 0;
        }
        hole = lseek(fd, data, SEEK_HOLE);
        if (hole < 0)
                return -errno;
        *ret_offset = (uint64_t)data;
        *ret_end = MIN((uint64_t)hole, end);
        return 0;
}

int pages_scan_huge(const void *address, uint64_t n_bytes, uint64_t *ret_huge_bytes)
{
        _cleanup_(cleanup_fd) int fd = -1;
        PagesScanRange ranges[32];
        PagesScanArguments arguments = {
                .size = sizeof(arguments),
                .start = (uintptr_t)address,
                .end = (uintptr_t)address + n_bytes,
                .vec = (uintptr_t)ranges,
                .vec_len = ARRAY_SIZE(ranges),
                .category_mask = PAGES_IS_HUGE,
                .return_mask = PAGES_IS_HUGE,
        };
        uint64_t huge_bytes = 0;

        fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        while (arguments.start < arguments.end) {
                int n_ranges = ioctl(fd, PAGES_PAGEMAP_SCAN, &arguments);

                if (n_ranges < 0 && errno == EINTR)
                        continue;
                if (n_ranges < 0)
                        return -errno;
                for (int i = 0; i < n_ranges; i++)
                        huge_bytes += ranges[i].end - ranges[i].start;
                if (arguments.walk_end <= arguments.start)
                        break; /* no progress: the kernel is done */
                arguments.start = arguments.walk_end;
        }
        *ret_huge_bytes = huge_bytes;
        return 0;
}

int pages_read_smaps_huge(const void *address, uint64_t n_bytes, uint64_t *ret_huge_bytes)
{
        _cleanup_(cleanup_file) FILE *smaps = NULL;
        unsigned long long begin, end, kib;
        char line[512];
        bool is_ours = false, is_found = false;
        uint64_t huge_kib = 0;

        smaps = fopen("/proc/self/smaps", "re");
        if (!smaps)
                return -errno;
        while (fgets(line, sizeof(line), smaps)) {
                if (sscanf(line, "%llx-%llx ", &begin, &end) == 2) {
                        is_ours = begin == (uintptr_t)address && end - begin == n_bytes;
                        is_found |= is_ours;
                } else if (is_ours && (sscanf(line, "ShmemPmdMapped: %llu kB", &kib) == 1 ||
                                       sscanf(line, "FilePmdMapped: %llu kB", &kib) == 1)) {
                        huge_kib += kib;
                }
        }
        if (!is_found)
                return -ENODATA;
        *ret_huge_bytes = huge_kib * KIB;
        return 0;
}

int pages_count_huge(int fd, uint64_t size_bytes, uint64_t *ret_huge_bytes)
{
        uint64_t mapped_bytes = ALIGN_DOWN(size_bytes, HUGE_BYTES), begin = 0, end = 0, huge_bytes = 0;
        void *address;
        int r;

        if (mapped_bytes == 0) {
                *ret_huge_bytes = 0;
                return 0;
        }
        r = map_to_look(fd, mapped_bytes, &address);
        if (r < 0)
                return r;
        for (uint64_t offset = 0; offset < mapped_bytes; offset = end) {
                r = pages_find_data(fd, offset, mapped_bytes, &begin, &end);
                if (r < 0)
                        goto out;
                /* A folio is written as a whole or not at all, so one that is huge lies wholly in a run of data. */
                for (uint64_t piece = ALIGN_UP(begin, HUGE_BYTES); piece + HUGE_BYTES <= end; piece += HUGE_BYTES)
                        (void)madvise((char *)address + piece, PAGE_BYTES, PAGES_MADV_POPULATE_READ);
        }
        r = pages_scan_huge(address, mapped_bytes, &huge_bytes);
        if (r < 0)
                r = pages_read_smaps_huge(address, mapped_bytes, &huge_bytes);
        if (r == 0)
                *ret_huge_bytes = huge_bytes;
out:
        (void)munmap(address, (size_t)mapped_bytes);
        return r;
}

int pages_fallocate(int fd, int mode, uint64_t offset, uint64_t n_bytes, const atomic_bool *cancelled)
{
        uint64_t slice_bytes_max = PAGES_SLICE_BYTES;

        while (n_bytes > 0) {
                uint64_t slice_bytes = MIN(n_bytes, slice_bytes_max);

                if (pages_is_cancelled(cancelled))
                        return -ECANCELED;
                if (fallocate(fd, mode, (off_t)offset, (off_t)slice_bytes) < 0) {
                        if (errno != EINTR)
                                return -errno;
                        /* The kernel has undone the slice: shorter ones fit between two signals. */
                        slice_bytes_max = MAX(slice_bytes_max / 2, SLICE_BYTES_MIN);
                        continue;
                }
                offset += slice_bytes;
                n_bytes -= slice_bytes;
        }
        return 0;
}

typedef struct Collapse {
        int fd;
        char *address;               /* of offset 0 */
        bool touch;
        const atomic_bool *cancelled;
        uint64_t n_huge;
        uint64_t n_failed;
} Collapse;

static int collapse_at(const Collapse *collapse, uint64_t begin, uint64_t n_bytes)
{
        return madvise(collapse->address + begin, n_bytes, PAGES_MADV_COLLAPSE) < 0 ? -errno : 0;
}

/* Without one page the kernel has nothing to begin with. Allocating a page that is there changes nothing. */
static bool touch_pieces(const Collapse *collapse, uint64_t begin, uint64_t end)
{
        for (uint64_t piece = begin; collapse->touch && piece < end; piece += HUGE_BYTES)
                if (pages_fallocate(collapse->fd, 0, piece, PAGE_BYTES, NULL) < 0)
                        return false;
        return true;
}

static void collapse_piece(Collapse *collapse, uint64_t piece)
{
        int r;

        if (!touch_pieces(collapse, piece, piece + HUGE_BYTES)) {
                collapse->n_failed++;
                return;
        }
        r = collapse_at(collapse, piece, HUGE_BYTES);
        if (r == -EAGAIN || r == -EINTR)
                r = collapse_at(collapse, piece, HUGE_BYTES);
        if (r < 0)
                collapse->n_failed++;
        else
                collapse->n_huge++;
}

/*
 * Many pieces in one call, since each call first waits until every CPU has emptied its lists of new pages, which on a
 * machine at work takes longer than the collapse. Where that does not make all of them huge, one by one: to try
 * again, and to count.
 */
static int collapse_range(Collapse *collapse, uint64_t begin, uint64_t end)
{
        for (uint64_t next; begin < end; begin = next) {
                next = MIN(begin + COLLAPSE_CALL_BYTES, end);
                if (pages_is_cancelled(collapse->cancelled))
                        return -ECANCELED;
                if (touch_pieces(collapse, begin, next) && collapse_at(collapse, begin, next - begin) == 0) {
                        collapse->n_huge += (next - begin) / HUGE_BYTES;
                        continue;
                }
                for (uint64_t piece = begin; piece < next; piece += HUGE_BYTES) {
                        if (pages_is_cancelled(collapse->cancelled))
                                return -ECANCELED;
                        collapse_piece(collapse, piece);
                }
        }
        return 0;
}

int pages_collapse(int fd, uint64_t begin, uint64_t end, bool touch, const atomic_bool *cancelled, uint64_t *ret_n_huge,
                   uint64_t *ret_n_failed)
{
        Collapse collapse = { .fd = fd, .touch = touch, .cancelled = cancelled };
        uint64_t data = 0, data_end = 0, next;
        struct stat st;
        void *address;
        int r;

        begin = ALIGN_UP(begin, HUGE_BYTES);
        end = ALIGN_DOWN(end, HUGE_BYTES);
        *ret_n_huge = *ret_n_failed = 0;
        if (begin >= end)
                return 0;
        if (fstat(fd, &st) < 0)
                return -errno;
        r = map_to_look(fd, end, &address);
        if (r < 0)
                return r;
        collapse.address = address;
        if (touch || (uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size) {
                r = collapse_range(&collapse, begin, end);
        } else {
                for (uint64_t offset = begin; r == 0 && offset < end; offset = next) {
                        next = end;
                        r = pages_find_data(fd, offset, end, &data, &data_end);
                        if (r < 0 || data >= end)
                                break;
                        next = MIN(ALIGN_UP(data_end, HUGE_BYTES), end);
                        r = collapse_range(&collapse, ALIGN_DOWN(data, HUGE_BYTES), next);
                }
        }
        (void)munmap(address, (size_t)end);
        *ret_n_huge = collapse.n_huge;
        *ret_n_failed = collapse.n_failed;
        return r;
}
