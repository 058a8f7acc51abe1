/* SPDX-License-Identifier: Apache-2.0 */
/* See names.h. Entries are published with release and found with acquire; only the reader's part adds any. */
#include "client/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/order.h"

static inline bool is_name(const Name *name, Key namespace)
{
        return name->n_bytes == namespace.n_bytes && memcmp(name->space->name, namespace.bytes, namespace.n_bytes) == 0;
}

Name *names_find_entry(Client *client, Key namespace)
{
        Name *name = atomic_load_explicit(&client->name_last, memory_order_acquire);

        if (LIKELY(name && is_name(name, namespace) && names_is_open(name->space)))
                return name;
        for (name = atomic_load_explicit(&client->names, memory_order_acquire); name; name = name->next)
                if (is_name(name, namespace))
                        break;
        /* The first of its name is the newest. */
        if (!name || !names_is_open(name->space))
                return NULL;
        atomic_store_explicit(&client->name_last, name, memory_order_release);
        return name;
}

Space *names_find(Client *client, Key namespace)
{
        Name *name = names_find_entry(client, namespace);

        return LIKELY(name) ? name->space : NULL;
}

Name *names_entry(Client *client, const Space *space)
{
        Name *name = atomic_load_explicit(&client->names, memory_order_acquire);

        while (name && name->space != space)
                name = name->next;
        return name;
}

static void fail_space(Op *op, int r, const char *name)
{
        if (r == SPACE_E_LAYOUT)
                op_fail(op, FOLIO_E_PROTOCOL, "the index of namespace %s is not one this library can read; is foliod newer?",
                        name);
        else
                op_fail(op, error_from_errno(r), "the index of namespace %s cannot be mapped: %s", name, strerror(-r));
}

static void take_namespace(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Client *client = op->client;
        const ProtoNamespace *ns = reply->namespaces;
        _cleanup_(cleanup_free) Name *name = NULL;
        Space *space;
        int r;

        if (reply->n_namespaces != 1 || (n_fds != 0 && n_fds != 2)) {
                op_fail_connection(op, FOLIO_E_PROTOCOL);
                return;
        }
        space = names_find(client, (Key){ ns->name, strlen(ns->name) });
        if (space && space->id == ns->id) {
                /* Another thread has opened it meanwhile. */
                op->space = space;
                return;
        }
        name = calloc(1, sizeof(*name));
        if (!name) {
                op_fail_connection(op, FOLIO_E_NO_MEMORY);
                return;
        }
        r = space_new(ns, atomic_load(&client->instance), n_fds == 2 ? steal_fd(&fds[0]) : -1, n_fds == 2 ? steal_fd(&fds[1]) : -1, &space);
        if (r != 0) {
                fail_space(op, r, ns->name);
                return;
        }
        name->space = space;
        name->n_bytes = strlen(space->name);
        name->writers = ns->writers;
        name->watch_fd = -1;
        name->next = atomic_load_explicit(&client->names, memory_order_relaxed);
        atomic_store_explicit(&client->names, name, memory_order_release);
        (void)steal_ptr(&name);
        op->space = space;
}

void names_open(Op *op, Key namespace, OpStep step)
{
        ProtoRequest message = { .verb = VERB_NAMESPACE_OPEN, .has_namespace = true };

        op->space = names_find(op->client, namespace);
        if (op->space) {
                step(op);
                return;
        }
        memcpy(message.ns.name, namespace.bytes, MIN(namespace.n_bytes, (size_t)FOLIO_NAMESPACE_BYTES_MAX));
        op_send(op, &message, take_namespace, step);
}

void names_open_to_look(Op *op, Key namespace, OpStep step)
{
        op->space = names_find(op->client, namespace);
        if (op->space)
                order_step(op, order_hash(op->space, op->key), step);
        else
                names_open(op, namespace, step);
}

void names_free(Client *client)
{
        Name *name = atomic_load(&client->names);

        while (name) {
                Name *next = name->next;

                (void)close_fd(name->watch_fd);
                space_unref(name->space);
                free(name);
                name = next;
        }
        atomic_store(&client->names, NULL);
}
