/* SPDX-License-Identifier: Apache-2.0 */
/* A namespace and the beginning of a key, as lists and watches are given one. */
#ifndef CLIENT_LIST_H
#define CLIENT_LIST_H

#include "client/call.h"
#include "client/names.h"

/* Keeps a copy of @prefix as the operation's name; false: failed with FOLIO_E_INVALID. */
bool list_set_prefix(Op *op, const char *prefix);

/* Then: sets op->space and op->key, and goes on with @step; that one finds op->error set where it failed. */
void list_open_prefix(Op *op, OpStep step);

/* In that step. False: it has failed, with FOLIO_E_ACCESS where this client may not read there. */
bool list_check_readable(Op *op);

/* Does the key begin so? */
bool list_has_prefix(const void *key, size_t n_bytes, Key prefix);

#endif
