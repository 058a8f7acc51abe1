/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sizes of regions have been asked for lately, by classes that are at most an eighth apart: each use makes a class
 * heavier, time makes it lighter again, and one of no weight is forgotten. At most DEMAND_CLASSES_MAX are remembered;
 * a new one takes the place of the lightest. Arithmetic only: knows no memory, and no clock but demand_age().
 */
#ifndef DAEMON_MEMORY_DEMAND_H
#define DAEMON_MEMORY_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

#define DEMAND_CLASSES_MAX 12
#define DEMAND_USE_WEIGHT 4
#define DEMAND_WEIGHT_MAX 64

typedef struct DemandClass {
        uint64_t size_bytes;
        uint32_t weight;             /* 1..DEMAND_WEIGHT_MAX */
} DemandClass;

typedef struct Demand {
        DemandClass classes[DEMAND_CLASSES_MAX]; /* the heaviest first */
        unsigned n_classes;
} Demand;

#define DEMAND_NULL { .n_classes = 0 }

/* The class of @n_bytes (1 or more, up to 2^62): a multiple of PAGE_BYTES, at least @n_bytes and, from 32 KiB on, less than an eighth more. */
uint64_t demand_class_bytes(uint64_t n_bytes);

/* One was asked for. True: more of that class are wanted than before. */
bool demand_note(Demand *demand, uint64_t n_bytes);

/* Some time has passed. */
void demand_age(Demand *demand);

/* How many of a class to have ready: one after the first use, up to four for who asks for one after the other. */
unsigned demand_wanted(const DemandClass *class);

#endif
