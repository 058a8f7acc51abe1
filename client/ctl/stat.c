/* SPDX-License-Identifier: Apache-2.0 */
/* stat and holders: what is known of an object, as found and never as asked for, and who keeps it. */
#include "client/ctl/ctl.h"

#include <stdio.h>
#include <string.h>

#include "client/ctl/facts.h"
#include "client/ctl/holders.h"
#include "client/ctl/output.h"
#include "client/ctl/text.h"
#include "client/ctl/verbs.h"

enum {
        STAT_METADATA = 1,
};

static const CtlOption options[] = {
        { STAT_METADATA, 'm', "metadata", NULL,
          "write the metadata given at creation, byte for byte, and nothing else" },
        { 0 },
};

static void print_field(const char *title, const char *value)
{
        printf("%-12s %s\n", title, value);
}

/* "1.5G (1610612736 bytes)" */
static void print_bytes(const char *title, uint64_t n_bytes)
{
        char size[TEXT_SIZE_BYTES];

        if (n_bytes < 1024)
                printf("%-12s %llu\n", title, (unsigned long long)n_bytes);
        else
                printf("%-12s %s (%llu bytes)\n", title, text_format_size(n_bytes, size), (unsigned long long)n_bytes);
}

static void print_time(const char *title, uint64_t time_ns, const char *never)
{
        char time[TEXT_TIME_BYTES];

        print_field(title, time_ns ? text_format_time(time_ns, time) : never);
}

static void print_holders(const struct folio_holder *holders, int n_holders)
{
        if (n_holders == 0)
                print_field("holders", "none");
        for (int i = 0; i < n_holders; i++) {
                _ctl_cleanup_(ctl_cleanup_free) char *comm = text_escape(holders[i].comm);

                printf("%-12s pid %d (%s), uid %u, %llu pin%s\n", i == 0 ? "holders" : "", holders[i].pid,
                       comm ? comm : "?", holders[i].uid, (unsigned long long)holders[i].n_pins,
                       holders[i].n_pins == 1 ? "" : "s");
        }
}

static int print_stat(Ctl *ctl, const struct folio_stat *stat, const struct folio_holder *holders, int n_holders,
                      bool is_first)
{
        _ctl_cleanup_(ctl_cleanup_free) char *name = text_escape(stat->name), *type = text_escape(stat->content_type);
        char owner[OUTPUT_ID_BYTES], text[OUTPUT_ID_BYTES + 16];

        if (!name || !type)
                return ctl_out_of_memory(ctl);
        if (!is_first)
                puts("");
        print_field("name", name);
        print_bytes("size", stat->size_bytes);
        if (stat->capacity_bytes != stat->size_bytes)
                print_bytes("capacity", stat->capacity_bytes);
        print_bytes("allocated", stat->allocated_bytes);
        print_bytes("huge", stat->huge_bytes);
        if (stat->has_holes)
                print_field("holes", "yes: parts were never written and take no memory");
        if (stat->zero_bytes > 0)
                print_bytes("zeros", stat->zero_bytes);
        print_field("state", facts_state(stat->state));
        print_field("protection", facts_protection(stat->protection));
        print_field("seals", *facts_seals(stat) ? facts_seals(stat) : "none");
        print_field("backing", facts_backing(stat->backing));
        print_field("placement", facts_placement(stat->placement));
        printf("%-12s %llu\n", "generation", (unsigned long long)stat->generation);
        print_time("created", stat->created_ns, "?");
        print_time("changed", stat->changed_ns, "not yet");
        print_time("expires", stat->expires_ns, "never");
        print_field("lifetime", facts_lifetime(stat->lifetime));
        snprintf(text, sizeof(text), "%s (%u)", output_user(stat->owner_uid, owner), stat->owner_uid);
        print_field("owner", text);
        print_field("type", *type ? type : "none");
        print_bytes("metadata", stat->metadata_bytes);
        print_holders(holders, n_holders);
        return CTL_OK;
}

/* *@is_first: nothing has been printed yet. */
static int stat_one(Ctl *ctl, const char *name, bool *is_first, OutputArray *array)
{
        _ctl_cleanup_(ctl_cleanup_free) struct folio_holder *holders = NULL;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_holder none = { 0 };
        json_t *value;
        int n, r;

        r = folio_stat(ctl->client, name, &stat);
        if (r < 0)
                return ctl_fail(ctl, r, "stat", name);
        n = holders_take(ctl->client, name, &holders);
        if (n == FOLIO_E_DAEMON_GONE || n == FOLIO_E_NO_MEMORY)
                return ctl_fail(ctl, n, "list the holders of", name);
        /* Deleted in between: what was known of it is still worth saying. */
        if (n < 0)
                n = 0;
        if (!ctl->is_json) {
                r = print_stat(ctl, &stat, holders, n, *is_first);
                *is_first = false;
                return r;
        }
        value = facts_stat_json(&stat, holders ? holders : &none, (size_t)n);
        return array ? output_array_add(ctl, array, value) : output_json(ctl, value);
}

static int write_metadata(Ctl *ctl, const char *name)
{
        _ctl_cleanup_(ctl_cleanup_object) struct folio_object *object = NULL;
        char metadata[FOLIO_METADATA_BYTES_MAX];
        int n = folio_get(ctl->client, name, FOLIO_GET_UNMAPPED, 0, &object);

        if (n == 0)
                n = folio_object_metadata(object, metadata, sizeof(metadata));
        if (n < 0)
                return ctl_fail(ctl, n, "read the metadata of", name);
        fwrite(metadata, 1, (size_t)n, stdout);
        return CTL_OK;
}

static int stat_run(Ctl *ctl)
{
        OutputArray array = { 0 };
        bool is_metadata = false, is_first = true, is_array;
        int id, r, r_one;

        while ((id = ctl_next_option(ctl, NULL)) > 0)
                is_metadata = true;
        if (id < 0 || !ctl_check_arguments(ctl, 1, is_metadata ? 1 : 1 << 20))
                return ctl->status;
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        if (is_metadata)
                return write_metadata(ctl, ctl->arguments[0]);
        /* One name: one object, no array around it. */
        is_array = ctl->is_json && ctl->n_arguments > 1;
        for (int i = 0; i < ctl->n_arguments; i++) {
                r_one = stat_one(ctl, ctl->arguments[i], &is_first, is_array ? &array : NULL);
                r = r_one > r ? r_one : r;
        }
        if (is_array)
                output_array_end(&array);
        return r;
}

const CtlVerb verb_stat = {
        .name = "stat",
        .usage = "NAME...",
        .summary = "what is known of objects: size, memory, huge pages, state, holders",
        .options = options,
        .run = stat_run,
};

static int print_holders_table(Ctl *ctl, const struct folio_holder *holders, int n_holders)
{
        static const TableColumn columns[] = {
                { "PID", true }, { "UID", true }, { "PINS", true }, { "CONNECTED", true }, { "PROGRAM", false }
        };
        Table *table = table_new(columns, sizeof(columns) / sizeof(columns[0]));
        uint64_t now = ctl_now_ns();
        int r = table ? 0 : -1;

        for (int i = 0; r == 0 && i < n_holders; i++) {
                char pid[16], uid[16], pins[24], age[TEXT_DURATION_BYTES];
                _ctl_cleanup_(ctl_cleanup_free) char *comm = text_escape(holders[i].comm);

                snprintf(pid, sizeof(pid), holders[i].pid ? "%d" : "?", holders[i].pid);
                snprintf(uid, sizeof(uid), "%u", holders[i].uid);
                snprintf(pins, sizeof(pins), "%llu", (unsigned long long)holders[i].n_pins);
                text_format_duration(now > holders[i].connected_ns ? now - holders[i].connected_ns : 0, age);
                r = table_add(table, 0, (const char *const[]){ pid, uid, pins, age, comm ? comm : "?" });
        }
        if (r < 0) {
                table_free(table);
                return ctl_out_of_memory(ctl);
        }
        output_table(ctl, table);
        return CTL_OK;
}

static int holders_run(Ctl *ctl)
{
        _ctl_cleanup_(ctl_cleanup_free) struct folio_holder *holders = NULL;
        OutputArray array = { 0 };
        int n, r;

        if (!ctl_take_arguments(ctl, 1, 1))
                return ctl->status;
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        n = holders_take(ctl->client, ctl->arguments[0], &holders);
        if (n < 0)
                return ctl_fail(ctl, n, "list the holders of", ctl->arguments[0]);
        if (!ctl->is_json)
                return print_holders_table(ctl, holders, n);
        for (int i = 0; r == CTL_OK && i < n; i++)
                r = output_array_add(ctl, &array, facts_holder_json(&holders[i]));
        output_array_end(&array);
        return r;
}

const CtlVerb verb_holders = {
        .name = "holders",
        .usage = "NAME",
        .summary = "who holds an object",
        .run = holders_run,
};
