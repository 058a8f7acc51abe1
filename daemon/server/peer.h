/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: its socket, its session in the store, and the replies that have not left yet. Whatever ends it (the
 * other side, a broken rule, silence, the end of the daemon) goes one way, once: reading stops, the socket is closed,
 * the session is closed, on_hangup() is called. Nothing of that happens inside a call that the store made: a hang-up
 * that is noticed while sending is carried out later on the loop.
 *
 * Requests under way hold a reference each, so a peer outlives its connection until the last of them is done; what
 * they send then goes nowhere. Knows nothing of what a message means.
 */
#ifndef DAEMON_SERVER_PEER_H
#define DAEMON_SERVER_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"
#include "daemon/store/store.h"

struct event_base;

typedef struct Peer Peer;

/* A client with more than this waiting is read no further, and one that takes none of it for so long is dropped. */
#define PEER_REPLIES_MAX 64
#define PEER_REPLY_BYTES_MAX (UINT64_C(1) << 20)
#define PEER_REPLY_FDS_MAX 250 /* duplicates that we keep for it */
#define PEER_REQUEST_BYTES_MAX (UINT64_C(1) << 20)
#define PEER_STALL_S 30
#define PEER_PACKETS_PER_TURN 32
#define PEER_TURN_NS UINT64_C(250000)
#define PEER_COMM_BYTES_MAX 63

typedef struct PeerConfig {
        struct event_base *base;
        Cred cred;                   /* groups are copied */
        const char *comm;            /* copied; for showing */
        uint64_t connected_ns;
        unsigned stall_s;            /* 0: PEER_STALL_S */
        unsigned fds_in_flight_max;  /* more only one message at a time */
        uint64_t (*now_ns)(void);    /* what turns go by; NULL: CLOCK_MONOTONIC; a test passes its own */
        /* A message has come; it lies there until on_message() returns. May do anything but peer_close(). */
        void (*on_message)(Peer *peer, const void *bytes, size_t n_bytes, void *userdata);
        void *message_userdata;
        /* The connection has ended. Called once, on the loop. */
        void (*on_hangup)(Peer *peer, void *userdata);
        void *hangup_userdata;
} PeerConfig;

/* One reference, the connection's: on_hangup() is where to give it up. Takes @consume_fd over where it succeeds. */
int peer_new(const PeerConfig *config, int consume_fd, Peer **ret);
Peer *peer_ref(Peer *peer);
void peer_unref(Peer *peer);

/* Hangs up now. Not from on_message(), nor from anything the store calls. */
void peer_close(Peer *peer);

/*
 * The same because we end, in order, and another foliod comes: nothing that was asked for by the side is begun any more,
 * and the session stays for the client to come back to (session_leave()).
 */
void peer_leave(Peer *peer);

/* A pidfd of the process that connected, the caller's to close; -1: the kernel tells us none. */
int peer_open_process(const Peer *peer);

/* Hangs up later on the loop, when what is waiting has been sent, which can be at most so long. Reads no more. */
void peer_finish(Peer *peer);

/* A rule was broken: says so in the log, hangs up later on the loop. Nothing more is read or sent. */
void peer_breach(Peer *peer, const char *format, ...) _printf_(2, 3);

/* Sends, now or when there is room. The descriptors are borrowed. What goes wrong ends the connection. */
void peer_send(Peer *peer, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds);

/* A request that takes so much memory is under way, and holds a reference; each begin needs its end. */
void peer_begin_request(Peer *peer, size_t n_bytes);
void peer_end_request(Peer *peer, size_t n_bytes);

/*
 * A message that takes long is cut: once the turn is over, @rest is called in a later turn of the loop, and may do
 * the same again. Until then nothing is read from the client. Where the connection ends first it is called then, with
 * no session set, to come to an end without one.
 */
bool peer_turn_is_over(const Peer *peer);
void peer_put_off(Peer *peer, void (*rest)(void *userdata), void *userdata);

/*
 * Another way than messages by which the client asks for things on this connection (a ring). What it has asked for by
 * it before a message, or before it hung up, is carried out before that.
 */
typedef struct PeerSide {
        /* True: all that has been asked for up to now is done. False: @rest is called when it is, on the loop; it only
         * remembers that it was. */
        bool (*drain)(void *userdata, void (*rest)(void *userdata), void *rest_userdata);
        /* The session is about to be closed: what was asked for and can be done at once is, and then no more. */
        void (*close)(void *userdata);
        /* The connection ends, and the session is left to another foliod: nothing more is carried out. */
        void (*leave)(void *userdata);
        /* The session has been closed. */
        void (*release)(void *userdata);
} PeerSide;

/* Once, after the session. @side is static; @consume_userdata goes back by release(). */
void peer_set_side(Peer *peer, const PeerSide *side, void *consume_userdata);
bool peer_has_side(const Peer *peer);
void *peer_get_side(const Peer *peer); /* its userdata; NULL: none */

/* For what went wrong inside and is no fault of the peer's: one line, not too many of them. */
void peer_log_failure(Peer *peer, const char *what, const char *detail);

/* NULL until it is set; taken over. */
void peer_set_session(Peer *peer, Session *consume_session);
Session *peer_get_session(const Peer *peer);

bool peer_is_open(const Peer *peer); /* not hung up, nor about to be */
const Cred *peer_get_cred(const Peer *peer);
const char *peer_get_comm(const Peer *peer);
uint64_t peer_get_connected_ns(const Peer *peer);

#endif
