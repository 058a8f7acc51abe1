/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket that clients connect to, who may have how many connections, and all the peers there are. Of several
 * daemons that are started on one socket exactly one gets it: a lock beside the socket decides, never a pid.
 *
 * Refuses connections rather than fail: over a limit, or short of descriptors, it says so to the client where it can,
 * and pauses for a moment where it cannot.
 */
#ifndef DAEMON_SERVER_LISTENER_H
#define DAEMON_SERVER_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/server/peer.h"
#include "daemon/server/socket.h"

struct event_base;

typedef struct Listener Listener;

typedef struct ListenerConfig {
        struct event_base *base;
        const char *socket_path;     /* also where the socket was made by a service manager */
        uint32_t socket_mode;
        int activated_fd;            /* taken over: a socket that listens already; -1: make one */
        SocketKept *kept;            /* as of socket_open_kept() */
        uint64_t clients_max;
        uint64_t clients_per_uid_max;
        void (*on_message)(Peer *peer, const void *bytes, size_t n_bytes, void *userdata);
        void *message_userdata;
        /* Is that the first message of a tool, which gets in beyond the limits? NULL: there are none. */
        bool (*is_tool)(const void *bytes, size_t n_bytes, void *tool_userdata);
        void *tool_userdata;
        void (*on_hangup)(void *userdata); /* a peer has gone, its session is closed; may be NULL */
        void *hangup_userdata;
} ListenerConfig;

enum {
        LISTENER_E_RUNNING = 1,      /* another daemon has the socket */
        LISTENER_E_REFUSED = 2,      /* what is in its place is not ours to remove, or not safe */
};

/* 0, LISTENER_E_* or a negative errno, with *@ret_message, to be freed, unless there was no memory for it. */
int listener_new(const ListenerConfig *config, Listener **ret, char **ret_message);

/*
 * We end, in order, and another foliod comes: connections end, but their sessions stay for clients to come back to
 * (peer_leave()), and the socket goes on listening for who comes meanwhile, where somebody keeps it. Then
 * listener_free().
 */
void listener_leave(Listener *listener);

/* For a later daemon. False: the socket is not ours. */
bool listener_get_kept(const Listener *listener, SocketKept *ret);

/* The socket stays at its path when the listener is freed: somebody else has it, too. */
void listener_leave_socket(Listener *listener);

/* Hangs up on every peer, removes the socket if it is ours. */
void listener_free(Listener *listener);

size_t listener_n_peers(const Listener *listener);
uint64_t listener_n_accepted(const Listener *listener);
uint64_t listener_n_refused(const Listener *listener);

/* New limits; who is connected stays. */
void listener_set_limits(Listener *listener, uint64_t clients_max, uint64_t clients_per_uid_max);

#endif
