/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on numbers from outside. Every function returns false, and leaves the result alone, where the true
 * result does not fit: a size, count or offset that came from a peer passes through here before anything uses it.
 */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *ret)
{
        uint64_t sum;

        if (__builtin_add_overflow(a, b, &sum))
                return false;
        *ret = sum;
        return true;
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *ret)
{
        uint64_t product;

        if (__builtin_mul_overflow(a, b, &product))
                return false;
        *ret = product;
        return true;
}

/* @alignment is a power of two. */
static inline bool checked_align_up(uint64_t x, uint64_t alignment, uint64_t *ret)
{
        uint64_t sum;

        if (!checked_add(x, alignment - 1, &sum))
                return false;
        *ret = sum & ~(alignment - 1);
        return true;
}

/* Is [offset, offset + length) inside [0, size)? An empty range at the very end is. */
static inline bool checked_range(uint64_t offset, uint64_t length, uint64_t size)
{
        return offset <= size && length <= size - offset;
}

/* Into a size_t, for the calls that take one: on a 32-bit machine most large objects end here. */
static inline bool checked_size(uint64_t x, size_t *ret)
{
        if (x > SIZE_MAX)
                return false;
        *ret = (size_t)x;
        return true;
}

#endif
