/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting by the ring: bytes that are copied to where they stay, in a lease, or to staging memory, and one record. With no
 * allocation, no operation, and no system call where the daemon is looking.
 */
#ifndef CLIENT_PUT_NOW_H
#define CLIENT_PUT_NOW_H

#include "client/direct.h"

/* @item: as create_read_options() has it. 0, an error with the thread's sentence, or DIRECT_NOT. */
int put_now(Client *client, const char *name, const void *data, const ProtoItem *item, bool is_visible);

#endif
