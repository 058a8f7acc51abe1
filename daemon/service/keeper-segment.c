/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SEQPACKET keeps each message and its descriptor together. A peek duplicates the descriptor and changes nothing; with
 * SO_PEEK_OFF the next peek goes on behind what the last one has seen, which is how a queue is read without being
 * consumed. That offset belongs to the socket, whoever has it: it is set before each walk and taken away after it.
 */
#include "daemon/service/keeper-segment.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"

#define FDS_MAX 8                  /* of a message; more than ours has, so that a strange one is recognised */
#define QUEUE_BYTES (1 << 18)      /* the kernel doubles it; a message counts as 768 bytes */

int keeper_segment_open(KeeperSegment *segment)
{
        int ends[2], bytes = QUEUE_BYTES;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        /* What the machine's limit makes of it is enough: the default is. */
        (void)setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
        *segment = (KeeperSegment){ .send_fd = ends[0], .receive_fd = ends[1] };
        return 0;
}

void keeper_segment_close(KeeperSegment *segment)
{
        segment->send_fd = close_fd(segment->send_fd);
        segment->receive_fd = close_fd(segment->receive_fd);
}

int keeper_segment_push(KeeperSegment *segment, const KeptRecord *record, int fd)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = { .bytes = { 0 } };
        struct iovec part = { (void *)(uintptr_t)record, sizeof(*record) };
        struct msghdr message = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);

        if (segment->send_fd < 0)
                return -EPIPE;
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(int));
        for (;;) {
                if (sendmsg(segment->send_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
                        return 0;
                if (errno != EINTR)
                        return -errno;
        }
}

/* One descriptor stays, the others go: it is not one of ours. */
static void take_fds(struct msghdr *message, KeeperMessage *ret)
{
        for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
                size_t n;

                if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
                        continue;
                n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < n; i++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
                        if (ret->n_fds++ == 0)
                                ret->fd = fd;
                        else
                                (void)close_fd(fd);
                }
        }
}

/* -EAGAIN: no more. */
static int receive(int fd, int flags, bool with_fds, KeeperMessage *ret)
{
        union {
                char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
                struct cmsghdr align;
        } control;
        struct iovec part = { ret->bytes, sizeof(ret->bytes) };
        struct msghdr message;
        ssize_t n;

        ret->n_fds = 0;
        ret->fd = -1;
        do {
                message = (struct msghdr){
                        .msg_iov = &part,
                        .msg_iovlen = 1,
                        .msg_control = with_fds ? control.bytes : NULL,
                        .msg_controllen = with_fds ? sizeof(control.bytes) : 0,
                };
                n = recvmsg(fd, &message, flags | MSG_TRUNC | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        } while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        ret->n_bytes = (size_t)n;
        if (with_fds)
                take_fds(&message, ret);
        if (n == 0 && ret->n_fds == 0)
                return -EAGAIN; /* the other end is closed: the end of the queue */
        if (with_fds && (message.msg_flags & MSG_CTRUNC) && ret->n_fds < FDS_MAX) {
                ret->fd = close_fd(ret->fd);
                return -EMFILE;
        }
        /* The offset would come to stand in the middle of it. */
        if (ret->n_bytes > sizeof(ret->bytes)) {
                ret->fd = close_fd(ret->fd);
                return -EBADMSG;
        }
        return 0;
}

int keeper_segment_peek(KeeperSegment *segment, KeeperMessage *ret)
{
        return receive(segment->receive_fd, MSG_PEEK, true, ret);
}

int keeper_segment_consume(KeeperSegment *segment)
{
        KeeperMessage message;

        return receive(segment->receive_fd, 0, false, &message);
}

static int set_offset(KeeperSegment *segment, int offset)
{
        return setsockopt(segment->receive_fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)) < 0 ? -errno : 0;
}

int keeper_segment_walk(KeeperSegment *segment, bool with_fds,
                        int (*each)(void *userdata, const KeeperMessage *consume_message), void *userdata)
{
        int r = set_offset(segment, 0);

        while (r == 0) {
                KeeperMessage message;

                r = receive(segment->receive_fd, MSG_PEEK, with_fds, &message);
                if (r == 0)
                        r = each(userdata, &message);
        }
        if (r == -EAGAIN)
                r = 0;
        (void)set_offset(segment, -1); /* it could be set a moment ago */
        return r;
}
