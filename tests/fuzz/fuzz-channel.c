/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets as no library of ours would send them: any length, descriptors in several control messages, credentials
 * between them, into rooms of any size. The input is a script of four bytes a packet. After each packet every
 * descriptor is accounted for, and the outcome is the one that the sizes say.
 */
#include <assert.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/channel.h"
#include "tests/fuzz/replay.h"

#define FDS_MAX 253
#define PACKETS_MAX 64

static unsigned count_fds(void)
{
        DIR *dir = opendir("/proc/self/fd");
        unsigned n = 0;

        if (!dir)
                abort();
        while (readdir(dir))
                n++;
        closedir(dir);
        return n;
}

/* Puts @n_fds copies of @fd into a control message of their own. */
static void add_fds(struct msghdr *message, size_t n_room, int fd, size_t n_fds)
{
        struct cmsghdr *header;
        size_t at = message->msg_controllen;

        if (n_fds == 0)
                return;
        message->msg_controllen = at + CMSG_SPACE(n_fds * sizeof(int));
        if (message->msg_controllen > n_room)
                abort();
        header = (struct cmsghdr *)(void *)((char *)message->msg_control + at);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (size_t i = 0; i < n_fds; i++)
                memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
}

/* False: the kernel would not take it. */
static bool send_packet(int socket, size_t n_bytes, size_t n_first, size_t n_second)
{
        static const uint8_t bytes[1024];
        static union { struct cmsghdr align; char bytes[4096]; } control;
        struct iovec iov = { (void *)(uintptr_t)bytes, n_bytes };
        struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes };

        memset(&control, 0, sizeof(control));
        add_fds(&message, sizeof(control), socket, n_first);
        add_fds(&message, sizeof(control), socket, n_second);
        return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n_bytes;
}

static void check_packet(int socket, size_t n_sent_bytes, size_t n_sent_fds, size_t n_room_bytes, size_t n_room_fds)
{
        uint8_t bytes[1024];
        size_t n_bytes = SIZE_MAX, n_fds = 0, n_uninvited = 0;
        int fds[FDS_MAX];
        int r = channel_receive(socket, bytes, n_room_bytes, &n_bytes, fds, n_room_fds, &n_fds, &n_uninvited);

        if (n_sent_bytes == 0) {
                assert(r == CHANNEL_E_HANGUP);
        } else if (n_sent_bytes > n_room_bytes) {
                assert(r == (n_room_bytes == 0 ? CHANNEL_E_HANGUP : CHANNEL_E_TRUNCATED));
        } else if (n_room_fds > 0 && n_sent_fds > n_room_fds) {
                assert(r == CHANNEL_E_FDS_LOST && n_bytes == n_sent_bytes);
        } else {
                assert(r == CHANNEL_OK && n_bytes == n_sent_bytes);
                assert(n_fds == (n_room_fds > 0 ? n_sent_fds : 0));
                assert(n_uninvited == (n_room_fds > 0 ? 0 : n_sent_fds));
        }
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
        unsigned n_before;
        int sockets[2], one = 1;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
                abort();
        n_before = count_fds();
        for (size_t at = 0; at + 4 <= n_bytes && at < 4 * PACKETS_MAX; at += 4) {
                size_t n_sent_bytes = data[at] * (size_t)4, n_first = data[at + 1] % 130, n_second = data[at + 1] / 2;
                size_t n_room_bytes = data[at + 2] * (size_t)4, n_room_fds = data[at + 3] % FDS_MAX;

                if (data[at + 3] == 255 && setsockopt(sockets[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0)
                        abort();
                if (n_first + n_second > FDS_MAX)
                        n_second = FDS_MAX - n_first;
                if (!send_packet(sockets[0], n_sent_bytes, n_first, n_second))
                        continue;
                check_packet(sockets[1], n_sent_bytes, n_first + n_second, n_room_bytes, n_room_fds);
                assert(count_fds() == n_before);
        }
        close(sockets[0]);
        close(sockets[1]);
        return 0;
}
