/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `shapes`: what programs do with a store all day, from the making of the bytes to their end, against the same
 * with tmpfs files.
 *
 * loader (workload W01): a batch of a data loader, 112 tiny objects and two that hold the rest of 65 MB, put, read and
 * deleted in three calls. tasks (W12): results of a graph of tasks, of 16 B to 400 MB in one store, each put, got, touched
 * and deleted. market (W06): one writer appends records of 40 B to a ring in a mutable object, and eight readers that have
 * it mapped follow it; one that is lapped goes on with what is there, and the writer waits for nobody.
 */
#include "client/ctl/bench-case.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/bench-crowd.h"
#include "client/ctl/bench-folder.h"

#define MIB ((uint64_t)1 << 20)
#define DEFAULT_BYTES ((uint64_t)1 << 30)
#define N_OBJECTS_MAX 400u
#define NAME_BYTES 80
#define FILE_BYTES 32
#define N_READERS 8u
#define N_RECORDS 200000u
#define MARKET_BYTES (64 * MIB)
#define HEAD_BYTES 4096u
#define NAP_NS 100000

enum { KIND_LOADER, KIND_TASKS };

/* So many objects of so many bytes; those that are large are as large as --size says. */
typedef struct Group {
        unsigned n_objects;
        uint64_t size_bytes;
} Group;

static const Group loader[] = { { 2, 32500000 }, { 112, 32 }, { 0, 0 } };
static const Group tasks[] = { { 256, 16 }, { 64, 4096 }, { 32, 1000000 }, { 16, 2 * MIB }, { 2, 100000000 },
                               { 1, 400000000 }, { 0, 0 } };

typedef struct Record {
        uint64_t sequence;
        uint64_t payload[4];
} Record;

/* In the object, or the file. */
typedef struct Market {
        _Atomic uint64_t n_written;
} Market;

typedef struct Shapes {
        BenchArea source, target;
        BenchFolder folder;
        size_t n_objects;
        uint64_t sizes[N_OBJECTS_MAX];
        char names[N_OBJECTS_MAX][NAME_BYTES];
        char files[N_OBJECTS_MAX][FILE_BYTES];
        struct folio_put_item puts[N_OBJECTS_MAX];
        struct folio_read_item reads[N_OBJECTS_MAX];
        struct folio_delete_item deletes[N_OBJECTS_MAX];
        struct folio_create_options options;
        /* market */
        char name[BENCH_NAME_BYTES];
        struct folio_object *object;
        Market *ours, *theirs; /* as the writer has them mapped */
        const Market *views[N_READERS]; /* as the readers have: of the side that is measured */
        uint64_t market_bytes;
        BenchCrowd readers;
        atomic_bool is_ending;
        uint64_t n_missed[N_READERS];
        atomic_int error;
} Shapes;

/* --- loader and tasks --------------------------------------------------------------------------------------------- */

static uint64_t scaled(const Bench *bench, uint64_t n_bytes)
{
        uint64_t less = n_bytes / (DEFAULT_BYTES >> 20) * (bench->size_bytes >> 20);

        return n_bytes < MIB / 2 || bench->size_bytes >= DEFAULT_BYTES ? n_bytes : less < 4096 ? 4096 : less;
}

static void lay_out(BenchRun *run, const Group *groups)
{
        Shapes *shapes = run->bench->state;
        uint64_t offset = 0;
        size_t n = 0;

        run->size_bytes = 0;
        for (const Group *group = groups; group->n_objects > 0; group++)
                for (unsigned i = 0; i < group->n_objects; i++, n++) {
                        char key[32], name[BENCH_NAME_BYTES];
                        uint64_t n_bytes = scaled(run->bench, group->size_bytes);

                        snprintf(key, sizeof(key), "shape-%zu", n);
                        snprintf(shapes->names[n], NAME_BYTES, "%.79s",
                                 bench_store_name(&run->bench->store, bench_space(run), key, name));
                        snprintf(shapes->files[n], FILE_BYTES, "%s", key);
                        shapes->sizes[n] = n_bytes;
                        if (offset + n_bytes > shapes->source.n_bytes)
                                offset = 0;
                        shapes->puts[n] = (struct folio_put_item){ .name = shapes->names[n],
                                                                   .data = shapes->source.address + offset,
                                                                   .size_bytes = n_bytes,
                                                                   .options = &shapes->options };
                        shapes->reads[n] = (struct folio_read_item){ .name = shapes->names[n],
                                                                     .buffer = shapes->target.address + offset,
                                                                     .n_bytes = (size_t)n_bytes };
                        shapes->deletes[n] = (struct folio_delete_item){ .name = shapes->names[n] };
                        offset += (n_bytes + 63) & ~UINT64_C(63);
                        run->size_bytes += n_bytes;
                }
        shapes->n_objects = n;
}

static int loader_ours(BenchRun *run)
{
        Shapes *shapes = run->bench->state;
        int r = folio_put_many(run->client, shapes->puts, shapes->n_objects);

        for (size_t i = 0; r > 0 && i < shapes->n_objects; i++)
                r = shapes->puts[i].error ? shapes->puts[i].error : r;
        if (r == 0)
                r = folio_read_many(run->client, shapes->reads, shapes->n_objects);
        for (size_t i = 0; r > 0 && i < shapes->n_objects; i++)
                r = shapes->reads[i].error ? shapes->reads[i].error : r;
        if (r == 0)
                r = folio_delete_many(run->client, shapes->deletes, shapes->n_objects);
        return bench_check_store(run, bench_flush(run, r > 0 ? FOLIO_E_IO : r));
}

static int read_file(BenchRun *run, const Shapes *shapes, size_t i)
{
        int fd = openat(shapes->folder.fd, shapes->files[i], O_RDONLY | O_CLOEXEC);
        ssize_t n;

        run->bench->n_plain_calls += 3;
        if (fd < 0)
                return -errno;
        n = pread(fd, shapes->reads[i].buffer, (size_t)shapes->sizes[i], 0);
        (void)close(fd);
        return n == (ssize_t)shapes->sizes[i] ? 0 : -EIO;
}

static int put_file(BenchRun *run, const Shapes *shapes, size_t i)
{
        run->bench->n_plain_calls += 3;
        return bench_folder_put(&shapes->folder, shapes->files[i], shapes->puts[i].data, shapes->sizes[i]);
}

static int loader_theirs(BenchRun *run)
{
        Shapes *shapes = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < shapes->n_objects; i++)
                r = put_file(run, shapes, i);
        for (size_t i = 0; r == 0 && i < shapes->n_objects; i++)
                r = read_file(run, shapes, i);
        for (size_t i = 0; r == 0 && i < shapes->n_objects; i++)
                r = bench_folder_remove(&shapes->folder, shapes->files[i]);
        run->bench->n_plain_calls += shapes->n_objects;
        return bench_check_plain(run, r);
}

/* A byte of every page. */
static unsigned touch(const volatile unsigned char *bytes, uint64_t n_bytes)
{
        unsigned sum = 0;

        for (uint64_t offset = 0; offset < n_bytes; offset += BENCH_PAGE_BYTES)
                sum += bytes[offset];
        return sum;
}

static int do_task(BenchRun *run, size_t i)
{
        Shapes *shapes = run->bench->state;
        struct folio_object *object;
        int r = folio_put(run->client, shapes->names[i], shapes->puts[i].data, shapes->sizes[i], &shapes->options);

        if (r == 0)
                r = folio_get(run->client, shapes->names[i], 0, 0, &object);
        if (r < 0)
                return r;
        (void)touch(folio_object_data(object), shapes->sizes[i]);
        (void)folio_object_release(object);
        return folio_delete(run->client, shapes->names[i], 0);
}

static int tasks_ours(BenchRun *run)
{
        Shapes *shapes = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < shapes->n_objects; i++)
                r = do_task(run, i);
        return bench_check_store(run, bench_flush(run, r));
}

static int do_plain_task(BenchRun *run, size_t i)
{
        Shapes *shapes = run->bench->state;
        size_t n_bytes = (size_t)shapes->sizes[i];
        int r = put_file(run, shapes, i), fd;
        void *address;

        run->bench->n_plain_calls += 5;
        if (r < 0)
                return r;
        fd = openat(shapes->folder.fd, shapes->files[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        address = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, fd, 0);
        (void)close(fd);
        if (address == MAP_FAILED)
                return -errno;
        (void)touch(address, n_bytes);
        (void)munmap(address, n_bytes);
        return bench_folder_remove(&shapes->folder, shapes->files[i]);
}

static int tasks_theirs(BenchRun *run)
{
        Shapes *shapes = run->bench->state;
        int r = 0;

        for (size_t i = 0; r == 0 && i < shapes->n_objects; i++)
                r = do_plain_task(run, i);
        return bench_check_plain(run, r);
}

static int shapes_clean(BenchRun *run)
{
        bench_store_settle(&run->bench->store);
        return CTL_OK;
}

static int shapes_teardown(BenchRun *run)
{
        Shapes *shapes = run->bench->state;

        for (size_t i = 0; i < shapes->n_objects; i++) {
                (void)folio_delete(run->bench->ctl->client, shapes->names[i], FOLIO_IF_EXISTS);
                if (shapes->folder.fd >= 0)
                        (void)bench_folder_remove(&shapes->folder, shapes->files[i]); /* there only where it failed */
        }
        shapes->n_objects = 0;
        bench_folder_deinit(&shapes->folder);
        bench_store_settle(&run->bench->store);
        return CTL_OK;
}

static int shapes_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Shapes *shapes = bench->state;
        int r;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        lay_out(run, run->c->kind == KIND_LOADER ? loader : tasks);
        run->n_units = 1;
        snprintf(run->what, sizeof(run->what), "%s of each: %s",
                 run->c->kind == KIND_LOADER ? "open, write and close, open, pread and close, unlink"
                                             : "open, write and close, open, mmap, munmap and close, unlink",
                 bench_plain_label(&bench->plain, run->c->theirs_pages));
        r = bench_check_plain(run, bench_folder_init(&shapes->folder, &bench->plain, run->c->theirs_pages));
        if (r == CTL_OK && run->c->kind == KIND_LOADER) {
                r = loader_ours(run);
                for (size_t i = 0; r == CTL_OK && i < shapes->n_objects; i++)
                        if (memcmp(shapes->reads[i].buffer, shapes->puts[i].data, (size_t)shapes->sizes[i]) != 0)
                                r = ctl_complain(bench->ctl, "wrong bytes: %s is not what was put", shapes->names[i]);
        }
        if (r != CTL_OK)
                (void)shapes_teardown(run);
        return r;
}

/* --- market ------------------------------------------------------------------------------------------------------- */

static uint64_t n_slots(const Shapes *shapes)
{
        return (shapes->market_bytes - HEAD_BYTES) / sizeof(Record);
}

static void append(const Shapes *shapes, Market *market, uint64_t sequence)
{
        Record *record = (Record *)(void *)((unsigned char *)market + HEAD_BYTES) + sequence % n_slots(shapes);

        *record = (Record){ sequence, { sequence, ~sequence, sequence * 3, 1 } };
        atomic_store_explicit(&market->n_written, sequence + 1, memory_order_release);
}

/* Records from *@cursor on, as many as there are. False: one is not what was written, and was not written over. */
static bool follow(const Shapes *shapes, const Market *market, uint64_t *cursor, uint64_t *n_missed)
{
        const Record *records = (const Record *)(const void *)((const unsigned char *)market + HEAD_BYTES);
        uint64_t n = atomic_load_explicit(&market->n_written, memory_order_acquire);

        while (*cursor < n) {
                Record record = records[*cursor % n_slots(shapes)];
                uint64_t n_now;

                atomic_thread_fence(memory_order_acquire);
                n_now = atomic_load_explicit(&market->n_written, memory_order_relaxed);
                /* The one that is being written now takes the place of this one. */
                if (n_now - *cursor >= n_slots(shapes)) {
                        *n_missed += n_now - n_slots(shapes) / 2 - *cursor;
                        *cursor = n_now - n_slots(shapes) / 2;
                        n = n_now;
                        continue;
                }
                if (record.sequence != *cursor || record.payload[1] != ~*cursor)
                        return false;
                ++*cursor;
        }
        return true;
}

static void read_market(void *argument, unsigned index)
{
        static const struct timespec nap = { .tv_nsec = NAP_NS };
        Shapes *shapes = argument;
        const Market *market = shapes->views[index];
        uint64_t cursor = atomic_load(&market->n_written);

        for (;;) {
                bool is_last = atomic_load(&shapes->is_ending);

                if (!follow(shapes, market, &cursor, &shapes->n_missed[index])) {
                        atomic_store(&shapes->error, -EILSEQ);
                        return;
                }
                if (is_last)
                        return;
                (void)nanosleep(&nap, NULL);
        }
}

static int call_readers(BenchRun *run, const Market *market)
{
        Shapes *shapes = run->bench->state;
        int r;

        for (unsigned i = 0; i < N_READERS; i++)
                shapes->views[i] = market;
        atomic_store(&shapes->is_ending, false);
        r = bench_crowd_init(&shapes->readers, N_READERS, read_market, shapes);
        if (r < 0)
                return ctl_complain(run->bench->ctl, "cannot begin threads that read: %s", strerror(-r));
        bench_crowd_call(&shapes->readers);
        return CTL_OK;
}

static int market_prepare(BenchRun *run)
{
        Shapes *shapes = run->bench->state;

        /* Readers have a mapping for reading, as other programs have. */
        return call_readers(run, folio_object_data(shapes->object));
}

static int market_prepare_theirs(BenchRun *run)
{
        Shapes *shapes = run->bench->state;

        return call_readers(run, shapes->theirs);
}

static int market_write(BenchRun *run, Market *market)
{
        Shapes *shapes = run->bench->state;
        uint64_t first = atomic_load(&market->n_written);

        for (uint64_t i = 0; i < N_RECORDS; i++) {
                bench_laps_begin(run->laps);
                append(shapes, market, first + i);
                bench_laps_end(run->laps);
        }
        return CTL_OK;
}

static int market_ours(BenchRun *run)
{
        return market_write(run, ((Shapes *)run->bench->state)->ours);
}

static int market_theirs(BenchRun *run)
{
        return market_write(run, ((Shapes *)run->bench->state)->theirs);
}

static int market_clean(BenchRun *run)
{
        Shapes *shapes = run->bench->state;

        atomic_store(&shapes->is_ending, true);
        bench_crowd_wait(&shapes->readers);
        bench_crowd_deinit(&shapes->readers);
        if (atomic_load(&shapes->error) != 0)
                return ctl_complain(run->bench->ctl, "wrong bytes: a reader saw a record that was not written");
        return CTL_OK;
}

static int market_teardown(BenchRun *run)
{
        Shapes *shapes = run->bench->state;

        if (shapes->theirs)
                (void)munmap(shapes->theirs, (size_t)shapes->market_bytes);
        if (shapes->object)
                bench_store_drop(&run->bench->store, bench_space(run), "market", shapes->object);
        shapes->theirs = shapes->ours = NULL;
        shapes->object = NULL;
        return CTL_OK;
}

static int make_market(BenchRun *run)
{
        Shapes *shapes = run->bench->state;
        struct folio_create_options options = bench_store_options(FOLIO_MUTABLE);
        void *address;
        int r = folio_create(run->bench->ctl->client, shapes->name, shapes->market_bytes, &options, &shapes->object);

        if (r == 0)
                r = folio_object_map_write(shapes->object, &address);
        if (r == 0)
                shapes->ours = address;
        return bench_check_store(run, r);
}

static int make_plain_market(BenchRun *run)
{
        Shapes *shapes = run->bench->state;
        int fd = bench_plain_create(&run->bench->plain, run->c->theirs_pages), r = fd < 0 ? fd : 0;
        void *address = MAP_FAILED;

        if (r == 0 && posix_fallocate(fd, 0, (off_t)shapes->market_bytes) != 0)
                r = -ENOMEM;
        if (r == 0)
                address = mmap(NULL, (size_t)shapes->market_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (r == 0 && address == MAP_FAILED)
                r = -errno;
        if (fd >= 0)
                (void)close(fd);
        if (r == 0)
                shapes->theirs = address;
        return bench_check_plain(run, r);
}

static int market_setup(BenchRun *run)
{
        Shapes *shapes = run->bench->state;
        int r;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        shapes->market_bytes = scaled(run->bench, MARKET_BYTES) & ~UINT64_C(4095);
        (void)bench_store_name(&run->bench->store, bench_space(run), "market", shapes->name);
        run->size_bytes = sizeof(Record);
        run->n_units = N_RECORDS;
        snprintf(run->what, sizeof(run->what), "the same in a mapped %s",
                 bench_plain_label(&run->bench->plain, run->c->theirs_pages));
        r = make_market(run);
        if (r == CTL_OK)
                r = make_plain_market(run);
        if (r == CTL_OK && shapes->market_bytes < 2 * HEAD_BYTES)
                r = ctl_complain(run->bench->ctl, "--size is too small for a ring of records");
        /* All of it once, so that neither side is measured by its first pages. */
        for (uint64_t i = 0; r == CTL_OK && i < n_slots(shapes); i++) {
                append(shapes, shapes->ours, i);
                append(shapes, shapes->theirs, i);
        }
        if (r != CTL_OK)
                (void)market_teardown(run);
        return r;
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static uint64_t area_bytes(const Bench *bench)
{
        uint64_t largest = scaled(bench, 400000000);

        return (largest > 2 * MIB ? largest : 2 * MIB) + 128 * 64;
}

static int suite_open(Bench *bench)
{
        Shapes *shapes = calloc(1, sizeof(*shapes));
        int r;

        if (!shapes)
                return ctl_out_of_memory(bench->ctl);
        shapes->folder = (BenchFolder)BENCH_FOLDER_NULL;
        shapes->options = bench_store_options(0);
        bench->state = shapes;
        r = bench_area_init(&shapes->source, (size_t)area_bytes(bench));
        if (r == 0)
                r = bench_area_init(&shapes->target, (size_t)area_bytes(bench));
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to put from: %s", strerror(-r));
        bench_fill(shapes->source.address, shapes->source.n_bytes, 31);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Shapes *shapes = bench->state;

        if (!shapes)
                return;
        bench_area_deinit(&shapes->source);
        bench_area_deinit(&shapes->target);
        free(shapes);
        bench->state = NULL;
}

/* The largest, and what one before it may still keep while it goes back. */
static uint64_t suite_store_bytes(const Bench *bench)
{
        return 2 * area_bytes(bench) + 64 * MIB;
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return 3 * area_bytes(bench) + 64 * MIB;
}

#define SHAPE(case_name, case_kind, work_ours, work_theirs)                                                            \
        .name = case_name, .kind = case_kind, .unit = BENCH_UNIT_MS, .is_pipelined = true, .setup = shapes_setup,      \
        .teardown = shapes_teardown, .ours = work_ours, .clean = shapes_clean, .theirs = work_theirs
#define ALL(...)                                                                                                       \
        { SHAPE("loader", KIND_LOADER, loader_ours, loader_theirs), __VA_ARGS__ },                                     \
        {                                                                                                              \
                SHAPE("tasks", KIND_TASKS, tasks_ours, tasks_theirs), __VA_ARGS__                                      \
        }
#define MARKET(page_kind)                                                                                              \
        {                                                                                                              \
                .name = "market", .unit = BENCH_UNIT_US, .has_laps = true, .pages = page_kind,                         \
                .theirs_pages = page_kind, .setup = market_setup, .teardown = market_teardown,                         \
                .prepare = market_prepare, .ours = market_ours, .clean = market_clean,                                 \
                .prepare_theirs = market_prepare_theirs, .theirs = market_theirs, .clean_theirs = market_clean         \
        }

static const BenchCase cases[] = {
        ALL(.is_trusted = false),
        ALL(.is_trusted = true, .pages = BENCH_PAGES_2M),
        MARKET(BENCH_PAGES_4K),
        MARKET(BENCH_PAGES_2M),
};

const BenchSuite bench_suite_shapes = {
        .name = "shapes",
        .summary = "what programs do all day: batches of a data loader (W01), results of tasks from 16 B to 400 MB (W12), "
                   "and a ring of market data with eight readers (W06)",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
