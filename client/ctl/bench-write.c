/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `write`: making objects of bytes, by folio_put() and by folio_create(), folio_object_write() and
 * folio_object_seal(), against a new tmpfs file that is written; and the writing alone, into memory that is reserved on
 * both sides. Small objects are made several at a time. What was made is removed outside the clock, and the next
 * measurement waits until its memory is free.
 */
#include "client/ctl/bench-case.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define N_SMALL 32u
#define N_OBJECTS_MAX N_SMALL
#define BLOCK_BYTES MIB

/* Sizes of the default: 1 MiB, 64 MiB, 1 GiB. */
enum { SIZE_SMALL, SIZE_MIDDLE, SIZE_LARGE };
enum { KIND_PUT, KIND_FILL, KIND_ALONE };

typedef struct Writing {
        BenchArea source;
        struct folio_object *objects[N_OBJECTS_MAX];
        int fds[N_OBJECTS_MAX];
} Writing;

static uint64_t object_bytes(const Bench *bench, uint64_t size)
{
        uint64_t middle_bytes = bench->size_bytes / 16 & ~(uint64_t)(BENCH_HUGE_BYTES - 1);

        switch (size) {
        case SIZE_SMALL:
                return MIB;
        case SIZE_MIDDLE:
                return middle_bytes < BENCH_HUGE_BYTES ? BENCH_HUGE_BYTES : middle_bytes;
        default:
                return bench->size_bytes;
        }
}

static size_t n_objects(const BenchRun *run)
{
        return run->c->size_bytes == SIZE_SMALL ? N_SMALL : 1;
}

static const char *name_of(const BenchRun *run, size_t index, char buffer[BENCH_NAME_BYTES])
{
        char key[32];

        snprintf(key, sizeof(key), "write-%zu", index);
        return bench_store_name(&run->bench->store, bench_space(run), key, buffer);
}

/* --- Folio's side ------------------------------------------------------------------------------------------------- */

static int create_ours(BenchRun *run)
{
        struct folio_create_options options = bench_store_options(0);
        Writing *writing = run->bench->state;
        char name[BENCH_NAME_BYTES];
        int r = 0;

        for (size_t i = 0; r == 0 && i < n_objects(run); i++)
                r = folio_create(run->bench->ctl->client, name_of(run, i, name), run->size_bytes, &options,
                                 &writing->objects[i]);
        return bench_check_store(run, r);
}

static int write_object(const BenchRun *run, struct folio_object *object)
{
        const Writing *writing = run->bench->state;
        uint64_t n_block = run->block_bytes ? run->block_bytes : run->size_bytes;
        int r = 0;

        for (uint64_t offset = 0; r == 0 && offset < run->size_bytes; offset += n_block)
                r = folio_object_write(object, offset, writing->source.address + offset, (size_t)n_block);
        return r;
}

static int write_ours(BenchRun *run)
{
        Writing *writing = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < n_objects(run); i++)
                r = write_object(run, writing->objects[i]);
        return bench_check_store(run, r);
}

static int fill_ours(BenchRun *run)
{
        struct folio_create_options options = bench_store_options(0);
        Writing *writing = run->bench->state;
        char name[BENCH_NAME_BYTES];
        int r = 0;

        for (size_t i = 0; r == 0 && i < n_objects(run); i++) {
                r = folio_create(run->bench->ctl->client, name_of(run, i, name), run->size_bytes, &options,
                                 &writing->objects[i]);
                if (r == 0)
                        r = write_object(run, writing->objects[i]);
                if (r == 0)
                        r = folio_object_seal(writing->objects[i]);
        }
        return bench_check_store(run, r);
}

static int put_ours(BenchRun *run)
{
        struct folio_create_options options = bench_store_options(0);
        Writing *writing = run->bench->state;
        char name[BENCH_NAME_BYTES];
        int r = 0;

        for (size_t i = 0; r == 0 && i < n_objects(run); i++)
                r = folio_put(run->bench->ctl->client, name_of(run, i, name), writing->source.address, run->size_bytes,
                              &options);
        return bench_check_store(run, r);
}

/* Whatever is there; what was put has no handle. */
static int drop_ours(BenchRun *run)
{
        Writing *writing = run->bench->state;
        char name[BENCH_NAME_BYTES];

        for (size_t i = 0; i < n_objects(run); i++) {
                if (writing->objects[i])
                        (void)folio_object_release(writing->objects[i]);
                writing->objects[i] = NULL;
                (void)folio_delete(run->bench->ctl->client, name_of(run, i, name), FOLIO_IF_EXISTS);
        }
        bench_store_settle(&run->bench->store);
        return CTL_OK;
}

/* What pages it gets, before it is taken away. */
static int look_and_drop_ours(BenchRun *run)
{
        Writing *writing = run->bench->state;

        if (writing->objects[0] && run->size_bytes >= BENCH_HUGE_BYTES)
                run->huge_share = bench_store_huge_share(writing->objects[0]);
        return drop_ours(run);
}

/* --- the plain side ----------------------------------------------------------------------------------------------- */

static int write_file(BenchRun *run, int fd)
{
        const Writing *writing = run->bench->state;
        uint64_t n_block = run->block_bytes ? run->block_bytes : run->size_bytes;

        run->bench->n_plain_calls += (run->size_bytes + n_block - 1) / n_block;
        return bench_write(fd, 0, writing->source.address, run->size_bytes, n_block);
}

static int fill_theirs(BenchRun *run)
{
        Writing *writing = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < n_objects(run); i++) {
                int fd = bench_plain_create(&run->bench->plain, run->c->theirs_pages);

                run->bench->n_plain_calls++;
                writing->fds[i] = fd < 0 ? -1 : fd;
                r = fd < 0 ? fd : write_file(run, fd);
        }
        return bench_check_plain(run, r);
}

static int create_theirs(BenchRun *run)
{
        Writing *writing = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < n_objects(run); i++)
                r = bench_plain_make(&run->bench->plain, run->c->theirs_pages, BENCH_CONTENT_RESERVED, NULL,
                                     run->size_bytes, &writing->fds[i]);
        return bench_check_plain(run, r);
}

static int write_theirs(BenchRun *run)
{
        Writing *writing = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < n_objects(run); i++)
                r = write_file(run, writing->fds[i]);
        return bench_check_plain(run, r);
}

static int drop_theirs(BenchRun *run)
{
        Writing *writing = run->bench->state;

        for (size_t i = 0; i < N_OBJECTS_MAX; i++) {
                if (writing->fds[i] >= 0)
                        (void)close(writing->fds[i]);
                writing->fds[i] = -1;
        }
        return CTL_OK;
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

static int write_copy(BenchRun *run, const BenchCopy *copy)
{
        const Writing *writing = run->bench->state;
        uint64_t n_block = run->block_bytes ? run->block_bytes : run->size_bytes;

        /* The second half of the area is there for this. */
        for (size_t i = 0; i < n_objects(run); i++)
                for (uint64_t offset = 0; offset < run->size_bytes; offset += n_block)
                        copy->run(writing->source.address + run->bench->size_bytes + offset,
                                  writing->source.address + offset, (size_t)n_block);
        return CTL_OK;
}

static int write_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        bool is_alone = run->c->kind == KIND_ALONE;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        run->size_bytes = object_bytes(bench, run->c->size_bytes);
        run->block_bytes = run->c->block_bytes;
        run->n_units = n_objects(run) * run->size_bytes;
        run->n_copied_bytes = run->n_units;
        snprintf(run->what, sizeof(run->what), "%s a %s",
                 is_alone ? "write of reserved memory of" : "open and write of",
                 bench_plain_label(&bench->plain, run->c->theirs_pages));
        return CTL_OK;
}

static int write_teardown(BenchRun *run)
{
        (void)drop_ours(run);
        return drop_theirs(run);
}

static int suite_open(Bench *bench)
{
        Writing *writing = calloc(1, sizeof(*writing));
        int r;

        if (!writing)
                return ctl_out_of_memory(bench->ctl);
        bench->state = writing;
        for (size_t i = 0; i < N_OBJECTS_MAX; i++)
                writing->fds[i] = -1;
        r = bench_area_init(&writing->source, (size_t)(2 * bench->size_bytes));
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to write from: %s", strerror(-r));
        bench_fill(writing->source.address, (size_t)bench->size_bytes, 13);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Writing *writing = bench->state;

        if (!writing)
                return;
        bench_area_deinit(&writing->source);
        free(writing);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        uint64_t small_bytes = N_SMALL * (MIB + BENCH_HUGE_BYTES);

        return bench->size_bytes > small_bytes ? bench->size_bytes : small_bytes;
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return 2 * bench->size_bytes + suite_store_bytes(bench);
}

#define COMMON(case_name, case_kind, size, page_kind, block)                                                           \
        .name = case_name, .kind = case_kind, .size_bytes = size, .pages = page_kind, .theirs_pages = page_kind,       \
        .block_bytes = block, .unit = BENCH_UNIT_GIB_S, .setup = write_setup, .teardown = write_teardown,              \
        .clean = look_and_drop_ours, .clean_theirs = drop_theirs, .reference = write_copy
#define PUT(size, page_kind)                                                                                           \
        {                                                                                                              \
                COMMON("put", KIND_PUT, size, page_kind, 0), .ours = put_ours, .theirs = fill_theirs                   \
        }
#define FILL(size, page_kind, block)                                                                                   \
        {                                                                                                              \
                COMMON("create-write-seal", KIND_FILL, size, page_kind, block), .ours = fill_ours,                     \
                                                                                .theirs = fill_theirs                  \
        }
#define ALONE(size, page_kind)                                                                                         \
        {                                                                                                              \
                COMMON("write", KIND_ALONE, size, page_kind, BLOCK_BYTES), .prepare = create_ours, .ours = write_ours, \
                                                                           .prepare_theirs = create_theirs,            \
                                                                           .theirs = write_theirs                      \
        }
#define ALL(page_kind)                                                                                                 \
        PUT(SIZE_SMALL, page_kind), FILL(SIZE_SMALL, page_kind, 0), ALONE(SIZE_SMALL, page_kind),                      \
                PUT(SIZE_MIDDLE, page_kind), FILL(SIZE_MIDDLE, page_kind, 0),                                          \
                FILL(SIZE_MIDDLE, page_kind, BLOCK_BYTES), ALONE(SIZE_MIDDLE, page_kind), PUT(SIZE_LARGE, page_kind),  \
                FILL(SIZE_LARGE, page_kind, 0), FILL(SIZE_LARGE, page_kind, BLOCK_BYTES), ALONE(SIZE_LARGE, page_kind)

static const BenchCase cases[] = { ALL(BENCH_PAGES_4K), ALL(BENCH_PAGES_2M) };

const BenchSuite bench_suite_write = {
        .name = "write",
        .summary = "objects made of bytes, all at once and in blocks, and the writing alone",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
