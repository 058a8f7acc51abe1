/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process at the other end of a socket, as a descriptor: a number names somebody else as soon as it is used again,
 * and nobody where the two live in different pid namespaces.
 */
#ifndef DAEMON_SERVER_PROCESS_H
#define DAEMON_SERVER_PROCESS_H

/*
 * Of who has connected: CLOEXEC, readable when that process has ended. -1: it is not to be had (it has ended already,
 * or the kernel is old and we do not see its number).
 */
int process_open(int socket_fd);

#endif
