/* SPDX-License-Identifier: Apache-2.0 */
/* Names and keys: what is a valid one, how it splits, how it hashes. Both sides must agree, so both use this. */
#ifndef PROTO_KEY_H
#define PROTO_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed bytes of somebody else's string; not NUL-terminated. */
typedef struct Key {
        const char *bytes;
        size_t n_bytes;
} Key;

/* 1..63 of a-z 0-9 . _ - */
bool key_is_valid_namespace(const char *bytes, size_t n_bytes);

/* 1..255 bytes without NUL. */
bool key_is_valid(const char *bytes, size_t n_bytes);

/*
 * Splits `namespace:key`, or `key` of the namespace `default`. Both results borrow from @name (or are static). False: not a valid name.
 * With @is_prefix the key may be empty.
 */
bool key_split_name(const char *name, bool is_prefix, Key *ret_namespace, Key *ret_key);

/* The hash under which a key stands in an index whose header holds @seed. */
uint64_t key_hash(const char *bytes, size_t n_bytes, uint64_t seed);

#endif
