/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of a namespace becomes huge as it grows, if the policy lets it, while clients read it; and a namespace can
 * go, and the store can end, at any moment of that. Where the kernel makes no huge pages the counts are of failures.
 */
#include "store-fixture.h"

#include "daemon/memory/backend.h"
#include "proto/layout.h"

#define N_SLOTS_PER_PIECE ((uint32_t)(HUGE_BYTES / sizeof(LayoutSlot)))
#define N_MANY (N_SLOTS_PER_PIECE + N_SLOTS_PER_PIECE / 4)

/* Objects without bytes: one slot each. */
static void put_many(Client *c, uint32_t n)
{
        char key[32];

        for (uint32_t i = 0; i < n; i++) {
                snprintf(key, sizeof(key), "object-%u", i);
                assert_int_equal(client_put(c, key, "", 0, 0), STATUS_OK);
        }
}

static StoreConfig config_of(enum folio_huge huge)
{
        StoreConfig config = fixture_config();

        config.huge = huge;
        config.index_objects_max = 4 * N_SLOTS_PER_PIECE;
        config.n_events = 16;
        return config;
}

static bool can_collapse(void)
{
        const char *ignored = NULL;
        Backend *backend;
        bool can;

        assert_int_equal(backend_memfd_new(FOLIO_HUGE_ALWAYS, &backend, &ignored), 0);
        can = backend->capabilities & BACKEND_COLLAPSIBLE && !(backend->capabilities & BACKEND_HUGE_AT_ALLOCATION);
        backend_free(backend);
        return can;
}

/* A collapse fails when somebody just looks at a page; it is tried again, and what failed is counted. */
static void assert_pieces(Fixture *f, uint64_t n)
{
        uint64_t n_huge = fixture_fact(f, "index.huge_bytes") / HUGE_BYTES;

        assert_true(n_huge == n || (n_huge < n && fixture_fact(f, "collapse.failed") > 0));
}

static void test_index_grows(void **state)
{
        static const struct {
                uint32_t n_objects;
                uint64_t n_pieces;   /* of slots; the buckets need less than one */
        } rows[] = {
                { 100, 0 },
                { N_SLOTS_PER_PIECE / 4 * 3 - 1, 0 },
                { N_SLOTS_PER_PIECE / 4 * 3, 2 },
                { N_MANY, 2 },
                { 2 * N_SLOTS_PER_PIECE, 3 },
        };
        StoreConfig config = config_of(FOLIO_HUGE_ALWAYS);
        bool can = can_collapse();
        Fixture f;
        Client c;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                uint64_t n = can ? rows[i].n_pieces : 0;

                fixture_init(&f, &config);
                client_open(&f, &c, geteuid(), "default");
                put_many(&c, rows[i].n_objects);
                fixture_settle(&f);
                assert_pieces(&f, n);
                assert_true(fixture_fact(&f, "index.bytes") >= fixture_fact(&f, "index.huge_bytes"));
                for (uint32_t k = 0; k < rows[i].n_objects; k += 97) {
                        char key[32];

                        snprintf(key, sizeof(key), "object-%u", k);
                        assert_true(client_has(&c, key));
                }
                client_close(&c);
                fixture_deinit(&f);
        }
}

static void test_policy_is_honoured(void **state)
{
        StoreConfig config = config_of(FOLIO_HUGE_NEVER);
        ProtoNamespace settings = { .name = "default", .fields = FOLIO_NAMESPACE_FIELD_HUGE, .huge = FOLIO_HUGE_NEVER };
        ProtoNamespace ignored;
        char *detail = NULL;
        Fixture f;
        Client c;

        /* The store's. */
        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        put_many(&c, N_MANY);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "index.huge_bytes"), 0);
        assert_int_equal(fixture_fact(&f, "collapse.done") + fixture_fact(&f, "collapse.failed"), 0);
        client_close(&c);
        fixture_deinit(&f);

        /* The namespace's, and when it changes, what has been left is made up for. */
        config.huge = FOLIO_HUGE_ALWAYS;
        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(store_namespace_set(f.store, c.session, &settings, &ignored, &detail), STATUS_OK);
        put_many(&c, N_MANY);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "index.huge_bytes"), 0);
        settings.huge = FOLIO_HUGE_ALWAYS;
        assert_int_equal(store_namespace_set(f.store, c.session, &settings, &ignored, &detail), STATUS_OK);
        assert_int_equal(client_put(&c, "one more", "", 0, 0), STATUS_OK);
        fixture_settle(&f);
        assert_pieces(&f, can_collapse() ? 2 : 0);
        client_close(&c);
        fixture_deinit(&f);
}

static Status add_namespace(Fixture *f, Session *session, const char *name)
{
        ProtoNamespace settings = { 0 }, ignored;
        char *detail = NULL;

        snprintf(settings.name, sizeof(settings.name), "%s", name);
        return store_namespace_add(f->store, session, &settings, &ignored, &detail);
}

/* Just when the job has been handed to a worker: the space stays for it, and goes then. */
static void test_removed_meanwhile(void **state)
{
        StoreConfig config = config_of(FOLIO_HUGE_ALWAYS);
        char *detail = NULL;
        Client admin, c;
        Fixture f;

        fixture_init(&f, &config);
        client_open(&f, &admin, geteuid(), "default");
        for (unsigned i = 0; i < 4; i++) {
                assert_int_equal(add_namespace(&f, admin.session, "short"), STATUS_OK);
                client_open(&f, &c, geteuid(), "short");
                /* The last of these begins the job. */
                put_many(&c, N_SLOTS_PER_PIECE / 4 * 3);
                assert_int_equal(store_namespace_remove(f.store, admin.session, "short", &detail), STATUS_OK);
                /* With and without a reader that still maps it. */
                if (i % 2 == 0)
                        client_close(&c);
                fixture_settle(&f);
                if (i % 2 != 0)
                        client_close(&c);
                fixture_settle(&f);
                assert_int_equal(fixture_fact(&f, "namespaces.count"), 1);
                assert_int_equal(fixture_fact(&f, "index.huge_bytes"), 0);
                assert_int_equal(fixture_fact(&f, "objects.count"), 0);
        }
        client_close(&admin);
        fixture_deinit(&f);
}

static void test_stopped_meanwhile(void **state)
{
        StoreConfig config = config_of(FOLIO_HUGE_ALWAYS);
        Fixture f;
        Client c;

        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        put_many(&c, N_SLOTS_PER_PIECE / 4 * 3);
        client_close(&c);
        fixture_deinit(&f);
}

/* A large object is huge from birth where that is allowed, and there to the last byte in any case. */
static void test_own_regions_are_born_huge(void **state)
{
        static const enum folio_huge policies[] = { FOLIO_HUGE_ALWAYS, FOLIO_HUGE_NEVER };
        Lookup found;
        Fixture f;
        Client c;
        Op op;

        for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
                StoreConfig config = config_of(policies[i]);
                bool is_huge = policies[i] == FOLIO_HUGE_ALWAYS && can_collapse();

                fixture_init(&f, &config);
                client_open(&f, &c, geteuid(), "default");
                assert_int_equal(client_create(&c, &op, "k", 8 * MIB - 1, 0), STATUS_OK);
                assert_int_equal(fixture_fact(&f, "collapse.done") + fixture_fact(&f, "collapse.failed"),
                                 is_huge ? 4 : 0);
                assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
                assert_int_equal(found.copy.state, LAYOUT_SLOT_WRITING);
                assert_int_equal(found.copy.allocated_pages, 8 * MIB / PAGE_BYTES);
                assert_int_equal(client_seal(&c, &op), STATUS_OK);
                op_clear(&op);
                fixture_settle(&f);
                assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
                if (is_huge && fixture_fact(&f, "collapse.failed") == 0)
                        assert_int_equal(found.copy.huge_folios, 4);
                client_close(&c);
                fixture_deinit(&f);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_index_grows),
                UNIT_TEST(test_policy_is_honoured),
                UNIT_TEST(test_removed_meanwhile),
                UNIT_TEST(test_stopped_meanwhile),
                UNIT_TEST(test_own_regions_are_born_huge),
        };

        return cmocka_run_group_tests_name("store-huge", tests, NULL, NULL);
}
