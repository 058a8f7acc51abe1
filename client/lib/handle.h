/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles: what a program holds instead of a pointer. `struct folio_object *` is a number in a pointer's clothes, a place in a
 * table and that place's generation, so that one released twice, or never given out, is told from a good one without
 * touching memory that is not ours. One table for the process; any thread.
 */
#ifndef CLIENT_LIB_HANDLE_H
#define CLIENT_LIB_HANDLE_H

struct folio_object;

/* NULL: no memory. @target is not NULL. */
struct folio_object *handle_new(void *target);

/* The target, borrowed; NULL where @handle is not (or no longer) a handle. */
void *handle_find(struct folio_object *handle);

/* Ends the handle: of many threads that try, one gets the target, the others NULL. */
void *handle_take(struct folio_object *handle);

#endif
