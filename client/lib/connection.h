/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of one socket to foliod, and how to get one: packets that the socket has no room for stand in a
 * queue, in order. Never blocks once connected. Not locked: request.c, which has the lock, is its only user. Knows no message.
 */
#ifndef CLIENT_LIB_CONNECTION_H
#define CLIENT_LIB_CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

enum {
        CONNECTION_E_GONE = 1,       /* the other side has hung up */
        CONNECTION_E_DROPPED = 2,    /* a hint that was not worth the queue */
        CONNECTION_HINTS_QUEUED_MAX = 256,
};

typedef struct Connection {
        _Atomic int socket;          /* -1: not connected, yet or any more. Read without the lock by who receives */
        List queue;
        size_t n_queued;
} Connection;

/* CLOCK_MONOTONIC. */
uint64_t connection_now_ns(void);

/* Connects to the socket at @path. 0, or a negative errno: -ETIMEDOUT: the listener's backlog stayed full until @deadline_ns. */
int connection_open(const char *path, uint64_t deadline_ns, int *ret_socket);

/* The same without waiting: -EAGAIN: the backlog is full. */
int connection_try(const char *path, int *ret_socket);

void connection_init(Connection *connection, int consume_socket);
void connection_deinit(Connection *connection);

/* 0: sent, or queued behind what waits already. CONNECTION_E_*; negative errno. */
int connection_send(Connection *connection, const void *bytes, size_t n_bytes, bool is_hint);

/* Sends what is queued, as far as there is room. 0, CONNECTION_E_GONE or a negative errno. */
int connection_flush(Connection *connection);

static inline bool connection_has_queued(const Connection *connection)
{
        return connection->n_queued > 0;
}

/* Looks at the socket without reading it. */
bool connection_is_alive(const Connection *connection);

#endif
