/* SPDX-License-Identifier: Apache-2.0 */
/* A namespace and the beginning of a key, as lists and watches are given one. */
#ifndef CLIENT_LIST_H
#define CLIENT_LIST_H

#include "client/names.h"

/* Blocking where the namespace is not open. @ret_prefix borrows from @prefix. 0 or an error with the sentence. */
int list_open_prefix(Client *client, const char *prefix, Space **ret_space, Key *ret_prefix);

/* Does the key begin so? */
bool list_has_prefix(const void *key, size_t n_bytes, Key prefix);

#endif
