/* SPDX-License-Identifier: Apache-2.0 */
/* See output.h. */
#include "client/ctl/output.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

int output_json(Ctl *ctl, json_t *value)
{
        int r;

        if (!value)
                return ctl_out_of_memory(ctl);
        r = json_dumpf(value, stdout, JSON_INDENT(2));
        json_decref(value);
        putchar('\n');
        /* Whether it got out is found at the end, once for everything. */
        (void)r;
        return CTL_OK;
}

int output_json_line(Ctl *ctl, json_t *value)
{
        int r;

        if (!value)
                return ctl_out_of_memory(ctl);
        r = json_dumpf(value, stdout, JSON_COMPACT);
        json_decref(value);
        putchar('\n');
        return fflush(stdout) == 0 && r == 0 ? CTL_OK : CTL_REFUSED;
}

int output_array_add(Ctl *ctl, OutputArray *array, json_t *value)
{
        _ctl_cleanup_(ctl_cleanup_free) char *text = value ? json_dumps(value, 0) : NULL;

        json_decref(value);
        if (!text)
                return ctl_out_of_memory(ctl);
        output_array_add_text(array, text);
        return CTL_OK;
}

void output_array_add_text(OutputArray *array, const char *text)
{
        printf("%s%s", array->n_items++ ? ",\n  " : "[\n  ", text);
}

void output_array_end(OutputArray *array)
{
        puts(array->n_items ? "\n]" : "[]");
}

void output_table(Ctl *ctl, Table *table)
{
        table_print(table, stdout, true, ctl->is_color);
        table_free(table);
}

char *output_user(uint32_t uid, char buffer[OUTPUT_ID_BYTES])
{
        const struct passwd *user = getpwuid(uid);

        if (user)
                snprintf(buffer, OUTPUT_ID_BYTES, "%s", user->pw_name);
        else
                snprintf(buffer, OUTPUT_ID_BYTES, "%u", uid);
        return buffer;
}

char *output_group(uint32_t gid, char buffer[OUTPUT_ID_BYTES])
{
        const struct group *group = getgrgid(gid);

        if (group)
                snprintf(buffer, OUTPUT_ID_BYTES, "%s", group->gr_name);
        else
                snprintf(buffer, OUTPUT_ID_BYTES, "%u", gid);
        return buffer;
}
