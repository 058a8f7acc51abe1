/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for what was asked for and not waited for. Blocking, the ring itself is waited for; asynchronously a message is sent that
 * the daemon answers when it has carried out what was in the ring before it.
 */
#include "client/call.h"
#include "client/pipe.h"
#include "client/resume.h"

_public_ int folio_flush(struct folio_client *client)
{
        int r = client_check(client);
        Ring *ring = r == 0 ? atomic_load_explicit(&client->ring, memory_order_acquire) : NULL;

        /* One that was lost may have left something to be told. */
        if (r < 0 || !ring)
                return r < 0 ? r : pipe_take_failure(client);
        r = ring_catch_up(ring, 0, client->timeout_ns);
        if (r == RING_E_GONE && resume_wait(client) == 0)
                r = ring == atomic_load(&client->ring) ? ring_catch_up(ring, 0, client->timeout_ns) : 0;
        return r != 0 ? order_fail(client, r) : pipe_take_failure(client);
}

static void flush_answered(Op *op)
{
        Ring *ring = atomic_load_explicit(&op->client->ring, memory_order_acquire);

        /* Failures are told as they are noticed: all of them are there, so nothing is waited for. */
        if (op->error == 0 && ring)
                (void)ring_catch_up(ring, 0, 0);
        if (op->error == 0)
                op_fail_as_thread(op, pipe_take_failure(op->client));
        op_complete(op);
}

static void flush_begin(Op *op)
{
        ProtoRequest message = { .verb = VERB_PING };

        if (op->error)
                op_complete(op);
        else
                op_send(op, &message, NULL, flush_answered);
}

_public_ int folio_flush_async(struct folio_client *client, folio_done_fn done, void *userdata)
{
        int r = client_check(client);
        Op op;

        if (r < 0)
                return r;
        op_init(&op, client);
        return call_async(&op, sizeof(op), flush_begin, done, userdata);
}
