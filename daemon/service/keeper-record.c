/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/service/keeper-record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"

#define PREFIX "folio-"
#define SEGMENT "segment"

static const char *const kind_words[] = {
        [KEPT_INDEX] = "index",     [KEPT_PACKED] = "packed",   [KEPT_LEASED] = "leased", [KEPT_BOOK] = "book",
        [KEPT_OWN] = "own",         [KEPT_STAGING] = "staging", [KEPT_PROCESS] = "process", [KEPT_RING] = "ring",
        [KEPT_BELL] = "bell",       [KEPT_PINS] = "pins",       [KEPT_WATCH] = "watch",   [KEPT_LISTENER] = "listener",
};

bool keeper_record_is_valid(const KeptRecord *record)
{
        return record->version == KEEPER_RECORD_VERSION && record->kind < ARRAY_SIZE(kind_words) &&
               kind_words[record->kind] && record->n_text <= KEEPER_TEXT_BYTES_MAX;
}

bool keeper_record_to_name(const KeptRecord *record, uint64_t serial, KeeperName name)
{
        int n = snprintf(name, sizeof(KeeperName),
                         PREFIX "%s-%" PRIx32 "-%" PRIx64 "-%" PRIx32 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64
                         "-", kind_words[record->kind], record->version, serial, record->owner, record->id,
                         record->detail, record->inode, record->size_bytes);
        size_t at = (size_t)n;

        if (n < 0 || at + 2 * (size_t)record->n_text > KEEPER_NAME_BYTES_MAX)
                return false;
        for (uint32_t i = 0; i < record->n_text; i++, at += 2)
                (void)snprintf(name + at, sizeof(KeeperName) - at, "%02x", (unsigned)(uint8_t)record->text[i]);
        return true;
}

void keeper_record_to_segment_name(uint64_t serial, KeeperName name)
{
        (void)snprintf(name, sizeof(KeeperName), PREFIX SEGMENT "-%x-%" PRIx64, KEEPER_RECORD_VERSION, serial);
}

static int digit(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A number of at most @n_digits_max, as we print them; @at goes behind it. */
static bool take_number(const char **at, unsigned n_digits_max, uint64_t *ret)
{
        uint64_t value = 0;
        unsigned n = 0;

        for (; digit(**at) >= 0; (*at)++, n++) {
                if (n == n_digits_max)
                        return false;
                value = value << 4 | (uint64_t)digit(**at);
        }
        *ret = value;
        return n > 0;
}

static bool take_next(const char **at, unsigned n_digits_max, uint64_t *ret)
{
        if (**at != '-')
                return false;
        (*at)++;
        return take_number(at, n_digits_max, ret);
}

/* "-" and the bytes up to the end. */
static bool take_text(const char *at, KeptRecord *ret)
{
        size_t n = strlen(at);

        if (*at != '-' || n % 2 == 0 || n / 2 > KEEPER_TEXT_BYTES_MAX)
                return false;
        for (at++; *at; at += 2) {
                if (digit(at[0]) < 0 || digit(at[1]) < 0)
                        return false;
                ret->text[ret->n_text++] = (char)(digit(at[0]) << 4 | digit(at[1]));
        }
        return true;
}

static uint32_t find_kind(const char *word, size_t n_word)
{
        for (uint32_t i = 1; i < ARRAY_SIZE(kind_words); i++)
                if (strlen(kind_words[i]) == n_word && memcmp(kind_words[i], word, n_word) == 0)
                        return i;
        return 0;
}

int keeper_record_from_name(const char *name, KeptRecord *ret, uint64_t *ret_serial)
{
        KeptRecord record = { .n_text = 0 };
        const char *word = name + strlen(PREFIX), *at;
        uint64_t version, owner;
        bool is_segment;

        if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
                return KEEPER_RECORD_E_FOREIGN;
        at = word + strcspn(word, "-");
        record.kind = find_kind(word, (size_t)(at - word));
        is_segment = (size_t)(at - word) == strlen(SEGMENT) && memcmp(word, SEGMENT, strlen(SEGMENT)) == 0;
        if (!take_next(&at, 8, &version))
                return KEEPER_RECORD_E_BAD;
        if (version > KEEPER_RECORD_VERSION)
                return KEEPER_RECORD_E_NEWER;
        record.version = (uint32_t)version;
        if (!take_next(&at, 16, ret_serial))
                return KEEPER_RECORD_E_BAD;
        if (is_segment)
                return *at == '\0' && version == KEEPER_RECORD_VERSION ? KEEPER_RECORD_E_SEGMENT : KEEPER_RECORD_E_BAD;
        if (!take_next(&at, 8, &owner) || !take_next(&at, 16, &record.id) || !take_next(&at, 16, &record.detail) ||
            !take_next(&at, 16, &record.inode) || !take_next(&at, 16, &record.size_bytes) || !take_text(at, &record))
                return KEEPER_RECORD_E_BAD;
        record.owner = (uint32_t)owner;
        if (!keeper_record_is_valid(&record))
                return KEEPER_RECORD_E_BAD;
        *ret = record;
        return 0;
}
