/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ls. Bare names are written as they are found; what must line up or be sorted is collected first, as text.
 */
#include "client/ctl/ctl.h"

#include <stdio.h>
#include <string.h>

#include "client/ctl/facts.h"
#include "client/ctl/holders.h"
#include "client/ctl/output.h"
#include "client/ctl/text.h"
#include "client/ctl/verbs.h"

#define PAGE_ENTRIES 256
#define NAMESPACES_PAGE 64

enum {
        LS_LONG = 1,
        LS_ALL,
        LS_SORT,
        LS_HOLDERS,
};

static const CtlOption options[] = {
        { LS_LONG, 'l', "long", NULL, "size, memory, state, protection, owner and time of change too" },
        { LS_ALL, 'a', "all", NULL, "in every namespace that may be read" },
        { LS_SORT, 0, "sort", "WORD", "name (the default), size or time: largest or newest first" },
        { LS_HOLDERS, 0, "holders", NULL, "only what somebody holds, and who" },
        { 0 },
};

typedef enum Sort {
        SORT_NAME,
        SORT_SIZE,
        SORT_TIME,
} Sort;

typedef struct Ls {
        bool is_long;
        bool is_all;
        bool has_holders;
        Sort sort;
        uint64_t now_ns;
        Table *table; /* NULL: written as it comes */
        OutputArray array;
} Ls;

static const TableColumn long_columns[] = {
        { "SIZE", true },        { "ALLOCATED", true }, { "HUGE", true },     { "STATE", false },
        { "PROTECTION", false }, { "OWNER", true },     { "CHANGED", false }, { "NAME", false },
};
static const TableColumn holder_columns[] = {
        { "SIZE", true },      { "PID", true },      { "UID", true },   { "PINS", true },
        { "CONNECTED", true }, { "PROGRAM", false }, { "NAME", false },
};
static const TableColumn name_columns[] = { { "NAME", false } };

static void ls_deinit(Ls *ls)
{
        table_free(ls->table);
}

static uint64_t sort_key(const Ls *ls, const struct folio_stat *stat)
{
        switch (ls->sort) {
        case SORT_NAME:
                return 0;
        case SORT_SIZE:
                return stat->size_bytes;
        case SORT_TIME:
                return stat->changed_ns ? stat->changed_ns : stat->created_ns;
        }
        return 0;
}

static int add_long(Ctl *ctl, Ls *ls, const struct folio_stat *stat, const char *name)
{
        char size[TEXT_SIZE_BYTES], allocated[TEXT_SIZE_BYTES], huge[8] = "-", owner[16], changed[TEXT_TIME_BYTES];

        text_format_size(stat->size_bytes, size);
        text_format_size(stat->allocated_bytes, allocated);
        /* The pages of a small object are its region's. */
        if (stat->placement == FOLIO_PLACEMENT_OWN && stat->allocated_bytes && stat->huge_bytes <= stat->allocated_bytes)
                snprintf(huge, sizeof(huge), "%u%%",
                         (unsigned)((unsigned __int128)stat->huge_bytes * 100 / stat->allocated_bytes));
        snprintf(owner, sizeof(owner), "%u", stat->owner_uid);
        text_format_time(stat->changed_ns ? stat->changed_ns : stat->created_ns, changed);
        if (table_add(ls->table, sort_key(ls, stat),
                      (const char *const[]){ size, allocated, huge, facts_state(stat->state),
                                             facts_protection(stat->protection), owner, changed, name }) < 0)
                return ctl_out_of_memory(ctl);
        return CTL_OK;
}

static int add_holders(Ctl *ctl, Ls *ls, const struct folio_stat *stat, const char *name,
                       const struct folio_holder *holders, int n_holders)
{
        for (int i = 0; i < n_holders; i++) {
                char size[TEXT_SIZE_BYTES], pid[16], uid[16], pins[24], age[TEXT_DURATION_BYTES];
                _ctl_cleanup_(ctl_cleanup_free) char *comm = text_escape(holders[i].comm);

                text_format_size(stat->size_bytes, size);
                snprintf(pid, sizeof(pid), holders[i].pid ? "%d" : "?", holders[i].pid);
                snprintf(uid, sizeof(uid), "%u", holders[i].uid);
                snprintf(pins, sizeof(pins), "%llu", (unsigned long long)holders[i].n_pins);
                text_format_duration(ls->now_ns > holders[i].connected_ns ? ls->now_ns - holders[i].connected_ns : 0,
                                     age);
                if (!comm || table_add(ls->table, sort_key(ls, stat),
                                       (const char *const[]){ size, pid, uid, pins, age, comm, name }) < 0)
                        return ctl_out_of_memory(ctl);
        }
        return CTL_OK;
}

static int add_json(Ctl *ctl, Ls *ls, const struct folio_stat *stat, const struct folio_holder *holders, int n_holders)
{
        json_t *value = facts_stat_json(stat, holders, (size_t)n_holders);
        char *text;
        int r;

        if (!ls->table)
                return output_array_add(ctl, &ls->array, value);
        text = value ? json_dumps(value, 0) : NULL;
        json_decref(value);
        r = text ? table_add(ls->table, sort_key(ls, stat), (const char *const[]){ text }) : -1;
        free(text);
        return r < 0 ? ctl_out_of_memory(ctl) : CTL_OK;
}

static int add_entry(Ctl *ctl, Ls *ls, const struct folio_stat *stat)
{
        _ctl_cleanup_(ctl_cleanup_free) struct folio_holder *holders = NULL;
        _ctl_cleanup_(ctl_cleanup_free) char *name = NULL;
        int n_holders = 0;

        if (ls->has_holders) {
                n_holders = holders_take(ctl->client, stat->name, &holders);
                /* Gone since the list was made: then nobody holds it under this name. */
                if (n_holders == FOLIO_E_NOT_FOUND || n_holders == FOLIO_E_DELETED || n_holders == FOLIO_E_EXPIRED ||
                    n_holders == FOLIO_E_EVICTED)
                        return CTL_OK;
                if (n_holders < 0)
                        return ctl_fail(ctl, n_holders, "list the holders of", stat->name);
                if (n_holders == 0)
                        return CTL_OK;
        }
        if (ctl->is_json)
                return add_json(ctl, ls, stat, holders, n_holders);
        name = text_escape(stat->name);
        if (!name)
                return ctl_out_of_memory(ctl);
        if (ls->has_holders)
                return add_holders(ctl, ls, stat, name, holders, n_holders);
        if (ls->is_long)
                return add_long(ctl, ls, stat, name);
        if (ls->table)
                return table_add(ls->table, sort_key(ls, stat), (const char *const[]){ name }) < 0
                               ? ctl_out_of_memory(ctl)
                               : CTL_OK;
        puts(name);
        return CTL_OK;
}

static int list_prefix(Ctl *ctl, Ls *ls, const char *prefix)
{
        _ctl_cleanup_(ctl_cleanup_free) struct folio_stat *entries = calloc(PAGE_ENTRIES, sizeof(*entries));
        struct folio_list *list;
        int n, r;

        if (!entries)
                return ctl_out_of_memory(ctl);
        r = folio_list_open(ctl->client, prefix, &list);
        if (r < 0)
                return ctl_fail(ctl, r, "list", prefix);
        entries[0].struct_bytes = sizeof(*entries);
        r = CTL_OK;
        while (r == CTL_OK && (n = folio_list_next(list, entries, PAGE_ENTRIES)) != 0) {
                if (n < 0) {
                        r = ctl_fail(ctl, n, "list", prefix);
                        break;
                }
                for (int i = 0; r == CTL_OK && i < n; i++)
                        r = add_entry(ctl, ls, &entries[i]);
        }
        folio_list_close(list);
        return r;
}

static int list_all(Ctl *ctl, Ls *ls)
{
        struct folio_namespace namespaces[NAMESPACES_PAGE] = { 0 };
        char after[FOLIO_NAMESPACE_BYTES_MAX + 1] = "", prefix[FOLIO_NAMESPACE_BYTES_MAX + 2];
        int n, r = CTL_OK;

        do {
                namespaces[0].struct_bytes = sizeof(namespaces[0]);
                n = folio_namespace_list(ctl->client, after, namespaces, NAMESPACES_PAGE);
                if (n < 0)
                        return ctl_fail(ctl, n, "list the namespaces", NULL);
                for (int i = 0; r == CTL_OK && i < n; i++) {
                        if (!(namespaces[i].rights & FOLIO_RIGHT_READ))
                                continue;
                        snprintf(prefix, sizeof(prefix), "%s:", namespaces[i].name);
                        r = list_prefix(ctl, ls, prefix);
                }
                if (n > 0)
                        snprintf(after, sizeof(after), "%s", namespaces[n - 1].name);
        } while (r == CTL_OK && n > 0);
        return r;
}

/* What must be complete before the first line is written goes into a table. */
static int make_table(Ctl *ctl, Ls *ls)
{
        if (!ctl->is_json && ls->has_holders)
                ls->table = table_new(holder_columns, sizeof(holder_columns) / sizeof(holder_columns[0]));
        else if (!ctl->is_json && ls->is_long)
                ls->table = table_new(long_columns, sizeof(long_columns) / sizeof(long_columns[0]));
        else if (ls->sort != SORT_NAME)
                ls->table = table_new(name_columns, 1);
        else
                return CTL_OK;
        return ls->table ? CTL_OK : ctl_out_of_memory(ctl);
}

static void print_all(Ctl *ctl, Ls *ls)
{
        if (ls->table && ls->sort != SORT_NAME)
                table_sort(ls->table);
        if (ctl->is_json) {
                for (size_t i = 0; ls->table && i < table_n_rows(ls->table); i++)
                        output_array_add_text(&ls->array, table_peek(ls->table, i, 0));
                output_array_end(&ls->array);
        } else if (ls->table) {
                table_print(ls->table, stdout, ls->is_long || ls->has_holders, ctl->is_color);
        }
}

static int take_option(Ctl *ctl, Ls *ls, int id, const char *argument)
{
        switch (id) {
        case LS_LONG:
                ls->is_long = true;
                return CTL_OK;
        case LS_ALL:
                ls->is_all = true;
                return CTL_OK;
        case LS_HOLDERS:
                ls->has_holders = true;
                return CTL_OK;
        default:
                ls->sort = strcmp(argument, "size") == 0   ? SORT_SIZE
                           : strcmp(argument, "time") == 0 ? SORT_TIME
                                                           : SORT_NAME;
                if (ls->sort == SORT_NAME && strcmp(argument, "name") != 0)
                        return ctl_usage_error(ctl, "--sort: '%s' is none of name, size, time", argument);
                return CTL_OK;
        }
}

static int ls_run(Ctl *ctl)
{
        _ctl_cleanup_(ls_deinit) Ls ls = { .now_ns = ctl_now_ns() };
        const char *argument;
        int id, r;

        while ((id = ctl_next_option(ctl, &argument)) > 0) {
                r = take_option(ctl, &ls, id, argument);
                if (r != CTL_OK)
                        return r;
        }
        if (id < 0 || !ctl_check_arguments(ctl, 0, 1))
                return ctl->status;
        if (ls.is_all && ctl->n_arguments > 0)
                return ctl_usage_error(ctl, "-a takes no prefix");
        r = ctl_open(ctl);
        if (r == CTL_OK)
                r = make_table(ctl, &ls);
        if (r != CTL_OK)
                return r;
        r = ls.is_all ? list_all(ctl, &ls)
                      : list_prefix(ctl, &ls, ctl->n_arguments ? ctl->arguments[0] : FOLIO_NAMESPACE_DEFAULT ":");
        if (r != CTL_NO_DAEMON)
                print_all(ctl, &ls);
        return r;
}

const CtlVerb verb_ls = {
        .name = "ls",
        .usage = "[PREFIX]",
        .summary = "list objects: all of `default`, of `model:`, or `model:layer...`",
        .options = options,
        .run = ls_run,
};
