/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the source is memory and not a cache, what bounds a copy is how many lines of it are on their way at once. The
 * hardware fetches ahead within a page, per page it has seen a pattern in: a loop on one page after another starts
 * anew at each, a loop on several pages in turn does not (measured: 20 % at blocks of 64 KiB). Software fetches for a
 * temporal cache only: the non-temporal hint costs twice the time on processors that keep such lines out of the second
 * level.
 */
#include "client/lib/copy-kernels.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/macro.h"

static void copy_libc(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        (void)n_ahead;
        memcpy(to, from, n_bytes);
}

static void fill_libc(void *to, size_t n_bytes)
{
        memset(to, 0, n_bytes);
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define LANE_BYTES ((size_t)4096)
#define VECTOR_AHEAD_BYTES ((size_t)2048)

/* Leaf 7, EBX. */
#define FEATURE_ERMS (1u << 9)
#define FEATURE_CLFLUSHOPT (1u << 23)

static void copy_movsb(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        (void)n_ahead;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n_bytes) : : "memory");
}

#define TARGET_AVX512 __attribute__((target("avx512f")))
#define TARGET_AVX2 __attribute__((target("avx2")))
#define ALWAYS_INLINE inline __attribute__((always_inline))

TARGET_AVX512 static ALWAYS_INLINE void avx512_copy_128(uint8_t *to, const uint8_t *from)
{
        __m512i a = _mm512_loadu_si512((const void *)from), b = _mm512_loadu_si512((const void *)(from + 64));

        _mm512_storeu_si512((void *)to, a);
        _mm512_storeu_si512((void *)(to + 64), b);
}

TARGET_AVX512 static ALWAYS_INLINE void avx512_stream_128(uint8_t *to, const uint8_t *from)
{
        __m512i a = _mm512_loadu_si512((const void *)from), b = _mm512_loadu_si512((const void *)(from + 64));

        _mm512_stream_si512((void *)to, a);
        _mm512_stream_si512((void *)(to + 64), b);
}

TARGET_AVX512 static ALWAYS_INLINE void avx512_zero_128(uint8_t *to)
{
        _mm512_stream_si512((void *)to, _mm512_setzero_si512());
        _mm512_stream_si512((void *)(to + 64), _mm512_setzero_si512());
}

TARGET_AVX2 static ALWAYS_INLINE void avx2_copy_128(uint8_t *to, const uint8_t *from)
{
        __m256i a = _mm256_loadu_si256((const void *)from), b = _mm256_loadu_si256((const void *)(from + 32));
        __m256i c = _mm256_loadu_si256((const void *)(from + 64)), d = _mm256_loadu_si256((const void *)(from + 96));

        _mm256_storeu_si256((void *)to, a);
        _mm256_storeu_si256((void *)(to + 32), b);
        _mm256_storeu_si256((void *)(to + 64), c);
        _mm256_storeu_si256((void *)(to + 96), d);
}

TARGET_AVX2 static ALWAYS_INLINE void avx2_stream_128(uint8_t *to, const uint8_t *from)
{
        __m256i a = _mm256_loadu_si256((const void *)from), b = _mm256_loadu_si256((const void *)(from + 32));
        __m256i c = _mm256_loadu_si256((const void *)(from + 64)), d = _mm256_loadu_si256((const void *)(from + 96));

        _mm256_stream_si256((void *)to, a);
        _mm256_stream_si256((void *)(to + 32), b);
        _mm256_stream_si256((void *)(to + 64), c);
        _mm256_stream_si256((void *)(to + 96), d);
}

TARGET_AVX2 static ALWAYS_INLINE void avx2_zero_128(uint8_t *to)
{
        for (size_t at = 0; at < 128; at += 32)
                _mm256_stream_si256((void *)(to + at), _mm256_setzero_si256());
}

#define VECTOR_NAME(what) avx512_##what
#define VECTOR_TARGET TARGET_AVX512
#define VECTOR_COPY avx512_copy_128
#define VECTOR_STREAM avx512_stream_128
#define VECTOR_ZERO avx512_zero_128
#include "client/lib/copy-vector.h"
#undef VECTOR_NAME
#undef VECTOR_TARGET
#undef VECTOR_COPY
#undef VECTOR_STREAM
#undef VECTOR_ZERO

#define VECTOR_NAME(what) avx2_##what
#define VECTOR_TARGET TARGET_AVX2
#define VECTOR_COPY avx2_copy_128
#define VECTOR_STREAM avx2_stream_128
#define VECTOR_ZERO avx2_zero_128
#include "client/lib/copy-vector.h"
#undef VECTOR_NAME
#undef VECTOR_TARGET
#undef VECTOR_COPY
#undef VECTOR_STREAM
#undef VECTOR_ZERO

static bool has_feature(unsigned feature)
{
        unsigned a = 0, b = 0, c = 0, d = 0;

        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & feature);
}

static CopyFn find_wide(CopyFn avx512, CopyFn avx2)
{
        __builtin_cpu_init();
        /* Both ask whether the kernel saves the registers, too. */
        if (__builtin_cpu_supports("avx512f"))
                return avx512;
        return __builtin_cpu_supports("avx2") ? avx2 : NULL;
}

CopyFn copy_kernel_find(CopyKernel kernel)
{
        switch (kernel) {
        case COPY_KERNEL_LIBC:
                return copy_libc;
        case COPY_KERNEL_MOVSB:
                return has_feature(FEATURE_ERMS) ? copy_movsb : NULL;
        case COPY_KERNEL_VECTOR:
                return find_wide(avx512_vector, avx2_vector);
        case COPY_KERNEL_LANES:
                return find_wide(avx512_lanes, avx2_lanes);
        case COPY_KERNEL_STREAM:
                return find_wide(avx512_stream, avx2_stream);
        case _COPY_KERNEL_MAX:
                break;
        }
        return NULL;
}

CopyFn copy_kernel_find_narrow(CopyKernel kernel)
{
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("avx2"))
                return NULL;
        switch (kernel) {
        case COPY_KERNEL_VECTOR:
                return avx2_vector;
        case COPY_KERNEL_LANES:
                return avx2_lanes;
        case COPY_KERNEL_STREAM:
                return avx2_stream;
        case COPY_KERNEL_LIBC:
        case COPY_KERNEL_MOVSB:
        case _COPY_KERNEL_MAX:
                break;
        }
        return NULL;
}

FillFn copy_kernel_find_fill(CopyKernel kernel)
{
        __builtin_cpu_init();
        if (kernel != COPY_KERNEL_STREAM || !__builtin_cpu_supports("avx2"))
                return fill_libc;
        return __builtin_cpu_supports("avx512f") ? avx512_fill : avx2_fill;
}

__attribute__((target("clflushopt"))) static void evict(const uint8_t *bytes, size_t n_bytes)
{
        for (size_t i = 0; i < n_bytes; i += 64)
                _mm_clflushopt((void *)(uintptr_t)(bytes + i));
        _mm_mfence();
}

void copy_kernel_evict(const void *bytes, size_t n_bytes)
{
        if (has_feature(FEATURE_CLFLUSHOPT))
                evict(bytes, n_bytes);
}

#else

CopyFn copy_kernel_find(CopyKernel kernel)
{
        return kernel == COPY_KERNEL_LIBC ? copy_libc : NULL;
}

CopyFn copy_kernel_find_narrow(CopyKernel kernel)
{
        (void)kernel;
        return NULL;
}

FillFn copy_kernel_find_fill(CopyKernel kernel)
{
        (void)kernel;
        return fill_libc;
}

void copy_kernel_evict(const void *bytes, size_t n_bytes)
{
        (void)bytes;
        (void)n_bytes;
}

#endif

static const char *const kernel_names[_COPY_KERNEL_MAX] = {
        [COPY_KERNEL_LIBC] = "libc",
        [COPY_KERNEL_MOVSB] = "movsb",
        [COPY_KERNEL_VECTOR] = "vector",
        [COPY_KERNEL_LANES] = "lanes",
        [COPY_KERNEL_STREAM] = "stream",
};

const char *copy_kernel_name(CopyKernel kernel)
{
        return kernel_names[kernel];
}

CopyKernel copy_kernel_by_name(const char *name)
{
        CopyKernel kernel = COPY_KERNEL_LIBC;

        while (kernel < _COPY_KERNEL_MAX && strcmp(kernel_names[kernel], name) != 0)
                kernel++;
        return kernel;
}
