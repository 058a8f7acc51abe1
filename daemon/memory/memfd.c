/* SPDX-License-Identifier: Apache-2.0 */
/* See memfd.h. */
#include "daemon/memory/memfd.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int memfd_make(const char *label, int *ret_fd, const char **ret_failed_call)
{
        _cleanup_(cleanup_fd) int fd = -1;

        *ret_failed_call = "memfd_create";
        fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;
        *ret_failed_call = "fchmod";
        if (fchmod(fd, 0600) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}
