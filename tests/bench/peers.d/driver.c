/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folio's ways and its peers in alternation. Each is a program (see worker.h), run once for each client. For each size
 * and number of clients there are rounds; in a round each in turn puts values, gets them, asks for them and deletes
 * them, and the next round begins with another, so that what the machine does besides falls on all alike. A ratio is
 * made of the times of one round; shown is the median, as that of all single calls, and their 99th percentile. Who fails
 * at a size is left out of it, and that is said.
 *
 * usage: driver [--json] [--rounds N] [--clients N] [--max BYTES] [--seconds N] [--ours N] NAME PROGRAM ADDRESS...
 * The first N (1, if not given) are what others are compared with.
 */
#include "worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PEERS_MAX 16
#define OURS_MAX 4
#define CLIENTS_MAX 2
#define ROUNDS_MAX 100
#define ANSWER_MS 60000
#define END_MS 3000
/* Values together, and what peers that copy need besides. */
#define MEMORY_FACTOR 12
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static const struct {
        uint64_t size_bytes;
        uint64_t n_times; /* of each client in a round */
        const char *label;
} sizes[] = {
        { 64, 1000, "64 B" }, { 4 * KIB, 1000, "4 KiB" }, { 64 * KIB, 200, "64 KiB" },
        { MIB, 32, "1 MiB" }, { 64 * MIB, 2, "64 MiB" },  { 1024 * MIB, 1, "1 GiB" },
};
static const char *const op_names[WORKER_OPS] = { "put", "get", "exists", "delete" };

struct client {
        pid_t pid;
        int to_fd, from_fd;
};

/* Of one operation of one size and number of clients. */
struct series {
        double means_ns[ROUNDS_MAX], ratios[OURS_MAX][ROUNDS_MAX];
        unsigned n_rounds;
        uint64_t *times_ns;
        size_t n_times, n_room;
};

struct peer {
        const char *name, *program, *address;
        struct client clients[CLIENTS_MAX];
        int is_gone; /* does not answer any more */
        int is_out; /* of this size */
        struct series series[WORKER_OPS];
};

static struct peer peers[PEERS_MAX];
static unsigned n_peers, n_ours = 1, n_rounds = 5, n_clients_max = CLIENTS_MAX;
static uint64_t max_bytes = UINT64_MAX, end_ns = UINT64_MAX, n_put;
static int is_json;

static uint64_t now_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

/* 0, or 1: it came to an end, or does not answer. */
static int read_all(int fd, void *data, size_t n_bytes)
{
        char *bytes = data;

        while (n_bytes > 0) {
                struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
                ssize_t n = poll(&poll_fd, 1, ANSWER_MS) == 1 ? read(fd, bytes, n_bytes) : 0;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return 1;
                bytes += n;
                n_bytes -= (size_t)n;
        }
        return 0;
}

/* It ends with its input, tidily; what does not is ended. */
static void end_client(struct client *client)
{
        pid_t ended = 0;

        if (client->pid <= 0)
                return;
        (void)close(client->to_fd);
        for (int i = 0; i < END_MS && ended == 0; i++) {
                ended = waitpid(client->pid, NULL, WNOHANG);
                if (ended == 0)
                        (void)poll(NULL, 0, 1);
        }
        if (ended == 0) {
                (void)kill(client->pid, SIGKILL);
                (void)waitpid(client->pid, NULL, 0);
        }
        (void)close(client->from_fd);
        client->pid = 0;
}

static void end_peer(struct peer *peer, const char *why)
{
        (void)fprintf(stderr, "peers: %s is left out: %s\n", peer->name, why);
        peer->is_gone = 1;
        for (unsigned i = 0; i < CLIENTS_MAX; i++)
                end_client(&peer->clients[i]);
}

/* What is said on standard output by a library must not come between the answers: it goes to standard error. */
static int begin_client(const struct peer *peer, unsigned number, struct client *client)
{
        int to[2], from[2];
        char text[16];

        (void)snprintf(text, sizeof(text), "%u", number);
        if (pipe(to) < 0 || pipe(from) < 0)
                return 1;
        client->pid = fork();
        if (client->pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)dup2(to[0], STDIN_FILENO);
                (void)dup2(from[1], STDOUT_FILENO);
                for (int fd = 3; fd < 256; fd++)
                        (void)close(fd);
                (void)execl(peer->program, peer->program, peer->address, text, (char *)NULL);
                _exit(127);
        }
        (void)close(to[0]);
        (void)close(from[1]);
        client->to_fd = to[1];
        client->from_fd = from[0];
        return client->pid < 0;
}

static void begin_peer(struct peer *peer)
{
        for (unsigned i = 0; i < n_clients_max; i++) {
                struct worker_reply reply;

                if (begin_client(peer, i, &peer->clients[i]) ||
                    read_all(peer->clients[i].from_fd, &reply, sizeof(reply)))
                        end_peer(peer, "it cannot be begun");
                else if (reply.is_failed)
                        end_peer(peer, reply.text);
                if (peer->is_gone)
                        return;
        }
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static int compare_times(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

static int compare_doubles(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static double quantile_us(struct series *series, double share)
{
        if (series->n_times == 0)
                return 0;
        qsort(series->times_ns, series->n_times, sizeof(*series->times_ns), compare_times);
        return (double)series->times_ns[(size_t)(share * (double)(series->n_times - 1) + 0.5)] / 1e3;
}

static double median(const double *values, unsigned n)
{
        double sorted[ROUNDS_MAX];

        memcpy(sorted, values, n * sizeof(*values));
        qsort(sorted, n, sizeof(*sorted), compare_doubles);
        return n == 0 ? 0 : (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static int take_times(struct series *series, int fd, size_t n)
{
        if (series->n_times + n > series->n_room) {
                size_t n_room = 2 * (series->n_times + n);
                uint64_t *times_ns = realloc(series->times_ns, n_room * sizeof(*times_ns));

                if (!times_ns)
                        return 1;
                series->times_ns = times_ns;
                series->n_room = n_room;
        }
        if (read_all(fd, series->times_ns + series->n_times, n * sizeof(*series->times_ns)))
                return 1;
        series->n_times += n;
        return 0;
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

/* All clients at once; the mean is of the time from the first beginning to the last end. */
static void run_op(struct peer *peer, uint32_t op, unsigned size, unsigned n_clients)
{
        struct series *series = &peer->series[op];
        uint64_t begin_ns = UINT64_MAX, last_ns = 0, n_done = 0;
        char why[WORKER_TEXT_BYTES] = "";

        for (unsigned i = 0; i < n_clients; i++) {
                struct worker_job job = { op, i, sizes[size].size_bytes, n_put, sizes[size].n_times };

                if (write(peer->clients[i].to_fd, &job, sizeof(job)) != (ssize_t)sizeof(job)) {
                        end_peer(peer, "it has ended");
                        return;
                }
        }
        for (unsigned i = 0; i < n_clients; i++) {
                struct worker_reply reply;

                if (read_all(peer->clients[i].from_fd, &reply, sizeof(reply)) ||
                    take_times(series, peer->clients[i].from_fd, reply.n_times)) {
                        end_peer(peer, "it does not answer");
                        return;
                }
                if (reply.is_failed)
                        memcpy(why, reply.text, sizeof(why));
                begin_ns = reply.begin_ns < begin_ns ? reply.begin_ns : begin_ns;
                last_ns = reply.end_ns > last_ns ? reply.end_ns : last_ns;
                n_done += reply.n_times;
        }
        if (*why && op != WORKER_DELETE && !peer->is_out) {
                (void)fprintf(stderr, "peers: %s has no %s of %s, %u client%s: %s\n", peer->name, op_names[op],
                              sizes[size].label, n_clients, n_clients > 1 ? "s" : "", why);
                peer->is_out = 1;
        }
        series->means_ns[series->n_rounds] = n_done ? (double)(last_ns - begin_ns) / (double)n_done : 0;
}

/* What was put is deleted also where something failed in between. */
static void run_turn(struct peer *peer, unsigned size, unsigned n_clients)
{
        for (uint32_t op = 0; op < WORKER_OPS && !peer->is_gone; op++)
                if (!peer->is_out || op == WORKER_DELETE)
                        run_op(peer, op, size, n_clients);
}

/* What the mean of this round is to that of each of ours; 0 where one of the two has none. */
static void end_round(void)
{
        for (unsigned i = 0; i < n_peers; i++)
                for (uint32_t op = 0; op < WORKER_OPS; op++) {
                        struct series *series = &peers[i].series[op];
                        unsigned round = series->n_rounds;

                        for (unsigned k = 0; k < n_ours; k++) {
                                double ours_ns = peers[k].series[op].means_ns[round];

                                series->ratios[k][round] = ours_ns > 0 ? series->means_ns[round] / ours_ns : 0;
                        }
                }
        for (unsigned i = 0; i < n_peers; i++)
                for (uint32_t op = 0; op < WORKER_OPS; op++)
                        peers[i].series[op].n_rounds++;
}

static void reset(void)
{
        for (unsigned i = 0; i < n_peers; i++) {
                peers[i].is_out = peers[i].is_gone;
                for (uint32_t op = 0; op < WORKER_OPS; op++) {
                        peers[i].series[op].n_rounds = 0;
                        peers[i].series[op].n_times = 0;
                }
        }
}

/* False: there is no time left. The first round warms up, and does not count. */
static int run_rounds(unsigned size, unsigned n_clients)
{
        reset();
        for (unsigned round = 0; round <= n_rounds; round++) {
                for (unsigned i = 0; i < n_peers; i++) {
                        struct peer *peer = &peers[(i + round) % n_peers];

                        if (now_ns() > end_ns)
                                return 0;
                        if (!peer->is_out && !peer->is_gone)
                                run_turn(peer, size, n_clients);
                }
                n_put += sizes[size].n_times;
                if (round > 0) {
                        end_round();
                        continue;
                }
                for (unsigned i = 0; i < n_peers; i++)
                        for (uint32_t op = 0; op < WORKER_OPS; op++)
                                peers[i].series[op].n_times = 0;
        }
        return 1;
}

/* --- what is shown ------------------------------------------------------------------------------------------------ */

static int has_figures(const struct peer *peer, uint32_t op)
{
        return !peer->is_out && !peer->is_gone && peer->series[op].n_times > 0;
}

static void print_json(unsigned size, unsigned n_clients)
{
        for (uint32_t op = 0; op < WORKER_OPS; op++)
                for (unsigned i = 0; i < n_peers; i++) {
                        struct series *series = &peers[i].series[op];

                        if (!has_figures(&peers[i], op))
                                continue;
                        printf("{\"op\":\"%s\",\"size\":%llu,\"clients\":%u,\"peer\":\"%s\",\"mean\":%.4g,\"p50\":%.4g,"
                               "\"p99\":%.4g,\"unit\":\"us\",\"rounds\":%u,\"ratios\":{",
                               op_names[op], (unsigned long long)sizes[size].size_bytes, n_clients, peers[i].name,
                               median(series->means_ns, series->n_rounds) / 1e3, quantile_us(series, 0.5),
                               quantile_us(series, 0.99), series->n_rounds);
                        for (unsigned k = 0, n = 0; k < n_ours; k++)
                                if (k != i && has_figures(&peers[k], op))
                                        printf("%s\"%s\":%.4g", n++ ? "," : "", peers[k].name,
                                               median(series->ratios[k], series->n_rounds));
                        printf("}}\n");
                }
        (void)fflush(stdout);
}

static void print_heading(void)
{
        printf("%-7s %-7s %7s  %-17s %10s %10s ", "OP", "SIZE", "CLIENTS", "STORE", "P50 US", "P99 US");
        for (unsigned k = 0; k < n_ours; k++)
                printf(" %17s", peers[k].name);
        printf("\n");
}

/* Three digits, or all of them. */
static void print_us(double us)
{
        printf(us < 1000 ? " %10.3g" : " %10.0f", us);
}

static void print_row(unsigned size, unsigned n_clients, uint32_t op, unsigned peer)
{
        struct series *series = &peers[peer].series[op];

        printf("%-7s %-7s %7u  %-17s", op_names[op], sizes[size].label, n_clients, peers[peer].name);
        if (!has_figures(&peers[peer], op)) {
                printf(" %10s %10s\n", "-", "-");
                return;
        }
        print_us(quantile_us(series, 0.5));
        print_us(quantile_us(series, 0.99));
        printf(" ");
        for (unsigned k = 0; k < n_ours; k++) {
                char ratio[24] = "-";

                if (k != peer && has_figures(&peers[k], op))
                        (void)snprintf(ratio, sizeof(ratio), "%.2fx", median(series->ratios[k], series->n_rounds));
                printf(" %17s", ratio);
        }
        printf("\n");
}

static void print_rows(unsigned size, unsigned n_clients)
{
        for (uint32_t op = 0; op < WORKER_OPS; op++)
                for (unsigned i = 0; i < n_peers; i++)
                        print_row(size, n_clients, op, i);
        (void)fflush(stdout);
}

static uint64_t available_bytes(void)
{
        FILE *file = fopen("/proc/meminfo", "re");
        unsigned long long kib = 0;
        char line[128];

        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
                        break;
        if (file)
                (void)fclose(file);
        return file ? (uint64_t)kib << 10 : UINT64_MAX;
}

static void run_all(void)
{
        if (!is_json)
                print_heading();
        for (unsigned size = 0; size < sizeof(sizes) / sizeof(sizes[0]) && sizes[size].size_bytes <= max_bytes; size++)
                for (unsigned n_clients = 1; n_clients <= n_clients_max; n_clients++) {
                        uint64_t n_bytes = sizes[size].size_bytes * n_clients;

                        if (n_bytes > 64 * MIB && available_bytes() / MEMORY_FACTOR < n_bytes) {
                                (void)fprintf(stderr, "peers: %s, %u client%s: left out, memory is short\n",
                                              sizes[size].label, n_clients, n_clients > 1 ? "s" : "");
                                continue;
                        }
                        if (!run_rounds(size, n_clients)) {
                                (void)fprintf(stderr, "peers: no time left for %s, %u client%s, and what follows\n",
                                              sizes[size].label, n_clients, n_clients > 1 ? "s" : "");
                                return;
                        }
                        if (is_json)
                                print_json(size, n_clients);
                        else
                                print_rows(size, n_clients);
                }
}

/* Whether the arguments are of use. */
static int take_arguments(int argc, char **argv)
{
        int i = 1;

        for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
                if (strcmp(argv[i], "--json") == 0) {
                        is_json = 1;
                        continue;
                }
                if (i + 1 >= argc)
                        return 0;
                if (strcmp(argv[i], "--rounds") == 0)
                        n_rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
                else if (strcmp(argv[i], "--clients") == 0)
                        n_clients_max = (unsigned)strtoul(argv[i + 1], NULL, 10);
                else if (strcmp(argv[i], "--ours") == 0)
                        n_ours = (unsigned)strtoul(argv[i + 1], NULL, 10);
                else if (strcmp(argv[i], "--max") == 0)
                        max_bytes = strtoull(argv[i + 1], NULL, 10);
                else if (strcmp(argv[i], "--seconds") == 0)
                        end_ns = now_ns() + strtoull(argv[i + 1], NULL, 10) * UINT64_C(1000000000);
                else
                        return 0;
                i++;
        }
        for (; i + 2 < argc && n_peers < PEERS_MAX; i += 3)
                peers[n_peers++] = (struct peer){ .name = argv[i], .program = argv[i + 1], .address = argv[i + 2] };
        return i == argc && n_ours >= 1 && n_ours <= OURS_MAX && n_peers >= n_ours && n_rounds >= 1 &&
               n_rounds <= ROUNDS_MAX && n_clients_max >= 1 && n_clients_max <= CLIENTS_MAX;
}

int main(int argc, char **argv)
{
        unsigned n_there = 0;

        if (!take_arguments(argc, argv)) {
                (void)fprintf(stderr,
                              "usage: %s [--json] [--rounds N] [--clients 1|2] [--max BYTES] [--seconds N] "
                              "[--ours N] NAME PROGRAM ADDRESS...\n",
                              argv[0]);
                return 2;
        }
        (void)signal(SIGPIPE, SIG_IGN);
        for (unsigned i = 0; i < n_peers; i++)
                begin_peer(&peers[i]);
        for (unsigned k = 0; k < n_ours; k++)
                n_there += !peers[k].is_gone;
        if (n_there > 0)
                run_all();
        for (unsigned i = 0; i < n_peers; i++) {
                for (unsigned k = 0; k < CLIENTS_MAX; k++)
                        end_client(&peers[i].clients[k]);
                for (uint32_t op = 0; op < WORKER_OPS; op++)
                        free(peers[i].series[op].times_ns);
        }
        return n_there > 0 ? 0 : 1;
}
