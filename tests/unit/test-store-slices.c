/* SPDX-License-Identifier: Apache-2.0 */
/* What is about very many objects goes in slices: each of them does a bounded part, and all of it is done in the end. */
#include "store-fixture.h"

enum { N = 3000, SLICE_MAX = 512 };

static void put_many(Client *c, uint32_t lifetime, uint64_t expires_ns)
{
        char key[16];

        client_stage(c, 0, "x", 1);
        for (unsigned i = 0; i < N; i++) {
                Op op = { .item = { .key = (Key){ key, (size_t)snprintf(key, sizeof(key), "%u", i) }, .size_bytes = 1,
                                    .lifetime = lifetime, .expires_ns = expires_ns } };

                assert_int_equal(op_run_clear(c, &op, VERB_PUT), STATUS_OK);
        }
}

static void test_expiry(void **state)
{
        uint64_t n_before, n_after;
        unsigned n_slices = 0;
        Fixture f;
        Client c;

        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        put_many(&c, FOLIO_UNTIL_TIME, 5000);
        store_expire(f.store);
        assert_int_equal(fixture_fact(&f, "objects.count"), N);
        fixture_now = 5000;
        for (n_before = N; n_before > 0; n_before = n_after, n_slices++) {
                assert_true(store_next_expiry_ns(f.store) <= fixture_now);
                store_expire(f.store);
                n_after = fixture_fact(&f, "objects.count");
                assert_in_range(n_before - n_after, 1, SLICE_MAX);
        }
        assert_in_range(n_slices, N / SLICE_MAX + 1, N);
        assert_int_equal(store_next_expiry_ns(f.store), UINT64_MAX);
        client_close(&c);
        fixture_deinit(&f);
}

static void test_a_client_that_leaves(void **state)
{
        Client c, other;
        Fixture f;

        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        client_open(&f, &other, geteuid(), "default");
        put_many(&c, FOLIO_WITH_CREATOR, 0);
        client_close(&c);
        assert_in_range(fixture_fact(&f, "objects.count"), N - SLICE_MAX, N - 1);
        for (unsigned i = 0; fixture_fact(&f, "objects.count") > 0; i++) {
                assert_true(i < FIXTURE_TURNS_MAX);
                fixture_turn(&f);
        }
        client_close(&other);
        fixture_deinit(&f);
}

/* Its tables go on a worker, however many there are, and whoever is asked meanwhile says that it is gone. */
static void test_a_namespace_that_is_removed(void **state)
{
        ProtoNamespace settings = { .name = "big" }, ns;
        char *detail = NULL;
        Client c, admin;
        Fixture f;

        fixture_init(&f, NULL);
        client_open(&f, &admin, geteuid(), "default");
        assert_int_equal(store_namespace_add(f.store, admin.session, &settings, &ns, &detail), STATUS_OK);
        client_open(&f, &c, geteuid(), "big");
        put_many(&c, FOLIO_UNTIL_DELETED, 0);
        assert_int_equal(store_namespace_remove(f.store, admin.session, "big", &detail), STATUS_OK);
        assert_int_equal(fixture_fact(&f, "objects.count"), N); /* nothing is done at once */
        client_close(&c);
        while (fixture_fact(&f, "objects.count") > 0)
                fixture_turn(&f);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 0);
        client_close(&admin);
        fixture_deinit(&f);
}

/* At the limit of namespaces: one that is made anew takes its own place. */
static void test_made_anew_at_the_limit(void **state)
{
        ProtoNamespace settings = { .name = "one", .objects_max = 100, .fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX };
        StoreConfig config = fixture_config();
        char *detail = NULL;
        Fixture f;

        config.n_namespaces_max = 2;
        fixture_init(&f, &config);
        assert_int_equal(store_namespace_configure(f.store, &settings, &detail), STATUS_OK);
        settings.objects_max = 200;
        assert_int_equal(store_namespace_configure(f.store, &settings, &detail), STATUS_OK);
        assert_int_equal(fixture_fact(&f, "namespaces.count"), 2);
        strcpy(settings.name, "two");
        assert_int_equal(store_namespace_configure(f.store, &settings, &detail), STATUS_LIMIT);
        free(detail);
        assert_int_equal(fixture_fact(&f, "namespaces.count"), 2);
        fixture_settle(&f);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_expiry),
                UNIT_TEST(test_a_client_that_leaves),
                UNIT_TEST(test_a_namespace_that_is_removed),
                UNIT_TEST(test_made_anew_at_the_limit),
        };

        return cmocka_run_group_tests_name("store-slices", tests, NULL, NULL);
}
