/* SPDX-License-Identifier: Apache-2.0 */
/* See facts.h. */
#include "client/ctl/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/text.h"

#define N_WORDS(words) (sizeof(words) / sizeof((words)[0]))

static const char *const state_words[] = { NULL, "writing", "sealed", "mutable" };
static const char *const lifetime_words[] = { "until-deleted", "with-creator", "until-time" };
static const char *const protection_words[] = { "none", "kernel-sealed", "file-mode", "trusted-writer" };
static const char *const backing_words[] = { NULL, "memfd", "tmpfs", "hugetlb" };
static const char *const placement_words[] = { NULL, "packed", "own" };
static const char *const huge_words[] = { "auto", "always", "never" };
static const char *const writers_words[] = { NULL, "untrusted", "trusted" };
static const char *const event_words[] = { NULL, "sealed", "replaced", "deleted", "evicted", "expired", "missed" };

static const char *word_of(const char *const *words, size_t n_words, uint32_t number)
{
        return number < n_words && words[number] ? words[number] : "?";
}

static bool number_of(const char *const *words, size_t n_words, const char *word, uint32_t *ret)
{
        for (size_t i = 0; i < n_words; i++)
                if (words[i] && strcmp(words[i], word) == 0) {
                        *ret = (uint32_t)i;
                        return true;
                }
        return false;
}

const char *facts_state(uint32_t state)
{
        return word_of(state_words, N_WORDS(state_words), state);
}

const char *facts_lifetime(uint32_t lifetime)
{
        return word_of(lifetime_words, N_WORDS(lifetime_words), lifetime);
}

const char *facts_protection(uint32_t protection)
{
        return word_of(protection_words, N_WORDS(protection_words), protection);
}

const char *facts_backing(uint32_t backing)
{
        return word_of(backing_words, N_WORDS(backing_words), backing);
}

const char *facts_placement(uint32_t placement)
{
        return word_of(placement_words, N_WORDS(placement_words), placement);
}

const char *facts_huge(uint32_t huge)
{
        return word_of(huge_words, N_WORDS(huge_words), huge);
}

const char *facts_writers(uint32_t writers)
{
        return word_of(writers_words, N_WORDS(writers_words), writers);
}

const char *facts_event(uint32_t type)
{
        return word_of(event_words, N_WORDS(event_words), type);
}

bool facts_parse_lifetime(const char *word, uint32_t *ret)
{
        return number_of(lifetime_words, N_WORDS(lifetime_words), word, ret);
}

bool facts_parse_backing(const char *word, uint32_t *ret)
{
        /* There is a number for hugetlb, and no foliod that takes it. */
        return number_of(backing_words, FOLIO_BACKING_HUGETLB, word, ret);
}

bool facts_parse_huge(const char *word, uint32_t *ret)
{
        return number_of(huge_words, N_WORDS(huge_words), word, ret);
}

bool facts_parse_writers(const char *word, uint32_t *ret)
{
        return number_of(writers_words, N_WORDS(writers_words), word, ret);
}

static const char mode_letters[] = "rwa";

char *facts_format_mode(uint32_t mode, char buffer[FACTS_MODE_BYTES])
{
        snprintf(buffer, FACTS_MODE_BYTES, "%04o", mode & 07777u);
        return buffer;
}

bool facts_parse_mode(const char *text, uint32_t *ret_mode)
{
        uint32_t mode = 0;

        if (strlen(text) == 9) {
                for (unsigned i = 0; i < 9; i++)
                        if (text[i] == mode_letters[i % 3])
                                mode |= 0400u >> i;
                        else if (text[i] != '-')
                                return false;
                *ret_mode = mode;
                return true;
        }
        if (!*text || strlen(text) > 4)
                return false;
        for (; *text; text++) {
                if (*text < '0' || *text > '7')
                        return false;
                mode = mode << 3 | (uint32_t)(*text - '0');
        }
        if (mode > 0777)
                return false;
        *ret_mode = mode;
        return true;
}

const char *facts_seals(const struct folio_stat *stat)
{
        /* Its size is sealed, its bytes are not. */
        if (stat->protection == FOLIO_PROTECTION_TRUSTED)
                return "shrink grow seal";
        if (stat->protection != FOLIO_PROTECTION_KERNEL)
                return "";
        /* A packed region is still written by the daemon, through the mapping it had before the seal. */
        return stat->placement == FOLIO_PLACEMENT_PACKED ? "future-write shrink grow seal" : "write shrink grow seal";
}

json_t *facts_number_json(uint64_t number)
{
        char digits[24];

        if (number <= INT64_MAX)
                return json_integer((json_int_t)number);
        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
        return json_string(digits);
}

/* Sets @key, consuming @value; remembers in *@failed when there was no memory. */
static void set(json_t *object, const char *key, json_t *value, bool *failed)
{
        if (json_object_set_new(object, key, value) < 0)
                *failed = true;
}

static void set_number(json_t *object, const char *key, uint64_t number, bool *failed)
{
        set(object, key, facts_number_json(number), failed);
}

static void set_word(json_t *object, const char *key, const char *word, bool *failed)
{
        set(object, key, json_string(word), failed);
}

/* null for 0, which stands for "never". */
static void set_time(json_t *object, const char *key, uint64_t time_ns, bool *failed)
{
        char text[TEXT_TIME_BYTES];

        set(object, key, time_ns ? json_string(text_format_time_utc(time_ns, text)) : json_null(), failed);
}

/* JSON carries no bytes that are not UTF-8; for a name that has some, `<key>_hex` has all of them exactly. */
static void set_name(json_t *object, const char *key, const char *name, bool *failed)
{
        char hex[2 * FOLIO_NAME_BYTES_MAX + 3], hex_key[32];
        bool is_exact = true;
        char *text = text_to_utf8(name, &is_exact);
        size_t n = 0;

        set(object, key, text ? json_string(text) : NULL, failed);
        free(text);
        if (is_exact)
                return;
        hex[0] = '\0';
        for (; name[n] && n <= FOLIO_NAME_BYTES_MAX; n++)
                snprintf(hex + 2 * n, 3, "%02x", (unsigned char)name[n]);
        snprintf(hex_key, sizeof(hex_key), "%s_hex", key);
        set_word(object, hex_key, hex, failed);
}

/* The finished object, or NULL where something did not fit in memory. */
static json_t *finish(json_t *object, bool failed)
{
        if (!failed)
                return object;
        json_decref(object);
        return NULL;
}

static json_t *seals_json(const struct folio_stat *stat)
{
        json_t *array = json_array();
        char seals[64], *rest = NULL;

        snprintf(seals, sizeof(seals), "%s", facts_seals(stat));
        for (char *seal = strtok_r(seals, " ", &rest); seal; seal = strtok_r(NULL, " ", &rest))
                if (json_array_append_new(array, json_string(seal)) < 0) {
                        json_decref(array);
                        return NULL;
                }
        return array;
}

static json_t *holders_json(const struct folio_holder *holders, size_t n_holders)
{
        json_t *array = json_array();

        for (size_t i = 0; i < n_holders; i++)
                if (json_array_append_new(array, facts_holder_json(&holders[i])) < 0) {
                        json_decref(array);
                        return NULL;
                }
        return array;
}

json_t *facts_holder_json(const struct folio_holder *holder)
{
        json_t *object = json_object();
        bool failed = false;

        set(object, "pid", holder->pid ? json_integer(holder->pid) : json_null(), &failed);
        set_name(object, "comm", holder->comm, &failed);
        set_number(object, "uid", holder->uid, &failed);
        set_number(object, "pins", holder->n_pins, &failed);
        set_time(object, "connected", holder->connected_ns, &failed);
        return finish(object, failed);
}

json_t *facts_stat_json(const struct folio_stat *stat, const struct folio_holder *holders, size_t n_holders)
{
        json_t *object = json_object();
        bool failed = false;

        set_name(object, "name", stat->name, &failed);
        set_number(object, "size_bytes", stat->size_bytes, &failed);
        set_number(object, "capacity_bytes", stat->capacity_bytes, &failed);
        set_number(object, "allocated_bytes", stat->allocated_bytes, &failed);
        set_number(object, "huge_bytes", stat->huge_bytes, &failed);
        set_word(object, "state", facts_state(stat->state), &failed);
        set_word(object, "protection", facts_protection(stat->protection), &failed);
        set(object, "seals", seals_json(stat), &failed);
        set_word(object, "backing", facts_backing(stat->backing), &failed);
        set_word(object, "placement", facts_placement(stat->placement), &failed);
        set_number(object, "generation", stat->generation, &failed);
        set_time(object, "created", stat->created_ns, &failed);
        set_time(object, "changed", stat->changed_ns, &failed);
        set_time(object, "expires", stat->expires_ns, &failed);
        set_word(object, "lifetime", facts_lifetime(stat->lifetime), &failed);
        set_number(object, "owner_uid", stat->owner_uid, &failed);
        if (*stat->content_type)
                set_name(object, "content_type", stat->content_type, &failed);
        else
                set(object, "content_type", json_null(), &failed);
        set_number(object, "metadata_bytes", stat->metadata_bytes, &failed);
        set(object, "has_holes", json_boolean(stat->has_holes), &failed);
        set_number(object, "zero_bytes", stat->zero_bytes, &failed);
        if (holders)
                set(object, "holders", holders_json(holders, n_holders), &failed);
        return finish(object, failed);
}

json_t *facts_namespace_json(const struct folio_namespace *ns)
{
        static const struct {
                uint32_t right;
                const char *word;
        } rights[] = { { FOLIO_RIGHT_READ, "read" }, { FOLIO_RIGHT_WRITE, "write" }, { FOLIO_RIGHT_ADMIN, "admin" } };
        json_t *object = json_object(), *array = json_array();
        char mode[FACTS_MODE_BYTES];
        bool failed = false;

        set_name(object, "name", ns->name, &failed);
        set_number(object, "owner_uid", ns->owner_uid, &failed);
        set_number(object, "owner_gid", ns->owner_gid, &failed);
        set_word(object, "mode", facts_format_mode(ns->mode, mode), &failed);
        for (size_t i = 0; i < N_WORDS(rights); i++)
                if (ns->rights & rights[i].right && json_array_append_new(array, json_string(rights[i].word)) < 0)
                        failed = true;
        set(object, "rights", array, &failed);
        set_number(object, "n_objects", ns->n_objects, &failed);
        set_number(object, "used_bytes", ns->used_bytes, &failed);
        set_number(object, "quota_bytes", ns->quota_bytes, &failed);
        set_number(object, "quota_objects", ns->quota_objects, &failed);
        set_number(object, "objects_max", ns->objects_max, &failed);
        set_number(object, "n_held", ns->n_held, &failed);
        set_number(object, "held_bytes", ns->held_bytes, &failed);
        set_number(object, "n_unsealed", ns->n_unsealed, &failed);
        set_number(object, "unsealed_bytes", ns->unsealed_bytes, &failed);
        set_number(object, "index_bytes", ns->index_bytes, &failed);
        set_word(object, "backing", facts_backing(ns->backing), &failed);
        set_word(object, "huge", facts_huge(ns->huge), &failed);
        set_word(object, "writers", facts_writers(ns->writers), &failed);
        set_number(object, "leased_bytes", ns->leased_bytes, &failed);
        return finish(object, failed);
}

json_t *facts_event_json(const struct folio_event *event)
{
        json_t *object = json_object();
        bool failed = false;

        set_number(object, "sequence", event->sequence, &failed);
        set_word(object, "event", facts_event(event->type), &failed);
        if (event->type == FOLIO_EVENT_MISSED) {
                set_number(object, "n_missed", event->n_missed, &failed);
                return finish(object, failed);
        }
        set_time(object, "time", event->time_ns, &failed);
        set_name(object, "name", event->name, &failed);
        set_number(object, "generation", event->generation, &failed);
        set_number(object, "size_bytes", event->size_bytes, &failed);
        return finish(object, failed);
}

json_t *facts_status_json(const struct folio_status *entries, size_t n_entries)
{
        json_t *object = json_object();
        bool failed = false;

        for (size_t i = 0; i < n_entries; i++)
                if (*entries[i].text)
                        set_word(object, entries[i].name, entries[i].text, &failed);
                else
                        set_number(object, entries[i].name, entries[i].value, &failed);
        return finish(object, failed);
}
