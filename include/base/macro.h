/* SPDX-License-Identifier: Apache-2.0 */
/* Macros and pure arithmetic that would be true in any program. No state, no I/O, no word of Folio's own. */
#ifndef BASE_MACRO_H
#define BASE_MACRO_H

#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* @alignment must be a power of two. The sum may wrap: sizes from outside go through checked.h. */
#define ALIGN_UP(x, alignment) (((x) + ((alignment) - 1)) & ~((alignment) - 1))
#define ALIGN_DOWN(x, alignment) ((x) & ~((alignment) - 1))
#define IS_ALIGNED(x, alignment) (((x) & ((alignment) - 1)) == 0)
#define IS_POWER_OF_TWO(x) ((x) != 0 && ((x) & ((x) - 1)) == 0)

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CLAMP(x, lo, hi) MIN(MAX(x, lo), hi)

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define PAGE_BYTES UINT64_C(4096)         /* the granule of accounting; the kernel's page where it is x86-64 */
#define HUGE_BYTES (UINT64_C(2) << 20)    /* a PMD-sized folio */

#define _public_ __attribute__((visibility("default")))
#define _unused_ __attribute__((unused))
#define _printf_(at, first) __attribute__((format(printf, at, first)))
#define _const_ __attribute__((const))

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
