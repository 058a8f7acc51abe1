/* SPDX-License-Identifier: Apache-2.0 */
/* One setting's text to its place in a struct, within its limits, with a sentence that says what is wrong with it. */
#include "daemon/service/setting.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define PATH_BYTES_MAX (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1)

int setting_complain(char **ret_message, const char *format, ...)
{
        va_list arguments;
        char *message;
        int n;

        va_start(arguments, format);
        n = vasprintf(&message, format, arguments);
        va_end(arguments);
        if (n < 0)
                return -ENOMEM;
        *ret_message = message;
        return SETTING_E_WRONG;
}

const Setting *setting_find(const Setting *settings, size_t n_settings, const char *section, const char *key)
{
        for (size_t i = 0; i < n_settings; i++)
                if (strcmp(settings[i].section, section) == 0 && strcmp(settings[i].key, key) == 0)
                        return &settings[i];
        return NULL;
}

void setting_list_keys(const Setting *settings, size_t n_settings, const char *section, char *text, size_t n_text)
{
        size_t n = 0;

        text[0] = '\0';
        for (size_t i = 0; i < n_settings; i++)
                if (strcmp(settings[i].section, section) == 0 && n < n_text)
                        n += (size_t)snprintf(text + n, n_text - n, "%s%s", n > 0 ? ", " : "", settings[i].key);
}

static bool parse_number(const Setting *setting, const char *text, uint64_t *ret)
{
        switch (setting->kind) {
        case SETTING_COUNT:
                return value_parse_count(text, ret);
        case SETTING_SIZE:
                return value_parse_size(text, ret);
        case SETTING_SECONDS:
                return value_parse_seconds(text, ret);
        case SETTING_MODE:
                return value_parse_mode(text, ret);
        case SETTING_USER:
                return value_parse_user(text, ret);
        case SETTING_GROUP:
                return value_parse_group(text, ret);
        case SETTING_PATH:
        case SETTING_WORD:
                break;
        }
        return false;
}

static void print_number(const Setting *setting, uint64_t value, char text[VALUE_TEXT_BYTES])
{
        switch (setting->kind) {
        case SETTING_SIZE:
                value_print_size(value, text);
                return;
        case SETTING_MODE:
                (void)snprintf(text, VALUE_TEXT_BYTES, "0%03" PRIo64, value);
                return;
        case SETTING_COUNT:
        case SETTING_SECONDS:
        case SETTING_USER:
        case SETTING_GROUP:
        case SETTING_PATH:
        case SETTING_WORD:
                break;
        }
        (void)snprintf(text, VALUE_TEXT_BYTES, "%" PRIu64, value);
}

static void store_number(const Setting *setting, void *base, uint64_t value)
{
        void *place = (char *)base + setting->offset;
        uint32_t narrow = (uint32_t)value;

        assert(setting->width == sizeof(value) || (setting->width == sizeof(narrow) && value <= UINT32_MAX));
        if (setting->width == sizeof(value))
                memcpy(place, &value, sizeof(value));
        else
                memcpy(place, &narrow, sizeof(narrow));
}

static uint64_t load_number(const Setting *setting, const void *base)
{
        const void *place = (const char *)base + setting->offset;
        uint64_t value = 0;
        uint32_t narrow;

        if (setting->width == sizeof(value)) {
                memcpy(&value, place, sizeof(value));
        } else {
                memcpy(&narrow, place, sizeof(narrow));
                value = narrow;
        }
        return value;
}

static int parse_path(const Setting *setting, void *base, const char *text, char **ret_message)
{
        char **place = (char **)(void *)((char *)base + setting->offset), *copy;
        uint64_t value;

        /* A word stands for no path. */
        if (setting->words && value_parse_word(setting->words, text, &value)) {
                free(*place);
                *place = NULL;
                return 0;
        }
        if (text[0] != '/' || strlen(text) > PATH_BYTES_MAX)
                return setting_complain(ret_message, "%s: '%s' is no absolute path of at most %zu bytes", setting->key,
                                        text, PATH_BYTES_MAX);
        copy = strdup(text);
        if (!copy)
                return -ENOMEM;
        free(*place);
        *place = copy;
        return 0;
}

int setting_parse(const Setting *setting, void *base, const char *text, char **ret_message)
{
        char min[VALUE_TEXT_BYTES], max[VALUE_TEXT_BYTES];
        uint64_t value;

        if (setting->kind == SETTING_PATH)
                return parse_path(setting, base, text, ret_message);
        if (setting->words && value_parse_word(setting->words, text, &value)) {
                store_number(setting, base, value);
                return 0;
        }
        if (!parse_number(setting, text, &value))
                return setting_complain(ret_message, "%s: '%s' is not understood (%s)", setting->key, text,
                                        setting->help);
        if (value < setting->min || value > setting->max) {
                print_number(setting, setting->min, min);
                print_number(setting, setting->max, max);
                return setting_complain(ret_message, "%s: '%s' is outside %s to %s", setting->key, text, min, max);
        }
        store_number(setting, base, value);
        return 0;
}

void setting_print(const Setting *setting, const void *base, FILE *stream)
{
        char text[VALUE_TEXT_BYTES];
        const char *word;
        uint64_t value;

        if (setting->kind == SETTING_PATH) {
                const char *path;

                memcpy(&path, (const char *)base + setting->offset, sizeof(path));
                if (!path && setting->words)
                        path = setting->words[0].word;
                (void)fputs(path, stream); /* the stream's owner looks at its error */
                return;
        }
        value = load_number(setting, base);
        word = setting->words ? value_find_word(setting->words, value) : NULL;
        if (!word)
                print_number(setting, value, text);
        (void)fputs(word ? word : text, stream);
}

/* What a value of that kind is called in the help. */
static const char *name_kind(const Setting *setting)
{
        switch (setting->kind) {
        case SETTING_PATH:
                return "PATH";
        case SETTING_COUNT:
                return "N";
        case SETTING_SIZE:
                return "SIZE";
        case SETTING_SECONDS:
                return "TIME";
        case SETTING_MODE:
                return "MODE";
        case SETTING_USER:
                return "USER";
        case SETTING_GROUP:
                return "GROUP";
        case SETTING_WORD:
                return "WORD";
        }
        return "";
}

void setting_print_help(const Setting *setting, const void *defaults, FILE *stream)
{
        char left[64];

        (void)snprintf(left, sizeof(left), "%s %s", setting->key, name_kind(setting));
        (void)fprintf(stream, "  %-24s  %s", left, setting->help);
        if (defaults) {
                (void)fputs(" [", stream);
                setting_print(setting, defaults, stream);
                (void)fputc(']', stream);
        }
        (void)fputc('\n', stream);
}
