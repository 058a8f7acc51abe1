/* SPDX-License-Identifier: Apache-2.0 */
/* See order.h. */
#include "client/order.h"

void order_told(Client *client)
{
        /* Those that are sent after it have greater numbers; of two words the later counts. */
        atomic_store(&client->told_id, requests_last_id(client->requests));
}

uint64_t order_hash(const Space *space, Key key)
{
        return space->shared && key.n_bytes > 0 ? key_hash(key.bytes, key.n_bytes, space->header.hash_seed) : 0;
}

int order_fail(Client *client, int r)
{
        int error = r == RING_E_TIMEOUT ? FOLIO_E_TIMEOUT : FOLIO_E_DAEMON_GONE;
        char sentence[ERROR_SENTENCE_BYTES];

        operation_explain(client, error, sentence);
        return error_set_sentence(error, sentence);
}

int order_wait(Client *client, Ring *ring, uint64_t hash)
{
        int r;

        if (LIKELY(ring_is_caught_up(ring, hash)))
                return 0;
        r = ring_catch_up(ring, hash, client->timeout_ns);
        return r == 0 ? 0 : order_fail(client, r);
}

void order_step(Op *op, uint64_t hash, OpStep step)
{
        Ring *ring = atomic_load_explicit(&op->client->ring, memory_order_acquire);
        /* Before the daemon answers it carries out what is in the ring. */
        ProtoRequest message = { .verb = VERB_PING };

        if (LIKELY(!ring) || ring_is_caught_up(ring, hash)) {
                step(op);
                return;
        }
        if (!op->is_waited) {
                op_send(op, &message, NULL, step);
                return;
        }
        op_fail_as_thread(op, order_wait(op->client, ring, hash));
        step(op);
}
