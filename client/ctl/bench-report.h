/* SPDX-License-Identifier: Apache-2.0 */
/* Results as they are shown: a table for people, under what machine it was; a line of JSON each for programs. */
#ifndef CTL_BENCH_REPORT_H
#define CTL_BENCH_REPORT_H

#include "client/ctl/bench-round.h"
#include "client/ctl/table.h"

typedef struct BenchReport {
        const Bench *bench;
        const BenchSuite *suite;
        Table *table; /* not with --json */
        bool has_laps; /* columns for what single operations take, and for processes that wait */
        size_t n_cases_done;
        size_t n_rows;
        const char *label; /* of the case on its way; borrowed */
        bool is_drawn; /* the line on the terminal */
} BenchReport;

/* The machine, the daemon, how to read it. Not with --json. */
void bench_report_heading(const Bench *bench);

/* CTL_OK, or told. */
int bench_report_begin(BenchReport *report, const Bench *bench, const BenchSuite *suite);
/* Rows are printed, and everything is freed; legal after a failure of bench_report_begin(). */
void bench_report_end(BenchReport *report);

/* A line on a terminal that says how far it is; a `step` of bench_round_run(). */
void bench_report_progress(void *report, unsigned n_rounds_done);
/* CTL_OK, or told. */
int bench_report_add(BenchReport *report, const BenchRun *run, const BenchResult *result);

#endif
