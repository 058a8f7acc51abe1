/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `stat`: folio_exists() and folio_stat() of one object by name, against stat() of a file; by one thread, and
 * the same number of times in all by several (threads-8 and the like), so that the time of one says what all of them
 * reach together. Of threads the first counts what each call takes.
 */
#include "client/ctl/bench-many.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>

#include "client/ctl/bench-crowd.h"

#define OBJECT_BYTES 64u
#define N_CALLS_MAX 1000000u
#define N_CALLS_MIN 20000u
/* By one thread: of the plain way each is a system call. */
#define N_ALONE 10000u
#define THREADS_MAX 1000u

typedef struct Statting {
        BenchFolder folder;
        BenchMany many;
        BenchCrowd crowd;
        unsigned char data[OBJECT_BYTES];
        uint64_t n_calls; /* of each thread */
        atomic_int error; /* of the last that failed */
} Statting;

/* --- one thread --------------------------------------------------------------------------------------------------- */

static int exists_ours(BenchRun *run)
{
        Statting *statting = run->bench->state;
        int r = 1;

        for (uint64_t i = 0; r == 1 && i < statting->n_calls; i++) {
                bench_laps_begin(run->laps);
                r = folio_exists(run->bench->ctl->client, statting->many.names[0]);
                bench_laps_end(run->laps);
        }
        return bench_check_store(run, r == 1 ? 0 : r == 0 ? FOLIO_E_NOT_FOUND : r);
}

static int stat_objects(BenchRun *run, BenchLaps *laps)
{
        Statting *statting = run->bench->state;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        int r = 0;

        for (uint64_t i = 0; r == 0 && i < statting->n_calls; i++) {
                bench_laps_begin(laps);
                r = folio_stat(run->bench->ctl->client, statting->many.names[0], &stat);
                bench_laps_end(laps);
        }
        return r == 0 && stat.size_bytes != OBJECT_BYTES ? FOLIO_E_IO : r;
}

static int stat_files(BenchRun *run, BenchLaps *laps)
{
        Statting *statting = run->bench->state;
        struct stat status = { 0 };
        int r = 0;

        for (uint64_t i = 0; r == 0 && i < statting->n_calls; i++) {
                bench_laps_begin(laps);
                r = fstatat(statting->folder.fd, statting->many.files[0], &status, 0);
                bench_laps_end(laps);
        }
        if (r < 0)
                return -errno;
        return status.st_size != (off_t)OBJECT_BYTES ? -EIO : 0;
}

static int stat_ours(BenchRun *run)
{
        return bench_check_store(run, stat_objects(run, run->laps));
}

static int stat_theirs(BenchRun *run)
{
        const Statting *statting = run->bench->state;

        run->bench->n_plain_calls = statting->n_calls;
        return bench_check_plain(run, stat_files(run, run->laps));
}

/* --- many threads ------------------------------------------------------------------------------------------------- */

static void note_error(BenchRun *run, int error)
{
        Statting *statting = run->bench->state;

        if (error < 0)
                atomic_store(&statting->error, error);
}

static void thread_ours(void *argument, unsigned index)
{
        BenchRun *run = argument;

        note_error(run, stat_objects(run, index == 0 ? run->laps : NULL));
}

static void thread_theirs(void *argument, unsigned index)
{
        BenchRun *run = argument;

        note_error(run, stat_files(run, index == 0 ? run->laps : NULL));
}

static int gather(BenchRun *run, void (*work)(void *argument, unsigned index))
{
        Statting *statting = run->bench->state;
        int r = bench_crowd_init(&statting->crowd, (unsigned)run->c->kind, work, run);

        atomic_store(&statting->error, 0);
        if (r < 0)
                return ctl_complain(run->bench->ctl, "cannot begin %d threads for the measurement: %s", run->c->kind,
                                    strerror(-r));
        return CTL_OK;
}

static int gather_ours(BenchRun *run)
{
        return gather(run, thread_ours);
}

static int gather_theirs(BenchRun *run)
{
        return gather(run, thread_theirs);
}

static int crowd_ours(BenchRun *run)
{
        Statting *statting = run->bench->state;

        bench_crowd_run(&statting->crowd);
        return bench_check_store(run, atomic_load(&statting->error));
}

static int crowd_theirs(BenchRun *run)
{
        Statting *statting = run->bench->state;

        bench_crowd_run(&statting->crowd);
        run->bench->n_plain_calls = statting->n_calls * (unsigned)run->c->kind;
        return bench_check_plain(run, atomic_load(&statting->error));
}

static int disperse(BenchRun *run)
{
        Statting *statting = run->bench->state;

        bench_crowd_deinit(&statting->crowd);
        return CTL_OK;
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

static uint64_t count_calls(const BenchRun *run)
{
        uint64_t n = run->bench->size_bytes >> 10;

        if (run->c->kind == 0)
                return N_ALONE;
        n = n < N_CALLS_MIN ? N_CALLS_MIN : n;
        return (n > N_CALLS_MAX ? N_CALLS_MAX : n) / (unsigned)run->c->kind;
}

static int stat_teardown(BenchRun *run)
{
        Statting *statting = run->bench->state;

        bench_many_delete(run->bench, &statting->many);
        bench_many_unlink(&statting->many, &statting->folder);
        bench_many_deinit(&statting->many);
        bench_folder_deinit(&statting->folder);
        return CTL_OK;
}

static int stat_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Statting *statting = bench->state;
        int r;

        if (!bench_store_has(&bench->store, bench_space(run)))
                return BENCH_LEFT_OUT;
        if (bench_many_init(&statting->many, &bench->store, bench_space(run), "stat", 1) < 0)
                return ctl_out_of_memory(bench->ctl);
        statting->n_calls = count_calls(run);
        run->size_bytes = OBJECT_BYTES;
        run->n_units = statting->n_calls * (run->c->kind ? (unsigned)run->c->kind : 1);
        snprintf(run->what, sizeof(run->what), "stat of a tmpfs file by name");
        r = bench_check_plain(run, bench_folder_init(&statting->folder, &bench->plain, run->c->theirs_pages));
        if (r == CTL_OK)
                r = bench_many_put(run, &statting->many, statting->data, OBJECT_BYTES);
        if (r == CTL_OK)
                r = bench_many_write(run, &statting->many, &statting->folder, statting->data, OBJECT_BYTES);
        if (r != CTL_OK)
                (void)stat_teardown(run);
        return r;
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Statting *statting = calloc(1, sizeof(*statting));

        if (!statting)
                return ctl_out_of_memory(bench->ctl);
        statting->folder = (BenchFolder)BENCH_FOLDER_NULL;
        bench->state = statting;
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        free(bench->state);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        (void)bench; /* it is the same at all sizes */
        return (uint64_t)4 << 20;
}

/* Stacks, of which each thread touches a few pages. */
static uint64_t suite_other_bytes(const Bench *bench)
{
        (void)bench; /* as above */
        return (uint64_t)THREADS_MAX * 4 * BENCH_PAGE_BYTES;
}

#define COMMON(case_name, case_kind)                                                                                   \
        .name = case_name, .kind = case_kind, .unit = BENCH_UNIT_US, .has_laps = true, .setup = stat_setup,            \
        .teardown = stat_teardown
#define ALONE(case_name, step)                                                                                         \
        {                                                                                                              \
                COMMON(case_name, 0), .ours = step, .theirs = stat_theirs                                              \
        }
#define THREADS(case_name, n)                                                                                          \
        {                                                                                                              \
                COMMON(case_name, n), .prepare = gather_ours, .ours = crowd_ours, .clean = disperse,                   \
                                      .prepare_theirs = gather_theirs, .theirs = crowd_theirs,                         \
                                      .clean_theirs = disperse                                                         \
        }

static const BenchCase cases[] = {
        ALONE("exists", exists_ours), ALONE("stat", stat_ours),  THREADS("threads-1", 1),
        THREADS("threads-2", 2),      THREADS("threads-8", 8),   THREADS("threads-1000", THREADS_MAX),
};

const BenchSuite bench_suite_stat = {
        .name = "stat",
        .summary = "one object asked after by name: there is one (exists), what is it (stat), by several threads",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
