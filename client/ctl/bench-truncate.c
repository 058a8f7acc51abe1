/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `truncate`: a mutable object is given the size it has (same), or a smaller and its old one in turn: one
 * that takes no memory (sparse), and one whose memory goes and comes. Against ftruncate() of a tmpfs file, with
 * fallocate() where memory comes: a file that grows takes none by itself.
 */
#include "client/ctl/bench-case.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define KEY "truncate"
#define OBJECT_BYTES ((uint64_t)1 << 20)
#define N_SAME 10000u
#define N_CHANGES 500u

enum { KIND_SAME, KIND_SPARSE, KIND_RESERVED };

typedef struct Truncating {
        struct folio_object *object;
        int fd;
        size_t n_calls;
} Truncating;

/* What the call with this number asks for. */
static uint64_t size_of(const BenchRun *run, size_t index)
{
        return run->c->kind == KIND_SAME || index % 2 == 1 ? OBJECT_BYTES : OBJECT_BYTES / 2;
}

static int truncate_ours(BenchRun *run)
{
        Truncating *truncating = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < truncating->n_calls; i++) {
                bench_laps_begin(run->laps);
                r = folio_object_truncate(truncating->object, size_of(run, i));
                bench_laps_end(run->laps);
        }
        return bench_check_store(run, r);
}

static int by_name_ours(BenchRun *run)
{
        Truncating *truncating = run->bench->state;
        char name[BENCH_NAME_BYTES];
        int r = 0;

        (void)bench_store_name(&run->bench->store, bench_space(run), KEY, name);
        for (size_t i = 0; r == 0 && i < truncating->n_calls; i++) {
                bench_laps_begin(run->laps);
                r = folio_truncate(run->bench->ctl->client, name, size_of(run, i));
                bench_laps_end(run->laps);
        }
        return bench_check_store(run, r);
}

static int truncate_theirs(BenchRun *run)
{
        Truncating *truncating = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < truncating->n_calls; i++) {
                uint64_t n_bytes = size_of(run, i);

                bench_laps_begin(run->laps);
                r = ftruncate(truncating->fd, (off_t)n_bytes);
                run->bench->n_plain_calls++;
                if (r == 0 && run->c->kind == KIND_RESERVED && n_bytes == OBJECT_BYTES) {
                        r = fallocate(truncating->fd, 0, (off_t)(n_bytes / 2), (off_t)(n_bytes - n_bytes / 2));
                        run->bench->n_plain_calls++;
                }
                bench_laps_end(run->laps);
        }
        return bench_check_plain(run, r < 0 ? -errno : 0);
}

static int truncate_teardown(BenchRun *run)
{
        Truncating *truncating = run->bench->state;

        bench_store_drop(&run->bench->store, bench_space(run), KEY, truncating->object);
        truncating->object = NULL;
        if (truncating->fd >= 0)
                (void)close(truncating->fd);
        truncating->fd = -1;
        return CTL_OK;
}

static int truncate_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Truncating *truncating = bench->state;
        bool is_sparse = run->c->kind == KIND_SPARSE;
        struct folio_create_options options =
                bench_store_options(FOLIO_MUTABLE | FOLIO_OWN_REGION | (is_sparse ? FOLIO_SPARSE : 0));
        char name[BENCH_NAME_BYTES];
        int r;

        if (!bench_store_has(&bench->store, bench_space(run)))
                return BENCH_LEFT_OUT;
        options.capacity_bytes = OBJECT_BYTES;
        truncating->n_calls = run->c->kind == KIND_SAME ? N_SAME : N_CHANGES;
        run->size_bytes = OBJECT_BYTES;
        run->n_units = truncating->n_calls;
        snprintf(run->what, sizeof(run->what), "ftruncate%s of a %s",
                 run->c->kind == KIND_RESERVED ? ", and fallocate where it grows," : "",
                 bench_plain_label(&bench->plain, run->c->theirs_pages));
        r = folio_create(bench->ctl->client, bench_store_name(&bench->store, bench_space(run), KEY, name), OBJECT_BYTES,
                         &options, &truncating->object);
        r = bench_check_store(run, r);
        if (r == CTL_OK)
                r = bench_check_plain(run, bench_plain_make(&bench->plain, run->c->theirs_pages,
                                                            is_sparse ? BENCH_CONTENT_HOLE : BENCH_CONTENT_RESERVED,
                                                            NULL, OBJECT_BYTES, &truncating->fd));
        if (r != CTL_OK)
                (void)truncate_teardown(run);
        return r;
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Truncating *truncating = calloc(1, sizeof(*truncating));

        if (!truncating)
                return ctl_out_of_memory(bench->ctl);
        truncating->fd = -1;
        bench->state = truncating;
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        free(bench->state);
        bench->state = NULL;
}

static uint64_t suite_bytes(const Bench *bench)
{
        (void)bench; /* it is the same at all sizes */
        return 2 * (OBJECT_BYTES + BENCH_HUGE_BYTES);
}

#define TRUNCATE(case_name, case_kind, step)                                                                           \
        {                                                                                                              \
                .name = case_name, .kind = case_kind, .unit = BENCH_UNIT_US, .has_laps = true,                         \
                .setup = truncate_setup, .teardown = truncate_teardown, .ours = step, .theirs = truncate_theirs        \
        }

static const BenchCase cases[] = {
        TRUNCATE("same", KIND_SAME, truncate_ours),
        TRUNCATE("same-by-name", KIND_SAME, by_name_ours),
        TRUNCATE("sparse", KIND_SPARSE, truncate_ours),
        TRUNCATE("reserved", KIND_RESERVED, truncate_ours),
};

const BenchSuite bench_suite_truncate = {
        .name = "truncate",
        .summary = "a mutable object of 1 MiB: to the size it has (same); to half of it and back, with no memory "
                   "(sparse) and with",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_bytes,
        .other_bytes = suite_bytes,
        .open = suite_open,
        .close = suite_close,
};
