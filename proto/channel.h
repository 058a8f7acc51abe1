/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One message, one packet, with its descriptors, over a SEQPACKET socket. Knows nothing of what the bytes mean.
 * Never blocks, never raises SIGPIPE; every descriptor it hands out is CLOEXEC. A packet that came truncated, in
 * bytes or in descriptors, is an error, and what arrived of its descriptors is closed.
 */
#ifndef PROTO_CHANNEL_H
#define PROTO_CHANNEL_H

#include <stddef.h>

typedef enum ChannelOutcome {
        CHANNEL_OK = 0,
        CHANNEL_E_AGAIN = 1,      /* nothing there, or no room; poll and try again */
        CHANNEL_E_HANGUP = 2,     /* the other side is gone, or sent an empty packet, which looks the same */
        CHANNEL_E_TRUNCATED = 3,  /* a packet larger than the room for it: the peer breaks the protocol */
        CHANNEL_E_FDS_LOST = 4,   /* not all descriptors came: this process is at RLIMIT_NOFILE, or they are too many */
        CHANNEL_E_TOO_MANY = 5,   /* sending: too many descriptors are on their way; as AGAIN, but no poll tells when */
} ChannelOutcome;

/* Outcome, or a negative errno. All or nothing. The descriptors are borrowed. */
int channel_send(int socket, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds);

/*
 * Outcome, or a negative errno. Room for @n_fds_max descriptors at @fds, which the caller then owns; with
 * @n_fds_max 0 uninvited ones are closed and CHANNEL_OK is returned with *@ret_n_uninvited counting them.
 * With CHANNEL_E_FDS_LOST the bytes are there, and *@ret_n_bytes: only the descriptors are not.
 */
int channel_receive(int socket, void *bytes, size_t n_bytes_max, size_t *ret_n_bytes, int *fds, size_t n_fds_max,
                    size_t *ret_n_fds, size_t *ret_n_uninvited);

#endif
