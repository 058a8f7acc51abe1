/* SPDX-License-Identifier: Apache-2.0 */
/* What the store takes of memory, refuses, waits for and gives back: budget, quota, truncation, streams, backings. */
#include "store-fixture.h"

static const uint64_t absurd_sizes[] = {
        256 * MIB + 1, UINT64_C(1) << 40, FOLIO_OBJECT_BYTES_MAX, FOLIO_OBJECT_BYTES_MAX + 1, UINT64_C(1) << 62,
        INT64_MAX, UINT64_MAX - 1, UINT64_MAX,
};

/* A07: refused before the first call that would allocate; size 0 works. */
static void test_a07_absurd_sizes(void **state)
{
        Fixture f;
        Client c;
        Op op;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(client_create(&c, &op, "mutable", 10, FOLIO_MUTABLE), STATUS_OK);
        op_clear(&op);
        for (size_t i = 0; i < ARRAY_SIZE(absurd_sizes); i++) {
                static const uint32_t flags[] = { 0, FOLIO_SPARSE, FOLIO_MUTABLE, FOLIO_MUTABLE | FOLIO_SPARSE,
                        PROTO_ITEM_STAGED };
                Op put = { .item = { .key = key_of("k"), .size_bytes = absurd_sizes[i] } };

                for (size_t j = 0; j < ARRAY_SIZE(flags); j++) {
                        Op capacity = { .item = { .key = key_of("k"), .capacity_bytes = absurd_sizes[i],
                                .flags = FOLIO_MUTABLE } };

                        assert_int_equal(client_create(&c, &op, "k", absurd_sizes[i], flags[j]), STATUS_TOO_LARGE);
                        op_clear(&op);
                        assert_int_equal(op_run_clear(&c, &capacity, VERB_CREATE), STATUS_TOO_LARGE);
                }
                assert_int_equal(op_run_clear(&c, &put, VERB_PUT), STATUS_TOO_LARGE);
                assert_int_equal(client_truncate(&c, "mutable", absurd_sizes[i]), STATUS_TOO_LARGE);
        }
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), PAGE_BYTES);
        assert_int_equal(client_create(&c, &op, "k", 0, 0), STATUS_OK);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        op_clear(&op);
        client_close(&c);
        fixture_deinit(&f);
}

static void test_budget(void **state)
{
        StoreConfig config = fixture_config();
        Fixture f;
        Client c;
        Op a, b;

        (void)state;
        config.budget_bytes = 64 * MIB;
        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(client_create(&c, &a, "a", 40 * MIB, 0), STATUS_OK);
        assert_int_equal(client_create(&c, &b, "b", 24 * MIB + 1, 0), STATUS_FULL);
        assert_non_null(strstr(b.op.detail, "67108864"));
        assert_non_null(strstr(b.op.detail, "by 1 objects being written"));
        assert_non_null(strstr(b.op.detail, "raise the budget"));
        op_clear(&b);
        assert_int_equal(client_create(&c, &b, "b", 24 * MIB, 0), STATUS_OK);
        op_clear(&b);
        /* Nothing at all is left now, for small objects either. */
        assert_int_equal(client_put_text(&c, "small", "x", 0), STATUS_FULL);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 64 * MIB);
        /* A05 and A18: what was deleted just now is there for who asks next, though it takes a worker to free it. */
        assert_int_equal(client_delete(&c, "b", 0), STATUS_OK);
        assert_int_equal(client_create(&c, &b, "b", 24 * MIB, 0), STATUS_OK);
        op_clear(&b);
        assert_int_equal(client_delete(&c, "b", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "small", "x", 0), STATUS_OK);
        op_clear(&a);
        /* A budget that is lowered takes nothing away, and refuses what is new. */
        store_set_budget(f.store, 8 * MIB);
        assert_int_equal(client_create(&c, &b, "b", MIB, 0), STATUS_FULL);
        op_clear(&b);
        assert_int_equal(client_create(&c, &b, "b", 9 * MIB, 0), STATUS_TOO_LARGE);
        op_clear(&b);
        store_set_budget(f.store, 256 * MIB);
        assert_int_equal(client_create(&c, &b, "b", 9 * MIB, 0), STATUS_OK);
        op_clear(&b);
        client_close(&c);
        fixture_deinit(&f);
}

/* F04: the last reference to much memory is dropped by a worker, with a holder or without; the loop goes on meanwhile. */
static void test_f04_freeing_is_not_for_the_loop(void **state)
{
        enum { N_BYTES = 24 << 20 };
        Fixture f;
        Client c;
        Op op;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        for (unsigned is_held = 0; is_held < 2; is_held++) {
                assert_int_equal(client_create(&c, &op, "large", N_BYTES, FOLIO_MUTABLE), STATUS_OK);
                if (is_held)
                        client_pin(&c, op.op.slot, 1);
                assert_int_equal(client_delete(&c, "large", 0), STATUS_OK);
                if (is_held) {
                        Op release;

                        assert_int_equal(fixture_fact(&f, "memory.freeing_bytes"), 0);
                        client_pin(&c, op.op.slot, -1);
                        assert_int_equal(client_by_slot(&c, &release, VERB_RELEASE, &op, 0), STATUS_OK);
                        op_clear(&release);
                }
                op_clear(&op);
                /* What a worker has done is taken note of in a later turn, however fast it was. */
                assert_int_equal(fixture_fact(&f, "memory.freeing_bytes"), N_BYTES);
                fixture_settle(&f);
                assert_int_equal(fixture_fact(&f, "memory.freeing_bytes"), 0);
        }
        client_close(&c);
        fixture_deinit(&f);
}

static void test_quota(void **state)
{
        ProtoNamespace settings = { .name = "default", .quota_bytes = 10 * MIB, .quota_objects = 3,
                                    .fields = FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS };
        char *detail = NULL;
        Lookup found;
        Fixture f;
        Client c;
        Op op;

        (void)state;
        fixture_init(&f, NULL);
        assert_int_equal(store_namespace_configure(f.store, &settings, &detail), STATUS_OK);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(client_create(&c, &op, "k", 10 * MIB + 1, 0), STATUS_TOO_LARGE);
        op_clear(&op);
        assert_int_equal(client_create(&c, &op, "k", 10 * MIB, 0), STATUS_OK);
        op_clear(&op);
        assert_int_equal(client_put_text(&c, "small", "x", 0), STATUS_LIMIT);
        assert_int_equal(client_delete(&c, "k", 0), STATUS_OK);
        for (int i = 0; i < 3; i++)
                assert_int_equal(client_put_text(&c, (const char *[]){ "a", "b", "c" }[i], "x", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "d", "x", 0), STATUS_LIMIT);
        /* One that is held counts still. */
        assert_int_equal(client_look(&c, "a", &found), LOOKUP_FOUND);
        client_pin(&c, found.slot, 1);
        assert_int_equal(client_delete(&c, "a", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "d", "x", 0), STATUS_LIMIT);
        client_pin(&c, found.slot, -1);
        store_sweep_held(f.store);
        assert_int_equal(client_put_text(&c, "d", "x", 0), STATUS_OK);
        /* A failed create leaves nothing: the quota is as it was. */
        assert_int_equal(fixture_fact(&f, "objects.count"), 3);
        client_close(&c);
        fixture_deinit(&f);
}

/* Many small ones: regions are made on the way, and all of it comes back. */
static void test_packed_regions(void **state)
{
        enum { N = 600, N_BYTES = 50000 };
        char *bytes = malloc(N_BYTES), key[16];
        Op *ops = calloc(N, sizeof(*ops));
        char (*keys)[16] = calloc(N, sizeof(*keys));
        Fixture f;
        Client c;

        (void)state;
        memset(bytes, 'p', N_BYTES);
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        client_stage(&c, 0, bytes, N_BYTES);
        /* All at once: most of them wait for a region. */
        for (int i = 0; i < N; i++) {
                snprintf(keys[i], sizeof(keys[i]), "%d", i);
                ops[i] = (Op){ .item = { .key = key_of(keys[i]), .size_bytes = N_BYTES } };
                op_begin(&c, &ops[i], VERB_PUT);
        }
        for (int i = 0; i < N; i++) {
                op_wait(&f, &ops[i]);
                assert_int_equal(ops[i].op.status, STATUS_OK);
                op_clear(&ops[i]);
        }
        assert_content(&c, "0", bytes, N_BYTES);
        assert_content(&c, "599", bytes, N_BYTES);
        assert_true(fixture_fact(&f, "packed.used_bytes") >= (uint64_t)N * N_BYTES);
        assert_true(fixture_fact(&f, "packed.region_bytes") < 2 * (uint64_t)N * N_BYTES);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), fixture_fact(&f, "packed.region_bytes"));
        for (int i = 0; i < N; i++) {
                snprintf(key, sizeof(key), "%d", i);
                assert_int_equal(client_delete(&c, key, 0), STATUS_OK);
        }
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "packed.used_bytes"), 0);
        /* One that was got ready and never used may be there. */
        assert_true(fixture_fact(&f, "memory.used_bytes") <= 4 * MIB);
        client_close(&c);
        fixture_deinit(&f);
        free(bytes);
        free(ops);
        free(keys);
}

/* --- truncation --------------------------------------------------------------------------------------------------- */

static uint64_t allocated_bytes(int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

static void test_truncate(void **state)
{
        Op make = { .item = { .key = key_of("m"), .size_bytes = 5 * MIB, .capacity_bytes = 8 * MIB,
                .flags = FOLIO_MUTABLE } };
        Lookup before, found;
        unsigned char *map;
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(op_run(&c, &make, VERB_CREATE), STATUS_OK);
        assert_int_equal(client_look(&c, "m", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.state, LAYOUT_SLOT_MUTABLE);
        assert_int_equal(found.copy.capacity_bytes, 8 * MIB);
        assert_int_equal(found.copy.protection, FOLIO_PROTECTION_NONE);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 8 * MIB);
        map = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, make.op.fd, 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        memset(map, 'z', 6 * MIB);

        /* Each of them by the loop or a worker; who maps it never meets an end. */
        static const uint64_t sizes[] = { 4 * MIB + 1, 100, 0, 50, 5000, 2 * MIB + 3, 2 * MIB + 3, 8 * MIB, 1,
                8 * MIB };
        uint64_t size = 5 * MIB;

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                assert_int_equal(client_truncate(&c, "m", sizes[i]), STATUS_OK);
                assert_int_equal(client_look(&c, "m", &found), LOOKUP_FOUND);
                assert_int_equal(found.copy.size_bytes, sizes[i]);
                for (uint64_t at = size; at < sizes[i]; at++)
                        if (map[at] != 0)
                                fail_msg("byte %llu is not zero", (unsigned long long)at);
                if (sizes[i] != size)
                        assert_int_equal(found.copy.allocated_pages, allocated_bytes(make.op.fd) / PAGE_BYTES);
                assert_true(allocated_bytes(make.op.fd) >= ALIGN_UP(sizes[i], PAGE_BYTES));
                if (sizes[i] < size)
                        assert_true(allocated_bytes(make.op.fd) <= ALIGN_UP(sizes[i], PAGE_BYTES));
                /* Beyond the end too: that must not come back as content. */
                memset(map, 'y', MIN(sizes[i] + 10000, 8 * MIB));
                size = sizes[i];
        }
        assert_int_equal(client_truncate(&c, "m", 8 * MIB + 1), STATUS_TOO_LARGE);
        assert_int_equal(client_look(&c, "m", &before), LOOKUP_FOUND);
        assert_int_equal(client_truncate(&c, "m", before.copy.size_bytes), STATUS_OK);
        assert_int_equal(client_look(&c, "m", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.sequence, before.copy.sequence);
        assert_int_equal(munmap(map, 8 * MIB), 0);
        op_clear(&make);
        assert_int_equal(client_put_text(&c, "sealed", "x", 0), STATUS_OK);
        assert_int_equal(client_truncate(&c, "sealed", 0), STATUS_STATE);
        assert_int_equal(client_truncate(&c, "none", 0), STATUS_NOT_FOUND);
        assert_int_equal(client_create(&c, &make, "w", 10, 0), STATUS_OK);
        assert_int_equal(client_truncate(&c, "w", 0), STATUS_WRITING);
        op_clear(&make);
        client_close(&c);
        fixture_deinit(&f);
}

/* A sparse object without a page stays without one, whatever size it is given. */
static void test_truncate_without_pages(void **state)
{
        Op make = { .item = { .key = key_of("m"), .size_bytes = MIB, .capacity_bytes = 64 * MIB,
                              .flags = FOLIO_MUTABLE | FOLIO_SPARSE } };
        static const uint64_t sizes[] = { 64 * MIB, 0, 5000, 33 * MIB };
        Lookup found;
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(op_run(&c, &make, VERB_CREATE), STATUS_OK);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                assert_int_equal(client_truncate(&c, "m", sizes[i]), STATUS_OK);
                assert_int_equal(allocated_bytes(make.op.fd), 0);
                assert_int_equal(client_look(&c, "m", &found), LOOKUP_FOUND);
                assert_int_equal(found.copy.size_bytes, sizes[i]);
                assert_int_equal(found.copy.flags & LAYOUT_FLAG_SPARSE, LAYOUT_FLAG_SPARSE);
        }
        op_clear(&make);
        client_close(&c);
        fixture_deinit(&f);
}

/* Truncations of one object are done one after the other, and the object may go while one is under way. */
static void test_truncate_in_order(void **state)
{
        Op make = { .item = { .key = key_of("m"), .capacity_bytes = 32 * MIB, .flags = FOLIO_MUTABLE } };
        Op ops[6];
        Lookup found;
        Fixture f;
        Client c;

        (void)state;
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(op_run_clear(&c, &make, VERB_CREATE), STATUS_OK);
        for (int i = 0; i < 6; i++) {
                ops[i] = (Op){ .item = { .key = key_of("m"), .size_bytes = i % 2 ? 10u + (unsigned)i : 32 * MIB } };
                op_begin(&c, &ops[i], VERB_TRUNCATE);
        }
        for (int i = 0; i < 6; i++) {
                op_wait(&f, &ops[i]);
                assert_int_equal(ops[i].op.status, STATUS_OK);
        }
        assert_int_equal(client_look(&c, "m", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.size_bytes, 15);
        ops[0] = (Op){ .item = { .key = key_of("m"), .size_bytes = 32 * MIB } };
        ops[1] = (Op){ .item = { .key = key_of("m") } };
        ops[2] = (Op){ .item = { .key = key_of("m") } };
        op_begin(&c, &ops[0], VERB_TRUNCATE);
        op_begin(&c, &ops[1], VERB_DELETE);
        op_begin(&c, &ops[2], VERB_TRUNCATE);
        for (int i = 0; i < 3; i++) {
                op_wait(&f, &ops[i]);
                assert_int_equal(ops[i].op.status, i < 2 ? STATUS_OK : STATUS_DELETED);
                op_clear(&ops[i]);
        }
        client_close(&c);
        fixture_deinit(&f);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static Status stream_write(Client *c, const Op *stream, uint64_t offset, uint64_t n_bytes)
{
        Op op = { .item = { .flags = PROTO_ITEM_BY_SLOT, .slot = stream->op.slot, .generation = stream->op.generation,
                            .offset_bytes = offset, .size_bytes = n_bytes } };

        return op_run_clear(c, &op, VERB_WRITE);
}

static void test_stream(void **state)
{
        static const uint64_t pieces[] = { 1, 100, 65536, 65537, MIB, 4 * MIB, 3, 0 };
        char *bytes = malloc(4 * MIB);
        uint64_t size = 0;
        Lookup found;
        Fixture f;
        Client c;
        Op op;

        (void)state;
        memset(bytes, 's', 4 * MIB);
        fixture_init(&f, NULL);
        client_open(&f, &c, geteuid(), "default");
        client_stage(&c, 0, bytes, 4 * MIB);
        assert_int_equal(client_create(&c, &op, "s", 0, FOLIO_STREAM), STATUS_OK);
        assert_int_equal(op.op.fd, -1);
        for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
                assert_int_equal(stream_write(&c, &op, size + 1, 1), STATUS_RANGE);
                assert_int_equal(stream_write(&c, &op, size, 4 * MIB + 1), STATUS_RANGE);
                assert_int_equal(stream_write(&c, &op, size, pieces[i]), STATUS_OK);
                size += pieces[i];
                assert_int_equal(client_look(&c, "s", &found), LOOKUP_FOUND);
                assert_int_equal(found.copy.size_bytes, size);
        }
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_int_equal(client_look(&c, "s", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.size_bytes, size);
        assert_int_equal(found.copy.protection, FOLIO_PROTECTION_KERNEL);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), ALIGN_UP(size, PAGE_BYTES));
        assert_int_equal(client_read_slot(&c, found.slot, found.copy.generation, bytes, 16, size - 16), STATUS_OK);
        assert_memory_equal(bytes, "ssssssssssssssss", 16);
        assert_int_equal(stream_write(&c, &op, size, 1), STATUS_STATE);
        op_clear(&op);
        /* An empty one, and one that is more than there is. */
        assert_int_equal(client_create(&c, &op, "empty", 0, FOLIO_STREAM), STATUS_OK);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        op_clear(&op);
        assert_int_equal(client_create(&c, &op, "much", 0, FOLIO_STREAM), STATUS_OK);
        for (size = 0; stream_write(&c, &op, size, 4 * MIB) == STATUS_OK; size += 4 * MIB)
                assert_true(size < 256 * MIB);
        assert_true(size >= 240 * MIB);
        assert_int_equal(client_by_slot(&c, &(Op){ 0 }, VERB_ABORT, &op, 0), STATUS_OK);
        op_clear(&op);
        fixture_settle(&f);
        assert_true(fixture_fact(&f, "memory.used_bytes") < 8 * MIB);
        client_close(&c);
        fixture_deinit(&f);
        free(bytes);
}

/* --- backings and huge pages -------------------------------------------------------------------------------------- */

static bool has_tmpfs(Fixture *f)
{
        ProtoNamespace settings = { .name = "t", .fields = FOLIO_NAMESPACE_FIELD_BACKING,
                .backing = FOLIO_BACKING_TMPFS };
        char *detail = NULL;
        Status status = store_namespace_configure(f->store, &settings, &detail);

        free(detail);
        assert_true(status == STATUS_OK || status == STATUS_UNSUPPORTED);
        return status == STATUS_OK;
}

/* A file that cannot be sealed: what is claimed is what holds. */
static void test_tmpfs_backing(void **state)
{
        ProtoNamespace open_to_all = { .name = "t", .fields = FOLIO_NAMESPACE_FIELD_MODE, .mode = 0777 };
        char *detail = NULL;
        Client c, other;
        Lookup found;
        Fixture f;
        Op op, seal;

        (void)state;
        fixture_init(&f, NULL);
        if (!has_tmpfs(&f)) {
                fixture_deinit(&f);
                skip();
        }
        assert_int_equal(store_namespace_configure(f.store, &open_to_all, &detail), STATUS_OK);
        client_open(&f, &c, geteuid(), "t");
        client_open(&f, &other, geteuid() + 1, "t");
        assert_int_equal(client_create(&other, &op, "k", 3 * MIB, 0), STATUS_OK);
        assert_int_equal(pwrite(op.op.fd, "tmpfs", 5, 0), 5);
        /* As long as anybody can write to it, it is not sealed. */
        assert_int_equal(client_by_slot(&other, &seal, VERB_SEAL, &op, 0), STATUS_MAPPED);
        op_clear(&seal);
        op.op.fd = (close(op.op.fd), -1);
        assert_int_equal(client_seal(&other, &op), STATUS_OK);
        assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.backing, FOLIO_BACKING_TMPFS);
        assert_int_equal(found.copy.protection, FOLIO_PROTECTION_MODE);
        op_clear(&op);
        assert_int_equal(client_create(&c, &op, "mine", 100, 0), STATUS_OK);
        op.op.fd = (close(op.op.fd), -1);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_int_equal(client_look(&c, "mine", &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.protection, FOLIO_PROTECTION_NONE);
        op_clear(&op);
        client_close(&other);
        client_close(&c);
        fixture_deinit(&f);
}

static void test_collapse(void **state)
{
        StoreConfig config = fixture_config();
        Lookup found;
        Fixture f;
        Client c;
        Op op;

        (void)state;
        config.huge = FOLIO_HUGE_ALWAYS;
        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        assert_int_equal(client_create(&c, &op, "k", 8 * MIB, 0), STATUS_OK);
        for (uint64_t at = 0; at < 8 * MIB; at += PAGE_BYTES)
                assert_int_equal(pwrite(op.op.fd, "h", 1, (off_t)at), 1);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        op_clear(&op);
        worker_pool_drain(f.workers);
        assert_int_equal(client_look(&c, "k", &found), LOOKUP_FOUND);
        /* What was achieved, whatever that is: as many pieces as were counted, and never more than there are. */
        assert_true(found.copy.huge_folios <= 4);
        if (fixture_fact(&f, "collapse.done") == 4)
                assert_int_equal(found.copy.huge_folios, 4);
        /* One that goes while it is being made huge. */
        assert_int_equal(client_create(&c, &op, "k2", 32 * MIB, FOLIO_SPARSE), STATUS_OK);
        for (uint64_t at = 0; at < 32 * MIB; at += PAGE_BYTES)
                assert_int_equal(pwrite(op.op.fd, "h", 1, (off_t)at), 1);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        op_clear(&op);
        assert_int_equal(client_delete(&c, "k2", 0), STATUS_OK);
        fixture_settle(&f);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 8 * MIB);
        client_close(&c);
        fixture_deinit(&f);
}

/* Blanks are used, belong to the budget, and give way to objects. */
static void test_pool(void **state)
{
        StoreConfig config = fixture_config();
        Fixture f;
        Client c;
        Op op;

        (void)state;
        config.budget_bytes = 64 * MIB;
        config.pool_bytes_max = 16 * MIB;
        fixture_init(&f, &config);
        client_open(&f, &c, geteuid(), "default");
        worker_pool_drain(f.workers);
        assert_true(fixture_fact(&f, "pool.blank") > 0);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), fixture_fact(&f, "pool.bytes"));
        /* Another limit at run time: what is over it goes, and comes back with the limit. */
        store_set_pool(f.store, 0);
        worker_pool_drain(f.workers);
        assert_int_equal(fixture_fact(&f, "pool.bytes"), 0);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 0);
        store_set_pool(f.store, 16 * MIB);
        worker_pool_drain(f.workers);
        assert_true(fixture_fact(&f, "pool.blank") > 0);
        assert_int_equal(client_create(&c, &op, "k", 2 * MIB, 0), STATUS_OK);
        assert_int_equal(fixture_fact(&f, "pool.hits"), 1);
        op_clear(&op);
        /* All of the budget is for objects, if they want it. */
        assert_int_equal(client_create(&c, &op, "all", 62 * MIB, 0), STATUS_OK);
        op_clear(&op);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), 64 * MIB);
        assert_int_equal(client_put_text(&c, "s", "x", 0), STATUS_FULL);
        client_close(&c);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_a07_absurd_sizes),
                UNIT_TEST(test_budget), UNIT_TEST(test_f04_freeing_is_not_for_the_loop),
                UNIT_TEST(test_quota),
                UNIT_TEST(test_packed_regions),
                UNIT_TEST(test_truncate),
                UNIT_TEST(test_truncate_without_pages),
                UNIT_TEST(test_truncate_in_order),
                UNIT_TEST(test_stream),
                UNIT_TEST(test_tmpfs_backing),
                UNIT_TEST(test_collapse),
                UNIT_TEST(test_pool),
        };

        return cmocka_run_group_tests_name("store-memory", tests, NULL, NULL);
}
