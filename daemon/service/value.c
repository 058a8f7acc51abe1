/* SPDX-License-Identifier: Apache-2.0 */
/* Text to numbers, strictly: no sign, no blank, nothing behind the end, nothing that wraps or loses a bit. */
#include "daemon/service/value.h"

#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"

#define DIRECTORY_ENTRY_BYTES (64u << 10) /* of passwd and group: a group's members can be many */

/* Digits from *@text on, in @radix, which is moved behind them; false: none, or too many. */
static bool take_digits(const char **text, unsigned radix, uint64_t *ret)
{
        const char *at = *text;
        uint64_t value = 0;

        for (; *at >= '0' && *at < (char)('0' + radix); at++)
                if (!checked_mul(value, radix, &value) || !checked_add(value, (uint64_t)(*at - '0'), &value))
                        return false;
        if (at == *text)
                return false;
        *text = at;
        *ret = value;
        return true;
}

bool value_parse_count(const char *text, uint64_t *ret)
{
        uint64_t value;

        if (!take_digits(&text, 10, &value) || *text)
                return false;
        *ret = value;
        return true;
}

static bool take_unit(const char *text, uint64_t *ret)
{
        static const ValueWord units[] = {
                { "", 1 },        { "B", 1 },         { "K", KIB },         { "KiB", KIB },
                { "M", MIB },     { "MiB", MIB },     { "G", GIB },         { "GiB", GIB },
                { "T", GIB << 10 }, { "TiB", GIB << 10 }, { "k", KIB },     { NULL, 0 },
        };

        return value_parse_word(units, text, ret);
}

bool value_parse_size(const char *text, uint64_t *ret)
{
        uint64_t whole, unit, value, part = 0, parts = 1;

        if (!take_digits(&text, 10, &whole))
                return false;
        if (*text == '.') {
                const char *digits = ++text;

                if (!take_digits(&text, 10, &part) || text - digits > 6)
                        return false;
                for (const char *at = digits; at < text; at++)
                        parts *= 10;
        }
        if (!take_unit(text, &unit) || !checked_mul(whole, unit, &value))
                return false;
        /* A part of a byte is a slip, not a size. Below 10^6 times at most 2^40 fits. */
        if (parts > 1 && unit == 1)
                return false;
        if (!checked_add(value, part * unit / parts, &value))
                return false;
        *ret = value;
        return true;
}

bool value_parse_seconds(const char *text, uint64_t *ret)
{
        static const ValueWord units[] = { { "", 1 }, { "s", 1 }, { "m", 60 }, { "h", 3600 }, { NULL, 0 } };
        uint64_t value, unit;

        if (!take_digits(&text, 10, &value) || !value_parse_word(units, text, &unit))
                return false;
        return checked_mul(value, unit, ret);
}

bool value_parse_mode(const char *text, uint64_t *ret)
{
        uint64_t value;

        if (!take_digits(&text, 8, &value) || *text || value > 0777)
                return false;
        *ret = value;
        return true;
}

bool value_parse_user(const char *text, uint64_t *ret)
{
        _cleanup_(cleanup_free) char *room = NULL;
        struct passwd entry, *found = NULL;
        uint64_t value;

        if (value_parse_count(text, &value)) {
                /* The highest number means "no change" to the kernel. */
                if (value >= UINT32_MAX)
                        return false;
                *ret = value;
                return true;
        }
        room = malloc(DIRECTORY_ENTRY_BYTES);
        if (!room || getpwnam_r(text, &entry, room, DIRECTORY_ENTRY_BYTES, &found) != 0 || !found)
                return false;
        *ret = entry.pw_uid;
        return true;
}

bool value_parse_group(const char *text, uint64_t *ret)
{
        _cleanup_(cleanup_free) char *room = NULL;
        struct group entry, *found = NULL;
        uint64_t value;

        if (value_parse_count(text, &value)) {
                if (value >= UINT32_MAX)
                        return false;
                *ret = value;
                return true;
        }
        room = malloc(DIRECTORY_ENTRY_BYTES);
        if (!room || getgrnam_r(text, &entry, room, DIRECTORY_ENTRY_BYTES, &found) != 0 || !found)
                return false;
        *ret = entry.gr_gid;
        return true;
}

bool value_parse_word(const ValueWord *words, const char *text, uint64_t *ret)
{
        for (; words->word; words++)
                if (strcmp(words->word, text) == 0) {
                        *ret = words->value;
                        return true;
                }
        return false;
}

const char *value_find_word(const ValueWord *words, uint64_t value)
{
        for (; words->word; words++)
                if (words->value == value)
                        return words->word;
        return NULL;
}

void value_print_size(uint64_t n_bytes, char text[VALUE_TEXT_BYTES])
{
        static const char units[] = "TGMK";
        uint64_t unit = GIB << 10;

        for (const char *u = units; *u; u++, unit >>= 10)
                if (n_bytes > 0 && n_bytes % unit == 0) {
                        (void)snprintf(text, VALUE_TEXT_BYTES, "%" PRIu64 "%c", n_bytes / unit, *u);
                        return;
                }
        (void)snprintf(text, VALUE_TEXT_BYTES, "%" PRIu64, n_bytes);
}
