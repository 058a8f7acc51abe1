/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies by memory and by descriptor. The descriptor's own position is never used, so any number of threads may copy
 * through one. Does not know what the bytes are.
 */
#include "client/lib/copy.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/macro.h"

/* One call moves no more than this: below the kernel's own limit, and a multiple of every page size. */
#define COPY_CALL_BYTES_MAX ((size_t)1 << 30)

#define COPY_OFFSET_MAX (sizeof(off_t) == 8 ? (uint64_t)INT64_MAX : (uint64_t)INT32_MAX)

void copy_bytes(void *to, const void *from, size_t n_bytes)
{
        /* memcpy() may not be given NULL, and an empty object has no address. */
        if (n_bytes > 0)
                memcpy(to, from, n_bytes);
}

int copy_from_fd(int fd, uint64_t offset_bytes, void *to, size_t n_bytes)
{
        uint8_t *at = to;

        if (!checked_range(offset_bytes, n_bytes, COPY_OFFSET_MAX))
                return -EOVERFLOW;
        while (n_bytes > 0) {
                ssize_t n = pread(fd, at, MIN(n_bytes, COPY_CALL_BYTES_MAX), (off_t)offset_bytes);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -EIO;
                at += n;
                offset_bytes += (uint64_t)n;
                n_bytes -= (size_t)n;
        }
        return 0;
}

int copy_to_fd(int fd, uint64_t offset_bytes, const void *from, size_t n_bytes)
{
        const uint8_t *at = from;

        if (!checked_range(offset_bytes, n_bytes, COPY_OFFSET_MAX))
                return -EOVERFLOW;
        while (n_bytes > 0) {
                ssize_t n = pwrite(fd, at, MIN(n_bytes, COPY_CALL_BYTES_MAX), (off_t)offset_bytes);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -EIO;
                at += n;
                offset_bytes += (uint64_t)n;
                n_bytes -= (size_t)n;
        }
        return 0;
}
