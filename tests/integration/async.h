/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stories about asynchronous calls share: completions that are counted, a loop that is turned until one has
 * come, and batches of every kind. For the tests' process only, one thread.
 */
#ifndef TESTS_INTEGRATION_ASYNC_H
#define TESTS_INTEGRATION_ASYNC_H

#include "tests/integration/harness.h"

#define MIB (1024u * 1024u)

typedef struct Done {
        unsigned n;
        int error;
        struct folio_object *object;
        char sentence[512];
} Done;

extern unsigned async_n_done;        /* completions so far, of whatever call */

/* For calls: @userdata is a Done. */
void async_on_done(struct folio_client *client, int error, struct folio_object *object, void *userdata);

/* One turn of the loop, when the client's descriptor is ready. */
void async_turn(struct folio_client *client);

/* Turns the loop until the one call under way has completed, and lets @done be used anew. What it completed with. */
int async_finish(struct folio_client *client, Done *done);

struct folio_open_options async_options(const Foliod *foliod);

/* --- batches --------------------------------------------------------------------------------------------------------------- */

enum { ASYNC_N_ITEMS = 1500, ASYNC_N_LARGE = 70 };

typedef struct AsyncItems {
        char names[ASYNC_N_ITEMS][24];
        char copies[ASYNC_N_ITEMS][24];
        struct folio_put_item puts[ASYNC_N_ITEMS];
        struct folio_get_item gets[ASYNC_N_ITEMS];
        struct folio_stat_item stats[ASYNC_N_ITEMS];
        struct folio_stat facts[ASYNC_N_ITEMS];
        struct folio_read_item reads[ASYNC_N_ITEMS];
        struct folio_delete_item deletes[ASYNC_N_ITEMS];
} AsyncItems;

/* The names are in `default` and `other`, alternating; some of the objects have regions of their own. To be freed. */
AsyncItems *async_items_new(void);

#endif
