/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `put`: new objects of bytes, one by one with folio_put(), by a client that waits until others can see each
 * (visible), and by one that flushes once in the end (pipelined); in one call of folio_put_many() (many), and as many
 * folio_put_async() under way at once (async); by writers that are not trusted, and that are. Against open, write and
 * close of new tmpfs files, one by one, as there is no other way. What was made is removed outside the clock.
 */
#include "client/ctl/bench-many.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define N_SINGLE 1000u
#define N_TOGETHER 256u
#define N_MIB 32u /* of those of a MiB, one by one */
#define N_MIDDLE 4u
#define WAIT_NS_MAX UINT64_C(30000000000)

/* Instead of sizes: these follow --size. */
enum { SIZE_MIDDLE = 1, SIZE_LARGE = 2 };
enum { KIND_SINGLE, KIND_MANY, KIND_ASYNC };

typedef struct Putting {
        BenchArea source;
        BenchFolder folder;
        BenchMany many;
        struct folio_put_item items[N_TOGETHER];
        struct folio_create_options options;
        size_t n_done;
        int error; /* of the first that failed */
} Putting;

static uint64_t object_bytes(const Bench *bench, uint64_t size)
{
        uint64_t middle_bytes = bench->size_bytes / 16 & ~(uint64_t)(BENCH_HUGE_BYTES - 1);

        if (size == SIZE_LARGE)
                return bench->size_bytes;
        if (size == SIZE_MIDDLE)
                return middle_bytes < BENCH_HUGE_BYTES ? BENCH_HUGE_BYTES : middle_bytes;
        return size;
}

static size_t count_objects(const BenchRun *run)
{
        uint64_t n_bytes = object_bytes(run->bench, run->c->size_bytes), n = N_SINGLE;

        if (run->c->size_bytes == SIZE_LARGE)
                return 1;
        if (run->c->kind != KIND_SINGLE)
                n = N_TOGETHER;
        else if (run->c->size_bytes == SIZE_MIDDLE)
                n = N_MIDDLE;
        else if (n_bytes >= MIB)
                n = N_MIB;
        n = n * n_bytes > run->bench->size_bytes ? run->bench->size_bytes / n_bytes : n;
        return (size_t)(n > 0 ? n : 1);
}

/* --- Folio's side ------------------------------------------------------------------------------------------------- */

static int put_one(BenchRun *run, size_t index)
{
        const Putting *putting = run->bench->state;

        return folio_put(run->client, putting->many.names[index], putting->source.address, run->size_bytes,
                         &putting->options);
}

static int single_ours(BenchRun *run)
{
        const Putting *putting = run->bench->state;

        return bench_many_ours(run, putting->many.n, put_one);
}

static int many_ours(BenchRun *run)
{
        Putting *putting = run->bench->state;
        int r = folio_put_many(run->bench->ctl->client, putting->items, putting->many.n);

        for (size_t i = 0; r > 0 && i < putting->many.n; i++)
                if (putting->items[i].error < 0)
                        r = putting->items[i].error;
        return bench_check_store(run, r);
}

static void note_done(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        Putting *putting = userdata;

        /* A put has no handle, and the client is the only one. */
        (void)client;
        (void)object;
        putting->n_done++;
        if (putting->error == 0)
                putting->error = error;
}

/* As an event loop has it. */
static int wait_for_all(struct folio_client *client, Putting *putting, size_t n_begun)
{
        uint64_t begun_ns = bench_now_ns();
        int r = 0;

        while (r >= 0 && putting->n_done < n_begun) {
                struct pollfd poll_fd = {
                        .fd = folio_client_get_fd(client),
                        .events = (short)folio_client_get_events(client),
                };

                if (bench_now_ns() - begun_ns > WAIT_NS_MAX)
                        return FOLIO_E_TIMEOUT;
                if (poll(&poll_fd, 1, 1000) < 0 && errno != EINTR)
                        return FOLIO_E_IO;
                r = folio_client_process(client);
        }
        return r < 0 ? r : putting->error;
}

static int async_ours(BenchRun *run)
{
        Putting *putting = run->bench->state;
        struct folio_client *client = run->bench->ctl->client;
        size_t n_begun = 0;
        int r = 0, r_wait;

        putting->n_done = 0;
        putting->error = 0;
        for (; r == 0 && n_begun < putting->many.n; n_begun += r == 0)
                r = folio_put_async(client, putting->many.names[n_begun], putting->source.address, run->size_bytes,
                                    &putting->options, note_done, putting);
        r_wait = wait_for_all(client, putting, n_begun);
        return bench_check_store(run, r < 0 ? r : r_wait);
}

static int drop_ours(BenchRun *run)
{
        Putting *putting = run->bench->state;

        bench_many_delete(run->bench, &putting->many);
        return CTL_OK;
}

/* --- the plain side ----------------------------------------------------------------------------------------------- */

static int write_one(BenchRun *run, size_t index)
{
        const Putting *putting = run->bench->state;

        return bench_folder_put(&putting->folder, putting->many.files[index], putting->source.address, run->size_bytes);
}

static int put_theirs(BenchRun *run)
{
        const Putting *putting = run->bench->state;

        return bench_many_theirs(run, putting->many.n, write_one, 3);
}

static int drop_theirs(BenchRun *run)
{
        Putting *putting = run->bench->state;

        bench_many_unlink(&putting->many, &putting->folder);
        return CTL_OK;
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

static int put_copy(BenchRun *run, const BenchCopy *copy)
{
        const Putting *putting = run->bench->state;

        /* The second half of the area is there for this; to a place for each, as the objects have. */
        for (size_t i = 0; i < putting->many.n; i++)
                copy->run(putting->source.address + run->bench->size_bytes + i * run->size_bytes,
                          putting->source.address, (size_t)run->size_bytes);
        return CTL_OK;
}

static void fill_items(Putting *putting, uint64_t n_bytes)
{
        for (size_t i = 0; i < N_TOGETHER && i < putting->many.n; i++)
                putting->items[i] = (struct folio_put_item){
                        .name = putting->many.names[i],
                        .data = putting->source.address,
                        .size_bytes = n_bytes,
                        .options = &putting->options,
                };
}

/* What was put is what is there. */
static int check_bytes(BenchRun *run)
{
        Putting *putting = run->bench->state;
        _ctl_cleanup_(ctl_cleanup_object) struct folio_object *object = NULL;
        const void *data;
        int r = put_one(run, 0);

        if (r == 0)
                r = folio_get(run->client, putting->many.names[0], 0, 0, &object);
        if (r < 0)
                return bench_check_store(run, r);
        data = folio_object_data(object);
        if (folio_object_size(object) != run->size_bytes || !data ||
            memcmp(data, putting->source.address, (size_t)run->size_bytes) != 0)
                return ctl_complain(run->bench->ctl, "wrong bytes: a put of %llu bytes gave others",
                                    (unsigned long long)run->size_bytes);
        if (run->size_bytes >= BENCH_HUGE_BYTES)
                run->huge_share = bench_store_huge_share(object);
        return CTL_OK;
}

static int put_teardown(BenchRun *run)
{
        Putting *putting = run->bench->state;

        (void)drop_ours(run);
        (void)drop_theirs(run);
        bench_many_deinit(&putting->many);
        bench_folder_deinit(&putting->folder);
        return CTL_OK;
}

static int put_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Putting *putting = bench->state;
        int r;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        run->size_bytes = object_bytes(bench, run->c->size_bytes);
        r = bench_many_init(&putting->many, &bench->store, bench_space(run), "put", count_objects(run));
        if (r < 0)
                return ctl_out_of_memory(bench->ctl);
        r = bench_check_plain(run, bench_folder_init(&putting->folder, &bench->plain, run->c->theirs_pages));
        run->n_units = putting->many.n;
        run->n_copied_bytes = run->size_bytes >= 4 * KIB ? putting->many.n * run->size_bytes : 0;
        snprintf(run->what, sizeof(run->what), "open, write and close of a tmpfs file, %s pages",
                 run->c->theirs_pages == BENCH_PAGES_2M ? "2 MiB" : "4 KiB");
        fill_items(putting, run->size_bytes);
        if (r == CTL_OK)
                r = check_bytes(run);
        if (r == CTL_OK)
                r = drop_ours(run);
        if (r != CTL_OK)
                (void)put_teardown(run);
        return r;
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Putting *putting = calloc(1, sizeof(*putting));
        int r;

        if (!putting)
                return ctl_out_of_memory(bench->ctl);
        putting->folder = (BenchFolder)BENCH_FOLDER_NULL;
        putting->options = bench_store_options(0);
        bench->state = putting;
        r = bench_area_init(&putting->source, (size_t)(2 * bench->size_bytes));
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to put from: %s", strerror(-r));
        bench_fill(putting->source.address, (size_t)bench->size_bytes, 17);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Putting *putting = bench->state;

        if (!putting)
                return;
        bench_folder_deinit(&putting->folder);
        bench_many_deinit(&putting->many);
        bench_area_deinit(&putting->source);
        free(putting);
        bench->state = NULL;
}

/* An object of a MiB takes a huge page more where there are such; both clients can hold a region for the largest. */
static uint64_t suite_store_bytes(const Bench *bench)
{
        uint64_t n_small = bench->size_bytes / MIB < N_TOGETHER ? bench->size_bytes / MIB : N_TOGETHER;

        return 2 * bench->size_bytes + n_small * (MIB + BENCH_HUGE_BYTES) + 64 * MIB;
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return 2 * bench->size_bytes + suite_store_bytes(bench);
}

#define COMMON(case_kind, size, page_kind, step)                                                                       \
        .kind = case_kind, .size_bytes = size, .theirs_pages = page_kind, .setup = put_setup,                          \
        .teardown = put_teardown, .ours = step, .clean = drop_ours, .theirs = put_theirs, .clean_theirs = drop_theirs, \
        .reference = put_copy
#define SINGLE(size, page_kind)                                                                                        \
        COMMON(KIND_SINGLE, size, page_kind, single_ours), .unit = BENCH_UNIT_US, .has_laps = true
#define LARGE(page_kind) COMMON(KIND_SINGLE, SIZE_LARGE, page_kind, single_ours), .unit = BENCH_UNIT_MS
/* What theirs is follows in the brackets: both are set against the same. */
#define BOTH(...)                                                                                                      \
        { __VA_ARGS__, .name = "pipelined", .is_pipelined = true },                                                    \
        {                                                                                                              \
                __VA_ARGS__, .name = "visible"                                                                         \
        }
#define TOGETHER(size, page_kind)                                                                                      \
        { COMMON(KIND_MANY, size, page_kind, many_ours), .name = "many", .pages = page_kind, .unit = BENCH_UNIT_US },  \
        {                                                                                                              \
                COMMON(KIND_ASYNC, size, page_kind, async_ours), .name = "async", .pages = page_kind,                  \
                                                                 .unit = BENCH_UNIT_US                                 \
        }
#define ALL(size, page_kind) BOTH(SINGLE(size, page_kind), .pages = page_kind), TOGETHER(size, page_kind)
/* Leased regions are huge where there are such pages, whatever the files have. */
#define TRUSTED(...) BOTH(__VA_ARGS__, .pages = BENCH_PAGES_2M, .is_trusted = true)

/* A small file has small pages: of a huge one it would take 2 MiB, and a packed object has the pages of its region. */
static const BenchCase cases[] = {
        ALL(64, BENCH_PAGES_4K),
        ALL(4 * KIB, BENCH_PAGES_4K),
        ALL(64 * KIB, BENCH_PAGES_4K),
        ALL(MIB, BENCH_PAGES_4K),
        BOTH(SINGLE(SIZE_MIDDLE, BENCH_PAGES_4K), .pages = BENCH_PAGES_4K),
        BOTH(LARGE(BENCH_PAGES_4K), .pages = BENCH_PAGES_4K),
        ALL(MIB, BENCH_PAGES_2M),
        BOTH(SINGLE(SIZE_MIDDLE, BENCH_PAGES_2M), .pages = BENCH_PAGES_2M),
        BOTH(LARGE(BENCH_PAGES_2M), .pages = BENCH_PAGES_2M),
        TRUSTED(SINGLE(64, BENCH_PAGES_4K)),
        TRUSTED(SINGLE(4 * KIB, BENCH_PAGES_4K)),
        TRUSTED(SINGLE(64 * KIB, BENCH_PAGES_4K)),
        TRUSTED(SINGLE(MIB, BENCH_PAGES_4K)),
        TRUSTED(SINGLE(SIZE_MIDDLE, BENCH_PAGES_4K)),
        TRUSTED(LARGE(BENCH_PAGES_4K)),
        TRUSTED(SINGLE(MIB, BENCH_PAGES_2M)),
        TRUSTED(SINGLE(SIZE_MIDDLE, BENCH_PAGES_2M)),
        TRUSTED(LARGE(BENCH_PAGES_2M)),
};

const BenchSuite bench_suite_put = {
        .name = "put",
        .summary = "new objects of bytes, one by one, each waited for (visible) or all of them in the end "
                   "(pipelined), in one call (many), all under way at once (async)",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
