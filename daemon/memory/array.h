/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large arrays of the daemon's own, indexed by slot or growing with the objects: zeroed, and filled in as time goes by.
 * Their pages are small ones on purpose, made one at a time where they are first touched: a huge page is zeroed whole
 * at that moment, which takes a third of a millisecond of the loop's time, and several where the machine is a guest
 * whose host has to find the memory first. Knows nothing of what is in them.
 */
#ifndef DAEMON_MEMORY_ARRAY_H
#define DAEMON_MEMORY_ARRAY_H

#include <stddef.h>

#define ARRAY_OWN_BYTES (128u * 1024) /* smaller ones are the allocator's */

/* NULL: no memory, also where @n times @item_bytes is no size. */
void *array_new(size_t n, size_t item_bytes);

/* To more items. NULL: no memory, and @array is as it was. What is added is zero. */
void *array_grow(void *array, size_t n, size_t n_new, size_t item_bytes);

void array_free(void *array, size_t n, size_t item_bytes); /* NULL: nothing happens */

#endif
