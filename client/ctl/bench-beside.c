/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `beside`: small puts while something else goes on. Beside another client that creates large objects and
 * gives them up, in a loop (create), and while the memory of one that another client has deleted goes back (delete): set
 * against the same puts alone, of which the 99th percentile is what counts. And by several clients at once, each with a
 * thread (writers-1 and so on), the same number of puts in all, set against as many threads that make tmpfs files.
 */
#include "client/ctl/bench-many.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/bench-crowd.h"

#define SMALL_BYTES 64u
#define N_PUTS 4000u
#define WRITERS_MAX 4u
#define BEGIN_NS_MAX UINT64_C(10000000000)
#define LARGE "beside-large"

enum { KIND_CREATE, KIND_DELETE, KIND_WRITERS };

typedef struct Beside {
        BenchFolder folder;
        BenchMany many;
        BenchArea source; /* of what is large */
        struct folio_create_options options;
        char large[BENCH_NAME_BYTES]; /* the name of that */
        struct folio_client *other;
        atomic_bool is_ending;
        atomic_uint n_created; /* by the other, whether it could or not */
        struct folio_client *writers[WRITERS_MAX];
        BenchCrowd crowd; /* the writers, or the one who creates */
        atomic_int error; /* of the first writer that failed */
} Beside;

/* --- small puts --------------------------------------------------------------------------------------------------- */

static const unsigned char small[SMALL_BYTES] = "sixty-four bytes";

static int put_one(BenchRun *run, size_t index)
{
        const Beside *beside = run->bench->state;

        return folio_put(run->client, beside->many.names[index], small, sizeof(small), &beside->options);
}

static int put_all(BenchRun *run)
{
        const Beside *beside = run->bench->state;

        return bench_many_ours(run, beside->many.n, put_one);
}

static int drop_all(BenchRun *run)
{
        const Beside *beside = run->bench->state;

        bench_many_delete(run->bench, &beside->many);
        return CTL_OK;
}

/* --- beside another client that creates --------------------------------------------------------------------------- */

/* A create that the store has no room for just then, as the last one's memory is still on its way, is one too. */
static void create_again_and_again(void *argument, unsigned index)
{
        BenchRun *run = argument;
        Beside *beside = run->bench->state;

        (void)index; /* it is the only one */
        while (!atomic_load(&beside->is_ending)) {
                struct folio_object *object;

                if (folio_create(beside->other, beside->large, run->bench->size_bytes, &beside->options, &object) == 0)
                        (void)folio_object_release(object);
                atomic_fetch_add(&beside->n_created, 1);
        }
}

static int begin_creating(BenchRun *run)
{
        Beside *beside = run->bench->state;
        uint64_t begun_ns = bench_now_ns();
        int r = bench_crowd_init(&beside->crowd, 1, create_again_and_again, run);

        if (r < 0)
                return ctl_complain(run->bench->ctl, "cannot begin a thread that creates: %s", strerror(-r));
        atomic_store(&beside->is_ending, false);
        atomic_store(&beside->n_created, 0);
        bench_crowd_call(&beside->crowd);
        /* From the second on it is as it will be. */
        while (atomic_load(&beside->n_created) < 2 && bench_now_ns() - begun_ns < BEGIN_NS_MAX)
                (void)sched_yield();
        return CTL_OK;
}

static int end_creating(BenchRun *run)
{
        Beside *beside = run->bench->state;

        atomic_store(&beside->is_ending, true);
        bench_crowd_wait(&beside->crowd);
        bench_crowd_deinit(&beside->crowd);
        return drop_all(run);
}

/* --- while memory goes back --------------------------------------------------------------------------------------- */

static int make_large(BenchRun *run)
{
        Beside *beside = run->bench->state;

        return bench_check_store(run, folio_put(beside->other, beside->large, beside->source.address,
                                                run->bench->size_bytes, &beside->options));
}

/* The delete itself is part of it. */
static int put_while_deleted(BenchRun *run)
{
        Beside *beside = run->bench->state;
        int r = folio_delete(beside->other, beside->large, 0);

        return r < 0 ? bench_check_store(run, r) : put_all(run);
}

/* --- several writers ---------------------------------------------------------------------------------------------- */

static void note_error(Beside *beside, int error)
{
        int none = 0;

        if (error < 0)
                (void)atomic_compare_exchange_strong(&beside->error, &none, error);
}

/* The names of writer @index: all of them, dealt out. */
static void write_objects(void *argument, unsigned index)
{
        BenchRun *run = argument;
        Beside *beside = run->bench->state;
        struct folio_client *client = beside->writers[index];
        int r = 0;

        for (size_t i = index; r == 0 && i < beside->many.n; i += (size_t)run->c->block_bytes)
                r = folio_put(client, beside->many.names[i], small, sizeof(small), &beside->options);
        note_error(beside, r);
        note_error(beside, folio_flush(client));
}

static void write_files(void *argument, unsigned index)
{
        BenchRun *run = argument;
        Beside *beside = run->bench->state;
        int r = 0;

        for (size_t i = index; r == 0 && i < beside->many.n; i += (size_t)run->c->block_bytes)
                r = bench_folder_put(&beside->folder, beside->many.files[i], small, sizeof(small));
        note_error(beside, r);
}

static int gather(BenchRun *run, void (*work)(void *argument, unsigned index))
{
        Beside *beside = run->bench->state;
        int r = bench_crowd_init(&beside->crowd, (unsigned)run->c->block_bytes, work, run);

        atomic_store(&beside->error, 0);
        if (r < 0)
                return ctl_complain(run->bench->ctl, "cannot begin threads for the measurement: %s", strerror(-r));
        return CTL_OK;
}

static int gather_ours(BenchRun *run)
{
        return gather(run, write_objects);
}

static int gather_theirs(BenchRun *run)
{
        return gather(run, write_files);
}

static int writers_ours(BenchRun *run)
{
        Beside *beside = run->bench->state;

        bench_crowd_run(&beside->crowd);
        return bench_check_store(run, atomic_load(&beside->error));
}

static int writers_theirs(BenchRun *run)
{
        Beside *beside = run->bench->state;

        bench_crowd_run(&beside->crowd);
        run->bench->n_plain_calls = 3 * beside->many.n;
        return bench_check_plain(run, atomic_load(&beside->error));
}

static int disperse_ours(BenchRun *run)
{
        Beside *beside = run->bench->state;

        bench_crowd_deinit(&beside->crowd);
        return drop_all(run);
}

static int disperse_theirs(BenchRun *run)
{
        Beside *beside = run->bench->state;

        bench_crowd_deinit(&beside->crowd);
        bench_many_unlink(&beside->many, &beside->folder);
        return CTL_OK;
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

static int beside_teardown(BenchRun *run)
{
        Beside *beside = run->bench->state;

        (void)drop_all(run);
        (void)folio_delete(run->bench->ctl->client, beside->large, FOLIO_IF_EXISTS);
        bench_store_settle(&run->bench->store);
        if (beside->other)
                folio_client_unref(beside->other);
        beside->other = NULL;
        for (unsigned i = 0; i < WRITERS_MAX; i++) {
                if (beside->writers[i])
                        folio_client_unref(beside->writers[i]);
                beside->writers[i] = NULL;
        }
        bench_many_deinit(&beside->many);
        bench_folder_deinit(&beside->folder);
        return CTL_OK;
}

static int connect_others(BenchRun *run)
{
        const BenchStore *store = &run->bench->store;
        Beside *beside = run->bench->state;
        int r = 0;

        if (run->c->kind != KIND_WRITERS)
                return bench_check_store(run, bench_store_connect(store, FOLIO_OPEN_VISIBLE, &beside->other));
        for (unsigned i = 0; r == 0 && i < run->c->block_bytes; i++)
                r = bench_store_connect(store, 0, &beside->writers[i]);
        return bench_check_store(run, r);
}

static const char *what_of(const BenchRun *run)
{
        return run->c->kind == KIND_WRITERS ? "as many threads that open, write and close tmpfs files" : "Folio alone";
}

static int beside_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Beside *beside = bench->state;
        int r;

        if (!bench_store_has(&bench->store, bench_space(run)))
                return BENCH_LEFT_OUT;
        if (bench_many_init(&beside->many, &bench->store, bench_space(run), "beside", N_PUTS) < 0)
                return ctl_out_of_memory(bench->ctl);
        (void)bench_store_name(&bench->store, bench_space(run), LARGE, beside->large);
        r = bench_check_plain(run, bench_folder_init(&beside->folder, &bench->plain, run->c->theirs_pages));
        if (r == CTL_OK)
                r = connect_others(run);
        run->size_bytes = SMALL_BYTES;
        run->n_units = beside->many.n;
        snprintf(run->what, sizeof(run->what), "%s", what_of(run));
        if (r != CTL_OK)
                (void)beside_teardown(run);
        return r;
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Beside *beside = calloc(1, sizeof(*beside));
        int r;

        if (!beside)
                return ctl_out_of_memory(bench->ctl);
        beside->folder = (BenchFolder)BENCH_FOLDER_NULL;
        beside->options = bench_store_options(0);
        bench->state = beside;
        r = bench_area_init(&beside->source, (size_t)bench->size_bytes);
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to put from: %s", strerror(-r));
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Beside *beside = bench->state;

        if (!beside)
                return;
        bench_area_deinit(&beside->source);
        free(beside);
        bench->state = NULL;
}

/* One that is created while the last one's memory still goes back. */
static uint64_t suite_store_bytes(const Bench *bench)
{
        return 2 * bench->size_bytes + ((uint64_t)64 << 20);
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return bench->size_bytes + ((uint64_t)32 << 20);
}

#define COMMON(case_name, case_kind)                                                                                   \
        .name = case_name, .kind = case_kind, .setup = beside_setup, .teardown = beside_teardown, .unit = BENCH_UNIT_US
#define CREATE(case_name)                                                                                              \
        COMMON(case_name, KIND_CREATE), .has_laps = true, .prepare = begin_creating, .ours = put_all,                  \
                                        .clean = end_creating, .theirs = put_all, .clean_theirs = drop_all
#define DELETE(case_name)                                                                                              \
        COMMON(case_name, KIND_DELETE), .has_laps = true, .prepare = make_large, .ours = put_while_deleted,            \
                                        .clean = drop_all, .theirs = put_all, .clean_theirs = drop_all
#define WRITERS(case_name, n)                                                                                          \
        COMMON(case_name, KIND_WRITERS), .block_bytes = n, .prepare = gather_ours, .ours = writers_ours,               \
                                         .clean = disperse_ours, .prepare_theirs = gather_theirs,                      \
                                         .theirs = writers_theirs, .clean_theirs = disperse_theirs
#define TRUSTED .is_trusted = true, .pages = BENCH_PAGES_2M
#define ALL(...)                                                                                                       \
        { CREATE("create"), __VA_ARGS__ }, { CREATE("create-pipelined"), .is_pipelined = true, __VA_ARGS__ },          \
                { DELETE("delete"), __VA_ARGS__ }, { DELETE("delete-pipelined"), .is_pipelined = true, __VA_ARGS__ },  \
                { WRITERS("writers-1", 1), __VA_ARGS__ }, { WRITERS("writers-2", 2), __VA_ARGS__ },                    \
        {                                                                                                              \
                WRITERS("writers-4", WRITERS_MAX), __VA_ARGS__                                                         \
        }

static const BenchCase cases[] = { ALL(.is_trusted = false), ALL(TRUSTED) };

const BenchSuite bench_suite_beside = {
        .name = "beside",
        .summary = "small puts beside a client that creates large objects (create), and while the memory of one goes "
                   "back (delete), against the same alone; and by several clients at once",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
