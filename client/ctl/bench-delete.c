/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `delete`: names are taken away, of objects of 64 bytes one by one, by a client that waits for each (single)
 * and by one that flushes in the end (pipelined), and in one call (many); and of one large object; measured is the time
 * until the caller goes on. Against unlink() of files that nobody has open.
 */
#include "client/ctl/bench-many.h"

#include <stdio.h>
#include <string.h>

#define SMALL_BYTES 64u
#define N_SMALL 1000u

enum { KIND_SMALL, KIND_LARGE };

typedef struct Deleting {
        BenchArea source;
        BenchFolder folder;
        BenchMany many;
        struct folio_delete_item items[N_SMALL];
} Deleting;

static int delete_one(BenchRun *run, size_t index)
{
        const Deleting *deleting = run->bench->state;

        return folio_delete(run->client, deleting->many.names[index], 0);
}

static int delete_ours(BenchRun *run)
{
        const Deleting *deleting = run->bench->state;

        return bench_many_ours(run, deleting->many.n, delete_one);
}

static int many_ours(BenchRun *run)
{
        Deleting *deleting = run->bench->state;
        int r = folio_delete_many(run->bench->ctl->client, deleting->items, deleting->many.n);

        for (size_t i = 0; r > 0 && i < deleting->many.n; i++)
                if (deleting->items[i].error < 0)
                        r = deleting->items[i].error;
        return bench_check_store(run, r);
}

static int unlink_one(BenchRun *run, size_t index)
{
        const Deleting *deleting = run->bench->state;

        return bench_folder_remove(&deleting->folder, deleting->many.files[index]);
}

static int unlink_theirs(BenchRun *run)
{
        const Deleting *deleting = run->bench->state;

        return bench_many_theirs(run, deleting->many.n, unlink_one, 1);
}

/* --- before and after --------------------------------------------------------------------------------------------- */

static int make_ours(BenchRun *run)
{
        Deleting *deleting = run->bench->state;

        return bench_many_put(run, &deleting->many, deleting->source.address, run->size_bytes);
}

/* What the work has left; and what it has freed is free. */
static int drop_ours(BenchRun *run)
{
        Deleting *deleting = run->bench->state;

        bench_many_delete(run->bench, &deleting->many);
        return CTL_OK;
}

static int make_theirs(BenchRun *run)
{
        Deleting *deleting = run->bench->state;

        return bench_many_write(run, &deleting->many, &deleting->folder, deleting->source.address, run->size_bytes);
}

static int drop_theirs(BenchRun *run)
{
        Deleting *deleting = run->bench->state;

        bench_many_unlink(&deleting->many, &deleting->folder);
        return CTL_OK;
}

static int delete_teardown(BenchRun *run)
{
        Deleting *deleting = run->bench->state;

        (void)drop_ours(run);
        (void)drop_theirs(run);
        bench_many_deinit(&deleting->many);
        bench_folder_deinit(&deleting->folder);
        return CTL_OK;
}

static int delete_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Deleting *deleting = bench->state;
        bool is_large = run->c->kind == KIND_LARGE;
        int r;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        if (bench_many_init(&deleting->many, &bench->store, bench_space(run), "delete", is_large ? 1 : N_SMALL) < 0)
                return ctl_out_of_memory(bench->ctl);
        r = bench_folder_init(&deleting->folder, &bench->plain, run->c->theirs_pages);
        for (size_t i = 0; i < deleting->many.n; i++)
                deleting->items[i] = (struct folio_delete_item){ .name = deleting->many.names[i] };
        run->size_bytes = is_large ? bench->size_bytes : SMALL_BYTES;
        run->n_units = deleting->many.n;
        snprintf(run->what, sizeof(run->what), "unlink of a tmpfs file, %s pages",
                 run->c->theirs_pages == BENCH_PAGES_2M ? "2 MiB" : "4 KiB");
        if (r < 0)
                (void)delete_teardown(run);
        return bench_check_plain(run, r);
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Deleting *deleting = calloc(1, sizeof(*deleting));
        int r;

        if (!deleting)
                return ctl_out_of_memory(bench->ctl);
        deleting->folder = (BenchFolder)BENCH_FOLDER_NULL;
        bench->state = deleting;
        r = bench_area_init(&deleting->source, (size_t)bench->size_bytes);
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to put from: %s", strerror(-r));
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Deleting *deleting = bench->state;

        if (!deleting)
                return;
        bench_area_deinit(&deleting->source);
        free(deleting);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        return 2 * bench->size_bytes + ((uint64_t)64 << 20);
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return 2 * bench->size_bytes + ((uint64_t)16 << 20);
}

#define COMMON(case_kind, page_kind, step)                                                                             \
        .kind = case_kind, .theirs_pages = page_kind, .setup = delete_setup, .teardown = delete_teardown,              \
        .prepare = make_ours, .ours = step, .clean = drop_ours, .prepare_theirs = make_theirs,                         \
        .theirs = unlink_theirs, .clean_theirs = drop_theirs, .unit = BENCH_UNIT_US
#define SMALL COMMON(KIND_SMALL, BENCH_PAGES_4K, delete_ours), .has_laps = true
#define LARGE(page_kind) COMMON(KIND_LARGE, page_kind, delete_ours)

static const BenchCase cases[] = {
        { SMALL, .name = "single" },
        { SMALL, .name = "pipelined", .is_pipelined = true },
        { COMMON(KIND_SMALL, BENCH_PAGES_4K, many_ours), .name = "many" },
        { LARGE(BENCH_PAGES_4K), .name = "single" },
        { LARGE(BENCH_PAGES_2M), .name = "single", .pages = BENCH_PAGES_2M },
        { LARGE(BENCH_PAGES_2M), .name = "pipelined", .pages = BENCH_PAGES_2M, .is_pipelined = true },
        { SMALL, .name = "single", .pages = BENCH_PAGES_2M, .is_trusted = true },
        { SMALL, .name = "pipelined", .pages = BENCH_PAGES_2M, .is_trusted = true, .is_pipelined = true },
        { LARGE(BENCH_PAGES_2M), .name = "single", .pages = BENCH_PAGES_2M, .is_trusted = true },
        { LARGE(BENCH_PAGES_2M), .name = "pipelined", .pages = BENCH_PAGES_2M, .is_trusted = true,
          .is_pipelined = true },
};

const BenchSuite bench_suite_delete = {
        .name = "delete",
        .summary = "until the caller goes on: small ones, one by one, each waited for (single) or all in the end "
                   "(pipelined), in one call (many), and a large one",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
