/* SPDX-License-Identifier: Apache-2.0 */
/* Moving object bytes between a region and the caller's buffer, by memory and by descriptor. Restarts what signals interrupt. */
#ifndef CLIENT_LIB_COPY_H
#define CLIENT_LIB_COPY_H

#include <stddef.h>
#include <stdint.h>

void copy_bytes(void *to, const void *from, size_t n_bytes);

/* All of it: 0, or a negative errno (-EIO: the file ends before). */
int copy_from_fd(int fd, uint64_t offset_bytes, void *to, size_t n_bytes);
int copy_to_fd(int fd, uint64_t offset_bytes, const void *from, size_t n_bytes);

#endif
