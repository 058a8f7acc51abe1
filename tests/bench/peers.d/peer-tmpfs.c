/* SPDX-License-Identifier: Apache-2.0 */
/* Plain files; the address is a directory on tmpfs. */
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int folder_fd = -1;

static int open_folder(const char *address, uint32_t number)
{
        (void)number;
        folder_fd = open(address, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return folder_fd < 0 ? worker_fail("%s: %s", address, strerror(errno)) : 0;
}

static int put_file(const char *key, const void *data, size_t n_bytes)
{
        const char *bytes = data;
        int fd = openat(folder_fd, key, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

        if (fd < 0)
                return worker_fail("open: %s", strerror(errno));
        while (n_bytes > 0) {
                ssize_t n = write(fd, bytes, n_bytes);

                if (n <= 0) {
                        (void)close(fd);
                        return worker_fail("write: %s", strerror(errno));
                }
                bytes += n;
                n_bytes -= (size_t)n;
        }
        (void)close(fd);
        return 0;
}

static int get_file(const char *key, size_t n_bytes)
{
        int fd = openat(folder_fd, key, O_RDONLY | O_CLOEXEC), r;
        void *address;

        if (fd < 0)
                return worker_fail("open: %s", strerror(errno));
        address = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, fd, 0);
        (void)close(fd);
        if (address == MAP_FAILED)
                return worker_fail("mmap: %s", strerror(errno));
        r = worker_touch(address, n_bytes);
        (void)munmap(address, n_bytes);
        return r;
}

static int exists_file(const char *key)
{
        return faccessat(folder_fd, key, F_OK, 0) < 0 ? worker_fail("access: %s", strerror(errno)) : 0;
}

static int remove_file(const char *key)
{
        return unlinkat(folder_fd, key, 0) < 0 ? worker_fail("unlink: %s", strerror(errno)) : 0;
}

const struct worker_peer worker_peer = {
        .open = open_folder,
        .put = put_file,
        .get = get_file,
        .exists = exists_file,
        .remove = remove_file,
};
