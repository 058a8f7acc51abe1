/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One packet in one system call. The room for control data is always that for the most descriptors the kernel lets
 * travel with a packet, whatever the caller has room for: so a peer that sends more than it may is told from a
 * process that is at its limit, and everything that did arrive is in our hands to be closed. Credentials, should the
 * socket's owner have asked for them, take nothing of that room.
 *
 * On a SEQPACKET socket an empty packet looks like the end; both are a hang-up here. What the bytes mean is not known.
 */
#include "proto/channel.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/macro.h"

#define CHANNEL_FDS_MAX 253 /* SCM_MAX_FD of the kernel */

typedef union ControlRoom {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int) * CHANNEL_FDS_MAX)];
} ControlRoom;

static int outcome_of_send(int error)
{
        switch (error) {
        case EAGAIN:
        case ENOBUFS:
                return CHANNEL_E_AGAIN;
        case ETOOMANYREFS:
                return CHANNEL_E_TOO_MANY;
        case EPIPE:
        case ECONNRESET:
        case ENOTCONN:
        case ECONNREFUSED:
                return CHANNEL_E_HANGUP;
        }
        return -error;
}

int channel_send(int socket, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds)
{
        ControlRoom control = { 0 };
        struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes };
        struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
        ssize_t n;

        assert(n_bytes > 0);
        assert(n_fds <= CHANNEL_FDS_MAX);

        if (n_fds > 0) {
                struct cmsghdr *header;

                message.msg_control = control.bytes;
                message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
        }
        do {
                n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        } while (n < 0 && errno == EINTR);
        if (n < 0)
                return outcome_of_send(errno);
        /* SEQPACKET sends a packet whole or not at all. */
        assert((size_t)n == n_bytes);
        return CHANNEL_OK;
}

/* Every descriptor of every control message: to @fds as far as there is room, the rest is closed and counted. */
static void collect_fds(struct msghdr *message, int *fds, size_t n_fds_max, size_t *ret_n_fds, size_t *ret_n_closed)
{
        size_t n_fds = 0, n_closed = 0;

        for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
                size_t n_here;

                if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
                        continue;
                n_here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < n_here; i++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
                        if (n_fds < n_fds_max) {
                                fds[n_fds++] = fd;
                        } else {
                                (void)close_fd(fd);
                                n_closed++;
                        }
                }
        }
        *ret_n_fds = n_fds;
        *ret_n_closed = n_closed;
}

static void close_all(int *fds, size_t n_fds)
{
        for (size_t i = 0; i < n_fds; i++)
                fds[i] = close_fd(fds[i]);
}

int channel_receive(int socket, void *bytes, size_t n_bytes_max, size_t *ret_n_bytes, int *fds, size_t n_fds_max,
                    size_t *ret_n_fds, size_t *ret_n_uninvited)
{
        ControlRoom control;
        struct iovec iov = { .iov_base = bytes, .iov_len = n_bytes_max };
        struct msghdr message = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
        };
        size_t n_fds, n_closed;
        bool is_cut;
        ssize_t n;

        do {
                n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        } while (n < 0 && errno == EINTR);
        if (n < 0) {
                if (errno == EAGAIN)
                        return CHANNEL_E_AGAIN;
                return errno == ECONNRESET || errno == ENOTCONN ? CHANNEL_E_HANGUP : -errno;
        }

        collect_fds(&message, fds, n_fds_max, &n_fds, &n_closed);
        is_cut = message.msg_flags & MSG_CTRUNC;
        if (n == 0 || (message.msg_flags & MSG_TRUNC)) {
                close_all(fds, n_fds);
                return n == 0 ? CHANNEL_E_HANGUP : CHANNEL_E_TRUNCATED;
        }
        if (n_fds_max > 0 && (is_cut || n_closed > 0)) {
                close_all(fds, n_fds);
                *ret_n_bytes = (size_t)n;
                return CHANNEL_E_FDS_LOST;
        }
        *ret_n_bytes = (size_t)n;
        if (ret_n_fds)
                *ret_n_fds = n_fds;
        /* Of descriptors that were cut off nobody knows the number; that they were there counts as one. */
        if (ret_n_uninvited)
                *ret_n_uninvited = n_closed > 0 ? n_closed : is_cut;
        return CHANNEL_OK;
}
