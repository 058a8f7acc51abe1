/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of `[section]` and `key = value`, and the drop-ins beside it. Every value goes to whoever asked, line by line;
 * the first thing that is wrong ends it, and is told with file and line. Knows no section and no key.
 */
#ifndef DAEMON_SERVICE_INIFILE_H
#define DAEMON_SERVICE_INIFILE_H

#include <stdbool.h>
#include <stdio.h>

/* As setting_parse(): 0, SETTING_E_WRONG with a sentence without the place, or -ENOMEM. All strings are borrowed. */
typedef int (*InifileValueFn)(void *userdata, const char *section, const char *key, const char *text,
                              char **ret_message);

/* Each: 0, SETTING_E_WRONG with *@ret_message to be freed, or -ENOMEM. */
int inifile_read_stream(const char *name, FILE *stream, InifileValueFn on_value, void *userdata, char **ret_message);
int inifile_read(const char *path, bool may_be_missing, InifileValueFn on_value, void *userdata, char **ret_message);

/* `<path>.d/` and in it `*.conf`, in the order of their names; a directory that is not there is empty. */
int inifile_read_drop_ins(const char *path, InifileValueFn on_value, void *userdata, char **ret_message);

#endif
