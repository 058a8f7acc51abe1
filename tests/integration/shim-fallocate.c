/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into foliod: memory that is interrupted while it is reserved. Three of four calls of fallocate() and
 * posix_fallocate() fail with EINTR and have done nothing, as on kernels whose tmpfs undoes its work at a signal; each
 * by its own convention of telling (the one sets errno, the other returns it).
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_uint n_calls;

int fallocate(int fd, int mode, off_t offset, off_t length);
int fallocate64(int fd, int mode, off_t offset, off_t length);
int posix_fallocate(int fd, off_t offset, off_t length);
int posix_fallocate64(int fd, off_t offset, off_t length);

EXPORT int fallocate(int fd, int mode, off_t offset, off_t length)
{
        if (atomic_fetch_add(&n_calls, 1) % 4 != 3) {
                errno = EINTR;
                return -1;
        }
        return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

EXPORT int fallocate64(int fd, int mode, off_t offset, off_t length)
{
        return fallocate(fd, mode, offset, length);
}

EXPORT int posix_fallocate(int fd, off_t offset, off_t length)
{
        int saved = errno, error = fallocate(fd, 0, offset, length) == 0 ? 0 : errno;

        errno = saved;
        return error;
}

EXPORT int posix_fallocate64(int fd, off_t offset, off_t length)
{
        return posix_fallocate(fd, offset, length);
}
