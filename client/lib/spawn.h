/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where foliod may be listening, and how to start one for this user. Addresses are paths of sockets; a path in a
 * directory that somebody else could have made is not offered. Knows no connection: the caller connects, asks for a
 * start where nothing answered and no address was given, and connects again.
 */
#ifndef CLIENT_LIB_SPAWN_H
#define CLIENT_LIB_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        SPAWN_ADDRESSES_MAX = 2,
        SPAWN_ADDRESS_BYTES_MAX = 108, /* of sockaddr_un.sun_path, NUL included */
};

typedef struct SpawnAddress {
        char path[SPAWN_ADDRESS_BYTES_MAX];
} SpawnAddress;

enum {
        SPAWN_E_LOST = 1,      /* another foliod of this user was faster, or is running: connect again */
        SPAWN_E_NOT_FOUND = 2, /* no foliod to start on this machine */
        SPAWN_E_FAILED = 3,    /* it ended before it was ready */
        SPAWN_E_TIMEOUT = 4,   /* not ready by the deadline; it goes on starting */
};

/*
 * The addresses to try, in order: @address alone where it is not NULL, else $FOLIO_SOCKET alone, else the user's own
 * ($XDG_RUNTIME_DIR/folio/folio.sock, or /tmp/folio-UID/folio.sock without that variable) and the system's. Return: how
 * many; 0: the one that was given is empty or too long for a socket.
 */
size_t spawn_candidate_addresses(const char *address, SpawnAddress ret[SPAWN_ADDRESSES_MAX]);

/* The same for people: "A or B", with why one was passed over in brackets. Cut where it does not fit. */
void spawn_describe_addresses(const char *address, char *text, size_t n_text);

/* What is wrong with the user's directory for a socket, "" for nothing; and with the program that would be started. */
void spawn_describe_directory(char *text, size_t n_text);
void spawn_describe_program(char *text, size_t n_text);

/* Where the foliod that spawn_daemon() starts listens. False: there is no safe place. */
bool spawn_find_user_address(SpawnAddress *ret);

/*
 * Whether a daemon may be started on behalf of a caller that gave @address: not where that or $FOLIO_SOCKET names one.
 */
bool spawn_is_wanted(const char *address);

/*
 * Whether nobody but this user (or root) can put a socket there: a directory, no symlink, owned by us, mode 0700 or
 * less.
 */
bool spawn_is_safe_directory(const char *path);

/*
 * Starts `foliod --user` and waits until it is ready. It is in a session of its own, has none of our descriptors, and
 * is no child of ours when this returns. Return: 0 ready; SPAWN_E_*; negative errno. @deadline_ns: CLOCK_MONOTONIC.
 */
int spawn_daemon(uint64_t deadline_ns);

#endif
