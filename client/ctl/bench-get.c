/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `get`: one object of 4 KiB among half a million, at the default size, got, touched and released, the same
 * one over and over (hot) and one after another from all over (any); read, and asked for. Against files of the same
 * size, as many of them in one directory. Files are made once for all cases, and so are objects of each kind of writers.
 */
#include "client/ctl/bench-many.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_OBJECTS_DEFAULT UINT64_C(500000)
#define DEFAULT_BYTES ((uint64_t)1 << 30)
#define OBJECT_BYTES BENCH_PAGE_BYTES
#define N_CALLS_MAX 10000u
#define N_CALLS_MIN 1000u
/* A prime: in steps of it all of them are met before one is met again. */
#define STEP UINT64_C(2654435761)
/* What an entry of the index takes, and a file of its own besides its page. */
#define INDEX_BYTES UINT64_C(192)
#define FILE_BYTES UINT64_C(1280)

enum { KIND_HOT, KIND_ANY };

/* What is called, in the order of the calls: so that finding the name takes no time. */
typedef struct Pick {
        char name[BENCH_MANY_NAME_BYTES];
        char file[BENCH_MANY_FILE_BYTES];
} Pick;

typedef struct Getting {
        BenchFolder folder;
        BenchMany many;
        BenchSpace space; /* where the objects are */
        bool has_objects, has_files;
        size_t n_calls;
        Pick *picks;
        unsigned char data[OBJECT_BYTES], buffer[OBJECT_BYTES];
        volatile unsigned char sink;
} Getting;

static uint64_t count_objects(const Bench *bench)
{
        return N_OBJECTS_DEFAULT * (bench->size_bytes >> 20) / (DEFAULT_BYTES >> 20);
}

/* --- Folio's side ------------------------------------------------------------------------------------------------- */

static int get_one(BenchRun *run, size_t index)
{
        Getting *getting = run->bench->state;
        struct folio_object *object;
        int r = folio_get(run->client, getting->picks[index].name, 0, 0, &object);

        if (r < 0)
                return r;
        getting->sink = *(const unsigned char *)folio_object_data(object);
        return folio_object_release(object);
}

static int get_ours(BenchRun *run)
{
        const Getting *getting = run->bench->state;

        return bench_many_ours(run, getting->n_calls, get_one);
}

static int read_one(BenchRun *run, size_t index)
{
        Getting *getting = run->bench->state;

        return folio_read(run->client, getting->picks[index].name, 0, getting->buffer, OBJECT_BYTES);
}

static int read_ours(BenchRun *run)
{
        const Getting *getting = run->bench->state;

        return bench_many_ours(run, getting->n_calls, read_one);
}

static int ask_one(BenchRun *run, size_t index)
{
        const Getting *getting = run->bench->state;
        int r = folio_exists(run->client, getting->picks[index].name);

        return r > 0 ? 0 : r == 0 ? FOLIO_E_NOT_FOUND : r;
}

static int exists_ours(BenchRun *run)
{
        const Getting *getting = run->bench->state;

        return bench_many_ours(run, getting->n_calls, ask_one);
}

/* --- the plain side ----------------------------------------------------------------------------------------------- */

static int map_one(BenchRun *run, size_t index)
{
        Getting *getting = run->bench->state;
        int fd = openat(getting->folder.fd, getting->picks[index].file, O_RDONLY | O_CLOEXEC), r = 0;
        void *address;

        if (fd < 0)
                return -errno;
        address = mmap(NULL, OBJECT_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        if (address == MAP_FAILED) {
                r = -errno;
        } else {
                getting->sink = *(const unsigned char *)address;
                (void)munmap(address, OBJECT_BYTES);
        }
        (void)close(fd);
        return r;
}

static int map_theirs(BenchRun *run)
{
        const Getting *getting = run->bench->state;

        return bench_many_theirs(run, getting->n_calls, map_one, 4);
}

static int pread_one(BenchRun *run, size_t index)
{
        Getting *getting = run->bench->state;
        int fd = openat(getting->folder.fd, getting->picks[index].file, O_RDONLY | O_CLOEXEC);
        ssize_t n;

        if (fd < 0)
                return -errno;
        n = pread(fd, getting->buffer, OBJECT_BYTES, 0);
        (void)close(fd);
        return n == (ssize_t)OBJECT_BYTES ? 0 : -EIO;
}

static int pread_theirs(BenchRun *run)
{
        const Getting *getting = run->bench->state;

        return bench_many_theirs(run, getting->n_calls, pread_one, 3);
}

static int access_one(BenchRun *run, size_t index)
{
        const Getting *getting = run->bench->state;

        return faccessat(getting->folder.fd, getting->picks[index].file, F_OK, 0) < 0 ? -errno : 0;
}

static int exists_theirs(BenchRun *run)
{
        const Getting *getting = run->bench->state;

        return bench_many_theirs(run, getting->n_calls, access_one, 1);
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

static int make_files(BenchRun *run)
{
        Getting *getting = run->bench->state;
        int r;

        if (getting->has_files)
                return CTL_OK;
        r = bench_check_plain(run, bench_folder_init(&getting->folder, &run->bench->plain, BENCH_PAGES_4K));
        if (r == CTL_OK)
                r = bench_many_write(run, &getting->many, &getting->folder, getting->data, OBJECT_BYTES);
        getting->has_files = r == CTL_OK;
        return r;
}

/* Those of another namespace go: both would take twice the memory. */
static int make_objects(BenchRun *run)
{
        Bench *bench = run->bench;
        Getting *getting = bench->state;

        if (getting->has_objects && getting->space == bench_space(run))
                return CTL_OK;
        if (getting->has_objects)
                bench_many_delete(bench, &getting->many);
        getting->has_objects = true;
        getting->space = bench_space(run);
        bench_many_name(&getting->many, &bench->store, getting->space);
        return bench_many_put(run, &getting->many, getting->data, OBJECT_BYTES);
}

static void choose_picks(Getting *getting, int kind)
{
        for (size_t i = 0; i < getting->n_calls; i++) {
                size_t index = (size_t)(((kind == KIND_ANY ? i : 0) + 1) * STEP % getting->many.n);

                memcpy(getting->picks[i].name, getting->many.names[index], sizeof(getting->picks[i].name));
                memcpy(getting->picks[i].file, getting->many.files[index], sizeof(getting->picks[i].file));
        }
}

static int get_setup(BenchRun *run, const char *what)
{
        Getting *getting = run->bench->state;
        int r;

        if (!bench_store_has(&run->bench->store, bench_space(run)))
                return BENCH_LEFT_OUT;
        r = make_objects(run);
        if (r == CTL_OK)
                r = make_files(run);
        if (r != CTL_OK)
                return r;
        choose_picks(getting, run->c->kind);
        run->size_bytes = OBJECT_BYTES;
        run->n_units = getting->n_calls;
        snprintf(run->what, sizeof(run->what), "%s of a tmpfs file, 4 KiB pages; %zu of them, as of objects", what,
                 getting->many.n);
        /* Once, and compared. */
        r = folio_read(run->client, getting->picks[0].name, 0, getting->buffer, OBJECT_BYTES);
        if (r < 0)
                return bench_check_store(run, r);
        if (memcmp(getting->buffer, getting->data, OBJECT_BYTES) != 0)
                return ctl_complain(run->bench->ctl, "wrong bytes: %s is not what was written", getting->picks[0].name);
        return CTL_OK;
}

static int setup_mmap(BenchRun *run)
{
        return get_setup(run, "open, mmap, touch, munmap and close");
}

static int setup_pread(BenchRun *run)
{
        return get_setup(run, "open, pread and close");
}

static int setup_exists(BenchRun *run)
{
        return get_setup(run, "access");
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Getting *getting = calloc(1, sizeof(*getting));
        uint64_t n_calls = bench->size_bytes >> 16;

        if (!getting)
                return ctl_out_of_memory(bench->ctl);
        getting->folder = (BenchFolder)BENCH_FOLDER_NULL;
        bench->state = getting;
        n_calls = n_calls < N_CALLS_MIN ? N_CALLS_MIN : n_calls;
        getting->n_calls = n_calls > N_CALLS_MAX ? N_CALLS_MAX : (size_t)n_calls;
        bench_fill(getting->data, sizeof(getting->data), 19);
        getting->picks = calloc(getting->n_calls, sizeof(*getting->picks));
        if (!getting->picks ||
            bench_many_init(&getting->many, &bench->store, BENCH_SPACE_4K, "get", (size_t)count_objects(bench)) < 0)
                return ctl_out_of_memory(bench->ctl);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Getting *getting = bench->state;

        if (!getting)
                return;
        bench_many_unlink(&getting->many, &getting->folder);
        if (getting->has_objects)
                bench_many_delete(bench, &getting->many);
        bench_folder_deinit(&getting->folder);
        bench_many_deinit(&getting->many);
        free(getting->picks);
        free(getting);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        return count_objects(bench) * (OBJECT_BYTES + INDEX_BYTES) + ((uint64_t)16 << 20);
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return count_objects(bench) *
               (OBJECT_BYTES + FILE_BYTES + BENCH_MANY_NAME_BYTES + BENCH_MANY_FILE_BYTES + INDEX_BYTES);
}

/* A little more than there are, for what a half-removed one still takes. */
static uint64_t suite_objects(const Bench *bench)
{
        return count_objects(bench) + count_objects(bench) / 16;
}

#define GET(case_name, case_kind, case_setup, step, their_step, ...)                                                   \
        {                                                                                                              \
                .name = case_name, .kind = case_kind, .unit = BENCH_UNIT_US, .has_laps = true, .setup = case_setup,    \
                .ours = step, .theirs = their_step, __VA_ARGS__                                                        \
        }
#define TRUSTED .is_trusted = true, .pages = BENCH_PAGES_2M

static const BenchCase cases[] = {
        GET("hot", KIND_HOT, setup_mmap, get_ours, map_theirs, .is_trusted = false),
        GET("hot-pread", KIND_HOT, setup_pread, get_ours, pread_theirs, .is_trusted = false),
        GET("any", KIND_ANY, setup_mmap, get_ours, map_theirs, .is_trusted = false),
        GET("any-pread", KIND_ANY, setup_pread, get_ours, pread_theirs, .is_trusted = false),
        GET("read", KIND_HOT, setup_pread, read_ours, pread_theirs, .is_trusted = false),
        GET("exists", KIND_HOT, setup_exists, exists_ours, exists_theirs, .is_trusted = false),
        GET("exists-any", KIND_ANY, setup_exists, exists_ours, exists_theirs, .is_trusted = false),
        GET("hot", KIND_HOT, setup_mmap, get_ours, map_theirs, TRUSTED),
        GET("any", KIND_ANY, setup_mmap, get_ours, map_theirs, TRUSTED),
        GET("read", KIND_HOT, setup_pread, read_ours, pread_theirs, TRUSTED),
};

const BenchSuite bench_suite_get = {
        .name = "get",
        .summary = "one of 4 KiB among many: got, touched and released; the same again (hot), and all over (any)",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .n_objects = suite_objects,
        .open = suite_open,
        .close = suite_close,
};
