/* SPDX-License-Identifier: Apache-2.0 */
/* See order.h. */
#include "client/order.h"

#include "client/resume.h"

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

/* Before the daemon answers it carries out what was told, and what is in the ring. */
static void ask(Op *op, OpStep step)
{
        ProtoRequest message = { .verb = VERB_PING };

        op_send(op, &message, NULL, step);
}

/* Until the words that are not answered have been carried out. The reply to any later request says so: see on_reply(). */
static __attribute__((noinline)) int wait_told(Client *client)
{
        int r;
        Op op;

        op_init(&op, client);
        ask(&op, op_complete);
        r = op_wait_quietly(&op);
        op_deinit(&op);
        if (r == FOLIO_E_TIMEOUT)
                return order_fail(client, RING_E_TIMEOUT);
        /* Where the daemon has gone nothing changes any more, and the index is as it is. */
        if (r < 0)
                atomic_store(&client->told_id, 0);
        return 0;
}

/* Of the words that no reply belongs to. */
static inline bool all_is_answered(Client *client)
{
        return LIKELY(atomic_load_explicit(&client->told_id, memory_order_acquire) == 0);
}

int order_wait(Client *client, Ring *ring, uint64_t hash)
{
        int r = all_is_answered(client) ? 0 : wait_told(client);

        if (UNLIKELY(r < 0))
                return r;
        if (LIKELY(!ring || ring_is_caught_up(ring, hash)))
                return 0;
        r = ring_catch_up(ring, hash, client->timeout_ns);
        if (UNLIKELY(r == RING_E_GONE) && resume_wait(client) == 0)
                r = ring_catch_up(ring, hash, client->timeout_ns);
        return r == 0 ? 0 : order_fail(client, r);
}

bool order_is_caught_up(Client *client, uint64_t hash)
{
        Ring *ring = atomic_load_explicit(&client->ring, memory_order_acquire);

        return all_is_answered(client) && (LIKELY(!ring) || ring_is_caught_up(ring, hash));
}

void order_step(Op *op, uint64_t hash, OpStep step)
{
        if (order_is_caught_up(op->client, hash)) {
                step(op);
                return;
        }
        if (!op->is_waited) {
                ask(op, step);
                return;
        }
        op_fail_as_thread(op, order_wait(op->client, atomic_load_explicit(&op->client->ring, memory_order_acquire), hash));
        step(op);
}
