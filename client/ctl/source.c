/* SPDX-License-Identifier: Apache-2.0 */
/* See source.h. */
#include "client/ctl/source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define PIPE_BYTES (1 << 20)

int source_open(Ctl *ctl, const char *path, Source *ret)
{
        bool is_stdin = strcmp(path, "-") == 0;
        Source source = { .fd = -1, .label = is_stdin ? "standard input" : path };
        struct stat st;
        off_t position;

        source.fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
        if (source.fd < 0 || fstat(source.fd, &st) < 0) {
                int error = errno;

                source_close(&source);
                return ctl_complain(ctl, "cannot read %s: %s", source.label, strerror(error));
        }
        if (S_ISDIR(st.st_mode)) {
                source_close(&source);
                return ctl_complain(ctl,
                                    "cannot put %s: it is a directory; pack it first: `tar c %s | folioctl put - NAME`",
                                    source.label, path);
        }
        if (S_ISREG(st.st_mode)) {
                position = lseek(source.fd, 0, SEEK_CUR);
                if (position >= 0 && st.st_size > position) {
                        source.is_size_known = true;
                        source.size_bytes = (uint64_t)(st.st_size - position);
                        source.begin_bytes = (uint64_t)position;
                }
                /* Advice; read all the same where it is not taken. */
                (void)posix_fadvise(source.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        } else if (S_ISFIFO(st.st_mode)) {
                /* Fewer system calls for both ends; a pipe of 64 KiB does as well. */
                (void)fcntl(source.fd, F_SETPIPE_SZ, PIPE_BYTES);
        }
        *ret = source;
        return CTL_OK;
}

void source_close(Source *source)
{
        ctl_cleanup_fd(&source->fd);
        source->fd = -1;
}

int source_read(Source *source, void *buffer, size_t n_bytes, size_t *ret_n_bytes)
{
        size_t n_done = 0;

        while (n_done < n_bytes) {
                ssize_t n = read(source->fd, (char *)buffer + n_done, n_bytes - n_done);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                n_done += (size_t)n;
        }
        *ret_n_bytes = n_done;
        return 0;
}

int source_seek(Source *source, uint64_t offset_bytes)
{
        return lseek(source->fd, (off_t)(source->begin_bytes + offset_bytes), SEEK_SET) < 0 ? -errno : 0;
}

int source_get_size(Source *source, uint64_t *ret_bytes)
{
        struct stat st;

        if (fstat(source->fd, &st) < 0)
                return -errno;
        *ret_bytes = (uint64_t)st.st_size > source->begin_bytes ? (uint64_t)st.st_size - source->begin_bytes : 0;
        return 0;
}

void source_find_data(Source *source, uint64_t offset_bytes, uint64_t *ret_begin_bytes, uint64_t *ret_end_bytes)
{
        off_t at = (off_t)(source->begin_bytes + offset_bytes), end = (off_t)(source->begin_bytes + source->size_bytes);
        off_t data = lseek(source->fd, at, SEEK_DATA), hole;

        /* No data any more; or a file system that knows of no holes: then all of it is data. */
        if (data < 0)
                data = errno == ENXIO ? end : at;
        hole = data < end ? lseek(source->fd, data, SEEK_HOLE) : end;
        if (hole < 0 || hole > end)
                hole = end;
        if (data > end)
                data = end;
        *ret_begin_bytes = (uint64_t)data - source->begin_bytes;
        *ret_end_bytes = (uint64_t)hole - source->begin_bytes;
}
