/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that are about namespaces: open, add, set, remove, list, and what the configuration says of them. */
#include "daemon/store/session-kept.h"
#include "daemon/store/store-private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "folio/admin.h"
#include "proto/key.h"

#define ALL_RIGHTS (FOLIO_RIGHT_READ | FOLIO_RIGHT_WRITE | FOLIO_RIGHT_ADMIN)

/* Settings for everybody; numbers for those who have a right in it. */
static void describe(const Store *store, Space *space, const Session *session, ProtoNamespace *ret)
{
        namespace_describe(&space->ns, ret);
        ret->rights = session ? store_rights(store, space, session) : ALL_RIGHTS;
        if (ret->rights == 0)
                return;
        ret->used_bytes = space->ns.quota.bytes_used;
        ret->n_objects = index_n_named(space->index);
        ret->held_bytes = space->held_bytes;
        ret->n_held = space->n_held;
        ret->unsealed_bytes = space->unsealed_bytes;
        ret->n_unsealed = space->n_unsealed;
        ret->leased_bytes = space->leased_bytes;
        if (region_get_allocated(index_region(space->index), &ret->index_bytes) < 0)
                ret->index_bytes = 0;
        LIST_FOREACH(node, &space->tables)
                ret->pins_bytes += LIST_ENTRY(node, SessionTable, space_link)->charge.n_bytes;
}

/* --- OPEN --------------------------------------------------------------------------------------------------------- */

/* The pin table of a session that may read; paid for by its uid. */
static Status add_pins(Store *store, Session *session, Space *space, SessionTable *table, char **ret_detail)
{
        const Account *account = &session->uid_account->account;
        uint64_t n_bytes;
        int r;

        if (!pins_plan_bytes(space->ns.objects_max, &n_bytes))
                return store_refuse_errno(ret_detail, -EOVERFLOW, "the pin table");
        n_bytes = MIN(n_bytes, STORE_SESSION_BASE_BYTES);
        if (session_charge(session, n_bytes, &table->charge))
                return store_refuse(ret_detail, STATUS_LIMIT,
                                    "uid %u has %llu bytes of staging memory and pin tables and needs %llu more, and "
                                    "%llu is the most; "
                                    "close connections",
                                    session->cred.uid, (unsigned long long)account->bytes_used,
                                    (unsigned long long)n_bytes, (unsigned long long)account->bytes_max);
        r = pins_new(store->memfd, space->ns.objects_max, &table->pins);
        if (r < 0) {
                charge_release(&table->charge);
                return store_refuse_errno(ret_detail, r, "the pin table");
        }
        session_keep_pins(table);
        return STATUS_OK;
}

/* A namespace that was removed, and that this session has no use for any more. */
static void drop_removed_tables(Store *store, Session *session)
{
        LIST_FOREACH_SAFE(node, &session->tables)
        {
                SessionTable *table = LIST_ENTRY(node, SessionTable, link);
                Space *space = table->space;

                if (!space->is_removed || space->n_objects > 0)
                        continue;
                session_drop_table(table);
                store_try_free_space(store, space);
        }
}

Status store_namespace_open(Store *store, Session *session, const char *name, ProtoNamespace *ret, int *ret_index_fd,
                            int *ret_pins_fd, char **ret_detail)
{
        Space *space = store_find_space(store, name);
        SessionTable *table;
        Status status = STATUS_OK;

        *ret_detail = NULL;
        *ret_index_fd = *ret_pins_fd = -1;
        drop_removed_tables(store, session);
        if (!space)
                return store_refuse(ret_detail, STATUS_NOT_FOUND, "there is no namespace %s", name);
        describe(store, space, session, ret);
        if (!(ret->rights & FOLIO_RIGHT_READ))
                return STATUS_OK;
        table = session_find_table(session, space);
        if (!table)
                table = session_add_table(session, space, space->ns.id);
        if (!table)
                return store_refuse_errno(ret_detail, -ENOMEM, "a namespace's table");
        if (!table->pins)
                status = add_pins(store, session, space, table, ret_detail);
        if (status != STATUS_OK) {
                session_drop_table(table);
                return status;
        }
        *ret_index_fd = index_region(space->index)->fd_read_only;
        *ret_pins_fd = pins_fd(table->pins);
        return STATUS_OK;
}

/* --- ADD, SET, REMOVE --------------------------------------------------------------------------------------------- */

Status store_namespace_add(Store *store, Session *session, const ProtoNamespace *settings, ProtoNamespace *ret,
                           char **ret_detail)
{
        const Cred *cred = &session->cred;
        Status status;
        Space *space;

        *ret_detail = NULL;
        status = namespace_check_settings(settings, ret_detail);
        if (status != STATUS_OK)
                return status;
        if (cred->uid != 0 && store->uid == 0)
                return store_refuse(ret_detail, STATUS_ACCESS, "uid %u may add no namespace: only root may", cred->uid);
        if (cred->uid != 0 && cred->uid != store->uid)
                return store_refuse(ret_detail, STATUS_ACCESS, "uid %u may add no namespace: only root and uid %u, "
                                                               "foliod's own, may",
                                    cred->uid, store->uid);
        if (store_find_space(store, settings->name))
                return store_refuse(ret_detail, STATUS_EXISTS, "there is a namespace %s already", settings->name);
        status = store_make_space(store, settings, 0700, cred->uid, cred->gid, &space, ret_detail);
        if (status == STATUS_OK)
                describe(store, space, session, ret);
        return status;
}

static Status find_to_change(Store *store, const Session *session, const char *name, Space **ret, char **ret_detail)
{
        *ret = store_find_space(store, name);
        if (!*ret)
                return store_refuse(ret_detail, STATUS_NOT_FOUND, "there is no namespace %s", name);
        if (!(store_rights(store, *ret, session) & FOLIO_RIGHT_ADMIN))
                return store_refuse(ret_detail, STATUS_ACCESS, "uid %u has no admin right in namespace %s (mode %04o, "
                                                               "owner %u)",
                                    session->cred.uid, name, (*ret)->ns.mode, (*ret)->ns.owner_uid);
        return STATUS_OK;
}

static Status refuse_fixed(const Space *space, char **ret_detail)
{
        return store_refuse(ret_detail, STATUS_INVALID,
                            "objects-max (%u), backing and writers of namespace %s are fixed when it is made; to change "
                            "them remove it, with every object in it, and add it again",
                            space->ns.objects_max, space->ns.name);
}

Status store_namespace_set(Store *store, Session *session, const ProtoNamespace *settings, ProtoNamespace *ret,
                           char **ret_detail)
{
        Status status;
        Space *space;

        *ret_detail = NULL;
        status = namespace_check_settings(settings, ret_detail);
        if (status != STATUS_OK)
                return status;
        status = find_to_change(store, session, settings->name, &space, ret_detail);
        if (status != STATUS_OK)
                return status;
        if (namespace_is_fixed_change(&space->ns, settings))
                return refuse_fixed(space, ret_detail);
        namespace_apply(&space->ns, settings);
        store_note_settings(space);
        describe(store, space, session, ret);
        return STATUS_OK;
}

Status store_namespace_remove(Store *store, Session *session, const char *name, char **ret_detail)
{
        Status status;
        Space *space;

        *ret_detail = NULL;
        status = find_to_change(store, session, name, &space, ret_detail);
        if (status != STATUS_OK)
                return status;
        if (strcmp(name, FOLIO_NAMESPACE_DEFAULT) == 0)
                return store_refuse(ret_detail, STATUS_INVALID, "the namespace %s cannot be removed", name);
        store_remove_space(store, space);
        return STATUS_OK;
}

/* --- LIST, and the configuration ---------------------------------------------------------------------------------- */

size_t store_namespace_list(Store *store, Session *session, Key after, ProtoNamespace *ret, size_t n_max)
{
        size_t n = 0;

        LIST_FOREACH(node, &store->spaces)
        {
                Space *space = LIST_ENTRY(node, Space, link);
                size_t n_name = strlen(space->ns.name);
                int order = memcmp(space->ns.name, after.n_bytes ? after.bytes : "", MIN(n_name, after.n_bytes));

                if (order < 0 || (order == 0 && after.n_bytes > 0 && n_name <= after.n_bytes))
                        continue;
                if (n == n_max)
                        break;
                describe(store, space, session, &ret[n++]);
        }
        return n;
}

/* Nobody has seen it yet: it can be made anew with what the configuration says. */
static bool is_unused(const Space *space)
{
        return space->n_objects == 0 && space->n_works == 0 && !space->is_growing && list_is_empty(&space->tables) &&
               list_is_empty(&space->leases);
}

Status store_namespace_configure(Store *store, const ProtoNamespace *settings, char **ret_detail)
{
        bool is_default = strcmp(settings->name, FOLIO_NAMESPACE_DEFAULT) == 0;
        uint32_t mode = !is_default || store->config.is_user_daemon ? 0700 : 0766;
        Space *space, *old = NULL;
        Status status;

        *ret_detail = NULL;
        status = namespace_check_settings(settings, ret_detail);
        if (status != STATUS_OK)
                return status;
        space = store_find_space(store, settings->name);
        if (space && namespace_is_fixed_change(&space->ns, settings)) {
                if (!is_unused(space))
                        return refuse_fixed(space, ret_detail);
                old = steal_ptr(&space);
        }
        if (space) {
                namespace_apply(&space->ns, settings);
                store_note_settings(space);
                return STATUS_OK;
        }
        /* The new one first: if it cannot be made, the old one stays as it is. Together they count as one. */
        if (old)
                store->n_spaces--;
        status = store_make_space(store, settings, mode, store->uid, store->gid, &space, ret_detail);
        if (old)
                store->n_spaces++;
        if (status == STATUS_OK && old)
                store_remove_space(store, old);
        return status;
}
