/* SPDX-License-Identifier: Apache-2.0 */
/* See batch.h. */
#include "client/batch.h"

#include <string.h>

#include "client/get.h"
#include "client/order.h"

int batch_init(Batch *batch, Client *client, const BatchKind *kind, void *items, size_t n_items)
{
        int r = client_check(client);

        if (r == 0 && !items && n_items > 0)
                r = error_set(FOLIO_E_INVALID, "the items are NULL");
        if (r < 0)
                return r;
        op_init(&batch->op, client);
        batch->kind = kind;
        batch->items = items;
        batch->n_items = n_items;
        batch->next = batch->next_ahead = 0;
        batch->first_failed = n_items;
        batch->is_opened = batch->is_cancelled = false;
        batch->unsure_at = 0;
        batch->failed = 0;
        return 0;
}

void *batch_item(Batch *batch, size_t index)
{
        return batch->items + index * batch->kind->item_bytes;
}

static int *error_of(Batch *batch, size_t index)
{
        return (int *)(void *)(batch->items + index * batch->kind->item_bytes + batch->kind->error_offset);
}

int batch_get_error(Batch *batch, size_t index)
{
        return *error_of(batch, index);
}

/* The thread's sentence, and which item it is about: by its number, and by its name unless that stands in it already. */
static void explain(Batch *batch, size_t index)
{
        const char *name, *sentence = error_get_sentence();
        unsigned long long number = index + 1ull, n_items = batch->n_items;

        memcpy(&name, (uint8_t *)batch_item(batch, index) + batch->kind->name_offset, sizeof(name));
        batch->first_failed = index;
        if (!name || !name[0] || strstr(sentence, name))
                error_format(batch->op.sentence, "item %llu of %llu: %s", number, n_items, sentence);
        else
                error_format(batch->op.sentence, "item %llu of %llu, %.330s: %s", number, n_items, name, sentence);
}

void batch_set_error(Batch *batch, size_t index, int error)
{
        *error_of(batch, index) = error;
        if (UNLIKELY(error < 0 && index < batch->first_failed))
                explain(batch, index);
}

/* --- namespaces ----------------------------------------------------------------------------------------------------------------------- */

int batch_open(Batch *batch, const char *name, Space **ret_space, Key *ret_key)
{
        bool was_opened = batch->is_opened;
        Key namespace;
        int r = get_split_name(name, &namespace, ret_key);

        batch->is_opened = false;
        if (r < 0)
                return r;
        *ret_space = names_find(batch->op.client, namespace);
        if (LIKELY(*ret_space))
                return 0;
        if (was_opened) {
                *ret_space = batch->op.space;
                return 0;
        }
        if (batch->failed && namespace.n_bytes == batch->failed_namespace.n_bytes &&
            memcmp(namespace.bytes, batch->failed_namespace.bytes, namespace.n_bytes) == 0)
                return error_set_sentence(batch->failed, batch->failed_sentence);
        batch->wanted = namespace;
        return BATCH_OPENING;
}

int batch_open_readable(Batch *batch, const char *name, Space **ret_space, Key *ret_key)
{
        int r = batch_open(batch, name, ret_space, ret_key);

        if (r == 0 && !(*ret_space)->shared)
                r = error_set(FOLIO_E_ACCESS, "this user may not read in namespace %s", (*ret_space)->name);
        return r;
}

static void batch_opened(Op *op)
{
        Batch *batch = CONTAINER_OF(op, Batch, op);

        if (op->error) {
                batch->failed = op->error;
                batch->failed_namespace = batch->wanted;
                memcpy(batch->failed_sentence, op->sentence, sizeof(batch->failed_sentence));
                op->error = 0;
        } else {
                batch->is_opened = true;
        }
        batch_go(op);
}

/* --- an index that is being changed ------------------------------------------------------------------------------- */

/* Where foliod does not answer it is this item's error; the next ones find out for themselves. */
static void batch_asked(Op *op)
{
        Batch *batch = CONTAINER_OF(op, Batch, op);

        if (op->error) {
                batch_set_error(batch, batch->next, error_set_sentence(op->error, op->sentence));
                op->error = 0;
                batch->next++;
        }
        batch_go(op);
}

/* --- the cursor ------------------------------------------------------------------------------------------------------------------------ */

static void batch_end(Batch *batch)
{
        Op *op = &batch->op;
        size_t n = 0;

        if (batch->is_cancelled)
                op_fail_connection(op, FOLIO_E_CANCELLED);
        for (size_t i = 0; i < batch->n_items; i++) {
                int *error = error_of(batch, i);

                if (*error > 0)
                        *error = op->error ? op->error : FOLIO_E_CANCELLED;
                n += *error != 0;
        }
        op->answer = n > INT32_MAX ? INT32_MAX : (int)n;
        if (batch->kind->end)
                batch->kind->end(batch);
        bundles_deinit(&batch->bundles);
        op_complete(op);
}

/* What this client has asked for before shows in the index. */
static void batch_caught_up(Op *op)
{
        if (op->error)
                batch_end(CONTAINER_OF(op, Batch, op));
        else
                batch_go(op);
}

void batch_begin(Op *op)
{
        Batch *batch = CONTAINER_OF(op, Batch, op);

        bundles_init(&batch->bundles, op);
        for (size_t i = 0; i < batch->n_items; i++)
                *error_of(batch, i) = BATCH_PENDING;
        if (op->error == 0 && batch->kind->begin && !batch->kind->begin(batch))
                op_fail(op, FOLIO_E_NO_MEMORY, "this process has no memory left for a batch of %zu items", batch->n_items);
        if (op->error)
                batch_end(batch);
        else if (op->is_changing)
                /* Looks nothing up, and must not be overtaken: see order.h. */
                batch_go(op);
        else
                order_step(op, 0, batch_caught_up);
}

static void go_ahead(Batch *batch)
{
        batch->next_ahead = batch->n_items;
        if (!batch->kind->ahead)
                return;
        batch->next_ahead = batch->next + MIN(batch->n_items - batch->next, (size_t)BATCH_AHEAD);
        batch->kind->ahead(batch, batch->next, batch->next_ahead);
}

/* Where the client is being closed nothing begins any more, and what is under way has been ended. */
static BatchTurn turn(Batch *batch)
{
        if (batch->is_cancelled)
                return bundles_flush(&batch->bundles) ? BATCH_BUSY : BATCH_ON;
        for (; batch->next < batch->n_items; batch->next++) {
                BatchTurn what;

                if (batch->next >= batch->next_ahead)
                        go_ahead(batch);
                if (*error_of(batch, batch->next) != BATCH_PENDING)
                        continue;
                what = batch->kind->one(batch, batch->next);
                if (what != BATCH_ON)
                        return what;
        }
        return batch->kind->rest ? batch->kind->rest(batch) : BATCH_ON;
}

void batch_go(Op *op)
{
        Batch *batch = CONTAINER_OF(op, Batch, op);
        Bundle *bundle;

        batch->is_cancelled = client_is_closing(op->client);
        while ((bundle = bundles_take(&batch->bundles)))
                batch->kind->answered(batch, bundle);
        switch (turn(batch)) {
        case BATCH_ON:
                batch_end(batch);
                return;
        case BATCH_BUSY:
                bundles_wait(&batch->bundles, batch_go);
                return;
        case BATCH_OPENING:
                names_open(op, batch->wanted, batch_opened);
                return;
        case BATCH_UNSURE:
                if (batch->unsure_at != batch->next)
                        op->n_settles = 0;
                batch->unsure_at = batch->next;
                settle_ask(op, batch_asked);
                return;
        case BATCH_AWAY:
                return;
        }
}
