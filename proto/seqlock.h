/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The five verbs on shared memory that one process writes and others read without asking: begin and end a write,
 * begin and check a read, copy words. No other file uses a raw atomic on the payload of a seqlock.
 *
 * The sequence is odd while a write is going on. One writer only. Payload moves as relaxed atomic words, so that a
 * torn read is a wrong value, never undefined; the acquire fence orders the copy before the second look.
 */
#ifndef PROTO_SEQLOCK_H
#define PROTO_SEQLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For readers: after the store, a reader that copies payload will see an odd sequence, or a changed one. */
static inline void seqlock_write_begin(uint32_t *sequence)
{
        _Atomic uint32_t *s = (_Atomic uint32_t *)sequence;

        atomic_store_explicit(s, atomic_load_explicit(s, memory_order_relaxed) + 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
}

/* For readers: who sees the even number sees the whole payload. */
static inline void seqlock_write_end(uint32_t *sequence)
{
        _Atomic uint32_t *s = (_Atomic uint32_t *)sequence;

        atomic_store_explicit(s, atomic_load_explicit(s, memory_order_relaxed) + 1, memory_order_release);
}

/* False: a write is going on; try again. */
static inline bool seqlock_read_begin(const uint32_t *sequence, uint32_t *ret)
{
        *ret = atomic_load_explicit((const _Atomic uint32_t *)sequence, memory_order_acquire);
        return (*ret & 1) == 0;
}

/* True: what was copied since seqlock_read_begin() is whole. */
static inline bool seqlock_read_check(const uint32_t *sequence, uint32_t begun)
{
        atomic_thread_fence(memory_order_acquire);
        return atomic_load_explicit((const _Atomic uint32_t *)sequence, memory_order_relaxed) == begun;
}

/* Both ends aligned to 8. The shared side is @from when reading, @to when writing; the other is private. */
static inline void seqlock_copy_out(void *to, const void *from, size_t n_words)
{
        uint64_t *t = to;
        const _Atomic uint64_t *f = from;

#pragma GCC unroll 16
        for (size_t i = 0; i < n_words; i++)
                t[i] = atomic_load_explicit(&f[i], memory_order_relaxed);
}

static inline void seqlock_copy_in(void *to, const void *from, size_t n_words)
{
        _Atomic uint64_t *t = to;
        const uint64_t *f = from;

        for (size_t i = 0; i < n_words; i++)
                atomic_store_explicit(&t[i], f[i], memory_order_relaxed);
}

#endif
