/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The poller by clocks that the test moves: how long it looks, what it cools, when it yields, and when it moves. More than
 * 600 lines, as all of them are about one clock and the same things.
 */
#include "harness.h"

#include <stdbool.h>

#include "base/macro.h"
#include "daemon/server/poller.h"
#include "fail-alloc.h"

#define SPIN_NS UINT64_C(50000)
#define TICK_NS UINT64_C(100)        /* each look at the clock */

typedef struct Thing {
        PollerItem item;
        unsigned n_turns;
        unsigned n_cools;
        unsigned n_full_turns;       /* so many of the next turns have something */
        uint64_t comes_at_ns;        /* from then on one turn has something; 0: never */
        unsigned n_late;             /* so many of the next coolings find something */
        void (*in_turn)(struct Thing *thing);
} Thing;

static Poller *poller;
static uint64_t now, cpu, cost_ns;   /* of a turn that has something */
static unsigned n_flushes, n_cpu_reads, n_moves;
static uint64_t stolen_at_ns;        /* then the processor is taken from us for a millisecond; 0: never */

static uint64_t clock_now(void)
{
        now += TICK_NS;
        cpu += TICK_NS;
        if (stolen_at_ns != 0 && now >= stolen_at_ns) {
                now += 1000000;
                stolen_at_ns = 0;
        }
        return now;
}

static uint64_t clock_cpu(void)
{
        n_cpu_reads++;
        return cpu;
}

static void flush(void *userdata)
{
        assert_ptr_equal(userdata, &n_flushes);
        n_flushes++;
}

static void move(void *userdata)
{
        assert_ptr_equal(userdata, &n_flushes);
        n_moves++;
}

static bool turn(PollerItem *item)
{
        Thing *thing = CONTAINER_OF(item, Thing, item);

        assert_true(poller_is_hot(item));
        thing->n_turns++;
        if (thing->in_turn)
                thing->in_turn(thing);
        if (thing->n_full_turns > 0) {
                thing->n_full_turns--;
        } else if (thing->comes_at_ns != 0 && now >= thing->comes_at_ns) {
                thing->comes_at_ns = 0;
        } else {
                return false;
        }
        now += cost_ns;
        cpu += cost_ns;
        return true;
}

static bool cool(PollerItem *item)
{
        Thing *thing = CONTAINER_OF(item, Thing, item);

        thing->n_cools++;
        if (thing->n_late == 0)
                return false;
        thing->n_late--;
        thing->n_full_turns = 1;
        return true;
}

static void thing_init(Thing *thing)
{
        *thing = (Thing){ 0 };
        poller_item_init(&thing->item);
        thing->item.turn = turn;
        thing->item.cool = cool;
}

static int make(uint64_t spin_ns_max)
{
        PollerConfig config = { .spin_ns_max = spin_ns_max, .now_ns = clock_now, .cpu_ns = clock_cpu, .flush = flush,
                                .userdata = &n_flushes };

        now = 1000000000;
        cpu = 5000;
        cost_ns = 300;
        n_flushes = n_cpu_reads = n_moves = 0;
        stolen_at_ns = 0;
        return poller_new(&config, &poller);
}

/* The same, where there is another processor to go to. */
static int make_movable(uint64_t spin_ns_max)
{
        PollerConfig config = { .spin_ns_max = spin_ns_max, .now_ns = clock_now, .cpu_ns = clock_cpu, .flush = flush,
                                .move = move, .userdata = &n_flushes };
        int r = make(spin_ns_max);

        if (r < 0)
                return r;
        poller_free(poller);
        return poller_new(&config, &poller);
}

static PollerFacts facts(void)
{
        PollerFacts ret;

        poller_get_facts(poller, &ret);
        return ret;
}

/* Turns until nothing is hot. How long that took. */
static uint64_t run_cold(void)
{
        uint64_t begun = now;

        for (unsigned i = 0; poller_turn(poller); i++)
                assert_true(i < 100000);
        return now - begun;
}

static void test_nothing_hot_costs_nothing(void **state)
{
        assert_int_equal(make(SPIN_NS), 0);
        assert_false(poller_has_hot(poller));
        assert_false(poller_turn(poller));
        assert_int_equal(now, 1000000000); /* not even a look at the clock */
        assert_int_equal(n_cpu_reads, 0);
        poller_free(poller);
}

static void test_looks_as_long_as_there_is_something(void **state)
{
        Thing thing;
        uint64_t begun;

        assert_int_equal(make(SPIN_NS), 0);
        thing_init(&thing);
        thing.n_full_turns = 10000;
        assert_true(poller_heat(poller, &thing.item));
        assert_true(poller_heat(poller, &thing.item)); /* twice is once */
        begun = now;
        assert_true(poller_turn(poller));
        assert_in_range(now - begun, POLLER_TURN_NS, POLLER_TURN_NS + 1000);
        assert_int_equal(n_flushes, thing.n_turns);
        assert_int_equal(facts().n_rounds, thing.n_turns);
        assert_int_equal(facts().n_empty_rounds, 0);
        assert_int_equal(n_cpu_reads, 0); /* no system call while there is work */
        thing.n_full_turns = 0;
        (void)run_cold();
        assert_int_equal(thing.n_cools, 1);
        assert_false(poller_is_hot(&thing.item));
        poller_free(poller);
}

static void test_an_idle_time_is_bounded_and_cut(void **state)
{
        Thing thing;
        uint64_t begun, n_turns = 0;

        assert_int_equal(make(SPIN_NS), 0);
        thing_init(&thing);
        assert_true(poller_heat(poller, &thing.item));
        begun = now;
        while (poller_turn(poller)) {
                n_turns++;
                assert_true(n_turns < 100);
        }
        assert_in_range(now - begun, SPIN_NS, SPIN_NS + 2000);
        assert_in_range(n_turns, 4, 5); /* descriptors have been looked at meanwhile */
        assert_int_equal(n_flushes, 0);
        assert_int_equal(n_cpu_reads, 2);
        assert_int_equal(facts().n_cooled, 1);
        assert_int_equal(facts().n_preempted, 0);
        assert_int_equal(facts().spin_ns, SPIN_NS - SPIN_NS / 4);
        poller_free(poller);
}

static void test_it_shrinks_to_nothing(void **state)
{
        Thing thing;
        uint64_t last = UINT64_MAX, took;

        assert_int_equal(make(SPIN_NS), 0);
        thing_init(&thing);
        for (unsigned i = 0; i < 40; i++) {
                now += 50000000; /* long after, each time */
                assert_true(poller_heat(poller, &thing.item));
                took = run_cold();
                assert_true(took <= last);
                last = took;
        }
        assert_int_equal(facts().spin_ns, 0);
        assert_in_range(last, TICK_NS, 5 * TICK_NS);
        poller_free(poller);
}

static void test_it_grows_by_the_gaps(void **state)
{
        Thing thing;
        uint64_t small;

        assert_int_equal(make(SPIN_NS), 0);
        thing_init(&thing);
        for (unsigned i = 0; i < 40; i++) {
                now += 50000000;
                assert_true(poller_heat(poller, &thing.item));
                (void)run_cold();
        }
        assert_int_equal(facts().spin_ns, 0);
        /* It comes back right after it was cooled, and then within what is looked for. */
        now += 1000;
        assert_true(poller_heat(poller, &thing.item));
        small = facts().spin_ns;
        assert_in_range(small, 4000, 10000);
        thing.comes_at_ns = now + small - 500;
        (void)run_cold();
        assert_in_range(facts().spin_ns, 3 * (small - 1000) * 3 / 4, 4 * small);
        /* Never more than it may be. */
        for (unsigned i = 0; i < 20; i++) {
                now += 50000000;
                assert_true(poller_heat(poller, &thing.item));
                thing.comes_at_ns = now + facts().spin_ns - 1500;
                (void)run_cold();
                assert_int_equal(thing.comes_at_ns, 0);
                assert_true(facts().spin_ns <= SPIN_NS - SPIN_NS / 4);
        }
        assert_int_equal(facts().spin_ns, SPIN_NS - SPIN_NS / 4);
        poller_free(poller);
}

static void test_it_yields_when_the_processor_is_taken(void **state)
{
        Thing thing;
        uint64_t took;

        assert_int_equal(make(SPIN_NS), 0);
        thing_init(&thing);
        assert_true(poller_heat(poller, &thing.item));
        stolen_at_ns = now + 20000;
        (void)run_cold();
        assert_int_equal(facts().n_preempted, 1);
        assert_int_equal(facts().spin_ns, 0);
        /* Coming back soon does not help, for a while. */
        now += 1000;
        assert_true(poller_heat(poller, &thing.item));
        assert_int_equal(facts().spin_ns, 0);
        took = run_cold();
        assert_in_range(took, TICK_NS, 5 * TICK_NS);
        now += 5000000;
        thing.n_full_turns = 1;
        assert_true(poller_heat(poller, &thing.item));
        (void)run_cold();
        now += 1000;
        assert_true(poller_heat(poller, &thing.item));
        assert_true(facts().spin_ns > 0);
        /* Taken again, it rests for longer. */
        stolen_at_ns = now + 1000;
        (void)run_cold();
        assert_int_equal(facts().n_preempted, 2);
        now += 5000000;
        thing.n_full_turns = 1;
        assert_true(poller_heat(poller, &thing.item));
        (void)run_cold();
        now += 1000;
        assert_true(poller_heat(poller, &thing.item));
        assert_int_equal(facts().spin_ns, 0);
        (void)run_cold();
        poller_free(poller);
}

/* The other side runs where we do: it can only come when we stop. */
static void test_it_yields_to_whom_it_looks_for(void **state)
{
        Thing thing;
        unsigned n_long = 0;

        assert_int_equal(make(SPIN_NS), 0);
        thing_init(&thing);
        for (unsigned i = 0; i < 300; i++) {
                thing.n_full_turns = 1;
                assert_true(poller_heat(poller, &thing.item));
                n_long += run_cold() > 5000;
                now += 4000; /* then at once */
        }
        assert_in_range(facts().n_in_the_way, 1, 3);
        assert_int_equal(facts().n_preempted, 0);
        assert_in_range(n_long, 3, 12);
        assert_int_equal(facts().spin_ns, 0);
        /* On two processors it is worth it, and goes on being worth it. */
        now += 2000000000;
        for (unsigned i = 0; i < 300; i++) {
                thing.n_full_turns = 1;
                assert_true(poller_heat(poller, &thing.item));
                thing.comes_at_ns = now + 9000;
                (void)run_cold();
                now += i % 2 ? 3000 : 40000;
        }
        assert_true(facts().spin_ns > 9000);
        poller_free(poller);
}

/* How long it would look for nothing, with nothing there. */
static uint64_t look_once(void)
{
        Thing thing;

        thing_init(&thing);
        assert_true(poller_heat(poller, &thing.item));
        return run_cold();
}

/* We are in somebody's way: it moves, and goes on looking there; in his way again, it has moved for nothing, and rests. */
static void test_it_moves_and_where_that_is_no_use_rests(void **state)
{
        assert_int_equal(make_movable(SPIN_NS), 0);
        poller_meet(poller);
        assert_int_equal(n_moves, 1);
        assert_int_equal(facts().n_moved, 1);
        assert_int_equal(facts().n_in_the_way, 1);
        assert_int_equal(facts().spin_ns, SPIN_NS);
        now += 100000;
        poller_meet(poller);
        assert_int_equal(n_moves, 1);
        assert_int_equal(facts().n_moved, 1);
        assert_int_equal(facts().n_in_the_way, 2);
        assert_int_equal(facts().spin_ns, 0);
        assert_in_range(look_once(), TICK_NS, 5 * TICK_NS);
        /* Coming back soon does not wake it from that rest. */
        now += 1000;
        assert_in_range(look_once(), TICK_NS, 5 * TICK_NS);
        assert_int_equal(facts().spin_ns, 0);
        assert_int_equal(n_moves, 1);
        poller_free(poller);
}

/* A move ends the rest: there it is another question, so half of the most is looked for at once. */
static void test_a_move_ends_the_rest(void **state)
{
        assert_int_equal(make_movable(SPIN_NS), 0);
        poller_meet(poller);
        poller_meet(poller);
        assert_int_equal(facts().spin_ns, 0);
        now += 1000000; /* the stay after the first move is over, the rest is not */
        poller_meet(poller);
        assert_int_equal(n_moves, 2);
        assert_int_equal(facts().spin_ns, SPIN_NS / 2);
        assert_in_range(look_once(), SPIN_NS / 2, SPIN_NS / 2 + 2000);
        poller_free(poller);
}

/* Always in somebody's way, wherever it is: so and so many moves in a time, fewer and fewer; after a long peace as at first. */
static void test_it_moves_seldom(void **state)
{
        uint64_t begun, last = 0, stay_ns = 0;
        unsigned n_before;

        assert_int_equal(make_movable(SPIN_NS), 0);
        begun = now;
        while (now - begun < UINT64_C(1000000000)) {
                n_before = n_moves;
                poller_meet(poller);
                if (n_moves > n_before && last != 0) {
                        /* Each stay is at least as long as the one before, the first half a millisecond. */
                        assert_true(now - last >= MAX(stay_ns, UINT64_C(500000)));
                        stay_ns = now - last < UINT64_C(64000000) ? (now - last) / 4 * 3 : UINT64_C(64000000);
                }
                if (n_moves > n_before)
                        last = now;
                now += 20000;
        }
        assert_in_range(n_moves, 15, 30); /* 7 doublings up to 64 ms, then one each 64 ms */
        assert_int_equal(facts().n_moved, n_moves);
        assert_true(facts().n_in_the_way > 10000);
        now += UINT64_C(10000000000);
        n_before = n_moves;
        poller_meet(poller);
        now += 600000;
        poller_meet(poller);
        assert_int_equal(n_moves, n_before + 2);
        poller_free(poller);
}

/* What it finds out by itself, from what comes as soon as it stops, moves it too. */
static void test_it_moves_from_whom_it_looks_for(void **state)
{
        Thing thing;

        assert_int_equal(make_movable(SPIN_NS), 0);
        thing_init(&thing);
        for (unsigned i = 0; i < 300 && n_moves == 0; i++) {
                thing.n_full_turns = 1;
                assert_true(poller_heat(poller, &thing.item));
                (void)run_cold();
                now += 4000; /* then at once */
        }
        assert_int_equal(n_moves, 1);
        assert_int_equal(facts().n_in_the_way, 1);
        assert_true(facts().spin_ns > 0);
        poller_free(poller);
}

/* Nowhere to go: it rests at once. With no time to look there is nobody in the way of. */
static void test_it_cannot_move_or_has_no_need_to(void **state)
{
        assert_int_equal(make(SPIN_NS), 0);
        poller_meet(poller);
        assert_int_equal(facts().n_in_the_way, 1);
        assert_int_equal(facts().n_moved, 0);
        assert_int_equal(facts().spin_ns, 0);
        assert_in_range(look_once(), TICK_NS, 5 * TICK_NS);
        poller_free(poller);

        assert_int_equal(make_movable(0), 0);
        for (unsigned i = 0; i < 100; i++) {
                poller_meet(poller);
                now += 1000000;
        }
        assert_int_equal(n_moves, 0);
        assert_int_equal(facts().n_in_the_way, 0);
        assert_int_equal(facts().spin_ns, 0);
        poller_free(poller);
}

static void test_what_the_caller_does_is_not_idle_time(void **state)
{
        Thing thing;

        assert_int_equal(make(SPIN_NS), 0);
        thing_init(&thing);
        assert_true(poller_heat(poller, &thing.item));
        assert_true(poller_turn(poller));
        now += 30000; /* the loop had a message to carry out, and waited for a page */
        cpu += 100;
        (void)run_cold();
        assert_int_equal(facts().n_preempted, 0);
        poller_free(poller);
}

static void test_with_one_processor_it_never_looks_for_nothing(void **state)
{
        Thing thing;

        assert_int_equal(make(0), 0);
        thing_init(&thing);
        for (unsigned i = 0; i < 10; i++) {
                thing.n_full_turns = 3;
                assert_true(poller_heat(poller, &thing.item));
                (void)run_cold();
                assert_int_equal(facts().spin_ns, 0);
                now += 10;
        }
        assert_int_equal(facts().n_empty_rounds, 0);
        assert_int_equal(n_cpu_reads, 0);
        assert_int_equal(facts().n_rounds, 30);
        poller_free(poller);
}

static void test_what_comes_while_it_is_cooled_is_not_lost(void **state)
{
        Thing thing;

        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(make(i == 0 ? SPIN_NS : 0), 0);
                thing_init(&thing);
                thing.n_late = 3;
                assert_true(poller_heat(poller, &thing.item));
                (void)run_cold();
                assert_int_equal(thing.n_full_turns, 0);
                assert_int_equal(thing.n_cools, 4);
                assert_int_equal(n_flushes, 3);
                poller_free(poller);
        }
}

static void test_as_many_as_there_is_room_for(void **state)
{
        static Thing things[POLLER_ITEMS_MAX + 1];

        assert_int_equal(make(SPIN_NS), 0);
        for (unsigned i = 0; i < POLLER_ITEMS_MAX; i++) {
                thing_init(&things[i]);
                assert_true(poller_heat(poller, &things[i].item));
        }
        thing_init(&things[POLLER_ITEMS_MAX]);
        assert_false(poller_heat(poller, &things[POLLER_ITEMS_MAX].item));
        assert_false(poller_is_hot(&things[POLLER_ITEMS_MAX].item));
        poller_remove(poller, &things[POLLER_ITEMS_MAX].item); /* not in it: nothing */
        poller_remove(poller, &things[7].item);
        assert_true(poller_heat(poller, &things[POLLER_ITEMS_MAX].item));
        assert_false(poller_heat(poller, &things[7].item));
        things[POLLER_ITEMS_MAX].n_full_turns = 1;
        (void)run_cold();
        assert_int_equal(things[7].n_turns, 0);
        assert_int_equal(facts().n_cooled, POLLER_ITEMS_MAX);
        for (unsigned i = 0; i < POLLER_ITEMS_MAX; i++)
                assert_true(i == 7 || (things[i].n_turns > 1 && things[i].n_cools == 1));
        poller_free(poller);
}

static void test_the_silent_make_room_while_others_are_busy(void **state)
{
        Thing busy, silent;

        assert_int_equal(make(SPIN_NS), 0);
        thing_init(&busy);
        thing_init(&silent);
        busy.n_full_turns = 1000000;
        assert_true(poller_heat(poller, &busy.item));
        assert_true(poller_heat(poller, &silent.item));
        assert_true(poller_turn(poller));
        assert_true(poller_is_hot(&silent.item));
        for (unsigned i = 0; i < 12; i++)
                assert_true(poller_turn(poller));
        assert_false(poller_is_hot(&silent.item));
        assert_int_equal(silent.n_cools, 1);
        assert_true(poller_is_hot(&busy.item));
        assert_int_equal(busy.n_cools, 0);
        busy.n_full_turns = 0;
        (void)run_cold();
        poller_free(poller);
}

/* Items go and come in the middle of a round. */
static Thing pair[3];

static void remove_all(Thing *thing)
{
        for (unsigned i = 0; i < ARRAY_SIZE(pair); i++)
                poller_remove(poller, &pair[i].item);
}

static void remove_next(Thing *thing)
{
        poller_remove(poller, &pair[1].item);
}

static void heat_last(Thing *thing)
{
        assert_true(poller_heat(poller, &pair[2].item));
}

static void test_items_go_and_come_in_a_round(void **state)
{
        assert_int_equal(make(SPIN_NS), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(pair); i++) {
                thing_init(&pair[i]);
                assert_true(poller_heat(poller, &pair[i].item));
        }
        pair[0].in_turn = remove_all;
        assert_false(poller_turn(poller));
        assert_int_equal(pair[0].n_turns, 1);
        assert_int_equal(pair[1].n_turns + pair[2].n_turns, 0);

        pair[0].in_turn = remove_next;
        for (unsigned i = 0; i < ARRAY_SIZE(pair); i++)
                assert_true(poller_heat(poller, &pair[i].item));
        (void)run_cold();
        assert_int_equal(pair[1].n_turns, 0);
        assert_true(pair[2].n_turns > 0);

        pair[0].in_turn = heat_last;
        pair[2].n_turns = 0;
        pair[2].n_full_turns = 1;
        assert_true(poller_heat(poller, &pair[0].item));
        assert_true(poller_turn(poller));
        assert_true(pair[2].n_turns > 0);
        assert_int_equal(pair[2].n_full_turns, 0);
        pair[0].in_turn = NULL;
        (void)run_cold();
        poller_free(poller);
}

static int attempt(void)
{
        int r = make(SPIN_NS);

        if (r == 0)
                poller_free(poller);
        return r;
}

static void test_without_memory(void **state)
{
        fail_alloc_sweep(attempt);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_nothing_hot_costs_nothing),
                UNIT_TEST(test_looks_as_long_as_there_is_something),
                UNIT_TEST(test_an_idle_time_is_bounded_and_cut),
                UNIT_TEST(test_it_shrinks_to_nothing),
                UNIT_TEST(test_it_grows_by_the_gaps),
                UNIT_TEST(test_it_yields_when_the_processor_is_taken),
                UNIT_TEST(test_it_yields_to_whom_it_looks_for),
                UNIT_TEST(test_it_moves_and_where_that_is_no_use_rests),
                UNIT_TEST(test_a_move_ends_the_rest),
                UNIT_TEST(test_it_moves_seldom),
                UNIT_TEST(test_it_moves_from_whom_it_looks_for),
                UNIT_TEST(test_it_cannot_move_or_has_no_need_to),
                UNIT_TEST(test_what_the_caller_does_is_not_idle_time),
                UNIT_TEST(test_with_one_processor_it_never_looks_for_nothing),
                UNIT_TEST(test_what_comes_while_it_is_cooled_is_not_lost),
                UNIT_TEST(test_as_many_as_there_is_room_for),
                UNIT_TEST(test_the_silent_make_room_while_others_are_busy),
                UNIT_TEST(test_items_go_and_come_in_a_round),
                UNIT_TEST(test_without_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
