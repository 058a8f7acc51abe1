/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole of a large object, read once by a new process: it connects, reads into memory that it has prepared, and is
 * gone. Against the best of the plain ways, found out first by trying each: open and pread; open, mmap and copy; the
 * same with the mapping populated. The clock begins before the connection, or the open; what was prepared is not in it.
 */
#include "client/ctl/bench-read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ctl/bench-child.h"
#include "client/ctl/bench-stop.h"

#define KEY "read"
#define TRIES 2
#define READ_BYTES_MAX ((size_t)1 << 30)

static const char *const way_names[_BENCH_WAY_MAX] = {
        [BENCH_WAY_PREAD] = "pread",
        [BENCH_WAY_MMAP] = "mmap",
        [BENCH_WAY_POPULATE] = "mmap populated",
};

/* What a child is given. */
typedef struct Job {
        BenchRun *run;
        const BenchCopy *copy; /* of the reference; else the loop that copies out of a mapping */
        int (*read)(const struct Job *job, unsigned char *target);
} Job;

/* --- in the child ------------------------------------------------------------------------------------------------- */

static int read_store(const Job *job, unsigned char *target)
{
        const BenchRun *run = job->run;
        const BenchStore *store = &run->bench->store;
        struct folio_client *client;
        char name[BENCH_NAME_BYTES];
        int r = bench_store_connect(store, 0, &client);

        if (r < 0)
                return r;
        r = folio_read(client, bench_store_name(store, bench_space(run), KEY, name), 0, target,
                       (size_t)run->size_bytes);
        folio_client_unref(client);
        return r;
}

static int read_file(int fd, unsigned char *target, uint64_t n_bytes)
{
        for (uint64_t offset = 0; offset < n_bytes;) {
                size_t n_left = (size_t)(n_bytes - offset);
                ssize_t n =
                        pread(fd, target + offset, n_left < READ_BYTES_MAX ? n_left : READ_BYTES_MAX, (off_t)offset);

                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                offset += (uint64_t)n;
        }
        return 0;
}

static int read_mapping(int fd, unsigned char *target, uint64_t n_bytes, int flags)
{
        void *address = mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_SHARED | flags, fd, 0);

        if (address == MAP_FAILED)
                return -errno;
        memcpy(target, address, (size_t)n_bytes);
        (void)munmap(address, (size_t)n_bytes);
        return 0;
}

static int read_plain(const Job *job, unsigned char *target)
{
        const BenchRead *state = job->run->bench->state;
        char path[48];
        int fd, r = 0;

        /* It has no name of its own: by this one it is opened as by any. */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", state->fd);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        switch (state->way) {
        case BENCH_WAY_PREAD:
                r = read_file(fd, target, job->run->size_bytes);
                break;
        case BENCH_WAY_MMAP:
                r = read_mapping(fd, target, job->run->size_bytes, 0);
                break;
        case BENCH_WAY_POPULATE:
                r = read_mapping(fd, target, job->run->size_bytes, MAP_POPULATE);
                break;
        case _BENCH_WAY_MAX:
                r = -EINVAL;
                break;
        }
        (void)close(fd);
        return r;
}

static int read_memory(const Job *job, unsigned char *target)
{
        const BenchRead *state = job->run->bench->state;

        job->copy->run(target, state->source.address, (size_t)job->run->size_bytes);
        return 0;
}

static int work(void *argument, BenchSample *sample)
{
        const Job *job = argument;
        const BenchRead *state = job->run->bench->state;
        BenchArea target = BENCH_AREA_NULL;
        size_t n_bytes = (size_t)job->run->size_bytes;
        BenchCounter counter;
        BenchTracer tracer;
        int r = bench_area_init(&target, n_bytes);

        if (r < 0)
                return r;
        bench_counter_init(&counter);
        if (job->run->is_counting)
                bench_tracer_begin(&tracer);
        bench_counter_begin(&counter, sample);
        r = job->read(job, target.address);
        bench_counter_end(&counter, sample);
        sample->n_calls = job->run->is_counting ? bench_tracer_end(&tracer) : BENCH_UNKNOWN;
        bench_counter_deinit(&counter);
        /* A look here and there: that it was read at all. */
        for (size_t offset = 0; r == 0 && offset < n_bytes; offset += BENCH_HUGE_BYTES / 2)
                if (memcmp(target.address + offset, state->source.address + offset, BENCH_PAGE_BYTES) != 0)
                        r = -EILSEQ;
        bench_area_deinit(&target);
        return r;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static int run_job(Job *job)
{
        BenchRun *run = job->run;
        int r = bench_child_run(work, job, run->sample);

        return r == 0 ? CTL_OK
                      : ctl_complain(run->bench->ctl, "a new process cannot read %s for the measurement: %s",
                                     job->read == read_store ? "the object" : "a plain file", folio_strerror(r));
}

int bench_first_ours(BenchRun *run)
{
        return run_job(&(Job){ .run = run, .read = read_store });
}

int bench_first_theirs(BenchRun *run)
{
        return run_job(&(Job){ .run = run, .read = read_plain });
}

int bench_first_copy(BenchRun *run, const BenchCopy *copy)
{
        return run_job(&(Job){ .run = run, .copy = copy, .read = read_memory });
}

int bench_first_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        BenchRead *state = bench->state;
        uint64_t best_ns[_BENCH_WAY_MAX];
        BenchWay best = BENCH_WAY_PREAD;
        int r = bench_read_make(run, BENCH_CONTENT_WRITTEN);

        run->n_units = run->size_bytes;
        run->n_copied_bytes = run->size_bytes;
        for (int way = 0; r == CTL_OK && way < _BENCH_WAY_MAX; way++) {
                best_ns[way] = UINT64_MAX;
                for (unsigned i = 0; r == CTL_OK && i < TRIES && !bench_stop_is_wanted(); i++) {
                        BenchSample sample = { 0 };

                        state->way = (BenchWay)way;
                        run->sample = &sample;
                        r = bench_first_theirs(run);
                        if (sample.time_ns < best_ns[way])
                                best_ns[way] = sample.time_ns;
                }
                if (best_ns[way] < best_ns[best])
                        best = (BenchWay)way;
        }
        if (r != CTL_OK)
                return r;
        state->way = best;
        snprintf(run->what, sizeof(run->what), "%s of a %s, the best of %s %.0f ms, %s %.0f ms, %s %.0f ms",
                 way_names[best], bench_plain_label(&bench->plain, run->c->theirs_pages), way_names[BENCH_WAY_PREAD],
                 (double)best_ns[BENCH_WAY_PREAD] / 1e6, way_names[BENCH_WAY_MMAP],
                 (double)best_ns[BENCH_WAY_MMAP] / 1e6, way_names[BENCH_WAY_POPULATE],
                 (double)best_ns[BENCH_WAY_POPULATE] / 1e6);
        return CTL_OK;
}
