/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs on objects, one client and several: what is there after each, and that nothing is left at the end. More than
 * 600 lines, as there are that many verbs, and each story is about several of them.
 */
#include "store-fixture.h"

static void test_put_and_get(void **state)
{
        static const size_t sizes[] = { 0, 1, 63, 64, 65, 4096, 65536, 65537, 1 << 20 };
        char *bytes = calloc(1, (1 << 20) + 1);
        Lookup found;
        Fixture f;
        Client c;

        (void)state;
        for (size_t i = 0; i < 1 << 20; i++)
                bytes[i] = (char)(i * 31 >> 3);
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_true(store_is_empty(f.store));
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                char key[16];

                snprintf(key, sizeof(key), "k%zu", i);
                assert_int_equal(client_put(&c, key, bytes, sizes[i], 0), STATUS_OK);
                assert_content(&c, key, bytes, sizes[i]);
                assert_int_equal(client_look(&c, key, &found), LOOKUP_FOUND);
                assert_int_equal(found.copy.state, LAYOUT_SLOT_SEALED);
                assert_int_equal(found.copy.placement, FOLIO_PLACEMENT_PACKED);
                assert_int_equal(found.copy.protection, FOLIO_PROTECTION_KERNEL);
                assert_int_equal(found.copy.owner_uid, geteuid());
                assert_int_equal(client_put(&c, key, bytes, sizes[i], 0), STATUS_EXISTS);
        }
        assert_int_equal(client_put(&c, "k", bytes, (1 << 20) + 1, 0), STATUS_TOO_LARGE);
        assert_false(store_is_empty(f.store));
        assert_int_equal(fixture_fact(&f, "objects.count"), ARRAY_SIZE(sizes));
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                char key[16];

                snprintf(key, sizeof(key), "k%zu", i);
                assert_int_equal(client_delete(&c, key, 0), STATUS_OK);
                assert_int_equal(client_reason(&c, key), FOLIO_EVENT_DELETED);
        }
        fixture_settle(&f);
        assert_true(store_is_empty(f.store));
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 0);
        client_close(&c);
        fixture_deinit(&f);
        free(bytes);
}

/* Texts go along, and what makes no sense is refused before anything is done. */
static void test_options(void **state)
{
        static char long_text[FOLIO_METADATA_BYTES_MAX + 1];
        static const struct {
                ProtoItem item;
                Status put, create;
        } rows[] = {
                { { .flags = FOLIO_MUTABLE }, STATUS_INVALID, STATUS_OK },
                { { .flags = 1u << 20 }, STATUS_INVALID, STATUS_INVALID },
                { { .flags = PROTO_ITEM_BY_SLOT }, STATUS_INVALID, STATUS_INVALID },
                { { .lifetime = 3 }, STATUS_INVALID, STATUS_INVALID },
                { { .lifetime = FOLIO_UNTIL_TIME }, STATUS_INVALID, STATUS_INVALID },
                { { .expires_ns = 5 }, STATUS_INVALID, STATUS_INVALID },
                { { .flags = FOLIO_STREAM | FOLIO_MUTABLE }, STATUS_INVALID, STATUS_INVALID },
                { { .flags = FOLIO_STREAM, .size_bytes = 1 }, STATUS_INVALID, STATUS_INVALID },
                { { .capacity_bytes = 1 }, STATUS_INVALID, STATUS_INVALID },
                { { .flags = FOLIO_MUTABLE, .size_bytes = 2, .capacity_bytes = 1 }, STATUS_INVALID, STATUS_INVALID },
                { { .metadata = { long_text, FOLIO_METADATA_BYTES_MAX } }, STATUS_OK, STATUS_OK },
                { { .metadata = { long_text, FOLIO_METADATA_BYTES_MAX + 1 } }, STATUS_TOO_LARGE, STATUS_TOO_LARGE },
                { { .content_type = { long_text, FOLIO_CONTENT_TYPE_BYTES_MAX } }, STATUS_OK, STATUS_OK },
                { { .content_type = { long_text, FOLIO_CONTENT_TYPE_BYTES_MAX + 1 } }, STATUS_TOO_LARGE,
                        STATUS_TOO_LARGE },
                { { .staging_offset = 4 * MIB, .size_bytes = 0 }, STATUS_OK, STATUS_OK },
                { { .staging_offset = 4 * MIB, .size_bytes = 1 }, STATUS_RANGE, STATUS_OK },
                { { .staging_offset = UINT64_MAX, .size_bytes = 2 }, STATUS_RANGE, STATUS_OK },
        };
        static const struct {
                const char *bytes;
                size_t n_bytes;
                Status status;
        } keys[] = {
                { "", 0, STATUS_INVALID }, { "a\0b", 3, STATUS_INVALID }, { "k", 1, STATUS_OK },
                { long_text, 256, STATUS_INVALID },
        };
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
                Op op = { .item = rows[i / 2].item };

                op.item.key = key_of("k");
                assert_int_equal(op_run_clear(&c, &op, i % 2 ? VERB_CREATE : VERB_PUT),
                                 i % 2 ? rows[i / 2].create : rows[i / 2].put);
                (void)client_delete(&c, "k", PROTO_ITEM_IF_EXISTS);
        }
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                Op op = { .item = { .key = { keys[i].bytes, keys[i].n_bytes } } };

                assert_int_equal(op_run_clear(&c, &op, VERB_PUT), keys[i].status);
        }
        memset(long_text, 'm', sizeof(long_text));
        {
                Op op = { .item = { .key = key_of("texts"), .metadata = { long_text, 1000 },
                        .content_type = key_of("a/b") } };
                char content_type[255], metadata[FOLIO_METADATA_BYTES_MAX];
                Lookup found;

                assert_int_equal(op_run_clear(&c, &op, VERB_PUT), STATUS_OK);
                assert_int_equal(client_look(&c, "texts", &found), LOOKUP_FOUND);
                assert_true(lookup_read_texts(c.space, found.slot, &found.copy, NULL, content_type, metadata));
                assert_int_equal(found.copy.metadata_bytes, 1000);
                assert_memory_equal(metadata, long_text, 1000);
                assert_memory_equal(content_type, "a/b", 3);
        }
        client_close(&c);
        fixture_deinit(&f);
}

static void test_create_write_seal(void **state)
{
        static const uint64_t sizes[] = { 0, 1, 4096, 5000, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 9 * MIB };
        Lookup found;
        Fixture f;
        Client c;
        Op op;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                uint64_t n = sizes[i];
                struct stat st;

                assert_int_equal(client_create(&c, &op, "own", n, 0), STATUS_OK);
                assert_int_equal(op.op.placement, FOLIO_PLACEMENT_OWN);
                assert_true(op.op.region_bytes >= MAX(n, 1));
                assert_true(op.op.region_bytes < MAX(n, 1) + PAGE_BYTES);
                /* Every byte can be written: it is there. */
                assert_int_equal(fstat(op.op.fd, &st), 0);
                assert_int_equal((uint64_t)st.st_blocks * 512, op.op.region_bytes);
                assert_int_equal(client_look(&c, "own", &found), LOOKUP_FOUND);
                assert_int_equal(found.copy.state, LAYOUT_SLOT_WRITING);
                assert_int_equal(fixture_fact(&f, "memory.unsealed_bytes"), op.op.region_bytes);
                if (n > 0)
                        assert_int_equal(pwrite(op.op.fd, "e", 1, (off_t)n - 1), 1);
                assert_int_equal(client_seal(&c, &op), STATUS_OK);
                assert_int_equal(pwrite(op.op.fd, "f", 1, 0), -1);
                assert_int_equal(errno, EPERM);
                assert_int_equal(client_look(&c, "own", &found), LOOKUP_FOUND);
                assert_int_equal(found.copy.state, LAYOUT_SLOT_SEALED);
                assert_int_equal(found.copy.protection, FOLIO_PROTECTION_KERNEL);
                assert_int_equal(found.copy.size_bytes, n);
                assert_int_equal((uint64_t)found.copy.allocated_pages * PAGE_BYTES, op.op.region_bytes);
                assert_int_equal(found.copy.flags & LAYOUT_FLAG_HOLES, 0);
                assert_int_equal(fixture_fact(&f, "memory.unsealed_bytes"), 0);
                assert_int_equal(client_seal(&c, &op), STATUS_STATE);
                assert_int_equal(client_delete(&c, "own", 0), STATUS_OK);
                assert_int_equal(client_seal(&c, &op), STATUS_DELETED);
                op_clear(&op);
        }
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 0);
        client_close(&c);
        fixture_deinit(&f);
}

static void test_create_staged(void **state)
{
        char *bytes = calloc(1, MIB);
        Fixture f;
        Client c;
        Op op, seal;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        for (size_t n = 100; n <= MIB; n += MIB - 100) {
                assert_int_equal(client_create(&c, &op, "k", n, PROTO_ITEM_STAGED), STATUS_OK);
                assert_int_equal(op.op.placement, FOLIO_PLACEMENT_PACKED);
                assert_int_equal(op.op.fd, -1);
                memset(bytes, 'x', n);
                client_stage(&c, 1000, bytes, n);
                assert_int_equal(client_by_slot(&c, &seal, VERB_SEAL, &op, 0), STATUS_INVALID);
                op_clear(&seal);
                seal = (Op){ .item = { .flags = PROTO_ITEM_BY_SLOT | PROTO_ITEM_STAGED, .slot = op.op.slot,
                                       .generation = op.op.generation, .staging_offset = 4 * MIB } };
                assert_int_equal(op_run_clear(&c, &seal, VERB_SEAL), STATUS_RANGE);
                seal.item.staging_offset = 1000;
                assert_int_equal(op_run_clear(&c, &seal, VERB_SEAL), STATUS_OK);
                assert_content(&c, "k", bytes, n);
                assert_int_equal(client_delete(&c, "k", 0), STATUS_OK);
                op_clear(&op);
        }
        client_close(&c);
        fixture_deinit(&f);
        free(bytes);
}

/* A mapping that is left makes the seal an outcome, and changes nothing. */
static void test_seal_while_mapped(void **state)
{
        Fixture f;
        Client c;
        Op op, seal;
        void *map;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(client_create(&c, &op, "k", 3 * MIB, 0), STATUS_OK);
        map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, op.op.fd, 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        assert_int_equal(client_by_slot(&c, &seal, VERB_SEAL, &op, 0), STATUS_MAPPED);
        op_clear(&seal);
        memcpy(map, "still", 5);
        assert_int_equal(munmap(map, 4096), 0);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        op_clear(&op);
        client_close(&c);
        fixture_deinit(&f);
}

static void test_replace(void **state)
{
        Lookup before, after;
        char bytes[3];
        Fixture f;
        Client c, reader;
        Op op;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        client_open(&f, &reader, geteuid(), "default");
        assert_int_equal(client_put_text(&c, "k", "one", FOLIO_REPLACE), STATUS_OK);
        assert_int_equal(client_look(&c, "k", &before), LOOKUP_FOUND);
        client_pin(&reader, before.slot, 1);
        assert_int_equal(client_put_text(&c, "k", "two", FOLIO_REPLACE), STATUS_OK);
        assert_int_equal(client_look(&c, "k", &after), LOOKUP_FOUND);
        assert_true(after.copy.generation > before.copy.generation);
        assert_text(&c, "k", "two");
        /* Who holds the old one keeps it, and can ask for its region still; who does not cannot. */
        assert_int_equal(fixture_fact(&f, "held.count"), 1);
        assert_int_equal(client_read_slot(&reader, before.slot, before.copy.generation, bytes, 3, 0), STATUS_OK);
        assert_memory_equal(bytes, "one", 3);
        assert_int_equal(client_read_slot(&c, before.slot, before.copy.generation, bytes, 3, 0), STATUS_DELETED);
        client_pin(&reader, before.slot, -1);
        op = (Op){ .item = { .flags = PROTO_ITEM_BY_SLOT, .slot = before.slot, .generation = before.copy.generation } };
        assert_int_equal(op_run_clear(&reader, &op, VERB_RELEASE), STATUS_OK);
        assert_int_equal(fixture_fact(&f, "held.count"), 0);
        assert_int_equal(op_run_clear(&reader, &op, VERB_RELEASE), STATUS_OK);

        /* A created one replaces when it is sealed, not before. */
        assert_int_equal(client_create(&c, &op, "k", 5, FOLIO_REPLACE), STATUS_OK);
        assert_text(&c, "k", "two");
        assert_int_equal(pwrite(op.op.fd, "three", 5, 0), 5);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_text(&c, "k", "three");
        op_clear(&op);
        /* Also where there is nothing to replace; and two at once: the later seal wins. */
        assert_int_equal(client_create(&c, &op, "new", 5, FOLIO_REPLACE), STATUS_OK);
        assert_false(client_has(&c, "new"));
        assert_int_equal(client_put_text(&reader, "new", "other", 0), STATUS_OK);
        assert_int_equal(client_look(&c, "new", &before), LOOKUP_FOUND);
        assert_true(before.copy.generation > op.op.generation);
        assert_int_equal(pwrite(op.op.fd, "first", 5, 0), 5);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_text(&c, "new", "first");
        /* Begun before the other, got after it: D17, generations under a name only grow. */
        assert_int_equal(client_look(&c, "new", &after), LOOKUP_FOUND);
        assert_true(after.copy.generation > before.copy.generation);
        op_clear(&op);
        client_close(&reader);
        client_close(&c);
        fixture_deinit(&f);
}

static void test_delete(void **state)
{
        Fixture f;
        Client c, other;
        Op op;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        client_open(&f, &other, geteuid(), "default");
        assert_int_equal(client_delete(&c, "k", 0), STATUS_NOT_FOUND);
        assert_int_equal(client_delete(&c, "k", PROTO_ITEM_IF_EXISTS), STATUS_OK);
        assert_int_equal(client_put_text(&c, "k", "x", 0), STATUS_OK);
        assert_int_equal(client_delete(&c, "k", 0), STATUS_OK);
        assert_int_equal(client_delete(&c, "k", 0), STATUS_DELETED);

        assert_int_equal(client_create(&c, &op, "k", 100, 0), STATUS_OK);
        assert_int_equal(client_delete(&other, "k", 0), STATUS_WRITING);
        assert_int_equal(client_put_text(&other, "k", "x", 0), STATUS_EXISTS);
        assert_int_equal(client_put_text(&other, "k", "x", FOLIO_REPLACE), STATUS_WRITING);
        assert_int_equal(client_seal(&other, &op), STATUS_ACCESS);
        assert_int_equal(client_delete(&c, "k", 0), STATUS_OK);
        assert_false(client_has(&c, "k"));
        op_clear(&op);
        client_close(&other);
        client_close(&c);
        fixture_deinit(&f);
}

/* The name is free at once, the bytes stay for who holds them, are charged and counted, and then go. */
static void test_held(void **state)
{
        char bytes[6];
        Lookup found;
        Fixture f;
        Client c, reader;
        uint64_t used;
        Op op;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        client_open(&f, &reader, geteuid(), "default");
        assert_int_equal(client_create(&c, &op, "big", 4 * MIB, 0), STATUS_OK);
        assert_int_equal(pwrite(op.op.fd, "whole", 6, 0), 6);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        op_clear(&op);
        assert_int_equal(client_look(&c, "big", &found), LOOKUP_FOUND);
        client_pin(&reader, found.slot, 2);
        used = fixture_fact(&f, "memory.used_bytes");
        assert_int_equal(client_delete(&c, "big", 0), STATUS_OK);
        assert_false(client_has(&c, "big"));
        assert_int_equal(client_put_text(&c, "big", "again", 0), STATUS_OK);
        assert_int_equal(fixture_fact(&f, "held.count"), 1);
        assert_int_equal(fixture_fact(&f, "memory.held_bytes"), 4 * MIB);
        assert_true(fixture_fact(&f, "memory.used_bytes") >= used);
        client_pin(&reader, found.slot, -1);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "held.count"), 1);
        assert_int_equal(client_read_slot(&reader, found.slot, found.copy.generation, bytes, 6, 0), STATUS_OK);
        assert_string_equal(bytes, "whole");
        /* The last pin dies with its connection. */
        client_close(&reader);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "held.count"), 0);
        assert_int_equal(fixture_fact(&f, "memory.held_bytes"), 0);
        assert_text(&c, "big", "again");
        client_close(&c);
        fixture_deinit(&f);
}

/* C13: the bytes of a packed object are not used again while somebody holds it. */
static void test_c13_held_chunk_is_not_reused(void **state)
{
        char text[80], seen[80];
        Lookup found;
        Fixture f;
        Client c, reader;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        client_open(&f, &reader, geteuid(), "default");
        memset(text, 'a', sizeof(text));
        assert_int_equal(client_put(&c, "k", text, sizeof(text), 0), STATUS_OK);
        assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
        client_pin(&reader, found.slot, 1);
        assert_int_equal(client_delete(&c, "k", 0), STATUS_OK);
        memset(text, 'b', sizeof(text));
        for (int i = 0; i < 1000; i++) {
                char key[16];

                snprintf(key, sizeof(key), "n%d", i);
                assert_int_equal(client_put(&c, key, text, sizeof(text), 0), STATUS_OK);
        }
        assert_int_equal(client_read_slot(&reader, found.slot, found.copy.generation, seen, sizeof(seen), 0),
                         STATUS_OK);
        for (size_t i = 0; i < sizeof(seen); i++)
                assert_int_equal(seen[i], 'a');
        client_close(&reader);
        client_close(&c);
        fixture_deinit(&f);
}

static void test_expiry(void **state)
{
        Op op = { .item = { .key = key_of("k"), .lifetime = FOLIO_UNTIL_TIME, .expires_ns = 2000 } };
        Op later = { .item = { .key = key_of("later"), .lifetime = FOLIO_UNTIL_TIME, .expires_ns = 3000 } };
        Op again = { .item = { .key = key_of("k"), .lifetime = FOLIO_UNTIL_TIME, .expires_ns = 2001 } };
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(store_next_expiry_ns(f.store), UINT64_MAX);
        assert_int_equal(op_run_clear(&c, &later, VERB_PUT), STATUS_OK);
        assert_int_equal(op_run_clear(&c, &op, VERB_PUT), STATUS_OK);
        assert_int_equal(store_next_expiry_ns(f.store), 2000);
        store_expire(f.store);
        assert_true(client_has(&c, "k"));
        fixture_now = 2000;
        /* A reader goes by the time, and does not wait for the daemon. */
        assert_int_equal(client_reason(&c, "k"), FOLIO_EVENT_EXPIRED);
        assert_int_equal(fixture_fact(&f, "objects.count"), 2);
        /* Nor does who puts another of the name. */
        assert_int_equal(op_run_clear(&c, &again, VERB_PUT), STATUS_OK);
        assert_true(client_has(&c, "k"));
        assert_int_equal(fixture_fact(&f, "objects.count"), 2);
        fixture_now = 2001;
        store_expire(f.store);
        assert_int_equal(fixture_fact(&f, "objects.count"), 1);
        assert_int_equal(client_reason(&c, "k"), FOLIO_EVENT_EXPIRED);
        assert_int_equal(client_delete(&c, "k", 0), STATUS_EXPIRED);
        assert_int_equal(store_next_expiry_ns(f.store), 3000);
        assert_int_equal(client_delete(&c, "later", 0), STATUS_OK);
        assert_int_equal(store_next_expiry_ns(f.store), UINT64_MAX);
        client_close(&c);
        fixture_deinit(&f);
}

/* A13: what was never sealed goes with its connection, and so does what is with-creator; nothing else does. */
static void test_a13_hangup(void **state)
{
        Op with = { .item = { .key = key_of("with"), .lifetime = FOLIO_WITH_CREATOR, .size_bytes = 3 } };
        Op op, queued[3];
        Fixture f;
        Client c, other;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &other, geteuid(), "default");
        for (int round = 0; round < 4; round++) {
                client_open(&f, &c, geteuid(), "default");
                assert_int_equal(client_create(&c, &op, "unsealed", 40 * MIB, 0), STATUS_OK);
                op_clear(&op);
                assert_int_equal(op_run_clear(&c, &with, VERB_PUT), STATUS_OK);
                assert_int_equal(client_put_text(&c, "stays", "x", FOLIO_REPLACE), STATUS_OK);
                /* And what is under way: it ends, one way or the other. */
                for (int i = 0; i < 3; i++) {
                        queued[i] = (Op){ .item = { .key = key_of("more"), .size_bytes = 20 * MIB } };
                        op_begin(&c, &queued[i], VERB_CREATE);
                }
                client_close(&c);
                for (int i = 0; i < 3; i++) {
                        op_wait(&f, &queued[i]);
                        assert_int_equal(queued[i].op.status, STATUS_CANCELLED);
                        op_clear(&queued[i]);
                }
                fixture_settle(&f);
                assert_int_equal(client_reason(&other, "unsealed"), LAYOUT_GRAVE_WRITER_DIED);
                assert_int_equal(client_reason(&other, "with"), FOLIO_EVENT_DELETED);
                assert_false(client_has(&other, "more"));
                assert_text(&other, "stays", "x");
                assert_int_equal(fixture_fact(&f, "memory.unsealed_bytes"), 0);
                assert_int_equal(fixture_fact(&f, "memory.used_bytes"), fixture_fact(&f, "packed.region_bytes"));
        }
        client_close(&other);
        fixture_deinit(&f);
}

/* Requests about one object are carried out in order, also where some of them take a worker. */
static void test_order(void **state)
{
        enum { N = 6 };
        Op ops[N] = {
                { .item = { .key = key_of("k"), .size_bytes = MIB } },
                { .item = { .key = key_of("k"), .flags = 0 } },
                { .item = { .key = key_of("k"), .size_bytes = 5 } },
                { .item = { .key = key_of("k"), .size_bytes = MIB, .flags = FOLIO_REPLACE } },
                { .item = { .key = key_of("k"), .size_bytes = 6 } },
                { .item = { .key = key_of("k"), .size_bytes = 7, .flags = FOLIO_REPLACE } },
        };
        static const ProtoVerb verbs[N] = { VERB_PUT, VERB_DELETE, VERB_PUT, VERB_PUT, VERB_PUT, VERB_PUT };
        static const Status expected[N] = { STATUS_OK, STATUS_OK, STATUS_OK, STATUS_OK, STATUS_EXISTS, STATUS_OK };
        Lookup found;
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        for (int i = 0; i < N; i++)
                op_begin(&c, &ops[i], verbs[i]);
        for (int i = 0; i < N; i++) {
                op_wait(&f, &ops[i]);
                assert_int_equal(ops[i].op.status, expected[i]);
                if (i > 0 && expected[i] == STATUS_OK && verbs[i] == VERB_PUT)
                        assert_true(ops[i].op.generation > ops[0].op.generation);
                op_clear(&ops[i]);
        }
        assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.size_bytes, 7);
        client_close(&c);
        fixture_deinit(&f);
}

/* C15: many objects of two connections that end at once, in any order, with names made again meanwhile. */
static void test_c15_hangup_of_many(void **state)
{
        enum { N = 3000 };
        Fixture f;
        Client a, b;
        char key[16];

        (void)state;
        fixture_init(&f, NULL);
        for (int round = 0; round < 3; round++) {
                client_open(&f, &a, geteuid(), "default");
                client_open(&f, &b, geteuid(), "default");
                for (int i = 0; i < N; i++) {
                        Op op = { .item = { .key = { key, (size_t)snprintf(key, sizeof(key), "%d", i) },
                                            .lifetime = FOLIO_WITH_CREATOR, .size_bytes = (uint64_t)i % 300,
                                            .flags = FOLIO_REPLACE } };
                        Lookup found;

                        assert_int_equal(op_run_clear(&a, &op, VERB_PUT), STATUS_OK);
                        assert_int_equal(client_look(&a, key, &found), LOOKUP_FOUND);
                        if (i % 3 == 0)
                                client_pin(&b, found.slot, 1);
                        if (i % 2 == 0) {
                                assert_int_equal(client_delete(&a, key, 0), STATUS_OK);
                                op.item.lifetime = i % 4 ? FOLIO_UNTIL_DELETED : FOLIO_WITH_CREATOR;
                                assert_int_equal(op_run_clear(&b, &op, VERB_PUT), STATUS_OK);
                        }
                }
                client_close(&a);
                client_close(&b);
                fixture_settle(&f);
                assert_int_equal(fixture_fact(&f, "held.count"), 0);
                assert_int_equal(fixture_fact(&f, "objects.count"), N / 4);
        }
        fixture_deinit(&f);
}

static void test_events(void **state)
{
        static const struct {
                uint32_t type;
                const char *key;
        } expected[] = {
                { FOLIO_EVENT_SEALED, "a" }, { FOLIO_EVENT_REPLACED, "a" }, { FOLIO_EVENT_DELETED, "a" },
                { FOLIO_EVENT_SEALED, "m" }, { FOLIO_EVENT_SEALED, "e" }, { FOLIO_EVENT_EXPIRED, "e" },
        };
        Op expiring = { .item = { .key = key_of("e"), .lifetime = FOLIO_UNTIL_TIME, .expires_ns = 1500 } };
        char *detail = NULL;
        uint64_t oldest, count;
        LayoutEvent event;
        Fixture f;
        Client c;
        Op op;
        int fd;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(store_watch(f.store, c.session, c.namespace_id, &fd, &detail), STATUS_OK);
        assert_int_equal(read(fd, &count, sizeof(count)), -1);
        assert_int_equal(client_put_text(&c, "a", "1", 0), STATUS_OK);
        assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
        assert_int_equal(read(fd, &count, sizeof(count)), -1);
        assert_int_equal(client_put_text(&c, "a", "2", FOLIO_REPLACE), STATUS_OK);
        assert_int_equal(client_delete(&c, "a", 0), STATUS_OK);
        assert_int_equal(client_create(&c, &op, "m", 10, FOLIO_MUTABLE), STATUS_OK);
        op_clear(&op);
        /* What was never sealed never was, to a watcher. */
        assert_int_equal(client_create(&c, &op, "w", 10, 0), STATUS_OK);
        op_clear(&op);
        assert_int_equal(client_delete(&c, "w", 0), STATUS_OK);
        assert_int_equal(op_run_clear(&c, &expiring, VERB_PUT), STATUS_OK);
        fixture_now = 1600;
        store_expire(f.store);
        assert_int_equal(lookup_newest_event(c.space), ARRAY_SIZE(expected));
        for (uint64_t i = 0; i < ARRAY_SIZE(expected); i++) {
                assert_int_equal(lookup_read_event(c.space, i + 1, &event, &oldest), LOOKUP_EVENT);
                assert_int_equal(event.type, expected[i].type);
                assert_int_equal(event.key_bytes, 1);
                assert_int_equal(event.key[0], expected[i].key[0]);
        }
        client_close(&c);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_put_and_get),
                UNIT_TEST(test_options),
                UNIT_TEST(test_create_write_seal),
                UNIT_TEST(test_create_staged),
                UNIT_TEST(test_seal_while_mapped),
                UNIT_TEST(test_replace),
                UNIT_TEST(test_delete),
                UNIT_TEST(test_held),
                UNIT_TEST(test_c13_held_chunk_is_not_reused),
                UNIT_TEST(test_expiry),
                UNIT_TEST(test_a13_hangup),
                UNIT_TEST(test_order),
                UNIT_TEST(test_c15_hangup_of_many),
                UNIT_TEST(test_events),
        };

        return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
