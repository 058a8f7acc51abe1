/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why nothing is placed in a unit twice: it is ours to place in from when we saw its bit clear with nothing of
 * ours on the way there, until we have placed something in it; and meanwhile it is in one window, or in one entry
 * of the classes, or in neither (then a later search finds it), never in two of them.
 *
 *  - A search begins when the daemon has carried out all that was published, steps around what is placed and not
 *    published yet, drops all older windows and entries, and afterwards takes the log as read up to its newest
 *    entry: what the log says later came free later, so it is in no window.
 *  - An entry of the log is taken in once: only while it cannot have been overwritten by a newer one, which would
 *    be found again at its own number. It is used only when its bits are clear, and they are cleared after it is
 *    written.
 *
 * Each search has to wait for the daemon, so it takes in as many windows as it finds, all of a usual region's. An
 * object goes where least is left over: small ones to the beginning of a window, large ones to its end, so that what
 * comes free of large ones is not cut up by small ones that stay. (Where a third of mixed sizes is replaced again and
 * again, the first that fits loses several times as much; what is lost so, tests/integration/test-lease-space prints.)
 * Where there is a lot of room, in a *wide* window, it is not looked for a better one, and large objects begin at whole
 * pages.
 *
 * The book is looked at as numbers and bits. One that lies makes us spoil our own objects, and nothing else: every
 * range is checked against the region.
 */
#include "client/lib/lease.h"

#include <assert.h>

#include "base/checked.h"
#include "base/macro.h"
#include "client/lib/lease-private.h"

/* From here on objects go to the end of a window. */
#define LEASE_LARGE_UNITS (uint32_t)(32 * KIB / LEASE_UNIT_BYTES)
#define LEASE_PAGE_UNITS (uint32_t)(PAGE_BYTES / LEASE_UNIT_BYTES)
/* And from here on it is looked for the best place each time, where there is no wide window. */
#define LEASE_PICKED_UNITS (uint32_t)(4 * KIB / LEASE_UNIT_BYTES)
#define LEASE_WIDE_UNITS (uint32_t)(2 * MIB / LEASE_UNIT_BYTES)
/* A search ends where its windows have so much, and it has looked at so much; where they are too many, it leaves shorter runs out. */
#define LEASE_SEARCH_UNITS (uint32_t)(MIB / LEASE_UNIT_BYTES)
#define LEASE_SCAN_UNITS (uint32_t)(64 * MIB / LEASE_UNIT_BYTES)
#define LEASE_RUN_UNITS_MIN LEASE_PAGE_UNITS
/* After a search that found nothing: the next only when this part of the region has come free. */
#define LEASE_FULL_PART 64u
/* And when this part has, the windows do not say any more where an object fits best. */
#define LEASE_STALE_PART 16u

/* -- that it is not taken away ------------------------------------------------------------------------------------- */

bool lease_begin(Lease *lease)
{
        (void)atomic_fetch_add_explicit(lease->config.use, 1, memory_order_seq_cst);
        /* For the daemon: either it sees that we use the lease, or we see that it has ended it. */
#if defined(__x86_64__) || defined(__i386__)
        atomic_signal_fence(memory_order_seq_cst); /* a locked instruction is a barrier for everything */
#else
        atomic_thread_fence(memory_order_seq_cst);
#endif
        if (LIKELY(atomic_load_explicit(&lease->book->epoch, memory_order_acquire) == lease->config.epoch))
                return true;
        lease_end(lease);
        return false;
}

void lease_end(Lease *lease)
{
        /* For the daemon: who sees 0 finds what was placed in the ring. */
        (void)atomic_fetch_sub_explicit(lease->config.use, 1, memory_order_release);
}

bool lease_guard(Lease *lease, uint64_t offset_bytes, uint64_t n_bytes)
{
        assert(checked_range(offset_bytes, n_bytes, lease->config.region_bytes));
        if (!ranges_add(&lease->guards, (uint32_t)(offset_bytes / LEASE_UNIT_BYTES), (uint32_t)lease_units(n_bytes)))
                return false;
        (void)atomic_fetch_add_explicit(lease->config.use, 1, memory_order_seq_cst);
        return true;
}

void lease_unguard(Lease *lease, uint64_t offset_bytes, uint64_t n_bytes)
{
        ranges_remove(&lease->guards, (uint32_t)(offset_bytes / LEASE_UNIT_BYTES), (uint32_t)lease_units(n_bytes));
        /* It may have been all that a search was short of. */
        lease->freed_units += lease_units(n_bytes);
        lease_end(lease);
}

/* -- what the book says -------------------------------------------------------------------------------------------- */

static uint64_t lease_word(const Lease *lease, uint32_t unit)
{
        return atomic_load_explicit(&lease->words[unit / LEASE_WORD_UNITS], memory_order_relaxed);
}

/* The first unit of [@at, @end) that is taken, or free; @end: none. The caller fences before it relies on it. */
static uint32_t lease_next(const Lease *lease, uint32_t at, uint32_t end, bool taken)
{
        while (at < end) {
                uint64_t word = lease_word(lease, at);
                uint64_t bits = (taken ? word : ~word) & (UINT64_MAX << at % LEASE_WORD_UNITS);

                at = ALIGN_DOWN(at, LEASE_WORD_UNITS);
                if (bits != 0)
                        return MIN(at + (uint32_t)__builtin_ctzll(bits), end);
                at += LEASE_WORD_UNITS;
        }
        return end;
}

static bool lease_is_free(const Lease *lease, uint32_t first, uint32_t n_units)
{
        Range guard;

        if (lease_next(lease, first, first + n_units, true) != first + n_units)
                return false;
        /* What the daemon did before it cleared them comes before what we write there. */
        atomic_thread_fence(memory_order_acquire);
        return !ranges_find(&lease->guards, first, first + n_units, &guard);
}

/* -- what came free lately ----------------------------------------------------------------------------------------- */

static LeaseClass *lease_class(Lease *lease, uint32_t n_units)
{
        return &lease->classes[(n_units ^ n_units >> 8 ^ n_units >> 16) & (LEASE_CLASSES - 1)];
}

static void lease_push(Lease *lease, uint32_t first, uint32_t n_units)
{
        LeaseClass *class = lease_class(lease, n_units);

        /* The size that is used now; the next search finds the others. */
        if (class->n_units != n_units)
                *class = (LeaseClass){ .n_units = n_units };
        class->first[class->n_pushed++ % LEASE_CLASS_ENTRIES] = first;
        class->n_entries = MIN(class->n_entries + 1, LEASE_CLASS_ENTRIES);
        lease->freed_units += n_units;
}

/* Takes in what the log has. False: nothing new. */
static bool lease_read_log(Lease *lease)
{
        uint64_t n_freed = atomic_load_explicit(&lease->book->n_freed, memory_order_acquire);
        uint64_t n_new = n_freed - lease->n_freed;

        if (LIKELY(n_new == 0) || n_new > INT64_MAX)
                return false;
        /* Half of it: the older ones may be written over at any moment. How much has come free we do not know then. */
        if (n_new > lease->n_freed_max / 2) {
                lease->n_freed = n_freed - lease->n_freed_max / 2;
                lease->freed_units += lease->n_units;
        }
        while (lease->n_freed < n_freed) {
                uint64_t number = lease->n_freed++;
                uint64_t entry = atomic_load_explicit(&lease->book->freed[number & (lease->n_freed_max - 1)],
                                                      memory_order_acquire);
                uint64_t newest = atomic_load_explicit(&lease->book->n_freed, memory_order_relaxed);
                uint32_t first = (uint32_t)(entry >> 32), n_units = (uint32_t)entry;

                if (newest - number >= lease->n_freed_max || n_units == 0 ||
                    !checked_range(first, n_units, lease->n_units))
                        continue;
                /* It is in no window: of an honest book. */
                lease_push(lease, first, n_units);
        }
        return true;
}

static bool lease_pop_class(Lease *lease, LeaseClass *class, uint32_t *ret)
{
        /* One whose bits are not clear yet, or that is guarded, stays for later. */
        for (uint32_t i = 1; i <= class->n_entries; i++) {
                uint32_t first = class->first[(class->n_pushed - i) % LEASE_CLASS_ENTRIES];

                if (!lease_is_free(lease, first, class->n_units))
                        continue;
                for (uint32_t j = i; j > 1; j--)
                        class->first[(class->n_pushed - j) % LEASE_CLASS_ENTRIES] =
                                class->first[(class->n_pushed - j + 1) % LEASE_CLASS_ENTRIES];
                class->n_pushed--;
                class->n_entries--;
                lease->freed_units -= MIN(lease->freed_units, class->n_units);
                *ret = first;
                return true;
        }
        return false;
}

static inline bool lease_pop(Lease *lease, uint32_t n_units, uint32_t *ret)
{
        LeaseClass *class = lease_class(lease, n_units);

        if (class->n_units != n_units || class->n_entries == 0)
                return false;
        return lease_pop_class(lease, class, ret);
}

/* -- windows ------------------------------------------------------------------------------------------------------- */

static bool lease_is_large(uint32_t n_units)
{
        return n_units >= LEASE_LARGE_UNITS;
}

static uint32_t lease_units_of(const LeaseWindow *window)
{
        return window->end - window->at;
}

static bool lease_fits(const LeaseWindow *window, uint32_t n_units)
{
        return n_units <= lease_units_of(window);
}

static bool lease_is_wide(const LeaseWindow *window, uint32_t n_units)
{
        return lease_units_of(window) >= MAX(n_units, LEASE_WIDE_UNITS);
}

static void lease_drop_window(Lease *lease, uint32_t index)
{
        uint32_t moved = --lease->n_windows;

        lease->windows[index] = lease->windows[moved];
        /* A current one that was dropped becomes any other: it is looked for anew when it has no room. */
        for (unsigned i = 0; i < ARRAY_SIZE(lease->current); i++)
                if (lease->current[i] == moved)
                        lease->current[i] = index;
}

/* What lies behind a large object in its window is of use for small ones, and is used up first. */
static void lease_add_gap(Lease *lease, uint32_t at, uint32_t end)
{
        uint32_t *small = &lease->current[false];

        if (lease->n_windows == LEASE_WINDOWS_MAX)
                return;
        lease->windows[lease->n_windows] = (LeaseWindow){ .at = at, .end = end };
        if (*small >= lease->n_windows || *small == lease->current[true] || lease_units_of(&lease->windows[*small]) == 0)
                *small = lease->n_windows;
        lease->n_windows++;
}

/* A wide window, or the one of which least is left over. n_windows: none. */
static uint32_t lease_choose(const Lease *lease, uint32_t n_units)
{
        uint32_t best = lease->n_windows, best_units = UINT32_MAX;

        for (uint32_t i = 0; i < lease->n_windows && best_units > n_units; i++) {
                const LeaseWindow *window = &lease->windows[i];
                uint32_t units = lease_units_of(window);

                if (units < n_units || units >= best_units)
                        continue;
                best = i;
                best_units = units;
                if (lease_is_wide(window, n_units))
                        break;
        }
        return best;
}

static uint32_t lease_take_begin(LeaseWindow *window, uint32_t n_units)
{
        uint32_t first = window->at;

        window->at += n_units;
        return first;
}

static uint32_t lease_take_end(Lease *lease, LeaseWindow *window, uint32_t n_units)
{
        uint32_t first = window->end - n_units, end = window->end, aligned = ALIGN_DOWN(first, LEASE_PAGE_UNITS);

        if (lease_is_wide(window, n_units) && aligned >= window->at)
                first = aligned;
        window->end = first;
        if (first + n_units < end)
                lease_add_gap(lease, first + n_units, end);
        return first;
}

static bool lease_take_chosen(Lease *lease, uint32_t n_units, uint32_t *ret)
{
        bool is_large = lease_is_large(n_units);
        uint32_t chosen = lease_choose(lease, n_units), *current = &lease->current[is_large];

        if (chosen == lease->n_windows)
                return false;
        *ret = is_large ? lease_take_end(lease, &lease->windows[chosen], n_units) :
                          lease_take_begin(&lease->windows[chosen], n_units);
        /* Only the one that small objects have used up can be here; an empty one is chosen by nobody. */
        if (lease_units_of(&lease->windows[chosen]) == 0) {
                lease_drop_window(lease, chosen);
        } else if (is_large || n_units < LEASE_PICKED_UNITS || lease_is_wide(&lease->windows[chosen], n_units) ||
                   *current >= lease->n_windows) {
                uint32_t last = *current;

                *current = chosen;
                if (!is_large && last < lease->n_windows && lease_units_of(&lease->windows[last]) == 0)
                        lease_drop_window(lease, last);
        }
        return true;
}

static inline bool lease_take(Lease *lease, uint32_t n_units, uint32_t *ret)
{
        uint32_t current = lease->current[false];

        if (UNLIKELY(lease_is_large(n_units) || current >= lease->n_windows ||
                     !(n_units < LEASE_PICKED_UNITS ? lease_fits(&lease->windows[current], n_units) :
                                                      lease_is_wide(&lease->windows[current], n_units))))
                return lease_take_chosen(lease, n_units, ret);
        *ret = lease_take_begin(&lease->windows[current], n_units);
        return true;
}

/* What is placed and not published, or guarded, cuts a run into pieces. The first such thing in [@begin, @end). */
static bool lease_find_obstacle(const Lease *lease, uint32_t begin, uint32_t end, Range *ret)
{
        bool is_found = ranges_find(&lease->guards, begin, end, ret);

        for (uint32_t i = 0; i < lease->n_listed; i++) {
                const Range *range = &lease->pending[i];

                if (range->first >= end || range->first + range->n <= begin)
                        continue;
                if (!is_found || range->first < ret->first)
                        *ret = *range;
                is_found = true;
        }
        return is_found;
}

typedef struct LeaseSearch {
        uint32_t n_units;            /* that are asked for */
        uint32_t n_run_units_min;
        uint32_t n_short_units;      /* below which they go first where they are too many */
        uint32_t from;               /* where this part begins */
        uint64_t n_found_units;
        bool is_found;               /* one of the windows has room for them */
} LeaseSearch;

static void lease_drop_short(Lease *lease, uint32_t n_units_min)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < lease->n_windows; i++)
                if (lease_units_of(&lease->windows[i]) >= n_units_min)
                        lease->windows[n++] = lease->windows[i];
        lease->n_windows = n;
}

/* True: that is enough. */
static bool lease_add_window(Lease *lease, LeaseSearch *search, uint32_t at, uint32_t end)
{
        LeaseWindow window = { .at = at, .end = end };
        bool fits = lease_fits(&window, search->n_units);

        if (end - at < search->n_run_units_min)
                return false;
        if (lease->n_windows == LEASE_WINDOWS_MAX && search->n_run_units_min < search->n_short_units) {
                search->n_run_units_min = search->n_short_units;
                lease_drop_short(lease, search->n_run_units_min);
                if (end - at < search->n_run_units_min)
                        return false;
        }
        /* When there are too many, the last place is kept for one that is of use. */
        if (lease->n_windows == LEASE_WINDOWS_MAX) {
                if (!fits || search->is_found)
                        return search->is_found;
                lease->n_windows--;
        }
        lease->windows[lease->n_windows++] = window;
        search->n_found_units += end - at;
        search->is_found = search->is_found || fits;
        return search->is_found &&
               ((search->n_found_units >= LEASE_SEARCH_UNITS && end - search->from >= LEASE_SCAN_UNITS) ||
                lease->n_windows == LEASE_WINDOWS_MAX);
}

/* True: that is enough. */
static bool lease_search_part(Lease *lease, LeaseSearch *search, uint32_t begin, uint32_t end)
{
        search->from = begin;
        while (begin < end) {
                uint32_t at = lease_next(lease, begin, end, false);
                uint32_t run_end = lease_next(lease, at, end, true);
                Range obstacle;

                for (begin = run_end; at < run_end;) {
                        uint32_t piece_end = run_end, next = run_end;

                        if (lease_find_obstacle(lease, at, run_end, &obstacle)) {
                                piece_end = MAX(obstacle.first, at);
                                next = MIN(obstacle.first + obstacle.n, run_end);
                        }
                        if (at < piece_end && lease_add_window(lease, search, at, piece_end)) {
                                lease->search_from = piece_end;
                                return true;
                        }
                        at = next;
                }
        }
        return false;
}

/* New windows; where they are many, from behind the last ones on. LEASE_PLACE_*. */
static int lease_search(Lease *lease, uint32_t n_units, uint64_t head)
{
        LeaseSearch search = { .n_units = n_units, .n_run_units_min = 1, .n_short_units = MIN(n_units, LEASE_RUN_UNITS_MIN) };
        uint32_t from = lease->search_from < lease->n_units ? lease->search_from : 0;

        if (lease->full_units != 0 && n_units >= lease->full_units &&
            lease->freed_units < lease->n_units / LEASE_FULL_PART)
                return LEASE_PLACE_FULL;
        if (head < lease->last)
                return LEASE_PLACE_BEHIND;
        if (lease->n_unlisted > 0)
                return LEASE_PLACE_FULL;
        lease->n_windows = 0;
        lease->current[false] = lease->current[true] = UINT32_MAX;
        lease->search_from = 0;
        for (uint32_t i = 0; i < LEASE_CLASSES; i++)
                lease->classes[i].n_entries = 0;
        if (!lease_search_part(lease, &search, from, lease->n_units) && from > 0) {
                /* All of it, as a run may lie across where we began. */
                lease->n_windows = 0;
                search.n_found_units = 0;
                search.is_found = false;
                (void)lease_search_part(lease, &search, 0, lease->n_units);
        }
        /* What was clear when we looked is in the log by now, if it came free since the last look. */
        atomic_thread_fence(memory_order_acquire);
        lease->n_freed = atomic_load_explicit(&lease->book->n_freed, memory_order_acquire);
        lease->freed_units = 0;
        /* What was placed last may have been carried out by another daemon, with a book of its own: this one calls it
         * free. Who has the other's head sees that the first is dead. */
        if (lease->config.beacon && !beacon_is_lit(lease->config.beacon)) {
                lease->n_windows = 0;
                search.is_found = false;
        }
        lease->full_units = search.is_found ? 0 : n_units;
        return search.is_found ? LEASE_PLACE_OK : LEASE_PLACE_FULL;
}

void lease_insist(Lease *lease)
{
        (void)lease_read_log(lease);
        if (lease->freed_units > 0)
                lease->full_units = 0;
}

static bool lease_is_stale(const Lease *lease)
{
        return lease->freed_units >= MAX(lease->n_units / LEASE_STALE_PART, LEASE_LARGE_UNITS);
}

int lease_refresh(Lease *lease, uint64_t n_bytes, uint64_t head)
{
        uint32_t n_units;

        (void)lease_read_log(lease);
        if (LIKELY(!lease_is_stale(lease)) || n_bytes > lease->config.region_bytes)
                return LEASE_PLACE_OK;
        n_units = (uint32_t)lease_units(n_bytes);
        if (lease_class(lease, n_units)->n_units == n_units && lease_class(lease, n_units)->n_entries > 0)
                return LEASE_PLACE_OK;
        return lease_search(lease, n_units, head) == LEASE_PLACE_BEHIND ? LEASE_PLACE_BEHIND : LEASE_PLACE_OK;
}

uint64_t lease_fit_bytes(const Lease *lease, uint64_t n_bytes)
{
        uint32_t n_units, i;
        const LeaseClass *class;

        if (n_bytes > lease->config.region_bytes)
                return UINT64_MAX;
        n_units = (uint32_t)lease_units(n_bytes);
        class = lease_class((Lease *)lease, n_units);
        if (class->n_units == n_units && class->n_entries > 0)
                return 0;
        i = lease_choose(lease, n_units);
        return i == lease->n_windows ? UINT64_MAX : (uint64_t)lease_units_of(&lease->windows[i]) * LEASE_UNIT_BYTES;
}

/* -- placing ------------------------------------------------------------------------------------------------------- */

/* Small ones come from the one side, and large ones from the other. */
static inline void lease_note_fresh(Lease *lease, uint32_t first, uint32_t end)
{
        lease->is_placed_fresh = first >= lease->fresh_from && end <= lease->fresh_to;
        if (LIKELY(end <= lease->fresh_from || first >= lease->fresh_to))
                return;
        if (first - MIN(first, lease->fresh_from) <= lease->fresh_to - MIN(end, lease->fresh_to))
                lease->fresh_from = end;
        else
                lease->fresh_to = first;
}

bool lease_is_placed_fresh(const Lease *lease)
{
        return lease->is_placed_fresh;
}

int lease_place(Lease *lease, uint64_t n_bytes, uint64_t head, uint64_t *ret_offset, void **ret)
{
        uint32_t n_units, first;
        int r;

        if (n_bytes > lease->config.region_bytes)
                return LEASE_PLACE_FULL;
        n_units = (uint32_t)lease_units(n_bytes);
        if (!lease_pop(lease, n_units, &first) &&
            !(lease_read_log(lease) && lease_pop(lease, n_units, &first)) && !lease_take(lease, n_units, &first)) {
                r = lease_search(lease, n_units, head);
                if (r != LEASE_PLACE_OK)
                        return r;
                if (!lease_take(lease, n_units, &first))
                        return LEASE_PLACE_FULL;
        }
        lease_note_fresh(lease, first, first + n_units);
        if (lease->n_listed < LEASE_PENDING_MAX)
                lease->pending[lease->n_listed++] = (Range){ .first = first, .n = n_units };
        else
                lease->n_unlisted++;
        lease->n_pending++;
        *ret_offset = (uint64_t)first * LEASE_UNIT_BYTES;
        *ret = lease->data + *ret_offset;
        return LEASE_PLACE_OK;
}

static void lease_settle(Lease *lease)
{
        assert(lease->n_pending > 0);
        if (--lease->n_pending == 0)
                lease->n_listed = lease->n_unlisted = 0;
}

static void lease_settle_at(Lease *lease, uint32_t first)
{
        uint32_t i = lease->n_listed;

        /* The newest is the one, and the only one, nearly always. */
        while (i-- > 0)
                if (lease->pending[i].first == first)
                        break;
        if (i < lease->n_listed)
                lease->pending[i] = lease->pending[--lease->n_listed];
        else if (lease->n_unlisted > 0)
                lease->n_unlisted--;
        lease_settle(lease);
}

/* Which one it is we do not know: those listed stay so until nothing is pending. */
void lease_placed(Lease *lease, uint64_t sequence)
{
        lease->last = MAX(lease->last, sequence + 1);
        lease_settle(lease);
}

void lease_placed_at(Lease *lease, uint64_t offset_bytes, uint64_t sequence)
{
        lease->last = MAX(lease->last, sequence + 1);
        lease_settle_at(lease, (uint32_t)(offset_bytes / LEASE_UNIT_BYTES));
}

void lease_unplace(Lease *lease, uint64_t offset_bytes, uint64_t n_bytes)
{
        uint32_t first = (uint32_t)(offset_bytes / LEASE_UNIT_BYTES), n_units = (uint32_t)lease_units(n_bytes);
        uint32_t current = lease->current[lease_is_large(n_units)];

        lease_settle_at(lease, first);
        if (current < lease->n_windows && lease->windows[current].at == first + n_units)
                lease->windows[current].at = first;
        else if (current < lease->n_windows && lease->windows[current].end == first)
                lease->windows[current].end = first + n_units;
        else
                lease_push(lease, first, n_units);
}

uint64_t lease_last(const Lease *lease)
{
        return lease->last;
}

uint64_t lease_region_id(const Lease *lease)
{
        return lease->config.region_id;
}

uint64_t lease_region_bytes(const Lease *lease)
{
        return lease->config.region_bytes;
}

uint8_t *lease_data(const Lease *lease)
{
        return lease->data;
}
