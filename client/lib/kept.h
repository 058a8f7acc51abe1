/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of records that somebody will ask for, and whose place in the ring is wanted for another record: they
 * are kept here until then, by the number of the record. Of a record that failed, the record itself and the
 * daemon's sentence are kept too. Grows as needed, never shrinks: as many as there were at one time will be again.
 * Not locked.
 */
#ifndef CLIENT_LIB_KEPT_H
#define CLIENT_LIB_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ring.h"

typedef struct KeptFailure {
        RingRecord record;
        char text[RING_FAILURE_BYTES_MAX + 1]; /* "": the daemon had no room for it */
} KeptFailure;

typedef struct KeptResult {
        uint64_t sequence_end;       /* the record's number + 1; 0: an empty place */
        uint64_t generation;
        uint32_t status;
        uint32_t slot;
        KeptFailure *failure;        /* NULL: it succeeded, or there was no memory for more */
} KeptResult;

typedef struct Kept {
        KeptResult *results;         /* hashed by number, the next place where one is taken */
        size_t n_results_max;        /* 0 or a power of two */
        size_t n_results;
} Kept;

#define KEPT_NULL { 0 }

/* @result->failure is taken over where this succeeds. False: no memory. The number is in it no second time. */
bool kept_push(Kept *kept, const KeptResult *result);

/* Hands it out, with what is in it. False: there is none of this number. */
bool kept_take(Kept *kept, uint64_t sequence, KeptResult *ret);

void kept_deinit(Kept *kept);

#endif
