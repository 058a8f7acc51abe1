/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranges of one object that read as zeros, as a private checked copy of what the index publishes. Made once for a
 * handle that reads, then only looked at. Knows no memory: what is to be done about a range is the reader's.
 */
#ifndef CLIENT_LIB_EXTENTS_H
#define CLIENT_LIB_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/space.h"

typedef struct Extents Extents;

/*
 * Of the object in @copy, which was read from @slot before. 0: *@ret is new, or NULL where it has none; -EAGAIN: it has
 * changed since; -ENOMEM. What the index claims beyond the object (of a mutable one: beyond its capacity), out of order
 * or overlapping is cut off. A newer list, of a mutable object that was truncated, comes with another sequence of the
 * slot: whoever keeps one keeps the sequence beside it, and reads again where it has changed.
 */
int extents_read(const Space *space, uint32_t slot, const LayoutSlot *copy, Extents **ret);
void extents_free(Extents *extents);

/*
 * @older may still be looked at by others: @extents keeps it until it is freed itself. NULL is legal for @older. False:
 * it keeps so many already that the index cannot be honest; nothing has been done.
 */
bool extents_keep(Extents *extents, Extents *older);

/*
 * The run that begins at @offset_bytes and is all of one kind: *@ret_is_zero tells which. Returns its length in bytes,
 * at least 1, at most @n_bytes (which is not 0). NULL has no zeros.
 */
uint64_t extents_run(const Extents *extents, uint64_t offset_bytes, uint64_t n_bytes, bool *ret_is_zero);

/* How many bytes are listed. NULL: none. */
uint64_t extents_bytes(const Extents *extents);

/*
 * True: a range that is not listed may be a hole too. Of a mutable object that is sparse it may be one in any case,
 * where somebody has made the object shorter since.
 */
bool extents_is_partial(const Extents *extents);

#endif
