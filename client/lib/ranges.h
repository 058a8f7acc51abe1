/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of ranges of numbers below a bound, apart from each other or the same: one that is put in twice has to be
 * taken out twice. Answers which of them is the first in a stretch. Not locked.
 */
#ifndef CLIENT_LIB_RANGES_H
#define CLIENT_LIB_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Range {
        uint32_t first;
        uint32_t n;
} Range;

typedef struct RangesBlock RangesBlock;

typedef struct Ranges {
        RangesBlock *blocks;         /* by where a range begins; NULL: nothing was ever put in */
        uint32_t n_blocks;
        unsigned block_shift;
        uint32_t n_longest;          /* of all that were ever put in */
        size_t n_ranges;
} Ranges;

/* Numbers are below @n_numbers, which is at least 1. Makes nothing yet. */
void ranges_init(Ranges *ranges, uint32_t n_numbers);
void ranges_deinit(Ranges *ranges);

/* @n is at least 1, and all of it below the bound. False: no memory. */
bool ranges_add(Ranges *ranges, uint32_t first, uint32_t n);

/* One that is in it. */
void ranges_remove(Ranges *ranges, uint32_t first, uint32_t n);

/* The one that begins first of those with a number in [@begin, @end). False: none. */
bool ranges_find(const Ranges *ranges, uint32_t begin, uint32_t end, Range *ret);

#endif
