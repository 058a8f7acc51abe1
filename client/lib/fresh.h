/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fresh memory: a destination that the program has room for but has never touched. Each of its pages is a fault at the
 * first store, which costs more than the copy; the kernel makes many of them in one call for less. Only hints and
 * questions: whatever the kernel answers, the store that follows does what it always does.
 */
#ifndef CLIENT_LIB_FRESH_H
#define CLIENT_LIB_FRESH_H

#include <stdbool.h>
#include <stddef.h>

/* Below this the questions would cost more than what is won. */
#define FRESH_BYTES_MIN ((size_t)4 << 20)
/* So much is made at once: it is still in the second cache when the copy comes to it. */
#define FRESH_STEP_BYTES ((size_t)256 << 10)

/* By a few of its pages. False where nothing can be known. At least FRESH_BYTES_MIN. */
bool fresh_is(const void *to, size_t n_bytes);

/* All pages that [@to, @to + @n_bytes) touches, which the caller then writes all of. */
void fresh_make(void *to, size_t n_bytes);

#endif
