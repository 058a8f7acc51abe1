/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling a region that is an object's own, before its seal. Through a mapping where its memory is there in 2 MiB pages,
 * which costs two thirds of what the kernel takes for the same by 4 KiB at a time; else by pwrite(), as to map small
 * pages costs a fault for each. The mapping lasts no longer than the call: it would stand in the way of the seal.
 */
#ifndef CLIENT_FILL_H
#define CLIENT_FILL_H

#include "client/lib/space.h"

/* Of less the faults and the way there and back are too much. */
#define FILL_MAPPED_BYTES_MIN ((size_t)4 << 20)

/*
 * Does the index say of the object, of @capacity_bytes, that all its memory is there, zeroed, and in 2 MiB pages, but for
 * what is less than one? Where the namespace may not be read it says nothing.
 */
bool fill_is_huge(const Space *space, uint32_t slot, uint64_t generation, uint64_t capacity_bytes);

/* 0 or an error, with the thread's sentence. [@offset_bytes, + @n_bytes) is checked against the region before it is mapped. */
int fill_region(int fd, uint64_t region_bytes, bool is_huge, uint64_t offset_bytes, const void *data, size_t n_bytes);

#endif
