/* SPDX-License-Identifier: Apache-2.0 */
/* See holders.h. */
#include "client/ctl/holders.h"

#include <stdlib.h>

#define HOLDERS_FIRST 16
#define TRIES_MAX 8

int holders_take(struct folio_client *client, const char *name, struct folio_holder **ret)
{
        size_t n_room = HOLDERS_FIRST;

        /* They may become more between one answer and the next question, but hardly for ever. */
        for (unsigned n_tries = 0; n_tries < TRIES_MAX; n_tries++) {
                struct folio_holder *holders = calloc(n_room, sizeof(*holders));
                int n;

                if (!holders)
                        return FOLIO_E_NO_MEMORY;
                holders[0].struct_bytes = sizeof(*holders);
                n = folio_holders(client, name, holders, n_room);
                if (n > 0 && ((size_t)n <= n_room || n_tries + 1 == TRIES_MAX)) {
                        *ret = holders;
                        return (size_t)n <= n_room ? n : (int)n_room;
                }
                free(holders);
                if (n <= 0) {
                        *ret = NULL;
                        return n;
                }
                n_room = (size_t)n + HOLDERS_FIRST;
        }
        return FOLIO_E_NO_MEMORY;
}
