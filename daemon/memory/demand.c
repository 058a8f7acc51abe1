/* SPDX-License-Identifier: Apache-2.0 */
/* A short list, kept in order by moving what has changed. */
#include "daemon/memory/demand.h"

#include <assert.h>

#include "base/macro.h"

uint64_t demand_class_bytes(uint64_t n_bytes)
{
        uint64_t power, step;

        assert(n_bytes > 0 && n_bytes <= UINT64_C(1) << 62);
        power = UINT64_C(1) << (63 - __builtin_clzll(n_bytes));
        step = MAX(power / 8, (uint64_t)PAGE_BYTES);
        return ALIGN_UP(n_bytes, step);
}

/* The class at @i has become heavier: it goes in front of those that are lighter. */
static void rise(Demand *demand, unsigned i)
{
        const DemandClass risen = demand->classes[i];

        for (; i > 0 && demand->classes[i - 1].weight <= risen.weight; i--)
                demand->classes[i] = demand->classes[i - 1];
        demand->classes[i] = risen;
}

bool demand_note(Demand *demand, uint64_t n_bytes)
{
        uint64_t size_bytes = demand_class_bytes(n_bytes);
        DemandClass *class;
        unsigned i = 0, n_before;
        bool is_more;

        while (i < demand->n_classes && demand->classes[i].size_bytes != size_bytes)
                i++;
        if (i == demand->n_classes) {
                if (i == DEMAND_CLASSES_MAX)
                        i--;
                else
                        demand->n_classes++;
                demand->classes[i] = (DemandClass){ .size_bytes = size_bytes };
        }
        class = &demand->classes[i];
        n_before = class->weight > 0 ? demand_wanted(class) : 0;
        class->weight = MIN(class->weight + DEMAND_USE_WEIGHT, DEMAND_WEIGHT_MAX);
        is_more = demand_wanted(class) > n_before;
        rise(demand, i);
        return is_more;
}

void demand_age(Demand *demand)
{
        /* An eighth, and at least one: nobody is remembered for ever. The order stays. */
        for (unsigned i = 0; i < demand->n_classes; i++)
                demand->classes[i].weight -= (demand->classes[i].weight + 7) / 8;
        while (demand->n_classes > 0 && demand->classes[demand->n_classes - 1].weight == 0)
                demand->n_classes--;
}

unsigned demand_wanted(const DemandClass *class)
{
        return MIN(1 + class->weight / 16, 4);
}
