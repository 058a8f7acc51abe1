/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: bench-put [--sizes BYTES,BYTES...] [--rounds N] [--bytes-max BYTES] [--fresh] [--visible] TMPFS-DIRECTORY
 *
 * What put, get and delete of objects cost a client of the foliod that $FOLIO_SOCKET names, against writing, reading
 * and removing a file of the same bytes in TMPFS-DIRECTORY: one of each in turn, so that whatever else the machine does
 * falls on both. Median and 99th percentile of each, and the ratio of the medians (below 1: Folio is faster).
 *
 * --fresh opens a new connection for each object, and times the first put of each: what a program pays that puts once.
 * --visible: each put and delete waits until every other client can see it; else that happens after the call.
 * Prints; asserts nothing. Objects and files are removed again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <folio/folio.h>

#define SIZES_MAX 32
#define ROUNDS_MAX 100000u

enum {
        PUT,
        GET,
        DELETE,
        _VERB_MAX
};

typedef struct Series {
        double *us[_VERB_MAX];
        long n_faults[_VERB_MAX];
} Series;

typedef struct Bench {
        struct folio_client *client;
        const char *directory;
        uint64_t sizes[SIZES_MAX];
        unsigned n_sizes;
        unsigned n_rounds;           /* 0: by the size */
        uint64_t bytes_max;          /* of one size, in objects and files each */
        bool is_fresh;
        uint32_t open_flags;
        char *bytes;
        char *copy;
} Bench;

static double now_us(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static long count_faults(void)
{
        struct rusage usage;

        getrusage(RUSAGE_SELF, &usage);
        return usage.ru_minflt;
}

static void fail(const char *what)
{
        fprintf(stderr, "bench-put: %s: %s\n", what, strerror(errno));
        exit(1);
}

static void check(int r, const char *what)
{
        if (r == 0)
                return;
        fprintf(stderr, "bench-put: %s: %s\n", what, folio_strerror_full());
        exit(1);
}

/* Times one call: its microseconds, and the page faults of this process. */
#define TIMED(series, verb, round, call)                                                                               \
        do {                                                                                                           \
                long faults_before = count_faults();                                                                   \
                double begun_us = now_us();                                                                            \
                call;                                                                                                  \
                (series)->us[verb][round] = now_us() - begun_us;                                                       \
                (series)->n_faults[verb] += count_faults() - faults_before;                                            \
        } while (0)

static void open_client(Bench *bench)
{
        char warm[] = "bench-put-warm-up";
        const struct folio_open_options options = {
                .struct_bytes = sizeof(options),
                .flags = bench->open_flags,
        };

        check(folio_client_open(&options, &bench->client), "open");
        /* The namespace is opened by the first call that names it: that is not what is measured. */
        (void)folio_delete(bench->client, warm, FOLIO_IF_EXISTS);
}

static void put_object(Bench *bench, unsigned round, uint64_t n_bytes)
{
        char name[64];

        snprintf(name, sizeof(name), "bench-put-%u", round);
        check(folio_put(bench->client, name, bench->bytes, n_bytes, NULL), "put");
}

/* Mapped, and every byte copied out, as a file's would be. */
static void get_object(Bench *bench, unsigned round, uint64_t n_bytes)
{
        struct folio_object *object;
        char name[64];

        snprintf(name, sizeof(name), "bench-put-%u", round);
        check(folio_get(bench->client, name, 0, 0, &object), "get");
        memcpy(bench->copy, folio_object_data(object), n_bytes);
        folio_object_release(object);
}

static void delete_object(Bench *bench, unsigned round)
{
        char name[64];

        snprintf(name, sizeof(name), "bench-put-%u", round);
        check(folio_delete(bench->client, name, 0), "delete");
}

static void path_of(const Bench *bench, unsigned round, char ret[512])
{
        snprintf(ret, 512, "%s/bench-put-%u", bench->directory, round);
}

static void write_file(const Bench *bench, unsigned round, uint64_t n_bytes)
{
        uint64_t done = 0;
        char path[512];
        int fd;

        path_of(bench, round, path);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                fail(path);
        while (done < n_bytes) {
                ssize_t n = write(fd, bench->bytes + done, n_bytes - done);

                if (n <= 0)
                        fail(path);
                done += (uint64_t)n;
        }
        close(fd);
}

static void read_file(const Bench *bench, unsigned round, uint64_t n_bytes)
{
        uint64_t done = 0;
        char path[512];
        int fd;

        path_of(bench, round, path);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                fail(path);
        while (done < n_bytes) {
                ssize_t n = read(fd, bench->copy + done, n_bytes - done);

                if (n <= 0)
                        fail(path);
                done += (uint64_t)n;
        }
        close(fd);
}

static void remove_file(const Bench *bench, unsigned round)
{
        char path[512];

        path_of(bench, round, path);
        if (unlink(path) < 0)
                fail(path);
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return x < y ? -1 : x > y;
}

static void print_verb(const char *name, Series *folio, Series *file, int verb, unsigned n)
{
        double *a = folio->us[verb], *b = file->us[verb], first = a[0];

        qsort(a, n, sizeof(*a), compare);
        qsort(b, n, sizeof(*b), compare);
        printf("  %-7s folio first %9.1f min %8.2f p50 %9.2f p99 %10.2f us, %6.1f faults   file p50 %9.2f p99 %10.2f "
               "us   ratio %.2f\n",
               name, first, a[0], a[n / 2], a[n * 99 / 100], (double)folio->n_faults[verb] / n, b[n / 2],
               b[n * 99 / 100], a[n / 2] / b[n / 2]);
}

static unsigned choose_rounds(const Bench *bench, uint64_t n_bytes)
{
        uint64_t n = bench->n_rounds ? bench->n_rounds : 2000;

        if (n_bytes > 0 && n > bench->bytes_max / n_bytes)
                n = bench->bytes_max / n_bytes;
        return n > 0 ? (unsigned)n : 1;
}

static void alloc_series(Series *series, unsigned n)
{
        memset(series, 0, sizeof(*series));
        for (int verb = 0; verb < _VERB_MAX; verb++) {
                series->us[verb] = calloc(n, sizeof(double));
                if (!series->us[verb])
                        fail("calloc");
        }
}

static void free_series(Series *series)
{
        for (int verb = 0; verb < _VERB_MAX; verb++)
                free(series->us[verb]);
}

static void run_size(Bench *bench, uint64_t n_bytes)
{
        unsigned n = choose_rounds(bench, n_bytes);
        Series folio, file;

        alloc_series(&folio, n);
        alloc_series(&file, n);
        for (unsigned i = 0; i < n; i++) {
                if (bench->is_fresh) {
                        folio_client_unref(bench->client);
                        open_client(bench);
                }
                TIMED(&folio, PUT, i, put_object(bench, i, n_bytes));
                TIMED(&file, PUT, i, write_file(bench, i, n_bytes));
        }
        for (unsigned i = 0; i < n; i++) {
                TIMED(&folio, GET, i, get_object(bench, i, n_bytes));
                TIMED(&file, GET, i, read_file(bench, i, n_bytes));
        }
        for (unsigned i = 0; i < n; i++) {
                TIMED(&folio, DELETE, i, delete_object(bench, i));
                TIMED(&file, DELETE, i, remove_file(bench, i));
        }
        printf("%llu bytes, %u rounds%s\n", (unsigned long long)n_bytes, n, bench->is_fresh ? ", fresh clients" : "");
        print_verb("put", &folio, &file, PUT, n);
        print_verb("get", &folio, &file, GET, n);
        print_verb("delete", &folio, &file, DELETE, n);
        fflush(stdout);
        free_series(&folio);
        free_series(&file);
}

static void usage(void)
{
        fprintf(stderr, "usage: bench-put [--sizes BYTES,...] [--rounds N] [--bytes-max BYTES] [--fresh] "
                        "[--visible] TMPFS-DIRECTORY\n");
        exit(2);
}

static void take_sizes(Bench *bench, const char *text)
{
        char *end;

        for (bench->n_sizes = 0; bench->n_sizes < SIZES_MAX; text = end + 1) {
                bench->sizes[bench->n_sizes++] = strtoull(text, &end, 10);
                if (end == text || (*end && *end != ','))
                        usage();
                if (!*end)
                        return;
        }
        usage();
}

static void take_arguments(Bench *bench, int argc, char **argv)
{
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--fresh") == 0)
                        bench->is_fresh = true;
                else if (strcmp(argv[i], "--visible") == 0)
                        bench->open_flags = FOLIO_OPEN_VISIBLE;
                else if (strcmp(argv[i], "--sizes") == 0 && i + 1 < argc)
                        take_sizes(bench, argv[++i]);
                else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
                        bench->n_rounds = (unsigned)strtoul(argv[++i], NULL, 10);
                else if (strcmp(argv[i], "--bytes-max") == 0 && i + 1 < argc)
                        bench->bytes_max = strtoull(argv[++i], NULL, 10);
                else if (argv[i][0] != '-' && !bench->directory)
                        bench->directory = argv[i];
                else
                        usage();
        }
        if (!bench->directory || bench->n_rounds > ROUNDS_MAX)
                usage();
}

int main(int argc, char **argv)
{
        Bench bench = { .bytes_max = UINT64_C(256) << 20 };
        uint64_t largest = 1;

        take_sizes(&bench, "64,4096,65536,1048576,8388608,67108864");
        take_arguments(&bench, argc, argv);
        for (unsigned i = 0; i < bench.n_sizes; i++)
                largest = bench.sizes[i] > largest ? bench.sizes[i] : largest;
        bench.bytes = malloc(largest);
        bench.copy = malloc(largest);
        if (!bench.bytes || !bench.copy)
                fail("malloc");
        /* Faulted in before anything is timed. */
        memset(bench.bytes, 0x5a, largest);
        memset(bench.copy, 0, largest);
        open_client(&bench);
        for (unsigned i = 0; i < bench.n_sizes; i++)
                run_size(&bench, bench.sizes[i]);
        folio_client_unref(bench.client);
        free(bench.bytes);
        free(bench.copy);
        return 0;
}
