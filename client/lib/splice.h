/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between a region and a descriptor of the program's own, inside the kernel where it can. The region's own
 * position is never used: others share it. A descriptor that does not block is waited for all the same. Nothing here
 * raises SIGPIPE for a socket; for a pipe that nobody reads the kernel does, as write() would.
 */
#ifndef CLIENT_LIB_SPLICE_H
#define CLIENT_LIB_SPLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which of the two has failed. */
typedef enum SpliceSide {
        SPLICE_OUTSIDE,
        SPLICE_REGION,
} SpliceSide;

/*
 * From @outside_fd's position into the region, until @n_bytes are there or the source ends. 0 or a negative errno, with
 * *@ret_failed; *@ret_n_bytes, what has been stored, is set always. Where there is a position it is behind those bytes
 * then.
 */
int splice_in(int outside_fd, int region_fd, uint64_t offset_bytes, uint64_t n_bytes, uint64_t *ret_n_bytes,
              SpliceSide *ret_failed);

/* All of the range to @outside_fd; the same answers. Into a pipe goes by reference only what is sealed for ever. */
int splice_out(int region_fd, uint64_t offset_bytes, int outside_fd, uint64_t n_bytes, uint64_t *ret_n_bytes,
               SpliceSide *ret_failed);

/* By memory: until @n_bytes are read or the source ends; and all of it written. The same answers. */
int splice_read(int outside_fd, void *buffer, size_t n_bytes, size_t *ret_n_bytes);
int splice_write(int outside_fd, const void *data, size_t n_bytes, uint64_t *ret_n_bytes);

/* Is there something to read now, or the end? A file always has. */
bool splice_is_readable(int outside_fd);
void splice_wait_readable(int outside_fd);

/* Waits for the first byte only, and takes what is there, @n_bytes at most. *@ret_is_end: the source has ended. */
int splice_read_ready(int outside_fd, void *buffer, size_t n_bytes, size_t *ret_n_bytes, bool *ret_is_end);

#endif
