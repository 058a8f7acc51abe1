/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folio's side: three namespaces of this process, one without and one with huge pages whose writers are not trusted, and
 * one whose writers are; two connections; and objects that end with the connection that made them. Where this user may
 * add no namespace, `default` is used for the first two, and its pages are what they are; there is no third then.
 * What is made here is removed again: at the latest by bench_store_deinit(), and the objects, should the program be
 * killed, by the daemon.
 */
#ifndef CTL_BENCH_STORE_H
#define CTL_BENCH_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/bench-plain.h"
#include "client/ctl/ctl.h"

#define BENCH_NAME_BYTES (FOLIO_NAME_BYTES_MAX + 1)
#define BENCH_NAMESPACE_BYTES (FOLIO_NAMESPACE_BYTES_MAX + 1)

/* Which of the namespaces; the first two are called as their pages. */
typedef enum BenchSpace {
        BENCH_SPACE_4K = BENCH_PAGES_4K,
        BENCH_SPACE_2M = BENCH_PAGES_2M,
        BENCH_SPACE_TRUSTED,
        _BENCH_SPACE_MAX
} BenchSpace;

typedef struct BenchStore {
        Ctl *ctl; /* connected; what it puts can be seen by all when the call returns */
        struct folio_client *pipelined; /* a connection that waits for nothing it need not; NULL: not yet */
        char namespaces[_BENCH_SPACE_MAX][BENCH_NAMESPACE_BYTES]; /* "": not added yet */
        bool is_own; /* these namespaces are ours */
        double huge_share[_BENCH_SPACE_MAX]; /* of a large object with a region of its own in it, as found */
} BenchStore;

/*
 * @backing: enum folio_backing, of the namespaces; 0: the daemon's choice. @n_objects: that there is to be room for in
 * the one with small pages and the trusted one; some thousands there are in any case. CTL_OK, or the status to end
 * with: told.
 */
int bench_store_init(BenchStore *store, Ctl *ctl, uint32_t backing, uint64_t n_objects);
void bench_store_deinit(BenchStore *store);

/* Is there such a one? Always yes where the namespaces are ours: then what was found is shown. */
bool bench_store_has(const BenchStore *store, BenchSpace space);

/* Another connection to it; 0, or an error of the library. @flags: FOLIO_OPEN_*. */
int bench_store_connect(const BenchStore *store, uint32_t flags, struct folio_client **ret);

/* "bench-2m-4711:key"; in `default` the key has the pid. Returns @buffer. */
const char *bench_store_name(const BenchStore *store, BenchSpace space, const char *key, char buffer[BENCH_NAME_BYTES]);

/* Options of an object that is gone with our connection, should we be killed. */
struct folio_create_options bench_store_options(uint32_t flags);

/* A sealed object of @n_bytes with @data, @content and a handle; the huge pages it is to get it has. Told. */
int bench_store_make(BenchStore *store, BenchSpace space, const char *key, BenchContent content, const void *data,
                     uint64_t n_bytes, struct folio_object **ret);

/* Takes the object and, where that is not NULL, the handle away, and waits until its memory is free again. */
void bench_store_drop(BenchStore *store, BenchSpace space, const char *key, struct folio_object *object);
void bench_store_settle(BenchStore *store);

/* The share of its bytes that has huge pages, from 0 to 1. */
double bench_store_huge_share(struct folio_object *object);

/* One of the daemon's facts. False: it has none of that name, or does not answer. */
bool bench_store_fact(const BenchStore *store, const char *name, struct folio_status *ret);
uint64_t bench_store_number(const BenchStore *store, const char *name, uint64_t otherwise);

#endif
