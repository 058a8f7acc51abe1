/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes between a region and whatever the program has: every kind of descriptor, byte for byte, and who is to blame. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/splice.h"
#include "tests/unit/harness.h"

enum { N_BYTES = 5 << 20 };

static uint8_t *pattern;

static int setup_pattern(void **state)
{
        (void)state;
        pattern = malloc(N_BYTES);
        if (!pattern)
                return -1;
        for (size_t i = 0; i < N_BYTES; i++)
                pattern[i] = (uint8_t)((i * UINT64_C(2654435761)) >> 13);
        return 0;
}

static int teardown_pattern(void **state)
{
        (void)state;
        free(pattern);
        return 0;
}

static int new_file(size_t n_pattern_bytes)
{
        int fd = memfd_create("splice", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_true(fd >= 0);
        if (n_pattern_bytes > 0)
                assert_int_equal(pwrite(fd, pattern, n_pattern_bytes, 0), (ssize_t)n_pattern_bytes);
        return fd;
}

static int new_region(void)
{
        int fd = new_file(0);

        assert_int_equal(ftruncate(fd, N_BYTES), 0);
        return fd;
}

/* [@offset, + @n) of @fd is [@from, + @n) of the pattern; around it are zeros where @is_alone. */
static void assert_holds(int fd, size_t offset, size_t from, size_t n, bool is_alone)
{
        uint8_t *bytes = test_calloc(1, N_BYTES + 1);
        ssize_t n_all = pread(fd, bytes, N_BYTES, 0);

        assert_true(n_all >= (ssize_t)(offset + n));
        assert_int_equal(memcmp(bytes + offset, pattern + from, n), 0);
        for (size_t i = 0; is_alone && i < (size_t)n_all; i++)
                if (i < offset || i >= offset + n)
                        assert_int_equal(bytes[i], 0);
        test_free(bytes);
}

/* --- someone at the other end ------------------------------------------------------------------------------------- */

typedef struct Peer {
        pthread_t thread;
        int fd;
        size_t n_bytes;
        uint8_t *read;               /* NULL: it writes the pattern */
        size_t n_done;
} Peer;

static void *peer_run(void *userdata)
{
        Peer *peer = userdata;

        /* In pieces of every length, so that the other side finds it empty, full, and in between. */
        for (size_t piece = 1; peer->n_done < peer->n_bytes; piece = piece * 3 % 200003 + 1) {
                size_t n = MIN(piece, peer->n_bytes - peer->n_done);
                ssize_t n_some = peer->read ? read(peer->fd, peer->read + peer->n_done, n) :
                                              write(peer->fd, pattern + peer->n_done, n);

                if (n_some <= 0)
                        break;
                peer->n_done += (size_t)n_some;
        }
        (void)close(peer->fd);
        return NULL;
}

static void peer_start(Peer *peer)
{
        assert_int_equal(pthread_create(&peer->thread, NULL, peer_run, peer), 0);
}

/* Ours and the peer's. A pipe's ends, in that order, or a socket's. */
static void new_channel(int kind, bool is_read, int *ret_ours, int *ret_other)
{
        int fds[2];

        if (kind == 0)
                assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        else
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        *ret_ours = fds[is_read ? 0 : 1];
        *ret_other = fds[is_read ? 1 : 0];
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

static const struct {
        size_t position;
        size_t offset;
        size_t n;
} ranges[] = {
        { 0, 0, 1 },         { 0, 0, 4096 },          { 7, 4095, 2 },           { 0, 0, 65536 },
        { 1, 0, 65537 },     { 4097, 12345, 1 << 20 }, { 3, 5, (1 << 20) + 1 }, { 0, 0, N_BYTES },
        { 100, 99, 3000000 }, { 4096, 8192, 2 << 20 }, { 0, N_BYTES - 1, 1 },
};

static void test_in_from_file(void **state)
{
        int file = new_file(N_BYTES);

        for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
                int region = new_region();
                SpliceSide failed;
                uint64_t n;

                assert_int_equal(lseek(file, (off_t)ranges[i].position, SEEK_SET), (off_t)ranges[i].position);
                assert_int_equal(splice_in(file, region, ranges[i].offset, ranges[i].n, &n, &failed), 0);
                assert_int_equal(n, ranges[i].n);
                assert_int_equal(lseek(file, 0, SEEK_CUR), (off_t)(ranges[i].position + n));
                /* The region's position is not ours to move: others have the same. */
                assert_int_equal(lseek(region, 0, SEEK_CUR), 0);
                assert_holds(region, ranges[i].offset, ranges[i].position, ranges[i].n, true);
                close(region);
        }
        close(file);
}

static void test_in_from_short_file(void **state)
{
        static const size_t sizes[] = { 0, 1, 65535, 100000, (1 << 20) + 1, 3000000 };

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                int file = new_file(sizes[i]), region = new_region();
                SpliceSide failed;
                uint64_t n = 1;

                assert_int_equal(splice_in(file, region, 10, N_BYTES - 10, &n, &failed), 0);
                assert_int_equal(n, sizes[i]);
                assert_holds(region, 10, 0, sizes[i], true);
                assert_int_equal(splice_in(file, region, 10, N_BYTES - 10, &n, &failed), 0);
                assert_int_equal(n, 0);
                close(file);
                close(region);
        }
}

static void test_in_from_channels(void **state)
{
        for (int kind = 0; kind < 2; kind++)
                for (int is_nonblocking = 0; is_nonblocking < 2; is_nonblocking++) {
                        Peer peer = { .n_bytes = 3000001 };
                        int ours, region = new_region();
                        SpliceSide failed;
                        uint64_t n, n_rest;

                        new_channel(kind, true, &ours, &peer.fd);
                        if (is_nonblocking)
                                assert_int_equal(fcntl(ours, F_SETFL, O_NONBLOCK), 0);
                        peer_start(&peer);
                        /* Not a byte more than asked for is taken. */
                        assert_int_equal(splice_in(ours, region, 5, 1234567, &n, &failed), 0);
                        assert_int_equal(n, 1234567);
                        assert_int_equal(splice_in(ours, region, 5 + n, N_BYTES - 5 - n, &n_rest, &failed), 0);
                        assert_int_equal(n + n_rest, 3000001);
                        assert_int_equal(pthread_join(peer.thread, NULL), 0);
                        assert_holds(region, 5, 0, 3000001, true);
                        close(ours);
                        close(region);
                }
}

/* What the kernel will not splice: a file that is made as it is read, and a device. */
static void test_in_from_strange_files(void **state)
{
        int maps = open("/proc/self/status", O_RDONLY | O_CLOEXEC), zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        int region = new_region();
        SpliceSide failed;
        char head[5];
        uint64_t n;

        assert_true(maps >= 0 && zero >= 0);
        assert_int_equal(splice_in(maps, region, 3, 1 << 20, &n, &failed), 0);
        assert_true(n > 100 && n < 1 << 16);
        assert_int_equal(pread(region, head, 5, 3), 5);
        assert_memory_equal(head, "Name:", 5);
        assert_int_equal(splice_in(zero, region, 0, 1 << 20, &n, &failed), 0);
        assert_int_equal(n, 1 << 20);
        assert_holds(region, 0, 0, 0, true);
        close(maps);
        close(zero);
        close(region);
}

static void test_in_who_failed(void **state)
{
        static const uint64_t beyond[] = { (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX };
        int file = new_file(1 << 20), region = new_region(), write_only = open("/dev/null", O_WRONLY | O_CLOEXEC);
        int directory = open("/", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
        SpliceSide failed;
        uint64_t n;

        for (size_t i = 0; i < ARRAY_SIZE(beyond); i++) {
                assert_int_equal(splice_in(file, region, beyond[i], 2, &n, &failed), -EOVERFLOW);
                assert_int_equal(splice_out(region, beyond[i], file, 2, &n, &failed), -EOVERFLOW);
        }
        assert_int_equal(splice_in(-1, region, 0, 1, &n, &failed), -EBADF);
        assert_int_equal(failed, SPLICE_OUTSIDE);
        assert_int_equal(splice_in(write_only, region, 0, 1, &n, &failed), -EBADF);
        assert_int_equal(failed, SPLICE_OUTSIDE);
        assert_int_equal(splice_in(directory, region, 0, 1, &n, &failed), -EISDIR);
        assert_int_equal(failed, SPLICE_OUTSIDE);
        /* A region that refuses: by a pipe, and by a buffer. */
        assert_int_equal(fcntl(region, F_ADD_SEALS, F_SEAL_WRITE), 0);
        assert_int_equal(splice_in(file, region, 0, 1 << 20, &n, &failed), -EPERM);
        assert_int_equal(failed, SPLICE_REGION);
        assert_int_equal(n, 0);
        assert_int_equal(lseek(file, 0, SEEK_CUR), 0);
        assert_int_equal(splice_in(file, region, 0, 100, &n, &failed), -EPERM);
        assert_int_equal(failed, SPLICE_REGION);
        assert_int_equal(lseek(file, 0, SEEK_CUR), 0);
        close(file);
        close(region);
        close(write_only);
        close(directory);
}

typedef struct Cutter {
        int fd;
        volatile bool is_over;
} Cutter;

static void *cut_and_mend(void *userdata)
{
        Cutter *cutter = userdata;

        while (!cutter->is_over) {
                (void)!ftruncate(cutter->fd, 12345);
                (void)!pwrite(cutter->fd, pattern, N_BYTES, 0);
        }
        return NULL;
}

/* A file that others cut down and write meanwhile: never a signal or an error, and the position is behind what was stored. */
static void test_in_from_file_that_changes(void **state)
{
        Cutter cutter = { .fd = new_file(N_BYTES) };
        int region = new_region();
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, cut_and_mend, &cutter), 0);
        for (unsigned i = 0; i < 200; i++) {
                SpliceSide failed;
                uint64_t n;

                assert_int_equal(lseek(cutter.fd, 0, SEEK_SET), 0);
                assert_int_equal(splice_in(cutter.fd, region, 0, N_BYTES, &n, &failed), 0);
                assert_true(n >= 12345 && n <= N_BYTES);
                assert_int_equal(lseek(cutter.fd, 0, SEEK_CUR), (off_t)n);
                assert_holds(region, 0, 0, 12345, false);
        }
        cutter.is_over = true;
        assert_int_equal(pthread_join(thread, NULL), 0);
        close(cutter.fd);
        close(region);
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

static void test_out_to_file(void **state)
{
        int region = new_file(N_BYTES);

        for (size_t i = 0; i < ARRAY_SIZE(ranges) * 2; i++) {
                size_t position = ranges[i / 2].position, from = ranges[i / 2].offset, n_wanted = ranges[i / 2].n;
                int file = new_file(0);
                SpliceSide failed;
                uint64_t n;

                /* What is opened to be appended to is not spliced. */
                if (i % 2)
                        assert_int_equal(fcntl(file, F_SETFL, O_APPEND), 0);
                assert_int_equal(ftruncate(file, (off_t)position), 0);
                assert_int_equal(lseek(file, (off_t)position, SEEK_SET), (off_t)position);
                assert_int_equal(splice_out(region, from, file, n_wanted, &n, &failed), 0);
                assert_int_equal(n, n_wanted);
                assert_int_equal(lseek(file, 0, SEEK_END), (off_t)(position + n_wanted));
                assert_int_equal(lseek(region, 0, SEEK_CUR), 0);
                if (position + n_wanted <= N_BYTES)
                        assert_holds(file, position, from, n_wanted, true);
                close(file);
        }
        close(region);
}

static void test_out_to_channels(void **state)
{
        for (unsigned i = 0; i < 8; i++) {
                Peer peer = { .n_bytes = 3000001, .read = test_calloc(1, 3000001) };
                int ours, region = new_file(N_BYTES);
                SpliceSide failed;
                uint64_t n;

                new_channel(i & 1, false, &ours, &peer.fd);
                if (i & 2)
                        assert_int_equal(fcntl(ours, F_SETFL, O_NONBLOCK), 0);
                if (i & 4)
                        assert_int_equal(fcntl(region, F_ADD_SEALS, F_SEAL_WRITE), 0);
                peer_start(&peer);
                assert_int_equal(splice_out(region, 777, ours, 3000001, &n, &failed), 0);
                assert_int_equal(n, 3000001);
                assert_int_equal(pthread_join(peer.thread, NULL), 0);
                assert_int_equal(peer.n_done, 3000001);
                assert_int_equal(memcmp(peer.read, pattern + 777, 3000001), 0);
                close(ours);
                close(region);
                test_free(peer.read);
        }
}

/* What can still be changed is copied: the reader sees it as it was. */
static void test_out_is_a_copy(void **state)
{
        int fds[2], region = new_file(N_BYTES);
        uint8_t bytes[8192];
        SpliceSide failed;
        uint64_t n;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        assert_int_equal(splice_out(region, 0, fds[1], sizeof(bytes), &n, &failed), 0);
        memset(bytes, 0xff, sizeof(bytes));
        assert_int_equal(pwrite(region, bytes, sizeof(bytes), 0), sizeof(bytes));
        assert_int_equal(read(fds[0], bytes, sizeof(bytes)), sizeof(bytes));
        assert_memory_equal(bytes, pattern, sizeof(bytes));
        close(fds[0]);
        close(fds[1]);
        close(region);
}

static void test_out_who_failed(void **state)
{
        int region = new_file(1 << 20), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        SpliceSide failed;
        uint64_t n;

        assert_int_equal(splice_out(region, 0, -1, 1, &n, &failed), -EBADF);
        assert_int_equal(failed, SPLICE_OUTSIDE);
        assert_int_equal(splice_out(region, 0, null, 1, &n, &failed), -EBADF);
        assert_int_equal(failed, SPLICE_OUTSIDE);
        assert_int_equal(splice_out(region, 0, full, 1 << 20, &n, &failed), -ENOSPC);
        assert_int_equal(failed, SPLICE_OUTSIDE);
        assert_int_equal(n, 0);
        close(null);
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        assert_int_equal(splice_out(region, 0, null, 1 << 20, &n, &failed), 0);
        assert_int_equal(splice_out(region, 0, null, (1 << 20) + 1, &n, &failed), -EIO);
        assert_int_equal(failed, SPLICE_REGION);
        close(region);
        close(full);
        close(null);
}

static volatile sig_atomic_t n_signals;

static void on_signal(int number)
{
        (void)number;
        n_signals++;
}

/* A pipe that nobody reads is a signal, as by write(); a socket never. */
static void test_out_to_nobody(void **state)
{
        struct sigaction action = { .sa_handler = on_signal }, before;

        assert_int_equal(sigaction(SIGPIPE, &action, &before), 0);
        for (int kind = 0; kind < 2; kind++)
                for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
                        int ours, other, region = new_file(1 << 20);
                        SpliceSide failed;
                        uint64_t n;

                        if (is_sealed)
                                assert_int_equal(fcntl(region, F_ADD_SEALS, F_SEAL_WRITE), 0);
                        new_channel(kind, false, &ours, &other);
                        close(other);
                        n_signals = 0;
                        assert_int_equal(splice_out(region, 0, ours, 1 << 20, &n, &failed), -EPIPE);
                        assert_int_equal(failed, SPLICE_OUTSIDE);
                        assert_int_equal(n_signals, kind == 0);
                        assert_int_equal(splice_write(ours, pattern, 100, &n), -EPIPE);
                        assert_int_equal(n_signals, kind == 0 ? 2 : 0);
                        close(ours);
                        close(region);
                }
        assert_int_equal(sigaction(SIGPIPE, &before, NULL), 0);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void test_read_ready(void **state)
{
        uint8_t bytes[100];
        bool is_end;
        int fds[2];
        size_t n;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        assert_false(splice_is_readable(fds[0]));
        assert_int_equal(write(fds[1], "abc", 3), 3);
        assert_true(splice_is_readable(fds[0]));
        splice_wait_readable(fds[0]);
        /* It does not wait for more. */
        assert_int_equal(splice_read_ready(fds[0], bytes, sizeof(bytes), &n, &is_end), 0);
        assert_int_equal(n, 3);
        assert_false(is_end);
        assert_int_equal(write(fds[1], "defg", 4), 4);
        assert_int_equal(splice_read_ready(fds[0], bytes, 2, &n, &is_end), 0);
        assert_int_equal(n, 2);
        close(fds[1]);
        assert_int_equal(splice_read_ready(fds[0], bytes, sizeof(bytes), &n, &is_end), 0);
        assert_int_equal(n, 2);
        assert_true(is_end);
        assert_memory_equal(bytes, "fg", 2);
        assert_true(splice_is_readable(fds[0]));
        assert_int_equal(splice_read(fds[0], bytes, sizeof(bytes), &n), 0);
        assert_int_equal(n, 0);
        close(fds[0]);
        assert_int_equal(splice_read(fds[0], bytes, 1, &n), -EBADF);
        assert_int_equal(splice_read_ready(fds[0], bytes, 1, &n, &is_end), -EBADF);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_in_from_file),
                UNIT_TEST(test_in_from_short_file),
                UNIT_TEST(test_in_from_channels),
                UNIT_TEST(test_in_from_strange_files),
                UNIT_TEST(test_in_who_failed),
                UNIT_TEST(test_in_from_file_that_changes),
                UNIT_TEST(test_out_to_file),
                UNIT_TEST(test_out_to_channels),
                UNIT_TEST(test_out_is_a_copy),
                UNIT_TEST(test_out_who_failed),
                UNIT_TEST(test_out_to_nobody),
                UNIT_TEST(test_read_ready),
        };

        return cmocka_run_group_tests_name("splice", tests, setup_pattern, teardown_pattern);
}
