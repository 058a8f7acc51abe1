/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers are divided into at most 4096 blocks; a range stands in the block in which it begins, in no order. With
 * thousands of small ranges each block has a few, and with a few large ones most blocks are empty: either way a search
 * looks at little. A range may reach into later blocks, so a search begins as far back as the longest could.
 */
#include "client/lib/ranges.h"

#include <assert.h>
#include <stdlib.h>

#include "base/macro.h"

#define RANGES_BLOCKS_MAX 4096u
#define RANGES_BLOCK_SHIFT_MIN 10u
#define RANGES_BLOCK_ROOM 4u

struct RangesBlock {
        Range *ranges;
        uint32_t n_ranges;
        uint32_t n_ranges_max;
};

void ranges_init(Ranges *ranges, uint32_t n_numbers)
{
        assert(n_numbers > 0);
        *ranges = (Ranges){ .block_shift = RANGES_BLOCK_SHIFT_MIN };
        while ((n_numbers - 1) >> ranges->block_shift >= RANGES_BLOCKS_MAX)
                ranges->block_shift++;
        ranges->n_blocks = ((n_numbers - 1) >> ranges->block_shift) + 1;
}

void ranges_deinit(Ranges *ranges)
{
        for (uint32_t i = 0; ranges->blocks && i < ranges->n_blocks; i++)
                free(ranges->blocks[i].ranges);
        free(ranges->blocks);
        ranges->blocks = NULL;
}

static RangesBlock *ranges_block(const Ranges *ranges, uint32_t number)
{
        assert(number >> ranges->block_shift < ranges->n_blocks);
        return &ranges->blocks[number >> ranges->block_shift];
}

bool ranges_add(Ranges *ranges, uint32_t first, uint32_t n)
{
        RangesBlock *block;

        assert(n > 0);
        if (!ranges->blocks) {
                ranges->blocks = calloc(ranges->n_blocks, sizeof(*ranges->blocks));
                if (!ranges->blocks)
                        return false;
        }
        block = ranges_block(ranges, first);
        if (block->n_ranges == block->n_ranges_max) {
                uint32_t n_max = MAX(2 * block->n_ranges_max, RANGES_BLOCK_ROOM);
                Range *grown = realloc(block->ranges, n_max * sizeof(*grown));

                if (!grown)
                        return false;
                block->ranges = grown;
                block->n_ranges_max = n_max;
        }
        block->ranges[block->n_ranges++] = (Range){ .first = first, .n = n };
        ranges->n_longest = MAX(ranges->n_longest, n);
        ranges->n_ranges++;
        return true;
}

void ranges_remove(Ranges *ranges, uint32_t first, uint32_t n)
{
        RangesBlock *block;

        assert(ranges->n_ranges > 0);
        block = ranges_block(ranges, first);
        for (uint32_t i = block->n_ranges; i-- > 0;) {
                if (block->ranges[i].first != first || block->ranges[i].n != n)
                        continue;
                block->ranges[i] = block->ranges[--block->n_ranges];
                ranges->n_ranges--;
                return;
        }
        assert(!"not in it");
}

bool ranges_find(const Ranges *ranges, uint32_t begin, uint32_t end, Range *ret)
{
        uint32_t reach = ranges->n_longest > 0 ? ranges->n_longest - 1 : 0;
        const Range *found = NULL;

        if (ranges->n_ranges == 0 || begin >= end)
                return false;
        for (uint32_t i = (begin > reach ? begin - reach : 0) >> ranges->block_shift;
             i <= (end - 1) >> ranges->block_shift && i < ranges->n_blocks && !found; i++) {
                const RangesBlock *block = &ranges->blocks[i];

                for (uint32_t j = 0; j < block->n_ranges; j++) {
                        const Range *range = &block->ranges[j];

                        if (range->first < end && (uint64_t)range->first + range->n > begin &&
                            (!found || range->first < found->first))
                                found = range;
                }
        }
        if (found)
                *ret = *found;
        return found != NULL;
}
