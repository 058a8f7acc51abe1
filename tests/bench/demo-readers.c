/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: demo-readers N-READERS NAME FILE
 *
 * N processes get the same object, each by its own connection, compare every byte of their mapping with FILE, and
 * then, while all of them hold it, look up in /proc/self/smaps what the mapping costs each: resident, its share, what
 * is private (a copy of its own), what is mapped by 2 MiB entries. Each also reads 64 random pieces through the copy path and compares
 * them. Exit status 0 only if every byte was equal everywhere and no page was private.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <folio/folio.h>

#define BLOCK_BYTES ((size_t)1 << 20)
#define N_PIECES 64
#define N_READERS_MAX 64

typedef struct Cost {
        uint64_t rss_kib;
        uint64_t pss_kib;
        uint64_t private_kib;
        uint64_t pmd_kib;
} Cost;

typedef struct Report {
        Cost cost;
        pid_t pid;
        bool is_equal;
        bool is_copy_equal;
        char why[200];               /* of a failure */
} Report;

/* Two gates that all readers wait at. The parent opens one by closing its end; so does its death. */
typedef struct Gates {
        int pipes[2][2];
} Gates;

static void gate_wait(const Gates *gates, int gate)
{
        char byte;

        /* Nobody writes: it returns at the end of the pipe. */
        (void)!read(gates->pipes[gate][0], &byte, 1);
}

static void gate_open(Gates *gates, int gate)
{
        close(gates->pipes[gate][1]);
}

/* Sums what smaps says of every mapping that overlaps the @n_bytes at @data. */
static bool read_cost(const void *data, uint64_t n_bytes, Cost *ret)
{
        FILE *smaps = fopen("/proc/self/smaps", "re");
        uintptr_t begin = (uintptr_t)data, end = begin + (uintptr_t)n_bytes, from = 0, to = 0;
        bool is_ours = false;
        char line[4096];
        uint64_t kib;

        *ret = (Cost){ 0 };
        if (!smaps)
                return false;
        while (fgets(line, sizeof(line), smaps)) {
                if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
                        is_ours = from < end && to > begin;
                else if (!is_ours)
                        continue;
                else if (sscanf(line, "Rss: %" SCNu64, &kib) == 1)
                        ret->rss_kib += kib;
                else if (sscanf(line, "Pss: %" SCNu64, &kib) == 1)
                        ret->pss_kib += kib;
                else if (sscanf(line, "Private_Clean: %" SCNu64, &kib) == 1 || sscanf(line, "Private_Dirty: %" SCNu64, &kib) == 1)
                        ret->private_kib += kib;
                else if (sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1 || sscanf(line, "FilePmdMapped: %" SCNu64, &kib) == 1)
                        ret->pmd_kib += kib;
        }
        fclose(smaps);
        return true;
}

static bool is_equal_mapping(const uint8_t *data, uint64_t n_bytes, int file, uint8_t *buffer)
{
        for (uint64_t at = 0; at < n_bytes;) {
                size_t n = n_bytes - at < BLOCK_BYTES ? (size_t)(n_bytes - at) : BLOCK_BYTES;
                ssize_t got = pread(file, buffer, n, (off_t)at);

                if (got <= 0 || memcmp(data + at, buffer, (size_t)got) != 0)
                        return false;
                at += (uint64_t)got;
        }
        return true;
}

/* Pieces at random places, of random lengths, through folio_object_read(). */
static bool is_equal_copy(struct folio_object *object, uint64_t n_bytes, int file, uint8_t *buffer, uint8_t *copy)
{
        uint64_t seed = (uint64_t)getpid();

        for (int i = 0; i < N_PIECES && n_bytes > 0; i++) {
                uint64_t at, n;

                seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
                at = (seed >> 11) % n_bytes;
                n = (seed >> 33) % BLOCK_BYTES + 1;
                if (n > n_bytes - at)
                        n = n_bytes - at;
                if (pread(file, buffer, (size_t)n, (off_t)at) != (ssize_t)n)
                        return false;
                if (folio_object_read(object, at, copy, (size_t)n) < 0 || memcmp(buffer, copy, (size_t)n) != 0)
                        return false;
        }
        return true;
}

/* A reader. Reports once when it holds the object and has compared it, and once more when all do. */
static int run_reader(const char *name, const char *path, const Gates *gates, int report_to)
{
        Report report = { .pid = getpid() };
        struct folio_client *client = NULL;
        struct folio_object *object = NULL;
        uint8_t *buffer = malloc(BLOCK_BYTES), *copy = malloc(BLOCK_BYTES);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        struct stat status;

        if (!buffer || !copy || file < 0 || fstat(file, &status) < 0)
                snprintf(report.why, sizeof(report.why), "cannot read %s", path);
        else if (folio_client_open(NULL, &client) < 0 || folio_get(client, name, 0, 0, &object) < 0)
                snprintf(report.why, sizeof(report.why), "%s", folio_strerror_full());
        else if (folio_object_size(object) != (uint64_t)status.st_size)
                snprintf(report.why, sizeof(report.why), "the object has %" PRIu64 " bytes", folio_object_size(object));
        else {
                report.is_equal = is_equal_mapping(folio_object_data(object), folio_object_size(object), file, buffer);
                report.is_copy_equal = is_equal_copy(object, folio_object_size(object), file, buffer, copy);
        }
        if (write(report_to, &report, sizeof(report)) != sizeof(report))
                return 1;
        gate_wait(gates, 0);
        if (object && !read_cost(folio_object_data(object), folio_object_size(object), &report.cost))
                snprintf(report.why, sizeof(report.why), "cannot read smaps");
        if (write(report_to, &report, sizeof(report)) != sizeof(report))
                return 1;
        /* Nobody lets go before all have looked: shares depend on who else maps the pages. */
        gate_wait(gates, 1);
        return 0;
}

static void print_report(const Report *report)
{
        printf("  %8d   %-5s   %-5s   %10.1f   %10.1f   %10.1f   %10.1f\n", (int)report->pid, report->is_equal ? "yes" : "NO",
               report->is_copy_equal ? "yes" : "NO", (double)report->cost.rss_kib / 1024, (double)report->cost.pss_kib / 1024,
               (double)report->cost.private_kib / 1024, (double)report->cost.pmd_kib / 1024);
        if (report->why[0])
                printf("            %s\n", report->why);
}

/* Returns whether everything was equal and nothing private. */
static bool collect(int n_readers, Gates *gates, int from)
{
        Cost sum = { 0 };
        Report report;
        bool is_good = true;

        for (int i = 0; i < n_readers; i++)
                is_good = read(from, &report, sizeof(report)) == sizeof(report) && is_good;
        gate_open(gates, 0);
        printf("  %8s   %-5s   %-5s   %10s   %10s   %10s   %10s\n", "process", "equal", "read", "mapped MiB", "share MiB",
               "copied MiB", "2 MiB MiB");
        for (int i = 0; i < n_readers; i++) {
                if (read(from, &report, sizeof(report)) != sizeof(report)) {
                        is_good = false;
                        break;
                }
                print_report(&report);
                sum.rss_kib += report.cost.rss_kib;
                sum.pss_kib += report.cost.pss_kib;
                sum.private_kib += report.cost.private_kib;
                sum.pmd_kib += report.cost.pmd_kib;
                is_good = is_good && report.is_equal && report.is_copy_equal && !report.why[0] && report.cost.private_kib == 0;
        }
        gate_open(gates, 1);
        printf("  %8s   %-5s   %-5s   %10.1f   %10.1f   %10.1f   %10.1f\n", "together", is_good ? "yes" : "NO", "",
               (double)sum.rss_kib / 1024, (double)sum.pss_kib / 1024, (double)sum.private_kib / 1024, (double)sum.pmd_kib / 1024);
        return is_good;
}

int main(int argc, char **argv)
{
        int n_readers = argc == 4 ? atoi(argv[1]) : 0, reports[2], status;
        Gates gates;
        bool is_good;

        if (n_readers < 1 || n_readers > N_READERS_MAX) {
                fprintf(stderr, "usage: demo-readers N-READERS NAME FILE\n");
                return 2;
        }
        if (pipe(gates.pipes[0]) < 0 || pipe(gates.pipes[1]) < 0 || pipe(reports) < 0) {
                perror("demo-readers: pipe");
                return 1;
        }
        fflush(stdout);
        for (int i = 0; i < n_readers; i++) {
                pid_t pid = fork();

                if (pid < 0) {
                        perror("demo-readers: fork");
                        return 1;
                }
                if (pid == 0) {
                        gate_open(&gates, 0);
                        gate_open(&gates, 1);
                        close(reports[0]);
                        _exit(run_reader(argv[2], argv[3], &gates, reports[1]));
                }
        }
        close(reports[1]);
        is_good = collect(n_readers, &gates, reports[0]);
        close(reports[0]);
        while (wait(&status) > 0)
                is_good = is_good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        return is_good ? 0 : 1;
}
