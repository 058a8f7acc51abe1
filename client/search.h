/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding a foliod: at which of the addresses one answers, or having one started. Connects; does not talk. What may
 * take its time is done by the thread that waits for it, or, for who does not wait, by one of its own, which ends with the search.
 */
#ifndef CLIENT_SEARCH_H
#define CLIENT_SEARCH_H

#include "base/cleanup.h"
#include "client/context.h"

typedef struct SearchPlan {
        SpawnAddress addresses[SPAWN_ADDRESSES_MAX];
        size_t n_addresses;
        bool may_spawn;
        bool is_given;               /* the one address, by an option or FOLIO_SOCKET */
        uint64_t deadline_ns;        /* CLOCK_MONOTONIC; UINT64_MAX: none */
} SearchPlan;

typedef struct Found {
        SpawnAddress address;        /* of the one that answered */
        int socket;                  /* -1 with an error */
        int error;
        char sentence[ERROR_SENTENCE_BYTES]; /* with an error */
} Found;

/* NULL: no memory. */
Found *found_new(void);
void found_free(Found *found);
DEFINE_CLEANUP(Found *, cleanup_found, found_free)

/* 0, or FOLIO_E_INVALID with the sentence: @address is none. */
int search_plan(const char *address, bool may_spawn, uint64_t deadline_ns, SearchPlan *ret);

/* Waits as long as the plan says. */
void search_wait(const SearchPlan *plan, Found *found);

/* Without waiting; false: it takes that, and nothing is found yet. */
bool search_now(const SearchPlan *plan, Found *found);

/* Searches in a thread, which gives @found to operations_found(), or frees it. 0 or a negative errno: then it is freed. */
int search_start(Client *client, const SearchPlan *plan, Found *consume_found);

#endif
