/* SPDX-License-Identifier: Apache-2.0 */
/* memcached, by libmemcached; the address is that of its Unix socket. */
#include "worker.h"

#include <libmemcached/memcached.h>
#include <stdlib.h>
#include <string.h>

static memcached_st *client;

static int check(memcached_return_t r)
{
        return r == MEMCACHED_SUCCESS ? 0 : worker_fail("%s", memcached_strerror(client, r));
}

static int open_memcached(const char *address, uint32_t number)
{
        (void)number;
        client = memcached_create(NULL);
        if (!client)
                return worker_fail("no memory");
        (void)memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 60000);
        return check(memcached_server_add_unix_socket(client, address));
}

static int put_memcached(const char *key, const void *data, size_t n_bytes)
{
        return check(memcached_set(client, key, strlen(key), data, n_bytes, 0, 0));
}

static int get_memcached(const char *key, size_t n_bytes)
{
        memcached_return_t result;
        uint32_t flags;
        size_t n_got;
        char *data = memcached_get(client, key, strlen(key), &n_got, &flags, &result);
        int r = check(result);

        if (r == 0)
                r = n_got == n_bytes ? worker_touch(data, n_bytes) : worker_fail("it has another size");
        free(data);
        return r;
}

static int exists_memcached(const char *key)
{
        return check(memcached_exist(client, key, strlen(key)));
}

static int remove_memcached(const char *key)
{
        return check(memcached_delete(client, key, strlen(key), 0));
}

const struct worker_peer worker_peer = {
        .open = open_memcached,
        .put = put_memcached,
        .get = get_memcached,
        .exists = exists_memcached,
        .remove = remove_memcached,
};
