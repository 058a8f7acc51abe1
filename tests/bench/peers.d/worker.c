/* SPDX-License-Identifier: Apache-2.0 */
/* See worker.h. Usage: PEER ADDRESS CLIENT-NUMBER; ends with its standard input. */
#include "worker.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define HUGE_BYTES ((size_t)2 << 20)
#define LARGE_BYTES ((size_t)64 << 20)
#define FIRST_BYTE 0x5a
#define CLOCK_TRIES 1000u

char worker_prefix[WORKER_PREFIX_BYTES] = "";

static char why[WORKER_TEXT_BYTES];
static uint64_t times_ns[WORKER_JOBS_MAX];
static uint64_t clock_ns = UINT64_MAX;
/* Values are made of this, which grows with them. */
static unsigned char *source;
static size_t source_bytes;
static volatile unsigned sink;

int worker_fail(const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        (void)vsnprintf(why, sizeof(why), format, arguments);
        va_end(arguments);
        return 1;
}

int worker_touch(const void *data, size_t n_bytes)
{
        const unsigned char *bytes = data;
        unsigned sum = 0;

        for (size_t offset = 0; offset < n_bytes; offset += PAGE_BYTES)
                sum += bytes[offset];
        sink = sum;
        return bytes[0] == FIRST_BYTE ? 0 : worker_fail("it has other bytes than were put");
}

static uint64_t now_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void learn_clock(void)
{
        for (unsigned i = 0; i < CLOCK_TRIES; i++) {
                uint64_t begun_ns = now_ns(), time_ns = now_ns() - begun_ns;

                clock_ns = time_ns < clock_ns ? time_ns : clock_ns;
        }
}

/* Memory that is there, in huge pages where the kernel gives such. */
static int prepare_source(size_t n_bytes)
{
        size_t n_wanted = (n_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);

        if (n_wanted == source_bytes)
                return 0;
        if (source)
                (void)munmap(source, source_bytes);
        source_bytes = 0;
        source = mmap(NULL, n_wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (source == MAP_FAILED) {
                source = NULL;
                return worker_fail("no memory to put from: %s", strerror(errno));
        }
        (void)madvise(source, n_wanted, MADV_HUGEPAGE);
        memset(source, FIRST_BYTE, n_wanted);
        source_bytes = n_wanted;
        return 0;
}

/* Many clients that keep a large one would be short of memory together. */
static void drop_large_source(void)
{
        if (source_bytes <= LARGE_BYTES)
                return;
        (void)munmap(source, source_bytes);
        source = NULL;
        source_bytes = 0;
}

static int do_one(const struct worker_job *job, const char *key)
{
        switch (job->op) {
        case WORKER_PUT:
                return worker_peer.put(key, source, (size_t)job->size_bytes);
        case WORKER_GET:
                return worker_peer.get(key, (size_t)job->size_bytes);
        case WORKER_EXISTS:
                return worker_peer.exists(key);
        default:
                return worker_peer.remove(key);
        }
}

static int can(const struct worker_job *job)
{
        return (job->op == WORKER_PUT && worker_peer.put) || (job->op == WORKER_GET && worker_peer.get) ||
               (job->op == WORKER_EXISTS && worker_peer.exists) || (job->op == WORKER_DELETE && worker_peer.remove);
}

static int do_job(const struct worker_job *job, struct worker_reply *reply)
{
        uint64_t n = job->n_times < WORKER_JOBS_MAX ? job->n_times : WORKER_JOBS_MAX;
        static char keys[WORKER_JOBS_MAX][WORKER_KEY_BYTES];

        if (worker_peer.limit && n > worker_peer.limit)
                n = worker_peer.limit;
        if (job->op == WORKER_DELETE)
                drop_large_source();
        if (!can(job))
                return 0;
        if (job->op == WORKER_PUT && prepare_source((size_t)job->size_bytes))
                return 1;
        for (uint64_t i = 0; i < n; i++)
                (void)snprintf(keys[i], sizeof(keys[i]), "%speer-%u-%llu", worker_prefix, job->client,
                               (unsigned long long)(job->first + i));
        reply->begin_ns = now_ns();
        for (uint64_t i = 0; i < n; i++) {
                uint64_t begun_ns = now_ns(), time_ns;

                if (do_one(job, keys[i]))
                        return 1;
                time_ns = now_ns() - begun_ns;
                times_ns[i] = time_ns > clock_ns ? time_ns - clock_ns : 1;
                reply->n_times++;
        }
        if (worker_peer.flush && (job->op == WORKER_PUT || job->op == WORKER_DELETE) && worker_peer.flush())
                return 1;
        reply->end_ns = now_ns();
        return 0;
}

static int write_all(const void *data, size_t n_bytes)
{
        const char *bytes = data;

        while (n_bytes > 0) {
                ssize_t n = write(STDOUT_FILENO, bytes, n_bytes);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return 1;
                bytes += n;
                n_bytes -= (size_t)n;
        }
        return 0;
}

static int answer(struct worker_reply *reply, int is_failed)
{
        reply->is_failed = is_failed;
        if (is_failed) {
                memcpy(reply->text, why, sizeof(reply->text));
                reply->n_times = 0;
        }
        return write_all(reply, sizeof(*reply)) || write_all(times_ns, reply->n_times * sizeof(times_ns[0]));
}

int main(int argc, char **argv)
{
        struct worker_reply reply = { 0 };
        struct worker_job job;
        int is_failed;

        if (argc != 3) {
                (void)fprintf(stderr, "usage: %s ADDRESS CLIENT\n", argv[0]);
                return 2;
        }
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        learn_clock();
        is_failed = worker_peer.open(argv[1], (uint32_t)strtoul(argv[2], NULL, 10));
        /* The first answer is that it is there. */
        if (answer(&reply, is_failed) || is_failed)
                return 1;
        while (read(STDIN_FILENO, &job, sizeof(job)) == (ssize_t)sizeof(job)) {
                memset(&reply, 0, sizeof(reply));
                is_failed = do_job(&job, &reply);
                if (answer(&reply, is_failed))
                        return 1;
        }
        return 0;
}
