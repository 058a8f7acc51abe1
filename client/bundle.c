/* SPDX-License-Identifier: Apache-2.0 */
/* See bundle.h. What a reply borrows is copied in the reader's part; everything else is done by the thread that asked. */
#include "client/bundle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proto/status.h"

/* What a request takes besides its items: id, verb, namespace. */
#define BUNDLE_HEAD_BYTES 64u

void bundles_init(Bundles *bundles, Client *client)
{
        *bundles = (Bundles){ .client = client };
        list_init(&bundles->answered);
        list_init(&bundles->idle);
}

void bundles_deinit(Bundles *bundles)
{
        assert(bundles->n_under_way == 0);
        for (List *link; (link = list_take_front(&bundles->idle));)
                free(LIST_ENTRY(link, Bundle, link));
}

Bundle *bundle_new(Bundles *bundles, Space *space, ProtoVerb verb)
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
        /* As many as descriptors fit into an answer, where there is one for each. */
        bundle->n_items_max = verb == VERB_REGION ? PROTO_FDS_MAX : PROTO_ITEMS_MAX;
        bundle->n_bytes = BUNDLE_HEAD_BYTES;
        bundle->has_staged = false;
        bundle->error = 0;
        bundle->n_fds = 0;
        bundle->sentence[0] = '\0';
        return bundle;
}

bool bundle_add(Bundle *bundle, const ProtoItem *item, size_t index, void *staged)
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
                operation_explain(bundle->owner->client, FOLIO_E_PROTOCOL, bundle->sentence);
                return;
        }
        for (size_t i = 0; i < reply->n_items; i++) {
                const ProtoItemReply *item = &reply->items[i];

                bundle->replies[i] = *item;
                bundle->replies[i].detail = (Key){ 0 };
                if (item->status == STATUS_OK || bundle->sentence[0])
                        continue;
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
        Client *client = bundle->owner->client;

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
        Client *client = bundle->owner->client;

        bundle->error = error;
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
        requests_wake(client->requests);
        requests_unlock(client->requests);
}

void bundle_send(Bundle *bundle)
{
        ProtoRequest message = {
                .verb = bundle->verb,
                .namespace_id = bundle->space->id,
                .n_items = bundle->n_items,
                .items = bundle->items,
        };

        bundle->owner->n_under_way++;
        bundle->has_staged = bundle->verb == VERB_PUT;
        if (bundle->has_staged)
                operations_staged_begin(bundle->owner->client);
        bundle->request.done = on_answer;
        requests_send(bundle->owner->client->requests, &bundle->request, &message);
}

static bool has_answered(void *userdata)
{
        return !list_is_empty(&((Bundles *)userdata)->answered);
}

Bundle *bundles_take(Bundles *bundles)
{
        Requests *requests = bundles->client->requests;
        Bundle *bundle;

        if (bundles->n_under_way == 0)
                return NULL;
        operations_wait(bundles->client, has_answered, bundles);
        requests_lock(requests);
        bundle = LIST_ENTRY(list_take_front(&bundles->answered), Bundle, link);
        requests_unlock(requests);
        bundles->n_under_way--;
        return bundle;
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
        return error_set_sentence(status_to_error(bundle->replies[i].status), bundle->sentence);
}

int bundle_take_fd(Bundle *bundle, size_t i)
{
        uint32_t descriptor = bundle->replies[i].descriptor;

        if (descriptor == 0 || descriptor > bundle->n_fds)
                return -1;
        return steal_fd(&bundle->fds[descriptor - 1]);
}
