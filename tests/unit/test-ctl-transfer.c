/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How folioctl copies: what a file that changes meanwhile leads to, holes, pipes that come in pieces, readers that go
 * away. The library is a double here, an object is an array; so that a file can be made to change at an exact byte.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ctl/transfer.h"

#define OBJECT_BYTES ((size_t)8 << 20)

struct folio_object {
        char *bytes;
        uint64_t size_bytes;
        uint64_t n_written;
        uint64_t fail_at; /* writes from here on find the store full */
        void (*on_write)(uint64_t offset_bytes);
};

static struct folio_object object;
static int file_fd;

int folio_object_write(struct folio_object *to, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        if (offset_bytes >= to->fail_at)
                return FOLIO_E_FULL;
        assert_true(offset_bytes + n_bytes <= OBJECT_BYTES);
        memcpy(to->bytes + offset_bytes, data, n_bytes);
        to->n_written += n_bytes;
        if (offset_bytes + n_bytes > to->size_bytes)
                to->size_bytes = offset_bytes + n_bytes;
        if (to->on_write)
                to->on_write(offset_bytes);
        return 0;
}

int folio_object_write_file(struct folio_object *to, uint64_t offset_bytes, int fd, uint64_t n_bytes,
                            uint64_t *ret_n_bytes)
{
        char *bytes = malloc(n_bytes);
        ssize_t n = 0, n_some;
        int r;

        assert_non_null(bytes);
        do {
                n_some = read(fd, bytes + n, n_bytes - (size_t)n);
                n += n_some > 0 ? n_some : 0;
        } while (n_some > 0 && (uint64_t)n < n_bytes);
        r = n_some < 0 ? FOLIO_E_IO : folio_object_write(to, offset_bytes, bytes, (size_t)n);
        if (r == 0)
                *ret_n_bytes = (uint64_t)n;
        free(bytes);
        return r;
}

int folio_object_read_file(struct folio_object *from, uint64_t offset_bytes, int fd, uint64_t n_bytes)
{
        if (offset_bytes + n_bytes > from->size_bytes)
                return FOLIO_E_RANGE;
        while (n_bytes > 0) {
                ssize_t n = write(fd, from->bytes + offset_bytes, n_bytes);

                if (n < 0)
                        return FOLIO_E_IO;
                offset_bytes += (uint64_t)n;
                n_bytes -= (uint64_t)n;
        }
        return 0;
}

int folio_object_truncate(struct folio_object *of, uint64_t size_bytes)
{
        if (size_bytes > OBJECT_BYTES)
                return FOLIO_E_TOO_LARGE;
        of->size_bytes = size_bytes;
        return 0;
}

int folio_client_open(const struct folio_open_options *options, struct folio_client **ret)
{
        (void)options;
        (void)ret;
        return FOLIO_E_DAEMON_GONE;
}

const char *folio_strerror(int error)
{
        (void)error;
        return "it failed";
}

const char *folio_strerror_full(void)
{
        return "the store is full.";
}

static Ctl ctl;

static int setup(void **state)
{
        object = (struct folio_object){ .fail_at = UINT64_MAX, .bytes = calloc(1, OBJECT_BYTES) };
        assert_non_null(object.bytes);
        file_fd = memfd_create("source", MFD_CLOEXEC);
        assert_true(file_fd >= 0);
        return harness_setup(state);
}

static int teardown(void **state)
{
        int r = harness_teardown(state);

        free(object.bytes);
        (void)close(file_fd);
        return r;
}

/* What the tool says is for people: here it would only be in the way of TAP. */
static int quietly(int (*function)(void *), void *argument)
{
        int kept = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC), r;

        assert_true(kept >= 0 && null >= 0);
        assert_true(dup2(null, STDERR_FILENO) >= 0);
        r = function(argument);
        fflush(stderr);
        assert_true(dup2(kept, STDERR_FILENO) >= 0);
        (void)close(kept);
        (void)close(null);
        return r;
}

/* @n_bytes that no two offsets share for long. */
static void fill_file(size_t n_bytes)
{
        uint32_t *words = calloc(n_bytes / sizeof(*words) + 1, sizeof(*words));

        assert_non_null(words);
        for (size_t i = 0; i <= n_bytes / sizeof(*words); i++)
                words[i] = (uint32_t)i * 2654435761u;
        assert_int_equal(pwrite(file_fd, words, n_bytes, 0), (ssize_t)n_bytes);
        assert_int_equal(lseek(file_fd, 0, SEEK_SET), 0);
        free(words);
}

static void assert_object_is_file(size_t n_bytes)
{
        char *bytes = malloc(n_bytes + 1);

        assert_non_null(bytes);
        assert_int_equal(pread(file_fd, bytes, n_bytes + 1, 0), (ssize_t)n_bytes);
        assert_int_equal(memcmp(bytes, object.bytes, n_bytes), 0);
        free(bytes);
}

static int fill_known(void *source)
{
        return transfer_fill_known(&ctl, source, &object, "default:x");
}

static int fill_sparse(void *source)
{
        return transfer_fill_sparse(&ctl, source, &object, "default:x");
}

static void test_known(void **state)
{
        static const size_t sizes[] = { 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, 8 << 20 };

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                size_t size_bytes = sizes[i];
                Source source = { .fd = file_fd, .label = "file", .is_size_known = true, .size_bytes = size_bytes };

                assert_int_equal(ftruncate(file_fd, 0), 0);
                fill_file(size_bytes);
                memset(object.bytes, 0, OBJECT_BYTES);
                object.size_bytes = object.n_written = 0;
                assert_int_equal(quietly(fill_known, &source), CTL_OK);
                assert_int_equal(object.size_bytes, size_bytes);
                assert_int_equal(object.n_written, size_bytes);
                assert_object_is_file(size_bytes);
        }
        (void)state;
}

/* Standard input stands somewhere in its file: not at a page. */
static void test_from_the_middle(void **state)
{
        Source source = {
                .fd = file_fd, .label = "file", .is_size_known = true, .size_bytes = 2000000, .begin_bytes = 12345
        };
        char *bytes = malloc(2000000);

        assert_non_null(bytes);
        fill_file(2012345);
        assert_int_equal(quietly(fill_known, &source), CTL_OK);
        assert_int_equal(pread(file_fd, bytes, 2000000, 12345), 2000000);
        assert_int_equal(memcmp(bytes, object.bytes, 2000000), 0);
        memset(object.bytes, 0, OBJECT_BYTES);
        assert_int_equal(quietly(fill_sparse, &source), CTL_OK);
        assert_int_equal(memcmp(bytes, object.bytes, 2000000), 0);
        free(bytes);
        (void)state;
}

static off_t new_size_bytes;

static void resize(uint64_t offset_bytes)
{
        (void)offset_bytes;
        assert_int_equal(ftruncate(file_fd, new_size_bytes), 0);
}

/* By a byte, by half a page, by most of it, to nothing; longer; seen on the way or only at the end. */
static void test_file_that_changes(void **state)
{
        static const off_t sizes[] = { 2999999, 2998000, 1000000, 0, 3000001, 9000000 };

        object.on_write = resize;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                Source source = { .fd = file_fd, .label = "file", .is_size_known = true, .size_bytes = 3000000 };

                new_size_bytes = sizes[i];
                assert_int_equal(ftruncate(file_fd, 0), 0);
                fill_file(3000000);
                assert_int_equal(quietly(fill_known, &source), CTL_REFUSED);
                assert_int_equal(ftruncate(file_fd, 0), 0);
                fill_file(3000000);
                assert_int_equal(quietly(fill_sparse, &source), CTL_REFUSED);
        }
        (void)state;
}

static void test_store_full(void **state)
{
        Source source = { .fd = file_fd, .label = "file", .is_size_known = true, .size_bytes = 3000000 };

        fill_file(3000000);
        object.fail_at = 1 << 20;
        assert_int_equal(quietly(fill_known, &source), CTL_REFUSED);
        assert_int_equal(object.n_written, 1 << 20);
        object.fail_at = 0;
        assert_int_equal(quietly(fill_known, &source), CTL_REFUSED);
        assert_int_equal(object.n_written, 1 << 20);
        (void)state;
}

static void test_unreadable(void **state)
{
        int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        Source source = { .fd = fd, .label = "file", .is_size_known = true, .size_bytes = 4096 };

        /* Nothing is mapped at 0: EIO. */
        assert_true(fd >= 0);
        assert_int_equal(quietly(fill_known, &source), CTL_REFUSED);
        assert_int_equal(object.n_written, 0);
        (void)close(fd);
        (void)state;
}

static void test_holes(void **state)
{
        Source source = { .fd = file_fd, .label = "file", .is_size_known = true, .size_bytes = 4 << 20 };

        assert_int_equal(ftruncate(file_fd, 4 << 20), 0);
        assert_int_equal(pwrite(file_fd, "begin", 5, 0), 5);
        assert_int_equal(pwrite(file_fd, "middle", 6, 2 << 20), 6);
        assert_int_equal(quietly(fill_sparse, &source), CTL_OK);
        assert_true(object.n_written > 0 && object.n_written <= 8 << 12);
        object.size_bytes = 4 << 20;
        assert_object_is_file(4 << 20);

        /* Nothing but a hole, and data to the last byte. */
        object.n_written = 0;
        assert_int_equal(ftruncate(file_fd, 0), 0);
        assert_int_equal(ftruncate(file_fd, 4 << 20), 0);
        assert_int_equal(quietly(fill_sparse, &source), CTL_OK);
        assert_int_equal(object.n_written, 0);
        assert_int_equal(pwrite(file_fd, "end", 3, (4 << 20) - 3), 3);
        assert_int_equal(quietly(fill_sparse, &source), CTL_OK);
        assert_memory_equal(object.bytes + (4 << 20) - 3, "end", 3);
        (void)state;
}

typedef struct Stream {
        Source source;
        const char *head;
        size_t n_head_bytes;
        bool is_mutable;
} Stream;

static int fill_stream(void *argument)
{
        Stream *stream = argument;

        return transfer_fill_stream(&ctl, &stream->source, &object, "default:x", stream->head, stream->n_head_bytes,
                                    stream->is_mutable);
}

static void test_stream(void **state)
{
        Stream stream = { .source = { .fd = file_fd, .label = "pipe" }, .head = "head", .n_head_bytes = 4 };

        fill_file(2500000);
        assert_int_equal(quietly(fill_stream, &stream), CTL_OK);
        assert_int_equal(object.size_bytes, 2500004);
        assert_memory_equal(object.bytes, "head", 4);
        memmove(object.bytes, object.bytes + 4, 2500000);
        assert_object_is_file(2500000);

        /* A mutable one is made larger before it is written, and no larger than the store lets it. */
        stream.is_mutable = true;
        stream.n_head_bytes = 0;
        object.size_bytes = 0;
        assert_int_equal(lseek(file_fd, 0, SEEK_SET), 0);
        assert_int_equal(quietly(fill_stream, &stream), CTL_OK);
        assert_int_equal(object.size_bytes, 2500000);
        assert_object_is_file(2500000);
        assert_int_equal(ftruncate(file_fd, (off_t)OBJECT_BYTES + 1), 0);
        assert_int_equal(lseek(file_fd, 0, SEEK_SET), 0);
        assert_int_equal(quietly(fill_stream, &stream), CTL_REFUSED);
        (void)state;
}

typedef struct Drain {
        uint64_t offset_bytes;
        uint64_t n_bytes;
        int fd;
} Drain;

static int drain(void *argument)
{
        const Drain *drain = argument;

        return transfer_drain(&ctl, &object, "default:x", drain->offset_bytes, drain->n_bytes, drain->fd, "file");
}

static void test_drain(void **state)
{
        Drain all = { .n_bytes = 3000000, .fd = file_fd };
        Drain part = { .offset_bytes = 1500001, .n_bytes = 3, .fd = file_fd };
        char bytes[3];

        for (size_t i = 0; i < 3000000; i++)
                object.bytes[i] = (char)(i * 31 >> 3);
        object.size_bytes = 3000000;
        assert_int_equal(ftruncate(file_fd, 0), 0);
        assert_int_equal(lseek(file_fd, 0, SEEK_SET), 0);
        assert_int_equal(quietly(drain, &all), CTL_OK);
        assert_object_is_file(3000000);
        assert_int_equal(ftruncate(file_fd, 0), 0);
        assert_int_equal(lseek(file_fd, 0, SEEK_SET), 0);
        assert_int_equal(quietly(drain, &part), CTL_OK);
        assert_int_equal(pread(file_fd, bytes, 3, 0), 3);
        assert_memory_equal(bytes, object.bytes + 1500001, 3);
        /* A mutable object that was cut down meanwhile. */
        object.size_bytes = 2000000;
        assert_int_equal(quietly(drain, &all), CTL_REFUSED);
        (void)state;
}

static void test_drain_to_a_reader_that_goes_away(void **state)
{
        Drain all = { .n_bytes = 3000000 };
        void (*before)(int) = signal(SIGPIPE, SIG_IGN);
        int fds[2];

        object.size_bytes = 3000000;
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        (void)close(fds[0]);
        all.fd = fds[1];
        assert_int_equal(quietly(drain, &all), CTL_REFUSED);
        (void)close(fds[1]);
        (void)signal(SIGPIPE, before);
        (void)state;
}

static int open_directory(void *source)
{
        return source_open(&ctl, "/", source);
}

static int open_nothing(void *source)
{
        return source_open(&ctl, "/nonexistent", source);
}

static void test_sources(void **state)
{
        Source source = { .fd = -1 };

        assert_int_equal(quietly(open_directory, &source), CTL_REFUSED);
        assert_int_equal(source.fd, -1);
        assert_int_equal(quietly(open_nothing, &source), CTL_REFUSED);
        assert_int_equal(source.fd, -1);
        /* A file of /proc says 0 and has bytes: its size is not believed. */
        assert_int_equal(source_open(&ctl, "/proc/self/status", &source), CTL_OK);
        assert_false(source.is_size_known);
        source_close(&source);
        assert_int_equal(source_open(&ctl, "/proc/self/exe", &source), CTL_OK);
        assert_true(source.is_size_known);
        assert_true(source.size_bytes > 1000);
        source_close(&source);
        (void)state;
}

#define TRANSFER_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
        static const CtlVerb verb = { .name = "put", .usage = "" };
        const struct CMUnitTest tests[] = {
                TRANSFER_TEST(test_known),
                TRANSFER_TEST(test_from_the_middle),
                TRANSFER_TEST(test_file_that_changes),
                TRANSFER_TEST(test_store_full),
                TRANSFER_TEST(test_unreadable),
                TRANSFER_TEST(test_holes),
                TRANSFER_TEST(test_stream),
                TRANSFER_TEST(test_drain),
                TRANSFER_TEST(test_drain_to_a_reader_that_goes_away),
                TRANSFER_TEST(test_sources),
        };

        ctl.verb = &verb;
        return cmocka_run_group_tests_name("ctl-transfer", tests, NULL, NULL);
}
