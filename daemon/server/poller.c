/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An *idle time* begins with the first round in which there was nothing, and ends when there is something or when it
 * has lasted for as long as we may look for nothing (spin_ns). It goes on over several turns, between which the
 * caller looks at its descriptors.
 *
 * spin_ns wants to be a few times as long as the gaps in which something did come, so it grows by those; where
 * nothing came it loses a quarter. An item that comes back soon after it was cooled counts as a gap too, or nothing
 * would ever lead up from 0.
 *
 * Was the processor taken from us? Then more time has passed in an idle time than our thread has used. The thread's
 * clock costs a system call, so it is read once at the beginning of an idle time, when that has lasted for a moment,
 * and once where it ends with nothing. What the caller did in between is taken off the time that has passed, though
 * the thread's clock counts it: we find too little rather than too much.
 *
 * Or did we keep it from whom we looked for? Then what comes comes as soon as we stop, however long we look. Several
 * times in a row, with nothing coming in time meanwhile, is taken for that. (Two on one processor: measured, every
 * put took as long as we looked for.) After the former we do not look for nothing at all for a while, which is doubled
 * each time it happens again. After the latter we go to another processor first: the kernel wakes who sleeps where
 * his waker runs, and with few processors leaves both there although another has nothing to do. Where that has just been done
 * we are in somebody's way everywhere, and do as after the former.
 */
#include "daemon/server/poller.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/macro.h"

#define ROUNDS_PER_LOOK 8u           /* empty ones for each look at the clock */
#define MARK_AFTER_NS UINT64_C(2000)
#define SPIN_NS_MIN UINT64_C(1000)   /* less is none */
#define GAP_FACTOR 4                 /* of a gap, to look for the next one like it */
#define LOST_NS_MIN UINT64_C(10000)  /* interrupts take less */
#define FUTILE_MAX 3u                /* times in a row */
#define REST_NS_MIN UINT64_C(4000000)
#define REST_NS_MAX UINT64_C(64000000) /* to try again then costs next to nothing */
#define STAY_NS_MIN UINT64_C(500000) /* a move costs two system calls, and what was in the caches */
#define STAY_NS_MAX UINT64_C(64000000)

struct Poller {
        PollerConfig config;
        List items;
        List *next;                  /* of the round under way: what it looks at next */
        unsigned n_items;
        uint64_t now_ns;             /* when the clock was last looked at */
        uint64_t spin_ns;
        bool is_idle;
        uint64_t idle_since_ns;
        bool has_mark;
        uint64_t mark_ns;            /* both clocks, as the idle time began */
        uint64_t mark_cpu_ns;
        uint64_t left_ns;            /* when the last turn ended */
        uint64_t outside_ns;         /* between turns, since the mark */
        unsigned n_futile;
        uint64_t rest_ns;            /* how long we rest the next time */
        uint64_t rest_until_ns;
        uint64_t stay_ns;            /* how long we stay after the next move */
        uint64_t stay_until_ns;
        PollerFacts facts;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb");
#endif
}

/* --- how long ----------------------------------------------------------------------------------------------------- */

static void grow(Poller *poller, uint64_t gap_ns)
{
        if (poller->now_ns < poller->rest_until_ns)
                return;
        poller->spin_ns = MAX(poller->spin_ns, MIN(GAP_FACTOR * gap_ns, poller->config.spin_ns_max));
        if (poller->spin_ns < SPIN_NS_MIN)
                poller->spin_ns = MIN(SPIN_NS_MIN, poller->config.spin_ns_max);
}

static void shrink(Poller *poller)
{
        poller->spin_ns -= poller->spin_ns / 4;
        if (poller->spin_ns < SPIN_NS_MIN)
                poller->spin_ns = 0;
}

static void rest(Poller *poller)
{
        if (poller->now_ns > poller->rest_until_ns + REST_NS_MAX)
                poller->rest_ns = REST_NS_MIN; /* the last time is long ago */
        poller->spin_ns = 0;
        poller->n_futile = 0;
        poller->rest_until_ns = poller->now_ns + poller->rest_ns;
        poller->rest_ns = MIN(poller->rest_ns * 2, REST_NS_MAX);
}

/* We keep whom we look for from running. */
static void give_way(Poller *poller)
{
        poller->facts.n_in_the_way++;
        if (!poller->config.move || poller->now_ns < poller->stay_until_ns) {
                rest(poller);
                return;
        }
        if (poller->now_ns > poller->stay_until_ns + STAY_NS_MAX)
                poller->stay_ns = STAY_NS_MIN; /* the last time is long ago */
        poller->config.move(poller->config.userdata);
        poller->facts.n_moved++;
        poller->stay_until_ns = poller->now_ns + poller->stay_ns;
        poller->stay_ns = MIN(poller->stay_ns * 2, STAY_NS_MAX);
        /* Where we are now it is another question. */
        poller->n_futile = 0;
        poller->rest_until_ns = 0;
        poller->spin_ns = MAX(poller->spin_ns, poller->config.spin_ns_max / 2);
}

/* Of the idle time that ends now with nothing. */
static bool was_preempted(const Poller *poller)
{
        uint64_t idle_ns = poller->now_ns - poller->idle_since_ns, passed_ns, used_ns;

        if (poller->spin_ns == 0)
                return false;
        if (!poller->has_mark)
                return idle_ns > MAX(poller->spin_ns, MARK_AFTER_NS) + 5 * LOST_NS_MIN;
        passed_ns = poller->now_ns - poller->mark_ns;
        used_ns = poller->config.cpu_ns() - poller->mark_cpu_ns + poller->outside_ns;
        return passed_ns > used_ns && passed_ns - used_ns > LOST_NS_MIN;
}

/* --- items -------------------------------------------------------------------------------------------------------- */

static void unlink_item(Poller *poller, PollerItem *item)
{
        if (poller->next == &item->link)
                poller->next = item->link.next;
        list_unlink(&item->link);
        poller->n_items--;
}

void poller_item_init(PollerItem *item)
{
        list_init(&item->link);
        item->active_ns = item->cooled_ns = 0;
}

/* It comes back, and in a time that we would have looked for it at most. */
static void learn(Poller *poller, const PollerItem *item)
{
        uint64_t gap_ns = poller->now_ns - item->active_ns, looked_ns = item->cooled_ns - item->active_ns;

        if (looked_ns >= SPIN_NS_MIN && gap_ns - looked_ns < looked_ns)
                poller->n_futile++;
        if (poller->n_futile >= FUTILE_MAX)
                give_way(poller);
        else
                grow(poller, gap_ns);
}

void poller_meet(Poller *poller)
{
        if (poller->config.spin_ns_max == 0)
                return; /* and never in anybody's way */
        /* Who sleeps on what has just been done shall not sleep while we move. */
        poller->config.flush(poller->config.userdata);
        poller->now_ns = poller->config.now_ns();
        give_way(poller);
}

bool poller_heat(Poller *poller, PollerItem *item)
{
        if (poller_is_hot(item))
                return true;
        if (poller->n_items >= POLLER_ITEMS_MAX)
                return false;
        poller->now_ns = poller->config.now_ns();
        if (item->cooled_ns != 0 && poller->now_ns - item->active_ns <= 2 * poller->config.spin_ns_max)
                learn(poller, item);
        item->active_ns = poller->now_ns;
        list_push_back(&poller->items, &item->link);
        poller->n_items++;
        return true;
}

void poller_remove(Poller *poller, PollerItem *item)
{
        if (poller_is_hot(item))
                unlink_item(poller, item);
}

/* True: it has something, and stays. */
static bool cool_item(Poller *poller, PollerItem *item)
{
        if (item->cool(item)) {
                item->active_ns = poller->now_ns;
                return true;
        }
        if (!poller_is_hot(item))
                return false; /* it went by itself */
        unlink_item(poller, item);
        item->cooled_ns = poller->now_ns;
        poller->facts.n_cooled++;
        return false;
}

/* Those that have had nothing since @since_ns. True: one of them has. */
static bool cool_items(Poller *poller, uint64_t since_ns)
{
        bool has_something = false;

        for (poller->next = poller->items.next; poller->next != &poller->items;) {
                PollerItem *item = LIST_ENTRY(poller->next, PollerItem, link);

                poller->next = item->link.next;
                if (item->active_ns <= since_ns)
                        has_something |= cool_item(poller, item);
        }
        return has_something;
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

/* Items come and go meanwhile, the one whose turn it is too. */
static bool look_at_all(Poller *poller)
{
        bool has_something = false;

        for (poller->next = poller->items.next; poller->next != &poller->items;) {
                PollerItem *item = LIST_ENTRY(poller->next, PollerItem, link);

                poller->next = item->link.next;
                if (item->turn(item)) {
                        item->active_ns = poller->now_ns;
                        has_something = true;
                }
        }
        return has_something;
}

/* There was something. */
static void end_idle(Poller *poller)
{
        if (!poller->is_idle)
                return;
        poller->is_idle = false;
        poller->n_futile = 0;
        grow(poller, poller->now_ns - poller->idle_since_ns);
}

static void begin_idle(Poller *poller)
{
        poller->is_idle = true;
        poller->has_mark = false;
        poller->idle_since_ns = poller->now_ns;
}

/* The clock has been looked at, and there is still nothing. False: it was the last time. */
static bool go_on_looking(Poller *poller)
{
        uint64_t idle_ns = poller->now_ns - poller->idle_since_ns;

        if (idle_ns >= poller->spin_ns) {
                bool was_taken = was_preempted(poller);

                poller->is_idle = false;
                if (cool_items(poller, UINT64_MAX))
                        return true;
                poller->facts.n_preempted += was_taken;
                if (was_taken)
                        rest(poller);
                else
                        shrink(poller);
                return false;
        }
        if (!poller->has_mark && idle_ns >= MARK_AFTER_NS) {
                poller->has_mark = true;
                poller->outside_ns = 0;
                poller->mark_ns = poller->now_ns;
                poller->mark_cpu_ns = poller->config.cpu_ns();
        }
        return true;
}

/* Until there is something, for a moment at most. False: there was nothing. */
static bool look_for_a_moment(Poller *poller)
{
        uint64_t begun_ns = poller->now_ns;

        if (!poller->is_idle)
                begin_idle(poller);
        while (poller->n_items > 0 && poller->now_ns - begun_ns < POLLER_LOOK_NS) {
                for (unsigned i = 0; i < ROUNDS_PER_LOOK && poller->spin_ns > 0; i++) {
                        relax();
                        poller->facts.n_empty_rounds++;
                        if (look_at_all(poller))
                                return true;
                }
                poller->now_ns = poller->config.now_ns();
                if (!go_on_looking(poller))
                        return false;
                if (!poller->is_idle)
                        return look_at_all(poller); /* something came as it was to be cooled */
        }
        return false;
}

bool poller_turn(Poller *poller)
{
        uint64_t begun_ns;
        bool had_something = false;

        if (poller->n_items == 0)
                return false;
        begun_ns = poller->now_ns = poller->config.now_ns();
        if (poller->is_idle)
                poller->outside_ns += begun_ns - poller->left_ns;
        while (poller->n_items > 0 && poller->now_ns - begun_ns < POLLER_TURN_NS) {
                if (!look_at_all(poller) && !look_for_a_moment(poller))
                        break;
                had_something = true;
                poller->facts.n_rounds++;
                poller->now_ns = poller->config.now_ns();
                end_idle(poller);
                poller->config.flush(poller->config.userdata);
        }
        if (had_something && poller->now_ns > POLLER_ITEM_NS)
                (void)cool_items(poller, poller->now_ns - POLLER_ITEM_NS);
        if (poller->n_items == 0)
                poller->is_idle = false;
        poller->left_ns = poller->now_ns;
        return poller->n_items > 0;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

int poller_new(const PollerConfig *config, Poller **ret)
{
        Poller *poller = calloc(1, sizeof(*poller));

        if (!poller)
                return -ENOMEM;
        poller->config = *config;
        poller->spin_ns = config->spin_ns_max;
        poller->rest_ns = REST_NS_MIN;
        poller->stay_ns = STAY_NS_MIN;
        list_init(&poller->items);
        poller->next = &poller->items;
        *ret = poller;
        return 0;
}

void poller_free(Poller *poller)
{
        assert(poller->n_items == 0);
        free(poller);
}

bool poller_has_hot(const Poller *poller)
{
        return poller->n_items > 0;
}

void poller_get_facts(const Poller *poller, PollerFacts *ret)
{
        *ret = poller->facts;
        ret->spin_ns = poller->spin_ns;
}
