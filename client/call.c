/* SPDX-License-Identifier: Apache-2.0 */
/* See call.h. */
#include "client/call.h"

#include <stdlib.h>
#include <string.h>

#include "client/loop.h"

int call_wait(Op *op, OpStep first)
{
        int r;

        if (op->error)
                return error_set_sentence(op->error, op->sentence);
        r = op_run(op, first);
        op_deinit(op);
        return r;
}

static void call_free(Op *op)
{
        op_deinit(op);
        free(op);
}

int call_async(const Op *op, size_t n_bytes, OpStep first, folio_done_fn done, void *userdata)
{
        Client *client = op->client;
        Op *copy;

        if (op->error)
                return error_set_sentence(op->error, op->sentence);
        if (!done)
                return error_set(FOLIO_E_INVALID, "there is no callback");
        copy = malloc(n_bytes);
        if (!copy)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        memcpy(copy, op, n_bytes);
        list_init(&copy->link);
        op_set_async(copy, done, userdata, call_free);
        client_add_user(client);
        op_begin(copy, first);
        loop_update(client);
        client_release_user(client);
        return 0;
}
