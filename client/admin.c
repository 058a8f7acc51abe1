/* SPDX-License-Identifier: Apache-2.0 */
/* For those who run a store: each call is one request, and its answer copied. */
#include "folio/admin.h"

#include <stdio.h>
#include <string.h>

#include "client/call.h"

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
        size_t n_last;               /* that the last answer brought */
        char last_name[FOLIO_NAMESPACE_BYTES_MAX + 1];
        ProtoVerb verb;
        ProtoNamespace ns;
} AdminOp;

static int admin_init(AdminOp *admin, Client *client)
{
        int r = client_check(client);

        *admin = (AdminOp){ 0 };
        if (r == 0)
                op_init(&admin->op, client);
        return r;
}

/* --- namespaces ------------------------------------------------------------------------------------------------------------------------- */

static void change_begin(Op *op)
{
        AdminOp *admin = CONTAINER_OF(op, AdminOp, op);
        ProtoRequest message = { .verb = admin->verb, .has_namespace = true, .ns = admin->ns };

        if (op->error)
                op_complete(op);
        else
                op_send(op, &message, NULL, op_complete);
}

static int change_init(AdminOp *admin, Client *client, ProtoVerb verb, const struct folio_namespace *given)
{
        struct folio_namespace settings = { 0 };
        size_t n_name;
        int r = admin_init(admin, client);

        if (r == 0 && (!given || given->struct_bytes == 0))
                r = error_set(FOLIO_E_INVALID, "folio_namespace.struct_bytes is not set");
        if (r < 0)
                return r;
        memcpy(&settings, given, MIN(given->struct_bytes, sizeof(settings)));
        n_name = strnlen(settings.name, sizeof(settings.name));
        if (!key_is_valid_namespace(settings.name, n_name))
                return error_set(FOLIO_E_INVALID, "\"%.63s\" is not a name for a namespace: 1 to %d of a-z 0-9 . _ -",
                                 settings.name, FOLIO_NAMESPACE_BYTES_MAX);
        admin->verb = verb;
        memcpy(admin->ns.name, settings.name, n_name);
        admin->ns.fields = settings.fields;
        admin->ns.owner_uid = settings.owner_uid;
        admin->ns.owner_gid = settings.owner_gid;
        admin->ns.mode = settings.mode;
        admin->ns.quota_bytes = settings.quota_bytes;
        admin->ns.quota_objects = settings.quota_objects;
        admin->ns.objects_max = settings.objects_max;
        admin->ns.backing = settings.backing;
        admin->ns.huge = settings.huge;
        admin->ns.writers = settings.writers;
        return 0;
}

static int change_wait(Client *client, ProtoVerb verb, const struct folio_namespace *given)
{
        AdminOp admin;
        int r = change_init(&admin, client, verb, given);

        return r < 0 ? r : call_wait(&admin.op, change_begin);
}

static int change_async(Client *client, ProtoVerb verb, const struct folio_namespace *given, folio_done_fn done, void *userdata)
{
        AdminOp admin;
        int r = change_init(&admin, client, verb, given);

        return r < 0 ? r : call_async(&admin.op, sizeof(admin), change_begin, done, userdata);
}

_public_ int folio_namespace_add(struct folio_client *client, const struct folio_namespace *settings)
{
        return change_wait(client, VERB_NAMESPACE_ADD, settings);
}

_public_ int folio_namespace_add_async(struct folio_client *client, const struct folio_namespace *settings, folio_done_fn done,
                                       void *userdata)
{
        return change_async(client, VERB_NAMESPACE_ADD, settings, done, userdata);
}

_public_ int folio_namespace_set(struct folio_client *client, const struct folio_namespace *settings)
{
        return change_wait(client, VERB_NAMESPACE_SET, settings);
}

_public_ int folio_namespace_set_async(struct folio_client *client, const struct folio_namespace *settings, folio_done_fn done,
                                       void *userdata)
{
        return change_async(client, VERB_NAMESPACE_SET, settings, done, userdata);
}

static int name_settings(const char *name, struct folio_namespace *ret)
{
        *ret = (struct folio_namespace){ .struct_bytes = sizeof(*ret) };
        if (!name || strnlen(name, sizeof(ret->name)) == sizeof(ret->name))
                return error_set(FOLIO_E_INVALID, "\"%.80s\" is not a name of a namespace", name ? name : "(null)");
        memcpy(ret->name, name, strlen(name) + 1);
        return 0;
}

_public_ int folio_namespace_remove(struct folio_client *client, const char *name)
{
        struct folio_namespace settings;
        int r = name_settings(name, &settings);

        return r < 0 ? r : change_wait(client, VERB_NAMESPACE_REMOVE, &settings);
}

_public_ int folio_namespace_remove_async(struct folio_client *client, const char *name, folio_done_fn done, void *userdata)
{
        struct folio_namespace settings;
        int r = name_settings(name, &settings);

        return r < 0 ? r : change_async(client, VERB_NAMESPACE_REMOVE, &settings, done, userdata);
}

static void take_namespaces(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        AdminOp *admin = CONTAINER_OF(op, AdminOp, op);

        admin->n_last = reply->n_namespaces;
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
                        .writers = from->writers,
                        .leased_bytes = from->leased_bytes,
                };

                memcpy(entry.name, from->name, sizeof(entry.name));
                memcpy(admin->last_name, from->name, sizeof(admin->last_name));
                give(admin->entries, admin->n_filled++, admin->struct_bytes, &entry, sizeof(entry));
        }
}

static void list_ask(Op *op)
{
        AdminOp *admin = CONTAINER_OF(op, AdminOp, op);
        ProtoRequest message = { .verb = VERB_NAMESPACE_LIST, .after = { admin->last_name, strlen(admin->last_name) } };

        /* A full answer may have more behind it. Each brings some, or is the last. */
        if (op->error == 0 && admin->n_last > 0 && admin->n_filled < admin->n_max) {
                op_send(op, &message, take_namespaces, list_ask);
                return;
        }
        op->answer = (int)admin->n_filled;
        op_complete(op);
}

static int list_init_op(AdminOp *admin, Client *client, const char *after, struct folio_namespace *entries, size_t n_entries)
{
        int r = admin_init(admin, client);

        if (r == 0 && (!entries || n_entries == 0 || entries->struct_bytes == 0))
                r = error_set(FOLIO_E_INVALID, "room for one entry with struct_bytes set is wanted");
        if (r == 0 && after && strnlen(after, sizeof(admin->last_name)) == sizeof(admin->last_name))
                r = error_set(FOLIO_E_INVALID, "\"%.80s\" is not a name of a namespace", after);
        if (r < 0)
                return r;
        admin->entries = entries;
        admin->n_max = MIN(n_entries, (size_t)INT32_MAX);
        admin->n_last = 1;
        admin->struct_bytes = entries->struct_bytes;
        if (after)
                memcpy(admin->last_name, after, strlen(after) + 1);
        return 0;
}

_public_ int folio_namespace_list(struct folio_client *client, const char *after, struct folio_namespace *entries,
                                  size_t n_entries)
{
        AdminOp admin;
        int r = list_init_op(&admin, client, after, entries, n_entries);

        return r < 0 ? r : call_wait(&admin.op, list_ask);
}

_public_ int folio_namespace_list_async(struct folio_client *client, const char *after, struct folio_namespace *entries,
                                        size_t n_entries, folio_done_fn done, void *userdata)
{
        AdminOp admin;
        int r = list_init_op(&admin, client, after, entries, n_entries);

        return r < 0 ? r : call_async(&admin.op, sizeof(admin), list_ask, done, userdata);
}

/* --- status ------------------------------------------------------------------------------------------------------------------------------- */

static void take_facts(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        AdminOp *admin = CONTAINER_OF(op, AdminOp, op);

        op->answer = (int)MIN(reply->n_facts, (size_t)INT32_MAX);
        for (size_t i = 0; i < reply->n_facts && i < admin->n_max; i++) {
                const ProtoFact *from = &reply->facts[i];
                struct folio_status fact = { .value = from->value };

                (void)snprintf(fact.name, sizeof(fact.name), "%.*s", (int)from->name.n_bytes, from->name.bytes);
                (void)snprintf(fact.text, sizeof(fact.text), "%.*s", (int)from->text.n_bytes, from->text.bytes);
                give(admin->entries, i, admin->struct_bytes, &fact, sizeof(fact));
        }
}

static void status_begin(Op *op)
{
        ProtoRequest message = { .verb = VERB_STATUS };

        if (op->error)
                op_complete(op);
        else
                op_send(op, &message, take_facts, op_complete);
}

static int status_init(AdminOp *admin, Client *client, struct folio_status *entries, size_t n_entries)
{
        int r = admin_init(admin, client);

        if (r == 0 && n_entries > 0 && (!entries || entries->struct_bytes == 0))
                r = error_set(FOLIO_E_INVALID, "folio_status.struct_bytes is not set");
        if (r < 0)
                return r;
        admin->entries = entries;
        admin->n_max = n_entries;
        admin->struct_bytes = n_entries > 0 ? entries->struct_bytes : sizeof(*entries);
        return 0;
}

_public_ int folio_status_get(struct folio_client *client, struct folio_status *entries, size_t n_entries)
{
        AdminOp admin;
        int r = status_init(&admin, client, entries, n_entries);

        return r < 0 ? r : call_wait(&admin.op, status_begin);
}

_public_ int folio_status_get_async(struct folio_client *client, struct folio_status *entries, size_t n_entries,
                                    folio_done_fn done, void *userdata)
{
        AdminOp admin;
        int r = status_init(&admin, client, entries, n_entries);

        return r < 0 ? r : call_async(&admin.op, sizeof(admin), status_begin, done, userdata);
}
