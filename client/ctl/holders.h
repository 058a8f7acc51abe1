/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds an object: all of them, however many, and how they are shown. */
#ifndef CTL_HOLDERS_H
#define CTL_HOLDERS_H

#include <stddef.h>

#include <folio/folio.h>

/* How many there are, and in *@ret an array to be freed (NULL for none); or an error of folio_holders(). */
int holders_take(struct folio_client *client, const char *name, struct folio_holder **ret);

#endif
