/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling the process that opened a client from its children, without a system call: a word in a page that the kernel
 * hands to a child as zeros. A mark is what the word was when the client was opened. Knows no client.
 */
#ifndef CLIENT_LIB_FORKED_H
#define CLIENT_LIB_FORKED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* NULL before the first forked_take_mark(). */
extern _Atomic uint32_t *_Atomic forked_word;

/* The mark of this process, never 0. 0 or a negative errno. */
int forked_take_mark(uint32_t *ret);

/* True: @mark was taken in this process, and not in one it was forked from. */
static inline bool forked_is_mine(uint32_t mark)
{
        return atomic_load_explicit(atomic_load_explicit(&forked_word, memory_order_relaxed), memory_order_relaxed) == mark;
}

#endif
