/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench: how fast this store is on this machine, beside the plain kernel way and beside a copy loop. Works on the store
 * it is connected to, in namespaces of its own, and leaves nothing there, also when it is interrupted. Measures nothing
 * itself: see bench-case.h.
 */
#include <stdio.h>
#include <string.h>

#include "client/ctl/bench-report.h"
#include "client/ctl/bench-round.h"
#include "client/ctl/bench-stop.h"
#include "client/ctl/facts.h"
#include "client/ctl/text.h"
#include "client/ctl/verbs.h"

#define SIZE_DEFAULT ((uint64_t)1 << 30)
#define SIZE_MIN ((uint64_t)4 << 20)
#define SIZE_MAX_BYTES ((uint64_t)1 << 40)
#define SIZE_UNIT SIZE_MIN
#define ROUNDS_DEFAULT 7u
#define NAMES_BYTES 160
#define CASES_BYTES 640
/* What the store and this program need besides. */
#define STORE_SPARE_BYTES ((uint64_t)48 << 20)
#define OTHER_SPARE_BYTES ((uint64_t)64 << 20)

enum {
        BENCH_SIZE = 1,
        BENCH_ROUNDS,
        BENCH_CASE,
        BENCH_BACKING,
};

static const CtlOption options[] = {
        { BENCH_SIZE, 0, "size", "SIZE", "of what is large; the rest is made smaller with it [1G]" },
        { BENCH_ROUNDS, 0, "rounds", "N", "how often each case is measured [7]" },
        { BENCH_CASE, 0, "case", "TEXT", "only cases whose name begins so" },
        { BENCH_BACKING, 0, "backing", "WORD", "memfd or tmpfs, for the objects [memfd]" },
        { 0 },
};

static const BenchSuite *const suites[] = {
        &bench_suite_read,    &bench_suite_map,      &bench_suite_batch,  &bench_suite_write,
        &bench_suite_put,     &bench_suite_create,   &bench_suite_get,    &bench_suite_stat,
        &bench_suite_handoff, &bench_suite_truncate, &bench_suite_delete, &bench_suite_beside,
        &bench_suite_shapes,
};

#define N_SUITES (sizeof(suites) / sizeof(suites[0]))

static const BenchSuite *find_suite(const char *name)
{
        for (size_t i = 0; i < N_SUITES; i++)
                if (strcmp(suites[i]->name, name) == 0)
                        return suites[i];
        return NULL;
}

/* --- is there room? ----------------------------------------------------------------------------------------------- */

/* What the store can still take: blank memory that it keeps is given where it is wanted. */
static uint64_t store_available(const Bench *bench)
{
        uint64_t budget = bench_store_number(&bench->store, "memory.budget_bytes", UINT64_MAX);
        uint64_t used = bench_store_number(&bench->store, "memory.used_bytes", 0);
        uint64_t blank = bench_store_number(&bench->store, "pool.bytes", 0);

        used = used > blank ? used - blank : 0;
        return budget > used ? budget - used : 0;
}

/* The largest --size for which both fit; 0: none does. */
static uint64_t size_that_fits(const Bench *bench, const BenchSuite *suite, uint64_t store_bytes,
                               uint64_t machine_bytes)
{
        Bench smaller = *bench;

        for (smaller.size_bytes /= 2; smaller.size_bytes >= SIZE_MIN; smaller.size_bytes /= 2)
                if (suite->store_bytes(&smaller) + STORE_SPARE_BYTES <= store_bytes &&
                    suite->store_bytes(&smaller) + suite->other_bytes(&smaller) + OTHER_SPARE_BYTES <= machine_bytes)
                        return smaller.size_bytes;
        return 0;
}

static int check_room(const Bench *bench, const BenchSuite *suite)
{
        uint64_t store_needed = suite->store_bytes(bench) + STORE_SPARE_BYTES;
        uint64_t machine_needed = suite->store_bytes(bench) + suite->other_bytes(bench) + OTHER_SPARE_BYTES;
        uint64_t store_bytes = store_available(bench), machine_bytes = bench_memory_available(), fitting_bytes;
        bool is_store = store_bytes < store_needed;
        char needed[TEXT_SIZE_BYTES], there[TEXT_SIZE_BYTES], fitting[TEXT_SIZE_BYTES], advice[64] = "";

        if (!is_store && machine_bytes >= machine_needed)
                return CTL_OK;
        fitting_bytes = size_that_fits(bench, suite, store_bytes, machine_bytes);
        if (fitting_bytes)
                snprintf(advice, sizeof(advice), "; --size %s would fit", text_format_size(fitting_bytes, fitting));
        text_format_size(is_store ? store_needed : machine_needed, needed);
        text_format_size(is_store ? store_bytes : machine_bytes, there);
        if (is_store)
                return ctl_complain(bench->ctl,
                                    "bench %s takes %s of the store, which has %s left%s; a store of its own: "
                                    "`folioctl run --budget 3G -- folioctl bench %s`",
                                    suite->name, needed, there, advice, suite->name);
        return ctl_complain(bench->ctl, "bench %s takes %s of memory in all, and this machine or cgroup has %s left%s",
                            suite->name, needed, there, advice);
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

/* Why a case was not measured. Said once for all of a suite that lack the same. */
static void note_left_out(const Bench *bench, const BenchSuite *suite, const bool left_out[_BENCH_SPACE_MAX])
{
        for (int i = 0; i < _BENCH_PAGES_MAX; i++) {
                const char *pages = i == BENCH_PAGES_2M ? "2 MiB" : "4 KiB";

                if (!left_out[i])
                        continue;
                if (!bench_plain_has(&bench->plain, (BenchPages)i))
                        ctl_note(bench->ctl, "bench %s: cases with %s pages are left out: %s", suite->name, pages,
                                 bench->plain.sentence);
                else
                        ctl_note(bench->ctl,
                                 "bench %s: cases with %s pages are left out: objects of `default` have others",
                                 suite->name, pages);
        }
}

static bool is_wanted(const Bench *bench, const BenchCase *c)
{
        return !bench->pattern || strncmp(c->name, bench->pattern, strlen(bench->pattern)) == 0;
}

static int run_cases(Bench *bench, const BenchSuite *suite, BenchReport *report)
{
        bool left_out[_BENCH_SPACE_MAX] = { false };
        int r = CTL_OK;

        for (size_t i = 0; r == CTL_OK && i < suite->n_cases; i++, report->n_cases_done++) {
                BenchRun run = {
                        .bench = bench,
                        .c = &suite->cases[i],
                        .client = suite->cases[i].is_pipelined ? bench->store.pipelined : bench->ctl->client,
                        .huge_share = -1,
                        .theirs_huge_share = -1,
                };
                BenchResult result;

                if (!is_wanted(bench, run.c))
                        continue;
                if (bench_stop_is_wanted())
                        return CTL_REFUSED;
                report->label = run.c->name;
                bench_report_progress(report, 0);
                r = bench_round_run(&run, bench_report_progress, report, &result);
                if (r == CTL_OK)
                        r = bench_report_add(report, &run, &result);
                if (r == BENCH_LEFT_OUT) {
                        left_out[bench_space(&run)] |= !bench_store_has(&bench->store, bench_space(&run));
                        left_out[run.c->theirs_pages] |= !bench_plain_has(&bench->plain, run.c->theirs_pages);
                        r = CTL_OK;
                }
        }
        note_left_out(bench, suite, left_out);
        return r;
}

static int run_suite(Bench *bench, const BenchSuite *suite)
{
        BenchReport report;
        int r = bench_report_begin(&report, bench, suite);

        if (r == CTL_OK)
                r = suite->open(bench);
        if (r == CTL_OK)
                r = run_cases(bench, suite, &report);
        suite->close(bench);
        bench_report_end(&report);
        return r;
}

/* The most that a suite has in one namespace. */
static uint64_t count_objects(const Bench *bench)
{
        uint64_t n_max = 0;

        for (int i = 0; i < bench->ctl->n_arguments; i++) {
                const BenchSuite *suite = find_suite(bench->ctl->arguments[i]);
                uint64_t n = suite->n_objects ? suite->n_objects(bench) : 0;

                n_max = n > n_max ? n : n_max;
        }
        return n_max;
}

/* Between the first namespace and the last nothing ends us but SIGKILL. */
static int run_suites(Bench *bench, uint32_t backing)
{
        int r;

        bench_stop_begin();
        bench_plain_init(&bench->plain);
        bench_counter_init(&bench->counter);
        r = bench_store_init(&bench->store, bench->ctl, backing, count_objects(bench));
        for (int i = 0; r == CTL_OK && i < bench->ctl->n_arguments; i++)
                r = check_room(bench, find_suite(bench->ctl->arguments[i]));
        if (r == CTL_OK && !bench->ctl->is_json)
                bench_report_heading(bench);
        for (int i = 0; r == CTL_OK && i < bench->ctl->n_arguments; i++)
                r = run_suite(bench, find_suite(bench->ctl->arguments[i]));
        bench_store_deinit(&bench->store);
        bench_counter_deinit(&bench->counter);
        bench_plain_deinit(&bench->plain);
        bench_stop_end();
        return r;
}

/* --- the verb ----------------------------------------------------------------------------------------------------- */

static bool has_case(const Bench *bench, const BenchSuite *suite)
{
        for (size_t i = 0; i < suite->n_cases; i++)
                if (is_wanted(bench, &suite->cases[i]))
                        return true;
        return false;
}

/* "read, map, ..." */
static const char *list_suites(char buffer[NAMES_BYTES])
{
        size_t n = 0;

        for (size_t i = 0; i < N_SUITES && n < NAMES_BYTES; i++)
                n += (size_t)snprintf(buffer + n, NAMES_BYTES - n, "%s%s", i ? ", " : "", suites[i]->name);
        return buffer;
}

/* "one-memfd, one-file, ...": each once, as there is a case for each size. */
static const char *list_cases(const BenchSuite *suite, char buffer[CASES_BYTES])
{
        size_t n = 0;

        buffer[0] = '\0';
        for (size_t i = 0; i < suite->n_cases && n < CASES_BYTES; i++) {
                size_t before = 0;

                while (before < i && strcmp(suite->cases[before].name, suite->cases[i].name) != 0)
                        before++;
                if (before == i)
                        n += (size_t)snprintf(buffer + n, CASES_BYTES - n, "%s%s", i ? ", " : "", suite->cases[i].name);
        }
        return buffer;
}

static int check_suites(Bench *bench)
{
        Ctl *ctl = bench->ctl;
        char names[NAMES_BYTES], cases[CASES_BYTES];

        for (int i = 0; i < ctl->n_arguments; i++) {
                const BenchSuite *suite = find_suite(ctl->arguments[i]);

                if (!suite)
                        return ctl_usage_error(ctl, "'%s' is none of %s", ctl->arguments[i], list_suites(names));
                if (!has_case(bench, suite))
                        return ctl_usage_error(ctl, "--case: no case of %s begins with '%s'; there are %s", suite->name,
                                               bench->pattern, list_cases(suite, cases));
        }
        return CTL_OK;
}

static int take_option(Ctl *ctl, Bench *bench, uint32_t *backing, int id, const char *argument)
{
        uint64_t n_rounds;

        switch (id) {
        case BENCH_SIZE:
                if (!ctl_take_size(ctl, "--size", argument, &bench->size_bytes))
                        return ctl->status;
                if (bench->size_bytes < SIZE_MIN || bench->size_bytes > SIZE_MAX_BYTES)
                        return ctl_usage_error(ctl, "--size: from 4M to 1T");
                /* Pages, blocks and quarters come out even. */
                bench->size_bytes -= bench->size_bytes % SIZE_UNIT;
                return CTL_OK;
        case BENCH_ROUNDS:
                if (!ctl_take_number(ctl, "--rounds", argument, &n_rounds))
                        return ctl->status;
                if (n_rounds < 1 || n_rounds > BENCH_ROUNDS_MAX)
                        return ctl_usage_error(ctl, "--rounds: from 1 to %d", BENCH_ROUNDS_MAX);
                bench->n_rounds = (unsigned)n_rounds;
                return CTL_OK;
        case BENCH_CASE:
                bench->pattern = argument;
                return CTL_OK;
        default:
                return facts_parse_backing(argument, backing)
                               ? CTL_OK
                               : ctl_usage_error(ctl, "--backing: '%s' is neither memfd nor tmpfs", argument);
        }
}

static int bench_run(Ctl *ctl)
{
        Bench bench = { .ctl = ctl, .size_bytes = SIZE_DEFAULT, .n_rounds = ROUNDS_DEFAULT };
        const char *argument;
        uint32_t backing = 0;
        int id, r;

        while ((id = ctl_next_option(ctl, &argument)) > 0) {
                r = take_option(ctl, &bench, &backing, id, argument);
                if (r != CTL_OK)
                        return r;
        }
        if (id < 0 || !ctl_check_arguments(ctl, 1, N_SUITES))
                return ctl->status;
        r = check_suites(&bench);
        if (r == CTL_OK)
                r = ctl_open(ctl);
        return r == CTL_OK ? run_suites(&bench, backing) : r;
}

const CtlVerb verb_bench = {
        .name = "bench",
        .usage = "read|map|batch|write|put|create|get|stat|handoff|truncate|delete|beside|shapes...",
        .summary = "measure this store beside plain files, in alternation, and show the ratios",
        .options = options,
        .run = bench_run,
};
