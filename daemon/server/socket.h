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

/* One that an earlier daemon has opened, that listens still, and the file at its path, by which it is known again. */
typedef struct SocketKept {
        int fd;
        uint64_t device;
        uint64_t inode;
} SocketKept;

/* @socket is SOCKET_NULL. 0, SOCKET_E_* or a negative errno; then *@ret_message says what, to be freed; may be NULL. */
int socket_open(Socket *socket, const char *path, uint32_t mode, char **ret_message);

/*
 * The same where there may be a socket already, of an earlier daemon at the same path: if connections to @path still come
 * to it, its descriptor goes over, and kept->fd is -1. NULL: there is none.
 */
int socket_open_kept(Socket *socket, const char *path, uint32_t mode, SocketKept *kept, char **ret_message);

/* For a later daemon; the descriptor is borrowed. 0 or a negative errno. */
int socket_get_kept(const Socket *socket, SocketKept *ret);

/*
 * Of one that listens: no client passes any descriptor, and to close one that a stranger has made can take as long as he
 * likes (SO_LINGER). A kernel before 6.16 does not know the option: there they are closed as they come.
 */
void socket_refuse_fds(int fd);

/* Stops listening, removes what socket_open() made. */
void socket_close(Socket *socket);

/* Only lets go: somebody else has the socket, too, and will be there again. */
void socket_leave(Socket *socket);

#endif
