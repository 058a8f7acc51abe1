/* SPDX-License-Identifier: Apache-2.0 */
/* What a put and a batch of puts share: which objects are small, and how a region is filled. */
#ifndef CLIENT_PUT_H
#define CLIENT_PUT_H

#include "client/context.h"

/* It goes through staging memory, if there is room. */
bool put_is_small(const Client *client, const ProtoItem *item);

/* Fills the region that a CREATE has made in @space. 0 or an error, with the thread's sentence. */
int put_fill(const Space *space, const ProtoItemReply *item, int consume_fd, const void *data, uint64_t size_bytes);

#endif
