/* SPDX-License-Identifier: Apache-2.0 */
/* What the index knows of an object, as the program sees it. */
#ifndef CLIENT_STAT_H
#define CLIENT_STAT_H

#include "client/context.h"
#include "client/lib/lookup.h"
#include "folio/object.h"

/*
 * Fills *@ret, up to its struct_bytes (checked before), from a slot as copied. False: the slot has changed since, as
 * its texts show: look again.
 */
bool stat_fill(const Space *space, uint32_t slot, const LayoutSlot *copy, struct folio_stat *ret, size_t struct_bytes);

/* By name, of a space that may be read. As get_look(). */
int stat_look(Client *client, Space *space, Key key, const char *name, bool may_wait, struct folio_stat *ret,
              size_t struct_bytes);

#endif
