/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `create`: objects of nothing, made and given up (creat-clo), of new names and of names that are taken
 * already, against open(O_CREAT) and close; objects whose bytes are written where they stay (place), against open, write
 * and close; and objects of memory to be written, which others had before (reserve), against open, ftruncate and
 * fallocate. An object that nobody holds is there for others only when it is sealed: that is part of it, in three calls
 * (create, seal, release), in one (folio_put()), or in one for all; waited for by each, or once in the end (pipelined).
 */
#include "client/ctl/bench-many.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define N_EMPTY 1000u
#define N_MIB 32u
#define N_PLACED 4u

/* Instead of sizes: these follow --size. */
enum { SIZE_NOTHING, SIZE_MIDDLE, SIZE_LARGE };
enum { KIND_NEW, KIND_AGAIN, KIND_PLACE, KIND_RESERVE };

typedef struct Creating {
        BenchFolder folder;
        BenchMany many;
        BenchArea source; /* of what is written in place */
        struct folio_create_options options;
        struct folio_object *objects[N_MIB];
        struct folio_put_item items[N_EMPTY];
        int fds[N_MIB];
        int open_flags; /* of theirs */
} Creating;

static uint64_t object_bytes(const Bench *bench, uint64_t size)
{
        uint64_t middle_bytes = bench->size_bytes / 16 & ~(uint64_t)(BENCH_HUGE_BYTES - 1);

        if (size == SIZE_LARGE)
                return bench->size_bytes;
        if (size == SIZE_MIDDLE)
                return middle_bytes < BENCH_HUGE_BYTES ? BENCH_HUGE_BYTES : middle_bytes;
        return size == SIZE_NOTHING ? 0 : size;
}

static size_t count_objects(const BenchRun *run)
{
        uint64_t n_bytes = object_bytes(run->bench, run->c->size_bytes), n = N_EMPTY;

        if (run->c->size_bytes == SIZE_LARGE)
                return 1;
        if (run->c->size_bytes == SIZE_MIDDLE)
                n = run->c->kind == KIND_PLACE ? N_PLACED : 1;
        else if (n_bytes >= MIB)
                n = N_MIB;
        if (n * n_bytes > run->bench->size_bytes)
                n = run->bench->size_bytes / n_bytes;
        return (size_t)(n > 0 ? n : 1);
}

/* --- objects of nothing ------------------------------------------------------------------------------------------- */

static int make_one(BenchRun *run, size_t index)
{
        const Creating *creating = run->bench->state;
        struct folio_object *object;
        int r = folio_create(run->client, creating->many.names[index], 0, &creating->options, &object);

        if (r < 0)
                return r;
        r = folio_object_seal(object);
        (void)folio_object_release(object);
        return r;
}

static int creat_ours(BenchRun *run)
{
        const Creating *creating = run->bench->state;

        return bench_many_ours(run, creating->many.n, make_one);
}

static int put_one(BenchRun *run, size_t index)
{
        const Creating *creating = run->bench->state;

        return folio_put(run->client, creating->many.names[index], NULL, 0, &creating->options);
}

static int put_ours(BenchRun *run)
{
        const Creating *creating = run->bench->state;

        return bench_many_ours(run, creating->many.n, put_one);
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

static int open_one(BenchRun *run, size_t index)
{
        const Creating *creating = run->bench->state;
        int fd = openat(creating->folder.fd, creating->many.files[index], creating->open_flags, 0600);

        if (fd < 0)
                return -errno;
        (void)close(fd);
        return 0;
}

static int creat_theirs(BenchRun *run)
{
        const Creating *creating = run->bench->state;

        return bench_many_theirs(run, creating->many.n, open_one, 2);
}

/* --- written where it stays --------------------------------------------------------------------------------------- */

static int place_one(BenchRun *run, size_t index)
{
        const Creating *creating = run->bench->state;
        struct folio_object *object;
        void *bytes;
        int r = folio_create(run->client, creating->many.names[index], run->size_bytes, &creating->options, &object);

        if (r < 0)
                return r;
        r = folio_object_map_write(object, &bytes);
        if (r == 0) {
                memcpy(bytes, creating->source.address, (size_t)run->size_bytes);
                r = folio_object_seal(object);
        }
        (void)folio_object_release(object);
        return r;
}

static int place_ours(BenchRun *run)
{
        const Creating *creating = run->bench->state;

        return bench_many_ours(run, creating->many.n, place_one);
}

static int write_one(BenchRun *run, size_t index)
{
        const Creating *creating = run->bench->state;

        return bench_folder_put(&creating->folder, creating->many.files[index], creating->source.address,
                                run->size_bytes);
}

static int place_theirs(BenchRun *run)
{
        const Creating *creating = run->bench->state;

        return bench_many_theirs(run, creating->many.n, write_one, 3);
}

/* --- memory to be written ----------------------------------------------------------------------------------------- */

static int reserve_one(BenchRun *run, size_t index)
{
        Creating *creating = run->bench->state;

        return folio_create(run->client, creating->many.names[index], run->size_bytes, &creating->options,
                            &creating->objects[index]);
}

static int reserve_ours(BenchRun *run)
{
        const Creating *creating = run->bench->state;

        return bench_many_ours(run, creating->many.n, reserve_one);
}

static int reserve_file(BenchRun *run, size_t index)
{
        Creating *creating = run->bench->state;
        int fd = openat(creating->folder.fd, creating->many.files[index], creating->open_flags, 0600), r;

        if (fd < 0)
                return -errno;
        creating->fds[index] = fd;
        if (ftruncate(fd, (off_t)run->size_bytes) < 0)
                return -errno;
        do {
                r = fallocate(fd, 0, 0, (off_t)run->size_bytes);
        } while (r < 0 && errno == EINTR);
        return r < 0 ? -errno : 0;
}

static int reserve_theirs(BenchRun *run)
{
        const Creating *creating = run->bench->state;

        return bench_many_theirs(run, creating->many.n, reserve_file, 3);
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

        return run->c->kind == KIND_AGAIN ? bench_many_write(run, &creating->many, &creating->folder, NULL, 0) : CTL_OK;
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
        for (size_t i = 0; i < N_EMPTY && i < creating->many.n; i++)
                creating->items[i] = (struct folio_put_item){
                        .name = creating->many.names[i],
                        .options = &creating->options,
                };
}

static const char *what_of(const BenchRun *run)
{
        switch (run->c->kind) {
        case KIND_NEW:
                return "open(O_CREAT) and close";
        case KIND_AGAIN:
                return "open(O_CREAT | O_TRUNC) and close";
        case KIND_PLACE:
                return "open, write and close";
        default:
                return "open(O_CREAT), ftruncate and fallocate";
        }
}

static int create_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Creating *creating = bench->state;
        bool is_again = run->c->kind == KIND_AGAIN;
        int r;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        run->size_bytes = object_bytes(bench, run->c->size_bytes);
        if (bench_many_init(&creating->many, &bench->store, bench_space(run), "create", count_objects(run)) < 0)
                return ctl_out_of_memory(bench->ctl);
        r = bench_folder_init(&creating->folder, &bench->plain, run->c->theirs_pages);
        creating->options = bench_store_options(is_again ? FOLIO_REPLACE : 0);
        creating->open_flags = O_CREAT | O_RDWR | O_CLOEXEC | (is_again ? O_TRUNC : O_EXCL);
        run->n_units = creating->many.n;
        fill_items(creating);
        snprintf(run->what, sizeof(run->what), "%s of a tmpfs file, %s pages", what_of(run),
                 run->c->theirs_pages == BENCH_PAGES_2M ? "2 MiB" : "4 KiB");
        if (r < 0)
                (void)create_teardown(run);
        return bench_check_plain(run, r);
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Creating *creating = calloc(1, sizeof(*creating));
        size_t n_bytes = (size_t)object_bytes(bench, SIZE_MIDDLE);
        int r;

        if (!creating)
                return ctl_out_of_memory(bench->ctl);
        creating->folder = (BenchFolder)BENCH_FOLDER_NULL;
        for (size_t i = 0; i < N_MIB; i++)
                creating->fds[i] = -1;
        bench->state = creating;
        r = bench_area_init(&creating->source, n_bytes);
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to write from: %s", strerror(-r));
        bench_fill(creating->source.address, n_bytes, 29);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Creating *creating = bench->state;

        if (!creating)
                return;
        bench_area_deinit(&creating->source);
        free(creating);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        uint64_t small_bytes = N_MIB * (MIB + BENCH_HUGE_BYTES) + N_PLACED * object_bytes(bench, SIZE_MIDDLE);

        return (bench->size_bytes > small_bytes ? bench->size_bytes : small_bytes) + 64 * MIB;
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return suite_store_bytes(bench);
}

#define COMMON(case_name, case_kind, size, step, their_step)                                                           \
        .name = case_name, .kind = case_kind, .size_bytes = size, .setup = create_setup, .teardown = create_teardown,  \
        .prepare = take_names, .ours = step, .clean = drop_ours, .prepare_theirs = take_files, .theirs = their_step,   \
        .clean_theirs = drop_theirs, .unit = BENCH_UNIT_US
/* By all four: writers that are not trusted, and that are; each waited for, and once in the end. */
#define FOUR(case_name, page_kind, ...)                                                                                \
        { COMMON(case_name, __VA_ARGS__), .has_laps = true, .pages = page_kind },                                      \
                { COMMON(case_name "-pipelined", __VA_ARGS__), .has_laps = true, .pages = page_kind,                   \
                  .is_pipelined = true },                                                                              \
                { COMMON(case_name, __VA_ARGS__), .has_laps = true, .pages = BENCH_PAGES_2M, .is_trusted = true },     \
        {                                                                                                              \
                COMMON(case_name "-pipelined", __VA_ARGS__), .has_laps = true, .pages = BENCH_PAGES_2M,                \
                                                             .is_trusted = true, .is_pipelined = true                  \
        }
#define EMPTY(case_name, case_kind, step) FOUR(case_name, BENCH_PAGES_4K, case_kind, SIZE_NOTHING, step, creat_theirs)
#define TOGETHER(case_name, case_kind)                                                                                 \
        {                                                                                                              \
                COMMON(case_name, case_kind, SIZE_NOTHING, many_ours, creat_theirs)                                    \
        }
#define PLACE(size) FOUR("place", BENCH_PAGES_4K, KIND_PLACE, size, place_ours, place_theirs)
#define LARGE(size, page_kind)                                                                                         \
        {                                                                                                              \
                COMMON("reserve", KIND_RESERVE, size, reserve_ours, reserve_theirs), .pages = page_kind,               \
                                                                                     .theirs_pages = page_kind         \
        }
#define RESERVE(page_kind)                                                                                             \
        { COMMON("reserve", KIND_RESERVE, MIB, reserve_ours, reserve_theirs), .has_laps = true, .pages = page_kind,    \
          .theirs_pages = page_kind },                                                                                 \
                LARGE(SIZE_MIDDLE, page_kind), LARGE(SIZE_LARGE, page_kind)

static const BenchCase cases[] = {
        EMPTY("creat-clo", KIND_NEW, creat_ours),
        EMPTY("creat-clo-put", KIND_NEW, put_ours),
        TOGETHER("creat-clo-many", KIND_NEW),
        EMPTY("creat-clo-again", KIND_AGAIN, creat_ours),
        EMPTY("creat-clo-again-put", KIND_AGAIN, put_ours),
        TOGETHER("creat-clo-again-many", KIND_AGAIN),
        PLACE(64),
        PLACE(4 * KIB),
        PLACE(64 * KIB),
        PLACE(MIB),
        PLACE(SIZE_MIDDLE),
        RESERVE(BENCH_PAGES_4K),
        RESERVE(BENCH_PAGES_2M),
};

const BenchSuite bench_suite_create = {
        .name = "create",
        .summary =
                "objects of nothing, of new names and of names that are taken (again), bytes written where they stay "
                "(place), and memory to be written",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
