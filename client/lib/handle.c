/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table behind handles. A place holds a target, and a state: `generation << 1 | is_live`. A handle is `generation |
 * index | 1`, always odd and never NULL, so that dereferencing one is noticed by everything that checks alignment, and
 * in the low 47 bits, so that it passes for an address of user space with those who tag pointers.
 *
 * Invariants: places are in chunks that are never freed, so a stale handle reads memory that is ours. A live place's
 * target does not change. Whoever moves the state from live to the next generation, by compare-and-swap, owns the
 * target. Free places are a stack whose head carries a counter, against the same head seen twice with other things
 * below it. A place that is neither live nor free is kept by its target's owner, who alone moves it on. There is no
 * lock: a fork() in the middle of another thread's call leaves the child a working table.
 *
 * A generation returns after 2^22 uses of one place (2^11 on 32-bit machines): only a handle kept that long after its
 * end could be taken for another. Does not know what a target is.
 */
#include "client/lib/handle.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if UINTPTR_MAX > UINT32_MAX
#define HANDLE_INDEX_BITS 24
#define HANDLE_GENERATION_BITS 22
#else
#define HANDLE_INDEX_BITS 20
#define HANDLE_GENERATION_BITS 11
#endif

#define HANDLE_CHUNK_BITS 12
#define HANDLE_CHUNK_PLACES (1u << HANDLE_CHUNK_BITS)
#define HANDLE_CHUNKS_MAX (1u << (HANDLE_INDEX_BITS - HANDLE_CHUNK_BITS))
#define HANDLE_INDEX_MASK ((UINT32_C(1) << HANDLE_INDEX_BITS) - 1)
#define HANDLE_GENERATION_MASK ((UINT32_C(1) << HANDLE_GENERATION_BITS) - 1)

typedef struct HandlePlace {
        _Atomic uint32_t state;
        _Atomic uint32_t next;       /* in the stack of free places: index + 1 */
        void *_Atomic target;
} HandlePlace;

static HandlePlace *_Atomic handle_chunks[HANDLE_CHUNKS_MAX];
static _Atomic uint32_t handle_n_chunks;
static _Atomic uint64_t handle_free; /* counter << 32 | index + 1 of the first free place */

static_assert(1 + HANDLE_INDEX_BITS + HANDLE_GENERATION_BITS <= (sizeof(uintptr_t) == 8 ? 47 : 32), "fits an address");

static HandlePlace *handle_place(uint32_t index)
{
        HandlePlace *chunk =
                atomic_load_explicit(&handle_chunks[index >> HANDLE_CHUNK_BITS], memory_order_acquire);

        return chunk ? &chunk[index & (HANDLE_CHUNK_PLACES - 1)] : NULL;
}

static struct folio_object *handle_encode(uint32_t index, uint32_t generation)
{
        uintptr_t high = (uintptr_t)generation << (HANDLE_INDEX_BITS + 1);

        return (struct folio_object *)(high | (uintptr_t)index << 1 | 1);
}

/* NULL: nothing that handle_encode() can have made. */
static inline HandlePlace *handle_decode(struct folio_object *handle, uint32_t *ret_index, uint32_t *ret_state)
{
        uintptr_t bits = (uintptr_t)handle;
        uintptr_t generation = bits >> (HANDLE_INDEX_BITS + 1);

        if (!(bits & 1) || generation > HANDLE_GENERATION_MASK)
                return NULL;
        *ret_index = (uint32_t)(bits >> 1) & HANDLE_INDEX_MASK;
        *ret_state = (uint32_t)generation << 1 | 1;
        return handle_place(*ret_index);
}

/* Of a live state: the one that ends it. */
static uint32_t handle_next_state(uint32_t state)
{
        return (((state >> 1) + 1) & HANDLE_GENERATION_MASK) << 1;
}

/* Puts a chain of free places, linked from @first to @last, on the stack. */
static void handle_push(uint32_t first, HandlePlace *last)
{
        uint64_t head = atomic_load_explicit(&handle_free, memory_order_relaxed), next;

        do {
                atomic_store_explicit(&last->next, (uint32_t)head, memory_order_relaxed);
                next = ((head >> 32) + 1) << 32 | (first + 1);
        } while (!atomic_compare_exchange_weak_explicit(&handle_free, &head, next, memory_order_acq_rel,
                                                        memory_order_relaxed));
}

static HandlePlace *handle_pop(uint32_t *ret_index)
{
        uint64_t head = atomic_load_explicit(&handle_free, memory_order_acquire), next;
        HandlePlace *place;

        do {
                if (!(uint32_t)head)
                        return NULL;
                place = handle_place((uint32_t)head - 1);
                assert(place);
                /* May be somebody else's by now: then the counter has moved on, and so the swap fails. */
                next = ((head >> 32) + 1) << 32 | atomic_load_explicit(&place->next, memory_order_relaxed);
        } while (!atomic_compare_exchange_weak_explicit(&handle_free, &head, next, memory_order_acq_rel,
                                                        memory_order_acquire));
        *ret_index = (uint32_t)head - 1;
        return place;
}

/*
 * Adds a chunk. Threads that find the table full at once may add one each. False: no memory, or the table is at its
 * end.
 */
static bool handle_grow(void)
{
        HandlePlace *chunk = calloc(HANDLE_CHUNK_PLACES, sizeof(*chunk));
        uint32_t n = atomic_load_explicit(&handle_n_chunks, memory_order_relaxed);
        uint32_t base;

        if (!chunk)
                return false;
        for (;; n++) {
                HandlePlace *expected = NULL;

                if (n >= HANDLE_CHUNKS_MAX) {
                        free(chunk);
                        return false;
                }
                if (atomic_compare_exchange_strong_explicit(&handle_chunks[n], &expected, chunk, memory_order_acq_rel,
                                                            memory_order_relaxed))
                        break;
        }
        base = n << HANDLE_CHUNK_BITS;
        for (uint32_t i = 0; i + 1 < HANDLE_CHUNK_PLACES; i++)
                atomic_store_explicit(&chunk[i].next, base + i + 2, memory_order_relaxed);
        /* Only a hint where to look next time: it may lag. */
        atomic_store_explicit(&handle_n_chunks, n + 1, memory_order_relaxed);
        handle_push(base, &chunk[HANDLE_CHUNK_PLACES - 1]);
        return true;
}

struct folio_object *handle_new(void *target)
{
        HandlePlace *place;
        uint32_t index, state;

        assert(target);
        while (!(place = handle_pop(&index)))
                if (!handle_grow())
                        return NULL;
        /* Release: a handle_find() of the place's former handle that sees this target sees the former state gone. */
        atomic_store_explicit(&place->target, target, memory_order_release);
        state = atomic_load_explicit(&place->state, memory_order_relaxed);
        atomic_store_explicit(&place->state, state | 1, memory_order_release);
        return handle_encode(index, state >> 1);
}

void *handle_find(struct folio_object *handle)
{
        uint32_t index, state;
        HandlePlace *place = handle_decode(handle, &index, &state);
        void *target;

        if (!place || atomic_load_explicit(&place->state, memory_order_acquire) != state)
                return NULL;
        target = atomic_load_explicit(&place->target, memory_order_acquire);
        return atomic_load_explicit(&place->state, memory_order_relaxed) == state ? target : NULL;
}

/*
 * Moves the place on to its next generation, if it is still @handle's. *@ret_place is then ours, and not on the stack.
 */
static inline void *handle_end(struct folio_object *handle, HandlePlace **ret_place, uint32_t *ret_index)
{
        uint32_t state;
        HandlePlace *place = handle_decode(handle, ret_index, &state);
        uint32_t next = place ? handle_next_state(state) : 0;
        void *target;

        if (!place || atomic_load_explicit(&place->state, memory_order_acquire) != state)
                return NULL;
        target = atomic_load_explicit(&place->target, memory_order_acquire);
        if (!atomic_compare_exchange_strong_explicit(&place->state, &state, next, memory_order_acq_rel,
                                                     memory_order_relaxed))
                return NULL;
        *ret_place = place;
        return target;
}

void *handle_take(struct folio_object *handle)
{
        HandlePlace *place;
        uint32_t index;
        void *target = handle_end(handle, &place, &index);

        if (target)
                handle_push(index, place);
        return target;
}

void *handle_keep(struct folio_object *handle)
{
        HandlePlace *place;
        uint32_t index;

        return handle_end(handle, &place, &index);
}

/* The place of a handle that handle_keep() has ended: nobody else moves its state. */
static inline HandlePlace *handle_kept_place(struct folio_object *kept, uint32_t *ret_index)
{
        uint32_t state;
        HandlePlace *place = handle_decode(kept, ret_index, &state);

        assert(place && atomic_load_explicit(&place->state, memory_order_relaxed) == handle_next_state(state));
        (void)state;
        return place;
}

struct folio_object *handle_renew(struct folio_object *kept)
{
        uint32_t index, state;
        HandlePlace *place = handle_kept_place(kept, &index);

        state = atomic_load_explicit(&place->state, memory_order_relaxed);
        atomic_store_explicit(&place->state, state | 1, memory_order_release);
        return handle_encode(index, state >> 1);
}

void handle_drop(struct folio_object *kept)
{
        uint32_t index;
        HandlePlace *place = handle_kept_place(kept, &index);

        handle_push(index, place);
}
