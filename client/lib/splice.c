/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How bytes cross the border between a region and the program's descriptors.
 *
 * Into a region they go through a pipe of ours: the file's pages are put into it by reference and copied once, into
 * the region. sendfile() does the same by smaller steps, but stores at the region's own position, which the daemon and
 * all clients share. 1 GiB from the page cache, two cores, milliseconds of the CPU for 4 KiB pages and for 2 MiB pages:
 *
 *      a pipe of 1 MiB, of 64 KiB      275, 285        205, 250
 *      sendfile()                      265             240
 *      windows of the file, mapped     350             200
 *      a buffer of 256 KiB             370             300
 *
 * Out of a region sendfile() is the best for files (512 MiB to ext4: 185, through a mapping or a buffer 210-370) and
 * for pipes (120, where a copy takes 200-215, the reader's part included). A pipe then holds the region's pages
 * themselves, so that is for what nobody can change: regions with F_SEAL_WRITE. From others the bytes are copied.
 *
 * Does not know what the bytes are.
 */
#include "client/lib/splice.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "client/lib/copy.h"

/* The largest pipe that an ordinary user may have, unless the administrator says otherwise. */
#define SPLICE_PIPE_BYTES ((size_t)1 << 20)
/* What is shorter is not worth a pipe. */
#define SPLICE_SHORT_BYTES ((size_t)64 << 10)
#define SPLICE_BUFFER_BYTES ((size_t)512 << 10)
/* One call moves no more than this: below the kernel's own limit, and a multiple of every page size. */
#define SPLICE_CALL_BYTES_MAX ((uint64_t)1 << 30)
#define SPLICE_OFFSET_MAX ((uint64_t)INT64_MAX)

enum { SPLICE_E_UNSUITED = 1 };      /* these two cannot be spliced: by a buffer, from where we are */

/* --- the program's descriptors ------------------------------------------------------------------------------------ */

/* True: there is something, or an end, or an error that the next call will tell. */
static bool wait_for(int fd, short events, int timeout_ms)
{
        struct pollfd poll_fd = { .fd = fd, .events = events };
        int r;

        do
                r = poll(&poll_fd, 1, timeout_ms);
        while (r < 0 && errno == EINTR);
        return r != 0;
}

bool splice_is_readable(int outside_fd)
{
        return wait_for(outside_fd, POLLIN, 0);
}

void splice_wait_readable(int outside_fd)
{
        (void)wait_for(outside_fd, POLLIN, -1);
}

/* After a call that failed: true where it is to be made again. */
static bool may_retry(int fd, short events)
{
        if (errno == EINTR)
                return true;
        if (errno != EAGAIN)
                return false;
        (void)wait_for(fd, events, -1);
        return true;
}

/* One read(), or pread() where @position is one. 0 at the end. */
static ssize_t read_some(int fd, void *buffer, size_t n_bytes, off_t position)
{
        ssize_t n;

        do
                n = position < 0 ? read(fd, buffer, n_bytes) : pread(fd, buffer, n_bytes, position);
        while (n < 0 && may_retry(fd, POLLIN));
        return n < 0 ? -errno : n;
}

int splice_read(int outside_fd, void *buffer, size_t n_bytes, size_t *ret_n_bytes)
{
        *ret_n_bytes = 0;
        while (*ret_n_bytes < n_bytes) {
                ssize_t n = read_some(outside_fd, (uint8_t *)buffer + *ret_n_bytes,
                                      (size_t)MIN(n_bytes - *ret_n_bytes, SPLICE_CALL_BYTES_MAX), -1);

                if (n <= 0)
                        return (int)n;
                *ret_n_bytes += (size_t)n;
        }
        return 0;
}

int splice_read_ready(int outside_fd, void *buffer, size_t n_bytes, size_t *ret_n_bytes, bool *ret_is_end)
{
        *ret_n_bytes = 0;
        *ret_is_end = false;
        while (*ret_n_bytes < n_bytes && (*ret_n_bytes == 0 || splice_is_readable(outside_fd))) {
                ssize_t n = read_some(outside_fd, (uint8_t *)buffer + *ret_n_bytes,
                                      (size_t)MIN(n_bytes - *ret_n_bytes, SPLICE_CALL_BYTES_MAX), -1);

                if (n < 0)
                        return (int)n;
                *ret_is_end = n == 0;
                if (n == 0)
                        break;
                *ret_n_bytes += (size_t)n;
        }
        return 0;
}

int splice_write(int outside_fd, const void *data, size_t n_bytes, uint64_t *ret_n_bytes)
{
        const uint8_t *at = data;
        struct stat st;
        bool is_socket = fstat(outside_fd, &st) == 0 && S_ISSOCK(st.st_mode);

        *ret_n_bytes = 0;
        while (n_bytes > 0) {
                size_t n_wanted = (size_t)MIN(n_bytes, SPLICE_CALL_BYTES_MAX);
                ssize_t n = is_socket ? send(outside_fd, at, n_wanted, MSG_NOSIGNAL) : write(outside_fd, at, n_wanted);

                if (n < 0 && may_retry(outside_fd, POLLOUT))
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                at += n;
                n_bytes -= (size_t)n;
                *ret_n_bytes += (uint64_t)n;
        }
        return 0;
}

/* --- into a region ------------------------------------------------------------------------------------------------ */

typedef struct In {
        int from;
        int to;
        off_t position;              /* of the file, behind what is stored; -1: it has none */
        uint64_t offset_bytes;       /* in the region, as well */
        uint64_t n_left;
        SpliceSide failed;
} In;

static void in_advance(In *in, size_t n_bytes)
{
        in->offset_bytes += n_bytes;
        in->n_left -= n_bytes;
        if (in->position >= 0)
                in->position += (off_t)n_bytes;
}

/* The source is a pipe itself. */
static int in_from_pipe(In *in)
{
        while (in->n_left > 0) {
                loff_t offset = (loff_t)in->offset_bytes;
                size_t n_wanted = (size_t)MIN(in->n_left, SPLICE_CALL_BYTES_MAX);
                ssize_t n = splice(in->from, NULL, in->to, &offset, n_wanted, 0);

                if (n < 0 && may_retry(in->from, POLLIN))
                        continue;
                if (n < 0 && errno == EINVAL)
                        return SPLICE_E_UNSUITED;
                if (n < 0)
                        in->failed = SPLICE_REGION;
                if (n <= 0)
                        return n < 0 ? -errno : 0;
                in_advance(in, (size_t)n);
        }
        return 0;
}

/* Our pipe's @n_bytes into the region. A page that the file has lost meanwhile ends it, with a remainder in the pipe. */
static int in_empty_pipe(In *in, int pipe_fd, size_t n_bytes)
{
        while (n_bytes > 0) {
                loff_t offset = (loff_t)in->offset_bytes;
                ssize_t n = splice(pipe_fd, NULL, in->to, &offset, n_bytes, 0);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n == 0 || (n < 0 && errno == EINVAL))
                        return SPLICE_E_UNSUITED;
                if (n < 0) {
                        in->failed = SPLICE_REGION;
                        return -errno;
                }
                in_advance(in, (size_t)n);
                n_bytes -= (size_t)n;
        }
        return 0;
}

static int in_through_pipe(In *in)
{
        _cleanup_(cleanup_fd) int reading = -1, writing = -1;
        int fds[2], r = 0;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return SPLICE_E_UNSUITED;
        reading = fds[0];
        writing = fds[1];
        /* A user who has many large ones gets no more: then it takes more calls. */
        (void)fcntl(writing, F_SETPIPE_SZ, (int)SPLICE_PIPE_BYTES);
        while (in->n_left > 0 && r == 0) {
                loff_t position = (loff_t)in->position;
                /* Never blocks: the pipe is empty, and no more goes in than it has room for. */
                ssize_t n = splice(in->from, &position, writing, NULL, (size_t)MIN(in->n_left, SPLICE_PIPE_BYTES), 0);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EINVAL)
                        return SPLICE_E_UNSUITED;
                if (n <= 0)
                        return n < 0 ? -errno : 0;
                r = in_empty_pipe(in, reading, (size_t)n);
        }
        return r;
}

static int in_by_buffer(In *in)
{
        size_t n_buffer_bytes = (size_t)MIN(in->n_left, SPLICE_BUFFER_BYTES);
        _cleanup_(cleanup_free) void *buffer = malloc(n_buffer_bytes);

        if (!buffer) {
                in->failed = SPLICE_REGION;
                return -ENOMEM;
        }
        while (in->n_left > 0) {
                ssize_t n = read_some(in->from, buffer, (size_t)MIN(in->n_left, n_buffer_bytes), in->position);
                int r;

                if (n <= 0)
                        return (int)n;
                r = copy_to_fd(in->to, in->offset_bytes, buffer, (size_t)n);
                if (r < 0) {
                        in->failed = SPLICE_REGION;
                        return r;
                }
                in_advance(in, (size_t)n);
        }
        return 0;
}

int splice_in(int outside_fd, int region_fd, uint64_t offset_bytes, uint64_t n_bytes, uint64_t *ret_n_bytes,
              SpliceSide *ret_failed)
{
        In in = {
                .from = outside_fd, .to = region_fd, .position = -1, .offset_bytes = offset_bytes, .n_left = n_bytes
        };
        struct stat st;
        int r = SPLICE_E_UNSUITED;

        *ret_n_bytes = 0;
        *ret_failed = SPLICE_REGION;
        if (!checked_range(offset_bytes, n_bytes, SPLICE_OFFSET_MAX))
                return -EOVERFLOW;
        *ret_failed = SPLICE_OUTSIDE;
        if (fstat(outside_fd, &st) < 0)
                return -errno;
        if (S_ISREG(st.st_mode))
                in.position = lseek(outside_fd, 0, SEEK_CUR);
        if (S_ISFIFO(st.st_mode))
                r = in_from_pipe(&in);
        else if (in.position >= 0 && n_bytes > SPLICE_SHORT_BYTES)
                r = in_through_pipe(&in);
        if (r == SPLICE_E_UNSUITED)
                r = in_by_buffer(&in);
        /* Cannot fail: there is such a position. */
        if (in.position >= 0)
                (void)lseek(outside_fd, in.position, SEEK_SET);
        *ret_n_bytes = n_bytes - in.n_left;
        *ret_failed = in.failed;
        return r;
}

/* --- out of a region ---------------------------------------------------------------------------------------------- */

/* May pages of the region be given to what @mode says, or must it be a copy? */
static bool may_send(int region_fd, mode_t mode)
{
        int seals;

        if (S_ISSOCK(mode))
                return false;        /* there is no sendfile() without a signal */
        if (!S_ISFIFO(mode))
                return true;
        seals = fcntl(region_fd, F_GET_SEALS);
        return seals >= 0 && seals & F_SEAL_WRITE;
}

static int out_by_kernel(int region_fd, uint64_t offset_bytes, int to, uint64_t n_bytes, uint64_t *ret_n_bytes,
                         SpliceSide *ret_failed)
{
        while (*ret_n_bytes < n_bytes) {
                off_t offset = (off_t)(offset_bytes + *ret_n_bytes);
                size_t n_wanted = (size_t)MIN(n_bytes - *ret_n_bytes, SPLICE_CALL_BYTES_MAX);
                ssize_t n = sendfile(to, region_fd, &offset, n_wanted);

                if (n < 0 && may_retry(to, POLLOUT))
                        continue;
                if (n < 0 && errno == EINVAL)
                        return SPLICE_E_UNSUITED;
                if (n < 0)
                        return -errno;
                if (n == 0) {
                        *ret_failed = SPLICE_REGION;
                        return -EIO;
                }
                *ret_n_bytes += (uint64_t)n;
        }
        return 0;
}

static int out_by_buffer(int region_fd, uint64_t offset_bytes, int to, uint64_t n_bytes, uint64_t *ret_n_bytes,
                         SpliceSide *ret_failed)
{
        size_t n_buffer_bytes = (size_t)MIN(n_bytes - *ret_n_bytes, SPLICE_BUFFER_BYTES);
        _cleanup_(cleanup_free) void *buffer = malloc(n_buffer_bytes);
        int r = buffer ? 0 : -ENOMEM;

        *ret_failed = SPLICE_REGION;
        while (r == 0 && *ret_n_bytes < n_bytes) {
                size_t n = (size_t)MIN(n_bytes - *ret_n_bytes, n_buffer_bytes);
                uint64_t n_written;

                r = copy_from_fd(region_fd, offset_bytes + *ret_n_bytes, buffer, n);
                if (r < 0)
                        break;
                r = splice_write(to, buffer, n, &n_written);
                *ret_n_bytes += n_written;
                if (r < 0)
                        *ret_failed = SPLICE_OUTSIDE;
        }
        return r;
}

int splice_out(int region_fd, uint64_t offset_bytes, int outside_fd, uint64_t n_bytes, uint64_t *ret_n_bytes,
               SpliceSide *ret_failed)
{
        struct stat st;
        int r = SPLICE_E_UNSUITED;

        *ret_n_bytes = 0;
        *ret_failed = SPLICE_REGION;
        if (!checked_range(offset_bytes, n_bytes, SPLICE_OFFSET_MAX))
                return -EOVERFLOW;
        *ret_failed = SPLICE_OUTSIDE;
        if (fstat(outside_fd, &st) < 0)
                return -errno;
        if (may_send(region_fd, st.st_mode))
                r = out_by_kernel(region_fd, offset_bytes, outside_fd, n_bytes, ret_n_bytes, ret_failed);
        if (r == SPLICE_E_UNSUITED)
                r = out_by_buffer(region_fd, offset_bytes, outside_fd, n_bytes, ret_n_bytes, ret_failed);
        return r;
}
