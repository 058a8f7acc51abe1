/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two moving averages and a budget. A sleep costs two system calls and a wake-up, several microseconds at the
 * least: while looking takes less than that on the average there is nothing to be learnt from a sleep, and none is
 * tried. Looking has to win clearly, since it uses a processor that somebody else might want. Knows nothing of
 * what is waited for.
 */
#include "client/lib/spin.h"

#include "base/macro.h"

/* What no sleep beats. */
#define SPIN_SLEEP_NS_MIN 6000u
/* Longer waits are of another kind, and say nothing of either way. */
#define SPIN_WAIT_NS_MAX 200000u
/* One in so many is of the way that is not in favour. */
#define SPIN_TRIAL_EVERY 32u

static uint32_t spin_load(const _Atomic uint32_t *word)
{
        return atomic_load_explicit(word, memory_order_relaxed);
}

static void spin_store(_Atomic uint32_t *word, uint32_t value)
{
        atomic_store_explicit(word, value, memory_order_relaxed);
}

void spin_init(Spin *spin, bool has_processors)
{
        spin->has_processors = has_processors;
        atomic_init(&spin->budget_ns, SPIN_NS_MAX / 2);
        /* In favour of looking at first: it costs little to find out. */
        atomic_init(&spin->spun_ns, SPIN_SLEEP_NS_MIN);
        atomic_init(&spin->slept_ns, SPIN_SLEEP_NS_MIN * 4);
        atomic_init(&spin->n_waits, 0);
}

uint32_t spin_choose(Spin *spin)
{
        uint32_t spun = spin_load(&spin->spun_ns), slept = spin_load(&spin->slept_ns);
        uint32_t n = spin_load(&spin->n_waits);
        bool is_trial;

        if (!spin->has_processors)
                return 0;
        spin_store(&spin->n_waits, n + 1);
        is_trial = n % SPIN_TRIAL_EVERY == SPIN_TRIAL_EVERY - 1;
        if (spun <= SPIN_SLEEP_NS_MIN)
                return spin_load(&spin->budget_ns);
        return (spun < slept - slept / 8) != is_trial ? spin_load(&spin->budget_ns) : 0;
}

static void spin_average(_Atomic uint32_t *average, uint32_t value)
{
        int64_t old = spin_load(average);

        spin_store(average, (uint32_t)(old + ((int64_t)value - old) / 8));
}

void spin_learn(Spin *spin, uint32_t chosen_ns, bool was_seen, uint64_t waited_ns)
{
        uint32_t waited = (uint32_t)MIN(waited_ns, SPIN_WAIT_NS_MAX);
        uint32_t budget = spin_load(&spin->budget_ns);

        if (chosen_ns == 0) {
                spin_average(&spin->slept_ns, waited);
                return;
        }
        spin_average(&spin->spun_ns, waited);
        if (was_seen) {
                /* Some four times of what it takes: enough for the slow ones, and little lost where nothing comes. */
                spin_average(&spin->budget_ns, MIN(4 * waited + 1000, SPIN_NS_MAX));
                budget = spin_load(&spin->budget_ns);
        } else if (waited <= 2 * SPIN_NS_MAX) {
                budget += budget / 4; /* a little longer would perhaps have done */
        } else {
                budget -= budget / 4;
        }
        spin_store(&spin->budget_ns, CLAMP(budget, SPIN_NS_MIN, SPIN_NS_MAX));
}
