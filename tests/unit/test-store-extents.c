/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the index says of zeros, as objects are sealed, looked at in idle time, truncated and asked for; and that none
 * of it changes what is charged, or what the files take.
 */
#include "store-fixture.h"

#include "client/lib/extents.h"
#include "daemon/memory/backend.h"

/* The list of the object, as a reader has it. NULL: none. */
static Extents *look_extents(const Client *c, const char *key, Lookup *found)
{
        Extents *extents = NULL;

        assert_int_equal(client_look(c, key, found), LOOKUP_FOUND);
        assert_int_equal(extents_read(c->space, found->slot, &found->copy, &extents), 0);
        return extents;
}

typedef struct Expected {
        uint64_t offset_bytes;
        bool is_zero;                /* from there on */
} Expected;

/* Runs one after the other up to @size_bytes; ends with an offset of @size_bytes. */
static void assert_runs(const Client *c, const char *key, uint64_t size_bytes, const Expected *expected)
{
        Lookup found;
        Extents *extents = look_extents(c, key, &found);
        uint64_t offset = 0;

        for (; offset < size_bytes; expected++) {
                bool is_zero;
                uint64_t n = extents_run(extents, offset, size_bytes - offset, &is_zero);

                assert_int_equal(offset, expected->offset_bytes);
                assert_int_equal(is_zero, expected->is_zero);
                offset += n;
        }
        assert_int_equal(expected->offset_bytes, size_bytes);
        extents_free(extents);
}

static void write_at(const Op *op, uint64_t offset, uint64_t n_bytes, int byte)
{
        char *bytes = malloc(n_bytes);

        assert_non_null(bytes);
        memset(bytes, byte, n_bytes);
        assert_int_equal(pwrite(op->op.fd, bytes, n_bytes, (off_t)offset), n_bytes);
        free(bytes);
}

static uint64_t file_bytes(const Op *op)
{
        struct stat st;

        assert_int_equal(fstat(op->op.fd, &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

static void test_seal(void **state)
{
        const uint64_t n = 5 * MIB + 5;
        Lookup found;
        Fixture f;
        Client c;
        Op op;

        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");

        /* Sparse: pages 1 and 3 are data. */
        assert_int_equal(client_create(&c, &op, "sparse", n, FOLIO_SPARSE), STATUS_OK);
        write_at(&op, PAGE_BYTES, 1, 'x');
        write_at(&op, 3 * PAGE_BYTES + 5, PAGE_BYTES - 5, 'x');
        assert_int_equal(client_look(&c, "sparse", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.flags & LAYOUT_FLAG_ZEROS, 0);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_runs(&c, "sparse", n, (Expected[]){ { 0, true }, { PAGE_BYTES, false }, { 2 * PAGE_BYTES, true },
                                                   { 3 * PAGE_BYTES, false }, { 4 * PAGE_BYTES, true }, { n, false } });
        assert_int_equal(client_look(&c, "sparse", &found), LOOKUP_FOUND);
        assert_true(found.copy.flags & LAYOUT_FLAG_HOLES);
        assert_int_equal(found.copy.allocated_pages, 2);
        fixture_settle(&f);
        assert_int_equal(file_bytes(&op), 2 * PAGE_BYTES);
        op_clear(&op);

        /* Reserved and not written: zeros, but no holes. */
        assert_int_equal(client_create(&c, &op, "blank", n, 0), STATUS_OK);
        write_at(&op, 2 * MIB, MIB, 'x');
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        fixture_settle(&f);
        assert_runs(&c, "blank", n, (Expected[]){ { 0, true }, { 2 * MIB, false }, { 3 * MIB, true }, { n, false } });
        assert_int_equal(client_look(&c, "blank", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.flags & LAYOUT_FLAG_HOLES, 0);
        op_clear(&op);

        /* Written throughout: none. */
        assert_int_equal(client_create(&c, &op, "full", n, 0), STATUS_OK);
        write_at(&op, 0, n, 'x');
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        fixture_settle(&f);
        assert_runs(&c, "full", n, (Expected[]){ { 0, false }, { n, false } });
        assert_int_equal(client_look(&c, "full", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.extents_block, 0);
        op_clear(&op);

        /* Of no bytes, and of one. */
        for (uint64_t size = 0; size < 2; size++) {
                assert_int_equal(client_create(&c, &op, "small", size, FOLIO_SPARSE), STATUS_OK);
                assert_int_equal(client_seal(&c, &op), STATUS_OK);
                assert_runs(&c, "small", size, (Expected[]){ { 0, true }, { size, false } } + (size == 0));
                op_clear(&op);
                assert_int_equal(client_delete(&c, "small", 0), STATUS_OK);
        }
        client_close(&c);
        fixture_deinit(&f);
}

/* A seal that cannot be published leaves the list where a second one finds it. */
static void test_seal_of_a_taken_name(void **state)
{
        Lookup found;
        Fixture f;
        Client c;
        Op op, other;

        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(client_create(&c, &other, "k", MIB, 0), STATUS_OK);
        assert_int_equal(client_create(&c, &op, "k", 3 * MIB, FOLIO_REPLACE | FOLIO_SPARSE), STATUS_OK);
        write_at(&op, MIB, MIB, 'x');
        assert_int_equal(client_seal(&c, &op), STATUS_WRITING);
        assert_int_equal(client_seal(&c, &op), STATUS_WRITING);
        write_at(&other, 0, MIB, 'o');
        assert_int_equal(client_seal(&c, &other), STATUS_OK);
        assert_runs(&c, "k", MIB, (Expected[]){ { 0, false }, { MIB, false } });
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_runs(&c, "k", 3 * MIB,
                    (Expected[]){ { 0, true }, { MIB, false }, { 2 * MIB, true }, { 3 * MIB, false } });
        assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
        op_clear(&op);
        op_clear(&other);
        fixture_settle(&f);
        assert_int_equal(client_delete(&c, "k", 0), STATUS_OK);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 0);
        client_close(&c);
        fixture_deinit(&f);
}

/* What looks like data, and is zeros, is found when there is time; the rest is made huge where that is wanted. */
static void test_idle_scan(void **state)
{
        static const enum folio_huge policies[] = { FOLIO_HUGE_NEVER, FOLIO_HUGE_ALWAYS };
        const uint64_t n = 12 * HUGE_BYTES;

        for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
                StoreConfig config = fixture_config();
                Lookup found;
                Fixture f;
                Client c;
                Op op;

                config.huge = policies[i];
                fixture_init(&f, &config);
                client_open(&f, &c, geteuid(), "default");
                assert_int_equal(client_create(&c, &op, "k", n, 0), STATUS_OK);
                write_at(&op, 0, n, 0);
                write_at(&op, 0, 1, 'a');
                write_at(&op, 6 * HUGE_BYTES - 1, 1, 'z');
                write_at(&op, 6 * HUGE_BYTES, 3 * HUGE_BYTES, 'w');
                assert_int_equal(client_seal(&c, &op), STATUS_OK);
                fixture_settle(&f);
                assert_runs(&c, "k", n, (Expected[]){ { 0, false }, { HUGE_BYTES, true }, { 5 * HUGE_BYTES, false },
                                                      { 9 * HUGE_BYTES, true }, { n, false } });
                assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
                assert_int_equal(found.copy.allocated_pages, n / PAGE_BYTES);
                assert_int_equal(file_bytes(&op), n);
                assert_int_equal(fixture_fact(&f, "memory.used_bytes"), n);
                op_clear(&op);
                client_close(&c);
                fixture_deinit(&f);
        }
}

/* Zeros are not worth a huge page: where nothing was prepared, only what is data is collapsed. */
static void test_zeros_are_not_collapsed(void **state)
{
        StoreConfig config = fixture_config();
        const char *ignored = NULL;
        Backend *backend;
        bool can;
        Lookup found;
        Fixture f;
        Client c;
        Op op;

        assert_int_equal(backend_memfd_new(FOLIO_HUGE_ALWAYS, &backend, &ignored), 0);
        can = backend->capabilities & BACKEND_COLLAPSIBLE && !(backend->capabilities & BACKEND_HUGE_AT_ALLOCATION);
        backend_free(backend);
        if (!can)
                skip();
        config.huge = FOLIO_HUGE_ALWAYS;
        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(client_create(&c, &op, "k", 8 * HUGE_BYTES, FOLIO_SPARSE), STATUS_OK);
        write_at(&op, HUGE_BYTES, HUGE_BYTES, 'x');
        write_at(&op, 3 * HUGE_BYTES, 2 * HUGE_BYTES, 0); /* data to the kernel */
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        fixture_settle(&f);
        assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
        assert_int_equal(fixture_fact(&f, "collapse.done") + fixture_fact(&f, "collapse.failed") > 0, 1);
        if (fixture_fact(&f, "collapse.failed") == 0) {
                assert_int_equal(fixture_fact(&f, "collapse.done"), 1);
                assert_int_equal(found.copy.huge_folios, 1);
        }
        assert_runs(&c, "k", 8 * HUGE_BYTES,
                    (Expected[]){ { 0, true }, { HUGE_BYTES, false }, { 2 * HUGE_BYTES, true },
                                  { 8 * HUGE_BYTES, false } });
        op_clear(&op);
        client_close(&c);
        fixture_deinit(&f);
}

/* The object goes, and the store ends, at any moment of the scan. */
static void test_gone_meanwhile(void **state)
{
        Fixture f;
        Client c;
        Op op;

        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        for (unsigned turns = 0; turns < 12; turns++) {
                uint32_t slot;

                assert_int_equal(client_create(&c, &op, "k", 32 * MIB, 0), STATUS_OK);
                write_at(&op, 0, 32 * MIB, 0);
                slot = op.op.slot;
                if (turns % 2)
                        client_pin(&c, slot, 1);
                assert_int_equal(client_seal(&c, &op), STATUS_OK);
                op_clear(&op);
                for (unsigned i = 0; i < turns / 2; i++) {
                        if (worker_pool_n_pending(f.workers) > 0)
                                fixture_turn(&f);
                }
                assert_int_equal(client_delete(&c, "k", 0), STATUS_OK);
                if (turns % 2)
                        client_pin(&c, slot, -1);
                fixture_settle(&f);
                fixture_settle(&f);
                assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 0);
                assert_int_equal(fixture_fact(&f, "objects.count"), 0);
        }
        assert_int_equal(client_create(&c, &op, "k", 32 * MIB, 0), STATUS_OK);
        write_at(&op, 0, 32 * MIB, 0);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        op_clear(&op);
        client_close(&c);
        fixture_deinit(&f);
}

/* --- mutable objects ---------------------------------------------------------------------------------------------- */

static Status create_mutable(Client *c, Op *op, const char *key, uint64_t n_bytes, uint64_t capacity_bytes,
                             uint32_t flags)
{
        *op = (Op){ .item = { .key = key_of(key), .size_bytes = n_bytes, .capacity_bytes = capacity_bytes,
                              .flags = FOLIO_MUTABLE | flags } };
        return op_run(c, op, VERB_CREATE);
}

/* Asks for the region, to read; what is known after that is new. */
static void ask_region(Client *c, const Op *object, uint32_t flags)
{
        Op op;

        assert_int_equal(client_by_slot(c, &op, VERB_REGION, object, flags), STATUS_OK);
        assert_true(op.op.fd >= 0);
        assert_int_equal(op.op.offset_bytes, 0);
        op_clear(&op);
}

static void test_mutable_and_sparse(void **state)
{
        const uint64_t capacity = 16 * MIB;
        uint64_t charged;
        Fixture f;
        Client c;
        Op op;

        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(create_mutable(&c, &op, "k", 4 * MIB, capacity, FOLIO_SPARSE), STATUS_OK);
        charged = fixture_fact(&f, "memory.used_bytes");
        assert_runs(&c, "k", 4 * MIB, (Expected[]){ { 0, true }, { 4 * MIB, false } });
        /* What is written is known when somebody asks for the region to read it; not for one that writes. */
        write_at(&op, MIB, 8192, 'x');
        ask_region(&c, &op, PROTO_ITEM_WRITABLE);
        assert_runs(&c, "k", 4 * MIB, (Expected[]){ { 0, true }, { 4 * MIB, false } });
        ask_region(&c, &op, 0);
        assert_runs(&c, "k", 4 * MIB,
                    (Expected[]){ { 0, true }, { MIB, false }, { MIB + 8192, true }, { 4 * MIB, false } });
        /* So much that a worker looks; operations on the object come after it. */
        write_at(&op, 2 * MIB, MIB, 'y');
        ask_region(&c, &op, 0);
        assert_runs(&c, "k", 4 * MIB,
                    (Expected[]){ { 0, true }, { MIB, false }, { MIB + 8192, true }, { 2 * MIB, false },
                                  { 3 * MIB, true }, { 4 * MIB, false } });
        /* Shorter, longer, to the capacity, and empty. */
        assert_int_equal(client_truncate(&c, "k", 2 * MIB + PAGE_BYTES), STATUS_OK);
        assert_runs(&c, "k", 2 * MIB + PAGE_BYTES,
                    (Expected[]){ { 0, true }, { MIB, false }, { MIB + 8192, true }, { 2 * MIB, false },
                                  { 2 * MIB + PAGE_BYTES, false } });
        assert_int_equal(client_truncate(&c, "k", capacity), STATUS_OK);
        assert_runs(&c, "k", capacity,
                    (Expected[]){ { 0, true }, { MIB, false }, { MIB + 8192, true }, { 2 * MIB, false },
                                  { 2 * MIB + PAGE_BYTES, true }, { capacity, false } });
        assert_int_equal(client_truncate(&c, "k", 0), STATUS_OK);
        assert_int_equal(client_truncate(&c, "k", capacity), STATUS_OK);
        assert_runs(&c, "k", capacity, (Expected[]){ { 0, true }, { capacity, false } });
        assert_int_equal(file_bytes(&op), 0);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), charged);
        /* Written throughout: no list is left. */
        write_at(&op, 0, capacity, 'w');
        ask_region(&c, &op, 0);
        assert_runs(&c, "k", capacity, (Expected[]){ { 0, false }, { capacity, false } });
        op_clear(&op);
        client_close(&c);
        fixture_deinit(&f);
}

/* Every page is there and paid for, and anybody may write: nothing is said. */
static void test_mutable_and_whole(void **state)
{
        Lookup found;
        Fixture f;
        Client c;
        Op op;

        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(create_mutable(&c, &op, "k", 4 * MIB, 8 * MIB, 0), STATUS_OK);
        ask_region(&c, &op, 0);
        assert_int_equal(client_truncate(&c, "k", 6 * MIB), STATUS_OK);
        assert_int_equal(client_truncate(&c, "k", 100), STATUS_OK);
        ask_region(&c, &op, 0);
        fixture_settle(&f);
        assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.flags & LAYOUT_FLAG_ZEROS, 0);
        assert_int_equal(found.copy.extents_block, 0);
        op_clear(&op);
        client_close(&c);
        fixture_deinit(&f);
}

/* Deleted while a worker looks for its holes: who asked has a pin, and gets the region. */
static void test_deleted_while_refreshing(void **state)
{
        Fixture f;
        Client c;
        Op op, region, late;

        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        for (unsigned round = 0; round < 4; round++) {
                assert_int_equal(create_mutable(&c, &op, "k", 4 * MIB, 0, FOLIO_SPARSE), STATUS_OK);
                write_at(&op, 0, MIB, 'x');
                client_pin(&c, op.op.slot, 1);
                region = (Op){ .item = { .flags = PROTO_ITEM_BY_SLOT, .slot = op.op.slot,
                                         .generation = op.op.generation } };
                op_begin(&c, &region, VERB_REGION);
                /* What comes later waits for its turn. */
                if (round % 2) {
                        assert_int_equal(create_mutable(&c, &late, "k", 1, 0, FOLIO_SPARSE), STATUS_EXISTS);
                        op_clear(&late);
                }
                assert_int_equal(client_delete(&c, "k", 0), STATUS_OK);
                op_wait(&f, &region);
                assert_true(region.op.status == STATUS_OK || region.op.status == STATUS_DELETED);
                op_clear(&region);
                client_pin(&c, op.op.slot, -1);
                op_clear(&op);
                fixture_settle(&f);
                fixture_settle(&f);
                assert_int_equal(fixture_fact(&f, "objects.count"), 0);
                assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 0);
        }
        client_close(&c);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_seal),
                UNIT_TEST(test_seal_of_a_taken_name),
                UNIT_TEST(test_idle_scan),
                UNIT_TEST(test_zeros_are_not_collapsed),
                UNIT_TEST(test_gone_meanwhile),
                UNIT_TEST(test_mutable_and_sparse),
                UNIT_TEST(test_mutable_and_whole),
                UNIT_TEST(test_deleted_while_refreshing),
        };

        return cmocka_run_group_tests_name("store-extents", tests, NULL, NULL);
}
