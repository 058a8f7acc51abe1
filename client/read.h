/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reading of an object: which of its bytes are zeros that need no memory, which come out of a mapping and which by
 * descriptor. Whoever calls has checked the range. Knows neither names nor operations.
 */
#ifndef CLIENT_READ_H
#define CLIENT_READ_H

#include "client/object.h"

/* Copies out. 1; 0: its region must be asked for, then object_read_region(); an error with the thread's sentence. */
int object_read_now(Object *object, uint64_t offset_bytes, void *buffer, size_t n_bytes);

/* Of an object that cannot be read yet, by the descriptor that REGION brought. 0 or an error with the thread's sentence. */
int object_read_region(Object *object, const ProtoItemReply *item, int consume_fd, uint64_t offset_bytes, void *buffer,
                       size_t n_bytes);

/* Of one that is mapped, and cannot be asked for again: out of the mapping, holes and all. 0 or an error. */
int object_read_mapped(Object *object, uint64_t offset_bytes, void *buffer, size_t n_bytes);

/* Of an object with a region of its own, of which nothing is mapped: is it to be? Else it is read by descriptor. */
typedef struct ReadCase {
        uint64_t object_bytes;
        uint64_t huge_bytes;         /* of these, in pages of 2 MiB */
        uint64_t n_bytes;            /* to be read */
        bool was_read;               /* by descriptor, not long ago */
} ReadCase;

bool read_should_map(const ReadCase *read);

#endif
