/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is measured: a suite is a table of cases, and a case is functions that do the same work in two ways. Those that
 * are measured do nothing else; what they need is made before and taken away after them.
 *
 * Order of a case: setup; then each round, in alternating order, for both sides: prepare, the work, clean; teardown.
 * Every function but setup, ours and theirs may be NULL. They return CTL_OK; another status: told, and everything ends;
 * or BENCH_LEFT_OUT from setup: this case is not measured, teardown is not called, and the verb says why.
 */
#ifndef CTL_BENCH_CASE_H
#define CTL_BENCH_CASE_H

#include "client/ctl/bench-count.h"
#include "client/ctl/bench-laps.h"
#include "client/ctl/bench-memory.h"
#include "client/ctl/bench-plain.h"
#include "client/ctl/bench-store.h"
#include "client/ctl/ctl.h"

#define BENCH_LEFT_OUT 100
#define BENCH_WHAT_BYTES 160

typedef struct Bench {
        Ctl *ctl;
        uint64_t size_bytes; /* --size: of what is large; suites make theirs of it */
        unsigned n_rounds;
        const char *pattern; /* --case; NULL */
        BenchStore store;
        BenchPlain plain;
        BenchCounter counter;
        uint64_t n_plain_calls; /* system calls that theirs makes; it counts them itself, from 0 in each round */
        void *state; /* of the suite that is open */
} Bench;

typedef enum BenchUnit {
        BENCH_UNIT_GIB_S, /* n_units are bytes */
        BENCH_UNIT_MS, /* of the whole */
        BENCH_UNIT_US, /* of each of n_units */
} BenchUnit;

typedef struct BenchCase BenchCase;

/* A case on its way. */
typedef struct BenchRun {
        Bench *bench;
        const BenchCase *c;
        struct folio_client *client; /* ours is done with it: it waits until others can see it, or does not */
        unsigned round;
        BenchSample *sample; /* of the work that is under way */
        BenchLaps *laps; /* what each operation is counted in; NULL: only the whole is timed */
        bool is_counting; /* not timed: whoever takes the sample itself counts system calls too */
        /* Filled by setup: */
        uint64_t size_bytes; /* of the object, or of all of them */
        uint64_t block_bytes; /* 0: the whole at once */
        uint64_t n_units; /* in one measurement; see BenchUnit */
        uint64_t n_copied_bytes; /* in one measurement, for the share of memcpy; 0: that says nothing here */
        char what[BENCH_WHAT_BYTES]; /* what theirs is */
        /* Filled by whoever looks: */
        double huge_share, theirs_huge_share; /* negative: not known */
} BenchRun;

typedef int BenchStep(BenchRun *run);

/* The same bytes by a copy loop between ordinary memory; as all steps. */
typedef int BenchReference(BenchRun *run, const BenchCopy *copy);

struct BenchCase {
        const char *name;
        BenchPages pages, theirs_pages;
        BenchUnit unit;
        int kind; /* the suite's own */
        uint64_t block_bytes; /* the suite's own, as asked for */
        uint64_t size_bytes;
        bool is_trusted; /* in the namespace whose writers are trusted, whatever pages says */
        bool is_pipelined; /* by the client that does not wait; ours ends with bench_flush() */
        bool is_self_measured; /* both sides take their samples themselves */
        bool has_laps; /* both sides count each operation, in rounds of their own, where BenchRun has laps */
        BenchStep *setup, *teardown;
        BenchStep *prepare, *ours, *clean;
        BenchStep *prepare_theirs, *theirs, *clean_theirs;
        BenchReference *reference;
};

typedef struct BenchSuite {
        const char *name;
        const char *summary;
        const BenchCase *cases;
        size_t n_cases;
        /* How much memory it takes: of the store, and of the machine besides. */
        uint64_t (*store_bytes)(const Bench *bench);
        uint64_t (*other_bytes)(const Bench *bench);
        uint64_t (*n_objects)(const Bench *bench); /* at once in a namespace; NULL: a few thousand */
        int (*open)(Bench *bench); /* CTL_OK, or told: then close is called nevertheless */
        void (*close)(Bench *bench);
} BenchSuite;

extern const BenchSuite bench_suite_read, bench_suite_map, bench_suite_batch, bench_suite_write, bench_suite_put,
        bench_suite_create, bench_suite_get, bench_suite_stat, bench_suite_handoff, bench_suite_truncate,
        bench_suite_delete, bench_suite_beside, bench_suite_shapes;

/* Where ours of @run has its objects. */
BenchSpace bench_space(const BenchRun *run);

/* Are both sides to be had? Else BENCH_LEFT_OUT is to be returned. */
bool bench_can_run(const BenchRun *run);

/* What was done without waiting is done. @error: of what was done before; returned where it is not 0. */
int bench_flush(BenchRun *run, int error);

/* CTL_OK, or told and CTL_REFUSED: @error is 0 or the negative errno of what was done to a plain file. */
int bench_check_plain(BenchRun *run, int error);
/* The same for what was done to an object of the store: 0 or an error of the library. */
int bench_check_store(BenchRun *run, int error);

#endif
