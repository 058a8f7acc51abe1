/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `create`: objects of nothing, made and given up (creat-clo), of new names and of names that are taken
 * already, against open(O_CREAT) and close; and objects of memory to be written, which others had before (reserve),
 * against open, ftruncate and fallocate. An object that nobody holds is there for others only when it is sealed: that
 * is part of it, in three calls (create, seal, release), in one (folio_put()), or in one for all.
 */
#include "client/ctl/bench-many.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define N_EMPTY 1000u
#define N_MIB 32u

/* Instead of sizes: these follow --size. */
enum { SIZE_NOTHING, SIZE_SMALL, SIZE_MIDDLE, SIZE_LARGE };
enum { KIND_NEW, KIND_AGAIN };

typedef struct Creating {
        BenchFolder folder;
        BenchMany many;
        struct folio_create_options options;
        struct folio_object *objects[N_MIB];
        struct folio_put_item items[N_EMPTY];
        int fds[N_MIB];
        int open_flags; /* of theirs */
} Creating;

static uint64_t object_bytes(const Bench *bench, uint64_t size)
{
        uint64_t middle_bytes = bench->size_bytes / 16 & ~(uint64_t)(BENCH_HUGE_BYTES - 1);

        switch (size) {
        case SIZE_NOTHING:
                return 0;
        case SIZE_SMALL:
                return MIB;
        case SIZE_MIDDLE:
                return middle_bytes < BENCH_HUGE_BYTES ? BENCH_HUGE_BYTES : middle_bytes;
        default:
                return bench->size_bytes;
        }
}

static size_t count_objects(const Bench *bench, uint64_t size)
{
        if (size == SIZE_NOTHING)
                return N_EMPTY;
        if (size != SIZE_SMALL)
                return 1;
        return bench->size_bytes / MIB < N_MIB ? (size_t)(bench->size_bytes / MIB) : N_MIB;
}

/* --- objects of nothing ------------------------------------------------------------------------------------------- */

static int make_one(BenchRun *run, const char *name)
{
        Creating *creating = run->bench->state;
        struct folio_object *object;
        int r = folio_create(run->bench->ctl->client, name, 0, &creating->options, &object);

        if (r < 0)
                return r;
        r = folio_object_seal(object);
        (void)folio_object_release(object);
        return r;
}

static int creat_ours(BenchRun *run)
{
        Creating *creating = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < creating->many.n; i++) {
                bench_laps_begin(run->laps);
                r = make_one(run, creating->many.names[i]);
                bench_laps_end(run->laps);
        }
        return bench_check_store(run, r);
}

static int put_ours(BenchRun *run)
{
        Creating *creating = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < creating->many.n; i++) {
                bench_laps_begin(run->laps);
                r = folio_put(run->bench->ctl->client, creating->many.names[i], NULL, 0, &creating->options);
                bench_laps_end(run->laps);
        }
        return bench_check_store(run, r);
}

static int many_ours(BenchRun *run)
{
        Creating *creating = run->bench->state;
        int r = folio_put_many(run->bench->ctl->client, creating->items, creating->many.n);

        for (size_t i = 0; r > 0 && i < creating->many.n; i++)
                if (creating->items[i].error < 0)
                        r = creating->items[i].error;
        return bench_check_store(run, r);
}

static int creat_theirs(BenchRun *run)
{
        Creating *creating = run->bench->state;

        for (size_t i = 0; i < creating->many.n; i++) {
                int fd;

                bench_laps_begin(run->laps);
                fd = openat(creating->folder.fd, creating->many.files[i], creating->open_flags, 0600);
                if (fd < 0)
                        return bench_check_plain(run, -errno);
                (void)close(fd);
                bench_laps_end(run->laps);
                run->bench->n_plain_calls += 2;
        }
        return CTL_OK;
}

/* --- memory to be written ----------------------------------------------------------------------------------------- */

static int reserve_ours(BenchRun *run)
{
        Creating *creating = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < creating->many.n; i++) {
                bench_laps_begin(run->laps);
                r = folio_create(run->bench->ctl->client, creating->many.names[i], run->size_bytes,
                                 &creating->options, &creating->objects[i]);
                bench_laps_end(run->laps);
        }
        return bench_check_store(run, r);
}

static int reserve_file(const Creating *creating, size_t index, uint64_t n_bytes, int *ret_fd)
{
        int fd = openat(creating->folder.fd, creating->many.files[index], creating->open_flags, 0600), r;

        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        if (ftruncate(fd, (off_t)n_bytes) < 0)
                return -errno;
        do {
                r = fallocate(fd, 0, 0, (off_t)n_bytes);
        } while (r < 0 && errno == EINTR);
        return r < 0 ? -errno : 0;
}

static int reserve_theirs(BenchRun *run)
{
        Creating *creating = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < creating->many.n; i++) {
                bench_laps_begin(run->laps);
                r = reserve_file(creating, i, run->size_bytes, &creating->fds[i]);
                bench_laps_end(run->laps);
                run->bench->n_plain_calls += 3;
        }
        return bench_check_plain(run, r);
}

/* --- before and after --------------------------------------------------------------------------------------------- */

static int drop_ours(BenchRun *run)
{
        Creating *creating = run->bench->state;

        for (size_t i = 0; i < N_MIB; i++) {
                if (creating->objects[i])
                        (void)folio_object_release(creating->objects[i]);
                creating->objects[i] = NULL;
        }
        bench_many_delete(run->bench, &creating->many);
        return CTL_OK;
}

static int drop_theirs(BenchRun *run)
{
        Creating *creating = run->bench->state;

        for (size_t i = 0; i < N_MIB; i++) {
                if (creating->fds[i] >= 0)
                        (void)close(creating->fds[i]);
                creating->fds[i] = -1;
        }
        bench_many_unlink(&creating->many, &creating->folder);
        return CTL_OK;
}

/* Names that are taken: of an empty object, and an empty file. */
static int take_names(BenchRun *run)
{
        Creating *creating = run->bench->state;

        return run->c->kind == KIND_AGAIN ? bench_many_put(run, &creating->many, NULL, 0) : CTL_OK;
}

static int take_files(BenchRun *run)
{
        Creating *creating = run->bench->state;

        return run->c->kind == KIND_AGAIN ? bench_many_write(run, &creating->many, &creating->folder, NULL, 0)
                                          : CTL_OK;
}

static int create_teardown(BenchRun *run)
{
        Creating *creating = run->bench->state;

        (void)drop_ours(run);
        (void)drop_theirs(run);
        bench_many_deinit(&creating->many);
        bench_folder_deinit(&creating->folder);
        return CTL_OK;
}

static void fill_items(Creating *creating)
{
        for (size_t i = 0; i < creating->many.n; i++)
                creating->items[i] = (struct folio_put_item){
                        .name = creating->many.names[i],
                        .options = &creating->options,
                };
}

static int create_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Creating *creating = bench->state;
        bool is_again = run->c->kind == KIND_AGAIN;
        int r;

        if (!bench_store_has(&bench->store, run->c->pages) || !bench_plain_has(&bench->plain, run->c->theirs_pages))
                return BENCH_LEFT_OUT;
        run->size_bytes = object_bytes(bench, run->c->size_bytes);
        if (bench_many_init(&creating->many, &bench->store, run->c->pages, "create",
                            count_objects(bench, run->c->size_bytes)) < 0)
                return ctl_out_of_memory(bench->ctl);
        r = bench_folder_init(&creating->folder, &bench->plain, run->c->theirs_pages);
        creating->options = bench_store_options(is_again ? FOLIO_REPLACE : 0);
        creating->open_flags = O_CREAT | O_RDWR | O_CLOEXEC | (is_again ? O_TRUNC : O_EXCL);
        run->n_units = creating->many.n;
        fill_items(creating);
        snprintf(run->what, sizeof(run->what), "%s of a tmpfs file, %s pages",
                 run->size_bytes > 0 ? "open(O_CREAT), ftruncate and fallocate"
                 : is_again          ? "open(O_CREAT | O_TRUNC) and close"
                                     : "open(O_CREAT) and close",
                 run->c->theirs_pages == BENCH_PAGES_2M ? "2 MiB" : "4 KiB");
        if (r < 0)
                (void)create_teardown(run);
        return bench_check_plain(run, r);
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Creating *creating = calloc(1, sizeof(*creating));

        if (!creating)
                return ctl_out_of_memory(bench->ctl);
        creating->folder = (BenchFolder)BENCH_FOLDER_NULL;
        for (size_t i = 0; i < N_MIB; i++)
                creating->fds[i] = -1;
        bench->state = creating;
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        free(bench->state);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        uint64_t small_bytes = count_objects(bench, SIZE_SMALL) * (MIB + BENCH_HUGE_BYTES);

        return bench->size_bytes > small_bytes ? bench->size_bytes : small_bytes;
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return suite_store_bytes(bench);
}

#define COMMON(case_name, case_kind, size, page_kind, step, their_step)                                                \
        .name = case_name, .kind = case_kind, .size_bytes = size, .pages = page_kind, .theirs_pages = page_kind,       \
        .setup = create_setup, .teardown = create_teardown, .prepare = take_names, .ours = step, .clean = drop_ours,   \
        .prepare_theirs = take_files, .theirs = their_step, .clean_theirs = drop_theirs
#define EMPTY(case_name, case_kind, step)                                                                              \
        {                                                                                                              \
                COMMON(case_name, case_kind, SIZE_NOTHING, BENCH_PAGES_4K, step, creat_theirs),                        \
                        .unit = BENCH_UNIT_US, .has_laps = true                                                        \
        }
#define TOGETHER(case_name, case_kind)                                                                                 \
        {                                                                                                              \
                COMMON(case_name, case_kind, SIZE_NOTHING, BENCH_PAGES_4K, many_ours, creat_theirs),                   \
                        .unit = BENCH_UNIT_US                                                                          \
        }
#define SMALL(page_kind)                                                                                               \
        {                                                                                                              \
                COMMON("reserve", KIND_NEW, SIZE_SMALL, page_kind, reserve_ours, reserve_theirs),                      \
                        .unit = BENCH_UNIT_US, .has_laps = true                                                        \
        }
#define LARGE(size, page_kind)                                                                                         \
        {                                                                                                              \
                COMMON("reserve", KIND_NEW, size, page_kind, reserve_ours, reserve_theirs), .unit = BENCH_UNIT_MS      \
        }
#define RESERVE(page_kind) SMALL(page_kind), LARGE(SIZE_MIDDLE, page_kind), LARGE(SIZE_LARGE, page_kind)

static const BenchCase cases[] = {
        EMPTY("creat-clo", KIND_NEW, creat_ours),
        EMPTY("creat-clo-put", KIND_NEW, put_ours),
        TOGETHER("creat-clo-many", KIND_NEW),
        EMPTY("creat-clo-again", KIND_AGAIN, creat_ours),
        EMPTY("creat-clo-again-put", KIND_AGAIN, put_ours),
        TOGETHER("creat-clo-again-many", KIND_AGAIN),
        RESERVE(BENCH_PAGES_4K),
        RESERVE(BENCH_PAGES_2M),
};

const BenchSuite bench_suite_create = {
        .name = "create",
        .summary = "objects of nothing, of new names and of names that are taken (again), and memory to be written",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
