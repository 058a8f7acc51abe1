/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects made of what a descriptor gives, and written out to descriptors: every kind of object, files, pipes and
 * sockets, random sizes and offsets, byte for byte.
 */
#include "tests/integration/harness.h"

#include <pthread.h>
#include <sys/socket.h>

#define MIB (1024u * 1024u)
#define OBJECT_BYTES_MAX (5u * MIB + 4097)

static uint8_t *pattern, *scratch;

static int setup(void **state)
{
        pattern = malloc(OBJECT_BYTES_MAX * 2);
        scratch = malloc(OBJECT_BYTES_MAX * 2);
        if (!pattern || !scratch)
                return -1;
        harness_fill(pattern, OBJECT_BYTES_MAX * 2, 77);
        return harness_setup(state);
}

static int teardown(void **state)
{
        free(pattern);
        free(scratch);
        return harness_teardown(state);
}

static uint64_t seed = 1;

/* 0 to @limit - 1. */
static uint64_t any(uint64_t limit)
{
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        return (seed >> 24) % limit;
}

static int new_file(size_t n_pattern_bytes)
{
        int fd = memfd_create("file", MFD_CLOEXEC);

        assert_true(fd >= 0);
        if (n_pattern_bytes > 0)
                assert_int_equal(pwrite(fd, pattern, n_pattern_bytes, 0), (ssize_t)n_pattern_bytes);
        return fd;
}

/* --- a process at the other end ----------------------------------------------------------------------------------- */

typedef struct Peer {
        int fd;
        int other_fd;                /* the test's end: the child must not keep it open */
        uint64_t n_bytes;
} Peer;

static void give(Child *child)
{
        Peer *peer = child->userdata;
        uint64_t n_done = 0;

        (void)close(peer->other_fd);
        for (uint64_t piece = 1; n_done < peer->n_bytes; piece = piece * 3 % 300007 + 1) {
                uint64_t n = piece < peer->n_bytes - n_done ? piece : peer->n_bytes - n_done;
                ssize_t n_some = write(peer->fd, pattern + n_done, n);

                CHECK(n_some > 0);
                n_done += (uint64_t)n_some;
        }
}

/* It expects the pattern, from byte 0, and then the end. */
static void take(Child *child)
{
        Peer *peer = child->userdata;
        uint64_t n_done = 0;
        ssize_t n;

        (void)close(peer->other_fd);
        while ((n = read(peer->fd, scratch, 100003)) > 0) {
                CHECK(memcmp(scratch, pattern + n_done, (size_t)n) == 0);
                n_done += (uint64_t)n;
        }
        CHECK(n == 0);
        CHECK(n_done == peer->n_bytes);
}

/* Ours; the other end is the child's alone. */
static int start_peer(Foliod *foliod, Child **ret, bool is_socket, bool is_reader, uint64_t n_bytes)
{
        int fds[2], ours, theirs;
        Peer peer = { .n_bytes = n_bytes };

        if (is_socket)
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        else
                assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        ours = is_reader ? fds[1] : fds[0];
        theirs = is_reader ? fds[0] : fds[1];
        peer.fd = theirs;
        peer.other_fd = ours;
        *ret = is_reader ? child_start(foliod, take, &peer) : child_start(foliod, give, &peer);
        (void)close(theirs);
        return ours;
}

/* --- from files --------------------------------------------------------------------------------------------------- */

enum { STAGED, OWN, SPARSE, MUTABLE, MUTABLE_MAPPED, MUTABLE_GOT, STREAM, _KINDS };

typedef struct Made {
        struct folio_object *object;
        struct folio_object *to;     /* by which it is written: mostly the same */
        bool is_sealed_at_end;
} Made;

static Made make(struct folio_client *client, struct folio_client *other, int kind, const char *name,
                 uint64_t size_bytes)
{
        static const uint32_t flags[_KINDS] = {
                [OWN] = FOLIO_OWN_REGION,        [SPARSE] = FOLIO_SPARSE,       [MUTABLE] = FOLIO_MUTABLE,
                [MUTABLE_MAPPED] = FOLIO_MUTABLE, [MUTABLE_GOT] = FOLIO_MUTABLE, [STREAM] = FOLIO_STREAM,
        };
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags[kind] };
        Made made = { .is_sealed_at_end = !(flags[kind] & FOLIO_MUTABLE) };
        void *memory;

        ASSERT_OK(folio_create(client, name, kind == STREAM ? 0 : size_bytes, &options, &made.object));
        made.to = made.object;
        if (kind == MUTABLE_GOT || kind == MUTABLE_MAPPED)
                ASSERT_OK(folio_get(other, name, FOLIO_GET_WRITABLE | FOLIO_GET_UNMAPPED, 0, &made.to));
        if (kind == MUTABLE_MAPPED)
                ASSERT_OK(folio_object_map_write(made.to, &memory));
        return made;
}

/* Written by pieces from one file, in order for a stream, else backwards; whatever a piece's length and place. */
static void fill_by_pieces(Made *made, int kind, int file, uint64_t size_bytes)
{
        uint64_t n_left = size_bytes, at, n_piece, n;

        for (; n_left > 0; n_left -= n_piece) {
                n_piece = 1 + any(n_left);
                at = kind == STREAM ? size_bytes - n_left : n_left - n_piece;
                assert_int_equal(lseek(file, (off_t)at, SEEK_SET), (off_t)at);
                ASSERT_OK(folio_object_write_file(made->to, at, file, n_piece, &n));
                assert_int_equal(n, n_piece);
                assert_int_equal(lseek(file, 0, SEEK_CUR), (off_t)(at + n));
        }
}

static void assert_object(struct folio_object *object, uint64_t size_bytes)
{
        assert_int_equal(folio_object_size(object), size_bytes);
        for (unsigned i = 0; i < 4; i++) {
                uint64_t at = i == 0 ? 0 : any(size_bytes + 1), n = i == 0 ? size_bytes : any(size_bytes - at + 1);
                int file = new_file(0);

                ASSERT_OK(folio_object_read_file(object, at, file, n));
                assert_int_equal(lseek(file, 0, SEEK_END), (off_t)n);
                assert_int_equal(pread(file, scratch, n, 0), (ssize_t)n);
                assert_int_equal(memcmp(scratch, pattern + at, n), 0);
                (void)close(file);
        }
}

static void test_files(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        int file = new_file(OBJECT_BYTES_MAX);

        for (int kind = 0; kind < _KINDS; kind++)
                for (unsigned i = 0; i < 8; i++) {
                        uint64_t limit = kind == STAGED ? 1000000 : OBJECT_BYTES_MAX;
                        uint64_t size_bytes = i == 0 ? 1 : 1 + any(limit);
                        Made made = make(client, other, kind, "f", size_bytes);
                        struct folio_object *seen;

                        fill_by_pieces(&made, kind, file, size_bytes);
                        /* Before the seal too, but for a stream. */
                        if (kind != STREAM)
                                assert_object(made.object, size_bytes);
                        if (made.is_sealed_at_end)
                                ASSERT_OK(folio_object_seal(made.object));
                        ASSERT_OK(folio_get(other, "f", i % 2 ? 0 : FOLIO_GET_UNMAPPED, 0, &seen));
                        assert_object(seen, size_bytes);
                        assert_object(made.object, size_bytes);
                        assert_int_equal(memcmp(folio_object_data(seen), pattern, size_bytes), 0);
                        ASSERT_OK(folio_object_release(seen));
                        if (made.to != made.object)
                                ASSERT_OK(folio_object_release(made.to));
                        ASSERT_OK(folio_object_release(made.object));
                        ASSERT_OK(folio_delete(client, "f", 0));
                }
        (void)close(file);
        folio_client_unref(other);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* A source that ends before: what is behind it stays as it was. */
static void test_short_files(void **state)
{
        static const size_t lengths[] = { 0, 1, 4097, 900000 };
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);

        for (int kind = 0; kind < _KINDS; kind++)
                for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
                        Made made = make(client, client, kind, "s", 1000000);
                        int file = new_file(lengths[i]);
                        uint64_t n = 99;

                        ASSERT_OK(folio_object_write_file(made.to, 0, file, kind == STREAM ? UINT64_MAX : 1000000, &n));
                        assert_int_equal(n, lengths[i]);
                        ASSERT_OK(folio_object_write_file(made.to, lengths[i], file, 1, &n));
                        assert_int_equal(n, 0);
                        if (made.is_sealed_at_end)
                                ASSERT_OK(folio_object_seal(made.object));
                        assert_int_equal(folio_object_size(made.object), kind == STREAM ? lengths[i] : 1000000);
                        ASSERT_OK(folio_object_read(made.object, 0, scratch, (size_t)folio_object_size(made.object)));
                        assert_int_equal(memcmp(scratch, pattern, lengths[i]), 0);
                        for (size_t at = lengths[i]; at < folio_object_size(made.object); at++)
                                assert_int_equal(scratch[at], 0);
                        if (made.to != made.object)
                                ASSERT_OK(folio_object_release(made.to));
                        ASSERT_OK(folio_object_release(made.object));
                        ASSERT_OK(folio_delete(client, "s", 0));
                        (void)close(file);
                }
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- pipes and sockets -------------------------------------------------------------------------------------------- */

static void test_pipes(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);

        for (int kind = 0; kind < _KINDS; kind++)
                for (int is_socket = 0; is_socket < 2; is_socket++) {
                        uint64_t size_bytes = kind == STAGED ? 700001 : 3 * MIB + 12345, n, n_rest;
                        Made made = make(client, client, kind, "p", size_bytes);
                        struct folio_object *seen;
                        Child *child;
                        int fd = start_peer(foliod, &child, is_socket, false, size_bytes);

                        assert_int_equal(fcntl(fd, F_SETFL, is_socket ? O_NONBLOCK : 0), 0);
                        ASSERT_OK(folio_object_write_file(made.to, 0, fd, 123457, &n));
                        assert_int_equal(n, 123457);
                        n_rest = kind == STREAM ? UINT64_MAX : size_bytes - n;
                        ASSERT_OK(folio_object_write_file(made.to, n, fd, n_rest, &n_rest));
                        assert_int_equal(n + n_rest, size_bytes);
                        child_finish(child);
                        (void)close(fd);
                        if (made.is_sealed_at_end)
                                ASSERT_OK(folio_object_seal(made.object));
                        assert_object(made.object, size_bytes);
                        for (unsigned i = 0; i < 4; i++) {
                                ASSERT_OK(folio_get(client, "p", i < 2 ? FOLIO_GET_UNMAPPED : 0, 0, &seen));
                                fd = start_peer(foliod, &child, i % 2, true, size_bytes);
                                ASSERT_OK(folio_object_read_file(seen, 0, fd, size_bytes / 2));
                                ASSERT_OK(folio_object_read_file(seen, size_bytes / 2, fd, size_bytes - size_bytes / 2));
                                (void)close(fd);
                                child_finish(child);
                                ASSERT_OK(folio_object_release(seen));
                        }
                        if (made.to != made.object)
                                ASSERT_OK(folio_object_release(made.to));
                        ASSERT_OK(folio_object_release(made.object));
                        ASSERT_OK(folio_delete(client, "p", 0));
                }
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void *write_later(void *userdata)
{
        const Peer *peer = userdata;

        harness_pause();
        (void)!write(peer->fd, pattern, peer->n_bytes);
        return NULL;
}

/* A stream that waits for its source holds no staging memory: 40 of them do not keep anybody from putting. */
static void test_waiting_streams_hold_nothing(void **state)
{
        enum { STREAMS = 40 };
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_STREAM };
        struct folio_object *objects[STREAMS];
        int fds[STREAMS][2];
        uint64_t n;

        for (unsigned i = 0; i < STREAMS; i++) {
                char name[16];

                snprintf(name, sizeof(name), "w/%u", i);
                assert_int_equal(pipe2(fds[i], O_CLOEXEC), 0);
                ASSERT_OK(folio_create(client, name, 0, &options, &objects[i]));
                assert_int_equal(write(fds[i][1], pattern, 1000), 1000);
                ASSERT_OK(folio_object_write_file(objects[i], 0, fds[i][0], 1000, &n));
                assert_int_equal(n, 1000);
        }
        ASSERT_OK(folio_put(client, "w", pattern, MIB, NULL));
        for (unsigned i = 0; i < STREAMS; i++) {
                Peer peer = { .fd = fds[i][1], .n_bytes = 3000 };
                pthread_t thread;

                assert_int_equal(pthread_create(&thread, NULL, write_later, &peer), 0);
                ASSERT_OK(folio_object_write_file(objects[i], 1000, fds[i][0], 3000, &n));
                assert_int_equal(n, 3000);
                assert_int_equal(pthread_join(thread, NULL), 0);
                ASSERT_OK(folio_object_seal(objects[i]));
                assert_memory_equal((const uint8_t *)folio_object_data(objects[i]) + 1000, pattern, 3000);
                ASSERT_OK(folio_object_release(objects[i]));
                (void)close(fds[i][0]);
                (void)close(fds[i][1]);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
        static const uint64_t beyond[][2] = {
                { 0, 3 * MIB + 1 }, { 3 * MIB, 1 },    { 1, 3 * MIB },
                { 1, UINT64_MAX },  { UINT64_MAX, 1 }, { UINT64_MAX, UINT64_MAX },
        };
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object, *stream;
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_STREAM };
        int file = new_file(3 * MIB), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
        int directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        uint64_t n = 99;

        ASSERT_OK(folio_create(client, "o", 3 * MIB, NULL, &object));
        for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++) {
                assert_int_equal(folio_object_write_file(object, beyond[i][0], file, beyond[i][1], &n), FOLIO_E_RANGE);
                assert_int_equal(folio_object_read_file(object, beyond[i][0], null, beyond[i][1]), FOLIO_E_RANGE);
        }
        assert_int_equal(folio_object_write_file(object, 0, -1, 1, &n), FOLIO_E_INVALID);
        assert_int_equal(folio_object_write_file(object, 0, file, 1, NULL), FOLIO_E_INVALID);
        assert_int_equal(folio_object_write_file(object, 0, null, 1, &n), FOLIO_E_INVALID);
        assert_int_equal(folio_object_write_file(object, 0, directory, 1, &n), FOLIO_E_IO);
        assert_int_equal(folio_object_read_file(object, 0, -1, 1), FOLIO_E_INVALID);
        assert_int_equal(n, 99);
        assert_int_equal(lseek(file, 0, SEEK_CUR), 0);
        ASSERT_OK(folio_object_write_file(object, 3 * MIB, file, 0, &n));
        assert_int_equal(n, 0);
        ASSERT_OK(folio_object_read_file(object, 3 * MIB, null, 0));
        ASSERT_OK(folio_object_write_file(object, 0, file, 3 * MIB, &n));
        ASSERT_OK(folio_object_seal(object));
        assert_int_equal(folio_object_write_file(object, 0, file, 1, &n), FOLIO_E_STATE);
        assert_int_equal(folio_object_read_file(object, 0, full, 1), FOLIO_E_IO);
        assert_non_null(strstr(folio_strerror_full(), "No space left"));
        assert_int_equal(folio_object_read_file(object, 0, directory, 1), FOLIO_E_INVALID);
        ASSERT_OK(folio_object_read_file(object, 0, null, 3 * MIB));
        ASSERT_OK(folio_object_release(object));

        /* A source that fails leaves a stream that goes on. */
        ASSERT_OK(folio_create(client, "s", 0, &options, &stream));
        assert_int_equal(folio_object_write_file(stream, 1, file, 1, &n), FOLIO_E_RANGE);
        assert_int_equal(folio_object_write_file(stream, UINT64_MAX, file, UINT64_MAX, &n), FOLIO_E_RANGE);
        assert_int_equal(folio_object_write_file(stream, 0, directory, 1, &n), FOLIO_E_IO);
        assert_int_equal(folio_object_read_file(stream, 0, null, 0), FOLIO_E_INVALID);
        assert_int_equal(lseek(file, 0, SEEK_SET), 0);
        ASSERT_OK(folio_object_write_file(stream, 0, file, UINT64_MAX, &n));
        assert_int_equal(n, 3 * MIB);
        /* One that does not fit is broken. */
        while (folio_object_write_file(stream, folio_object_size(stream), file, UINT64_MAX, &n) == 0 &&
               folio_object_size(stream) < 512 * MIB)
                assert_int_equal(lseek(file, 0, SEEK_SET), 0);
        assert_int_equal(folio_object_write_file(stream, folio_object_size(stream), file, 1, &n), FOLIO_E_STATE);
        ASSERT_OK(folio_object_abort(stream));
        assert_int_equal(folio_object_write_file(stream, 0, file, 1, &n), FOLIO_E_INVALID);
        (void)close(file);
        (void)close(null);
        (void)close(full);
        (void)close(directory);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* Whoever reads may go away: an error, of a socket without a signal. */
static void test_reader_that_goes_away(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        void (*before)(int) = signal(SIGPIPE, SIG_DFL);

        for (unsigned i = 0; i < 8; i++) {
                bool is_socket = i & 1, is_large = i & 2;
                int fds[2];

                ASSERT_OK(folio_put(client, "g", pattern, is_large ? 3 * MIB : 1000, NULL));
                ASSERT_OK(folio_get(client, "g", i & 4 ? FOLIO_GET_UNMAPPED : 0, 0, &object));
                if (is_socket)
                        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
                else
                        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
                (void)close(fds[0]);
                (void)signal(SIGPIPE, is_socket ? SIG_DFL : SIG_IGN);
                assert_int_equal(folio_object_read_file(object, 0, fds[1], 1000), FOLIO_E_IO);
                (void)close(fds[1]);
                ASSERT_OK(folio_object_release(object));
                ASSERT_OK(folio_delete(client, "g", 0));
        }
        (void)signal(SIGPIPE, before);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* No descriptor and no mapping adds up. */
static void test_leaves_nothing_open(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        int file = new_file(2 * MIB), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        unsigned n_fds = 0;
        uint64_t n;

        for (unsigned i = 0; i < 20; i++) {
                ASSERT_OK(folio_create(client, "l", 2 * MIB, NULL, &object));
                assert_int_equal(lseek(file, 0, SEEK_SET), 0);
                ASSERT_OK(folio_object_write_file(object, 0, file, 2 * MIB, &n));
                ASSERT_OK(folio_object_seal(object));
                ASSERT_OK(folio_object_read_file(object, 0, null, 2 * MIB));
                ASSERT_OK(folio_object_release(object));
                ASSERT_OK(folio_delete(client, "l", 0));
                if (i == 0)
                        n_fds = harness_count_own_fds();
                assert_int_equal(harness_count_own_fds(), n_fds);
        }
        (void)close(file);
        (void)close(null);
        folio_client_unref(client);
        foliod_stop(foliod);
}

#define FILE_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                FILE_TEST(test_files),
                FILE_TEST(test_short_files),
                FILE_TEST(test_pipes),
                FILE_TEST(test_waiting_streams_hold_nothing),
                FILE_TEST(test_refusals),
                FILE_TEST(test_reader_that_goes_away),
                FILE_TEST(test_leaves_nothing_open),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
