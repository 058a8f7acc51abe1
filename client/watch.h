/* SPDX-License-Identifier: Apache-2.0 */
/* Watches, as far as others must know of them: that there are some, and what a new connection means to them. */
#ifndef CLIENT_WATCH_H
#define CLIENT_WATCH_H

#include "client/names.h"

/* Something may have changed for all of them: their descriptors become readable. */
void watches_wake(Client *client);

/* Has any of them, in this namespace, a descriptor of foliod's? */
bool watches_want(Client *client, const Space *space);

/* The one that tells of events from now on, instead; borrowed. */
void watches_replace(Client *client, const Space *space, int event_fd);

#endif
