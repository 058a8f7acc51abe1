/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folio. The address is WAY:NAMESPACE:SOCKET. The way is visible, where each put and delete waits until others can see
 * it, or pipelined, where that is waited for once, after the last of a job.
 */
#include "worker.h"

#include <stdio.h>
#include <string.h>

#include <folio/folio.h>

static struct folio_client *client;

static int fail(int r)
{
        const char *sentence = folio_strerror_full();

        return worker_fail("%s", *sentence ? sentence : folio_strerror(r));
}

static int open_folio(const char *address, uint32_t number)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options) };
        char way[16], space[WORKER_PREFIX_BYTES - 1];
        int n_read = 0, r;

        (void)number;
        if (sscanf(address, "%15[^:]:%14[^:]:%n", way, space, &n_read) != 2 || n_read == 0)
                return worker_fail("its address is not WAY:NAMESPACE:SOCKET");
        (void)snprintf(worker_prefix, sizeof(worker_prefix), "%s:", space);
        options.address = address + n_read;
        options.flags = strcmp(way, "visible") == 0 ? FOLIO_OPEN_VISIBLE : 0;
        r = folio_client_open(&options, &client);
        return r < 0 ? worker_fail("%s", folio_strerror(r)) : 0;
}

static int put_folio(const char *key, const void *data, size_t n_bytes)
{
        int r = folio_put(client, key, data, n_bytes, NULL);

        return r < 0 ? fail(r) : 0;
}

static int get_folio(const char *key, size_t n_bytes)
{
        struct folio_object *object;
        int r = folio_get(client, key, 0, 0, &object);

        if (r < 0)
                return fail(r);
        r = worker_touch(folio_object_data(object), n_bytes);
        (void)folio_object_release(object);
        return r;
}

static int exists_folio(const char *key)
{
        int r = folio_exists(client, key);

        return r == 1 ? 0 : r < 0 ? fail(r) : worker_fail("it is not there");
}

static int remove_folio(const char *key)
{
        int r = folio_delete(client, key, 0);

        return r < 0 ? fail(r) : 0;
}

/* Where each has waited there is nothing to wait for. */
static int flush_folio(void)
{
        int r = folio_flush(client);

        return r < 0 ? fail(r) : 0;
}

const struct worker_peer worker_peer = {
        .open = open_folio,
        .put = put_folio,
        .get = get_folio,
        .exists = exists_folio,
        .remove = remove_folio,
        .flush = flush_folio,
};
