/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts in words and in JSON: what the numbers of <folio/...> are called. The names used here are an interface: scripts
 * read them, so they are added to and never changed.
 */
#ifndef CTL_FACTS_H
#define CTL_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <folio/folio.h>
#include <jansson.h>

#define FACTS_MODE_BYTES 12

/* Words for the enums of <folio/types.h>; "?" for a number that a newer daemon has and we do not know. */
const char *facts_state(uint32_t state);
const char *facts_lifetime(uint32_t lifetime);
const char *facts_protection(uint32_t protection);
const char *facts_backing(uint32_t backing);
const char *facts_placement(uint32_t placement);
const char *facts_huge(uint32_t huge);
const char *facts_writers(uint32_t writers);
const char *facts_event(uint32_t type);

bool facts_parse_lifetime(const char *word, uint32_t *ret);
bool facts_parse_backing(const char *word, uint32_t *ret);
bool facts_parse_huge(const char *word, uint32_t *ret);
bool facts_parse_writers(const char *word, uint32_t *ret);

/* Rights of owner, group and others: "rwarw----"; also as octal digits, "0760". */
char *facts_format_mode(uint32_t mode, char buffer[FACTS_MODE_BYTES]);
bool facts_parse_mode(const char *text, uint32_t *ret_mode);

/* Which seals the file behind an object carries, by what the daemon vouches for: "write shrink grow seal". */
const char *facts_seals(const struct folio_stat *stat);

/* New references; NULL: no memory. @holders may be NULL: then there is no such field. */
json_t *facts_stat_json(const struct folio_stat *stat, const struct folio_holder *holders, size_t n_holders);
json_t *facts_holder_json(const struct folio_holder *holder);
json_t *facts_namespace_json(const struct folio_namespace *ns);
json_t *facts_event_json(const struct folio_event *event);
json_t *facts_status_json(const struct folio_status *entries, size_t n_entries);

/* Exact up to 2^63; what is larger, and could only be said inexactly, is a string of digits. */
json_t *facts_number_json(uint64_t number);

#endif
