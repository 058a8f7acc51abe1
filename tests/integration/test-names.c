/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, of objects and of sockets: what is no name is refused, what is not there is said to be not there, what
 * somebody else has put at our place is neither used nor removed, and of many daemons at one place one wins.
 */
#include "tests/integration/alive.h"
#include "tests/integration/program.h"
#include "tests/integration/raw.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* Everything a child writes to stderr from here on goes where the parent counts it. */
static void count_stderr(Child *child)
{
        CHECK(dup2(*(int *)child->userdata, STDERR_FILENO) == STDERR_FILENO);
}

static void put_and_wait(Child *child)
{
        struct folio_client *client;

        count_stderr(child);
        client = child_connect(child);
        CHECK_OK(folio_put(client, "documented", "hello", 5, NULL));
        child_say(child, 1);
        (void)child_hear(child);
        folio_client_unref(client);
}

static void get_and_wait(Child *child)
{
        struct folio_client *client;
        struct folio_object *object;

        count_stderr(child);
        client = child_connect(child);
        CHECK_OK(folio_get(client, "documented", 0, 10000, &object));
        CHECK(memcmp(folio_object_data(object), "hello", 5) == 0);
        child_say(child, 1);
        (void)child_hear(child);
        CHECK_OK(folio_object_release(object));
        folio_client_unref(client);
}

/*
 * D02: a correct program hears nothing, whoever ends first; a name that is not there is so once, or not at all if
 * asked.
 */
static void test_d02_no_noise(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        int ends[2];
        char noise[512];

        (void)state;
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        for (unsigned order = 0; order < 4; order++) {
                Child *writer = child_start(foliod, put_and_wait, &ends[1]), *reader;

                assert_int_equal(child_hear(writer), 1);
                reader = child_start(foliod, get_and_wait, &ends[1]);
                assert_int_equal(child_hear(reader), 1);
                if (order & 1)
                        ASSERT_OK(folio_delete(client, "documented", 0));
                child_say(order & 2 ? writer : reader, 1);
                child_finish(order & 2 ? writer : reader);
                child_say(order & 2 ? reader : writer, 1);
                child_finish(order & 2 ? reader : writer);
                if (!(order & 1))
                        ASSERT_OK(folio_delete(client, "documented", 0));
                assert_int_equal(folio_delete(client, "documented", 0), FOLIO_E_DELETED);
                ASSERT_OK(folio_delete(client, "documented", FOLIO_IF_EXISTS));
        }
        assert_int_equal(folio_delete(client, "never there", 0), FOLIO_E_NOT_FOUND);
        ASSERT_OK(folio_delete(client, "never there", FOLIO_IF_EXISTS));
        assert_int_equal(read(ends[0], noise, sizeof(noise)), -1);
        assert_int_equal(errno, EAGAIN);
        close(ends[0]);
        close(ends[1]);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static uint64_t now_ms(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* D19: a time that has passed is an error, with no handle; in a batch, of the items that it is about. */
static void test_d19_timeout_is_no_success(void **state)
{
        static const int timeouts[] = { 1, 20, 400 };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object = (struct folio_object *)(uintptr_t)1;
        struct folio_get_item items[5];
        char byte;

        (void)state;
        assert_int_equal(folio_get(client, "missing", 0, 0, &object), FOLIO_E_NOT_FOUND);
        assert_int_equal(folio_read(client, "missing", 0, &byte, 1), FOLIO_E_NOT_FOUND);
        for (size_t i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
                uint64_t begun_ms = now_ms();

                assert_int_equal(folio_get(client, "missing", 0, timeouts[i], &object), FOLIO_E_TIMEOUT);
                /* Never too early; how late is the machine's affair. */
                assert_true(now_ms() + 1 >= begun_ms + (uint64_t)timeouts[i]);
        }
        /* Written only on success. */
        assert_ptr_equal(object, (void *)(uintptr_t)1);
        for (unsigned is_waiting = 0; is_waiting < 2; is_waiting++) {
                static const char *const names[] = { "there 0", "missing 0", "there 1", "missing 1", "there 2" };

                for (unsigned i = 0; i < 5; i++) {
                        items[i] = (struct folio_get_item){ .name = names[i], .error = 12345 };
                        if (i % 2 == 0)
                                ASSERT_OK(folio_put(client, names[i], names[i], 7, NULL));
                }
                assert_int_equal(folio_get_many(client, items, 5, 0, is_waiting ? 50 : 0), 2);
                for (unsigned i = 0; i < 5; i++) {
                        if (i % 2) {
                                assert_int_equal(items[i].error, is_waiting ? FOLIO_E_TIMEOUT : FOLIO_E_NOT_FOUND);
                                assert_null(items[i].object);
                                continue;
                        }
                        assert_int_equal(items[i].error, 0);
                        assert_memory_equal(folio_object_data(items[i].object), names[i], 7);
                        ASSERT_OK(folio_object_release(items[i].object));
                        ASSERT_OK(folio_delete(client, names[i], 0));
                }
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void try_names(struct folio_client *client)
{
        static char longest[300], too_long[300], with_namespace[400], long_namespace[100];
        const struct {
                const char *name;
                bool is_good;
        } rows[] = {
                { "", false },
                { ":", false },
                { ":key", false },
                { "default:", false },
                { "Upper:key", false },
                { "sla/sh:key", false },
                { "sp ace:key", false },
                { "n\xc3\xa4me:key", false },
                { long_namespace, false },
                { too_long, false },
                { longest, true },
                { with_namespace, true },
                { "/", true },
                { "..", true },
                { "../../etc/passwd", true },
                { "/dev/shm/x", true },
                { "default:a:b:c", true },
                { "default:\xc3\xbc\xe2\x82\xac", true },
                { "\xff\xfe\x01", true },
                { "with space\nand line", true },
                { "%s%n", true },
                { "*", true },
        };

        memset(longest, 'l', 255);
        memset(too_long, 'l', 256);
        memset(long_namespace, 'n', 64);
        memcpy(long_namespace + 64, ":key", 5);
        (void)snprintf(with_namespace, sizeof(with_namespace), "default:%.254sx", longest);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                int expected = rows[i].is_good ? 0 : FOLIO_E_INVALID;
                struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                struct folio_object *object;

                if (folio_put(client, rows[i].name, "v", 1, NULL) != expected)
                        fail_msg("name '%s': %s", rows[i].name, folio_strerror_full());
                assert_int_equal(folio_stat(client, rows[i].name, &stat), expected);
                if (!rows[i].is_good) {
                        assert_int_equal(folio_get(client, rows[i].name, 0, 0, &object), FOLIO_E_INVALID);
                        assert_int_equal(folio_delete(client, rows[i].name, 0), FOLIO_E_INVALID);
                        assert_int_equal(folio_create(client, rows[i].name, 1, NULL, &object), FOLIO_E_INVALID);
                        continue;
                }
                assert_int_equal(stat.size_bytes, 1);
                /* What stat calls it is a name of it. */
                assert_int_equal(folio_exists(client, stat.name), 1);
                ASSERT_OK(folio_delete(client, stat.name, 0));
        }
}

static size_t append_number(uint8_t *bytes, size_t n, uint64_t number)
{
        for (; number >= 128; number >>= 7)
                bytes[n++] = (uint8_t)(number | 128);
        bytes[n++] = (uint8_t)number;
        return n;
}

/* A PUT of one byte under a key that the codec would not let through. */
static size_t write_put(uint8_t *bytes, uint32_t id, const char *key, size_t n_key)
{
        size_t n_item = 1 + (n_key < 128 ? 1 : 2) + n_key + 2, n = 0;

        bytes[n++] = 0x08; /* id */
        n = append_number(bytes, n, 77);
        bytes[n++] = 0x10; /* verb */
        n = append_number(bytes, n, VERB_PUT);
        bytes[n++] = 0x18; /* namespace_id */
        n = append_number(bytes, n, id);
        bytes[n++] = 0x22; /* an item: */
        n = append_number(bytes, n, n_item);
        bytes[n++] = 0x0a; /* key */
        n = append_number(bytes, n, n_key);
        memcpy(bytes + n, key, n_key);
        n += n_key;
        bytes[n++] = 0x20; /* size_bytes */
        bytes[n++] = 1;
        return n;
}

static void try_keys_by_hand(const Foliod *foliod)
{
        static char too_long[300];
        const Key keys[] = {
                { "good", 4 }, { "", 0 }, { "a\0b", 3 }, { "\0", 1 }, { too_long, 256 }, { too_long, 300 }
        };
        ProtoItem good = { .key = raw_key("good") };

        memset(too_long, 'l', sizeof(too_long));
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
                Raw *raw = raw_open(foliod);
                uint32_t id = raw_namespace(raw, "default");
                uint8_t bytes[512];
                bool is_answered;

                assert_true(raw_send_bytes(raw, bytes, write_put(bytes, id, keys[i].bytes, keys[i].n_bytes), NULL, 0));
                is_answered = raw_receive(raw);
                if (i == 0) {
                        /* What is made by hand here is right where the key is. */
                        assert_true(is_answered && raw->reply.n_items == 1);
                        assert_int_equal(raw->reply.items[0].status, STATUS_OK);
                        assert_int_equal(raw_item(raw, VERB_DELETE, id, good), STATUS_OK);
                } else if (is_answered && raw->reply.status == STATUS_OK) {
                        assert_int_equal(raw->reply.items[0].status, STATUS_INVALID);
                }
                raw_close(raw);
        }
}

/*
 * D22: names that somebody can guess. The library does not follow one into a directory that somebody else could have
 * made; a second daemon does not share a place with the first; no environment is needed.
 */
static void test_d22_guessable_names(void **state)
{
        char directory[64], path[128], output[2048];
        struct folio_open_options options = { .struct_bytes = sizeof(options), .timeout_ms = 5000 };
        struct folio_client *client, *lured = NULL;
        Foliod *foliod;
        Alive before;

        (void)state;
        program_set_world("bare");
        foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        before = alive_begin(foliod);
        client = foliod_connect(foliod);
        try_names(client);
        try_keys_by_hand(foliod);
        assert_int_not_equal(
                program_run_foliod(NULL, foliod->socket_path, output, sizeof(output), "--budget", "64M", NULL), 0);
        assert_non_null(strstr(output, foliod->socket_path));

        /*
         * Another user has made the directory that our socket should be in, and a link in it to something that
         * answers.
         */
        if (getuid() == 0 && access("/run/folio/folio.sock", F_OK) != 0) {
                const char *runtime = getenv("XDG_RUNTIME_DIR");
                char *old = runtime ? strdup(runtime) : NULL;

                program_make_directory(directory);
                (void)snprintf(path, sizeof(path), "%s/folio", directory);
                assert_int_equal(mkdir(path, 0777), 0);
                assert_int_equal(chown(path, 65534, 65534), 0);
                (void)snprintf(path, sizeof(path), "%s/folio/folio.sock", directory);
                assert_int_equal(symlink(foliod->socket_path, path), 0);
                assert_int_equal(setenv("XDG_RUNTIME_DIR", directory, 1), 0);
                assert_int_equal(folio_client_open(&options, &lured), FOLIO_E_DAEMON_GONE);
                assert_null(lured);
                if (old)
                        (void)setenv("XDG_RUNTIME_DIR", old, 1);
                else
                        (void)unsetenv("XDG_RUNTIME_DIR");
                free(old);
                (void)unlink(path);
                program_remove_directory(directory);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void refuse_place(const char *path, mode_t kind)
{
        char output[2048];
        struct stat file;

        assert_int_not_equal(program_run_foliod(NULL, path, output, sizeof(output), "--budget", "64M", NULL), 0);
        if (!strstr(output, path))
                fail_msg("nothing is said of %s: %s", path, output);
        /* Not ours, so it is still there. */
        assert_int_equal(lstat(path, &file), 0);
        assert_int_equal(file.st_mode & S_IFMT, kind);
}

/* Who listens there, as the kernel says. */
static pid_t pid_behind(const char *path)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct ucred cred = { 0 };
        socklen_t n = sizeof(cred);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0 && strlen(path) < sizeof(address.sun_path));
        (void)strcpy(address.sun_path, path);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n), 0);
        close(fd);
        return cred.pid;
}

enum { N_STARTERS = 20 };

static void start_many_at_once(void)
{
        char directory[64], path[128];
        struct folio_client *client;
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = path, .timeout_ms = 20000 };
        pid_t pids[N_STARTERS];
        unsigned n_running = N_STARTERS;
        int status;

        program_make_directory(directory);
        (void)snprintf(path, sizeof(path), "%s/s", directory);
        fflush(NULL);
        for (unsigned i = 0; i < N_STARTERS; i++) {
                pids[i] = fork();
                assert_true(pids[i] >= 0);
                if (pids[i] == 0) {
                        int null = open("/dev/null", O_WRONLY);

                        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                        (void)dup2(null, STDERR_FILENO);
                        execlp(getenv("FOLIOD"), "foliod", "--socket", path, "--budget", "64M", "--keeper", "none",
                               ALIVE_NO_POOL, (char *)NULL);
                        _exit(127);
                }
        }
        /* All but one end by themselves, and say that they did not start. */
        for (unsigned rounds = 0; n_running > 1 && rounds < 10000; rounds++) {
                for (unsigned i = 0; i < N_STARTERS; i++)
                        if (pids[i] && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
                                pids[i] = 0;
                                n_running--;
                                if (!WIFEXITED(status) || WEXITSTATUS(status) == 0)
                                        fail_msg("a starter ended with wait status 0x%x", (unsigned)status);
                        }
                harness_pause();
        }
        assert_int_equal(n_running, 1);
        for (unsigned i = 0; i < 5000 && folio_client_open(&options, &client) != 0; i++)
                harness_pause();
        for (unsigned i = 0; i < N_STARTERS; i++)
                if (pids[i]) {
                        assert_int_equal(pid_behind(path), pids[i]);
                        folio_client_unref(client);
                        assert_int_equal(kill(pids[i], SIGTERM), 0);
                        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
                        assert_int_equal(status, 0);
                }
        /* It has cleared its place. */
        assert_int_not_equal(access(path, F_OK), 0);
        program_remove_directory(directory);
}

/* E13: a socket left by the dead is taken over; one of the living, or of who may be living, is not; a file never is. */
static void test_e13_stale_socket(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        char directory[64], path[128], target[128], output[2048];
        struct folio_client *client;
        Alive before;
        int fd;

        (void)state;
        foliod_kill(foliod);
        assert_int_equal(access(foliod->socket_path, F_OK), 0);
        foliod_start_again(foliod);
        before = alive_begin(foliod);
        client = foliod_connect(foliod);
        ASSERT_OK(folio_put(client, "kept", "x", 1, NULL));

        /* Busy is not dead. */
        assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
        assert_int_not_equal(
                program_run_foliod(NULL, foliod->socket_path, output, sizeof(output), "--budget", "64M", NULL), 0);
        assert_non_null(strstr(output, foliod->socket_path));
        assert_int_equal(kill(foliod->pid, SIGCONT), 0);
        assert_int_equal(folio_exists(client, "kept"), 1);
        ASSERT_OK(folio_delete(client, "kept", 0));
        folio_client_unref(client);
        alive_check(&before);

        program_make_directory(directory);
        (void)snprintf(path, sizeof(path), "%s/place", directory);
        (void)snprintf(target, sizeof(target), "%s/target", directory);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, "precious", 8), 8);
        close(fd);
        refuse_place(path, S_IFREG);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        refuse_place(path, S_IFDIR);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(symlink(target, path), 0);
        refuse_place(path, S_IFLNK);
        assert_int_not_equal(access(target, F_OK), 0);
        assert_int_equal(unlink(path), 0);
        /* A link to a socket that answers is not ours to take either. */
        assert_int_equal(symlink(foliod->socket_path, path), 0);
        refuse_place(path, S_IFLNK);
        assert_int_equal(unlink(path), 0);
        program_remove_directory(directory);
        foliod_stop(foliod);
        start_many_at_once();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_d02_no_noise),
                INTEGRATION_TEST(test_d19_timeout_is_no_success),
                INTEGRATION_TEST(test_d22_guessable_names),
                INTEGRATION_TEST(test_e13_stale_socket),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
