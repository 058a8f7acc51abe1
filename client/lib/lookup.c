/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of the shared index. The daemon may be writing any of it at this moment, or may have been replaced by something
 * hostile: so every loop has a bound, and every number read from the index is compared with the geometry in the private
 * copy of the header before it is used as a place.
 *
 * What decides. An entry of a bucket is only a hint: the slot it names is copied whole, and hash, key and state of
 * the copy decide. That nothing was found is believed only when the bucket and the number of buckets are what they were
 * before. Knows nothing of pins: what it finds may be gone when it returns.
 */
#include "client/lib/lookup.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/macro.h"
#include "proto/seqlock.h"

#define LOOKUP_TRIES_MAX 256u        /* of a whole search */
#define LOOKUP_SLOT_TRIES_MAX 64u    /* of one slot */
#define LOOKUP_CHAIN_MAX 64u         /* overflow buckets; the daemon's chains are far shorter */
#define LOOKUP_POLL_LOOKS 128u       /* between two looks at the clock */
#define LOOKUP_SLEEP_NS_MAX (UINT64_C(250) * 1000 * 1000)

/* All that can stand in a heap block, in whole words. */
#define LOOKUP_TEXT_BYTES_MAX                                                                                          \
        ALIGN_UP((size_t)FOLIO_KEY_BYTES_MAX - LAYOUT_SLOT_KEY_BYTES + FOLIO_CONTENT_TYPE_BYTES_MAX +                  \
                         FOLIO_METADATA_BYTES_MAX, sizeof(uint64_t))

static inline void lookup_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
}

/* -- slots -------------------------------------------------------------------------------------------------------- */

/* True: *@ret is whole, and ret->sequence is under what it was read. @slot is in range. */
static inline bool lookup_copy_slot(const LayoutSlot *shared, LayoutSlot *ret)
{
        uint32_t begun;

        for (unsigned i = 0; i < LOOKUP_SLOT_TRIES_MAX; i++) {
                if (LIKELY(seqlock_read_begin(&shared->sequence, &begun))) {
                        seqlock_copy_out(ret, shared, LAYOUT_SLOT_WORDS);
                        if (LIKELY(seqlock_read_check(&shared->sequence, begun))) {
                                /* The copied word may be newer than what was checked only in a hostile index. */
                                ret->sequence = begun;
                                return true;
                        }
                }
                lookup_relax();
        }
        return false;
}

/*
 * The first @n_bytes of the slot's heap block; room for them in whole words. False: out of the heap, or the slot has
 * changed.
 */
static bool lookup_copy_heap(const Space *space, uint32_t slot, const LayoutSlot *copy, void *ret, size_t n_bytes)
{
        size_t n_words = ALIGN_UP(n_bytes, sizeof(uint64_t)) / sizeof(uint64_t);
        uint64_t offset = (uint64_t)copy->heap_block * LAYOUT_HEAP_UNIT_BYTES;

        if (copy->heap_block == 0 || !checked_range(offset, n_words * sizeof(uint64_t), space->header.heap_bytes))
                return false;
        seqlock_copy_out(ret, space->heap + offset, n_words);
        return seqlock_read_check(&space->slots[slot].sequence, copy->sequence);
}

typedef enum LookupMatch {
        LOOKUP_MATCH_NO,
        LOOKUP_MATCH_YES,
        LOOKUP_MATCH_TORN,           /* it changes too often, or has just changed */
} LookupMatch;

static inline LookupMatch lookup_match_slot(const Space *space, uint32_t slot, Key key, uint64_t hash, LayoutSlot *ret)
{
        uint64_t tail[ALIGN_UP(FOLIO_KEY_BYTES_MAX - LAYOUT_SLOT_KEY_BYTES, sizeof(uint64_t)) / sizeof(uint64_t)];

        if (UNLIKELY(!lookup_copy_slot(&space->slots[slot], ret)))
                return LOOKUP_MATCH_TORN;
        if (ret->hash != hash || ret->key_bytes != key.n_bytes ||
            memcmp(ret->key, key.bytes, MIN(key.n_bytes, LAYOUT_SLOT_KEY_BYTES)) != 0)
                return LOOKUP_MATCH_NO;
        if (key.n_bytes > LAYOUT_SLOT_KEY_BYTES) {
                if (!lookup_copy_heap(space, slot, ret, tail, key.n_bytes - LAYOUT_SLOT_KEY_BYTES))
                        return LOOKUP_MATCH_TORN;
                if (memcmp(tail, key.bytes + LAYOUT_SLOT_KEY_BYTES, key.n_bytes - LAYOUT_SLOT_KEY_BYTES) != 0)
                        return LOOKUP_MATCH_NO;
        }
        switch (ret->state) {
        case LAYOUT_SLOT_WRITING:
        case LAYOUT_SLOT_SEALED:
        case LAYOUT_SLOT_MUTABLE:
                return LOOKUP_MATCH_YES;
        case LAYOUT_SLOT_RETRACTED:
                /*
                 * Retracted and still in its bucket: the daemon is about to take it out, or to put another in its
                 * place.
                 */
                return LOOKUP_MATCH_TORN;
        default:
                return LOOKUP_MATCH_NO;
        }
}

/* -- buckets ------------------------------------------------------------------------------------------------------ */

/*
 * A bit for each entry that may be it, without a branch: where in a bucket an entry stands cannot be foretold. Four
 * tags at a time where the first is in the low end of a word. Above an entry that is it another may seem to be, as
 * where two keys share a tag.
 */
static inline unsigned lookup_match_tags(const LayoutBucket *bucket, uint16_t tag)
{
        unsigned mask = 0;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        const uint64_t ones = UINT64_C(0x0001000100010001), tops = ones << 15;
        const _Atomic uint64_t *words = (const _Atomic uint64_t *)(const void *)bucket->tag;

        for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES / 4; i++) {
                uint64_t x = atomic_load_explicit(&words[i], memory_order_relaxed) ^ ones * tag;

                /*
                 * The top bit of each lane that is 0 now; the product has the four beside each other at its upper end.
                 */
                x = (x - ones) & ~x & tops;
                mask |= (unsigned)(x * UINT64_C(0x0000200040008001) >> 60) << (4 * i);
        }
#else
        for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++)
                mask |= (unsigned)(atomic_load_explicit(&bucket->tag[i], memory_order_relaxed) == tag) << i;
#endif
        return mask;
}

static_assert(LAYOUT_BUCKET_ENTRIES % 4 == 0 && offsetof(LayoutBucket, tag) % sizeof(uint64_t) == 0, "whole words of tags");

/*
 * A cache line on its way. The empty statement is an effect: gcc takes a function that only prefetches for one that does
 * nothing, and leaves out the calls of it.
 */
static inline void lookup_fetch(const void *at)
{
        __builtin_prefetch(at);
        __asm__ volatile("");
}

/* What will be looked at of a slot, while the first of it is waited for. */
static inline void lookup_fetch_slot(const Space *space, uint32_t slot, bool is_to_pin)
{
        lookup_fetch(&space->slots[slot]);
        lookup_fetch(&space->slots[slot].key);
        if (is_to_pin && space->pin_counters) {
                __builtin_prefetch(&space->pin_counters[slot], 1);
                __asm__ volatile("");
        }
}

/*
 * A bucket and what hangs on it. NO: none of its entries is it, now; the bucket's sequence tells whether that counts.
 */
static inline LookupMatch lookup_scan_chain(const Space *space, const LayoutBucket *bucket, Key key, uint64_t hash,
                                            bool is_to_pin, Lookup *ret)
{
        for (unsigned hops = 0; hops <= LOOKUP_CHAIN_MAX; hops++) {
                uint32_t next;

                for (unsigned mask = lookup_match_tags(bucket, layout_tag(hash)); mask != 0; mask &= mask - 1) {
                        uint32_t entry = atomic_load_explicit(&bucket->slot[__builtin_ctz(mask)], memory_order_relaxed);
                        LookupMatch match;

                        if (entry == 0 || entry > space->header.n_slots_max)
                                continue;
                        lookup_fetch_slot(space, entry - 1, is_to_pin);
                        match = lookup_match_slot(space, entry - 1, key, hash, &ret->copy);
                        ret->slot = entry - 1;
                        if (match != LOOKUP_MATCH_NO)
                                return match;
                }
                next = atomic_load_explicit(&bucket->next, memory_order_relaxed);
                if (LIKELY(next == 0))
                        return LOOKUP_MATCH_NO;
                if (next > space->header.n_overflow_max)
                        return LOOKUP_MATCH_TORN;
                bucket = &space->overflow[next - 1];
        }
        return LOOKUP_MATCH_TORN;
}

static uint8_t lookup_read_grave(const Space *space, uint64_t hash)
{
        const LayoutGrave *grave = &space->graves[layout_grave_place(hash, space->header.n_graves)];
        uint64_t word = atomic_load_explicit(grave, memory_order_relaxed);

        return (word ^ hash) & ~LAYOUT_GRAVE_REASON_MASK ? 0 : (uint8_t)(word & LAYOUT_GRAVE_REASON_MASK);
}

/* UNSURE: try again. MISSING has no reason yet. */
static inline LookupOutcome lookup_try(const Space *space, Key key, uint64_t hash, bool is_to_pin, Lookup *ret)
{
        uint32_t n_buckets = atomic_load_explicit(&space->shared->n_buckets, memory_order_acquire);
        const LayoutBucket *bucket;
        bool is_still;

        if (UNLIKELY(n_buckets == 0 || n_buckets > space->header.n_buckets_max))
                return LOOKUP_UNSURE;
        ret->bucket = layout_bucket(hash, n_buckets);
        bucket = &space->buckets[ret->bucket];
        is_still = seqlock_read_begin((const uint32_t *)&bucket->sequence, &ret->bucket_sequence);
        if (UNLIKELY(!is_still))
                return LOOKUP_UNSURE;
        switch (lookup_scan_chain(space, bucket, key, hash, is_to_pin, ret)) {
        case LOOKUP_MATCH_YES:
                return LOOKUP_FOUND;
        case LOOKUP_MATCH_TORN:
                return LOOKUP_UNSURE;
        case LOOKUP_MATCH_NO:
                break;
        }
        if (!seqlock_read_check((const uint32_t *)&bucket->sequence, ret->bucket_sequence))
                return LOOKUP_UNSURE;
        /* A split that was over before we looked at the bucket has made this number another one. */
        if (atomic_load_explicit(&space->shared->n_buckets, memory_order_relaxed) != n_buckets)
                return LOOKUP_UNSURE;
        return LOOKUP_MISSING;
}

static inline LookupOutcome lookup_try_often(const Space *space, Key key, uint64_t hash, bool is_to_pin, Lookup *ret)
{
        LookupOutcome outcome = LOOKUP_UNSURE;

        for (unsigned i = 0; i < LOOKUP_TRIES_MAX; i++) {
                outcome = lookup_try(space, key, hash, is_to_pin, ret);
                if (LIKELY(outcome != LOOKUP_UNSURE))
                        break;
                lookup_relax();
        }
        return outcome;
}

static inline LookupOutcome lookup_search(const Space *space, Key key, uint64_t hash, uint64_t now_ns, bool is_to_pin,
                                          Lookup *ret)
{
        LookupOutcome outcome = lookup_try_often(space, key, hash, is_to_pin, ret);

        if (outcome == LOOKUP_MISSING)
                ret->reason = lookup_read_grave(space, hash);
        if (outcome == LOOKUP_FOUND && ret->copy.expires_ns != 0 && ret->copy.expires_ns <= now_ns) {
                ret->reason = FOLIO_EVENT_EXPIRED;
                return LOOKUP_MISSING;
        }
        return outcome;
}

static inline LookupOutcome lookup_check(const Space *space, Key key, Lookup *ret)
{
        ret->reason = 0;
        ret->bucket = 0;
        ret->bucket_sequence = 0;
        if (UNLIKELY(!space->shared))
                return LOOKUP_UNSURE;
        return UNLIKELY(key.n_bytes == 0 || key.n_bytes > FOLIO_KEY_BYTES_MAX) ? LOOKUP_MISSING : LOOKUP_FOUND;
}

LookupOutcome lookup_find(const Space *space, Key key, uint64_t now_ns, Lookup *ret)
{
        LookupOutcome outcome = lookup_check(space, key, ret);

        if (UNLIKELY(outcome != LOOKUP_FOUND))
                return outcome;
        return lookup_search(space, key, key_hash(key.bytes, key.n_bytes, space->header.hash_seed), now_ns, false, ret);
}

LookupOutcome lookup_find_to_pin(const Space *space, Key key, uint64_t now_ns, Lookup *ret)
{
        LookupOutcome outcome = lookup_check(space, key, ret);

        if (UNLIKELY(outcome != LOOKUP_FOUND))
                return outcome;
        return lookup_search(space, key, key_hash(key.bytes, key.n_bytes, space->header.hash_seed), now_ns, true, ret);
}

LookupOutcome lookup_find_hashed(const Space *space, Key key, uint64_t hash, uint64_t now_ns, Lookup *ret)
{
        LookupOutcome outcome = lookup_check(space, key, ret);

        return UNLIKELY(outcome != LOOKUP_FOUND) ? outcome : lookup_search(space, key, hash, now_ns, false, ret);
}

LookupOutcome lookup_find_only(const Space *space, Key key, uint64_t hash, Lookup *ret)
{
        LookupOutcome outcome = lookup_check(space, key, ret);

        return UNLIKELY(outcome != LOOKUP_FOUND) ? outcome : lookup_try_often(space, key, hash, false, ret);
}

/* -- ahead -------------------------------------------------------------------------------------------------------- */

/* NULL: the index is being changed, or damaged; nothing to be fetched. */
static inline const LayoutBucket *lookup_bucket(const Space *space, uint64_t hash)
{
        uint32_t n_buckets = atomic_load_explicit(&space->shared->n_buckets, memory_order_relaxed);

        if (UNLIKELY(n_buckets == 0 || n_buckets > space->header.n_buckets_max))
                return NULL;
        return &space->buckets[layout_bucket(hash, n_buckets)];
}

uint64_t lookup_hash_ahead(const Space *space, Key key)
{
        uint64_t hash = key_hash(key.bytes, key.n_bytes, space->header.hash_seed);
        const LayoutBucket *bucket = lookup_bucket(space, hash);

        if (bucket)
                lookup_fetch(bucket);
        return hash;
}

void lookup_slot_ahead(const Space *space, uint64_t hash, bool is_to_pin)
{
        const LayoutBucket *bucket = lookup_bucket(space, hash);
        unsigned mask = bucket ? lookup_match_tags(bucket, layout_tag(hash)) : 0;
        uint32_t entry = mask ? atomic_load_explicit(&bucket->slot[__builtin_ctz(mask)], memory_order_relaxed) : 0;

        if (entry != 0 && entry <= space->header.n_slots_max)
                lookup_fetch_slot(space, entry - 1, is_to_pin);
}

bool lookup_is_still(const Space *space, uint32_t slot, const LayoutSlot *copy)
{
        return slot < space->header.n_slots_max && seqlock_read_check(&space->slots[slot].sequence, copy->sequence);
}

uint32_t lookup_n_slots(const Space *space)
{
        uint32_t n;

        if (!space->shared)
                return 0;
        n = atomic_load_explicit(&space->shared->n_slots, memory_order_acquire);
        return MIN(n, space->header.n_slots_max);
}

bool lookup_read_slot(const Space *space, uint32_t slot, LayoutSlot *ret)
{
        return slot < lookup_n_slots(space) && lookup_copy_slot(&space->slots[slot], ret);
}

bool lookup_read_texts(const Space *space, uint32_t slot, const LayoutSlot *copy, char *key, char *content_type,
                       void *metadata)
{
        uint64_t heap[LOOKUP_TEXT_BYTES_MAX / sizeof(uint64_t)];
        const uint8_t *texts = (const uint8_t *)heap;
        size_t n_inline = MIN(copy->key_bytes, LAYOUT_SLOT_KEY_BYTES), n_tail = copy->key_bytes - n_inline;
        size_t n_wanted = 0;

        if (!space->shared || slot >= space->header.n_slots_max || copy->metadata_bytes > FOLIO_METADATA_BYTES_MAX)
                return false;
        if (key)
                n_wanted = n_tail;
        if (content_type && copy->content_type_bytes > 0)
                n_wanted = n_tail + copy->content_type_bytes;
        if (metadata && copy->metadata_bytes > 0)
                n_wanted = n_tail + copy->content_type_bytes + copy->metadata_bytes;
        if (n_wanted > 0 && !lookup_copy_heap(space, slot, copy, heap, n_wanted))
                return false;
        if (n_wanted == 0 && !seqlock_read_check(&space->slots[slot].sequence, copy->sequence))
                return false;
        if (key) {
                memcpy(key, copy->key, n_inline);
                memcpy(key + n_inline, texts, n_tail);
        }
        if (content_type)
                memcpy(content_type, texts + n_tail, copy->content_type_bytes);
        if (metadata)
                memcpy(metadata, texts + n_tail + copy->content_type_bytes, copy->metadata_bytes);
        return true;
}

LookupOutcome lookup_read_extents(const Space *space, uint32_t slot, const LayoutSlot *copy, LayoutExtents *ret)
{
        uint64_t offset = (uint64_t)copy->extents_block * LAYOUT_HEAP_UNIT_BYTES, heap_bytes = space->header.heap_bytes;
        const size_t head_bytes = offsetof(LayoutExtents, extents);
        bool is_list;

        if (!space->shared || slot >= space->header.n_slots_max || copy->placement != FOLIO_PLACEMENT_OWN ||
            !(copy->flags & LAYOUT_FLAG_ZEROS) || copy->extents_block == 0 ||
            !checked_range(offset, head_bytes, heap_bytes))
                return LOOKUP_MISSING;
        seqlock_copy_out(ret, space->heap + offset, head_bytes / sizeof(uint64_t));
        is_list = ret->n_extents > 0 && ret->n_extents <= LAYOUT_EXTENTS_MAX &&
                  checked_range(offset, layout_extents_bytes(ret->n_extents), heap_bytes);
        if (is_list)
                seqlock_copy_out(ret->extents, space->heap + offset + head_bytes, ret->n_extents);
        if (!seqlock_read_check(&space->slots[slot].sequence, copy->sequence))
                return LOOKUP_UNSURE;
        return is_list ? LOOKUP_FOUND : LOOKUP_MISSING;
}

/* -- sleeping ----------------------------------------------------------------------------------------------------- */

/* Sleeps while *@word is @value. The word is shared between processes; that we may only read it does not matter. */
static bool lookup_sleep_on(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
        uint64_t sleep_ns = MIN(timeout_ns, LOOKUP_SLEEP_NS_MAX);
        /* What SYS_futex takes: two longs, also where time_t has become wider than those. */
        struct {
                long s;
                long ns;
        } timeout = { .s = 0, .ns = (long)sleep_ns };

        if (atomic_load_explicit(word, memory_order_acquire) != value)
                return true;
        if (sleep_ns == 0)
                return false;
        /* A signal, or a wake-up without a change: the caller looks again, and finds out. */
        return syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0) == 0 || errno != ETIMEDOUT;
}

/* The daemon wakes those only who say before that they sleep: see LayoutPinsHeader. */
static bool lookup_sleep(const Space *space, const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
        bool r;

        if (space->pins) {
                (void)atomic_fetch_add_explicit(&space->pins->n_waiting, 1, memory_order_seq_cst);
                atomic_thread_fence(memory_order_seq_cst);
        }
        r = lookup_sleep_on(word, value, timeout_ns);
        if (space->pins)
                (void)atomic_fetch_sub_explicit(&space->pins->n_waiting, 1, memory_order_relaxed);
        return r;
}

static uint64_t lookup_now_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

bool lookup_poll(const Space *space, const Lookup *found, uint64_t timeout_ns)
{
        const _Atomic uint32_t *word;
        uint64_t begun_ns = lookup_now_ns();

        if (!space->shared || found->bucket >= space->header.n_buckets_max)
                return false;
        word = &space->buckets[found->bucket].sequence;
        do {
                for (unsigned i = 0; i < LOOKUP_POLL_LOOKS; i++) {
                        if (atomic_load_explicit(word, memory_order_acquire) != found->bucket_sequence)
                                return true;
                        lookup_relax();
                }
                (void)sched_yield();
        } while (lookup_now_ns() - begun_ns < timeout_ns);
        return false;
}

bool lookup_wait(const Space *space, const Lookup *found, uint64_t timeout_ns)
{
        if (!space->shared || found->bucket >= space->header.n_buckets_max)
                return false;
        return lookup_sleep(space, &space->buckets[found->bucket].sequence, found->bucket_sequence, timeout_ns);
}

void lookup_pause_bucket(const Space *space, uint32_t bucket, uint64_t sleep_ns)
{
        const _Atomic uint32_t *word;

        if (!space->shared || bucket >= space->header.n_buckets_max)
                return;
        word = &space->buckets[bucket].sequence;
        (void)lookup_sleep_on(word, atomic_load_explicit(word, memory_order_acquire), sleep_ns);
}

void lookup_pause_slot(const Space *space, uint32_t slot, uint64_t sleep_ns)
{
        const _Atomic uint32_t *word;

        if (!space->shared || slot >= space->header.n_slots_max)
                return;
        word = (const _Atomic uint32_t *)&space->slots[slot].sequence;
        (void)lookup_sleep_on(word, atomic_load_explicit(word, memory_order_acquire), sleep_ns);
}

/* -- events ------------------------------------------------------------------------------------------------------- */

uint64_t lookup_newest_event(const Space *space)
{
        return space->shared ? atomic_load_explicit(&space->shared->event_sequence, memory_order_acquire) : 0;
}

LookupEventOutcome lookup_read_event(const Space *space, uint64_t sequence, LayoutEvent *ret, uint64_t *ret_oldest)
{
        uint64_t newest = lookup_newest_event(space);
        const LayoutEvent *event;

        /* The last number is nobody's: there would be none after it. */
        if (sequence > newest || sequence == UINT64_MAX)
                return LOOKUP_EVENT_NONE;
        event = &space->events[layout_event_place(sequence, space->header.n_events)];
        if (sequence > 0 && atomic_load_explicit(&event->sequence, memory_order_acquire) == sequence) {
                seqlock_copy_out(ret, event, LAYOUT_EVENT_WORDS);
                atomic_thread_fence(memory_order_acquire);
                if (atomic_load_explicit(&event->sequence, memory_order_relaxed) == sequence)
                        return LOOKUP_EVENT;
        }
        newest = lookup_newest_event(space);
        *ret_oldest = newest > space->header.n_events ? newest - space->header.n_events + 1 : 1;
        /* Always onwards, whatever the index claims: a watcher that follows it comes to an end. */
        *ret_oldest = MAX(*ret_oldest, sequence + 1);
        return LOOKUP_EVENT_LAPPED;
}

bool lookup_wait_event(const Space *space, uint64_t sequence, uint64_t timeout_ns)
{
        uint32_t value;

        if (!space->shared)
                return false;
        /* In this order: an event between the two changes the word that we sleep on. */
        value = atomic_load_explicit(&space->shared->event_futex, memory_order_acquire);
        if (lookup_newest_event(space) > sequence)
                return true;
        return lookup_sleep(space, &space->shared->event_futex, value, timeout_ns);
}
