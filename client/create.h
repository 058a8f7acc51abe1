/* SPDX-License-Identifier: Apache-2.0 */
/* What putting and creating share: the options that the program gives, and what to do about a create whose answer does not come. */
#ifndef CLIENT_CREATE_H
#define CLIENT_CREATE_H

#include "client/object.h"

/* The options as the wire has them: @item borrows from @given. 0, FOLIO_E_INVALID or FOLIO_E_TOO_LARGE, with the sentence. */
/* foliod has answered that there is one of @generation: see fate.c. */
static inline void create_note(Client *client, uint64_t generation)
{
        uint64_t newest = atomic_load_explicit(&client->newest_made, memory_order_relaxed);

        while (generation > newest && !atomic_compare_exchange_weak(&client->newest_made, &newest, generation))
                ;
}

int create_read_options(const struct folio_create_options *given, uint64_t size_bytes, uint32_t flags_allowed, ProtoItem *item);

/* Is the object to be seen by others when the call, or its seal, returns? */
bool create_is_visible(const Client *client, const struct folio_create_options *given);

/* Makes @item borrow from a copy, *@ret_texts, to be freed. False: no memory. */
bool create_keep_texts(ProtoItem *item, void **ret_texts);

/* op->settle of a CREATE: an object that is made after all, and that nobody has, is aborted. */
void create_settle(Op *op, int error);

void create_tell_abort(Client *client, uint32_t namespace_id, uint32_t slot, uint64_t generation);

#endif
