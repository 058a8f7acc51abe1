/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-folder.h. */
#include "client/ctl/bench-folder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TEMPLATE "/dev/shm/folioctl-bench-XXXXXX"

int bench_folder_init(BenchFolder *folder, const BenchPlain *plain, BenchPages pages)
{
        struct statfs status;

        *folder = (BenchFolder)BENCH_FOLDER_NULL;
        if (plain->mount_fds[pages] >= 0) {
                folder->fd = fcntl(plain->mount_fds[pages], F_DUPFD_CLOEXEC, 3);
                return folder->fd < 0 ? -errno : 0;
        }
        if (statfs("/dev/shm", &status) < 0)
                return -errno;
        if (status.f_type != TMPFS_MAGIC)
                return -EOPNOTSUPP;
        strcpy(folder->path, TEMPLATE);
        if (!mkdtemp(folder->path)) {
                folder->path[0] = '\0';
                return -errno;
        }
        folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return folder->fd < 0 ? -errno : 0;
}

void bench_folder_deinit(BenchFolder *folder)
{
        if (folder->fd >= 0)
                (void)close(folder->fd);
        if (*folder->path)
                (void)rmdir(folder->path);
        *folder = (BenchFolder)BENCH_FOLDER_NULL;
}

int bench_folder_put(const BenchFolder *folder, const char *name, const void *data, uint64_t n_bytes)
{
        int fd = openat(folder->fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600), r;

        if (fd < 0)
                return -errno;
        r = bench_write(fd, 0, data, n_bytes, 0);
        (void)close(fd);
        return r;
}

int bench_folder_remove(const BenchFolder *folder, const char *name)
{
        return unlinkat(folder->fd, name, 0) < 0 ? -errno : 0;
}
