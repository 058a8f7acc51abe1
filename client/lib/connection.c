/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A socket and the packets it had no room for. A packet is sent whole or not at all, so the queue holds whole packets
 * and nothing is ever sent past one that waits: what concerns one object keeps its order.
 */
#include "client/lib/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#include "base/cleanup.h"
#include "proto/channel.h"

typedef struct Packet {
        List link;
        size_t n_bytes;
        uint8_t bytes[];
} Packet;

uint64_t connection_now_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Everything but the connection. 0 or a negative errno. */
static int prepare(const char *path, struct sockaddr_un *ret_address, int *ret_socket)
{
        size_t n_bytes = strlen(path);
        _cleanup_(cleanup_fd) int fd = -1;

        *ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
        if (n_bytes == 0 || n_bytes >= sizeof(ret_address->sun_path))
                return -ENAMETOOLONG;
        memcpy(ret_address->sun_path, path, n_bytes);
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        if (fd < 3) {
                /* A program that has closed its standard streams must not find us in their place. */
                int higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);

                if (higher < 0)
                        return -errno;
                (void)close_fd(fd);
                fd = higher;
        }
        *ret_socket = steal_fd(&fd);
        return 0;
}

int connection_try(const char *path, int *ret_socket)
{
        struct sockaddr_un address;
        _cleanup_(cleanup_fd) int fd = -1;
        int flags, r;

        r = prepare(path, &address, &fd);
        if (r < 0)
                return r;
        flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
                return -errno;
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        if (fcntl(fd, F_SETFL, flags) < 0)
                return -errno;
        *ret_socket = steal_fd(&fd);
        return 0;
}

int connection_open(const char *path, uint64_t deadline_ns, int *ret_socket)
{
        struct sockaddr_un address;
        _cleanup_(cleanup_fd) int fd = -1;
        int r;

        r = prepare(path, &address, &fd);
        if (r < 0)
                return r;
        for (;;) {
                uint64_t now_ns = connection_now_ns(), left_us;
                struct timeval left;

                if (now_ns >= deadline_ns)
                        return -ETIMEDOUT;
                /* The send timeout is also what bounds a connect() that waits for room in the backlog; 0 is for ever. */
                left_us = (deadline_ns - now_ns) / 1000 + 1;
                if (left_us > UINT64_C(3600000000))
                        left_us = UINT64_C(3600000000);
                left = (struct timeval){ .tv_sec = (time_t)(left_us / 1000000), .tv_usec = (suseconds_t)(left_us % 1000000) };
                if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left)) < 0)
                        return -errno;
                if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EISCONN)
                        break;
                if (errno != EINTR && errno != EAGAIN)
                        return -errno;
        }
        *ret_socket = steal_fd(&fd);
        return 0;
}

void connection_init(Connection *connection, int consume_socket)
{
        *connection = (Connection){ .socket = consume_socket };
        list_init(&connection->queue);
}

static void drop_queue(Connection *connection)
{
        for (List *link; (link = list_take_front(&connection->queue));)
                free(LIST_ENTRY(link, Packet, link));
        connection->n_queued = 0;
}

void connection_deinit(Connection *connection)
{
        drop_queue(connection);
        connection->socket = close_fd(connection->socket);
}

/* 0: sent. EAGAIN as a positive number: no room. CONNECTION_E_GONE. Negative errno. */
static int send_now(Connection *connection, const void *bytes, size_t n_bytes)
{
        int r = channel_send(connection->socket, bytes, n_bytes, NULL, 0);

        if (r == CHANNEL_E_AGAIN || r == CHANNEL_E_TOO_MANY)
                return EAGAIN;
        return r > 0 ? CONNECTION_E_GONE : r;
}

int connection_send(Connection *connection, const void *bytes, size_t n_bytes, bool is_hint)
{
        Packet *packet;

        if (!connection_has_queued(connection)) {
                int r = send_now(connection, bytes, n_bytes);

                if (r != EAGAIN)
                        return r;
        }
        if (is_hint && connection->n_queued >= CONNECTION_HINTS_QUEUED_MAX)
                return CONNECTION_E_DROPPED;
        packet = malloc(sizeof(*packet) + n_bytes);
        if (!packet)
                return is_hint ? CONNECTION_E_DROPPED : -ENOMEM;
        packet->n_bytes = n_bytes;
        memcpy(packet->bytes, bytes, n_bytes);
        list_push_back(&connection->queue, &packet->link);
        connection->n_queued++;
        return 0;
}

int connection_flush(Connection *connection)
{
        for (List *link; (link = list_peek_front(&connection->queue));) {
                Packet *packet = LIST_ENTRY(link, Packet, link);
                int r = send_now(connection, packet->bytes, packet->n_bytes);

                if (r == EAGAIN)
                        return 0;
                if (r != 0)
                        return r;
                list_unlink(link);
                connection->n_queued--;
                free(packet);
        }
        return 0;
}

bool connection_is_alive(const Connection *connection)
{
        struct pollfd look = { .fd = connection->socket, .events = POLLRDHUP };

        /* An interrupted poll is no news of the other side. */
        if (poll(&look, 1, 0) <= 0)
                return true;
        return (look.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) == 0;
}
