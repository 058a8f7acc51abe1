/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are made through the ring: what is asked for, what the program's bytes are before they are written, and what
 * comes of it when a part of it fails, when nobody waits for it, or when the daemon goes.
 */
#include "tests/unit/client-fixture.h"

#include "client/made.h"
#include "tests/unit/index-fake.h"

typedef struct Fixture {
        ClientFixture *c;
        FakeIndex fake;
        Space *space;
        char name[FOLIO_NAMESPACE_BYTES_MAX + 8];
} Fixture;

static void begin(Fixture *f, bool is_trusted)
{
        memset(f, 0, sizeof(*f));
        fake_index_new(&f->fake, 2048, 1024, 512);
        assert_int_equal(fake_index_open(&f->fake, &f->space), 0);
        f->c = client_fixture_new();
        f->c->name.space = f->space;
        f->c->name.n_bytes = strlen(f->space->name);
        f->c->name.writers = is_trusted ? FOLIO_WRITERS_TRUSTED : FOLIO_WRITERS_UNTRUSTED;
        f->space->rights = FOLIO_RIGHT_READ | FOLIO_RIGHT_WRITE;
        snprintf(f->name, sizeof(f->name), "%s:key", f->space->name);
        (void)client_fixture_get_ring(f->c);
        for (unsigned i = 0; is_trusted && i < 64; i++)
                leases_count_other(leases_of(&f->c->name), 0);
}

static void end(Fixture *f)
{
        fixture_drain(f->c->far);
        client_fixture_free(f->c);
        space_unref(f->space);
        fake_index_free(&f->fake);
}

static int create(Fixture *f, uint64_t size_bytes, bool is_visible, Object **ret)
{
        ProtoItem item = { .size_bytes = size_bytes };

        return made_create(f->c->client, f->name, &item, is_visible, ret);
}

static const RingRecord *record(const Fixture *f, uint64_t number)
{
        assert_true(number < f->c->far->shared->tail);
        return &f->c->far->records[number % RING_RECORDS];
}

static void test_in_staging_memory(void **state)
{
        Fixture f;
        Object *object;
        const uint8_t *bytes;

        begin(&f, false);
        assert_int_equal(create(&f, 100, false, &object), 0);
        assert_int_equal(object->kind, OBJECT_STAGED);
        assert_int_equal(record(&f, 0)->verb, RING_VERB_CREATE);
        assert_int_equal(record(&f, 0)->size_bytes, 100);
        assert_int_equal(record(&f, 0)->region_id, 0);
        bytes = object->staged;
        for (unsigned i = 0; i < 100; i++)
                assert_int_equal(bytes[i], 0);
        /* Only what is known to be there can be held once its staging memory is given back. */
        fixture_drain(f.c->far);
        assert_int_equal(made_seal(object), 0);
        assert_int_equal(object->kind, OBJECT_PIPED);
        assert_int_equal(record(&f, 1)->verb, RING_VERB_SEAL);
        assert_int_equal(record(&f, 1)->slot, record(&f, 0)->slot);
        assert_int_equal(record(&f, 1)->offset_bytes, staging_offset(f.c->client->staging, bytes));
        assert_null(object->staged); /* the record's now */
        assert_int_equal(made_seal(object), FOLIO_E_STATE);
        fixture_drain(f.c->far);
        assert_int_equal(made_resolve(object), 0);
        assert_int_equal(object->kind, OBJECT_READER);
        object_unref(object);
        assert_int_equal(f.c->n_leases, 0);
        end(&f);
}

/* Memory of a lease was another's: before the program sees it, it reads as zeros, and what it stored stays. */
static void test_zeros_in_a_lease(void **state)
{
        Fixture f;
        Object *object;
        uint8_t *bytes;

        begin(&f, true);
        assert_int_equal(create(&f, 1000, false, &object), 0);
        assert_int_equal(object->kind, OBJECT_LEASED);
        assert_int_equal(record(&f, 0)->region_id, f.c->book->region_id);
        bytes = object->staged;
        memset(bytes, 0xff, 1000); /* what was there before */
        assert_int_equal(made_prepare(object, 100, 50), 100);
        for (unsigned i = 0; i < 1000; i++)
                assert_int_equal(bytes[i], i < 100 ? 0 : 0xff);
        /* Before what was stored: nothing is to be done. Behind a gap: the gap. */
        assert_int_equal(made_prepare(object, 20, 30), 150);
        assert_int_equal(bytes[149], 0xff);
        assert_int_equal(made_prepare(object, 200, 10), 200);
        for (unsigned i = 0; i < 1000; i++)
                assert_int_equal(bytes[i], i < 100 || (i >= 150 && i < 200) ? 0 : 0xff);
        made_prepare_all(object);
        for (unsigned i = 0; i < 1000; i++)
                assert_int_equal(bytes[i], (i >= 100 && i < 150) || (i >= 200 && i < 210) ? 0xff : 0);
        object_unref(object);
        end(&f);
}

/* What was not written at all is zeros when it is sealed. */
static void test_a_seal_fills_with_zeros(void **state)
{
        Fixture f;
        Object *object;
        uint8_t *bytes;

        begin(&f, true);
        assert_int_equal(create(&f, 1000, false, &object), 0);
        bytes = object->staged;
        memset(bytes, 0xff, 1000);
        (void)made_prepare(object, 0, 10);
        assert_int_equal(made_seal(object), 0);
        for (unsigned i = 0; i < 1000; i++)
                assert_int_equal(bytes[i], i < 10 ? 0xff : 0);
        assert_int_equal(record(&f, 1)->region_id, f.c->book->region_id);
        assert_int_equal(record(&f, 1)->offset_bytes, record(&f, 0)->offset_bytes);
        /* There is no pin yet: the lease is kept for the handle. */
        assert_int_equal(f.c->far->shared->lease_use[0], 1);
        object_unref(object);
        assert_int_equal(f.c->far->shared->lease_use[0], 0);
        end(&f);
}

/* Given up: said to the daemon, and number, place and lease are free again. */
static void test_given_up(void **state)
{
        Fixture f;
        Object *object;
        uint64_t offset = 0;

        for (int is_trusted = 0; is_trusted < 2; is_trusted++) {
                begin(&f, is_trusted);
                for (unsigned i = 0; i < 3 * RING_MADE_MAX; i++) {
                        assert_int_equal(create(&f, 64, false, &object), 0);
                        assert_int_equal(record(&f, 2 * i)->slot, 0); /* always the same */
                        if (i == 0)
                                offset = record(&f, 0)->offset_bytes;
                        object_unref(object);
                        assert_int_equal(record(&f, 2 * i + 1)->verb, RING_VERB_ABORT);
                        assert_int_equal(record(&f, 2 * i + 1)->slot, 0);
                        assert_int_equal(f.c->far->shared->lease_use[0], 0);
                        fixture_drain(f.c->far);
                }
                assert_true(is_trusted || record(&f, 0)->offset_bytes == offset);
                assert_int_equal(pipe_take_failure(f.c->client), 0);
                end(&f);
        }
}

/* As many at a time as there are numbers; the next goes by the socket. */
static void test_as_many_as_there_are_numbers(void **state)
{
        static Object *objects[RING_MADE_MAX];
        Object *other = NULL;
        Fixture f;

        begin(&f, true);
        for (unsigned i = 0; i < RING_MADE_MAX; i++) {
                assert_int_equal(create(&f, 64, false, &objects[i]), 0);
                fixture_drain(f.c->far); /* or the next would wait, as the name is the same */
        }
        assert_int_equal(create(&f, 64, false, &other), DIRECT_NOT);
        assert_null(other);
        object_unref(objects[7]);
        fixture_drain(f.c->far);
        assert_int_equal(create(&f, 64, false, &objects[7]), 0);
        fixture_drain(f.c->far);
        for (unsigned i = 0; i < RING_MADE_MAX; i++) {
                object_unref(objects[i]);
                fixture_drain(f.c->far);
        }
        end(&f);
}

/* Refused as it is carried out: the seal tells, or, where that was not waited for, who asks next, and the flush. */
static void test_refused_late(void **state)
{
        Fixture f;
        Object *object;

        begin(&f, true);
        assert_int_equal(create(&f, 64, false, &object), 0);
        fixture_do(f.c->far, STATUS_EXISTS, "another was faster");
        fixture_publish(f.c->far);
        assert_int_equal(made_seal(object), FOLIO_E_EXISTS);
        assert_non_null(strstr(folio_strerror_full(), "another was faster"));
        assert_int_equal(made_seal(object), FOLIO_E_STATE);
        object_unref(object);
        fixture_drain(f.c->far);
        assert_int_equal(pipe_take_failure(f.c->client), 0); /* it has been told */

        assert_int_equal(create(&f, 64, false, &object), 0);
        assert_int_equal(made_seal(object), 0);
        fixture_do(f.c->far, STATUS_OK, NULL);
        fixture_do(f.c->far, STATUS_FULL, "no room");
        fixture_publish(f.c->far);
        assert_int_equal(made_resolve(object), FOLIO_E_FULL);
        assert_int_equal(object->kind, OBJECT_ENDED);
        object_unref(object);
        assert_int_equal(pipe_take_failure(f.c->client), FOLIO_E_FULL);
        assert_int_equal(pipe_take_failure(f.c->client), 0);

        /* The handle goes before anybody asks: the flush is told all the same. */
        fixture_drain(f.c->far);
        assert_int_equal(create(&f, 64, false, &object), 0);
        assert_int_equal(made_seal(object), 0);
        object_unref(object);
        fixture_do(f.c->far, STATUS_OK, NULL);
        fixture_do(f.c->far, STATUS_FULL, "no room");
        fixture_publish(f.c->far);
        assert_int_equal(folio_flush(f.c->client), FOLIO_E_FULL);
        end(&f);
}

/* The daemon goes between seal and result: who was told that it is sealed keeps the bytes; who waited is told. */
static void test_the_daemon_goes(void **state)
{
        Fixture f;
        Object *object;
        uint8_t *bytes;

        begin(&f, true);
        assert_int_equal(create(&f, 64, false, &object), 0);
        bytes = object->staged;
        (void)made_prepare(object, 0, 64);
        memset(bytes, 0x5a, 64);
        assert_int_equal(made_seal(object), 0);
        requests_fail(f.c->client->requests, FOLIO_E_DAEMON_GONE);
        assert_int_equal(made_resolve(object), 0);
        assert_int_equal(object->kind, OBJECT_READER);
        for (unsigned i = 0; i < 64; i++)
                assert_int_equal(bytes[i], 0x5a);
        object_unref(object);
        end(&f);

        begin(&f, false);
        assert_int_equal(create(&f, 64, false, &object), 0);
        requests_fail(f.c->client->requests, FOLIO_E_DAEMON_GONE);
        assert_int_equal(made_seal(object), FOLIO_E_DAEMON_GONE);
        object_unref(object);
        end(&f);
}

/* What the ring cannot do goes by the socket: nothing has been asked for then. */
static void test_not_by_the_ring(void **state)
{
        static char long_key[RING_KEY_BYTES_MAX + 2];
        const struct {
                const char *key;
                ProtoItem item;
                bool is_trusted;
                int expected;
        } rows[] = {
                { "a", { .size_bytes = 1, .metadata = { "m", 1 } }, true, DIRECT_NOT },
                { "a", { .size_bytes = 1, .content_type = { "t", 1 } }, true, DIRECT_NOT },
                { "a", { .size_bytes = 1, .flags = FOLIO_MUTABLE }, true, DIRECT_NOT },
                { "a", { .size_bytes = 1, .flags = FOLIO_SPARSE }, true, DIRECT_NOT },
                { "a", { .size_bytes = MIB + 1 }, false, DIRECT_NOT }, /* more than is packed */
                { "a", { .size_bytes = LEASE_REGION_BYTES_MAX + 1 }, true, DIRECT_NOT },
                { "a", { .size_bytes = UINT64_MAX }, true, DIRECT_NOT },
                { "a", { .size_bytes = UINT64_MAX }, false, DIRECT_NOT },
                { long_key, { .size_bytes = 1 }, true, DIRECT_NOT },
                { "taken", { .size_bytes = 1 }, true, FOLIO_E_EXISTS },
                { "taken", { .size_bytes = 1, .flags = FOLIO_REPLACE }, true, 0 },
        };

        memset(long_key, 'k', RING_KEY_BYTES_MAX + 1);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                char name[FOLIO_NAME_BYTES_MAX + 1];
                Object *object = NULL;
                Fixture f;

                begin(&f, rows[i].is_trusted);
                (void)fake_index_add(&f.fake, &(FakeObject){ .key = fake_key("taken"), .state = LAYOUT_SLOT_SEALED });
                snprintf(name, sizeof(name), "%s:%s", f.space->name, rows[i].key);
                assert_int_equal(made_create(f.c->client, name, &rows[i].item, false, &object), rows[i].expected);
                assert_int_equal(f.c->far->shared->tail, rows[i].expected == 0);
                if (object)
                        object_unref(object);
                end(&f);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_in_staging_memory),
                UNIT_TEST(test_zeros_in_a_lease),
                UNIT_TEST(test_a_seal_fills_with_zeros),
                UNIT_TEST(test_given_up),
                UNIT_TEST(test_as_many_as_there_are_numbers),
                UNIT_TEST(test_refused_late),
                UNIT_TEST(test_the_daemon_goes),
                UNIT_TEST(test_not_by_the_ring),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
