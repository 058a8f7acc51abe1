/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See reconnect.h. Only the reader's part takes requests out of the table, so one that has been found there, with the
 * lock, is still there when it has been judged without it. Of every request there is a copy of its bytes for as long
 * as it is under way: some hundred bytes beside a system call. Does not know what is said in a greeting, nor what
 * becomes of anything.
 */
#include "client/lib/reconnect.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/lib/request-private.h"
#include "folio/types.h"
#include "proto/status.h"

enum { TOLD_MAX = 256 };             /* the oldest goes: a session's end makes up for it */

void reconnect_enable(Requests *requests, const ReconnectConfig *config)
{
        requests_lock(requests);
        requests->reconnect = *config;
        requests->can_reconnect = true;
        requests->is_opening = false;
        requests->pause_ns = RECONNECT_PAUSE_NS;
        requests_unlock(requests);
}

bool reconnect_is_up(Requests *requests)
{
        bool is_up;

        requests_lock(requests);
        is_up = requests->error == 0 && requests->link == REQUESTS_UP;
        requests_unlock(requests);
        return is_up;
}

int reconnect_get_refusal(Requests *requests)
{
        return atomic_load(&requests->refused);
}

/* --- what to send again -------------------------------------------------------------------------------------------------------- */

static RequestCopy *copy_new(const void *bytes, size_t n_bytes)
{
        RequestCopy *copy = malloc(sizeof(*copy) + n_bytes);

        if (!copy)
                return NULL;
        *copy = (RequestCopy){ .n_bytes = n_bytes };
        memcpy(copy->bytes, bytes, n_bytes);
        return copy;
}

RequestCopy *reconnect_copy(Requests *requests, const ProtoRequest *message, const void *bytes, size_t n_bytes)
{
        RequestCopy *copy = copy_new(bytes, n_bytes);

        if (copy && requests->reconnect.mark)
                copy->mark = requests->reconnect.mark(requests->reconnect.userdata, message);
        return copy;
}

void reconnect_copy_free(RequestCopy *copy)
{
        if (!copy)
                return;
        free(copy->done);
        free(copy);
}

void reconnect_keep_told(Requests *requests, const void *bytes, size_t n_bytes)
{
        Told *told = malloc(sizeof(*told) + n_bytes);

        if (requests->n_told == TOLD_MAX) {
                free(LIST_ENTRY(list_take_front(&requests->told), Told, link));
                requests->n_told--;
        }
        if (!told)
                return;
        told->last_id = requests_last_id(requests);
        told->n_bytes = n_bytes;
        memcpy(told->bytes, bytes, n_bytes);
        list_push_back(&requests->told, &told->link);
        requests->n_told++;
}

void reconnect_forget_told(Requests *requests, uint64_t answered_id)
{
        for (List *link; (link = list_peek_front(&requests->told));) {
                Told *told = LIST_ENTRY(link, Told, link);

                if (told->last_id >= answered_id)
                        return;
                list_unlink(link);
                requests->n_told--;
                free(told);
        }
}

/* --- losing it ------------------------------------------------------------------------------------------------------------------ */

/* With the lock. Half of the pause, and up to as much again: of a hundred clients not all come at once. */
static uint64_t next_pause(Requests *requests, uint64_t now_ns)
{
        uint64_t pause_ns = requests->pause_ns, noise = (now_ns ^ (uintptr_t)requests) * UINT64_C(0x9e3779b97f4a7c15) >> 16;

        requests->pause_ns = MIN(pause_ns * 2, RECONNECT_PAUSE_NS_MAX);
        return pause_ns / 2 + noise % pause_ns;
}

/* With the lock: one that ends with the connection, as it was part of a greeting, or waits for what is late. NULL: none. */
static Request *take_bound(Requests *requests)
{
        LIST_FOREACH(link, &requests->by_age) {
                Request *request = LIST_ENTRY(link, Request, age_link);

                if (request->copy && !request->copy->is_greeting)
                        continue;
                requests_remove(request);
                return request;
        }
        return NULL;
}

static void end_bound(Requests *requests)
{
        for (;;) {
                Request *request;

                requests_lock(requests);
                request = take_bound(requests);
                requests_unlock(requests);
                if (!request)
                        return;
                requests_end(request, FOLIO_E_DAEMON_GONE, NULL, NULL, 0);
        }
}

/* With the lock. */
static void hang_up(Requests *requests)
{
        connection_deinit(&requests->connection);
        requests->serial++;
}

bool reconnect_lose(Requests *requests)
{
        uint64_t now_ns = connection_now_ns();
        bool is_lost;

        requests_lock(requests);
        is_lost = (requests->can_reconnect || requests->is_opening) && !requests->is_ended && requests->error == 0;
        if (is_lost)
                hang_up(requests);
        if (is_lost && requests->can_reconnect) {
                /* One that comes and goes is not tried at once. */
                requests->next_ns = now_ns;
                if (requests->link != REQUESTS_UP)
                        requests->next_ns += next_pause(requests, now_ns);
                requests->since_ns = now_ns;
                requests->link = REQUESTS_LOST;
                if (requests->reconnect.lost)
                        requests->reconnect.lost(requests->reconnect.userdata);
        }
        requests_unlock(requests);
        if (is_lost)
                end_bound(requests);
        return is_lost;
}

static void give_up(Requests *requests, int error, const ProtoReply *refusal)
{
        requests_end_all(requests, error, refusal);
        if (requests->reconnect.changed)
                requests->reconnect.changed(requests->reconnect.userdata, error);
}

void reconnect_refuse(Requests *requests, int error, const ProtoReply *refusal)
{
        uint64_t now_ns = connection_now_ns();

        requests_lock(requests);
        hang_up(requests);
        requests->link = REQUESTS_ABSENT;
        requests->refused = 0;
        requests->error = error;
        requests->next_ns = now_ns + next_pause(requests, now_ns);
        requests_unlock(requests);
        end_bound(requests);
        give_up(requests, error, refusal);
}

/* --- trying ---------------------------------------------------------------------------------------------------------------------- */

static void not_connected(Requests *requests, int r)
{
        uint64_t now_ns = connection_now_ns();
        bool is_over = false;

        requests_lock(requests);
        requests->refused = r;
        /* A full backlog is somebody's. */
        if (r == -EAGAIN)
                requests->since_ns = now_ns;
        requests->next_ns = now_ns + next_pause(requests, now_ns);
        if (requests->link == REQUESTS_LOST) {
                is_over = now_ns - requests->since_ns >= RECONNECT_ABSENT_NS;
                requests->next_ns = MIN(requests->next_ns, MAX(requests->since_ns + RECONNECT_ABSENT_NS, now_ns));
        }
        if (is_over) {
                requests->link = REQUESTS_ABSENT;
                requests->error = FOLIO_E_DAEMON_GONE;
                requests->next_ns = now_ns + next_pause(requests, now_ns);
        }
        requests_unlock(requests);
        if (is_over)
                give_up(requests, FOLIO_E_DAEMON_GONE, NULL);
}

void reconnect_step(Requests *requests)
{
        int socket = -1, r;
        bool is_due;

        requests_lock(requests);
        is_due = (requests->link == REQUESTS_LOST || requests->link == REQUESTS_ABSENT) && !requests->is_ended &&
                 connection_now_ns() >= requests->next_ns;
        requests_unlock(requests);
        if (!is_due)
                return;
        r = requests->reconnect.connect(requests->reconnect.userdata, &socket);
        if (r < 0) {
                not_connected(requests, r);
                return;
        }
        requests_lock(requests);
        if (requests->is_ended) {
                (void)close_fd(socket);
        } else {
                requests->connection.socket = socket;
                requests->link = REQUESTS_GREETING;
                requests->error = 0;
                requests->refused = 0;
                requests->serial++;
        }
        is_due = !requests->is_ended;
        requests_unlock(requests);
        if (is_due)
                requests->reconnect.greet(requests->reconnect.userdata);
}

void reconnect_send(Requests *requests, Request *request, ProtoRequest *message)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;
        int error = FOLIO_E_NO_MEMORY, r;

        request->id = message->id = atomic_fetch_add(&requests->last_id, 1) + 1;
        request->copy = NULL;
        if (proto_encode_request(message, bytes, &n_bytes))
                request->copy = copy_new(bytes, 0);
        if (request->copy) {
                request->copy->is_greeting = true;
                request->deadline_ns = UINT64_MAX;
                requests_lock(requests);
                error = requests->link == REQUESTS_GREETING ? requests->error : FOLIO_E_DAEMON_GONE;
                if (error == 0) {
                        requests_insert(requests, request);
                        r = requests_put(requests, bytes, n_bytes, false);
                        if (r != 0 && r != CONNECTION_E_GONE) {
                                error = FOLIO_E_NO_MEMORY;
                                requests_remove(request);
                        }
                }
                requests_unlock(requests);
        }
        if (error)
                requests_end(request, error, NULL, NULL, 0);
}

/* --- what was under way ---------------------------------------------------------------------------------------------------------- */

const ProtoReply *reconnect_join(Requests *requests, const RequestCopy *copy, const ProtoReply *reply, ProtoReply *ret)
{
        size_t n_items = copy->n_done + reply->n_items;

        if (!requests->items)
                requests->items = malloc(PROTO_ITEMS_MAX * sizeof(*requests->items));
        /* Then it has the wrong number of items, which its taker notices. */
        if (!requests->items || n_items > PROTO_ITEMS_MAX || reply->status != STATUS_OK)
                return reply;
        memcpy(requests->items, copy->done, copy->n_done * sizeof(*copy->done));
        if (reply->n_items > 0)
                memcpy(requests->items + copy->n_done, reply->items, reply->n_items * sizeof(*reply->items));
        *ret = *reply;
        ret->n_items = n_items;
        ret->items = requests->items;
        return ret;
}

static void end_judged(Requests *requests, Request *request, int error, const ProtoReply *reply)
{
        requests_lock(requests);
        requests_remove(request);
        requests_unlock(requests);
        requests_end(request, error, reply, NULL, 0);
}

/* What is left of @message, as a request of its own: nothing that it does is to be taken for what the first one did. */
static bool cut_off(Requests *requests, Request *request, const ProtoRequest *message, const RequestFate *fate)
{
        RequestCopy *old = request->copy, *copy;
        ProtoRequest rest = *message;
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes, n_done = old->n_done + fate->n_done;

        rest.id = atomic_fetch_add(&requests->last_id, 1) + 1;
        rest.items += fate->n_done;
        rest.n_items -= fate->n_done;
        if (!proto_encode_request(&rest, bytes, &n_bytes))
                return false;
        copy = copy_new(bytes, n_bytes);
        if (copy)
                copy->done = malloc(n_done * sizeof(*copy->done));
        if (!copy || !copy->done) {
                reconnect_copy_free(copy);
                return false;
        }
        copy->n_done = n_done;
        copy->is_judged = true;
        copy->mark = old->mark;
        if (old->n_done > 0)
                memcpy(copy->done, old->done, old->n_done * sizeof(*copy->done));
        memcpy(copy->done + old->n_done, fate->items, fate->n_done * sizeof(*copy->done));
        requests_lock(requests);
        /* Its place by age stays. */
        list_unlink(&request->link);
        request->id = rest.id;
        list_push_back(&requests->buckets[request->id % REQUEST_BUCKETS], &request->link);
        request->copy = copy;
        requests_unlock(requests);
        reconnect_copy_free(old);
        return true;
}

static void judge(Requests *requests, Request *request, RequestFate *fate)
{
        RequestCopy *copy = request->copy;
        ProtoRequest message;
        ProtoReply reply = { .id = request->id }, whole;

        memset(fate, 0, sizeof(*fate));
        /* These are our own bytes. */
        if (!proto_decode_request(requests->decoder, copy->bytes, copy->n_bytes, &message)) {
                end_judged(requests, request, FOLIO_E_PROTOCOL, NULL);
                return;
        }
        requests->reconnect.judge(requests->reconnect.userdata, &message, copy->is_sent, copy->mark, fate);
        if (fate->status != STATUS_OK) {
                reply.status = fate->status;
                if (fate->detail)
                        reply.detail = (Key){ fate->detail, strlen(fate->detail) };
                end_judged(requests, request, 0, &reply);
        } else if (fate->n_done > 0 && fate->n_done == message.n_items) {
                reply.n_items = fate->n_done;
                reply.items = fate->items;
                end_judged(requests, request, 0, copy->n_done > 0 ? reconnect_join(requests, copy, &reply, &whole) : &reply);
        } else if (fate->n_done > 0 && !cut_off(requests, request, &message, fate)) {
                end_judged(requests, request, FOLIO_E_NO_MEMORY, NULL);
        }
}

/* With the lock. NULL: all have been judged. */
static Request *next_unjudged(Requests *requests)
{
        LIST_FOREACH(link, &requests->by_age) {
                Request *request = LIST_ENTRY(link, Request, age_link);

                if (request->copy && !request->copy->is_greeting && !request->copy->is_judged)
                        return request;
        }
        return NULL;
}

/* With the lock. False: no memory. What the other side has hung up on is noticed by who reads. */
static bool send_all(Requests *requests)
{
        int r;

        LIST_FOREACH(link, &requests->told) {
                Told *told = LIST_ENTRY(link, Told, link);

                r = requests_put(requests, told->bytes, told->n_bytes, false);
                if (r != 0 && r != CONNECTION_E_GONE)
                        return false;
        }
        LIST_FOREACH(link, &requests->by_age) {
                RequestCopy *copy = LIST_ENTRY(link, Request, age_link)->copy;

                if (!copy || copy->is_greeting)
                        continue;
                copy->is_sent = true;
                copy->is_judged = false;
                r = requests_put(requests, copy->bytes, copy->n_bytes, false);
                if (r != 0 && r != CONNECTION_E_GONE)
                        return false;
        }
        return true;
}

void reconnect_finish(Requests *requests)
{
        RequestFate *fate = malloc(sizeof(*fate));
        bool is_sent;

        if (!fate) {
                (void)reconnect_lose(requests);
                return;
        }
        requests_lock(requests);
        LIST_FOREACH(link, &requests->by_age) {
                RequestCopy *copy = LIST_ENTRY(link, Request, age_link)->copy;

                if (copy)
                        copy->is_judged = false;
        }
        for (Request *request; (request = next_unjudged(requests));) {
                request->copy->is_judged = true;
                requests_unlock(requests);
                judge(requests, request, fate);
                requests_lock(requests);
        }
        requests->link = REQUESTS_UP;
        requests->pause_ns = RECONNECT_PAUSE_NS;
        is_sent = requests->is_ended || send_all(requests);
        requests_unlock(requests);
        free(fate);
        if (!is_sent)
                (void)reconnect_lose(requests);
        else if (requests->reconnect.changed)
                requests->reconnect.changed(requests->reconnect.userdata, 0);
}
