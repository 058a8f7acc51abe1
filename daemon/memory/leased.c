/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See leased.h. A leased region is two files: the region, which its holder fills, and the book of it, which the daemon
 * alone can write. Bits are set and cleared word by word, so that a large object costs a store for each 4 KiB of it,
 * and nothing is searched for on the way.
 *
 * Refuses to know: who the holder is, what lies in the units that are taken, who pays.
 */
#include "daemon/memory/leased.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"

#define WORD_UNITS 64u
#define SEARCH_WORDS_MAX 262144u /* a region of 1 GiB: a part of a millisecond, where nothing is found */
#define SEARCH_WORDS_STEP 256u

DEFINE_CLEANUP(Region *, cleanup_region, region_unref)

static _Atomic uint64_t *words_of(const Leased *leased)
{
        return (_Atomic uint64_t *)(void *)((uint8_t *)leased->book + sizeof(LeaseBook));
}

static uint64_t n_words_of(uint64_t region_bytes)
{
        return region_bytes / LEASE_UNIT_BYTES / WORD_UNITS;
}

static_assert(PAGE_BYTES == LEASE_UNIT_BYTES * WORD_UNITS, "a region is whole words");

uint64_t leased_book_bytes(uint64_t region_bytes)
{
        uint64_t n_bytes = sizeof(LeaseBook) + n_words_of(region_bytes) * sizeof(uint64_t);

        /* Cannot fail: it is far from the end of the numbers. */
        return region_round_size(n_bytes, &n_bytes) ? n_bytes : UINT64_MAX;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static void fill_header(LeaseBook *book, const Region *region, const Region *book_region)
{
        /* Nobody has it yet, and the file is zeros: nothing is taken. */
        book->magic = LEASE_MAGIC;
        book->version = LEASE_VERSION;
        book->n_freed_max = LEASE_FREED_MAX;
        book->region_id = region->id;
        book->region_bytes = region->size_bytes;
        book->book_bytes = book_region->size_bytes;
        book->bitmap_offset = sizeof(*book);
        book->is_fresh = 1;
}

static int make_book(Backend *backend, const Region *region, Region **ret)
{
        _cleanup_(cleanup_region) Region *book = NULL;
        int r;

        r = region_new(backend, "folio-book", leased_book_bytes(region->size_bytes), &book);
        if (r < 0)
                return r;
        r = region_map(book, true);
        if (r < 0)
                return r;
        /* Its pages now, and not when the first record names them. */
        r = region_populate(book, NULL);
        if (r < 0)
                return r;
        fill_header((LeaseBook *)(void *)book->data, region, book);
        r = region_seal_to_daemon(book);
        if (r < 0)
                return r;
        r = region_open_read_only(book);
        if (r < 0)
                return r;
        /* The mapping is all that is wanted of it. */
        book->fd = close_fd(book->fd);
        *ret = steal_ptr(&book);
        return 0;
}

int leased_new(Backend *backend, Region *consume_region, Leased **ret)
{
        _cleanup_(cleanup_free) Leased *leased = NULL;
        int r;

        if (consume_region->size_bytes > LEASE_REGION_BYTES_MAX)
                return -EFBIG;
        leased = calloc(1, sizeof(*leased));
        if (!leased)
                return -ENOMEM;
        /* Who may read it has a descriptor, and cannot make one to write through out of that. */
        if (fchmod(consume_region->fd, S_IRUSR | S_IWUSR) < 0)
                return -errno;
        r = region_open_read_only(consume_region);
        if (r < 0)
                return r;
        r = make_book(backend, consume_region, &leased->book_region);
        if (r < 0)
                return r;
        leased->book = (LeaseBook *)(void *)leased->book_region->data;
        leased->region = consume_region;
        *ret = steal_ptr(&leased);
        return 0;
}

int leased_restore(Backend *backend, Region *consume_region, uint32_t epoch, Leased **ret)
{
        int r = leased_new(backend, consume_region, ret);

        if (r < 0)
                return r;
        leased_note_used(*ret);
        /* Nobody has the new book yet; who has the old one finds another number here. */
        atomic_store_explicit(&(*ret)->book->epoch, epoch + 1, memory_order_relaxed);
        return 0;
}

bool leased_read_old(int book_fd, LeasedOld *ret)
{
        LeaseBook book;
        ssize_t n;

        do
                n = pread(book_fd, &book, sizeof(book), 0);
        while (n < 0 && errno == EINTR);
        if (n != sizeof(book) || book.magic != LEASE_MAGIC || book.version != LEASE_VERSION)
                return false;
        *ret = (LeasedOld){
                .region_id = book.region_id,
                .epoch = atomic_load_explicit(&book.epoch, memory_order_relaxed),
                .holder_session = book.holder_session,
                .holder_number = book.holder_number,
        };
        return true;
}

void leased_note_holder(Leased *leased, uint32_t session, uint32_t number)
{
        /* In this order: a holder's number is never seen with another's session. */
        leased->book->holder_session = 0;
        atomic_thread_fence(memory_order_release);
        leased->book->holder_number = number;
        atomic_thread_fence(memory_order_release);
        leased->book->holder_session = session;
}

Region *leased_leave(Leased *leased)
{
        Region *region = leased->region;

        region_unref(leased->book_region);
        free(leased);
        return region;
}

Region *leased_free(Leased *leased)
{
        Region *region;

        if (!leased)
                return NULL;
        assert(leased->used_units == 0 && leased->n_taken == 0);
        region = leased->region;
        region_unref(leased->book_region);
        free(leased);
        return region;
}

/* --- units -------------------------------------------------------------------------------------------------------- */

typedef struct Range {
        uint64_t first, n;           /* units */
        uint64_t first_word, last_word;
        uint64_t first_mask, last_mask; /* where both words are one: of its bits, those in both */
} Range;

static Range range_of(uint64_t offset_bytes, uint64_t n_bytes)
{
        uint64_t first = offset_bytes / LEASE_UNIT_BYTES, n = lease_units(n_bytes), last = first + n - 1;

        return (Range){
                .first = first,
                .n = n,
                .first_word = first / WORD_UNITS,
                .last_word = last / WORD_UNITS,
                .first_mask = UINT64_MAX << first % WORD_UNITS,
                .last_mask = UINT64_MAX >> (WORD_UNITS - 1 - last % WORD_UNITS),
        };
}

static uint64_t get_word(const Leased *leased, uint64_t word)
{
        return atomic_load_explicit(&words_of(leased)[word], memory_order_relaxed);
}

/*
 * Many words of a large object: 1 GiB of it has 2 MiB of them, and the loop waits. A bit is of one byte, which is
 * whole.
 */
static void fill_words(Leased *leased, uint64_t first, uint64_t end, int byte)
{
        memset((uint8_t *)leased->book + sizeof(LeaseBook) + first * sizeof(uint64_t), byte,
               (size_t)(end - first) * sizeof(uint64_t));
}

static uint64_t any_of(const Leased *leased, uint64_t first, uint64_t end)
{
        uint64_t taken = 0;

#pragma GCC unroll 8
        for (uint64_t word = first; word < end; word++)
                taken |= get_word(leased, word);
        return taken;
}

/* For the holder, which looks at bits on their own: no order among them is promised to it. */
static void put_word(Leased *leased, uint64_t word, uint64_t bits)
{
        atomic_store_explicit(&words_of(leased)[word], bits, memory_order_relaxed);
}

static bool is_free(const Leased *leased, const Range *range)
{
        uint64_t taken;

        if (leased->used_units == 0)
                return true;
        if (range->first_word == range->last_word)
                return (get_word(leased, range->first_word) & range->first_mask & range->last_mask) == 0;
        taken = (get_word(leased, range->first_word) & range->first_mask) |
                (get_word(leased, range->last_word) & range->last_mask);
        for (uint64_t word = range->first_word + 1; word < range->last_word && !taken; word += SEARCH_WORDS_STEP)
                taken = any_of(leased, word, MIN(word + SEARCH_WORDS_STEP, range->last_word));
        return taken == 0;
}

int leased_take(Leased *leased, uint64_t offset_bytes, uint64_t n_bytes)
{
        Range range;

        if (!IS_ALIGNED(offset_bytes, LEASE_UNIT_BYTES) || n_bytes > leased->region->size_bytes ||
            !checked_range(offset_bytes, lease_units(n_bytes) * LEASE_UNIT_BYTES, leased->region->size_bytes))
                return LEASED_E_RANGE;
        range = range_of(offset_bytes, n_bytes);
        if (!is_free(leased, &range))
                return LEASED_E_TAKEN;
        if (range.first_word == range.last_word) {
                put_word(leased, range.first_word,
                         get_word(leased, range.first_word) | (range.first_mask & range.last_mask));
        } else {
                put_word(leased, range.first_word, get_word(leased, range.first_word) | range.first_mask);
                fill_words(leased, range.first_word + 1, range.last_word, 0xff);
                put_word(leased, range.last_word, get_word(leased, range.last_word) | range.last_mask);
        }
        leased->used_units += range.n;
        leased->n_taken++;
        return 0;
}

static void log_freed(Leased *leased, const Range *range)
{
        LeaseBook *book = leased->book;
        uint64_t n = atomic_load_explicit(&book->n_freed, memory_order_relaxed);

        atomic_store_explicit(&book->freed[n % LEASE_FREED_MAX],
                              lease_freed((uint32_t)range->first, (uint32_t)range->n), memory_order_relaxed);
        /* For the holder: who sees the number sees the entry, and who sees a bit cleared below sees the number. */
        atomic_store_explicit(&book->n_freed, n + 1, memory_order_release);
        atomic_thread_fence(memory_order_release);
}

void leased_give(Leased *leased, uint64_t offset_bytes, uint64_t n_bytes)
{
        Range range = range_of(offset_bytes, n_bytes);

        assert(leased->n_taken > 0 && leased->used_units >= range.n);
        log_freed(leased, &range);
        if (range.first_word == range.last_word) {
                put_word(leased, range.first_word,
                         get_word(leased, range.first_word) & ~(range.first_mask & range.last_mask));
        } else {
                put_word(leased, range.first_word, get_word(leased, range.first_word) & ~range.first_mask);
                fill_words(leased, range.first_word + 1, range.last_word, 0);
                put_word(leased, range.last_word, get_word(leased, range.last_word) & ~range.last_mask);
        }
        leased->used_units -= range.n;
        leased->n_taken--;
}

/* --- epoch, and what is free -------------------------------------------------------------------------------------- */

uint32_t leased_raise_epoch(Leased *leased)
{
        uint32_t epoch = leased_epoch(leased) + 1;

        atomic_store_explicit(&leased->book->epoch, epoch, memory_order_relaxed);
        /* Half of an agreement: either the holder sees this number after it has raised lease_use[], or we see that. */
        atomic_thread_fence(memory_order_seq_cst);
        return epoch;
}

void leased_note_used(Leased *leased)
{
        leased->book->is_fresh = 0;
}

uint32_t leased_epoch(const Leased *leased)
{
        return atomic_load_explicit(&leased->book->epoch, memory_order_relaxed);
}

/* The longest run of zeros in @bits, neither end of which need be one of the word's. */
static uint64_t longest_run(uint64_t bits)
{
        uint64_t n = 0;

        for (uint64_t free_bits = ~bits; free_bits; free_bits &= free_bits << 1)
                n++;
        return n;
}

uint64_t leased_find_free_bytes(const Leased *leased, uint64_t enough_bytes)
{
        uint64_t n_words = n_words_of(leased->region->size_bytes), n_run = 0, n_best = 0;
        uint64_t n_enough = enough_bytes / LEASE_UNIT_BYTES + (enough_bytes % LEASE_UNIT_BYTES > 0);

        if (leased->used_units == 0)
                return leased->region->size_bytes;
        n_words = MIN(n_words, SEARCH_WORDS_MAX);
        for (uint64_t i = 0; i < n_words && MAX(n_best, n_run) < n_enough; i++) {
                uint64_t bits = get_word(leased, i);

                if (bits == UINT64_MAX) {
                        n_best = MAX(n_best, n_run);
                        n_run = 0;
                        continue;
                }
                if (bits == 0) {
                        n_run += WORD_UNITS;
                        continue;
                }
                n_best = MAX(n_best, n_run + (uint64_t)__builtin_ctzll(bits));
                if (n_best < WORD_UNITS)
                        n_best = MAX(n_best, longest_run(bits));
                n_run = (uint64_t)__builtin_clzll(bits);
        }
        return MAX(n_best, n_run) * LEASE_UNIT_BYTES;
}
