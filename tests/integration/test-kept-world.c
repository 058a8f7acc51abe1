/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A foliod that is restarted in a world of others: who clean a tmpfs by hand (D09, D12), who have run it before under
 * another uid (D10), whose processes it cannot number (D16), and who see its socket through a mount of their own (E15).
 */
#include "tests/integration/alive.h"
#include "tests/integration/baseline.h"
#include "tests/integration/program.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum {
        LARGE_BYTES = 3 << 20,
        UID = 65534,
};

static const uint8_t *bytes_of(uint64_t seed)
{
        static uint8_t bytes[LARGE_BYTES];

        harness_fill(bytes, sizeof(bytes), seed);
        return bytes;
}

static void check_there(struct folio_client *client, const char *name, uint64_t seed)
{
        struct folio_object *object;

        ASSERT_OK(folio_get(client, name, 0, 0, &object));
        assert_int_equal(folio_object_size(object), LARGE_BYTES);
        assert_true(harness_is_filled(folio_object_data(object), LARGE_BYTES, seed, 0));
        ASSERT_OK(folio_object_release(object));
}

static unsigned count_files(const char *path)
{
        DIR *directory = opendir(path);
        unsigned n = 0;

        assert_non_null(directory);
        for (struct dirent *entry; (entry = readdir(directory));)
                n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
        closedir(directory);
        return n;
}

/* There is nothing in the tmpfs that could be removed, replaced or put in its place: its files have no names. */
static void test_d09_d12_tmpfs_cleaned_by_hand(void **state)
{
        char directory[] = "/dev/shm/folio-test-XXXXXX", link[64], fifo[64];
        struct folio_client *client;
        Foliod *foliod;

        (void)state;
        if (!mkdtemp(directory))
                skip();
        (void)snprintf(link, sizeof(link), "%s/link", directory);
        (void)snprintf(fifo, sizeof(fifo), "%s/fifo", directory);
        foliod = foliod_start_kept("--budget", "256M", ALIVE_NO_POOL, "--tmpfs-directory", directory, "--namespace",
                                   "named:backing=tmpfs,mode=0766", NULL);
        client = foliod_connect(foliod);
        ASSERT_OK(folio_put(client, "named:large", bytes_of(1), LARGE_BYTES, NULL));
        assert_int_equal(count_files(directory), 0);
        assert_int_equal(symlink("/etc/passwd", link), 0);
        assert_int_equal(mkfifo(fifo, 0666), 0);
        for (unsigned i = 0; i < 3; i++) {
                baseline_kill(foliod);
                check_there(client, "named:large", 1);
                ASSERT_OK(folio_put(client, "named:next", bytes_of(2 + i), LARGE_BYTES, NULL));
                check_there(client, "named:next", 2 + i);
                ASSERT_OK(folio_delete(client, "named:next", 0));
                assert_int_equal(count_files(directory), 2);
        }
        /* The directory itself goes too. */
        assert_int_equal(unlink(link) | unlink(fifo), 0);
        (void)rmdir(directory);
        check_there(client, "named:large", 1);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* In a child. */
static void start_as_another(Child *child)
{
        char output[2048] = "";
        int status;

        child_become(UID, UID);
        (void)unsetenv("HOME");
        (void)unsetenv("XDG_RUNTIME_DIR");
        (void)unsetenv("XDG_CONFIG_HOME");
        status = program_run_foliod(NULL, child->foliod->socket_path, output, sizeof(output), "--user", "--budget",
                                    "64M", "--keeper", "none", NULL);
        child_say(child, (uint64_t)(int64_t)status);
        child_say(child, strstr(output, child->foliod->socket_path) || strstr(output, child->foliod->directory));
        child_say(child, strstr(output, "uid 0") || strstr(output, "root"));
        fprintf(stderr, "# %s", output);
}

static void test_d10_run_as_root_before(void **state)
{
        char directory[64], path[128], output[2048];
        Foliod *foliod;
        Child *child;
        int status;

        (void)state;
        if (geteuid() != 0)
                skip();
        foliod = foliod_start_kept("--budget", "64M", ALIVE_NO_POOL, NULL);
        for (unsigned running = 1; running < 2; running--) {
                child = child_start(foliod, start_as_another, NULL);
                status = (int)(int64_t)child_hear(child);
                assert_int_not_equal(status, 0);
                if (status == 1 || status == 3) {
                        assert_true(child_hear(child));
                        assert_true(child_hear(child));
                } else {
                        print_message("# uid %u cannot run foliod here (%d)\n", (unsigned)UID, status);
                }
                child_finish(child);
                if (running)
                        foliod_kill(foliod);
        }
        foliod_stop(foliod);
        /* And the other way round. */
        program_make_directory(directory);
        assert_int_equal(chown(directory, UID, UID), 0);
        (void)snprintf(path, sizeof(path), "%s/s", directory);
        status = program_run_foliod(NULL, path, output, sizeof(output), "--budget", "64M", NULL);
        assert_int_not_equal(status, 0);
        assert_non_null(strstr(output, "uid 65534"));
        program_remove_directory(directory);
}

static pid_t child_of(pid_t pid)
{
        char path[64];
        FILE *file;
        int child = 0;

        (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
        file = fopen(path, "re");
        if (file && fscanf(file, "%d", &child) != 1)
                child = 0;
        if (file)
                fclose(file);
        return child;
}

static void hold_until_killed(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_create_options options = { .struct_bytes = sizeof(options), .lifetime = FOLIO_WITH_CREATOR };

        CHECK_OK(folio_put(client, "with its creator", "x", 1, &options));
        child_say(child, 1);
        for (;;)
                (void)pause();
}

/* Keeper and foliod are 1 and some small number in their namespace, each time; who is outside is 0 to them. */
static void test_d16_numbers_of_processes(void **state)
{
        struct folio_client *client;
        pid_t keeper, serving = 0, next = 0;
        Foliod *foliod;
        Child *other;

        (void)state;
        if (geteuid() != 0 || access("/proc/sys/vm/memfd_noexec", W_OK) != 0)
                skip();
        program_set_world("noexec=1");
        foliod = foliod_start_kept("--budget", "128M", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        client = foliod_connect(foliod);
        ASSERT_OK(folio_put(client, "large", bytes_of(7), LARGE_BYTES, NULL));
        keeper = foliod_serving_pid(foliod); /* of the launcher it is the child */
        for (unsigned i = 0; i < 3; i++) {
                other = child_start(foliod, hold_until_killed, NULL);
                assert_int_equal(child_hear(other), 1);
                AWAIT((serving = child_of(keeper)) > 0);
                /* Once it dies before, once after; nobody has a number for it. */
                if (i % 2)
                        child_kill(other);
                assert_int_equal(kill(serving, SIGKILL), 0);
                AWAIT((next = child_of(keeper)) > 0 && next != serving);
                check_there(client, "large", 7);
                if (i % 2 == 0) {
                        assert_int_equal(folio_exists(client, "with its creator"), 1);
                        child_kill(other);
                }
                /* Where the kernel has pidfds of peers; else after half a minute. */
                for (unsigned looks = 0; looks < 400 && folio_exists(client, "with its creator") == 1; looks++)
                        (void)usleep(100000);
                assert_int_equal(folio_exists(client, "with its creator"), 0);
                AWAIT(foliod_fact(client, "sessions.ghosts") == 0);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* In a child with a mount namespace of its own, which sees the directory of the socket elsewhere. */
static void look_from_elsewhere(Child *child)
{
        const char *place = child->userdata;
        struct folio_open_options options = { .struct_bytes = sizeof(options), .timeout_ms = 20000 };
        struct folio_client *client;
        struct folio_object *object;
        char path[128];
        int r;

        CHECK(unshare(CLONE_NEWNS) == 0);
        CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        CHECK(mount(child->foliod->directory, place, NULL, MS_BIND, NULL) == 0);
        (void)snprintf(path, sizeof(path), "%s/s", place);
        options.address = path;
        CHECK_OK(folio_client_open(&options, &client));
        child_say(child, 1);
        for (unsigned i = 0; i < 3; i++) {
                (void)child_hear(child);
                CHECK_OK(folio_get(client, "large", 0, 0, &object));
                CHECK(harness_is_filled(folio_object_data(object), LARGE_BYTES, 5, 0));
                CHECK_OK(folio_object_release(object));
                CHECK_OK(folio_put(client, "small", "x", 1, NULL));
                CHECK_OK(folio_delete(client, "small", 0));
                child_say(child, 1);
        }
        /* Now there is none any more, and no socket. */
        (void)child_hear(child);
        r = folio_put(client, "small", "x", 1, NULL);
        if (r == 0)
                r = folio_flush(client);
        CHECK(r == FOLIO_E_DAEMON_GONE);
        CHECK(strstr(folio_strerror_full(), "vanished"));
        folio_client_unref(client);
}

static void test_e15_through_a_mount(void **state)
{
        struct folio_client *client;
        char place[64];
        Foliod *foliod;
        Child *child;

        (void)state;
        if (geteuid() != 0)
                skip();
        program_make_directory(place);
        foliod = foliod_start_kept("--budget", "128M", ALIVE_NO_POOL, NULL);
        client = foliod_connect(foliod);
        ASSERT_OK(folio_put(client, "large", bytes_of(5), LARGE_BYTES, NULL));
        folio_client_unref(client);
        child = child_start(foliod, look_from_elsewhere, place);
        assert_int_equal(child_hear(child), 1);
        for (unsigned i = 0; i < 3; i++) {
                baseline_kill(foliod);
                child_say(child, 1);
                assert_int_equal(child_hear(child), 1);
        }
        assert_int_equal(kill(foliod->pid, SIGTERM), 0);
        assert_int_equal(waitpid(foliod->pid, NULL, 0), foliod->pid);
        foliod->pid = 0;
        assert_int_not_equal(access(foliod->socket_path, F_OK), 0);
        child_say(child, 1);
        child_finish(child);
        foliod_stop(foliod);
        program_remove_directory(place);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_d09_d12_tmpfs_cleaned_by_hand),
                INTEGRATION_TEST(test_d10_run_as_root_before),
                INTEGRATION_TEST(test_d16_numbers_of_processes),
                INTEGRATION_TEST(test_e15_through_a_mount),
        };

        return cmocka_run_group_tests_name("kept-world", tests, NULL, NULL);
}
