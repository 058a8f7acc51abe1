/* SPDX-License-Identifier: Apache-2.0 */
/* ns: the namespaces of a store, and their settings. */
#include "client/ctl/ctl.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/facts.h"
#include "client/ctl/output.h"
#include "client/ctl/text.h"
#include "client/ctl/verbs.h"

#define NAMESPACES_PAGE 64

enum {
        NS_OWNER = 1,
        NS_GROUP,
        NS_MODE,
        NS_QUOTA,
        NS_QUOTA_OBJECTS,
        NS_OBJECTS_MAX,
        NS_BACKING,
        NS_HUGE,
        NS_WRITERS,
};

static const CtlOption options[] = {
        { NS_OWNER, 0, "owner", "USER", "by name or number" },
        { NS_GROUP, 0, "group", "GROUP", "by name or number" },
        { NS_MODE, 0, "mode", "MODE", "4 read, 2 write, 1 administer, for owner, group and others, as 0760 [0700]" },
        { NS_QUOTA, 0, "quota", "SIZE", "bytes it may take; 0: as many as the store has [0]" },
        { NS_QUOTA_OBJECTS, 0, "quota-objects", "N", "objects it may have; 0: as many as its index has room for [0]" },
        { NS_OBJECTS_MAX, 0, "objects-max", "N", "room in its index; with add only" },
        { NS_BACKING, 0, "backing", "WORD", "memfd or tmpfs, for large objects; with add only [memfd]" },
        { NS_HUGE, 0, "huge", "WORD", "huge pages: auto, always or never [auto]" },
        { NS_WRITERS, 0, "writers", "WORD", "trusted, who place small objects themselves, or untrusted; with add only" },
        { 0 },
};

static int take_user(Ctl *ctl, const char *text, uint32_t *ret)
{
        const struct passwd *user = getpwnam(text);
        uint64_t number;

        if (user)
                *ret = user->pw_uid;
        else if (text_parse_number(text, &number) && number < UINT32_MAX)
                *ret = (uint32_t)number;
        else
                return ctl_usage_error(ctl, "--owner: there is no user '%s'", text);
        return CTL_OK;
}

static int take_group(Ctl *ctl, const char *text, uint32_t *ret)
{
        const struct group *group = getgrnam(text);
        uint64_t number;

        if (group)
                *ret = group->gr_gid;
        else if (text_parse_number(text, &number) && number < UINT32_MAX)
                *ret = (uint32_t)number;
        else
                return ctl_usage_error(ctl, "--group: there is no group '%s'", text);
        return CTL_OK;
}

static int take_option(Ctl *ctl, struct folio_namespace *ns, int id, const char *argument)
{
        switch (id) {
        case NS_OWNER:
                ns->fields |= FOLIO_NAMESPACE_FIELD_OWNER;
                return take_user(ctl, argument, &ns->owner_uid);
        case NS_GROUP:
                ns->fields |= FOLIO_NAMESPACE_FIELD_GROUP;
                return take_group(ctl, argument, &ns->owner_gid);
        case NS_MODE:
                ns->fields |= FOLIO_NAMESPACE_FIELD_MODE;
                return facts_parse_mode(argument, &ns->mode)
                               ? CTL_OK
                               : ctl_usage_error(
                                         ctl, "--mode: '%s' is neither octal, as 0760, nor nine letters, as rwarw----",
                                         argument);
        case NS_QUOTA:
                ns->fields |= FOLIO_NAMESPACE_FIELD_QUOTA_BYTES;
                return ctl_take_size(ctl, "--quota", argument, &ns->quota_bytes) ? CTL_OK : ctl->status;
        case NS_QUOTA_OBJECTS:
                ns->fields |= FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS;
                return ctl_take_number(ctl, "--quota-objects", argument, &ns->quota_objects) ? CTL_OK : ctl->status;
        case NS_OBJECTS_MAX:
                ns->fields |= FOLIO_NAMESPACE_FIELD_OBJECTS_MAX;
                return ctl_take_number(ctl, "--objects-max", argument, &ns->objects_max) ? CTL_OK : ctl->status;
        case NS_BACKING:
                ns->fields |= FOLIO_NAMESPACE_FIELD_BACKING;
                return facts_parse_backing(argument, &ns->backing)
                               ? CTL_OK
                               : ctl_usage_error(ctl, "--backing: '%s' is neither memfd nor tmpfs", argument);
        case NS_HUGE:
                ns->fields |= FOLIO_NAMESPACE_FIELD_HUGE;
                return facts_parse_huge(argument, &ns->huge)
                               ? CTL_OK
                               : ctl_usage_error(ctl, "--huge: '%s' is none of auto, always, never", argument);
        default:
                ns->fields |= FOLIO_NAMESPACE_FIELD_WRITERS;
                return facts_parse_writers(argument, &ns->writers)
                               ? CTL_OK
                               : ctl_usage_error(ctl, "--writers: '%s' is neither trusted nor untrusted", argument);
        }
}

/* "1.5G" or "1.5G of 4G". */
static void format_use(uint64_t used, uint64_t quota, char *buffer, size_t buffer_bytes)
{
        char used_text[TEXT_SIZE_BYTES], quota_text[TEXT_SIZE_BYTES];

        text_format_size(used, used_text);
        if (quota)
                snprintf(buffer, buffer_bytes, "%s of %s", used_text, text_format_size(quota, quota_text));
        else
                snprintf(buffer, buffer_bytes, "%s", used_text);
}

static int add_row(Table *table, const struct folio_namespace *ns)
{
        char used[2 * TEXT_SIZE_BYTES + 8], held[TEXT_SIZE_BYTES], unsealed[TEXT_SIZE_BYTES], leased[TEXT_SIZE_BYTES],
                mode[FACTS_MODE_BYTES], objects[48];
        char owner[OUTPUT_ID_BYTES], group[OUTPUT_ID_BYTES];

        format_use(ns->used_bytes, ns->quota_bytes, used, sizeof(used));
        if (ns->quota_objects)
                snprintf(objects, sizeof(objects), "%llu of %llu", (unsigned long long)ns->n_objects,
                         (unsigned long long)ns->quota_objects);
        else
                snprintf(objects, sizeof(objects), "%llu", (unsigned long long)ns->n_objects);
        return table_add(table, 0,
                         (const char *const[]){ facts_format_mode(ns->mode, mode), output_user(ns->owner_uid, owner),
                                                output_group(ns->owner_gid, group), objects, used,
                                                text_format_size(ns->held_bytes, held),
                                                text_format_size(ns->unsealed_bytes, unsealed),
                                                text_format_size(ns->leased_bytes, leased), facts_backing(ns->backing),
                                                facts_huge(ns->huge), facts_writers(ns->writers), ns->name });
}

static int list_namespaces(Ctl *ctl, Table *table, OutputArray *array)
{
        struct folio_namespace entries[NAMESPACES_PAGE] = { 0 };
        char after[FOLIO_NAMESPACE_BYTES_MAX + 1] = "";
        int n, r = CTL_OK;

        do {
                entries[0].struct_bytes = sizeof(entries[0]);
                n = folio_namespace_list(ctl->client, after, entries, NAMESPACES_PAGE);
                if (n < 0)
                        return ctl_fail(ctl, n, "list the namespaces", NULL);
                for (int i = 0; r == CTL_OK && i < n; i++)
                        if (ctl->is_json)
                                r = output_array_add(ctl, array, facts_namespace_json(&entries[i]));
                        else if (add_row(table, &entries[i]) < 0)
                                r = ctl_out_of_memory(ctl);
                if (n > 0)
                        snprintf(after, sizeof(after), "%s", entries[n - 1].name);
        } while (r == CTL_OK && n > 0);
        return r;
}

static int ns_ls(Ctl *ctl)
{
        static const TableColumn columns[] = {
                { "MODE", false },    { "OWNER", false }, { "GROUP", false },   { "OBJECTS", true },
                { "USED", true },     { "HELD", true },   { "WRITING", true },  { "LEASED", true },
                { "BACKING", false }, { "HUGE", false },  { "WRITERS", false }, { "NAME", false },
        };
        OutputArray array = { 0 };
        Table *table = table_new(columns, sizeof(columns) / sizeof(columns[0]));
        int r;

        if (!table)
                return ctl_out_of_memory(ctl);
        r = list_namespaces(ctl, table, &array);
        if (r != CTL_OK) {
                table_free(table);
                return r;
        }
        if (ctl->is_json) {
                table_free(table);
                output_array_end(&array);
        } else {
                output_table(ctl, table);
        }
        return CTL_OK;
}

static int ns_run(Ctl *ctl)
{
        struct folio_namespace ns = { .struct_bytes = sizeof(ns) };
        const char *argument, *noun, *name;
        int id, r;

        while ((id = ctl_next_option(ctl, &argument)) > 0) {
                r = take_option(ctl, &ns, id, argument);
                if (r != CTL_OK)
                        return r;
        }
        if (id < 0 || !ctl_check_arguments(ctl, 1, 2))
                return ctl->status;
        noun = ctl->arguments[0];
        name = ctl->n_arguments == 2 ? ctl->arguments[1] : NULL;
        if (strcmp(noun, "ls") != 0 && strcmp(noun, "add") != 0 && strcmp(noun, "set") != 0 && strcmp(noun, "rm") != 0)
                return ctl_usage_error(ctl, "'%s' is none of ls, add, set, rm", noun);
        if (name && strcmp(noun, "ls") == 0)
                return ctl_usage_error(ctl, "ls takes no name");
        if (!name && strcmp(noun, "ls") != 0)
                return ctl_usage_error(ctl, "%s needs the name of a namespace", noun);
        if (ns.fields && (strcmp(noun, "ls") == 0 || strcmp(noun, "rm") == 0))
                return ctl_usage_error(ctl, "%s takes no settings", noun);
        if (!ns.fields && strcmp(noun, "set") == 0)
                return ctl_usage_error(ctl, "set needs a setting");
        if (name && strlen(name) > FOLIO_NAMESPACE_BYTES_MAX)
                return ctl_usage_error(ctl, "the name of a namespace has at most %d bytes, and '%.48s...' has %zu",
                                       FOLIO_NAMESPACE_BYTES_MAX, name, strlen(name));
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        if (!name)
                return ns_ls(ctl);
        snprintf(ns.name, sizeof(ns.name), "%s", name);
        if (strcmp(noun, "add") == 0)
                r = folio_namespace_add(ctl->client, &ns);
        else if (strcmp(noun, "set") == 0)
                r = folio_namespace_set(ctl->client, &ns);
        else
                r = folio_namespace_remove(ctl->client, name);
        if (r < 0)
                return ctl_fail(ctl, r,
                                *noun == 'a'   ? "add namespace"
                                : *noun == 's' ? "change namespace"
                                               : "remove namespace",
                                name);
        return CTL_OK;
}

const CtlVerb verb_ns = {
        .name = "ns",
        .usage = "ls|add|set|rm [NAME]",
        .summary = "list, make, change and remove namespaces, with all that is in them",
        .options = options,
        .run = ns_run,
};
