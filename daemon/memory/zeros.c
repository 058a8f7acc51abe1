/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See zeros.h. Pages are what the list counts in; a hole that begins or ends inside one is cut to whole pages, but at
 * the end of the bytes that count, where the rest of the page is nobody's.
 */
#include "daemon/memory/zeros.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/pages.h"

#define READ_BYTES (64 * KIB)

static uint64_t end_page(const LayoutExtent *extent)
{
        return (uint64_t)extent->first_page + extent->n_pages;
}

/* The first range that ends at @page or behind it. */
static uint32_t find_from(const LayoutExtents *zeros, uint64_t page)
{
        uint32_t low = 0, high = zeros->n_extents;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (end_page(&zeros->extents[middle]) < page)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

/* Ranges [@at, @at + @n_old) become @n_new, whose contents are the caller's. */
static void splice(LayoutExtents *zeros, uint32_t at, uint32_t n_old, uint32_t n_new)
{
        memmove(&zeros->extents[at + n_new], &zeros->extents[at + n_old],
                (zeros->n_extents - at - n_old) * sizeof(zeros->extents[0]));
        zeros->n_extents = zeros->n_extents - n_old + n_new;
}

static uint32_t find_smallest(const LayoutExtents *zeros)
{
        uint32_t smallest = 0;

        for (uint32_t i = 1; i < zeros->n_extents; i++)
                if (zeros->extents[i].n_pages < zeros->extents[smallest].n_pages)
                        smallest = i;
        return smallest;
}

void zeros_add(LayoutExtents *zeros, uint64_t first_page, uint64_t n_pages)
{
        uint64_t end;
        uint32_t at, n_touched = 0, smallest;

        if (n_pages == 0)
                return;
        if (first_page > UINT32_MAX || n_pages > UINT32_MAX - first_page) {
                zeros->is_partial = 1;
                if (first_page >= UINT32_MAX)
                        return;
                n_pages = UINT32_MAX - first_page;
        }
        end = first_page + n_pages;
        at = find_from(zeros, first_page);
        for (; at + n_touched < zeros->n_extents && zeros->extents[at + n_touched].first_page <= end; n_touched++) {
                first_page = MIN(first_page, zeros->extents[at + n_touched].first_page);
                end = MAX(end, end_page(&zeros->extents[at + n_touched]));
        }
        if (n_touched == 0 && zeros->n_extents == LAYOUT_EXTENTS_MAX) {
                zeros->is_partial = 1;
                smallest = find_smallest(zeros);
                if (zeros->extents[smallest].n_pages >= end - first_page)
                        return;
                splice(zeros, smallest, 1, 0);
                at -= smallest < at ? 1 : 0;
        }
        splice(zeros, at, n_touched, 1);
        zeros->extents[at] = (LayoutExtent){ (uint32_t)first_page, (uint32_t)(end - first_page) };
}

bool zeros_has(const LayoutExtents *zeros, uint64_t offset_bytes, uint64_t n_bytes, uint64_t *ret_end_bytes)
{
        /* The range that holds the page of the first byte ends behind it. */
        uint32_t at = find_from(zeros, offset_bytes / PAGE_BYTES + 1);
        const LayoutExtent *extent = &zeros->extents[at];
        uint64_t end_bytes;

        if (at == zeros->n_extents || (uint64_t)extent->first_page * PAGE_BYTES > offset_bytes)
                return false;
        end_bytes = end_page(extent) * PAGE_BYTES;
        if (end_bytes - offset_bytes < n_bytes)
                return false;
        *ret_end_bytes = end_bytes;
        return true;
}

void zeros_find_pieces(const LayoutExtents *zeros, uint64_t offset_bytes, uint64_t end_bytes, uint64_t *ret_begin_bytes,
                       uint64_t *ret_end_bytes)
{
        uint64_t begin = offset_bytes, end, listed_end;

        /* Where a range ends inside a piece, the piece is not listed as a whole. */
        while (begin < end_bytes && zeros_has(zeros, begin, MIN(HUGE_BYTES, end_bytes - begin), &listed_end))
                begin = MAX(ALIGN_DOWN(listed_end, HUGE_BYTES), begin + HUGE_BYTES);
        begin = MIN(begin, end_bytes);
        for (end = begin; end < end_bytes; end += HUGE_BYTES)
                if (zeros_has(zeros, end, MIN(HUGE_BYTES, end_bytes - end), &listed_end))
                        break;
        *ret_begin_bytes = begin;
        *ret_end_bytes = MIN(end, end_bytes);
}

int zeros_add_holes(int fd, uint64_t n_bytes, uint64_t n_max, const atomic_bool *cancelled, LayoutExtents *zeros)
{
        uint64_t offset = 0, begin, end;
        off_t hole, data;

        for (uint64_t n = 0; offset < n_bytes; n++) {
                if (n == n_max || pages_is_cancelled(cancelled)) {
                        zeros->is_partial = 1;
                        return 0;
                }
                hole = lseek(fd, (off_t)offset, SEEK_HOLE);
                if (hole < 0)
                        return -errno;
                if ((uint64_t)hole >= n_bytes)
                        return 0;
                data = lseek(fd, hole, SEEK_DATA);
                if (data < 0 && errno != ENXIO)
                        return -errno;
                offset = data < 0 ? n_bytes : MIN((uint64_t)data, n_bytes);
                begin = ALIGN_UP((uint64_t)hole, PAGE_BYTES) / PAGE_BYTES;
                end = (offset == n_bytes ? ALIGN_UP(offset, PAGE_BYTES) : offset) / PAGE_BYTES;
                if (begin < end)
                        zeros_add(zeros, begin, end - begin);
        }
        return 0;
}

/* --- by the bytes ------------------------------------------------------------------------------------------------- */

static bool is_zero(const uint64_t *words, size_t n_bytes)
{
        size_t n_words = n_bytes / sizeof(*words), i = 0;
        uint64_t seen = 0;

        /* Pieces long enough for vectors, short enough to end soon. */
        for (; i + 64 <= n_words && seen == 0; i += 64)
                for (size_t j = 0; j < 64; j++)
                        seen |= words[i + j];
        for (; i < n_words && seen == 0; i++)
                seen |= words[i];
        for (size_t j = n_words * sizeof(*words); j < n_bytes; j++)
                seen |= ((const uint8_t *)words)[j];
        return seen == 0;
}

/* True: @n_bytes from @offset_bytes on could be read, and are zeros. */
static bool reads_as_zeros(int fd, uint64_t offset_bytes, size_t n_bytes, uint64_t *buffer)
{
        uint8_t *to = (uint8_t *)buffer;
        size_t n_read = 0;
        ssize_t n;

        while (n_read < n_bytes) {
                n = pread(fd, to + n_read, n_bytes - n_read, (off_t)(offset_bytes + n_read));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return false;
                n_read += (size_t)n;
        }
        return is_zero(buffer, n_bytes);
}

/* *@ret_read: how much was read until that was known. */
static bool is_piece_zero(int fd, uint64_t begin, uint64_t end, uint64_t *buffer, uint64_t *ret_read)
{
        size_t n = (size_t)MIN(end - begin, PAGE_BYTES);
        uint64_t offset = begin;
        bool is = true;

        for (; offset < end && is; n = (size_t)MIN(end - offset, READ_BYTES)) {
                is = reads_as_zeros(fd, offset, n, buffer);
                offset += n;
        }
        *ret_read = offset - begin;
        return is;
}

int zeros_scan(int fd, ZerosScan *scan, uint64_t budget_bytes, const atomic_bool *cancelled, LayoutExtents *zeros)
{
        _cleanup_(cleanup_free) uint64_t *buffer = malloc(READ_BYTES);
        uint64_t n_done = 0, n_read, end, listed_end;

        if (!buffer)
                return -ENOMEM;
        while (!zeros_scan_is_over(scan) && n_done < budget_bytes) {
                end = MIN(scan->offset_bytes + HUGE_BYTES, scan->n_bytes);
                if (zeros_has(zeros, scan->offset_bytes, end - scan->offset_bytes, &listed_end)) {
                        scan->offset_bytes = MAX(MIN(ALIGN_DOWN(listed_end, HUGE_BYTES), scan->n_bytes), end);
                        continue;
                }
                if (pages_is_cancelled(cancelled))
                        return -ECANCELED;
                if (is_piece_zero(fd, scan->offset_bytes, end, buffer, &n_read)) {
                        zeros_add(zeros, scan->offset_bytes / PAGE_BYTES,
                                  (end - scan->offset_bytes + PAGE_BYTES - 1) / PAGE_BYTES);
                        scan->n_added++;
                }
                n_done += MAX(n_read, ZEROS_PIECE_BYTES);
                scan->offset_bytes = end;
        }
        return 0;
}
