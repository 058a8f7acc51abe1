/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation on the way of every verb fails once: the verb says so, nothing is left behind, and the next one
 * works. The first, then the second, and so on, until one gets through.
 */
#include "store-fixture.h"

#include "fail-alloc.h"

static Fixture fixture;
static Client client;

/* A verb that fails for want of memory fails with FULL, and leaves the store as it was. */
static int check(Status status, uint64_t n_before)
{
        if (status == STATUS_OK)
                return 0;
        assert_int_equal(status, STATUS_FULL);
        assert_int_equal(fixture_fact(&fixture, "objects.count"), n_before);
        return -ENOMEM;
}

static Status run(Op *op, ProtoVerb verb)
{
        op_begin(&client, op, verb);
        op_wait(&fixture, op);
        return op->op.status;
}

static int attempt(ProtoVerb verb, uint64_t size_bytes, uint32_t flags, uint32_t lifetime)
{
        Op op = { .item = { .key = key_of("k"), .size_bytes = size_bytes, .flags = flags, .lifetime = lifetime,
                            .expires_ns = lifetime == FOLIO_UNTIL_TIME ? 5000 : 0 } };
        uint64_t n_before = fixture_fact(&fixture, "objects.count");
        int r = check(run(&op, verb), n_before);

        op_clear(&op);
        if (r == 0) {
                Op delete = { .item = { .key = key_of("k") } };

                /* A deletion needs no memory. */
                assert_int_equal(run(&delete, VERB_DELETE), STATUS_OK);
                op_clear(&delete);
        }
        fixture_settle(&fixture);
        return r;
}

static int attempt_put(void)
{
        return attempt(VERB_PUT, 100, 0, FOLIO_UNTIL_DELETED);
}

static int attempt_large_put(void)
{
        return attempt(VERB_PUT, MIB, 0, FOLIO_UNTIL_TIME);
}

static int attempt_create(void)
{
        return attempt(VERB_CREATE, 100, 0, FOLIO_WITH_CREATOR);
}

static int attempt_large_create(void)
{
        return attempt(VERB_CREATE, 5 * MIB, 0, FOLIO_UNTIL_DELETED);
}

static int attempt_staged_create(void)
{
        return attempt(VERB_CREATE, 100, PROTO_ITEM_STAGED, FOLIO_UNTIL_DELETED);
}

static int attempt_mutable_create(void)
{
        return attempt(VERB_CREATE, 3 * MIB, FOLIO_MUTABLE, FOLIO_UNTIL_DELETED);
}

/* A stream from its creation to its seal; what fails in between is tried once more. */
static int attempt_stream(void)
{
        static const ProtoVerb verbs[] = { VERB_WRITE, VERB_WRITE, VERB_SEAL };
        Op make = { .item = { .key = key_of("k"), .flags = FOLIO_STREAM } };
        Op delete = { .item = { .key = key_of("k") } };
        uint64_t at = 0;
        int r = check(run(&make, VERB_CREATE), 0);

        for (size_t i = 0; make.op.status == STATUS_OK && i < ARRAY_SIZE(verbs); i++) {
                Op op = { .item = { .flags = PROTO_ITEM_BY_SLOT, .slot = make.op.slot, .generation = make.op.generation,
                                    .offset_bytes = at, .size_bytes = i == 0 ? 100 : i == 1 ? MIB : 0 } };

                if (check(run(&op, verbs[i]), 1) < 0) {
                        r = -ENOMEM;
                        op_clear(&op);
                        assert_int_equal(run(&op, verbs[i]), STATUS_OK);
                }
                op_clear(&op);
                at += op.item.size_bytes;
        }
        if (make.op.status == STATUS_OK) {
                assert_int_equal(run(&delete, VERB_DELETE), STATUS_OK);
                op_clear(&delete);
        }
        op_clear(&make);
        fixture_settle(&fixture);
        return r;
}

static int attempt_truncate(void)
{
        Op op = { .item = { .key = key_of("m"), .size_bytes = MIB } };
        Op back = { .item = { .key = key_of("m"), .size_bytes = 10 } };
        int r = check(run(&op, VERB_TRUNCATE), 1);

        op_clear(&op);
        while (run(&back, VERB_TRUNCATE) != STATUS_OK)
                op_clear(&back);
        op_clear(&back);
        return r;
}

static int attempt_session(void)
{
        SessionConfig config = { .cred = { .uid = 77, .n_groups = 1, .groups = (gid_t[]){ 5 } }, .comm = "c" };
        Session *session;
        char *detail = NULL;
        Status status = session_new(fixture.store, &config, &session, &detail);

        free(detail);
        if (status != STATUS_OK)
                return check(status, 0);
        session_close(session);
        return 0;
}

static int attempt_namespace(void)
{
        ProtoNamespace settings = { .name = "n" }, ns;
        int index_fd, pins_fd;
        char *detail = NULL;
        Status status;
        int r = 0;

        status = store_namespace_add(fixture.store, client.session, &settings, &ns, &detail);
        free(detail);
        if (status != STATUS_OK)
                return check(status, 0);
        status = store_namespace_open(fixture.store, client.session, "n", &ns, &index_fd, &pins_fd, &detail);
        free(detail);
        if (status != STATUS_OK)
                r = check(status, 0);
        assert_int_equal(store_namespace_remove(fixture.store, client.session, "n", &detail), STATUS_OK);
        fixture_settle(&fixture);
        return r;
}

static int attempt_store(void)
{
        StoreConfig config = fixture_config();
        const char *failed_call = NULL;
        Store *store;
        int r;

        config.workers = fixture.workers;
        r = store_new(&config, &store, &failed_call);
        if (r < 0)
                assert_non_null(failed_call);
        else
                store_free(store);
        return r;
}

static void sweep(int (*attempt_it)(void))
{
        fixture_init(&fixture, NULL);
        client_open(&fixture, &client, geteuid(), "default");
        fail_alloc_sweep(attempt_it);
        assert_true(fixture_fact(&fixture, "memory.used_bytes") <= 4 * MIB);
        client_close(&client);
        fixture_deinit(&fixture);
}

static void test_objects(void **state)
{
        (void)state;
        fail_alloc_skip_sanitized();
        sweep(attempt_put);
        sweep(attempt_large_put);
        sweep(attempt_create);
        sweep(attempt_large_create);
        sweep(attempt_staged_create);
        sweep(attempt_mutable_create);
        sweep(attempt_stream);
}

static void test_truncate(void **state)
{
        Op make = { .item = { .key = key_of("m"), .size_bytes = 10, .capacity_bytes = MIB, .flags = FOLIO_MUTABLE } };

        (void)state;
        fail_alloc_skip_sanitized();
        fixture_init(&fixture, NULL);
        client_open(&fixture, &client, geteuid(), "default");
        assert_int_equal(op_run_clear(&client, &make, VERB_CREATE), STATUS_OK);
        fail_alloc_sweep(attempt_truncate);
        client_close(&client);
        fixture_deinit(&fixture);
}

static void test_the_rest(void **state)
{
        (void)state;
        fail_alloc_skip_sanitized();
        sweep(attempt_session);
        sweep(attempt_namespace);
        sweep(attempt_store);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_objects),
                UNIT_TEST(test_truncate),
                UNIT_TEST(test_the_rest),
        };

        return cmocka_run_group_tests_name("store-failures", tests, NULL, NULL);
}
