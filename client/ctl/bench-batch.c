/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `batch`: folio_read_many() by names of what a model's checkpoint looks like, 112 tiny objects (3,592 bytes
 * together) and two that hold 65 MB, against open, fstat, pread and close of as many tmpfs files. `first` is asked by
 * a client that has just connected; `again` by one that knows them; `extra` is what a tiny object more costs, by the
 * difference of a thousand, without the large ones, whose copies would drown it.
 */
#include "client/ctl/bench-case.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_LARGE 2u
#define N_TINY 112u
#define N_EXTRA 1000u
#define N_TINY_MAX (N_TINY + N_EXTRA)
#define TINY_BYTES 3592u /* of N_TINY together */
#define LARGE_BYTES UINT64_C(65000000) /* of both, of the default size */
#define DEFAULT_BYTES ((uint64_t)1 << 30)
#define LARGE_BYTES_MIN ((uint64_t)64 << 10)

typedef struct Item {
        char name[BENCH_NAME_BYTES];
        BenchFile file;
        uint64_t size_bytes;
        uint64_t offset_bytes; /* in source and target */
} Item;

/* Large ones first: a batch is a run of items. */
typedef struct Batch {
        BenchArea source, target;
        Item *items;
        struct folio_read_item *reads;
        size_t n_items; /* that there is room for */
        size_t n_files; /* that are made */
        uint64_t total_bytes;
        bool is_made; /* the objects, in: */
        BenchPages pages;
        struct folio_client *client; /* of `first`; else NULL */
} Batch;

/* --- objects and files -------------------------------------------------------------------------------------------- */

static uint64_t large_bytes(const Bench *bench)
{
        uint64_t n_bytes = LARGE_BYTES / N_LARGE * (bench->size_bytes >> 20) / (DEFAULT_BYTES >> 20);

        return n_bytes < LARGE_BYTES_MIN ? LARGE_BYTES_MIN : n_bytes;
}

/* Whose sizes add up to TINY_BYTES for the first N_TINY of them. */
static uint64_t tiny_bytes(size_t index)
{
        return TINY_BYTES / N_TINY + (index % N_TINY < TINY_BYTES % N_TINY ? 1 : 0);
}

static void lay_out(const Bench *bench, Batch *batch)
{
        uint64_t offset = 0;

        for (size_t i = 0; i < batch->n_items; i++) {
                batch->items[i].size_bytes = i < N_LARGE ? large_bytes(bench) : tiny_bytes(i - N_LARGE);
                batch->items[i].offset_bytes = offset;
                batch->items[i].file = (BenchFile){ .fd = -1, .directory_fd = -1 };
                offset += (batch->items[i].size_bytes + 63) & ~UINT64_C(63);
        }
        batch->total_bytes = offset;
}

static const char *name_of(const Bench *bench, BenchPages pages, size_t index, char buffer[BENCH_NAME_BYTES])
{
        char key[32];

        snprintf(key, sizeof(key), "batch-%zu", index);
        return bench_store_name(&bench->store, (BenchSpace)pages, key, buffer);
}

static void drop_all(Bench *bench)
{
        Batch *batch = bench->state;

        while (batch->n_files > 0)
                bench_file_deinit(&batch->items[--batch->n_files].file);
        for (size_t i = 0; batch->is_made && i < batch->n_items; i++)
                (void)folio_delete(bench->ctl->client, batch->items[i].name, FOLIO_IF_EXISTS);
        if (batch->is_made)
                bench_store_settle(&bench->store);
        batch->is_made = false;
}

static int make_objects(BenchRun *run, Batch *batch)
{
        Bench *bench = run->bench;
        struct folio_create_options options = bench_store_options(0);
        double huge_share = 0;
        int r = 0;

        batch->pages = run->c->pages;
        batch->is_made = true;
        for (size_t i = 0; r == 0 && i < batch->n_items; i++) {
                Item *item = &batch->items[i];
                struct folio_object *object;
                char key[32];

                (void)name_of(bench, batch->pages, i, item->name);
                if (i >= N_LARGE) {
                        r = folio_put(bench->ctl->client, item->name, batch->source.address + item->offset_bytes,
                                      item->size_bytes, &options);
                        continue;
                }
                snprintf(key, sizeof(key), "batch-%zu", i);
                r = bench_store_make(&bench->store, (BenchSpace)batch->pages, key, BENCH_CONTENT_WRITTEN,
                                     batch->source.address + item->offset_bytes, item->size_bytes, &object);
                if (r != CTL_OK)
                        return r;
                huge_share += bench_store_huge_share(object) / N_LARGE;
                (void)folio_object_release(object);
        }
        run->huge_share = huge_share;
        return bench_check_store(run, r);
}

/* Tiny files have small pages always: of huge ones each would take 2 MiB. */
static int make_files(BenchRun *run, Batch *batch)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < batch->n_items; i++) {
                Item *item = &batch->items[i];

                r = bench_file_init(&item->file, &run->bench->plain,
                                    i < N_LARGE ? run->c->theirs_pages : BENCH_PAGES_4K,
                                    batch->source.address + item->offset_bytes, item->size_bytes);
                batch->n_files += r == 0;
        }
        return bench_check_plain(run, r);
}

/* --- the work ----------------------------------------------------------------------------------------------------- */

static void fill_reads(Batch *batch)
{
        for (size_t i = 0; i < batch->n_items; i++)
                batch->reads[i] = (struct folio_read_item){
                        .name = batch->items[i].name,
                        .buffer = batch->target.address + batch->items[i].offset_bytes,
                        .n_bytes = (size_t)batch->items[i].size_bytes,
                };
}

static int read_objects(BenchRun *run, struct folio_client *client, size_t begin, size_t n_items)
{
        Batch *batch = run->bench->state;
        int n_failed = folio_read_many(client, batch->reads + begin, n_items);

        if (n_failed <= 0)
                return bench_check_store(run, n_failed);
        for (size_t i = begin; i < begin + n_items; i++)
                if (batch->reads[i].error)
                        return bench_check_store(run, batch->reads[i].error);
        return CTL_OK;
}

static int read_one_file(Bench *bench, const Item *item, unsigned char *target)
{
        _ctl_cleanup_(ctl_cleanup_fd) int fd = openat(item->file.directory_fd, item->file.path, O_RDONLY | O_CLOEXEC);
        struct stat status;
        ssize_t n;

        bench->n_plain_calls += 4;
        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;
        n = pread(fd, target + item->offset_bytes, (size_t)status.st_size, 0);
        return n < 0 ? -errno : n == status.st_size ? 0 : -EIO;
}

static int read_files(BenchRun *run, size_t begin, size_t n_items)
{
        Batch *batch = run->bench->state;
        int r = 0;

        for (size_t i = begin; r == 0 && i < begin + n_items; i++)
                r = read_one_file(run->bench, &batch->items[i], batch->target.address);
        return bench_check_plain(run, r);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static int again_ours(BenchRun *run)
{
        return read_objects(run, run->bench->ctl->client, 0, N_LARGE + N_TINY);
}

static int batch_theirs(BenchRun *run)
{
        return read_files(run, 0, N_LARGE + N_TINY);
}

static int first_prepare(BenchRun *run)
{
        Batch *batch = run->bench->state;

        return bench_check_store(run, bench_store_connect(&run->bench->store, 0, &batch->client));
}

static int first_ours(BenchRun *run)
{
        Batch *batch = run->bench->state;

        return read_objects(run, batch->client, 0, N_LARGE + N_TINY);
}

static int first_clean(BenchRun *run)
{
        Batch *batch = run->bench->state;

        folio_client_unref(batch->client);
        batch->client = NULL;
        return CTL_OK;
}

static int measure_tiny(BenchRun *run, int (*read)(BenchRun *run, size_t n_items), size_t n_items, BenchSample *ret)
{
        BenchTracer tracer;
        int r;

        if (run->is_counting)
                bench_tracer_begin(&tracer);
        bench_counter_begin(&run->bench->counter, ret);
        r = read(run, n_items);
        bench_counter_end(&run->bench->counter, ret);
        ret->n_calls = run->is_counting ? bench_tracer_end(&tracer) : BENCH_UNKNOWN;
        return r;
}

static uint64_t difference(uint64_t more, uint64_t less)
{
        if (more == BENCH_UNKNOWN || less == BENCH_UNKNOWN)
                return BENCH_UNKNOWN;
        return more > less ? more - less : 0;
}

/* N_TINY, then N_EXTRA more of them: the sample is what the latter took longer. */
static int measure_extra(BenchRun *run, int (*read)(BenchRun *run, size_t n_items))
{
        BenchSample few = { 0 }, many = { 0 };
        int r = measure_tiny(run, read, N_TINY, &few);

        if (r == CTL_OK)
                r = measure_tiny(run, read, N_TINY_MAX, &many);
        *run->sample = (BenchSample){
                .time_ns = difference(many.time_ns, few.time_ns),
                .n_faults = difference(many.n_faults, few.n_faults),
                .n_tlb_misses = difference(many.n_tlb_misses, few.n_tlb_misses),
                .n_calls = difference(many.n_calls, few.n_calls),
                .is_taken = true,
        };
        return r;
}

static int tiny_objects(BenchRun *run, size_t n_items)
{
        return read_objects(run, run->bench->ctl->client, N_LARGE, n_items);
}

static int tiny_files(BenchRun *run, size_t n_items)
{
        return read_files(run, N_LARGE, n_items);
}

static int extra_ours(BenchRun *run)
{
        return measure_extra(run, tiny_objects);
}

static int extra_theirs(BenchRun *run)
{
        return measure_extra(run, tiny_files);
}

static int batch_copy(BenchRun *run, const BenchCopy *copy)
{
        Batch *batch = run->bench->state;

        for (size_t i = 0; i < N_LARGE + N_TINY; i++) {
                const Item *item = &batch->items[i];

                copy->run(batch->target.address + item->offset_bytes, batch->source.address + item->offset_bytes,
                          (size_t)item->size_bytes);
        }
        return CTL_OK;
}

enum { KIND_BATCH, KIND_EXTRA };

/* The first of the cases that share a page kind makes what all of them read. */
static int batch_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Batch *batch = bench->state;
        int r = CTL_OK;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        if (!batch->is_made || batch->pages != run->c->pages) {
                drop_all(bench);
                r = make_objects(run, batch);
                if (r == CTL_OK)
                        r = make_files(run, batch);
                if (r != CTL_OK)
                        return r;
        }
        fill_reads(batch);
        run->size_bytes = run->c->kind == KIND_EXTRA ? TINY_BYTES : TINY_BYTES + N_LARGE * large_bytes(bench);
        run->n_units = run->c->kind == KIND_EXTRA ? N_EXTRA : 1;
        run->n_copied_bytes = run->c->kind == KIND_EXTRA ? 0 : run->size_bytes;
        snprintf(run->what, sizeof(run->what), "open, fstat, pread and close of %s %s%s",
                 run->c->kind == KIND_EXTRA ? "one more of a thousand:" : "each:",
                 bench_plain_label(&bench->plain, BENCH_PAGES_4K),
                 run->c->kind == KIND_BATCH && run->c->theirs_pages == BENCH_PAGES_2M ? ", of the large ones 2 MiB"
                                                                                      : "");
        memset(batch->target.address, 0, batch->target.n_bytes);
        r = read_objects(run, bench->ctl->client, 0, N_LARGE + N_TINY_MAX);
        for (size_t i = 0; r == CTL_OK && i < batch->n_items; i++)
                if (memcmp(batch->target.address + batch->items[i].offset_bytes,
                           batch->source.address + batch->items[i].offset_bytes,
                           (size_t)batch->items[i].size_bytes) != 0)
                        r = ctl_complain(bench->ctl, "wrong bytes: %s is not what was written", batch->items[i].name);
        return r;
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static uint64_t area_bytes(const Bench *bench)
{
        return N_LARGE * (large_bytes(bench) + 64) + N_TINY_MAX * UINT64_C(64);
}

static int suite_open(Bench *bench)
{
        Batch *batch = calloc(1, sizeof(*batch));
        int r;

        if (!batch)
                return ctl_out_of_memory(bench->ctl);
        bench->state = batch;
        batch->n_items = N_LARGE + N_TINY_MAX;
        batch->items = calloc(batch->n_items, sizeof(*batch->items));
        batch->reads = calloc(batch->n_items, sizeof(*batch->reads));
        if (!batch->items || !batch->reads)
                return ctl_out_of_memory(bench->ctl);
        lay_out(bench, batch);
        r = bench_area_init(&batch->source, (size_t)area_bytes(bench));
        if (r == 0)
                r = bench_area_init(&batch->target, (size_t)area_bytes(bench));
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to read into: %s", strerror(-r));
        bench_fill(batch->source.address, batch->source.n_bytes, 11);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Batch *batch = bench->state;

        if (!batch)
                return;
        drop_all(bench);
        bench_area_deinit(&batch->source);
        bench_area_deinit(&batch->target);
        free(batch->items);
        free(batch->reads);
        free(batch);
        bench->state = NULL;
}

/* Packed objects begin with a region of some MiB. */
static uint64_t suite_store_bytes(const Bench *bench)
{
        return area_bytes(bench) + ((uint64_t)16 << 20);
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return 3 * area_bytes(bench) + ((uint64_t)8 << 20);
}

#define COMMON(case_name, case_kind, page_kind)                                                                        \
        .name = case_name, .kind = case_kind, .pages = page_kind, .theirs_pages = page_kind, .setup = batch_setup
#define FIRST(page_kind)                                                                                               \
        {                                                                                                              \
                COMMON("first", KIND_BATCH, page_kind), .unit = BENCH_UNIT_MS, .prepare = first_prepare,               \
                                                        .ours = first_ours, .clean = first_clean,                      \
                                                        .theirs = batch_theirs, .reference = batch_copy                \
        }
#define AGAIN(page_kind)                                                                                               \
        {                                                                                                              \
                COMMON("again", KIND_BATCH, page_kind), .unit = BENCH_UNIT_MS, .ours = again_ours,                     \
                                                        .theirs = batch_theirs, .reference = batch_copy                \
        }
#define EXTRA(page_kind)                                                                                               \
        {                                                                                                              \
                COMMON("extra", KIND_EXTRA, page_kind), .unit = BENCH_UNIT_US, .is_self_measured = true,               \
                                                        .ours = extra_ours, .theirs = extra_theirs                     \
        }
#define ALL(page_kind) FIRST(page_kind), AGAIN(page_kind), EXTRA(page_kind)

static const BenchCase cases[] = { ALL(BENCH_PAGES_4K), ALL(BENCH_PAGES_2M) };

const BenchSuite bench_suite_batch = {
        .name = "batch",
        .summary = "112 tiny objects and two large ones in one call, and what one tiny object more costs",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
