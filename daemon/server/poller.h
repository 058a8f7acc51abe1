/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loop looks at by itself, without being woken: things that have been active a moment ago and probably will
 * be again (rings). How long it goes on looking for nothing adapts: it grows where something came in time, shrinks
 * where nothing did, and falls to nothing where the processor was taken from us meanwhile, since then looking keeps
 * somebody from working. Knows nothing of what it looks at.
 */
#ifndef DAEMON_SERVER_POLLER_H
#define DAEMON_SERVER_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

typedef struct Poller Poller;
typedef struct PollerItem PollerItem;

#define POLLER_ITEMS_MAX 32u         /* that are looked at at once; others are rung for */

struct PollerItem {
        List link;
        uint64_t active_ns;          /* the poller's: when it last had something, about */
        uint64_t cooled_ns;          /* and when it was cooled; 0: never */
        /* Does some of what is there, in bounded time. True: there was something. */
        bool (*turn)(PollerItem *item);
        /* It is not looked at any more from now on, but rung for. True: something came just then, so look on. */
        bool (*cool)(PollerItem *item);
};

typedef struct PollerConfig {
        uint64_t spin_ns_max;        /* 0: never looks for nothing */
        uint64_t (*now_ns)(void);    /* CLOCK_MONOTONIC; a test passes its own */
        uint64_t (*cpu_ns)(void);    /* CLOCK_THREAD_CPUTIME_ID; a test passes its own */
        void (*flush)(void *userdata); /* after each round in which there was something: wake-ups */
        void (*move)(void *userdata); /* goes on on another processor, where there is one; NULL: cannot */
        void *userdata;
} PollerConfig;

int poller_new(const PollerConfig *config, Poller **ret);
void poller_free(Poller *poller);    /* no item is left */

void poller_item_init(PollerItem *item);

/*
 * Something has come for @item: it is looked at from now on. False: there are too many; the caller does its turn, and
 * hangs its bell.
 */
bool poller_heat(Poller *poller, PollerItem *item);
void poller_remove(Poller *poller, PollerItem *item);

/*
 * Who has something for us runs on our own processor, and will not run while we look: we move away, or where that was
 * done a moment ago, and so is of no use, do not look for nothing for a while. Before poller_heat().
 */
void poller_meet(Poller *poller);

static inline bool poller_is_hot(const PollerItem *item)
{
        return list_is_linked(&item->link);
}

/*
 * Looks at all hot items, again and again, for a bounded time: at most POLLER_TURN_NS while there is something, and
 * POLLER_LOOK_NS at a time while there is nothing, the adaptive time in all. True: some are hot still, so the caller
 * must not sleep, but look at its descriptors and come back. One that has had nothing for POLLER_ITEM_NS is cooled
 * even where others have.
 */
#define POLLER_TURN_NS UINT64_C(100000)
#define POLLER_LOOK_NS UINT64_C(10000)
#define POLLER_ITEM_NS UINT64_C(1000000)
bool poller_turn(Poller *poller);

/* Is any item looked at? */
bool poller_has_hot(const Poller *poller);

typedef struct PollerFacts {
        uint64_t n_rounds;           /* in which there was something */
        uint64_t n_empty_rounds;
        uint64_t spin_ns;            /* as it is now */
        uint64_t n_cooled;
        uint64_t n_preempted;        /* how often the processor was taken from us while we looked */
        uint64_t n_in_the_way;       /* how often we kept it from whom we looked for */
        uint64_t n_moved;            /* how often we went to another one for that */
} PollerFacts;

void poller_get_facts(const Poller *poller, PollerFacts *ret);

#endif
