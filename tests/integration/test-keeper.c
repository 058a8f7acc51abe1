/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foliod with the process that keeps for the next one: it is killed and started again, the keeper is killed, and
 * several are started on one socket.
 */
#include "harness.h"
#include "tests/integration/program.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/macro.h"

#define OPTIONS "--user", "--budget", "256M", "--objects-max", "4096", "--pool", "0"
#define N_OBJECTS 20

static const char *keeper_kind(struct folio_client *client)
{
        static char kind[32];
        struct folio_status facts[160];
        int n;

        memset(facts, 0, sizeof(facts));
        facts[0].struct_bytes = sizeof(facts[0]);
        n = folio_status_get(client, facts, ARRAY_SIZE(facts));
        assert_true(n > 0);
        for (int i = 0; i < n && i < (int)ARRAY_SIZE(facts); i++)
                if (strcmp(facts[i].name, "keeper.kind") == 0)
                        snprintf(kind, sizeof(kind), "%s", facts[i].text);
        return kind;
}

static size_t size_of(unsigned number)
{
        return number % 4 == 0 ? (size_t)(3 * MIB) + number : 100 + number * 1000;
}

static void put_all(struct folio_client *client)
{
        for (unsigned i = 0; i < N_OBJECTS; i++) {
                size_t n_bytes = size_of(i);
                uint8_t *bytes = malloc(n_bytes);
                char name[32];

                assert_non_null(bytes);
                harness_fill(bytes, n_bytes, i);
                snprintf(name, sizeof(name), "object-%u", i);
                ASSERT_OK(folio_put(client, name, bytes, n_bytes, NULL));
                free(bytes);
        }
}

static void check_all(struct folio_client *client)
{
        for (unsigned i = 0; i < N_OBJECTS; i++) {
                struct folio_object *object;
                char name[32];

                snprintf(name, sizeof(name), "object-%u", i);
                ASSERT_OK(folio_get(client, name, 0, 0, &object));
                assert_int_equal(folio_object_size(object), size_of(i));
                assert_true(harness_is_filled(folio_object_data(object), size_of(i), i, 0));
                ASSERT_OK(folio_object_release(object));
        }
}

static void test_objects_outlive_it(void **state)
{
        Foliod *foliod = foliod_start_kept(OPTIONS, NULL);
        struct folio_client *client = foliod_connect(foliod);
        pid_t before = foliod_serving_pid(foliod), now;

        assert_string_equal(keeper_kind(client), "process");
        assert_int_equal(foliod_fact(client, "daemon.pid"), before);
        assert_int_not_equal(before, foliod->pid);
        put_all(client);
        folio_client_unref(client);
        for (unsigned i = 0; i < 20; i++) {
                assert_int_equal(kill(before, SIGKILL), 0);
                AWAIT((now = foliod_serving_pid(foliod)) != before);
                before = now;
                /* It queues at the socket, which has been there all the time. */
                client = foliod_connect(foliod);
                check_all(client);
                assert_int_equal(foliod_fact(client, "keeper.failed"), 0);
                folio_client_unref(client);
        }
        foliod_stop(foliod);
}

static void test_started_again_in_order(void **state)
{
        Foliod *foliod = foliod_start_kept(OPTIONS, NULL);
        struct folio_client *client = foliod_connect(foliod);
        pid_t before = foliod_serving_pid(foliod), now;

        put_all(client);
        folio_client_unref(client);
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(kill(foliod->pid, SIGUSR1), 0);
                AWAIT((now = foliod_serving_pid(foliod)) != before);
                before = now;
                client = foliod_connect(foliod);
                check_all(client);
                folio_client_unref(client);
        }
        foliod_stop(foliod);
}

/* The inode of the socket's file is the same: nothing was bound again. */
static void test_socket_stays(void **state)
{
        Foliod *foliod = foliod_start_kept(OPTIONS, NULL);
        pid_t before = foliod_serving_pid(foliod);
        struct stat first, second;
        struct folio_client *client;

        assert_int_equal(stat(foliod->socket_path, &first), 0);
        assert_int_equal(kill(before, SIGKILL), 0);
        AWAIT(foliod_serving_pid(foliod) != before);
        client = foliod_connect(foliod);
        folio_client_unref(client);
        assert_int_equal(stat(foliod->socket_path, &second), 0);
        assert_int_equal(first.st_ino, second.st_ino);
        /* At its end it goes. */
        assert_int_equal(kill(foliod->pid, SIGTERM), 0);
        assert_int_equal(waitpid(foliod->pid, NULL, 0), foliod->pid);
        foliod->pid = 0;
        assert_int_equal(stat(foliod->socket_path, &second), -1);
        foliod_stop(foliod);
}

static void test_keeper_is_killed(void **state)
{
        Foliod *foliod = foliod_start_kept(OPTIONS, NULL);
        struct folio_client *client = foliod_connect(foliod);
        pid_t child = foliod_serving_pid(foliod);
        char output[4096], *check[] = { getenv("FOLIOCTL"), (char *)"--socket", (char *)(uintptr_t)foliod->socket_path,
                                        (char *)"check", NULL };

        put_all(client);
        assert_int_equal(kill(foliod->pid, SIGKILL), 0);
        assert_int_equal(waitpid(foliod->pid, NULL, 0), foliod->pid);
        foliod->pid = 0;
        AWAIT(strcmp(keeper_kind(client), "gone") == 0);
        check_all(client);
        ASSERT_OK(folio_put(client, "another", "x", 1, NULL));
        folio_client_unref(client);
        /* Who asks is told, and a restart that would end the objects is not made. */
        assert_int_equal(program_run(check, output, sizeof(output)), 1);
        assert_non_null(strstr(output, "nobody keeps the objects"));
        assert_int_equal(kill(child, SIGUSR1), 0);
        client = foliod_connect(foliod);
        check_all(client);
        assert_int_equal(foliod_fact(client, "daemon.pid"), child);
        folio_client_unref(client);
        assert_int_equal(kill(child, SIGTERM), 0);
        AWAIT(kill(child, 0) < 0 && errno == ESRCH);
        foliod_stop(foliod);
}

static void test_second_one_does_not_start(void **state)
{
        Foliod *foliod = foliod_start_kept(OPTIONS, NULL);
        struct folio_client *client;
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

                (void)dup2(null, STDERR_FILENO);
                execlp(getenv("FOLIOD"), "foliod", "--socket", foliod->socket_path, "--keeper", "process", OPTIONS,
                       (char *)NULL);
                _exit(127);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 3);
        client = foliod_connect(foliod);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_none(void **state)
{
        Foliod *foliod = foliod_start(OPTIONS, NULL);
        struct folio_client *client = foliod_connect(foliod);

        assert_string_equal(keeper_kind(client), "none");
        assert_int_equal(foliod_fact(client, "daemon.pid"), foliod->pid);
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_objects_outlive_it),
                INTEGRATION_TEST(test_started_again_in_order),
                INTEGRATION_TEST(test_socket_stays),
                INTEGRATION_TEST(test_keeper_is_killed),
                INTEGRATION_TEST(test_second_one_does_not_start),
                INTEGRATION_TEST(test_none),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
