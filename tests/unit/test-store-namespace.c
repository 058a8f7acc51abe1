/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces in the store: who may what, settings, removal with all that is in it, lists, holders. */
#include <sys/resource.h>

#include "store-fixture.h"

#define OTHER_UID 12345

static Status add(Fixture *f, Client *c, const char *name, uint32_t fields, ProtoNamespace settings)
{
        ProtoNamespace after;
        char *detail = NULL;
        Status status;

        snprintf(settings.name, sizeof(settings.name), "%s", name);
        settings.fields = fields;
        status = store_namespace_add(f->store, c->session, &settings, &after, &detail);
        assert_true((status == STATUS_OK) == (detail == NULL));
        if (status == STATUS_OK)
                assert_string_equal(after.name, name);
        free(detail);
        return status;
}

static Status set(Fixture *f, Client *c, const char *name, uint32_t fields, ProtoNamespace settings,
                  ProtoNamespace *ret)
{
        char *detail = NULL;
        Status status;

        snprintf(settings.name, sizeof(settings.name), "%s", name);
        settings.fields = fields;
        status = store_namespace_set(f->store, c->session, &settings, ret, &detail);
        assert_true((status == STATUS_OK) == (detail == NULL));
        free(detail);
        return status;
}

static Status remove_it(Fixture *f, Client *c, const char *name)
{
        char *detail = NULL;
        Status status = store_namespace_remove(f->store, c->session, name, &detail);

        assert_true((status == STATUS_OK) == (detail == NULL));
        free(detail);
        return status;
}

static Status put_as(Fixture *f, uid_t uid, const char *name, const char *key)
{
        Client c;
        Status status;

        client_open(f, &c, uid, name);
        status = client_put_text(&c, key, "x", FOLIO_REPLACE);
        client_close(&c);
        return status;
}

static void test_rights(void **state)
{
        static const struct {
                uint32_t mode;
                Status put;
                bool can_read;
        } rows[] = {
                { 0700, STATUS_ACCESS, false }, { 0704, STATUS_ACCESS, true }, { 0702, STATUS_OK, false },
                { 0706, STATUS_OK, true }, { 0777, STATUS_OK, true }, { 0, STATUS_ACCESS, false },
        };
        ProtoNamespace ignored;
        Fixture f;
        Client admin;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &admin, geteuid(), "default");
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                Client c;
                Op op;

                assert_int_equal(set(&f, &admin, "default", FOLIO_NAMESPACE_FIELD_MODE,
                                     (ProtoNamespace){ .mode = rows[i].mode },
                                     &ignored), STATUS_OK);
                assert_int_equal(put_as(&f, OTHER_UID, "default", "k"), rows[i].put);
                assert_int_equal(client_put_text(&admin, "k", "x", FOLIO_REPLACE), STATUS_OK);
                client_open(&f, &c, OTHER_UID, "default");
                assert_int_equal(c.space != NULL, rows[i].can_read);
                assert_int_equal(client_delete(&c, "k", 0), rows[i].put);
                assert_int_equal(client_create(&c, &op, "c", 5, 0), rows[i].put);
                if (rows[i].put == STATUS_OK) {
                        char byte;

                        assert_int_equal(client_seal(&c, &op), STATUS_OK);
                        assert_int_equal(client_read_slot(&c, op.op.slot, op.op.generation, &byte, 1, 0),
                                         rows[i].can_read ? STATUS_OK : STATUS_ACCESS);
                }
                op_clear(&op);
                assert_int_equal(remove_it(&f, &c, "default"), rows[i].mode & 1 ? STATUS_INVALID : STATUS_ACCESS);
                assert_int_equal(add(&f, &c, "new", 0, (ProtoNamespace){ 0 }), STATUS_ACCESS);
                client_close(&c);
                (void)client_delete(&admin, "c", PROTO_ITEM_IF_EXISTS);
        }
        client_close(&admin);
        fixture_deinit(&f);
}

static void test_settings(void **state)
{
        StoreConfig config = fixture_config();
        ProtoNamespace after;
        Fixture f;
        Client c;
        char name[16];

        (void)state;
        config.n_namespaces_max = 4;
        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(add(&f, &c, "Bad", 0, (ProtoNamespace){ 0 }), STATUS_INVALID);
        assert_int_equal(add(&f, &c, "a", FOLIO_NAMESPACE_FIELD_MODE, (ProtoNamespace){ .mode = 01000 }),
                         STATUS_INVALID);
        assert_int_equal(add(&f, &c, "a", FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, (ProtoNamespace){ 0 }), STATUS_INVALID);
        assert_int_equal(add(&f, &c, "a", FOLIO_NAMESPACE_FIELD_BACKING,
                             (ProtoNamespace){ .backing = FOLIO_BACKING_HUGETLB }),
                         STATUS_UNSUPPORTED);
        assert_int_equal(add(&f, &c, "default", 0, (ProtoNamespace){ 0 }), STATUS_EXISTS);
        for (int i = 1; i < 4; i++) {
                snprintf(name, sizeof(name), "n%d", i);
                assert_int_equal(add(&f, &c, name, FOLIO_NAMESPACE_FIELD_OBJECTS_MAX,
                                     (ProtoNamespace){ .objects_max = 10 }), STATUS_OK);
        }
        assert_int_equal(add(&f, &c, "n4", 0, (ProtoNamespace){ 0 }), STATUS_LIMIT);
        assert_int_equal(set(&f, &c, "n4", 0, (ProtoNamespace){ 0 }, &after), STATUS_NOT_FOUND);
        assert_int_equal(set(&f, &c, "n1", FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, (ProtoNamespace){ .objects_max = 11 },
                             &after),
                         STATUS_INVALID);
        assert_int_equal(set(&f, &c, "n1", FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_OWNER,
                             (ProtoNamespace){ .quota_bytes = 77, .owner_uid = OTHER_UID, .mode = 1 }, &after),
                                     STATUS_OK);
        assert_int_equal(after.quota_bytes, 77);
        assert_int_equal(after.owner_uid, OTHER_UID);
        assert_int_equal(after.mode, 0700);
        assert_int_equal(after.objects_max, 10);
        assert_int_equal(after.rights, 7);
        client_close(&c);
        fixture_deinit(&f);
}

static void test_list(void **state)
{
        ProtoNamespace entries[8];
        Fixture f;
        Client c, other;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        client_open(&f, &other, OTHER_UID, "default");
        assert_int_equal(add(&f, &c, "zoo", 0, (ProtoNamespace){ 0 }), STATUS_OK);
        assert_int_equal(add(&f, &c, "a", 0, (ProtoNamespace){ 0 }), STATUS_OK);
        assert_int_equal(add(&f, &c, "ab", 0, (ProtoNamespace){ 0 }), STATUS_OK);
        assert_int_equal(client_put_text(&c, "k", "x", 0), STATUS_OK);
        assert_int_equal(store_namespace_list(f.store, c.session, (Key){ NULL, 0 }, entries, 8), 4);
        assert_string_equal(entries[0].name, "a");
        assert_string_equal(entries[1].name, "ab");
        assert_string_equal(entries[2].name, "default");
        assert_string_equal(entries[3].name, "zoo");
        assert_int_equal(entries[2].n_objects, 1);
        assert_int_equal(entries[2].used_bytes, 64);
        assert_true(entries[2].index_bytes > 0);
        assert_int_equal(store_namespace_list(f.store, c.session, key_of("a"), entries, 2), 2);
        assert_string_equal(entries[0].name, "ab");
        assert_int_equal(store_namespace_list(f.store, c.session, key_of("zoo"), entries, 8), 0);
        /* Names for everybody; numbers only for who has a right there. */
        assert_int_equal(store_namespace_list(f.store, other.session, (Key){ NULL, 0 }, entries, 8), 4);
        assert_int_equal(entries[2].rights, 0);
        assert_int_equal(entries[2].n_objects, 0);
        client_close(&other);
        client_close(&c);
        fixture_deinit(&f);
}

/* Everything in it goes: sealed, held, unsealed, what waits; and who had it open finds that it is closed. */
static void test_remove(void **state)
{
        enum { N = 2000 };
        Fixture f;
        Client admin, c;
        Op op, late;
        char key[16];

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &admin, geteuid(), "default");
        for (int round = 0; round < 2; round++) {
                assert_int_equal(add(&f, &admin, "gone", 0, (ProtoNamespace){ 0 }), STATUS_OK);
                client_open(&f, &c, geteuid(), "gone");
                for (int i = 0; i < N; i++) {
                        Lookup found;

                        snprintf(key, sizeof(key), "%d", i);
                        assert_int_equal(client_put_text(&c, key, key, 0), STATUS_OK);
                        assert_int_equal(client_look(&c, key, &found), LOOKUP_FOUND);
                        if (i % 100 == 0)
                                client_pin(&c, found.slot, 1);
                }
                assert_int_equal(client_create(&c, &op, "unsealed", 3 * MIB, 0), STATUS_OK);
                late = (Op){ .item = { .key = key_of("late"), .size_bytes = 20 * MIB } };
                op_begin(&c, &late, VERB_CREATE);
                assert_int_equal(remove_it(&f, &admin, "gone"), STATUS_OK);
                assert_int_equal(remove_it(&f, &admin, "gone"), STATUS_NOT_FOUND);
                assert_int_equal(atomic_load(&c.space->shared->is_closed), 1);
                assert_int_equal(client_put_text(&c, "k", "x", 0), STATUS_NOT_FOUND);
                op_wait(&f, &late);
                assert_int_equal(late.op.status, STATUS_CANCELLED);
                op_clear(&late);
                op_clear(&op);
                /* The name can be had again at once. */
                assert_int_equal(add(&f, &admin, "gone", 0, (ProtoNamespace){ 0 }), STATUS_OK);
                assert_int_equal(remove_it(&f, &admin, "gone"), STATUS_OK);
                fixture_settle(&f);
                assert_int_equal(fixture_fact(&f, "held.count"), N / 100);
                client_close(&c);
                fixture_settle(&f);
                assert_true(store_is_empty(f.store));
                assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 0);
        }
        client_close(&admin);
        fixture_deinit(&f);
}

/* The configuration makes what is missing, changes what can be changed, and makes anew what nobody has seen yet. */
static void test_configure(void **state)
{
        ProtoNamespace settings = { .name = "default", .fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, .objects_max = 50 };
        char *detail = NULL;
        ProtoNamespace entry;
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        assert_int_equal(store_namespace_configure(f.store, &settings, &detail), STATUS_OK);
        worker_pool_drain(f.workers);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(store_namespace_list(f.store, c.session, (Key){ NULL, 0 }, &entry, 1), 1);
        assert_int_equal(entry.objects_max, 50);
        assert_int_equal(entry.mode, 0700);
        settings.objects_max = 60;
        assert_int_equal(store_namespace_configure(f.store, &settings, &detail), STATUS_INVALID);
        free(detail);
        settings = (ProtoNamespace){ .name = "default", .fields = FOLIO_NAMESPACE_FIELD_MODE, .mode = 0750 };
        assert_int_equal(store_namespace_configure(f.store, &settings, &detail), STATUS_OK);
        assert_int_equal(store_namespace_list(f.store, c.session, (Key){ NULL, 0 }, &entry, 1), 1);
        assert_int_equal(entry.mode, 0750);
        client_close(&c);
        fixture_deinit(&f);
}

/* Made anew, but there is no descriptor for the new index: what was there stays. */
static void test_configure_fails(void **state)
{
        ProtoNamespace settings = { .name = "default", .fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, .objects_max = 50 };
        struct rlimit before, none = { 0, 0 };
        char *detail = NULL;
        Fixture f;

        (void)state;
        fixture_init(&f, NULL);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        none.rlim_max = before.rlim_max;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        assert_int_equal(store_namespace_configure(f.store, &settings, &detail), STATUS_LIMIT);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        free(detail);
        assert_int_equal(fixture_fact(&f, "namespaces.count"), 1);
        fixture_deinit(&f);
}

static void test_holders(void **state)
{
        ProtoItem item = { .key = key_of("k") };
        StoreHolder holders[2];
        char *detail = NULL;
        Lookup found;
        Fixture f;
        Client c[3];
        size_t n;

        (void)state;
        fixture_init(&f, NULL);
        for (int i = 0; i < 3; i++)
                client_open(&f, &c[i], geteuid(), "default");
        assert_int_equal(store_holders(f.store, c[0].session, c[0].namespace_id, &item, holders, 2, &n, &detail),
                         STATUS_NOT_FOUND);
        free(detail);
        assert_int_equal(client_put_text(&c[0], "k", "x", 0), STATUS_OK);
        assert_int_equal(store_holders(f.store, c[0].session, c[0].namespace_id, &item, holders, 2, &n, &detail),
                         STATUS_OK);
        assert_int_equal(n, 0);
        assert_int_equal(client_look(&c[0], "k", &found), LOOKUP_FOUND);
        client_pin(&c[1], found.slot, 3);
        client_pin(&c[2], found.slot, 1);
        assert_int_equal(store_holders(f.store, c[0].session, c[0].namespace_id, &item, holders, 1, &n, &detail),
                         STATUS_OK);
        assert_int_equal(n, 2);
        assert_ptr_equal(holders[0].session, c[1].session);
        assert_int_equal(holders[0].n_pins, 3);
        assert_string_equal(session_comm(holders[0].session), "test");
        assert_int_equal(session_connected_ns(holders[0].session), 7);
        assert_int_equal(session_cred(holders[0].session)->uid, geteuid());
        /* Of one that was deleted, too. */
        assert_int_equal(client_delete(&c[0], "k", 0), STATUS_OK);
        item = (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT, .slot = found.slot, .generation = found.copy.generation };
        assert_int_equal(store_holders(f.store, c[0].session, c[0].namespace_id, &item, holders, 2, &n, &detail),
                         STATUS_OK);
        assert_int_equal(n, 2);
        item.generation++;
        assert_int_equal(store_holders(f.store, c[0].session, c[0].namespace_id, &item, holders, 2, &n, &detail),
                         STATUS_DELETED);
        free(detail);
        for (int i = 0; i < 3; i++)
                client_close(&c[i]);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_rights),
                UNIT_TEST(test_settings),
                UNIT_TEST(test_list),
                UNIT_TEST(test_remove),
                UNIT_TEST(test_configure),
                UNIT_TEST(test_configure_fails),
                UNIT_TEST(test_holders),
        };

        return cmocka_run_group_tests_name("store-namespace", tests, NULL, NULL);
}
