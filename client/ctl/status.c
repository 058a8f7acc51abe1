/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status and check. The daemon's facts are names and numbers; what a name ends with says what is counted, and a fact we
 * have never heard of is shown all the same. check looks at them, and at this machine, for what will hurt later: a
 * budget that a mount or a cgroup cuts down, huge pages that are not to be had, limits of this process that are low.
 */
#include "client/ctl/ctl.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "client/ctl/facts.h"
#include "client/ctl/output.h"
#include "client/ctl/text.h"
#include "client/ctl/verbs.h"

#define FACTS_FIRST 128
#define TRIES_MAX 4

/* The number of facts, in *@ret to be freed; or the error. */
static int facts_take(struct folio_client *client, struct folio_status **ret)
{
        size_t n_room = FACTS_FIRST;

        *ret = NULL;
        for (unsigned n_tries = 0; n_tries < TRIES_MAX; n_tries++) {
                struct folio_status *facts = calloc(n_room, sizeof(*facts));
                int n;

                if (!facts)
                        return FOLIO_E_NO_MEMORY;
                facts[0].struct_bytes = sizeof(*facts);
                n = folio_status_get(client, facts, n_room);
                if (n >= 0 && (size_t)n <= n_room) {
                        *ret = facts;
                        return n;
                }
                free(facts);
                if (n < 0)
                        return n;
                n_room = (size_t)n;
        }
        return FOLIO_E_NO_MEMORY;
}

static bool ends_with(const char *text, const char *end)
{
        size_t n_text = strlen(text), n_end = strlen(end);

        return n_text >= n_end && strcmp(text + n_text - n_end, end) == 0;
}

/* `memory.used_bytes`, `pool.bytes`, `session.bytes_max`. */
static bool counts_bytes(const char *name)
{
        return ends_with(name, "_bytes") || ends_with(name, ".bytes") || ends_with(name, "bytes_max");
}

static void format_fact(const struct folio_status *fact, char *buffer, size_t buffer_bytes)
{
        char text[TEXT_SIZE_BYTES];

        if (*fact->text)
                snprintf(buffer, buffer_bytes, "%s", fact->text);
        else if (counts_bytes(fact->name))
                snprintf(buffer, buffer_bytes, "%s", text_format_size(fact->value, text));
        else
                snprintf(buffer, buffer_bytes, "%llu", (unsigned long long)fact->value);
}

static int print_facts(Ctl *ctl, const struct folio_status *facts, int n_facts, const char *prefix)
{
        static const TableColumn columns[] = { { "FACT", false }, { "VALUE", false } };
        Table *table = table_new(columns, 2);
        int r = table ? 0 : -1;

        for (int i = 0; r == 0 && i < n_facts; i++) {
                char value[sizeof(facts[i].text)];

                if (strncmp(facts[i].name, prefix, strlen(prefix)) != 0)
                        continue;
                format_fact(&facts[i], value, sizeof(value));
                r = table_add(table, 0, (const char *const[]){ facts[i].name, value });
        }
        if (r < 0) {
                table_free(table);
                return ctl_out_of_memory(ctl);
        }
        table_print(table, stdout, false, ctl->is_color);
        table_free(table);
        return CTL_OK;
}

static int status_run(Ctl *ctl)
{
        _ctl_cleanup_(ctl_cleanup_free) struct folio_status *facts = NULL;
        const char *prefix;
        int n, r;

        if (!ctl_take_arguments(ctl, 0, 1))
                return ctl->status;
        prefix = ctl->n_arguments ? ctl->arguments[0] : "";
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        n = facts_take(ctl->client, &facts);
        if (n < 0)
                return ctl_fail(ctl, n, "ask foliod for its status", NULL);
        /* Those asked for move to the front. */
        r = 0;
        for (int i = 0; i < n; i++)
                if (strncmp(facts[i].name, prefix, strlen(prefix)) == 0)
                        facts[r++] = facts[i];
        if (r == 0)
                return ctl_complain(ctl, "no fact begins with '%s'; `folioctl status` shows them all", prefix);
        if (!ctl->is_json)
                return print_facts(ctl, facts, r, "");
        return output_json(ctl, facts_status_json(facts, (size_t)r));
}

/* --- check -------------------------------------------------------------------------------------------------------- */

/* What is found: a problem ends check with status 1, a remark is for who wonders why something is slow. */
typedef struct Check {
        const struct folio_status *facts;
        int n_facts;
        json_t *problems;
        json_t *remarks;
        bool failed; /* no memory */
} Check;

static void check_deinit(Check *check)
{
        json_decref(check->problems);
        json_decref(check->remarks);
}

static const struct folio_status *check_find(const Check *check, const char *name)
{
        for (int i = 0; i < check->n_facts; i++)
                if (strcmp(check->facts[i].name, name) == 0)
                        return &check->facts[i];
        return NULL;
}

static void check_say(Check *check, json_t *list, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void check_say(Check *check, json_t *list, const char *format, ...)
{
        char text[512];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        if (json_array_append_new(list, json_string(text)) < 0)
                check->failed = true;
}

/* The first @n_bytes - 1 of a small file of the kernel's, without the newline; false where it is not there. */
static bool read_line(const char *path, char *buffer, size_t n_bytes)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n;

        if (fd < 0)
                return false;
        n = read(fd, buffer, n_bytes - 1);
        (void)close(fd);
        if (n <= 0)
                return false;
        buffer[n] = '\0';
        buffer[strcspn(buffer, "\n")] = '\0';
        return true;
}

/* The word in brackets of "always [madvise] never". */
static bool read_choice(const char *path, char *buffer, size_t n_bytes)
{
        char line[256], *begin, *end;

        if (!read_line(path, line, sizeof(line)))
                return false;
        begin = strchr(line, '[');
        end = begin ? strchr(begin, ']') : NULL;
        if (!end)
                return false;
        *end = '\0';
        snprintf(buffer, n_bytes, "%s", begin + 1);
        return true;
}

static void check_budget(Check *check)
{
        const struct folio_status *clamped = check_find(check, "memory.budget_clamped");
        const struct folio_status *budget = check_find(check, "memory.budget_bytes");
        const struct folio_status *used = check_find(check, "memory.used_bytes");
        char used_text[TEXT_SIZE_BYTES], budget_text[TEXT_SIZE_BYTES];

        if (clamped && budget)
                check_say(check, check->problems,
                          "the budget is cut down to %s (%s): raise that limit, or lower the budget",
                          text_format_size(budget->value, budget_text), clamped->text);
        if (budget && used && used->value > budget->value / 10 * 9)
                check_say(check, check->remarks, "%s of %s are in use: `folioctl ns ls` shows by whom",
                          text_format_size(used->value, used_text), text_format_size(budget->value, budget_text));
}

static void check_keeper(Check *check)
{
        const struct folio_status *kind = check_find(check, "keeper.kind"), *failed = check_find(check, "keeper.failed");
        const struct folio_status *slots = check_find(check, "keeper.slots");

        if (kind && strcmp(kind->text, "gone") == 0)
                check_say(check, check->problems,
                          "nobody keeps the objects for a restart any more (see foliod's log): they end with this foliod; save "
                          "what is to stay, and start another");
        else if (failed && slots && failed->value > 0)
                check_say(check, check->remarks,
                          "%llu times something could not be kept for a restart, with %llu slots: foliod.conf(5), keeper-slots",
                          (unsigned long long)failed->value, (unsigned long long)slots->value);
}

static void check_huge(Check *check)
{
        char shmem[32], enabled[32];

        if (!read_choice("/sys/kernel/mm/transparent_hugepage/enabled", enabled, sizeof(enabled)) ||
            !read_choice("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem, sizeof(shmem)))
                check_say(check, check->remarks,
                          "this kernel has no transparent huge pages: mapping large objects costs more");
        else if (strcmp(enabled, "never") == 0 || strcmp(shmem, "deny") == 0)
                check_say(check, check->remarks,
                          "huge pages are turned off here (enabled=%s, shmem_enabled=%s): mapping large objects costs "
                          "more",
                          enabled, shmem);
        else if (strcmp(shmem, "never") == 0)
                check_say(check, check->remarks,
                          "shmem_enabled=never: huge pages come by collapsing, a little after a seal; "
                          "`advise` in /sys/kernel/mm/transparent_hugepage/shmem_enabled gives them at once");
}

static void check_limits(Check *check)
{
        struct rlimit files;
        char line[32];
        uint64_t n_maps;

        if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 256)
                check_say(check, check->remarks, "this process may open %llu files only (ulimit -n)",
                          (unsigned long long)files.rlim_cur);
        if (read_line("/proc/sys/vm/max_map_count", line, sizeof(line)) && text_parse_number(line, &n_maps) &&
            n_maps < 65530)
                check_say(
                        check, check->remarks,
                        "a process may have %llu mappings only (vm.max_map_count), one for each large object it holds",
                        (unsigned long long)n_maps);
}

static void print_list(Ctl *ctl, const json_t *list, const char *title, const char *color)
{
        for (size_t i = 0; i < json_array_size(list); i++)
                printf("%s%s%s %s\n", ctl->is_color ? color : "", title, ctl->is_color ? "\033[0m" : "",
                       json_string_value(json_array_get(list, i)));
}

static int check_print(Ctl *ctl, const Check *check)
{
        if (ctl->is_json) {
                json_t *value = json_object();

                if (json_object_set_new(value, "facts", facts_status_json(check->facts, (size_t)check->n_facts)) < 0 ||
                    json_object_set(value, "problems", check->problems) < 0 ||
                    json_object_set(value, "remarks", check->remarks) < 0) {
                        json_decref(value);
                        return ctl_out_of_memory(ctl);
                }
                return output_json(ctl, value);
        }
        print_list(ctl, check->remarks, "remark: ", "\033[33m");
        print_list(ctl, check->problems, "problem:", "\033[31m");
        if (json_array_size(check->problems) == 0)
                puts("no problem was found");
        return CTL_OK;
}

static int check_run(Ctl *ctl)
{
        _ctl_cleanup_(ctl_cleanup_free) struct folio_status *facts = NULL;
        _ctl_cleanup_(check_deinit) Check check = { .problems = json_array(), .remarks = json_array() };
        int n, r;

        if (!ctl_take_arguments(ctl, 0, 0))
                return ctl->status;
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        n = facts_take(ctl->client, &facts);
        if (n < 0)
                return ctl_fail(ctl, n, "ask foliod for its status", NULL);
        check.facts = facts;
        check.n_facts = n;
        check_budget(&check);
        check_keeper(&check);
        check_huge(&check);
        check_limits(&check);
        if (!check.problems || !check.remarks || check.failed)
                return ctl_out_of_memory(ctl);
        if (!ctl->is_json)
                r = print_facts(ctl, facts, n, "");
        if (r == CTL_OK)
                r = check_print(ctl, &check);
        return r == CTL_OK && json_array_size(check.problems) > 0 ? CTL_REFUSED : r;
}

const CtlVerb verb_status = {
        .name = "status",
        .usage = "[PREFIX]",
        .summary = "what foliod knows of itself: all of it, or of `memory`",
        .run = status_run,
};

const CtlVerb verb_check = {
        .name = "check",
        .usage = "",
        .summary = "is the store set up well? 1 where a limit cuts its budget down",
        .run = check_run,
};
