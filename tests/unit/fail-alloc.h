/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation that fails on order: the n-th call of malloc(), calloc() or aligned_alloc() of the whole process from
 * the arming on returns NULL, that one only. Include it in one file of a test program. Where a sanitizer owns the
 * allocator it is not available, and fail_alloc_sweep() skips the test.
 */
#ifndef TESTS_UNIT_FAIL_ALLOC_H
#define TESTS_UNIT_FAIL_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define FAIL_ALLOC_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define FAIL_ALLOC_SANITIZED 1
#endif

#ifndef FAIL_ALLOC_SANITIZED

static atomic_int fail_alloc_countdown; /* 0: not armed */

/* The C library's own names for what is replaced here. */
extern void *__libc_malloc(size_t n_bytes);
extern void *__libc_calloc(size_t n, size_t n_bytes);
extern void *__libc_memalign(size_t alignment, size_t n_bytes);

static inline bool fail_alloc_is_due(void)
{
        int left = atomic_load(&fail_alloc_countdown);

        while (left > 0 && !atomic_compare_exchange_weak(&fail_alloc_countdown, &left, left - 1))
                ;
        return left == 1;
}

void *malloc(size_t n_bytes)
{
        return fail_alloc_is_due() ? NULL : __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t n_bytes)
{
        return fail_alloc_is_due() ? NULL : __libc_calloc(n, n_bytes);
}

void *aligned_alloc(size_t alignment, size_t n_bytes)
{
        return fail_alloc_is_due() ? NULL : __libc_memalign(alignment, n_bytes);
}

#endif

/* Skips a test that would make something before its sweep, where there can be no sweep. */
static inline void fail_alloc_skip_sanitized(void)
{
#ifdef FAIL_ALLOC_SANITIZED
        skip();
#endif
}

/*
 * Calls @attempt with the first allocation failing, then the second, and so on, until it no longer reaches the failing
 * one. @attempt makes and frees its thing, and returns 0 or the negative errno of making it. What it leaves behind, the
 * harness finds.
 */
static inline void fail_alloc_sweep(int (*attempt)(void))
{
#ifdef FAIL_ALLOC_SANITIZED
        (void)attempt;
        skip();
#else
        bool was_reached = true;
        int n_failed = 0, r = 0;

        for (int n = 1; was_reached; n++) {
                assert_true(n < 10000);
                atomic_store(&fail_alloc_countdown, n);
                r = attempt();
                was_reached = atomic_exchange(&fail_alloc_countdown, 0) == 0;
                n_failed += r < 0;
        }
        assert_int_equal(r, 0);
        assert_true(n_failed > 0);
#endif
}

#endif
