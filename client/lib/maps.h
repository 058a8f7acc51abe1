/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of regions, kept for reuse: one for each region and kind, counted while in use, least recently used out
 * when those not in use exceed a bound of bytes or of number. Aligned to 2 MiB, MADV_DONTDUMP unless asked otherwise; no descriptor is kept, so that
 * mappings and not descriptors are what a client accumulates. Stops at 90 % of vm.max_map_count, so that the program's own malloc goes on working.
 */
#ifndef CLIENT_LIB_MAPS_H
#define CLIENT_LIB_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/windows.h"

typedef struct Maps Maps;

typedef struct Mapping {
        uint64_t region_id;
        uint8_t *data;
        size_t n_bytes;
        bool is_writable;
        Window *windows;             /* windows_count(n_bytes) of them */
        /* maps.c's own fields follow in its private structure. */
} Mapping;

/* Of what a mapping is that is kept for reuse, in the words of whoever put it there. All 0: of nothing in particular. */
typedef struct MapsOwner {
        void *space;                 /* NULL: none */
        uint64_t generation;
        uint64_t event;
        uint32_t slot;
} MapsOwner;

enum { MAPS_E_TOO_MANY = 1 };        /* vm.max_map_count is near */

int maps_new(uint64_t idle_bytes_max, unsigned n_idle_max, Maps **ret);
void maps_allow_dumps(Maps *maps);   /* what it maps from now on is in core dumps; before there is a second thread */
void maps_free(Maps *maps);          /* unmaps what is not in use; what is stays until its maps_unref() */

/*
 * The one way this library maps shared memory, also for those above who do not go through the cache: shared,
 * @protection of PROT_*, aligned to 2 MiB where it is that large, not in core dumps. @fd is borrowed. 0, or a negative
 * errno (-EPROTO: the file is shorter).
 */
int maps_map(int fd, uint64_t n_bytes, int protection, void **ret);

/*
 * In the place of what maps_map() has mapped at @data, of the same size; who reads there meanwhile reads of the one
 * or of the other. 0 or a negative errno.
 */
int maps_map_over(int fd, uint64_t n_bytes, int protection, const void *data);
void maps_unmap(const void *data, size_t n_bytes);

/*
 * Memory of the caller's own that begins as the file's first bytes are, or as zeros where @fd is -1: what is stored
 * there nobody else sees. 0, MAPS_E_TOO_MANY, or as maps_map(); given back by maps_unmap().
 */
int maps_map_private(Maps *maps, int fd, uint64_t n_bytes, void **ret);

/* How many mappings the library has in this process. */
unsigned maps_count(void);

/* A reference; NULL: not mapped. Any thread. */
Mapping *maps_find(Maps *maps, uint64_t region_id, bool writable);

/* Maps, or finds that another thread has meanwhile. 0, MAPS_E_TOO_MANY or a negative errno. @fd is borrowed. */
int maps_open(Maps *maps, uint64_t region_id, int fd, uint64_t n_bytes, bool writable, bool populate, Mapping **ret);

/* The same, and takes the descriptor over whatever happens. */
int maps_add(Maps *maps, uint64_t region_id, int consume_fd, uint64_t n_bytes, bool writable, bool populate, Mapping **ret);

/* One more, for who has one. No lock is taken, nor in giving one back that is not the last. */
void maps_ref(Maps *maps, Mapping *mapping);

/* @drop: not worth keeping when this was the last reference (its object is gone). */
void maps_unref(Maps *maps, Mapping *mapping, bool drop);

/* Gives a reference back; if it was the last, and the mapping is kept, it is one of those that maps_sweep() looks at. */
void maps_unref_owned(Maps *maps, Mapping *mapping, const MapsOwner *owner);

/*
 * Asks of some of the mappings that are kept and owned, a bounded number of them and in turn, whether what they are of is still there; those of
 * which it is not go. @is_there may change *owner; it is called with a lock, and must not come back here.
 */
void maps_sweep(Maps *maps, bool (*is_there)(MapsOwner *owner));

/* Was this region read lately without being mapped? It has been now. Remembers a few hundred, and may forget. */
bool maps_note_read(Maps *maps, uint64_t region_id);

#endif
