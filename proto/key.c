/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and keys. The alphabet of namespaces is small on purpose: a namespace's name ends up in file names, in
 * configuration sections and in columns of a terminal. Keys are the user's own and may hold anything but NUL, which
 * ends the C strings they come in. What a key names is not known here.
 */
#include "proto/key.h"

#include <string.h>

#include "folio/types.h"

/* The hash is compiled in: both sides must have the same for ever, whatever library the host has. */
#define XXH_INLINE_ALL
#include <xxhash.h>

static bool is_namespace_byte(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool key_is_valid_namespace(const char *bytes, size_t n_bytes)
{
        if (n_bytes < 1 || n_bytes > FOLIO_NAMESPACE_BYTES_MAX)
                return false;
        for (size_t i = 0; i < n_bytes; i++)
                if (!is_namespace_byte(bytes[i]))
                        return false;
        return true;
}

bool key_is_valid(const char *bytes, size_t n_bytes)
{
        return n_bytes >= 1 && n_bytes <= FOLIO_KEY_BYTES_MAX && !memchr(bytes, '\0', n_bytes);
}

bool key_split_name(const char *name, bool is_prefix, Key *ret_namespace, Key *ret_key)
{
        /* Longer than any valid name is all that needs to be known of a string that may not even end soon. */
        size_t n_bytes = strnlen(name, FOLIO_NAME_BYTES_MAX + 1);
        const char *colon = memchr(name, ':', n_bytes);
        Key ns = { FOLIO_NAMESPACE_DEFAULT, sizeof(FOLIO_NAMESPACE_DEFAULT) - 1 };
        Key key = { name, n_bytes };

        if (n_bytes > FOLIO_NAME_BYTES_MAX)
                return false;
        if (colon) {
                ns = (Key){ name, (size_t)(colon - name) };
                key = (Key){ colon + 1, n_bytes - ns.n_bytes - 1 };
                if (!key_is_valid_namespace(ns.bytes, ns.n_bytes))
                        return false;
        }
        /* There is no NUL in it: the string would have ended there. */
        if (key.n_bytes > FOLIO_KEY_BYTES_MAX || (key.n_bytes == 0 && !is_prefix))
                return false;
        *ret_namespace = ns;
        *ret_key = key;
        return true;
}

uint64_t key_hash(const char *bytes, size_t n_bytes, uint64_t seed)
{
        return XXH3_64bits_withSeed(bytes, n_bytes, seed);
}
