/* SPDX-License-Identifier: Apache-2.0 */
/* rm and truncate. */
#include "client/ctl/ctl.h"

#include <stdio.h>
#include <string.h>

#include "client/ctl/verbs.h"

#define PAGE_ENTRIES 256

enum {
        RM_FORCE = 1,
        RM_PREFIX,
};

static const CtlOption rm_options[] = {
        { RM_FORCE, 'f', "force", NULL, "a name that is not there is no error" },
        { RM_PREFIX, 0, "prefix", NULL, "each NAME is a beginning of names: remove all of them" },
        { 0 },
};

static bool is_gone(int error)
{
        return error == FOLIO_E_NOT_FOUND || error == FOLIO_E_DELETED || error == FOLIO_E_EXPIRED ||
               error == FOLIO_E_EVICTED;
}

/* Each item by itself: the next is tried whatever became of this one. */
static int delete_page(Ctl *ctl, const struct folio_stat *entries, size_t n_entries, uint64_t *n_deleted)
{
        struct folio_delete_item items[PAGE_ENTRIES];
        int n_failed, r = CTL_OK;

        for (size_t i = 0; i < n_entries; i++)
                items[i] = (struct folio_delete_item){ .name = entries[i].name };
        n_failed = folio_delete_many(ctl->client, items, n_entries);
        if (n_failed < 0)
                return ctl_fail(ctl, n_failed, "remove", entries[0].name);
        for (size_t i = 0; i < n_entries; i++) {
                int error = items[i].error;

                if (error == 0) {
                        (*n_deleted)++;
                } else if (error == FOLIO_E_DAEMON_GONE) {
                        return ctl_fail(ctl, error, "remove", entries[i].name);
                } else if (!is_gone(error)) {
                        /* The sentence of a batch would be of its last item; a batch of one gives each its own. */
                        error = folio_delete(ctl->client, entries[i].name, FOLIO_IF_EXISTS);
                        if (error < 0)
                                r = ctl_fail(ctl, error, "remove", entries[i].name);
                        else
                                (*n_deleted)++;
                }
        }
        return r;
}

static int remove_prefix(Ctl *ctl, const char *prefix, bool is_forced)
{
        _ctl_cleanup_(ctl_cleanup_free) struct folio_stat *entries = calloc(PAGE_ENTRIES, sizeof(*entries));
        size_t n_namespace = ctl_namespace_bytes(prefix);
        struct folio_list *list;
        uint64_t n_deleted = 0;
        int n, r;

        if (!entries)
                return ctl_out_of_memory(ctl);
        /* An empty shell variable must not empty a namespace. */
        if (!is_forced && (!*prefix || (prefix[n_namespace] == ':' && !prefix[n_namespace + 1])))
                return ctl_usage_error(ctl, "--prefix '%s' means every object of the namespace; say so with -f",
                                       prefix);
        r = folio_list_open(ctl->client, prefix, &list);
        if (r < 0)
                return ctl_fail(ctl, r, "list", prefix);
        entries[0].struct_bytes = sizeof(*entries);
        r = CTL_OK;
        while ((n = folio_list_next(list, entries, PAGE_ENTRIES)) > 0) {
                int r_page = delete_page(ctl, entries, (size_t)n, &n_deleted);

                r = r_page > r ? r_page : r;
                if (r_page == CTL_NO_DAEMON)
                        break;
        }
        if (n < 0)
                r = ctl_fail(ctl, n, "list", prefix);
        folio_list_close(list);
        if (isatty(STDERR_FILENO))
                ctl_note(ctl, "removed %llu objects", (unsigned long long)n_deleted);
        return r;
}

static int rm_run(Ctl *ctl)
{
        bool is_forced = false, is_prefix = false;
        int id, r, r_one;

        while ((id = ctl_next_option(ctl, NULL)) > 0) {
                is_forced = is_forced || id == RM_FORCE;
                is_prefix = is_prefix || id == RM_PREFIX;
        }
        if (id < 0 || !ctl_check_arguments(ctl, 1, 1 << 20))
                return ctl->status;
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        for (int i = 0; i < ctl->n_arguments && r != CTL_NO_DAEMON; i++) {
                const char *name = ctl->arguments[i];

                if (is_prefix) {
                        r_one = remove_prefix(ctl, name, is_forced);
                } else {
                        r_one = folio_delete(ctl->client, name, is_forced ? FOLIO_IF_EXISTS : 0);
                        r_one = r_one < 0 ? ctl_fail(ctl, r_one, "remove", name) : CTL_OK;
                }
                r = r_one > r ? r_one : r;
        }
        return r;
}

static int truncate_run(Ctl *ctl)
{
        uint64_t size_bytes;
        int r;

        if (!ctl_take_arguments(ctl, 2, 2) || !ctl_take_size(ctl, "SIZE", ctl->arguments[1], &size_bytes))
                return ctl->status;
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        r = folio_truncate(ctl->client, ctl->arguments[0], size_bytes);
        return r < 0 ? ctl_fail(ctl, r, "truncate", ctl->arguments[0]) : CTL_OK;
}

const CtlVerb verb_rm = {
        .name = "rm",
        .usage = "NAME...",
        .summary = "remove objects; who holds one keeps its bytes",
        .options = rm_options,
        .run = rm_run,
};

const CtlVerb verb_truncate = {
        .name = "truncate",
        .usage = "NAME SIZE",
        .summary = "give a mutable object another size; what grows is zeros",
        .run = truncate_run,
};
