/* SPDX-License-Identifier: Apache-2.0 */
/* For those who run a store: each call is one request, and its answer copied. */
#include "folio/admin.h"

#include <stdio.h>
#include <string.h>

#include "client/operation.h"

/* Of any public struct that begins with struct_bytes: what a caller with an older or newer header gets. */
static void give(void *array, size_t i, size_t struct_bytes, void *full, size_t full_bytes)
{
        memcpy(full, &struct_bytes, sizeof(struct_bytes));
        memcpy((uint8_t *)array + i * struct_bytes, full, MIN(struct_bytes, full_bytes));
}

typedef struct AdminOp {
        Op op;
        void *entries;
        size_t n_max;
        size_t struct_bytes;
        size_t n_filled;
        size_t n_all;
        char last_name[FOLIO_NAMESPACE_BYTES_MAX + 1];
} AdminOp;

static int ask(AdminOp *admin, Client *client, ProtoRequest *message, OpTake take)
{
        int r;

        op_init(&admin->op, client);
        op_send(&admin->op, message, take, op_complete);
        r = op_wait(&admin->op);
        op_deinit(&admin->op);
        return r;
}

/* --- namespaces ------------------------------------------------------------------------------------------------------------------------- */

static int change(Client *client, ProtoVerb verb, const struct folio_namespace *given)
{
        struct folio_namespace settings = { 0 };
        ProtoRequest message = { .verb = verb, .has_namespace = true };
        AdminOp admin = { 0 };
        size_t n_name;
        int r = client_check(client);

        if (r == 0 && (!given || given->struct_bytes == 0))
                r = error_set(FOLIO_E_INVALID, "folio_namespace.struct_bytes is not set");
        if (r < 0)
                return r;
        memcpy(&settings, given, MIN(given->struct_bytes, sizeof(settings)));
        n_name = strnlen(settings.name, sizeof(settings.name));
        if (!key_is_valid_namespace(settings.name, n_name))
                return error_set(FOLIO_E_INVALID, "\"%.63s\" is not a name for a namespace: 1 to %d of a-z 0-9 . _ -",
                                 settings.name, FOLIO_NAMESPACE_BYTES_MAX);
        memcpy(message.ns.name, settings.name, n_name);
        message.ns.fields = settings.fields;
        message.ns.owner_uid = settings.owner_uid;
        message.ns.owner_gid = settings.owner_gid;
        message.ns.mode = settings.mode;
        message.ns.quota_bytes = settings.quota_bytes;
        message.ns.quota_objects = settings.quota_objects;
        message.ns.objects_max = settings.objects_max;
        message.ns.backing = settings.backing;
        message.ns.huge = settings.huge;
        return ask(&admin, client, &message, NULL);
}

_public_ int folio_namespace_add(struct folio_client *client, const struct folio_namespace *settings)
{
        return change(client, VERB_NAMESPACE_ADD, settings);
}

_public_ int folio_namespace_set(struct folio_client *client, const struct folio_namespace *settings)
{
        return change(client, VERB_NAMESPACE_SET, settings);
}

_public_ int folio_namespace_remove(struct folio_client *client, const char *name)
{
        struct folio_namespace settings = { .struct_bytes = sizeof(settings) };

        if (!name || strnlen(name, sizeof(settings.name)) == sizeof(settings.name))
                return error_set(FOLIO_E_INVALID, "\"%.80s\" is not a name of a namespace", name ? name : "(null)");
        memcpy(settings.name, name, strlen(name) + 1);
        return change(client, VERB_NAMESPACE_REMOVE, &settings);
}

static void take_namespaces(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        AdminOp *admin = CONTAINER_OF(op, AdminOp, op);

        admin->n_all = reply->n_namespaces;
        for (size_t i = 0; i < reply->n_namespaces && admin->n_filled < admin->n_max; i++) {
                const ProtoNamespace *from = &reply->namespaces[i];
                struct folio_namespace entry = {
                        .fields = from->fields,
                        .owner_uid = from->owner_uid,
                        .owner_gid = from->owner_gid,
                        .mode = from->mode,
                        .quota_bytes = from->quota_bytes,
                        .quota_objects = from->quota_objects,
                        .objects_max = from->objects_max,
                        .backing = from->backing,
                        .huge = from->huge,
                        .rights = from->rights,
                        .used_bytes = from->used_bytes,
                        .n_objects = from->n_objects,
                        .held_bytes = from->held_bytes,
                        .n_held = from->n_held,
                        .unsealed_bytes = from->unsealed_bytes,
                        .n_unsealed = from->n_unsealed,
                        .index_bytes = from->index_bytes,
                };

                memcpy(entry.name, from->name, sizeof(entry.name));
                memcpy(admin->last_name, from->name, sizeof(admin->last_name));
                give(admin->entries, admin->n_filled++, admin->struct_bytes, &entry, sizeof(entry));
        }
}

_public_ int folio_namespace_list(struct folio_client *client, const char *after, struct folio_namespace *entries,
                                  size_t n_entries)
{
        AdminOp admin = { .entries = entries, .n_max = MIN(n_entries, (size_t)INT32_MAX) };
        int r = client_check(client);

        if (r == 0 && (!entries || n_entries == 0 || entries->struct_bytes == 0))
                r = error_set(FOLIO_E_INVALID, "room for one entry with struct_bytes set is wanted");
        if (r == 0 && after && strnlen(after, sizeof(admin.last_name)) == sizeof(admin.last_name))
                r = error_set(FOLIO_E_INVALID, "\"%.80s\" is not a name of a namespace", after);
        if (r < 0)
                return r;
        admin.struct_bytes = entries->struct_bytes;
        if (after)
                memcpy(admin.last_name, after, strlen(after) + 1);
        /* A full answer may have more behind it. Each brings some, or is the last. */
        do {
                ProtoRequest message = {
                        .verb = VERB_NAMESPACE_LIST,
                        .after = { admin.last_name, strlen(admin.last_name) },
                };

                r = ask(&admin, client, &message, take_namespaces);
        } while (r == 0 && admin.n_all > 0 && admin.n_filled < admin.n_max);
        return r < 0 ? r : (int)admin.n_filled;
}

/* --- status ------------------------------------------------------------------------------------------------------------------------------- */

static void take_facts(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        AdminOp *admin = CONTAINER_OF(op, AdminOp, op);

        admin->n_all = reply->n_facts;
        for (size_t i = 0; i < reply->n_facts && i < admin->n_max; i++) {
                const ProtoFact *from = &reply->facts[i];
                struct folio_status fact = { .value = from->value };

                (void)snprintf(fact.name, sizeof(fact.name), "%.*s", (int)from->name.n_bytes, from->name.bytes);
                (void)snprintf(fact.text, sizeof(fact.text), "%.*s", (int)from->text.n_bytes, from->text.bytes);
                give(admin->entries, i, admin->struct_bytes, &fact, sizeof(fact));
        }
}

_public_ int folio_status_get(struct folio_client *client, struct folio_status *entries, size_t n_entries)
{
        AdminOp admin = { .entries = entries, .n_max = n_entries, .struct_bytes = sizeof(*entries) };
        ProtoRequest message = { .verb = VERB_STATUS };
        int r = client_check(client);

        if (r == 0 && n_entries > 0 && (!entries || entries->struct_bytes == 0))
                r = error_set(FOLIO_E_INVALID, "folio_status.struct_bytes is not set");
        if (r < 0)
                return r;
        if (n_entries > 0)
                admin.struct_bytes = entries->struct_bytes;
        r = ask(&admin, client, &message, take_facts);
        return r < 0 ? r : (int)admin.n_all;
}
