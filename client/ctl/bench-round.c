/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-round.h. */
#include "client/ctl/bench-round.h"

#include "client/ctl/bench-median.h"
#include "client/ctl/bench-stop.h"

#define LONG_BYTES ((uint64_t)64 << 20)

/* What the rounds have measured. */
typedef struct Series {
        double *times_ns, *faults, *misses, *waiters_ns;
        bool has_misses;
        BenchLaps laps;
} Series;

typedef struct Rounds {
        Series ours, theirs;
        double *ratios, *fractions;
        const BenchCopy *copy; /* NULL: no reference */
} Rounds;

/* --- one measurement ---------------------------------------------------------------------------------------------- */

/* What was prepared is cleaned, whatever became of the work. */
static int measure(BenchRun *run, BenchStep *prepare, BenchStep *work, BenchStep *clean, BenchSample *sample)
{
        BenchCounter *counter = &run->bench->counter;
        int r = prepare ? prepare(run) : CTL_OK, r_clean;

        if (r != CTL_OK)
                return r;
        run->sample = sample;
        bench_counter_begin(counter, sample);
        r = work(run);
        bench_counter_end(counter, sample);
        r_clean = clean ? clean(run) : CTL_OK;
        if (sample->time_ns == 0)
                sample->time_ns = 1;
        return r != CTL_OK ? r : r_clean;
}

static int measure_ours(BenchRun *run, BenchSample *sample)
{
        return measure(run, run->c->prepare, run->c->ours, run->c->clean, sample);
}

static int measure_theirs(BenchRun *run, BenchSample *sample)
{
        run->bench->n_plain_calls = 0;
        return measure(run, run->c->prepare_theirs, run->c->theirs, run->c->clean_theirs, sample);
}

static int measure_copy(BenchRun *run, const BenchCopy *copy, uint64_t *ret_ns)
{
        BenchSample sample = { 0 };
        int r;

        run->sample = &sample;
        bench_counter_begin(&run->bench->counter, &sample);
        r = run->c->reference(run, copy);
        bench_counter_end(&run->bench->counter, &sample);
        *ret_ns = sample.time_ns ? sample.time_ns : 1;
        return r;
}

/* The best time decides; what is short is tried more than once. */
static int choose_copy(BenchRun *run, const BenchCopy **ret)
{
        unsigned n_tries = run->n_copied_bytes < LONG_BYTES ? 3 : 1;
        uint64_t best_ns = UINT64_MAX, time_ns;
        int r = CTL_OK;

        *ret = NULL;
        for (const BenchCopy *copy = bench_copies; run->c->reference && run->n_copied_bytes && copy->name; copy++)
                for (unsigned i = 0; i < n_tries; i++) {
                        r = measure_copy(run, copy, &time_ns);
                        if (r != CTL_OK)
                                return r;
                        if (time_ns < best_ns) {
                                best_ns = time_ns;
                                *ret = copy;
                        }
                }
        return r;
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static void series_set(Series *series, unsigned round, const BenchSample *sample)
{
        series->times_ns[round] = (double)sample->time_ns;
        series->faults[round] = (double)sample->n_faults;
        series->misses[round] = (double)sample->n_tlb_misses;
        series->waiters_ns[round] = (double)sample->waiters_cpu_ns;
        if (sample->n_tlb_misses == BENCH_UNKNOWN)
                series->has_misses = false;
}

static void series_get(Series *series, unsigned n_rounds, BenchSide *ret)
{
        ret->time_ns = bench_median(series->times_ns, n_rounds);
        ret->n_faults = (uint64_t)(bench_median(series->faults, n_rounds) + 0.5);
        ret->waiters_cpu_ns = bench_median(series->waiters_ns, n_rounds);
        ret->p50_ns = series->laps.n_laps ? bench_laps_quantile(&series->laps, 0.5) : -1;
        ret->p99_ns = series->laps.n_laps ? bench_laps_quantile(&series->laps, 0.99) : -1;
        ret->n_tlb_misses = BENCH_UNKNOWN;
        if (series->has_misses)
                ret->n_tlb_misses = (uint64_t)(bench_median(series->misses, n_rounds) + 0.5);
}

/* Both, in the order of the round. */
static int measure_both(BenchRun *run, BenchSample *ours, BenchSample *theirs, BenchLaps *laps, BenchLaps *theirs_laps)
{
        bool is_ours_first = run->round % 2 == 0;
        int r = CTL_OK;

        for (int i = 0; r == CTL_OK && i < 2; i++)
                if ((i == 0) == is_ours_first) {
                        run->laps = laps;
                        r = measure_ours(run, ours);
                } else {
                        run->laps = theirs_laps;
                        r = measure_theirs(run, theirs);
                }
        run->laps = NULL;
        return r;
}

static int run_round(BenchRun *run, Rounds *rounds, unsigned round)
{
        BenchSample ours = { 0 }, theirs = { 0 }, ignored = { 0 };
        uint64_t copy_ns = 0;
        int r;

        run->round = round;
        r = measure_both(run, &ours, &theirs, NULL, NULL);
        /* Reading the clock takes as long as what is fast: each by itself is another measurement than the whole. */
        if (r == CTL_OK && run->c->has_laps)
                r = measure_both(run, &ignored, &ignored, &rounds->ours.laps, &rounds->theirs.laps);
        if (r == CTL_OK && rounds->copy)
                r = measure_copy(run, rounds->copy, &copy_ns);
        if (r != CTL_OK)
                return r;
        series_set(&rounds->ours, round, &ours);
        series_set(&rounds->theirs, round, &theirs);
        rounds->ratios[round] = (double)theirs.time_ns / (double)ours.time_ns;
        rounds->fractions[round] = (double)copy_ns / (double)ours.time_ns;
        return CTL_OK;
}

/* What the daemon has been asked, by whomever. */
typedef struct Asked {
        uint64_t n_requests, n_records; /* BENCH_UNKNOWN */
} Asked;

/* Two questions, each of which is a request; the second counts the first. */
#define N_QUESTIONS 2u
static Asked count_asked(const BenchStore *store)
{
        Asked asked;

        asked.n_records = bench_store_number(store, "ring.records", BENCH_UNKNOWN);
        asked.n_requests = bench_store_number(store, "requests.count", BENCH_UNKNOWN);
        return asked;
}

static uint64_t difference(uint64_t before, uint64_t after, uint64_t n_own)
{
        if (before == BENCH_UNKNOWN || after == BENCH_UNKNOWN || after < before + n_own)
                return BENCH_UNKNOWN;
        return after - before - n_own;
}

/* What ours asks of the kernel, and of the daemon. */
static int count_ours(BenchRun *run, BenchResult *result)
{
        const BenchStore *store = &run->bench->store;
        BenchSample sample = { .n_calls = BENCH_UNKNOWN };
        BenchTracer tracer;
        Asked before, after;
        int r = run->c->prepare ? run->c->prepare(run) : CTL_OK, r_clean;

        if (r != CTL_OK)
                return r;
        run->sample = &sample;
        before = count_asked(store);
        if (!run->c->is_self_measured)
                bench_tracer_begin(&tracer);
        r = run->c->ours(run);
        result->ours.n_calls = run->c->is_self_measured ? sample.n_calls : bench_tracer_end(&tracer);
        after = count_asked(store);
        result->n_round_trips = difference(before.n_requests, after.n_requests, N_QUESTIONS);
        result->n_records = difference(before.n_records, after.n_records, 0);
        r_clean = run->c->clean ? run->c->clean(run) : CTL_OK;
        return r != CTL_OK ? r : r_clean;
}

/* Once more, not timed. Theirs has counted already, where it does not take its sample itself. */
static int count(BenchRun *run, BenchResult *result)
{
        BenchSample sample = { .n_calls = BENCH_UNKNOWN };
        int r = CTL_OK;

        run->is_counting = true;
        if (run->c->is_self_measured) {
                r = measure_theirs(run, &sample);
                result->theirs.n_calls = sample.n_calls;
        }
        return r == CTL_OK ? count_ours(run, result) : r;
}

static int run_rounds(BenchRun *run, Rounds *rounds, void (*step)(void *userdata, unsigned n_done), void *userdata)
{
        int r = choose_copy(run, &rounds->copy);

        /* What the first round finds cold is one among many: a median does not see it. */
        for (unsigned round = 0; r == CTL_OK && round < run->bench->n_rounds; round++) {
                step(userdata, round);
                if (bench_stop_is_wanted())
                        return CTL_REFUSED;
                r = run_round(run, rounds, round);
        }
        return r;
}

int bench_round_run(BenchRun *run, void (*step)(void *userdata, unsigned n_done), void *userdata, BenchResult *ret)
{
        unsigned n = run->bench->n_rounds;
        _ctl_cleanup_(ctl_cleanup_free) double *room = calloc(n, 10 * sizeof(*room));
        Rounds rounds;
        int r, r_teardown;

        if (!room)
                return ctl_out_of_memory(run->bench->ctl);
        rounds = (Rounds){
                .ours = { room, room + n, room + 2 * n, room + 3 * n, .has_misses = true },
                .theirs = { room + 4 * n, room + 5 * n, room + 6 * n, room + 7 * n, .has_misses = true },
                .ratios = room + 8 * n,
                .fractions = room + 9 * n,
        };
        bench_laps_init(&rounds.ours.laps);
        rounds.theirs.laps = rounds.ours.laps;
        *ret = (BenchResult){ .fraction = -1, .n_round_trips = BENCH_UNKNOWN, .n_records = BENCH_UNKNOWN };
        r = run->c->setup(run);
        if (r != CTL_OK)
                return r;
        r = run_rounds(run, &rounds, step, userdata);
        if (r == CTL_OK) {
                series_get(&rounds.ours, n, &ret->ours);
                series_get(&rounds.theirs, n, &ret->theirs);
                ret->theirs.n_calls = run->bench->n_plain_calls; /* of the last round */
                ret->ratio = bench_median(rounds.ratios, n);
                ret->spread = bench_spread(rounds.ratios, n);
                if (rounds.copy) {
                        ret->fraction = bench_median(rounds.fractions, n);
                        ret->copy = rounds.copy->name;
                }
                r = count(run, ret);
        }
        r_teardown = run->c->teardown ? run->c->teardown(run) : CTL_OK;
        return r != CTL_OK ? r : r_teardown;
}
