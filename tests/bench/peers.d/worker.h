/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client of one store that is compared: a process that is told on its standard input what to do how often, and
 * answers on its standard output how long each took. What a peer is, is five functions; the rest is the same for all.
 * A value is got when a byte of each of its pages has been read. Knows nothing of other clients, nor of rounds.
 */
#ifndef PEERS_WORKER_H
#define PEERS_WORKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WORKER_TEXT_BYTES 96
#define WORKER_KEY_BYTES 64
#define WORKER_PREFIX_BYTES 16
#define WORKER_JOBS_MAX 4096

enum { WORKER_PUT, WORKER_GET, WORKER_EXISTS, WORKER_DELETE, WORKER_OPS };

/* To a worker: values of @size_bytes under the numbers from @first on. */
struct worker_job {
        uint32_t op;
        uint32_t client; /* no two have the same */
        uint64_t size_bytes;
        uint64_t first;
        uint64_t n_times;
};

/* From it; then n_times numbers of 8 bytes, what each took in ns. */
struct worker_reply {
        int32_t is_failed; /* 1: text says why */
        uint32_t n_times;
        uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
        char text[WORKER_TEXT_BYTES];
};

/*
 * The peer. Each returns 0, or 1 and says why with worker_fail(). A NULL: it has no such operation.
 * @limit: how many may be put before they are got; 0: any.
 * @flush: after the last put or delete of a job, before its end: waits until others can see all of them.
 */
struct worker_peer {
        int (*open)(const char *address, uint32_t client);
        int (*put)(const char *key, const void *data, size_t n_bytes);
        int (*get)(const char *key, size_t n_bytes);
        int (*exists)(const char *key);
        int (*remove)(const char *key);
        uint64_t limit;
        int (*flush)(void);
};

/* Before each key; open() may change it. */
extern char worker_prefix[WORKER_PREFIX_BYTES];

int worker_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reads a byte of each page; 1 where the first is not that of a value. */
int worker_touch(const void *data, size_t n_bytes);

/* The peer that this program is of. */
extern const struct worker_peer worker_peer;

#ifdef __cplusplus
}
#endif

#endif
