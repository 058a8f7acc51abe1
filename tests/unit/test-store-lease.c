/* SPDX-License-Identifier: Apache-2.0 */
/* Leases in the store: how they are given, used and refused. How they end is test-store-lease-end. */
#include "lease-fixture.h"

/* --- giving ------------------------------------------------------------------------------------------------------- */

static void test_grant(void **state)
{
        const LeaseBook *book;
        ProtoNamespace ns;
        char *detail = NULL;
        int index_fd, pins_fd;
        struct stat st;
        Op lease;
        Fixture f;
        Writer w;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(lease.op.slot, 0);
        assert_int_equal(lease.op.region_bytes, 2 * MIB);
        assert_int_equal(fcntl(lease.op.fd, F_GETFL) & O_ACCMODE, O_RDWR);
        assert_int_equal(fcntl(lease.op.book_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_int_equal(fstat(lease.op.fd, &st), 0);
        assert_int_equal(st.st_size, 2 * MIB);
        assert_int_equal(st.st_blocks * 512, 2 * MIB); /* all of it is there */
        assert_int_equal(st.st_mode & 0777, 0600);
        book = map_book(&lease);
        assert_int_equal(book->magic, LEASE_MAGIC);
        assert_int_equal(book->region_id, lease.op.region_id);
        assert_int_equal(book->epoch, lease.op.generation);
        munmap((void *)book, 16384);
        assert_leases(&f, 1, 0, 2 * MIB);
        assert_true(fixture_fact(&f, "memory.used_bytes") >= 2 * MIB);
        assert_int_equal(store_namespace_open(f.store, w.c.session, "default", &ns, &index_fd, &pins_fd, &detail),
                         STATUS_OK);
        assert_int_equal(ns.leased_bytes, 2 * MIB);
        lease_clear(&lease);
        writer_close(&w);
        fixture_deinit(&f);
}

/* How large a region is, by what must fit and what is wished for. */
static void test_sizes(void **state)
{
        static const struct {
                uint64_t size_bytes, wish_bytes, region_bytes;
                Status status;
        } rows[] = {
                { 0, 0, 2 * MIB, STATUS_OK },
                { 1, 0, 2 * MIB, STATUS_OK },
                { 2 * MIB, 0, 2 * MIB, STATUS_OK },
                { 2 * MIB + 1, 0, 4 * MIB, STATUS_OK },
                { 64, 3 * MIB, 4 * MIB, STATUS_OK },
                { 64, 64 * MIB, 64 * MIB, STATUS_OK }, /* a quarter of the budget */
                { 64, UINT64_MAX, 64 * MIB, STATUS_OK },
                { 80 * MIB, 2 * MIB, 80 * MIB, STATUS_OK }, /* what one object needs it gets */
                { 257 * MIB, 0, 0, STATUS_TOO_LARGE },
                { UINT64_MAX, 0, 0, STATUS_TOO_LARGE },
        };
        Fixture f;

        fixture_init(&f, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                Writer w;
                Op lease;

                writer_open(&f, &w, 0, "default");
                assert_int_equal(ask(&w.c, &lease, rows[i].size_bytes, rows[i].wish_bytes), rows[i].status);
                assert_int_equal(lease.op.region_bytes, rows[i].region_bytes);
                lease_clear(&lease);
                writer_close(&w);
                ticks(&f, N_IDLE_TICKS);
                assert_leases(&f, 0, 0, 0);
        }
        fixture_deinit(&f);
}

static void test_refused(void **state)
{
        ProtoNamespace settings = { .name = "closed", .fields = FOLIO_NAMESPACE_FIELD_WRITERS,
                                    .writers = FOLIO_WRITERS_UNTRUSTED };
        ProtoNamespace readable = { .name = "readable", .fields = FOLIO_NAMESPACE_FIELD_MODE, .mode = 0744 };
        ProtoNamespace ignored;
        Writer w, untrusted, reader;
        char *detail = NULL;
        Client ringless;
        Fixture f;
        Op op;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(store_namespace_add(f.store, w.c.session, &settings, &ignored, &detail), STATUS_OK);
        assert_int_equal(store_namespace_add(f.store, w.c.session, &readable, &ignored, &detail), STATUS_OK);
        writer_open(&f, &untrusted, 0, "closed");
        writer_open(&f, &reader, 77, "readable");
        client_open(&f, &ringless, 0, "default");

        assert_int_equal(ask(&untrusted.c, &op, 64, 0), STATUS_STATE);
        op_clear(&op);
        assert_int_equal(ask(&ringless, &op, 64, 0), STATUS_STATE);
        op_clear(&op);
        assert_int_equal(ask(&reader.c, &op, 64, 0), STATUS_ACCESS);
        op_clear(&op);
        w.c.namespace_id += 1000;
        assert_int_equal(ask(&w.c, &op, 64, 0), STATUS_NOT_FOUND);
        op_clear(&op);
        w.c.namespace_id -= 1000;
        op = (Op){ .item = { .size_bytes = 64, .flags = FOLIO_REPLACE } };
        assert_int_equal(op_run_clear(&w.c, &op, VERB_LEASE), STATUS_INVALID);
        op = (Op){ .item = { .size_bytes = 64, .key = key_of("k") } };
        assert_int_equal(op_run_clear(&w.c, &op, VERB_LEASE), STATUS_INVALID);
        assert_leases(&f, 0, 0, 0);

        client_close(&ringless);
        writer_close(&reader);
        writer_close(&untrusted);
        writer_close(&w);
        fixture_deinit(&f);
}

/* So many, and so much that is not used. */
static void test_limits(void **state)
{
        StoreConfig config = fixture_config();
        Op leases[RING_LEASES_MAX + 1];
        Fixture f;
        Writer w;
        Op op;

        config.budget_bytes = 1024 * MIB;
        fixture_init(&f, &config);
        writer_open(&f, &w, 0, "default");
        for (unsigned i = 0; i < RING_LEASES_MAX; i++) {
                assert_int_equal(ask(&w.c, &leases[i], 64, 2 * MIB), STATUS_OK);
                assert_int_equal(leases[i].op.slot, i);
                lease_clear(&leases[i]);
        }
        assert_int_equal(ask(&w.c, &op, 64, 2 * MIB), STATUS_LIMIT);
        op_clear(&op);
        writer_close(&w);
        ticks(&f, N_IDLE_TICKS);
        assert_leases(&f, 0, 0, 0);
        store_set_budget(f.store, 64 * MIB);

        /* A quarter of the budget is 16 MiB: with it, and one object's more, no other. */
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &leases[0], 64, 64 * MIB), STATUS_OK);
        assert_int_equal(leases[0].op.region_bytes, 16 * MIB);
        assert_int_equal(ask(&w.c, &leases[1], 64, 64 * MIB), STATUS_OK);
        assert_int_equal(leases[1].op.region_bytes, 2 * MIB);
        assert_int_equal(ask(&w.c, &op, 64, 2 * MIB), STATUS_LIMIT);
        op_clear(&op);
        /* What is used does not count. */
        assert_int_equal(put(&w.c, "a", &leases[0], 0, 8 * MIB), STATUS_OK);
        assert_int_equal(ask(&w.c, &leases[2], 64, 64 * MIB), STATUS_OK);
        assert_int_equal(leases[2].op.region_bytes, 6 * MIB);
        for (unsigned i = 0; i < 3; i++)
                lease_clear(&leases[i]);
        writer_close(&w);
        fixture_deinit(&f);
}

/* All at once is no way around it: what is being made counts. */
static void test_limits_at_once(void **state)
{
        StoreConfig config = fixture_config();
        unsigned n_good = 0;
        Op leases[5];
        Fixture f;
        Writer w;

        config.budget_bytes = 64 * MIB;
        fixture_init(&f, &config);
        writer_open(&f, &w, 0, "default");
        for (size_t i = 0; i < ARRAY_SIZE(leases); i++) {
                leases[i] = (Op){ .item = { .size_bytes = 16 * MIB } };
                op_begin(&w.c, &leases[i], VERB_LEASE);
        }
        for (size_t i = 0; i < ARRAY_SIZE(leases); i++) {
                op_wait(&f, &leases[i]);
                n_good += leases[i].op.status == STATUS_OK;
                assert_true(leases[i].op.status == STATUS_OK || leases[i].op.status == STATUS_LIMIT);
                lease_clear(&leases[i]);
        }
        assert_int_equal(n_good, 2); /* a quarter, and one object's */
        writer_close(&w);
        fixture_deinit(&f);
}

/* From the pool where one fits: huge or not, its size is sealed for good, and its mode closed. */
static void test_blank(void **state)
{
        StoreConfig config = fixture_config();
        struct stat st;
        Fixture f;
        Writer w;
        Op lease;

        config.pool_bytes_max = 64 * MIB;
        fixture_init(&f, &config);
        worker_pool_drain(f.workers);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(fixture_fact(&f, "pool.hits"), 1);
        assert_int_equal(fstat(lease.op.fd, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(fcntl(lease.op.fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE),
                         F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        lease_clear(&lease);
        writer_close(&w);
        fixture_deinit(&f);
}

/* --- publishing --------------------------------------------------------------------------------------------------- */

static void test_publish(void **state)
{
        const LeaseBook *book;
        Lookup found;
        Client reader;
        Fixture f;
        Writer w;
        Op lease;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        client_open(&f, &reader, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        book = map_book(&lease);
        write_at(&lease, 128, "hello");
        assert_false(is_taken(book, 2));
        assert_int_equal(put(&w.c, "a", &lease, 128, 5), STATUS_OK);
        assert_true(is_taken(book, 2));
        assert_false(is_taken(book, 1));
        assert_false(is_taken(book, 3));
        assert_text(&reader, "a", "hello");
        assert_int_equal(client_look(&reader, "a", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.placement, FOLIO_PLACEMENT_PACKED);
        assert_int_equal(found.copy.protection, FOLIO_PROTECTION_TRUSTED);
        assert_int_equal(found.copy.region_id, lease.op.region_id);
        assert_int_equal(found.copy.offset_units, 2);
        assert_int_equal(found.copy.allocated_pages, 1);
        assert_int_equal(fixture_fact(&f, "leases.used_bytes"), 64);

        /* An empty one takes a unit too. */
        assert_int_equal(put(&w.c, "empty", &lease, 0, 0), STATUS_OK);
        assert_true(is_taken(book, 0));
        assert_int_equal(client_delete(&reader, "empty", 0), STATUS_OK);
        assert_false(is_taken(book, 0));
        assert_int_equal(book->n_freed, 1);
        assert_int_equal(book->freed[0], lease_freed(0, 1));

        munmap((void *)book, 16384);
        lease_clear(&lease);
        client_close(&reader);
        writer_close(&w);
        fixture_deinit(&f);
}

static void test_replace(void **state)
{
        const LeaseBook *book;
        Fixture f;
        Writer w;
        Op lease, op;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        book = map_book(&lease);
        write_at(&lease, 0, "old");
        write_at(&lease, 64, "new");
        assert_int_equal(put(&w.c, "a", &lease, 0, 3), STATUS_OK);
        /* The name is taken, and the units stay free. */
        assert_int_equal(put(&w.c, "a", &lease, 64, 3), STATUS_EXISTS);
        assert_false(is_taken(book, 1));
        assert_int_equal(publish(&w.c, VERB_PUT, "a", &lease, 64, 3, FOLIO_REPLACE, &op), STATUS_OK);
        op_clear(&op);
        assert_text(&w.c, "a", "new");
        assert_false(is_taken(book, 0));
        assert_true(is_taken(book, 1));

        /* One of another placement, in both directions. */
        assert_int_equal(client_put_text(&w.c, "a", "packed", FOLIO_REPLACE), STATUS_OK);
        assert_false(is_taken(book, 1));
        assert_int_equal(publish(&w.c, VERB_PUT, "a", &lease, 0, 3, FOLIO_REPLACE, &op), STATUS_OK);
        op_clear(&op);
        assert_text(&w.c, "a", "old");
        munmap((void *)book, 16384);
        lease_clear(&lease);
        writer_close(&w);
        fixture_deinit(&f);
}

static void test_publish_refused(void **state)
{
        static const struct {
                uint64_t offset, n_bytes;
                Status status;
        } rows[] = {
                { 0, 64, STATUS_EXISTS }, { 0, 65, STATUS_EXISTS }, { 128, 1, STATUS_OK },
                { 0, 2 * MIB, STATUS_EXISTS }, { 64, 2 * MIB - 64, STATUS_EXISTS },
                { 1, 1, STATUS_RANGE }, { 2 * MIB, 0, STATUS_RANGE }, { 2 * MIB - 64, 65, STATUS_RANGE },
                { 2 * MIB - 64, 64, STATUS_OK }, { UINT64_MAX, 1, STATUS_RANGE }, { UINT64_MAX - 63, 64, STATUS_RANGE },
                { 64, 4 * MIB, STATUS_RANGE }, { 0, UINT64_MAX, STATUS_TOO_LARGE },
        };
        Op lease, others, strange = { .op = { .region_id = UINT64_MAX } }, op;
        ProtoNamespace settings = { .name = "second" }, ignored;
        char *detail = NULL;
        uint64_t used, n_objects;
        Writer w, other, second;
        Fixture f;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        writer_open(&f, &other, 0, "default");
        assert_int_equal(store_namespace_add(f.store, w.c.session, &settings, &ignored, &detail), STATUS_OK);
        writer_open(&f, &second, 0, "second");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(ask(&other.c, &others, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(put(&w.c, "there", &lease, 0, 100), STATUS_OK);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_int_equal(put(&w.c, "new", &lease, rows[i].offset, rows[i].n_bytes), rows[i].status);
                if (rows[i].status == STATUS_OK)
                        assert_int_equal(client_delete(&w.c, "new", 0), STATUS_OK);
        }
        used = fixture_fact(&f, "leases.used_bytes");
        n_objects = fixture_fact(&f, "objects.count");
        /* Another's, nobody's, and its own in another namespace. */
        assert_int_equal(put(&w.c, "new", &others, 0, 10), STATUS_INVALID);
        assert_int_equal(put(&w.c, "new", &strange, 0, 10), STATUS_INVALID);
        w.c.namespace_id = second.c.namespace_id;
        assert_int_equal(put(&w.c, "new", &lease, 1024, 10), STATUS_INVALID);
        w.c.namespace_id = other.c.namespace_id;
        /* What goes with staging memory, or with regions of their own, does not go with a lease. */
        assert_int_equal(publish(&w.c, VERB_PUT, "new", &lease, 1024, 10, PROTO_ITEM_STAGED, &op), STATUS_INVALID);
        op_clear(&op);
        for (uint32_t flag = FOLIO_MUTABLE; flag <= FOLIO_STREAM; flag *= 2) {
                assert_int_equal(publish(&w.c, VERB_CREATE, "new", &lease, 1024, 0, flag, &op), STATUS_INVALID);
                op_clear(&op);
        }
        assert_int_equal(fixture_fact(&f, "leases.used_bytes"), used);
        assert_int_equal(fixture_fact(&f, "objects.count"), n_objects);
        lease_clear(&lease);
        lease_clear(&others);
        writer_close(&second);
        writer_close(&other);
        writer_close(&w);
        fixture_deinit(&f);
}

static void test_create_and_seal(void **state)
{
        const LeaseBook *book;
        Op lease, object, op;
        Lookup found;
        Fixture f;
        Writer w;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        book = map_book(&lease);
        assert_int_equal(publish(&w.c, VERB_CREATE, "a", &lease, 64, 6, 0, &object), STATUS_OK);
        assert_int_equal(object.op.region_id, lease.op.region_id);
        assert_int_equal(object.op.offset_bytes, 64);
        assert_true(is_taken(book, 1));
        write_at(&lease, 64, "placed");
        assert_int_equal(client_by_slot(&w.c, &op, VERB_SEAL, &object, PROTO_ITEM_STAGED), STATUS_INVALID);
        op_clear(&op);
        assert_int_equal(client_by_slot(&w.c, &op, VERB_WRITE, &object, 0), STATUS_STATE);
        op_clear(&op);
        assert_int_equal(client_seal(&w.c, &object), STATUS_OK);
        assert_text(&w.c, "a", "placed");
        assert_int_equal(client_look(&w.c, "a", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.protection, FOLIO_PROTECTION_TRUSTED);
        assert_int_equal(client_truncate(&w.c, "a", 3), STATUS_STATE);

        /* One that is aborted leaves nothing, and spoils nothing. */
        assert_int_equal(publish(&w.c, VERB_CREATE, "b", &lease, 128, 100, 0, &object), STATUS_OK);
        assert_int_equal(client_by_slot(&w.c, &op, VERB_ABORT, &object, 0), STATUS_OK);
        op_clear(&op);
        assert_false(is_taken(book, 2));
        munmap((void *)book, 16384);
        lease_clear(&lease);
        writer_close(&w);
        /* An orphan that can be used. */
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_leases(&f, 1, 0, 2 * MIB);
        lease_clear(&lease);
        writer_close(&w);
        fixture_deinit(&f);
}

/* Who holds an object holds its units. */
static void test_pins(void **state)
{
        const LeaseBook *book;
        Lookup found;
        Client reader;
        Fixture f;
        Writer w;
        Op lease;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        client_open(&f, &reader, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        book = map_book(&lease);
        assert_int_equal(put(&w.c, "a", &lease, 64, 64), STATUS_OK);
        assert_int_equal(client_look(&reader, "a", &found), LOOKUP_FOUND);
        client_pin(&reader, found.slot, 1);
        assert_int_equal(client_delete(&w.c, "a", 0), STATUS_OK);
        assert_true(is_taken(book, 1));
        assert_int_equal(put(&w.c, "b", &lease, 64, 64), STATUS_EXISTS);
        client_pin(&reader, found.slot, -1);
        store_sweep_held(f.store);
        assert_false(is_taken(book, 1));
        assert_int_equal(put(&w.c, "b", &lease, 64, 64), STATUS_OK);
        munmap((void *)book, 16384);
        lease_clear(&lease);
        client_close(&reader);
        writer_close(&w);
        fixture_deinit(&f);
}

/* Objects in leases are charged to the quota as others are, and what it refuses takes no units. */
static void test_quota(void **state)
{
        ProtoNamespace settings = { .name = "small", .fields = FOLIO_NAMESPACE_FIELD_QUOTA_BYTES |
                                                              FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS,
                                    .quota_bytes = 1000, .quota_objects = 3 };
        ProtoNamespace ignored;
        char *detail = NULL;
        Writer admin, w;
        Fixture f;
        Op lease;

        fixture_init(&f, NULL);
        writer_open(&f, &admin, 0, "default");
        assert_int_equal(store_namespace_add(f.store, admin.c.session, &settings, &ignored, &detail), STATUS_OK);
        writer_open(&f, &w, 0, "small");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(put(&w.c, "a", &lease, 0, 1001), STATUS_TOO_LARGE);
        assert_int_equal(put(&w.c, "a", &lease, 0, 900), STATUS_OK); /* 960 */
        assert_int_equal(put(&w.c, "b", &lease, 1024, 40), STATUS_LIMIT);
        assert_int_equal(fixture_fact(&f, "leases.used_bytes"), 960);
        assert_int_equal(client_delete(&w.c, "a", 0), STATUS_OK);
        assert_int_equal(put(&w.c, "a", &lease, 0, 1), STATUS_OK);
        assert_int_equal(put(&w.c, "b", &lease, 64, 1), STATUS_OK);
        assert_int_equal(put(&w.c, "c", &lease, 128, 1), STATUS_OK);
        assert_int_equal(put(&w.c, "d", &lease, 192, 1), STATUS_LIMIT);
        assert_int_equal(fixture_fact(&f, "leases.used_bytes"), 192);
        lease_clear(&lease);
        writer_close(&w);
        writer_close(&admin);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_grant),
                UNIT_TEST(test_sizes),
                UNIT_TEST(test_refused),
                UNIT_TEST(test_limits),
                UNIT_TEST(test_limits_at_once),
                UNIT_TEST(test_blank),
                UNIT_TEST(test_publish),
                UNIT_TEST(test_replace),
                UNIT_TEST(test_publish_refused),
                UNIT_TEST(test_create_and_seal),
                UNIT_TEST(test_pins),
                UNIT_TEST(test_quota),
        };

        return cmocka_run_group_tests_name("store-lease", tests, NULL, NULL);
}
