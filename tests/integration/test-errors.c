/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each way in which the world says no: a number that no other of them has, and a sentence of folio_strerror_full() that
 * says what was asked and what stood in the way, with the numbers there are. Evicted is not among them, as nothing is
 * evicted yet; what a client makes of it is for its unit tests.
 */
#include "tests/integration/harness.h"

#include <sys/socket.h>
#include <sys/un.h>

#define MIB (UINT64_C(1) << 20)

#define SAYS(call, error, text)                                                                                        \
        do {                                                                                                           \
                assert_int_equal((call), (error));                                                                     \
                assert_string_equal(folio_strerror_full(), (text));                                                    \
        } while (0)

static void test_not_there(void **state)
{
        struct folio_create_options brief = { .struct_bytes = sizeof(brief), .lifetime = FOLIO_UNTIL_TIME };
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        struct timespec now;

        (void)state;
        SAYS(folio_get(client, "never", 0, 0, &object), FOLIO_E_NOT_FOUND, "there is no object never");
        SAYS(folio_get(client, "none:x", 0, 0, &object), FOLIO_E_NOT_FOUND, "none:x: there is no namespace none");
        ASSERT_OK(folio_put(client, "gone", "x", 1, NULL));
        ASSERT_OK(folio_delete(client, "gone", 0));
        SAYS(folio_get(client, "gone", 0, 0, &object), FOLIO_E_DELETED, "gone was deleted");
        assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
        brief.expires_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + 50000000;
        ASSERT_OK(folio_put(client, "brief", "x", 1, &brief));
        AWAIT(folio_get(client, "brief", FOLIO_GET_UNMAPPED, 0, &object) != 0 || folio_object_release(object) != 0);
        SAYS(folio_get(client, "brief", 0, 0, &object), FOLIO_E_EXPIRED, "brief has expired");
        SAYS(folio_get(client, "never", 0, 7, &object), FOLIO_E_TIMEOUT, "never is not there, and did not come within 7 ms");
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void write_and_wait(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;

        CHECK_OK(folio_create(client, "half", 2 * MIB, NULL, &object));
        child_say(child, 1);
        (void)child_hear(child);
}

static void test_not_yet(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        Child *child = child_start(foliod, write_and_wait, NULL);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object;

        (void)state;
        assert_int_equal(child_hear(child), 1);
        SAYS(folio_get(client, "half", 0, 0, &object), FOLIO_E_WRITING, "half is still being written: get it with a timeout, or later");
        SAYS(folio_get(client, "half", 0, 7, &object), FOLIO_E_TIMEOUT, "half is there, but was not sealed within 7 ms");
        SAYS(folio_delete(client, "half", 0), FOLIO_E_WRITING, "half: another connection is still writing the object");
        SAYS(folio_put(client, "half", "x", 1, NULL), FOLIO_E_EXISTS,
             "half: the name is taken in namespace default by an object that is still being written");
        child_kill(child);
        AWAIT(folio_stat(client, "half", &stat) != 0);
        SAYS(folio_get(client, "half", 0, 0, &object), FOLIO_E_WRITER_DIED, "the writer of half ended before it sealed it");
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_no_room(void **state)
{
        struct folio_namespace narrow = { .struct_bytes = sizeof(narrow),
                                          .fields = FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS,
                                          .quota_bytes = MIB,
                                          .quota_objects = 1,
                                          .name = "narrow" };
        Foliod *foliod = foliod_start("--budget", "64M", "--pool", "0", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object, *other;

        (void)state;
        SAYS(folio_create(client, "a", 64 * MIB + 1, NULL, &object), FOLIO_E_TOO_LARGE,
             "a: 67108865 bytes are more than the store's budget of 67108864 bytes; raise the budget, or store less");
        SAYS(folio_create(client, "a", UINT64_MAX, NULL, &object), FOLIO_E_TOO_LARGE,
             "18446744073709551615 bytes: no object is larger than 70368744177664");
        ASSERT_OK(folio_create(client, "a", 40 * MIB, NULL, &object));
        assert_int_equal(folio_create(client, "b", 40 * MIB, NULL, &other), FOLIO_E_FULL);
        assert_non_null(strstr(folio_strerror_full(), "b: no room for 41943040 bytes: of the store's budget of 67108864 bytes, "));
        assert_non_null(strstr(folio_strerror_full(), "(41943040 by 1 objects being written, "));
        ASSERT_OK(folio_object_release(object));

        ASSERT_OK(folio_namespace_add(client, &narrow));
        SAYS(folio_create(client, "narrow:a", MIB + 1, NULL, &object), FOLIO_E_TOO_LARGE,
             "narrow:a: 1048577 bytes are more than the quota of namespace narrow, 1048576 bytes; raise that");
        ASSERT_OK(folio_put(client, "narrow:a", "x", 1, NULL));
        SAYS(folio_put(client, "narrow:b", "x", 1, NULL), FOLIO_E_LIMIT,
             "narrow:b: namespace narrow has 1 objects, deleted ones that are held too, and its quota is 1; delete some, or "
             "raise its quota-objects");
        narrow.fields = FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS;
        narrow.quota_objects = 0;
        ASSERT_OK(folio_namespace_set(client, &narrow));
        SAYS(folio_create(client, "narrow:b", MIB, NULL, &object), FOLIO_E_LIMIT,
             "narrow:b: no room for 1048576 bytes in namespace narrow: 64 bytes of its quota of 1048576 are in use; delete "
             "something, or raise its quota");
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_no_connection_more(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", "--clients-max", "2", NULL);
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = foliod->socket_path };
        struct folio_client *client = foliod_connect(foliod), *second = foliod_connect(foliod), *third;

        (void)state;
        assert_int_equal(folio_client_open(&options, &third), FOLIO_E_LIMIT);
        /* Root is not held to clients-per-uid-max, and everybody else is, first. */
        assert_string_equal(folio_strerror_full(), geteuid() == 0 ? "clients-max: 2 clients are connected" :
                                                   "clients-per-uid-max: 2 clients of this uid are connected");
        folio_client_unref(second);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_not_so(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        char byte;

        (void)state;
        ASSERT_OK(folio_put(client, "fixed", "x", 1, NULL));
        SAYS(folio_get(client, "fixed", FOLIO_GET_WRITABLE, 0, &object), FOLIO_E_STATE,
             "default:fixed is not mutable: nobody can write it");
        SAYS(folio_truncate(client, "fixed", 0), FOLIO_E_STATE, "fixed: the object is sealed: its size cannot change");
        SAYS(folio_read(client, "fixed", UINT64_MAX, &byte, 1), FOLIO_E_RANGE,
             "1 bytes at offset 18446744073709551615 are not all inside the object, which has 1");
        SAYS(folio_put(client, "", "x", 1, NULL), FOLIO_E_INVALID, "the name is empty: it takes `key` or `namespace:key`");
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void be_refused(Child *child)
{
        struct folio_client *client;
        struct folio_object *object;

        child_become(65534, 65534);
        client = child_connect(child);
        CHECK(folio_get(client, "x", 0, 0, &object) == FOLIO_E_ACCESS);
        CHECK(strstr(folio_strerror_full(), "may not read in namespace default"));
        CHECK(folio_put(client, "y", "y", 1, NULL) == FOLIO_E_ACCESS);
        CHECK(strstr(folio_strerror_full(), "namespace default"));
        folio_client_unref(client);
}

static void test_not_allowed(void **state)
{
        Foliod *foliod;

        (void)state;
        if (geteuid() != 0) {
                fprintf(stderr, "# only root can try as another user\n");
                skip();
        }
        foliod = foliod_start("--budget", "64M", "--socket-mode", "0666", "--namespace", "default:mode=0700", NULL);
        child_finish(child_start(foliod, be_refused, NULL));
        foliod_stop(foliod);
}

/* A program that is no foliod: takes one connection, and says @answer, or nothing. */
static void be_another(Child *child)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        const char *answer = child->userdata;
        int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), peer;
        char hello[1024];

        (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/other", child->foliod->directory);
        (void)unlink(address.sun_path);
        CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(listener, 1) == 0);
        child_say(child, 1);
        peer = accept(listener, NULL, NULL);
        CHECK(peer >= 0 && recv(peer, hello, sizeof(hello), 0) > 0);
        if (answer)
                CHECK(send(peer, answer, strlen(answer), MSG_NOSIGNAL) > 0);
        (void)child_hear(child);
}

static void test_another_program(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        static char garbage[] = "garbage";
        char path[128], text[400];
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = path, .timeout_ms = 20000 };
        struct folio_client *client;
        Child *child;

        (void)state;
        (void)snprintf(path, sizeof(path), "%s/other", foliod->directory);
        (void)snprintf(text, sizeof(text), "no foliod listens at %s; start foliod there, or name another socket", path);
        SAYS(folio_client_open(&options, &client), FOLIO_E_DAEMON_GONE, text);
        child = child_start(foliod, be_another, garbage);
        assert_int_equal(child_hear(child), 1);
        (void)snprintf(text, sizeof(text), "what came from %s is none of foliod's messages, or breaks their rules: another "
                                           "program may be listening there, or a foliod of another version", path);
        SAYS(folio_client_open(&options, &client), FOLIO_E_PROTOCOL, text);
        child_say(child, 1);
        child_finish(child);
        child = child_start(foliod, be_another, NULL);
        assert_int_equal(child_hear(child), 1);
        options.timeout_ms = 30;
        (void)snprintf(text, sizeof(text), "foliod at %s has not answered within 30 ms", path);
        SAYS(folio_client_open(&options, &client), FOLIO_E_TIMEOUT, text);
        child_say(child, 1);
        child_finish(child);
        foliod_stop(foliod);
}

static void gone(bool has_vanished)
{
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        char text[300];

        foliod_kill(foliod);
        /* It has left its socket behind, where nobody listens; or somebody has cleaned up. */
        if (has_vanished)
                assert_int_equal(unlink(foliod->socket_path), 0);
        (void)snprintf(text, sizeof(text),
                       has_vanished ? "foliod ended, its socket vanished (%s), and none has come back within 500 ms; "
                                      "start it there again" :
                                      "foliod at %s ended and none has answered for 500 ms; start it there again",
                       foliod->socket_path);
        SAYS(folio_put(client, "x", "x", 1, NULL), FOLIO_E_DAEMON_GONE, text);
        SAYS(folio_put(client, "x", "x", 1, NULL), FOLIO_E_DAEMON_GONE, text);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_daemon_gone(void **state)
{
        (void)state;
        gone(false);
}

static void test_socket_gone(void **state)
{
        (void)state;
        gone(true);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_not_there),      INTEGRATION_TEST(test_not_yet),
                INTEGRATION_TEST(test_no_room),        INTEGRATION_TEST(test_no_connection_more),
                INTEGRATION_TEST(test_not_so),         INTEGRATION_TEST(test_not_allowed),
                INTEGRATION_TEST(test_another_program), INTEGRATION_TEST(test_daemon_gone),
                INTEGRATION_TEST(test_socket_gone),
        };

        return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
