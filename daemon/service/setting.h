/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A setting: a key, what its text may be, and the member of some struct where its value goes. A table of them says all
 * there is to say about a set of settings; which struct, and where the text came from, is its owner's.
 */
#ifndef DAEMON_SERVICE_SETTING_H
#define DAEMON_SERVICE_SETTING_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/macro.h"
#include "daemon/service/value.h"

typedef enum SettingKind {
        SETTING_PATH,                /* a char *, to be freed; absolute, short enough for the address of a socket */
        SETTING_COUNT,
        SETTING_SIZE,
        SETTING_SECONDS,
        SETTING_MODE,
        SETTING_USER,
        SETTING_GROUP,
        SETTING_WORD,
} SettingKind;

typedef struct Setting {
        const char *section;
        const char *key;
        SettingKind kind;
        size_t offset;
        size_t width;                /* of the member: 4 or 8 */
        uint64_t min;
        uint64_t max;
        const ValueWord *words;      /* taken before anything else; NULL: none */
        uint32_t flag;               /* its owner's */
        const char *help;
} Setting;

#define SETTING_MEMBER(type, member) offsetof(type, member), sizeof(((type *)NULL)->member)

enum { SETTING_E_WRONG = 1 }; /* *@ret_message has the sentence, to be freed */

/* 0, SETTING_E_WRONG or -ENOMEM. @base: the struct. */
int setting_parse(const Setting *setting, void *base, const char *text, char **ret_message);

/* The value as text that setting_parse() would take. */
void setting_print(const Setting *setting, const void *base, FILE *stream);

/* Key, kind, help, and the default in brackets; @defaults: the struct, NULL for none. */
void setting_print_help(const Setting *setting, const void *defaults, FILE *stream);

const Setting *setting_find(const Setting *settings, size_t n_settings, const char *section, const char *key);
void setting_list_keys(const Setting *settings, size_t n_settings, const char *section, char *text, size_t n_text);

/* Makes @ret_message and returns SETTING_E_WRONG; or -ENOMEM. */
int setting_complain(char **ret_message, const char *format, ...) _printf_(2, 3);

#endif
