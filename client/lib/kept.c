/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash with open addressing, at most half full. What is taken out leaves no mark: those behind it move up, so a
 * search ends at the first empty place however many have come and gone. Knows nothing of who waits for what.
 */
#include "client/lib/kept.h"

#include <assert.h>
#include <stdlib.h>

#include "base/macro.h"

#define KEPT_RESULTS_MIN 64u

/* Numbers that follow each other stand side by side: they are asked for in about that order. */
static size_t kept_home(const Kept *kept, uint64_t sequence_end)
{
        return (size_t)sequence_end & (kept->n_results_max - 1);
}

static size_t kept_next(const Kept *kept, size_t place)
{
        return (place + 1) & (kept->n_results_max - 1);
}

static void kept_put(Kept *kept, const KeptResult *result)
{
        size_t place = kept_home(kept, result->sequence_end);

        while (kept->results[place].sequence_end != 0) {
                assert(kept->results[place].sequence_end != result->sequence_end);
                place = kept_next(kept, place);
        }
        kept->results[place] = *result;
}

static bool kept_grow(Kept *kept)
{
        Kept grown = { .n_results_max = MAX(2 * kept->n_results_max, KEPT_RESULTS_MIN), .n_results = kept->n_results };

        grown.results = calloc(grown.n_results_max, sizeof(*grown.results));
        if (!grown.results)
                return false;
        for (size_t i = 0; i < kept->n_results_max; i++)
                if (kept->results[i].sequence_end != 0)
                        kept_put(&grown, &kept->results[i]);
        free(kept->results);
        *kept = grown;
        return true;
}

bool kept_push(Kept *kept, const KeptResult *result)
{
        assert(result->sequence_end != 0);
        if (2 * kept->n_results >= kept->n_results_max && !kept_grow(kept))
                return false;
        kept_put(kept, result);
        kept->n_results++;
        return true;
}

/* Fills the hole at @hole: with the next behind it that may stand there, whose own hole is filled in turn. */
static void kept_close_hole(Kept *kept, size_t hole)
{
        size_t mask = kept->n_results_max - 1;

        for (size_t place = kept_next(kept, hole); kept->results[place].sequence_end != 0;
             place = kept_next(kept, place)) {
                size_t home = kept_home(kept, kept->results[place].sequence_end);

                /* It must not come to stand before its home. */
                if (((place - home) & mask) < ((place - hole) & mask))
                        continue;
                kept->results[hole] = kept->results[place];
                hole = place;
        }
        kept->results[hole] = (KeptResult){ 0 };
}

bool kept_take(Kept *kept, uint64_t sequence, KeptResult *ret)
{
        if (kept->n_results == 0)
                return false;
        for (size_t place = kept_home(kept, sequence + 1); kept->results[place].sequence_end != 0;
             place = kept_next(kept, place)) {
                if (kept->results[place].sequence_end != sequence + 1)
                        continue;
                *ret = kept->results[place];
                kept_close_hole(kept, place);
                kept->n_results--;
                return true;
        }
        return false;
}

void kept_deinit(Kept *kept)
{
        for (size_t i = 0; i < kept->n_results_max; i++)
                free(kept->results[i].failure);
        free(kept->results);
        *kept = (Kept)KEPT_NULL;
}
