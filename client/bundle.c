/* SPDX-License-Identifier: Apache-2.0 */
/* See bundle.h. What a reply borrows is copied in the reader's part; everything else is done by the steps of the operation. */
#include "client/bundle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/resume.h"
#include "proto/status.h"

/* What a request takes besides its items: id, verb, namespace. */
#define BUNDLE_HEAD_BYTES 64u

void bundles_init(Bundles *bundles, Op *op)
{
        *bundles = (Bundles){ .op = op, .n_max = BUNDLES_UNDER_WAY_MAX, .n_fds_max = PROTO_FDS_MAX };
        list_init(&bundles->answered);
        list_init(&bundles->idle);
        list_init(&bundles->filling);
}

void bundles_deinit(Bundles *bundles)
{
        assert(bundles->n_under_way == 0 && bundles->n_filling == 0);
        for (List *link; (link = list_take_front(&bundles->idle));)
                free(LIST_ENTRY(link, Bundle, link));
}

/* An empty one, being filled; NULL: no memory. */
static Bundle *bundle_new(Bundles *bundles, Space *space, ProtoVerb verb)
{
        List *link = list_take_front(&bundles->idle);
        Bundle *bundle = link ? LIST_ENTRY(link, Bundle, link) : malloc(sizeof(*bundle));

        if (!bundle)
                return NULL;
        list_init(&bundle->link);
        bundle->owner = bundles;
        bundle->space = space;
        bundle->verb = verb;
        bundle->n_items = 0;
        bundle->n_items_max = verb == VERB_REGION || verb == VERB_CREATE ? bundles->n_fds_max : PROTO_ITEMS_MAX;
        bundle->n_bytes = BUNDLE_HEAD_BYTES;
        bundle->has_staged = false;
        bundle->error = 0;
        bundle->is_lost = false;
        bundle->n_fds = 0;
        bundle->first_failed = 0;
        bundle->sentence[0] = '\0';
        list_push_back(&bundles->filling, &bundle->link);
        bundles->n_filling++;
        return bundle;
}

/* False: it is full. */
static bool bundle_add(Bundle *bundle, const ProtoItem *item, size_t index, void *staged)
{
        size_t n_bytes = proto_item_bytes(item), i = bundle->n_items;

        if (i >= bundle->n_items_max || bundle->n_bytes + n_bytes > PROTO_MESSAGE_BYTES_MAX)
                return false;
        bundle->items[i] = *item;
        bundle->index[i] = index;
        bundle->staged[i] = staged;
        bundle->n_bytes += n_bytes;
        bundle->n_items++;
        return true;
}

/* In the reader's part. */
static void take_replies(Bundle *bundle, const ProtoReply *reply, int *fds, size_t n_fds)
{
        if (reply->n_items != bundle->n_items) {
                bundle->error = FOLIO_E_PROTOCOL;
                operation_explain(bundle->owner->op->client, FOLIO_E_PROTOCOL, bundle->sentence);
                return;
        }
        for (size_t i = 0; i < reply->n_items; i++) {
                const ProtoItemReply *item = &reply->items[i];

                bundle->replies[i] = *item;
                bundle->replies[i].detail = (Key){ 0 };
                if (item->status == STATUS_OK || bundle->sentence[0])
                        continue;
                bundle->first_failed = i;
                if (item->detail.n_bytes > 0)
                        error_format(bundle->sentence, "%.*s", (int)item->detail.n_bytes, item->detail.bytes);
                else
                        error_format(bundle->sentence, "%.*s: %s", (int)bundle->items[i].key.n_bytes,
                                     bundle->items[i].key.bytes, status_to_text(item->status));
        }
        for (size_t i = 0; i < n_fds; i++)
                bundle->fds[bundle->n_fds++] = steal_fd(&fds[i]);
}

static void settle_staged(Bundle *bundle, int error)
{
        Client *client = bundle->owner->op->client;

        if (!bundle->has_staged)
                return;
        if (error == FOLIO_E_TIMEOUT) {
                operations_staged_orphan(client, bundle->staged, bundle->n_items, bundle->request.id);
                return;
        }
        for (size_t i = 0; i < bundle->n_items; i++)
                if (bundle->staged[i])
                        staging_give(client->staging, bundle->staged[i]);
        operations_staged_end(client, NULL);
}

static void on_answer(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Bundle *bundle = CONTAINER_OF(request, Bundle, request);
        Client *client = bundle->owner->op->client;

        bundle->error = error;
        if (error == FOLIO_E_LIMIT && reply && reply->n_items == bundle->n_items) {
                take_replies(bundle, reply, NULL, 0);
                bundle->is_lost = true;
        }
        if (error)
                operation_explain(client, error, bundle->sentence);
        else if (reply->status != STATUS_OK) {
                bundle->error = status_to_error(reply->status);
                error_format(bundle->sentence, "%.*s", (int)reply->detail.n_bytes, reply->detail.bytes);
        } else
                take_replies(bundle, reply, fds, n_fds);
        settle_staged(bundle, error);
        requests_lock(client->requests);
        list_push_back(&bundle->owner->answered, &bundle->link);
        if (bundle->owner->is_waiting) {
                bundle->owner->is_waiting = false;
                op_make_ready(bundle->owner->op, bundle->owner->op->step);
        }
        requests_unlock(client->requests);
}

static void bundle_send(Bundle *bundle)
{
        Bundles *owner = bundle->owner;
        Client *client = owner->op->client;
        ProtoRequest message = {
                .verb = bundle->verb,
                .namespace_id = bundle->space->id,
                .n_items = bundle->n_items,
                .items = bundle->items,
        };

        list_unlink(&bundle->link);
        owner->n_filling--;
        bundle->is_alone = owner->n_under_way++ == 0;
        bundle->has_staged = bundle->verb == VERB_PUT || bundle->verb == VERB_WRITE;
        if (bundle->has_staged)
                operations_staged_begin(client);
        bundle->request.done = on_answer;
        requests_send(client->requests, &bundle->request, &message);
}

Bundle *bundles_peek(Bundles *bundles, const Space *space, ProtoVerb verb)
{
        LIST_FOREACH(link, &bundles->filling) {
                Bundle *bundle = LIST_ENTRY(link, Bundle, link);

                if (bundle->space == space && bundle->verb == verb)
                        return bundle;
        }
        return NULL;
}

int bundles_add(Bundles *bundles, Space *space, ProtoVerb verb, const ProtoItem *item, size_t index, void *staged)
{
        Bundle *bundle = bundles_peek(bundles, space, verb);

        if (UNLIKELY(!resume_is_current(bundles->op->client, space)))
                return error_set(FOLIO_E_DAEMON_GONE, OPERATION_OTHER_STORE, space->name);
        if (bundle && bundle_add(bundle, item, index, staged))
                return BUNDLES_ADDED;
        if (bundle)
                bundle_send(bundle);
        if (bundles->n_filling + bundles->n_under_way >= bundles->n_max) {
                List *oldest = list_peek_front(&bundles->filling);

                if (oldest)
                        bundle_send(LIST_ENTRY(oldest, Bundle, link));
                return BUNDLES_BUSY;
        }
        bundle = bundle_new(bundles, space, verb);
        if (!bundle)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
        if (bundle_add(bundle, item, index, staged))
                return BUNDLES_ADDED;
        list_unlink(&bundle->link);
        bundles->n_filling--;
        bundle_give(bundle);
        return error_set(FOLIO_E_INVALID, "the item does not fit into a message");
}

bool bundles_flush(Bundles *bundles)
{
        for (List *link; (link = list_peek_front(&bundles->filling));)
                bundle_send(LIST_ENTRY(link, Bundle, link));
        return bundles->n_under_way > 0;
}

Bundle *bundles_take(Bundles *bundles)
{
        Requests *requests = bundles->op->client->requests;
        List *link;

        if (bundles->n_under_way == 0)
                return NULL;
        requests_lock(requests);
        link = list_take_front(&bundles->answered);
        requests_unlock(requests);
        if (!link)
                return NULL;
        bundles->n_under_way--;
        return LIST_ENTRY(link, Bundle, link);
}

void bundles_wait(Bundles *bundles, OpStep step)
{
        Op *op = bundles->op;
        Requests *requests = op->client->requests;

        assert(bundles->n_under_way > 0);
        requests_lock(requests);
        if (list_is_empty(&bundles->answered)) {
                op->step = step;
                bundles->is_waiting = true;
        } else {
                op_make_ready(op, step);
        }
        requests_unlock(requests);
}

void bundle_give(Bundle *bundle)
{
        for (size_t i = 0; i < bundle->n_fds; i++)
                (void)close_fd(bundle->fds[i]);
        bundle->n_fds = 0;
        list_push_back(&bundle->owner->idle, &bundle->link);
}

int bundle_get_error(const Bundle *bundle, size_t i)
{
        if (bundle->error)
                return error_set_sentence(bundle->error, bundle->sentence);
        if (bundle->replies[i].status == STATUS_OK)
                return 0;
        if (i == bundle->first_failed)
                return error_set_sentence(status_to_error(bundle->replies[i].status), bundle->sentence);
        return error_set(status_to_error(bundle->replies[i].status), "%s", status_to_text(bundle->replies[i].status));
}

int bundle_take_fd(Bundle *bundle, size_t i)
{
        uint32_t descriptor = bundle->replies[i].descriptor;

        if (descriptor == 0 || descriptor > bundle->n_fds)
                return -1;
        return steal_fd(&bundle->fds[descriptor - 1]);
}
