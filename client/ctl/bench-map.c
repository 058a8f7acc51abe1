/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `map`: lmbench's two patterns on a fresh object, write a byte every 16 KiB and read every byte, through
 * mappings. Time runs from the mapping to the last byte. What creating costs, which with Folio and with fallocate()
 * reserves the memory, is a case of its own, and so is all of it together against a file for which nothing is reserved.
 * Each round has an object and a file of its own.
 */
#include "client/ctl/bench-case.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEY "map"
#define STRIDE_BYTES ((uint64_t)16 << 10)
/* 256 MiB of the default size. */
#define SIZE_SHARE 4

typedef struct Map {
        BenchArea source; /* what is read */
        struct folio_object *object;
        int fd;
        void *address; /* of the plain mapping; NULL */
        volatile uint64_t sink;
} Map;

/* --- patterns ----------------------------------------------------------------------------------------------------- */

static void write_sparsely(unsigned char *bytes, uint64_t n_bytes)
{
        for (uint64_t offset = 0; offset < n_bytes; offset += STRIDE_BYTES)
                *(volatile unsigned char *)(bytes + offset) = 1;
}

/* As fast as one can look at every byte, or the looking would hide what is measured. */
static uint64_t read_all(const unsigned char *bytes, uint64_t n_bytes)
{
        uint64_t sums[4] = { 0 }, words[4];

        for (uint64_t offset = 0; offset + sizeof(words) <= n_bytes; offset += sizeof(words)) {
                memcpy(words, bytes + offset, sizeof(words));
                for (unsigned i = 0; i < 4; i++)
                        sums[i] += words[i];
        }
        return sums[0] + sums[1] + sums[2] + sums[3];
}

/* --- Folio's side ------------------------------------------------------------------------------------------------- */

static int create_ours(BenchRun *run)
{
        struct folio_create_options options = bench_store_options(FOLIO_OWN_REGION);
        Map *map = run->bench->state;
        char name[BENCH_NAME_BYTES];

        return bench_check_store(run, folio_create(run->bench->ctl->client,
                                                   bench_store_name(&run->bench->store, bench_space(run), KEY, name),
                                                   run->size_bytes, &options, &map->object));
}

static int write_ours(BenchRun *run)
{
        Map *map = run->bench->state;
        void *address;
        int r = folio_object_map_write(map->object, &address);

        if (r == 0)
                write_sparsely(address, run->size_bytes);
        return bench_check_store(run, r);
}

static int whole_ours(BenchRun *run)
{
        int r = create_ours(run);

        return r == CTL_OK ? write_ours(run) : r;
}

/* What create or fill has made; unsealed ones are aborted by the release. */
static int drop_ours(BenchRun *run)
{
        Map *map = run->bench->state;

        bench_store_drop(&run->bench->store, bench_space(run), KEY, map->object);
        map->object = NULL;
        return CTL_OK;
}

static int fill_ours(BenchRun *run)
{
        Map *map = run->bench->state;
        int r = bench_store_make(&run->bench->store, bench_space(run), KEY, BENCH_CONTENT_WRITTEN, map->source.address,
                                 run->size_bytes, &map->object);

        if (r != CTL_OK)
                return r;
        run->huge_share = bench_store_huge_share(map->object);
        /* A reader begins with a name. */
        (void)folio_object_release(map->object);
        map->object = NULL;
        return CTL_OK;
}

static int get_ours(BenchRun *run)
{
        Map *map = run->bench->state;
        char name[BENCH_NAME_BYTES];
        const void *data;
        int r;

        r = folio_get(run->bench->ctl->client, bench_store_name(&run->bench->store, bench_space(run), KEY, name), 0, 0,
                      &map->object);
        if (r < 0)
                return bench_check_store(run, r);
        data = folio_object_data(map->object);
        if (!data)
                return ctl_complain(run->bench->ctl, "cannot map %s: %s", name, folio_strerror_full());
        map->sink = read_all(data, run->size_bytes);
        return CTL_OK;
}

/* --- the plain side ----------------------------------------------------------------------------------------------- */

/* A file of that size, with memory reserved for it or not. */
static int make_file(BenchRun *run, bool is_reserved)
{
        Map *map = run->bench->state;
        int fd = bench_plain_create(&run->bench->plain, run->c->theirs_pages), r = 0;

        if (fd < 0)
                return bench_check_plain(run, fd);
        map->fd = fd;
        run->bench->n_plain_calls += is_reserved ? 3 : 2;
        if (ftruncate(fd, (off_t)run->size_bytes) < 0)
                r = -errno;
        while (r == 0 && is_reserved && fallocate(fd, 0, 0, (off_t)run->size_bytes) < 0)
                if (errno != EINTR)
                        r = -errno;
        return bench_check_plain(run, r);
}

static int create_theirs(BenchRun *run)
{
        return make_file(run, true);
}

/* As lmbench maps: where the kernel likes, which puts large files at 2 MiB. */
static int map_theirs(BenchRun *run, int protection)
{
        Map *map = run->bench->state;
        void *address = mmap(NULL, (size_t)run->size_bytes, protection, MAP_SHARED, map->fd, 0);

        run->bench->n_plain_calls++;
        if (address == MAP_FAILED)
                return bench_check_plain(run, -errno);
        map->address = address;
        return CTL_OK;
}

static int write_theirs(BenchRun *run)
{
        Map *map = run->bench->state;
        int r = map_theirs(run, PROT_READ | PROT_WRITE);

        if (r == CTL_OK)
                write_sparsely(map->address, run->size_bytes);
        return r;
}

static int whole_theirs(BenchRun *run)
{
        int r = make_file(run, false);

        return r == CTL_OK ? write_theirs(run) : r;
}

static int fill_theirs(BenchRun *run)
{
        Map *map = run->bench->state;

        return bench_check_plain(run, bench_plain_make(&run->bench->plain, run->c->theirs_pages, BENCH_CONTENT_WRITTEN,
                                                       map->source.address, run->size_bytes, &map->fd));
}

static int get_theirs(BenchRun *run)
{
        Map *map = run->bench->state;
        int r = map_theirs(run, PROT_READ);

        if (r == CTL_OK)
                map->sink = read_all(map->address, run->size_bytes);
        return r;
}

static int drop_theirs(BenchRun *run)
{
        Map *map = run->bench->state;

        if (map->address)
                (void)munmap(map->address, (size_t)run->size_bytes);
        if (map->fd >= 0)
                (void)close(map->fd);
        map->address = NULL;
        map->fd = -1;
        return CTL_OK;
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

enum { KIND_CREATE, KIND_WRITE, KIND_WHOLE, KIND_READ };

static const char *const whats[] = {
        [KIND_CREATE] = "open, ftruncate and fallocate of a",
        [KIND_WRITE] = "mmap of a fallocated",
        [KIND_WHOLE] = "open, ftruncate and mmap of a",
        [KIND_READ] = "mmap of a",
};

static uint64_t map_bytes(const Bench *bench)
{
        uint64_t n_bytes = bench->size_bytes / SIZE_SHARE & ~((uint64_t)BENCH_HUGE_BYTES - 1);

        return n_bytes < BENCH_HUGE_BYTES ? BENCH_HUGE_BYTES : n_bytes;
}

static int map_copy(BenchRun *run, const BenchCopy *copy)
{
        Map *map = run->bench->state;

        /* The second half of the area is there for this. */
        copy->run(map->source.address + run->size_bytes, map->source.address, (size_t)run->size_bytes);
        return CTL_OK;
}

static int map_setup(BenchRun *run)
{
        Bench *bench = run->bench;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        run->size_bytes = map_bytes(bench);
        run->block_bytes = run->c->block_bytes;
        run->n_units = 1;
        run->n_copied_bytes = run->c->kind == KIND_READ ? run->size_bytes : 0;
        snprintf(run->what, sizeof(run->what), "%s %s", whats[run->c->kind],
                 bench_plain_label(&bench->plain, run->c->theirs_pages));
        return CTL_OK;
}

static int map_teardown(BenchRun *run)
{
        Map *map = run->bench->state;

        if (map->object)
                (void)drop_ours(run);
        return drop_theirs(run);
}

static int suite_open(Bench *bench)
{
        Map *map = calloc(1, sizeof(*map));
        int r;

        if (!map)
                return ctl_out_of_memory(bench->ctl);
        map->fd = -1;
        bench->state = map;
        r = bench_area_init(&map->source, (size_t)(2 * map_bytes(bench)));
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to copy from: %s", strerror(-r));
        bench_fill(map->source.address, (size_t)map_bytes(bench), 7);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Map *map = bench->state;

        if (!map)
                return;
        bench_area_deinit(&map->source);
        free(map);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        return map_bytes(bench);
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return 3 * map_bytes(bench);
}

#define COMMON(case_name, case_kind, page_kind, theirs_page_kind)                                                      \
        .name = case_name, .kind = case_kind, .pages = page_kind, .theirs_pages = theirs_page_kind,                    \
        .unit = BENCH_UNIT_MS, .setup = map_setup, .teardown = map_teardown, .clean = drop_ours,                       \
        .clean_theirs = drop_theirs
#define CREATE(page_kind, theirs_page_kind)                                                                            \
        {                                                                                                              \
                COMMON("create", KIND_CREATE, page_kind, theirs_page_kind), .ours = create_ours,                       \
                                                                            .theirs = create_theirs                    \
        }
#define WRITE(page_kind, theirs_page_kind)                                                                             \
        {                                                                                                              \
                COMMON("write", KIND_WRITE, page_kind, theirs_page_kind),                                              \
                        .block_bytes = STRIDE_BYTES, .prepare = create_ours, .ours = write_ours,                       \
                        .prepare_theirs = create_theirs, .theirs = write_theirs                                        \
        }
#define CREATE_WRITE(page_kind, theirs_page_kind)                                                                      \
        {                                                                                                              \
                COMMON("create-write", KIND_WHOLE, page_kind, theirs_page_kind),                                       \
                        .block_bytes = STRIDE_BYTES, .ours = whole_ours, .theirs = whole_theirs                        \
        }
#define READ(page_kind, theirs_page_kind)                                                                              \
        {                                                                                                              \
                COMMON("read", KIND_READ, page_kind, theirs_page_kind),                                                \
                        .prepare = fill_ours, .ours = get_ours, .prepare_theirs = fill_theirs, .theirs = get_theirs,   \
                        .reference = map_copy                                                                          \
        }
#define ALL(page_kind, theirs_page_kind)                                                                               \
        CREATE(page_kind, theirs_page_kind), WRITE(page_kind, theirs_page_kind),                                       \
                CREATE_WRITE(page_kind, theirs_page_kind), READ(page_kind, theirs_page_kind)

static const BenchCase cases[] = {
        ALL(BENCH_PAGES_4K, BENCH_PAGES_4K),
        ALL(BENCH_PAGES_2M, BENCH_PAGES_4K),
        ALL(BENCH_PAGES_2M, BENCH_PAGES_2M),
};

const BenchSuite bench_suite_map = {
        .name = "map",
        .summary = "through a fresh mapping, a byte every 16 KiB is written, every byte is read",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
