/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that can be made to show EPOLLPRI, as that of a pressure file does: by urgent data of its other end. */
#ifndef TESTS_UNIT_URGENT_PAIR_H
#define TESTS_UNIT_URGENT_PAIR_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/harness.h"

static inline void urgent_pair_make(int ret[2])
{
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof(address);
        int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &n), 0);
        assert_int_equal(listen(listening, 1), 0);
        ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(ret[0], (struct sockaddr *)&address, sizeof(address)), 0);
        ret[1] = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        assert_true(ret[1] >= 0);
        close(listening);
}

#endif
