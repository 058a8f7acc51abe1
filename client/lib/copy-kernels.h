/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops that copy: one for each way that was the fastest on some processor. Each copies exactly what it is told,
 * at any alignment, as memcpy() does (no overlap), owns nothing and keeps nothing, so that a guard may leave it in the
 * middle. Do not know which of them is good here: see copy-choice.
 */
#ifndef CLIENT_LIB_COPY_KERNELS_H
#define CLIENT_LIB_COPY_KERNELS_H

#include <stddef.h>

typedef enum CopyKernel {
        COPY_KERNEL_LIBC,   /* memcpy() */
        COPY_KERNEL_MOVSB,  /* the processor's own string copy */
        COPY_KERNEL_VECTOR, /* wide registers; the source fetched a page ahead, over the end of the block too */
        COPY_KERNEL_LANES,  /* wide registers, on several pages in turn: the fetching hardware follows each of them */
        COPY_KERNEL_STREAM, /* the same, with stores that pass the caches by */
        _COPY_KERNEL_MAX,
} CopyKernel;

/* @n_ahead: how many bytes behind the range may be fetched too; nothing else is touched outside the range. */
typedef void (*CopyFn)(void *to, const void *from, size_t n_bytes, size_t n_ahead);

/* NULL where this processor, or this build, has it not. Never NULL for COPY_KERNEL_LIBC. */
CopyFn copy_kernel_find(CopyKernel kernel);
/* The form for 32-byte registers, also where copy_kernel_find() has a wider one: for tests of all that can run. */
CopyFn copy_kernel_find_narrow(CopyKernel kernel);
/* Zeros, with the stores that @kernel uses. Never NULL. */
typedef void (*FillFn)(void *to, size_t n_bytes);
FillFn copy_kernel_find_fill(CopyKernel kernel);

const char *copy_kernel_name(CopyKernel kernel);
/* By its name; _COPY_KERNEL_MAX where there is none. */
CopyKernel copy_kernel_by_name(const char *name);

/* Out of the caches, so that a measurement begins as a first read does. Nothing where there is no way to. */
void copy_kernel_evict(const void *bytes, size_t n_bytes);

#endif
