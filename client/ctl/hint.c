/* SPDX-License-Identifier: Apache-2.0 */
/* See hint.h. The first row that fits is taken. */
#include "client/ctl/hint.h"

#include <stddef.h>
#include <string.h>

#include <folio/folio.h>

typedef struct Hint {
        int error;
        const char *what; /* NULL: whatever was tried */
        const char *phrase; /* in the sentence; NULL: whatever it says */
        const char *advice; /* NULL: the sentence says it all */
} Hint;

static const Hint hints[] = {
        { FOLIO_E_NOT_FOUND, "remove namespace", NULL, "`folioctl ns ls` shows which there are" },
        { FOLIO_E_NOT_FOUND, NULL, "no namespace",
          "`folioctl ns ls` shows which there are, `folioctl ns add NAME` makes one" },
        { FOLIO_E_NOT_FOUND, "remove", NULL, "`folioctl ls` shows what there is" },
        { FOLIO_E_NOT_FOUND, NULL, NULL, "`folioctl ls` shows what there is; `folioctl wait` waits for it" },
        { FOLIO_E_DELETED, "remove", NULL, "`folioctl ls` shows what there is" },
        { FOLIO_E_DELETED, NULL, NULL, "put it again, or `folioctl wait` for somebody else to" },
        { FOLIO_E_EVICTED, "remove", NULL, "`folioctl ls` shows what there is" },
        { FOLIO_E_EVICTED, NULL, NULL, "put it again" },
        { FOLIO_E_EXPIRED, "remove", NULL, "`folioctl ls` shows what there is" },
        { FOLIO_E_EXPIRED, NULL, NULL, "put it again, with a longer --expires-in" },
        { FOLIO_E_WRITING, "remove", NULL, "it goes when its writer gives it up; `folioctl wait` waits for the seal" },
        { FOLIO_E_WRITING, NULL, NULL, "`folioctl wait` waits until it is sealed" },
        { FOLIO_E_WRITER_DIED, NULL, NULL, "put it again" },
        { FOLIO_E_EXISTS, "add namespace", NULL, "`folioctl ns set` changes its settings" },
        { FOLIO_E_EXISTS, NULL, NULL,
          "use --replace to put something else under that name, or remove it first: `folioctl rm`" },
        { FOLIO_E_ACCESS, "connect to foliod", NULL, NULL },
        { FOLIO_E_ACCESS, "add namespace", NULL, NULL },
        { FOLIO_E_ACCESS, NULL, NULL, "`folioctl ns ls` shows who may do what" },
        { FOLIO_E_FULL, NULL, NULL,
          "`folioctl ns ls` shows who uses the memory, `folioctl ls -l --sort size` what is large, "
          "`folioctl ls --holders` who holds it" },
        { FOLIO_E_TOO_LARGE, "truncate", NULL,
          "`folioctl stat` shows its capacity, which `folioctl put --mutable --capacity SIZE` gives it for good" },
        { FOLIO_E_TOO_LARGE, NULL, "quota", "`folioctl ns set NAMESPACE --quota SIZE` raises it" },
        { FOLIO_E_TOO_LARGE, NULL, "metadata", NULL },
        { FOLIO_E_TOO_LARGE, NULL, "content type", NULL },
        { FOLIO_E_TOO_LARGE, NULL, "capacity", "`folioctl stat` shows its capacity" },
        { FOLIO_E_TOO_LARGE, NULL, NULL,
          "`folioctl status memory` shows how large the store is, and `budget` in foliod.conf(5), or --budget of foliod "
          "and of `folioctl run`, makes it larger" },
        { FOLIO_E_LIMIT, NULL, "quota-objects", "`folioctl ns set NAMESPACE --quota-objects N` raises it" },
        { FOLIO_E_LIMIT, NULL, "quota", "`folioctl ns set NAMESPACE --quota SIZE` raises it" },
        { FOLIO_E_LIMIT, NULL, "objects-max", "`folioctl ns add NAMESPACE --objects-max N` makes one" },
        { FOLIO_E_LIMIT, "connect to foliod", NULL, NULL },
        { FOLIO_E_LIMIT, NULL, NULL, "`folioctl ns ls` and `folioctl status` show the limits" },
        { FOLIO_E_TIMEOUT, NULL, "has not answered", "--timeout before the verb gives it longer" },
        { FOLIO_E_TIMEOUT, "get", NULL, "--wait gives it longer" },
        { FOLIO_E_TIMEOUT, "wait for", NULL, "--wait gives it longer" },
        { FOLIO_E_TIMEOUT, NULL, NULL, "--timeout before the verb gives it longer" },
        { FOLIO_E_STATE, NULL, NULL, "`folioctl stat` shows what state it is in" },
        { FOLIO_E_UNSUPPORTED, NULL, NULL, "`folioctl check` shows what this daemon can do" },
};

const char *hint_find(int error, const char *what, const char *sentence)
{
        for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
                if (hints[i].error == error && (!hints[i].what || strcmp(hints[i].what, what) == 0) &&
                    (!hints[i].phrase || strstr(sentence, hints[i].phrase)))
                        return hints[i].advice;
        return NULL;
}
