/* SPDX-License-Identifier: Apache-2.0 */
/* See spares.h. A closed place holds the address of `spares_closed`, which is nobody's item. */
#include "client/lib/spares.h"

#include <assert.h>
#include <stddef.h>

static char spares_closed;

static_assert(IS_POWER_OF_TWO(SPARES_MAX), "a mask of bits");

static void *_Atomic *spares_place(Spares *spares, uint64_t number)
{
        return &spares->places[(number * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (SPARES_MAX - 1)].item;
}

void *spares_take(Spares *spares, uint64_t number)
{
        void *_Atomic *place = spares_place(spares, number);
        void *item = atomic_load_explicit(place, memory_order_relaxed);

        if (!item || item == &spares_closed)
                return NULL;
        /* Acquire: what its last owner did with it. */
        return atomic_compare_exchange_strong_explicit(place, &item, NULL, memory_order_acquire, memory_order_relaxed) ?
                       item :
                       NULL;
}

bool spares_give(Spares *spares, uint64_t number, void *item)
{
        void *_Atomic *place = spares_place(spares, number);
        void *none = NULL;

        return !atomic_load_explicit(place, memory_order_relaxed) &&
               atomic_compare_exchange_strong_explicit(place, &none, item, memory_order_release, memory_order_relaxed);
}

void spares_close(Spares *spares, void (*end)(void *item))
{
        for (size_t i = 0; i < SPARES_MAX; i++) {
                void *item = atomic_exchange_explicit(&spares->places[i].item, &spares_closed, memory_order_acq_rel);

                if (item && item != &spares_closed)
                        end(item);
        }
}
