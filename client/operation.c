/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machinery of operations: how a reply becomes the next step, who runs it, and how it ends.
 *
 * An asynchronous operation that can go on stands in client->ready until a thread comes by: folio_client_process(), a
 * blocking call, or the *_async() function that has just begun it. Callbacks are called from there and nowhere else,
 * one below the other, never one inside the other: a chain of a million calls that complete at once needs no stack.
 */
#include "client/operation.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/resume.h"
#include "proto/status.h"

/* The client whose ready operations this thread is running. */
static _Thread_local Client *running;

void op_init(Op *op, Client *client)
{
        /* The two texts at the end are written before they are read. */
        memset(op, 0, offsetof(Op, name));
        op->name[0] = '\0';
        op->sentence[0] = '\0';
        op->client = client;
        op->fd = -1;
        op->is_waited = true;
        list_init(&op->link);
}

void op_deinit(Op *op)
{
        op->fd = close_fd(op->fd);
}

void op_set_async(Op *op, folio_done_fn done, void *userdata, void (*free)(Op *op))
{
        op->done = done;
        op->userdata = userdata;
        op->free = free;
        op->is_waited = false;
}

bool op_set_name(Op *op, const char *name)
{
        size_t n_bytes = name ? strnlen(name, sizeof(op->name)) : 0;
        Key namespace;

        if (n_bytes > 0 && n_bytes < sizeof(op->name)) {
                memcpy(op->name, name, n_bytes + 1);
                if (key_split_name(op->name, false, &namespace, &op->key))
                        return true;
        }
        op_fail_as_thread(op, error_set_name(name, false));
        return false;
}

/* --- errors ------------------------------------------------------------------------------------------------------------ */

static void fail(Op *op, int error)
{
        if (op->error == 0)
                op->error = error;
}

void op_fail(Op *op, int error, const char *format, ...)
{
        va_list arguments;

        if (op->error)
                return;
        va_start(arguments, format);
        error_format_v(op->sentence, format, arguments);
        va_end(arguments);
        fail(op, error);
}

void op_fail_status(Op *op, uint32_t status, Key detail)
{
        const char *subject = op->name[0] ? op->name : "the request";

        if (detail.n_bytes > 0)
                op_fail(op, status_to_error(status), "%.330s%s%.*s", op->name, op->name[0] ? ": " : "", (int)detail.n_bytes,
                        detail.bytes);
        else
                op_fail(op, status_to_error(status), "%.330s: %s", subject, status_to_text(status));
}

void operation_explain(const Client *client, int error, char *sentence)
{
        switch (error) {
        case FOLIO_E_TIMEOUT:
                error_format(sentence, "foliod at %s has not answered within %llu ms", client->address,
                             (unsigned long long)(client->timeout_ns / 1000000));
                return;
        case FOLIO_E_DAEMON_GONE:
                resume_explain(client, sentence);
                return;
        case FOLIO_E_CANCELLED:
                error_format(sentence, "the client was closed before the request was answered");
                return;
        case FOLIO_E_LIMIT:
                error_format(sentence, "foliod's answer lost its descriptors: this process has too many open (RLIMIT_NOFILE)");
                return;
        case FOLIO_E_NO_MEMORY:
                error_format(sentence, "this process has no memory left for the request");
                return;
        case FOLIO_E_PROTOCOL:
                error_format(sentence, "what came from %s is none of foliod's messages, or breaks their rules: another program "
                                       "may be listening there, or a foliod of another version", client->address);
                return;
        }
        error_format(sentence, "the connection to foliod at %s failed: %s", client->address, folio_strerror(error));
}

void op_fail_connection(Op *op, int error)
{
        char sentence[ERROR_SENTENCE_BYTES];

        operation_explain(op->client, error, sentence);
        op_fail(op, error, "%s", sentence);
}

void op_fail_as_thread(Op *op, int error)
{
        if (error < 0)
                op_fail(op, error, "%s", error_get_sentence());
}

/* --- steps ---------------------------------------------------------------------------------------------------------------- */

void op_make_ready(Op *op, OpStep step)
{
        op->step = step;
        if (op->is_waited)
                op->is_ready = true;
        else
                list_push_back(&op->client->ready, &op->link);
        requests_wake(op->client->requests);
}

void op_schedule(Op *op, OpStep step)
{
        Requests *requests = op->client->requests;

        requests_lock(requests);
        op_make_ready(op, step);
        requests_unlock(requests);
}

/* What was told before this request was sent has been done before it was answered. */
static void settle_told(Client *client, uint64_t request_id)
{
        uint64_t told_id = atomic_load(&client->told_id);

        if (told_id != 0 && request_id > told_id)
                (void)atomic_compare_exchange_strong(&client->told_id, &told_id, 0);
}

/* In the reader's part, or in the thread that sends. */
static void on_reply(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Op *op = CONTAINER_OF(request, Op, request);
        OpSettle settle = op->settle;

        op->settle = NULL;
        if (UNLIKELY(atomic_load(&op->client->told_id) != 0) && error == 0)
                settle_told(op->client, request->id);
        op->has_late_item = error && reply && reply->n_items == 1 && reply->items[0].status == STATUS_OK;
        if (op->has_late_item)
                op->item = reply->items[0];
        if (error)
                op_fail_connection(op, error);
        else if (reply->status != STATUS_OK)
                op_fail_status(op, reply->status, reply->detail);
        else if (op->take)
                op->take(op, reply, fds, n_fds);
        if (settle)
                settle(op, error);
        op_schedule(op, op->step);
}

void op_send(Op *op, ProtoRequest *message, OpTake take, OpStep step)
{
        op->take = take;
        op->step = step;
        op->request.done = on_reply;
        requests_send(op->client->requests, &op->request, message);
}

static void take_item(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        const ProtoItemReply *item = reply->items;

        if (reply->n_items != 1) {
                op_fail_connection(op, FOLIO_E_PROTOCOL);
                return;
        }
        if (item->status != STATUS_OK) {
                op_fail_status(op, item->status, item->detail);
                return;
        }
        op->item = *item;
        op->item.detail = (Key){ 0 };
        op->fd = close_fd(op->fd);
        if (item->descriptor > n_fds)
                op_fail_connection(op, FOLIO_E_PROTOCOL);
        else if (item->descriptor > 0)
                op->fd = steal_fd(&fds[item->descriptor - 1]);
}

void op_send_item(Op *op, ProtoVerb verb, const ProtoItem *item, OpStep step)
{
        ProtoRequest message = {
                .verb = verb,
                .namespace_id = op->space->id,
                .n_items = 1,
                .items = item,
        };

        OpSettle settle = op->settle;

        if (LIKELY(resume_is_current(op->client, op->space))) {
                op_send(op, &message, take_item, step);
                return;
        }
        op_fail(op, FOLIO_E_DAEMON_GONE, OPERATION_OTHER_STORE, op->space->name);
        op->settle = NULL;
        if (settle)
                settle(op, FOLIO_E_DAEMON_GONE);
        op_schedule(op, step);
}

/* --- running ---------------------------------------------------------------------------------------------------------------- */

static void finish(Op *op)
{
        if (op->is_changing)
                atomic_fetch_sub(&op->client->n_changing, 1);
        if (op->error || op->sentence[0])
                (void)error_set_sentence(op->error, op->sentence);
        op->done(op->client, op->error ? op->error : op->answer, op->error ? NULL : op->object, op->userdata);
        op->free(op);
}

void op_complete(Op *op)
{
        if (op->is_waited) {
                op->is_complete = true;
                return;
        }
        op_schedule(op, finish);
}

unsigned operations_run_ready(Client *client)
{
        Client *outer = running;
        unsigned n_finished = 0;

        if (outer == client)
                return 0;
        running = client;
        client_add_user(client);
        for (;;) {
                List *link;
                Op *op;

                requests_lock(client->requests);
                link = list_take_front(&client->ready);
                requests_unlock(client->requests);
                if (!link)
                        break;
                op = LIST_ENTRY(link, Op, link);
                if (op->step == finish && !op->is_part)
                        n_finished++;
                op->step(op);
        }
        running = outer;
        client_release_user(client);
        return n_finished;
}

/* With the lock. */
static void retry_all(Client *client, List *waiting, int error)
{
        for (List *link; (link = list_take_front(waiting));) {
                Op *op = LIST_ENTRY(link, Op, link);

                if (error)
                        op_fail_connection(op, error);
                op_make_ready(op, op->step);
        }
}

void operations_retry_gets(Client *client, int error)
{
        requests_lock(client->requests);
        client->gets_deadline_ns = UINT64_MAX;
        retry_all(client, &client->gets, error);
        requests_unlock(client->requests);
}

bool operations_found(Client *client, struct Found *found)
{
        bool is_wanted;

        requests_lock(client->requests);
        is_wanted = !list_is_empty(&client->connecting);
        if (is_wanted)
                client->found = found;
        retry_all(client, &client->connecting, 0);
        requests_unlock(client->requests);
        return is_wanted;
}

void operations_opened(Client *client, int error)
{
        requests_lock(client->requests);
        atomic_store_explicit(&client->is_opening, false, memory_order_release);
        retry_all(client, &client->opening_waiters, error);
        requests_unlock(client->requests);
}

void operations_cancel(Client *client)
{
        Client *outer = running;

        requests_close(client->requests, FOLIO_E_CANCELLED);
        operations_retry_gets(client, FOLIO_E_CANCELLED);
        requests_lock(client->requests);
        retry_all(client, &client->staging_waiters, FOLIO_E_CANCELLED);
        retry_all(client, &client->connecting, FOLIO_E_CANCELLED);
        requests_unlock(client->requests);
        operations_opened(client, FOLIO_E_CANCELLED);
        running = NULL;
        (void)operations_run_ready(client);
        running = outer;
}

typedef struct Wait {
        Client *client;
        bool (*is_enough)(void *userdata);
        void *userdata;
        bool may_run;                /* false inside a callback, whose thread runs what is ready afterwards */
} Wait;

static bool is_enough_or_ready(void *userdata)
{
        Wait *wait = userdata;

        return wait->is_enough(wait->userdata) || (wait->may_run && !list_is_empty(&wait->client->ready));
}

void operations_wait(Client *client, bool (*is_enough)(void *userdata), void *userdata)
{
        Wait wait = { client, is_enough, userdata, running != client };
        bool is_over;

        do {
                requests_wait(client->requests, is_enough_or_ready, &wait);
                (void)operations_run_ready(client);
                requests_lock(client->requests);
                is_over = is_enough(userdata);
                requests_unlock(client->requests);
        } while (!is_over);
}

static bool op_is_ready(void *userdata)
{
        return ((Op *)userdata)->is_ready;
}

/* True: it begins when the client is open. */
static bool hold(Op *op, OpStep first)
{
        Client *client = op->client;
        bool is_held;

        if (LIKELY(!atomic_load_explicit(&client->is_opening, memory_order_acquire)))
                return false;
        requests_lock(client->requests);
        is_held = atomic_load_explicit(&client->is_opening, memory_order_relaxed);
        if (is_held) {
                op->step = first;
                list_push_back(&client->opening_waiters, &op->link);
        }
        requests_unlock(client->requests);
        return is_held;
}

int op_run(Op *op, OpStep first)
{
        if (!hold(op, first))
                first(op);
        return op_wait(op);
}

int op_wait(Op *op)
{
        assert(op->is_waited);
        while (!op->is_complete) {
                operations_wait(op->client, op_is_ready, op);
                op->is_ready = false;
                op->step(op);
        }
        if (op->error || op->sentence[0])
                (void)error_set_sentence(op->error, op->sentence);
        return op->error ? op->error : op->answer;
}

int op_wait_quietly(Op *op)
{
        char sentence[ERROR_SENTENCE_BYTES];
        int r;

        error_format(sentence, "%s", error_get_sentence());
        r = op_wait(op);
        (void)error_set_sentence(r, sentence);
        return r;
}

void op_begin(Op *op, OpStep first)
{
        Client *client = op->client;

        if (op->is_changing)
                atomic_fetch_add(&client->n_changing, 1);
        if (!hold(op, first))
                first(op);
        (void)operations_run_ready(client);
}

/* --- staging ------------------------------------------------------------------------------------------------------------------ */

void operations_staged_begin(Client *client)
{
        requests_lock(client->requests);
        client->n_staged++;
        requests_unlock(client->requests);
}

static void staged_end(Client *client, bool is_counted)
{
        requests_lock(client->requests);
        if (is_counted)
                client->n_staged--;
        /* All of them: who finds no room waits again. Those that fit together go together. */
        retry_all(client, &client->staging_waiters, 0);
        requests_unlock(client->requests);
}

void operations_staged_end(Client *client, void *data)
{
        if (data)
                staging_give(client->staging, data);
        staged_end(client, true);
}

typedef struct Orphan {
        Request request;
        Client *client;
        size_t n;
        void *data[];
} Orphan;

static void on_orphan(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Orphan *orphan = CONTAINER_OF(request, Orphan, request);

        for (size_t i = 0; i < orphan->n; i++)
                if (orphan->data[i])
                        staging_give(orphan->client->staging, orphan->data[i]);
        staged_end(orphan->client, false);
        free(orphan);
}

void operations_staged_orphan(Client *client, void *const *data, size_t n, uint64_t request_id)
{
        Orphan *orphan = malloc(sizeof(*orphan) + n * sizeof(void *));

        /* Without memory for the record the room is lost until the client is closed; giving it away too early would be worse. */
        if (orphan) {
                *orphan = (Orphan){ .request.done = on_orphan, .client = client, .n = n };
                memcpy(orphan->data, data, n * sizeof(void *));
                requests_expect(client->requests, request_id, &orphan->request);
        }
        staged_end(client, true);
}

bool op_wait_staging(Op *op, OpStep step)
{
        Client *client = op->client;
        bool is_waiting;

        requests_lock(client->requests);
        is_waiting = client->n_staged > 0;
        if (is_waiting) {
                op->step = step;
                list_push_back(&client->staging_waiters, &op->link);
        }
        requests_unlock(client->requests);
        return is_waiting;
}
