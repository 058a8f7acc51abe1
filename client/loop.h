/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one descriptor by which an event loop drives a client: an epoll instance that holds the socket, a timer for deadlines, and the
 * timerfds of namespaces in which an asynchronous get waits. Made when first asked for: programs that only block have
 * none of it. Does not know what an operation is about.
 */
#ifndef CLIENT_LOOP_H
#define CLIENT_LOOP_H

#include "client/operation.h"

/* The descriptor, or an error. */
int loop_get_fd(Client *client);

/* After anything that may have changed what there is to wait for. */
void loop_update(Client *client);

/* Takes the edges of what was readable; true: those who wait for an object should look again. */
bool loop_consume(Client *client);

/* With the lock: a timerfd of a watch of the client to wait for too. */
void loop_watch(Client *client, int fd);

void loop_deinit(Client *client);

#endif
