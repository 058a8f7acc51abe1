/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies by memory and by descriptor: brings the loops, the guard, fresh memory and the crew together. A descriptor's
 * own position is never used, so any number of threads may copy through one. Does not know what the bytes are.
 */
#include "client/lib/copy.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/macro.h"
#include "client/lib/copy-choice.h"
#include "client/lib/crew.h"
#include "client/lib/fresh.h"
#include "client/lib/guard.h"

/* One call moves no more than this: below the kernel's own limit, and a multiple of every page size. */
#define COPY_CALL_BYTES_MAX ((size_t)1 << 30)

#define COPY_OFFSET_MAX (sizeof(off_t) == 8 ? (uint64_t)INT64_MAX : (uint64_t)INT32_MAX)

/* What is a crew's: so much at once, begun where a huge page begins. */
#define COPY_PIECE_BYTES ((size_t)4 << 20)

/* More of what comes later than this would be gone from the first cache again before it is used. */
#define COPY_PREFETCH_BYTES_MAX ((size_t)4 << 10)
#define COPY_LINE_BYTES 64

/* Zeros past the caches: measured as better from here on, and only where the memory is there. */
#define COPY_FILL_STREAM_BYTES_MIN ((size_t)128 << 20)

/* By which loop, whether the destination's pages have to be made, and whether the source may be bad. */
typedef struct Way {
        CopyFn copy;
        bool is_fresh;
        bool is_guarded;
} Way;

typedef struct Pieces {
        Way way;
        uint8_t *to;
        const uint8_t *from;
        size_t n_bytes;
        size_t n_first; /* up to the first border */
        size_t n_ahead;
} Pieces;

static void copy_small(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        (void)n_ahead;
        memcpy(to, from, n_bytes);
}

/* @n_whole: of which these are a part: it is the whole that fits the caches, or not. */
static Way find_way(const void *to, size_t n_bytes, size_t n_whole, bool is_guarded)
{
        Way way = { .is_guarded = is_guarded };

        way.copy = is_guarded ? choice_find_counted(n_bytes, n_whole) : choice_find(n_whole);
        if (n_bytes >= FRESH_BYTES_MIN && fresh_is(to, n_bytes)) {
                /* What the kernel has just made lies in the caches: no stores that pass them by. */
                way.copy = choice_find(FRESH_STEP_BYTES);
                way.is_fresh = true;
        }
        return way;
}

static int copy_step(const Way *way, void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        if (way->is_guarded)
                return guard_call(way->copy, to, from, n_bytes, n_ahead);
        way->copy(to, from, n_bytes, n_ahead);
        return 0;
}

static int copy_by_way(const Way *way, uint8_t *to, const uint8_t *from, size_t n_bytes, size_t n_ahead)
{
        size_t n;

        if (!way->is_fresh)
                return copy_step(way, to, from, n_bytes, n_ahead);
        for (size_t at = 0; at < n_bytes; at += n) {
                int r;

                n = MIN(FRESH_STEP_BYTES, n_bytes - at);
                fresh_make(to + at, n);
                r = copy_step(way, to + at, from + at, n, n_bytes - at - n);
                if (r < 0)
                        return r;
        }
        return 0;
}

void copy_bytes(void *to, const void *from, size_t n_bytes)
{
        if (n_bytes >= CHOICE_BYTES_MIN) {
                Way way = find_way(to, n_bytes, n_bytes, false);

                (void)copy_by_way(&way, to, from, n_bytes, 0);
        } else if (n_bytes > 0) {
                /* memcpy() may not be given NULL, and an empty object has no address. */
                memcpy(to, from, n_bytes);
        }
}

/*
 * To fetch what lies behind the range pays where it is read next, and costs as much again where it is not. A thread that
 * goes on where it has ended is taken to read in order.
 */
static size_t keep_ahead(const void *from, size_t n_bytes, size_t n_ahead)
{
        static _Thread_local uintptr_t last_end;
        bool is_in_order = last_end == (uintptr_t)from;

        last_end = (uintptr_t)from + n_bytes;
        return is_in_order ? n_ahead : 0;
}

int copy_out_part(void *to, const void *from, size_t n_bytes, size_t n_ahead, size_t n_whole)
{
        Way way;

        if (n_whole < CHOICE_BYTES_MIN)
                return guard_call(copy_small, to, from, n_bytes, n_ahead);
        n_ahead = keep_ahead(from, n_bytes, n_ahead);
        way = find_way(to, n_bytes, n_whole, true);
        return copy_by_way(&way, to, from, n_bytes, n_ahead);
}

int copy_out(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        return copy_out_part(to, from, n_bytes, n_ahead, n_bytes);
}

static int copy_piece(void *userdata, size_t piece)
{
        const Pieces *pieces = userdata;
        size_t begin = piece == 0 ? 0 : pieces->n_first + (piece - 1) * COPY_PIECE_BYTES;
        size_t n = MIN(piece == 0 ? pieces->n_first : COPY_PIECE_BYTES, pieces->n_bytes - begin);
        size_t n_left = pieces->n_bytes - begin - n;

        return copy_by_way(&pieces->way, pieces->to + begin, pieces->from + begin, n, n_left > 0 ? 0 : pieces->n_ahead);
}

int copy_out_by(Crew *crew, void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        Pieces pieces = { .to = to, .from = from, .n_bytes = n_bytes, .n_ahead = n_ahead };

        if (!crew || n_bytes < COPY_CREW_BYTES_MIN)
                return copy_out(to, from, n_bytes, n_ahead);
        /* The way for the whole: it is the whole that does not fit the caches. */
        pieces.way = find_way(to, n_bytes, n_bytes, true);
        pieces.n_first = COPY_PIECE_BYTES - ((uintptr_t)from & (size_t)(HUGE_BYTES - 1));
        return crew_run(crew, copy_piece, &pieces,
                        1 + (n_bytes - pieces.n_first + COPY_PIECE_BYTES - 1) / COPY_PIECE_BYTES);
}

static void fill_fresh(uint8_t *to, size_t n_bytes)
{
        size_t n;

        for (size_t at = 0; at < n_bytes; at += n) {
                n = MIN(FRESH_STEP_BYTES, n_bytes - at);
                fresh_make(to + at, n);
                memset(to + at, 0, n);
        }
}

void copy_fill(void *to, size_t n_bytes)
{
        if (n_bytes >= FRESH_BYTES_MIN && fresh_is(to, n_bytes))
                fill_fresh(to, n_bytes);
        else if (n_bytes >= COPY_FILL_STREAM_BYTES_MIN)
                copy_kernel_find_fill(choice_get()->kernels[CHOICE_BEYOND])(to, n_bytes);
        else if (n_bytes > 0)
                memset(to, 0, n_bytes);
}

void copy_prefetch(const void *from, size_t n_bytes)
{
        size_t n_hinted = MIN(n_bytes, COPY_PREFETCH_BYTES_MAX);

        for (size_t i = 0; i < n_hinted; i += COPY_LINE_BYTES)
                __builtin_prefetch((const uint8_t *)from + i);
        /* The last byte's line, where the first byte is not the first of its own. */
        if (n_hinted > 0)
                __builtin_prefetch((const uint8_t *)from + n_hinted - 1);
}

const char *copy_describe(void)
{
        return choice_get()->text;
}

int copy_from_fd(int fd, uint64_t offset_bytes, void *to, size_t n_bytes)
{
        uint8_t *at = to;

        if (!checked_range(offset_bytes, n_bytes, COPY_OFFSET_MAX))
                return -EOVERFLOW;
        while (n_bytes > 0) {
                ssize_t n = pread(fd, at, MIN(n_bytes, COPY_CALL_BYTES_MAX), (off_t)offset_bytes);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -EIO;
                at += n;
                offset_bytes += (uint64_t)n;
                n_bytes -= (size_t)n;
        }
        return 0;
}

int copy_to_fd(int fd, uint64_t offset_bytes, const void *from, size_t n_bytes)
{
        const uint8_t *at = from;

        if (!checked_range(offset_bytes, n_bytes, COPY_OFFSET_MAX))
                return -EOVERFLOW;
        while (n_bytes > 0) {
                ssize_t n = pwrite(fd, at, MIN(n_bytes, COPY_CALL_BYTES_MAX), (off_t)offset_bytes);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -EIO;
                at += n;
                offset_bytes += (uint64_t)n;
                n_bytes -= (size_t)n;
        }
        return 0;
}
