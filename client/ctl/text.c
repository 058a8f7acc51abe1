/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See text.h. Everything that parses refuses rather than guesses: a size with a sign, a fraction of a byte or a word
 * behind it is no size, and a number that does not fit is not cut to fit. Fractions are worked out in whole numbers,
 * so that 0.1G is the same on every machine.
 */
#include "client/ctl/text.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#define FRACTION_DIGITS_MAX 9
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

/* A decimal, up to nine digits behind the point: whole + fraction / scale. Returns where it ends; NULL: it is none. */
static const char *parse_decimal(const char *text, uint64_t *ret_whole, uint64_t *ret_fraction, uint64_t *ret_scale)
{
        uint64_t whole = 0, fraction = 0, scale = 1;

        if (!isdigit((unsigned char)*text))
                return NULL;
        for (; isdigit((unsigned char)*text); text++)
                if (__builtin_mul_overflow(whole, UINT64_C(10), &whole) ||
                    __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole))
                        return NULL;
        if (*text == '.') {
                const char *first = ++text;

                for (; isdigit((unsigned char)*text); text++) {
                        if (text - first >= FRACTION_DIGITS_MAX)
                                return NULL;
                        fraction = fraction * 10 + (uint64_t)(*text - '0');
                        scale *= 10;
                }
                if (text == first)
                        return NULL;
        }
        *ret_whole = whole;
        *ret_fraction = fraction;
        *ret_scale = scale;
        return text;
}

/* (whole + fraction / scale) * unit, rounded down; a fraction of less than a unit of 1 is refused. */
static bool scale_decimal(uint64_t whole, uint64_t fraction, uint64_t scale, uint64_t unit, uint64_t *ret)
{
        uint64_t sum, part;

        if (unit == 1 && fraction > 0)
                return false;
        if (__builtin_mul_overflow(whole, unit, &sum))
                return false;
        part = (uint64_t)((unsigned __int128)fraction * unit / scale);
        if (__builtin_add_overflow(sum, part, &sum))
                return false;
        *ret = sum;
        return true;
}

bool text_parse_size(const char *text, uint64_t *ret_bytes)
{
        static const char letters[] = "KMGTPE";
        uint64_t whole, fraction, scale, unit = 1;

        text = parse_decimal(text, &whole, &fraction, &scale);
        if (!text)
                return false;
        if (*text && strchr(letters, toupper((unsigned char)*text))) {
                unit = UINT64_C(1) << (10 * (strchr(letters, toupper((unsigned char)*text)) - letters + 1));
                text++;
                if (*text == 'i')
                        text++;
        }
        if (*text == 'B' || *text == 'b')
                text++;
        return *text == '\0' && scale_decimal(whole, fraction, scale, unit, ret_bytes);
}

char *text_format_size(uint64_t size_bytes, char buffer[TEXT_SIZE_BYTES])
{
        static const char letters[] = " KMGTPE";
        unsigned exponent = 0;
        uint64_t unit = 1, tenths;

        if (size_bytes < 1024) {
                snprintf(buffer, TEXT_SIZE_BYTES, "%u", (unsigned)size_bytes);
                return buffer;
        }
        while (exponent < 6 && size_bytes / unit >= 1024) {
                unit <<= 10;
                exponent++;
        }
        for (;;) {
                tenths = (uint64_t)(((unsigned __int128)size_bytes * 10 + unit / 2) / unit);
                /* 1023.96M is not "1024M": rounding may carry into the next unit. */
                if (tenths < 10240 - 5 || exponent == 6)
                        break;
                unit <<= 10;
                exponent++;
        }
        if (tenths < 100 && tenths % 10)
                snprintf(buffer, TEXT_SIZE_BYTES, "%u.%u%c", (unsigned)(tenths / 10), (unsigned)(tenths % 10),
                         letters[exponent]);
        else
                snprintf(buffer, TEXT_SIZE_BYTES, "%u%c", (unsigned)((tenths + 5) / 10), letters[exponent]);
        return buffer;
}

bool text_parse_duration(const char *text, uint64_t *ret_ns)
{
        static const struct {
                const char *name;
                uint64_t ns;
        } units[] = {
                { "", NS_PER_S },
                { "s", NS_PER_S },
                { "ms", NS_PER_MS },
                { "us", 1000 },
                { "ns", 1 },
                { "m", 60 * NS_PER_S },
                { "min", 60 * NS_PER_S },
                { "h", 3600 * NS_PER_S },
                { "d", 86400 * NS_PER_S },
        };
        uint64_t whole, fraction, scale, ns;

        text = parse_decimal(text, &whole, &fraction, &scale);
        if (!text)
                return false;
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
                if (strcmp(text, units[i].name) != 0)
                        continue;
                if (!scale_decimal(whole, fraction, scale, units[i].ns, &ns) || ns > INT64_MAX)
                        return false;
                *ret_ns = ns;
                return true;
        }
        return false;
}

bool text_parse_timeout(const char *text, int *ret_ms)
{
        uint64_t ns, ms;

        if (strcmp(text, "forever") == 0) {
                *ret_ms = -1;
                return true;
        }
        if (!text_parse_duration(text, &ns))
                return false;
        /* Rounded up: who asks for 1 us must not get 0, which is "not at all". */
        ms = ns / NS_PER_MS + (ns % NS_PER_MS != 0);
        *ret_ms = ms > INT_MAX ? INT_MAX : (int)ms;
        return true;
}

char *text_format_duration(uint64_t duration_ns, char buffer[TEXT_DURATION_BYTES])
{
        uint64_t s = duration_ns / NS_PER_S;

        if (duration_ns < NS_PER_S)
                snprintf(buffer, TEXT_DURATION_BYTES, "%ums", (unsigned)(duration_ns / NS_PER_MS));
        else if (s < 60)
                snprintf(buffer, TEXT_DURATION_BYTES, "%us", (unsigned)s);
        else if (s < 3600)
                snprintf(buffer, TEXT_DURATION_BYTES, "%um%02us", (unsigned)(s / 60), (unsigned)(s % 60));
        else if (s < 86400)
                snprintf(buffer, TEXT_DURATION_BYTES, "%uh%02um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
        else
                snprintf(buffer, TEXT_DURATION_BYTES, "%llud%02uh", (unsigned long long)(s / 86400),
                         (unsigned)(s / 3600 % 24));
        return buffer;
}

char *text_format_time(uint64_t time_ns, char buffer[TEXT_TIME_BYTES])
{
        time_t s = (time_t)(time_ns / NS_PER_S);
        struct tm tm;

        if (!localtime_r(&s, &tm) || strftime(buffer, TEXT_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &tm) == 0)
                snprintf(buffer, TEXT_TIME_BYTES, "?");
        return buffer;
}

char *text_format_time_utc(uint64_t time_ns, char buffer[TEXT_TIME_BYTES])
{
        time_t s = (time_t)(time_ns / NS_PER_S);
        struct tm tm;
        size_t n = 0;

        if (gmtime_r(&s, &tm))
                n = strftime(buffer, TEXT_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(buffer + n, TEXT_TIME_BYTES - n, ".%09uZ", (unsigned)(time_ns % NS_PER_S));
        return buffer;
}

bool text_parse_number(const char *text, uint64_t *ret)
{
        uint64_t whole, fraction, scale;

        text = parse_decimal(text, &whole, &fraction, &scale);
        if (!text || *text || scale != 1)
                return false;
        *ret = whole;
        return true;
}

/* One code point; 0 bytes where @s does not begin with a well-formed one (overlong forms and surrogates are not). */
static size_t decode_utf8(const unsigned char *s, uint32_t *ret)
{
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        size_t n = s[0] < 0x80                   ? 1
                   : s[0] >= 0xf0 && s[0] < 0xf8 ? 4
                   : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                   : s[0] >= 0xc0 && s[0] < 0xe0 ? 2
                                                 : 0;
        uint32_t code;

        if (n == 0)
                return 0;
        code = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));
        for (size_t i = 1; i < n; i++) {
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
                code = code << 6 | (s[i] & 0x3f);
        }
        if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
                return 0;
        *ret = code;
        return n;
}

/* Marks that make what follows read backwards, and with it whatever the name is printed beside. */
static bool is_direction_mark(uint32_t code)
{
        return (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0x200e ||
               code == 0x200f;
}

/* Writes at most 6 bytes and a NUL to @out; returns how many. */
static size_t escape_one(uint32_t code, char *out)
{
        switch (code) {
        case '\n':
                return (size_t)sprintf(out, "\\n");
        case '\t':
                return (size_t)sprintf(out, "\\t");
        case '\r':
                return (size_t)sprintf(out, "\\r");
        case '\\':
                return (size_t)sprintf(out, "\\\\");
        default:
                return (size_t)sprintf(out, code < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)code);
        }
}

char *text_escape(const char *name)
{
        char *text = malloc(strlen(name) * 4 + 8), *out = text;

        if (!text)
                return NULL;
        for (const unsigned char *s = (const unsigned char *)name; *s;) {
                uint32_t code;
                size_t n = decode_utf8(s, &code);

                if (n == 0) {
                        out += escape_one(*s++, out);
                } else if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == '\\' || is_direction_mark(code)) {
                        /* C1 controls are two bytes of UTF-8, shown as the code point they are. */
                        out += escape_one(code, out);
                        s += n;
                } else {
                        memcpy(out, s, n);
                        out += n;
                        s += n;
                }
        }
        *out = '\0';
        return text;
}

char *text_to_utf8(const char *name, bool *ret_is_exact)
{
        char *text = malloc(strlen(name) * 3 + 1), *out = text;
        bool is_exact = true;

        if (!text)
                return NULL;
        for (const unsigned char *s = (const unsigned char *)name; *s;) {
                uint32_t code;
                size_t n = decode_utf8(s, &code);

                if (n == 0) {
                        memcpy(out, "\xef\xbf\xbd", 3);
                        out += 3;
                        s++;
                        is_exact = false;
                } else {
                        memcpy(out, s, n);
                        out += n;
                        s += n;
                }
        }
        *out = '\0';
        *ret_is_exact = is_exact;
        return text;
}

size_t text_width(const char *text)
{
        size_t width = 0;

        for (const unsigned char *s = (const unsigned char *)text; *s;) {
                uint32_t code;
                size_t n = decode_utf8(s, &code);
                /* Without a UTF-8 locale wcwidth() knows none of them; one column is the best guess there. */
                int columns = n <= 1 ? 1 : wcwidth((wchar_t)code);

                width += columns < 0 ? 1 : (size_t)columns;
                s += n ? n : 1;
        }
        return width;
}
