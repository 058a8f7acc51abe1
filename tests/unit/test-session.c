/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: what they hold of memory and descriptors, what a uid may have together, and that all of it goes. */
#include "store-fixture.h"

#include "proto/staging.h"

static void test_identity(void **state)
{
        gid_t groups[] = { 5, 6 };
        SessionConfig config = { .cred = { .uid = 7, .gid = 8, .pid = 9, .n_groups = 2, .groups = groups },
                .comm = "me",
                                 .connected_ns = 77 };
        char *detail = NULL;
        Session *session;
        Fixture f;

        (void)state;
        fixture_init(&f, NULL);
        assert_int_equal(session_new(f.store, &config, &session, &detail), STATUS_OK);
        groups[0] = groups[1] = 0;
        assert_int_equal(session_cred(session)->uid, 7);
        assert_int_equal(session_cred(session)->gid, 8);
        assert_int_equal(session_cred(session)->pid, 9);
        assert_int_equal(session_cred(session)->n_groups, 2);
        assert_int_equal(session_cred(session)->groups[0], 5);
        assert_int_equal(session_cred(session)->groups[1], 6);
        assert_string_equal(session_comm(session), "me");
        assert_int_equal(session_connected_ns(session), 77);
        assert_int_equal(fixture_fact(&f, "sessions.count"), 1);
        session_close(session);
        assert_int_equal(fixture_fact(&f, "sessions.count"), 0);
        fixture_deinit(&f);
}

/* The client writes it and can neither shrink it nor let it grow. */
static void test_staging(void **state)
{
        struct stat st;
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(fstat(session_staging_fd(c.session), &st), 0);
        assert_int_equal(st.st_size, 4 * MIB + STAGING_END_BYTES);
        assert_true(st.st_blocks * 512 <= STAGING_END_BYTES);
        assert_int_equal(ftruncate(session_staging_fd(c.session), 0), -1);
        assert_int_equal(ftruncate(session_staging_fd(c.session), 8 * MIB), -1);
        /* A hole in it is zeros. */
        {
                Op op = { .item = { .key = key_of("k"), .size_bytes = 100, .staging_offset = 3 * MIB } };
                char zeros[100] = { 0 };

                assert_int_equal(op_run_clear(&c, &op, VERB_PUT), STATUS_OK);
                assert_content(&c, "k", zeros, sizeof(zeros));
        }
        client_close(&c);
        fixture_deinit(&f);
}

static void test_limit_of_a_uid(void **state)
{
        SessionConfig config = { .cred = { .uid = 7 } }, other = { .cred = { .uid = 8 } };
        StoreConfig store_config = fixture_config();
        Session *a, *b, *c;
        char *detail = NULL;
        ProtoNamespace ns, open_to_all = { .name = "default", .fields = FOLIO_NAMESPACE_FIELD_MODE, .mode = 0777 };
        int index_fd, pins_fd;
        Fixture f;

        (void)state;
        store_config.session_bytes_max = 136 * KIB; /* the first pages of two staging regions, and a little */
        fixture_init(&f, &store_config);
        assert_int_equal(store_namespace_configure(f.store, &open_to_all, &detail), STATUS_OK);
        assert_int_equal(session_new(f.store, &config, &a, &detail), STATUS_OK);
        assert_int_equal(session_new(f.store, &config, &b, &detail), STATUS_OK);
        assert_int_equal(session_new(f.store, &config, &c, &detail), STATUS_LIMIT);
        assert_non_null(strstr(detail, "139264"));
        free(detail);
        detail = NULL;
        /* Pin tables count as well; and another uid is not concerned. */
        assert_int_equal(store_namespace_open(f.store, a, "default", &ns, &index_fd, &pins_fd, &detail), STATUS_LIMIT);
        assert_int_equal(index_fd, -1);
        free(detail);
        assert_int_equal(session_new(f.store, &other, &c, &detail), STATUS_OK);
        assert_int_equal(store_namespace_open(f.store, c, "default", &ns, &index_fd, &pins_fd, &detail), STATUS_OK);
        assert_true(index_fd >= 0 && pins_fd >= 0);
        session_close(b);
        assert_int_equal(store_namespace_open(f.store, a, "default", &ns, &index_fd, &pins_fd, &detail), STATUS_OK);
        session_close(a);
        session_close(c);
        fixture_deinit(&f);
}

/* E11: a few sessions of tools begin beyond the limit of their uid, and have what they need to look around. */
static void test_e11_tools_beyond_the_limit(void **state)
{
        enum { N_TOOLS = 4 };
        SessionConfig config = { .cred = { .uid = 7 } }, tool = { .cred = { .uid = 7 }, .is_tool = true };
        StoreConfig store_config = fixture_config();
        Session *full, *tools[N_TOOLS], *other = NULL;
        ProtoNamespace ns, open_to_all = { .name = "default", .fields = FOLIO_NAMESPACE_FIELD_MODE, .mode = 0777 };
        char *detail = NULL;
        Fixture f;

        (void)state;
        store_config.session_bytes_max = 64 * KIB;
        fixture_init(&f, &store_config);
        assert_int_equal(store_namespace_configure(f.store, &open_to_all, &detail), STATUS_OK);
        assert_int_equal(session_new(f.store, &config, &full, &detail), STATUS_OK);
        for (int pass = 0; pass < 2; pass++) {
                for (size_t i = 0; i < N_TOOLS; i++) {
                        int index_fd, pins_fd;

                        assert_int_equal(session_new(f.store, &tool, &tools[i], &detail), STATUS_OK);
                        assert_int_equal(store_namespace_open(f.store, tools[i], "default", &ns, &index_fd, &pins_fd, &detail),
                                         STATUS_OK);
                        assert_true(index_fd >= 0 && pins_fd >= 0);
                }
                /* A fifth is as any other; and a ring is not what a tool needs. */
                assert_int_equal(session_new(f.store, &tool, &other, &detail), STATUS_LIMIT);
                free(detail);
                detail = NULL;
                assert_int_equal(session_new(f.store, &config, &other, &detail), STATUS_LIMIT);
                free(detail);
                detail = NULL;
                assert_int_equal(session_charge_ring(tools[0], 1, &detail), STATUS_LIMIT);
                free(detail);
                detail = NULL;
                for (size_t i = 0; i < N_TOOLS; i++)
                        session_close(tools[i]);
        }
        session_close(full);
        assert_int_equal(session_new(f.store, &config, &full, &detail), STATUS_OK);
        session_close(full);
        fixture_deinit(&f);
}

/* What is really there counts, as soon as it has been looked at: no other gets in; until it is gone. */
static void test_measured(void **state)
{
        SessionConfig config = { .cred = { .uid = 7 } };
        StoreConfig store_config = fixture_config();
        static const char bytes[MIB];
        Session *a, *b;
        char *detail = NULL;
        Fixture f;

        (void)state;
        store_config.session_bytes_max = MIB;
        fixture_init(&f, &store_config);
        assert_int_equal(session_new(f.store, &config, &a, &detail), STATUS_OK);
        assert_int_equal(pwrite(session_staging_fd(a), bytes, MIB, MIB), MIB);
        assert_int_equal(session_new(f.store, &config, &b, &detail), STATUS_OK);
        session_close(b);
        store_tick(f.store);
        assert_int_equal(session_new(f.store, &config, &b, &detail), STATUS_LIMIT);
        free(detail);
        detail = NULL;
        session_close(a);
        assert_int_equal(session_new(f.store, &config, &b, &detail), STATUS_OK);
        store_tick(f.store);
        session_close(b);
        fixture_deinit(&f);
}

static void test_open_twice(void **state)
{
        int index_fd[2], pins_fd[2], n_fds;
        ProtoNamespace ns;
        char *detail = NULL;
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        n_fds = harness_count_fds();
        for (int i = 0; i < 2; i++)
                assert_int_equal(store_namespace_open(f.store, c.session, "default", &ns, &index_fd[i], &pins_fd[i],
                                                      &detail),
                                 STATUS_OK);
        assert_int_equal(index_fd[0], index_fd[1]);
        assert_int_equal(pins_fd[0], pins_fd[1]);
        assert_int_equal(ns.rights, 7);
        assert_int_equal(harness_count_fds(), n_fds);
        assert_int_equal(store_namespace_open(f.store, c.session, "none", &ns, &index_fd[0], &pins_fd[0], &detail),
                         STATUS_NOT_FOUND);
        free(detail);
        client_close(&c);
        fixture_deinit(&f);
}

/* D25: a thousand connections that open, put, pin and go leave nothing. */
static void test_d25_many_sessions(void **state)
{
        int n_fds, n_mappings;
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(client_put_text(&c, "k", "x", 0), STATUS_OK);
        client_close(&c);
        fixture_settle(&f);
        n_fds = harness_count_fds();
        n_mappings = harness_count_shared_mappings();
        for (int i = 0; i < 1000; i++) {
                Lookup found;

                client_open(&f, &c, (uid_t)i % 2 ? geteuid() : 0, "default");
                assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
                client_pin(&c, found.slot, 1);
                assert_int_equal(client_put_text(&c, "k", "x", FOLIO_REPLACE), STATUS_OK);
                client_close(&c);
        }
        fixture_settle(&f);
        assert_int_equal(harness_count_fds(), n_fds);
        assert_int_equal(harness_count_shared_mappings(), n_mappings);
        assert_int_equal(fixture_fact(&f, "held.count"), 0);
        assert_int_equal(fixture_fact(&f, "objects.count"), 1);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_identity),
                UNIT_TEST(test_staging),
                UNIT_TEST(test_limit_of_a_uid),
                UNIT_TEST(test_e11_tools_beyond_the_limit),
                UNIT_TEST(test_measured),
                UNIT_TEST(test_open_twice),
                UNIT_TEST(test_d25_many_sessions),
        };

        return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
