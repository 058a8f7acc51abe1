/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon with two namespaces of the same rights: of one the writers are trusted (`trusted`), of the other they are
 * not (`default`); and what stories about rings and leases do in both.
 */
#ifndef TESTS_INTEGRATION_SPACES_H
#define TESTS_INTEGRATION_SPACES_H

#include "tests/integration/alive.h"

enum { SPACE_DEFAULT, SPACE_TRUSTED, N_SPACES };

extern const char *const spaces_names[N_SPACES];

/* With a budget of 256 MiB and no pool. */
Foliod *spaces_start(void);

/* Puts and deletes so much that a client which may have a lease there has one; also in a child. */
void spaces_warm_up(struct folio_client *client, const char *space);

/* Until so many connections are open, the others' rest cleared up. */
void spaces_await_sessions(struct folio_client *client, uint64_t n);

/* Deletes what begins with @prefix; how many there were. Also in a child. */
unsigned spaces_delete_all(struct folio_client *client, const char *prefix);
unsigned spaces_count(struct folio_client *client, const char *prefix);

/* What foliod says of a namespace. */
struct folio_namespace spaces_get(struct folio_client *client, const char *space);

/* One client behaves itself in both namespaces, while others do not. */
typedef struct Scene {
        Foliod *foliod;
        Alive before;
        struct folio_client *client; /* its own; what it puts is pipelined */
        unsigned n_worked;
} Scene;

Scene scene_begin(void);

/* Puts, reads and deletes in both. */
void scene_work(Scene *scene);

/* The others are gone: what they left is deleted, and everything is back. */
void scene_end(Scene *scene);

#endif
