/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of regions, kept for reuse: one for each region and kind, counted while in use, least recently used out
 * when those not in use exceed the bound. Aligned to 2 MiB, MADV_DONTDUMP; the descriptor is closed after mapping, so that
 * mappings and not descriptors are what a client accumulates. Stops at 90 % of vm.max_map_count, so that the program's own malloc goes on working.
 */
#ifndef CLIENT_LIB_MAPS_H
#define CLIENT_LIB_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Maps Maps;

typedef struct Mapping {
        uint64_t region_id;
        uint8_t *data;
        size_t n_bytes;
        bool is_writable;
        /* maps.c's own fields follow in its private structure. */
} Mapping;

enum { MAPS_E_TOO_MANY = 1 };        /* vm.max_map_count is near */

int maps_new(uint64_t idle_bytes_max, Maps **ret);
void maps_free(Maps *maps);          /* unmaps what is not in use; what is stays until its maps_unref() */

/*
 * The one way this library maps shared memory, also for those above who do not go through the cache: shared,
 * @protection of PROT_*, aligned to 2 MiB where it is that large, not in core dumps. @fd is borrowed. 0, or a negative
 * errno (-EPROTO: the file is shorter).
 */
int maps_map(int fd, uint64_t n_bytes, int protection, void **ret);
void maps_unmap(const void *data, size_t n_bytes);

/* How many mappings the library has in this process. */
unsigned maps_count(void);

/* A reference; NULL: not mapped. Any thread. */
Mapping *maps_find(Maps *maps, uint64_t region_id, bool writable);

/* Maps, or finds that another thread has meanwhile. The descriptor is taken over. 0, MAPS_E_TOO_MANY or a negative errno. */
int maps_add(Maps *maps, uint64_t region_id, int consume_fd, uint64_t n_bytes, bool writable, bool populate, Mapping **ret);
void maps_ref(Maps *maps, Mapping *mapping);

/* @drop: not worth keeping when this was the last reference (its object is gone). */
void maps_unref(Maps *maps, Mapping *mapping, bool drop);

#endif
