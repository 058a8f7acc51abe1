/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel keeps who connected by more than a number, and tells it by SO_PEERPIDFD, where it has that. */
#include "daemon/server/process.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

int process_open(int socket_fd)
{
        struct ucred cred;
        int fd = -1;
        socklen_t n_bytes = sizeof(fd);

        if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &n_bytes) == 0 && n_bytes == sizeof(fd) && fd >= 0)
                return fd;
        n_bytes = sizeof(cred);
        if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &cred, &n_bytes) < 0 || cred.pid <= 0)
                return -1;
        /* The number can have been used again: then who has it now is waited for, and the client is held for longer. */
        fd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
        return fd >= 0 ? fd : -1;
}
