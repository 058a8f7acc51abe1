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

/*
 * The same for who will give the target out again: its place in the table stays the target's, until handle_renew() makes
 * the next handle of it, or handle_drop() gives it back. Both want the handle that was ended; of one owner.
 */
void *handle_keep(struct folio_object *handle);
struct folio_object *handle_renew(struct folio_object *kept);
void handle_drop(struct folio_object *kept);

#endif
