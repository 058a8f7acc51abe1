/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which copy loop is the best here, for a copy of some size out of memory that is in no cache. Begins with what is
 * known of the processor; measures, once in a process, when the guarded copies of a thread have come to so many bytes
 * that the two or three milliseconds do not matter. $FOLIO_COPY names a loop and ends both (not where the program has
 * more rights than its caller; a name that is not known, or not to be had here, counts as none).
 */
#ifndef CLIENT_LIB_COPY_CHOICE_H
#define CLIENT_LIB_COPY_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "client/lib/copy-kernels.h"

/* Below this there is nothing to choose: memcpy(). */
#define CHOICE_BYTES_MIN ((size_t)4 << 10)
/* Copies together that pay for the measurement, and as much as it may take. */
#define CHOICE_MEASURE_BYTES ((size_t)2 << 30) /* what takes so long that 3 ms more are 2 % of it */
#define CHOICE_MEASURE_NS_MAX 3000000

typedef enum ChoiceClass {
        CHOICE_SMALL,  /* below 32 KiB */
        CHOICE_MIDDLE, /* up to 1 MiB */
        CHOICE_LARGE,
        CHOICE_BEYOND, /* the destination will not stay in the caches */
        _CHOICE_CLASS_MAX,
} ChoiceClass;

#define CHOICE_SMALL_BYTES_MAX (((size_t)32 << 10) - 1)
#define CHOICE_MIDDLE_BYTES_MAX ((size_t)1 << 20)

typedef enum ChoiceOrigin {
        CHOICE_ASSUMED,
        CHOICE_MEASURED,
        CHOICE_TOLD,
        _CHOICE_ORIGIN_MAX,
} ChoiceOrigin;

typedef struct Choice {
        ChoiceOrigin origin;
        CopyKernel kernels[_CHOICE_CLASS_MAX];
        CopyFn copies[_CHOICE_CLASS_MAX];
        size_t large_bytes_max; /* what is above is CHOICE_BEYOND */
        char text[160];         /* all this for people */
} Choice;

/* The present one. Never changes once returned; a later call may return another. */
const Choice *choice_get(void);

/*
 * For a copy of @n_bytes that are a part of @n_whole, at least CHOICE_BYTES_MIN. Inside guarded copies: counts what is
 * copied, and measures when it is due.
 */
CopyFn choice_find_counted(size_t n_bytes, size_t n_whole);
/* Without either. */
CopyFn choice_find(size_t n_bytes);

/* What a measurement finds now, with a clock of the caller's: for tests. Negative errno where it has no memory. */
int choice_measure(const Choice *assumed, int64_t (*now_ns)(void), Choice *ret);

#endif
