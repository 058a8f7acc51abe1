/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inih does the reading; what it leaves open is closed here: it does not tell its handler the line, cuts long lines in
 * two, goes on behind an error, and takes an indented line for the rest of the value above it.
 */
#include "daemon/service/inifile.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ini.h>

#include "base/cleanup.h"
#include "daemon/service/setting.h"

DEFINE_CLEANUP(FILE *, cleanup_fclose, (void)fclose) /* read only: nothing to lose */

typedef struct Reading {
        FILE *stream;
        InifileValueFn on_value;
        void *userdata;
        unsigned line;
        int result;                  /* of the first line that is wrong */
        unsigned wrong_line;
        char *message;
} Reading;

static void set_wrong(Reading *reading, int result, char *consume_message)
{
        if (reading->result != 0) {
                free(consume_message);
                return;
        }
        reading->result = result;
        reading->wrong_line = reading->line;
        reading->message = consume_message;
}

/*
 * As fgets(), with three differences: lines are counted, a line that does not fit is an error instead of two lines,
 * and blanks before it are dropped, for an indented line would else be taken for the rest of the value above.
 */
static char *read_ini_line(char *line, int n_line, void *userdata)
{
        Reading *reading = userdata;
        char *message = NULL;
        size_t n;

        if (reading->result != 0 || !fgets(line, n_line, reading->stream))
                return NULL;
        reading->line++;
        n = strlen(line);
        if (n + 1 == (size_t)n_line && line[n - 1] != '\n' && !feof(reading->stream)) {
                int r = setting_complain(&message, "the line is longer than %d bytes", n_line - 2);

                set_wrong(reading, r, message);
                return NULL;
        }
        n = strspn(line, " \t");
        memmove(line, line + n, strlen(line + n) + 1);
        return line;
}

static int take_value(void *userdata, const char *section, const char *key, const char *text)
{
        Reading *reading = userdata;
        char *message = NULL;
        int r = reading->on_value(reading->userdata, section, key, text, &message);

        if (r != 0)
                set_wrong(reading, r, message);
        return r == 0;
}

int inifile_read_stream(const char *name, FILE *stream, InifileValueFn on_value, void *userdata, char **ret_message)
{
        Reading reading = { .stream = stream, .on_value = on_value, .userdata = userdata };
        _cleanup_(cleanup_free) char *message = NULL;
        int line = ini_parse_stream(read_ini_line, &reading, take_value, &reading);

        message = reading.message;
        if (reading.result < 0 || line < -1)
                return -ENOMEM;
        if (ferror(stream))
                return setting_complain(ret_message, "%s: cannot be read: %s", name, strerror(errno));
        /* inih counts and goes on behind an error: the first one, ours or its, is what to tell. */
        if (line > 0 && (!message || (unsigned)line < reading.wrong_line))
                return setting_complain(ret_message, "%s:%d: neither [section], key = value, nor a comment", name,
                                        line);
        if (reading.result != 0)
                return setting_complain(ret_message, "%s:%u: %s", name, reading.wrong_line, message);
        return 0;
}

int inifile_read(const char *path, bool may_be_missing, InifileValueFn on_value, void *userdata, char **ret_message)
{
        _cleanup_(cleanup_fclose) FILE *stream = fopen(path, "re");

        if (!stream)
                return may_be_missing && (errno == ENOENT || errno == ENOTDIR)
                               ? 0
                               : setting_complain(ret_message, "%s: cannot be opened: %s", path, strerror(errno));
        return inifile_read_stream(path, stream, on_value, userdata, ret_message);
}

static int is_drop_in(const struct dirent *entry)
{
        size_t n = strlen(entry->d_name);

        return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

int inifile_read_drop_ins(const char *path, InifileValueFn on_value, void *userdata, char **ret_message)
{
        _cleanup_(cleanup_free) char *directory = NULL;
        struct dirent **entries;
        int n, r = 0;

        if (asprintf(&directory, "%s.d", path) < 0) {
                directory = NULL;
                return -ENOMEM;
        }
        n = scandir(directory, &entries, is_drop_in, by_bytes);
        if (n < 0)
                return errno == ENOENT || errno == ENOTDIR
                               ? 0
                               : setting_complain(ret_message, "%s: cannot be read: %s", directory, strerror(errno));
        for (int i = 0; i < n; i++) {
                _cleanup_(cleanup_free) char *file = NULL;

                if (r == 0 && asprintf(&file, "%s/%s", directory, entries[i]->d_name) < 0) {
                        file = NULL;
                        r = -ENOMEM;
                }
                if (r == 0)
                        r = inifile_read(file, false, on_value, userdata, ret_message);
                free(entries[i]);
        }
        free(entries);
        return r;
}
