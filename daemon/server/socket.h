/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket at a path, and the lock that makes it ours. Removes nothing but a socket that nobody listens on,
 * and only while it holds the lock; follows no link.
 */
#ifndef DAEMON_SERVER_SOCKET_H
#define DAEMON_SERVER_SOCKET_H

#include <stdint.h>

typedef struct Socket {
        int fd;                      /* bound and listening */
        int directory_fd;
        int lock_fd;                 /* with the lock held */
        char *name;                  /* in the directory */
        char *lock_name;
} Socket;

#define SOCKET_NULL { .fd = -1, .directory_fd = -1, .lock_fd = -1 }

enum {
        SOCKET_E_RUNNING = 1,        /* somebody has the lock, or answers at the path */
        SOCKET_E_REFUSED = 2,        /* something is there that must not be touched, or the directory is not safe */
};

/* @socket is SOCKET_NULL. 0, SOCKET_E_* or a negative errno; then *@ret_message says what, to be freed; may be NULL. */
int socket_open(Socket *socket, const char *path, uint32_t mode, char **ret_message);

/* Stops listening, removes what socket_open() made. */
void socket_close(Socket *socket);

#endif
