/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's staging region: memory from which the daemon copies small objects. An allocator over it, with its
 * books in private memory. Any thread.
 */
#ifndef CLIENT_LIB_STAGING_H
#define CLIENT_LIB_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Staging Staging;

int staging_new(int consume_fd, uint64_t n_bytes, Staging **ret);
void staging_free(Staging *staging);

/* Whatever daemon there is, or will be: the connection is over, and nobody comes back to it (proto/staging.h). */
void staging_end(Staging *staging);

/* All that this client looks at is the daemon's whose beacon has that number (the same). */
void staging_arrive(Staging *staging, uint64_t start);

/* Asked behind a pin: another daemon than that has the session by now, and may not have seen it in time. */
bool staging_is_taken_over(const Staging *staging);

/*
 * Another region takes the place of what is mapped, with what is in use of it; of one that is larger what there was room for
 * is used. 0, -EPROTO: it has no room for that; or a negative errno.
 */
int staging_replace(Staging *staging, int consume_fd, uint64_t n_bytes);

/* NULL: no room now. Aligned to 64. */
void *staging_take(Staging *staging, size_t n_bytes);
void staging_give(Staging *staging, void *data);
uint64_t staging_offset(const Staging *staging, const void *data);

#endif
