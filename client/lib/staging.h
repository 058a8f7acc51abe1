/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's staging region: memory from which the daemon copies small objects. An allocator over it, with its
 * books in private memory. Any thread.
 */
#ifndef CLIENT_LIB_STAGING_H
#define CLIENT_LIB_STAGING_H

#include <stddef.h>
#include <stdint.h>

typedef struct Staging Staging;

int staging_new(int consume_fd, uint64_t n_bytes, Staging **ret);
void staging_free(Staging *staging);

/* NULL: no room now. Aligned to 64. */
void *staging_take(Staging *staging, size_t n_bytes);
void staging_give(Staging *staging, void *data);
uint64_t staging_offset(const Staging *staging, const void *data);

#endif
