/* SPDX-License-Identifier: Apache-2.0 */
/* See outgoing.h. */
#include "daemon/server/outgoing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macro.h"

void outgoing_free(Outgoing *outgoing)
{
        for (size_t i = 0; i < outgoing->n_fds; i++)
                (void)close_fd(outgoing->fds[i]);
        free(outgoing);
}

DEFINE_CLEANUP(Outgoing *, cleanup_outgoing, outgoing_free)

int outgoing_new(const void *bytes, size_t n_bytes, const int *fds, size_t n_fds, Outgoing **ret)
{
        size_t n_aligned = ALIGN_UP(n_bytes, sizeof(int));
        _cleanup_(cleanup_outgoing) Outgoing *outgoing = malloc(sizeof(*outgoing) + n_aligned + n_fds * sizeof(int));

        if (!outgoing)
                return -ENOMEM;
        list_init(&outgoing->link);
        outgoing->n_bytes = n_bytes;
        outgoing->n_fds = 0;
        outgoing->fds = (int *)(void *)(outgoing->bytes + n_aligned);
        memcpy(outgoing->bytes, bytes, n_bytes);
        for (; outgoing->n_fds < n_fds; outgoing->n_fds++) {
                int fd = fcntl(fds[outgoing->n_fds], F_DUPFD_CLOEXEC, 3);

                if (fd < 0)
                        return -errno;
                outgoing->fds[outgoing->n_fds] = fd;
        }
        *ret = steal_ptr(&outgoing);
        return 0;
}
