/* SPDX-License-Identifier: Apache-2.0 */
/* Order between ring, socket and index, and the flush that waits for all of it. */
#include "tests/unit/client-fixture.h"

#include "client/create.h"
#include "client/order.h"
#include "folio/batch.h"
#include "proto/key.h"

static ClientFixture *begin(void)
{
        ClientFixture *f = client_fixture_new();

        (void)client_fixture_get_ring(f);
        return f;
}

/* What cannot be looked for in an index stands for everything. */
static void test_hash(void **state)
{
        ClientFixture *f = client_fixture_new();
        static LayoutIndexHeader shared;
        Key key = { "key", 3 }, none = { "", 0 };

        assert_int_equal(order_hash(&f->space, key), 0);
        f->space.shared = &shared;
        f->space.header.hash_seed = 12345;
        assert_int_equal(order_hash(&f->space, key), key_hash(key.bytes, key.n_bytes, f->space.header.hash_seed));
        assert_int_equal(order_hash(&f->space, none), 0);
        client_fixture_free(f);
}

static void test_index_after_ring(void **state)
{
        ClientFixture *f = client_fixture_new();
        Key key = { "key", 3 };
        Ring *ring;

        /* No ring: nothing to wait for. */
        assert_int_equal(order_catch_up(f->client, &f->space, key), 0);
        ring = client_fixture_get_ring(f);
        assert_int_equal(order_catch_up(f->client, &f->space, key), 0);
        (void)fixture_submit(f->far, 1, 1234, false);
        /* Under way, and about that key perhaps: it waits, as long as the client may. */
        f->client->timeout_ns = 1;
        assert_int_equal(order_wait(f->client, ring, 1234), FOLIO_E_TIMEOUT);
        assert_true(strlen(folio_strerror_full()) > 0);
        assert_int_equal(order_catch_up(f->client, &f->space, key), FOLIO_E_TIMEOUT);
        f->client->timeout_ns = FIXTURE_WAIT_NS;
        fixture_drain(f->far);
        assert_int_equal(order_wait(f->client, ring, 1234), 0);
        assert_int_equal(order_catch_up(f->client, &f->space, key), 0);
        client_fixture_free(f);
}

static void test_ring_after_socket(void **state)
{
        ClientFixture *f = begin();

        assert_true(order_is_free(f->client));
        f->client->n_changing = 1;
        assert_false(order_is_free(f->client));
        f->client->n_changing = 0;
        order_told(f->client);
        assert_int_equal(f->client->told_id, requests_last_id(f->client->requests));
        assert_false(order_is_free(f->client));
        client_fixture_free(f);
}

/* A word that is not answered has no key: whoever looks for anything asks something that is answered behind it, once. */
static void test_index_after_a_word(void **state)
{
        static LayoutIndexHeader shared;
        ClientFixture *f = begin();
        Key key = { "key", 3 };

        f->space.shared = &shared;
        for (unsigned i = 0; i < 2; i++) {
                create_tell_abort(f->client, f->space.id, 1, 1);
                assert_false(order_is_caught_up(f->client, 1234));
                assert_int_equal(order_catch_up(f->client, &f->space, key), 0);
                assert_true(order_is_free(f->client));
                assert_true(order_is_caught_up(f->client, 1234));
                assert_int_equal(order_catch_up(f->client, &f->space, key), 0);
                assert_int_equal(f->n_asked[VERB_ABORT], i + 1);
                assert_int_equal(f->n_asked[VERB_PING], i + 1);
        }
        create_tell_abort(f->client, f->space.id, 1, 1);
        (void)error_set(FOLIO_E_STATE, "before");
        requests_fail(f->client->requests, FOLIO_E_DAEMON_GONE);
        /* Nothing changes any more: what there is can be looked at. */
        assert_int_equal(order_catch_up(f->client, &f->space, key), 0);
        assert_string_equal(folio_strerror_full(), "before");
        assert_true(order_is_free(f->client));
        client_fixture_free(f);
}

static void on_done(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        *(bool *)userdata = true;
}

static void finish(ClientFixture *f, const bool *is_done)
{
        while (!*is_done) {
                struct pollfd ready = { .fd = requests_get_socket(f->client->requests), .events = POLLIN };

                assert_int_equal(poll(&ready, 1, 20000), 1);
                requests_turn(f->client->requests);
                (void)operations_run_ready(f->client);
        }
}

/*
 * What changes something is sent at once, whatever is in the ring: were it to wait for that, a call that comes after it
 * would be there before it.
 */
static void test_nothing_is_overtaken(void **state)
{
        ClientFixture *f = begin();
        struct folio_put_item put = { .name = "ns:key", .data = "bytes", .size_bytes = 5 };
        struct folio_delete_item delete = { .name = "ns:key" };
        bool is_done[5] = { 0 };

        (void)fixture_submit(f->far, 1, 1234, false);
        assert_int_equal(folio_put_async(f->client, "ns:key", "bytes", 5, NULL, on_done, &is_done[0]), 0);
        assert_int_equal(folio_delete_async(f->client, "ns:key", 0, on_done, &is_done[1]), 0);
        assert_int_equal(folio_truncate_async(f->client, "ns:key", 5, on_done, &is_done[2]), 0);
        assert_int_equal(folio_put_many_async(f->client, &put, 1, on_done, &is_done[3]), 0);
        assert_int_equal(folio_delete_many_async(f->client, &delete, 1, on_done, &is_done[4]), 0);
        for (size_t i = 0; i < ARRAY_SIZE(is_done); i++)
                finish(f, &is_done[i]);
        assert_int_equal(f->n_asked[VERB_PUT], 2);
        assert_int_equal(f->n_asked[VERB_DELETE], 2);
        assert_int_equal(f->n_asked[VERB_TRUNCATE], 1);
        assert_int_equal(f->n_asked[VERB_PING], 0);
        fixture_drain(f->far);
        client_fixture_free(f);
}

static void test_errors(void **state)
{
        static const struct {
                int ring, error;
        } rows[] = { { RING_E_TIMEOUT, FOLIO_E_TIMEOUT }, { RING_E_GONE, FOLIO_E_DAEMON_GONE } };
        ClientFixture *f = client_fixture_new();

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                (void)error_set(FOLIO_E_STATE, "before");
                assert_int_equal(order_fail(f->client, rows[i].ring), rows[i].error);
                assert_string_not_equal(folio_strerror_full(), "before");
        }
        client_fixture_free(f);
}

static void test_flush(void **state)
{
        ClientFixture *f = client_fixture_new();

        assert_int_equal(folio_flush(NULL), FOLIO_E_INVALID);
        assert_int_equal(folio_flush(f->client), 0); /* no ring */
        (void)client_fixture_get_ring(f);
        assert_int_equal(folio_flush(f->client), 0);
        (void)fixture_submit(f->far, 1, 1, false);
        (void)fixture_submit(f->far, 2, 2, false);
        f->client->timeout_ns = 1;
        assert_int_equal(folio_flush(f->client), FOLIO_E_TIMEOUT);
        f->client->timeout_ns = FIXTURE_WAIT_NS;
        fixture_do(f->far, STATUS_EXISTS, "there is one");
        fixture_do(f->far, STATUS_FULL, "there is no room");
        fixture_publish(f->far);
        /* The first, once; and that there was no room is remembered all the same. */
        assert_int_equal(folio_flush(f->client), FOLIO_E_EXISTS);
        assert_non_null(strstr(folio_strerror_full(), "there is one"));
        assert_int_equal(folio_flush(f->client), 0);
        assert_true(pipe_is_careful(f->client));
        (void)fixture_submit(f->far, 3, 3, false);
        requests_fail(f->client->requests, FOLIO_E_DAEMON_GONE);
        assert_int_equal(folio_flush(f->client), FOLIO_E_DAEMON_GONE);
        client_fixture_free(f);
}

/* A record that fails while it is waited for by another call is told to the flush still. */
static void test_a_failure_noticed_by_another_call(void **state)
{
        ClientFixture *f = begin();

        (void)fixture_submit(f->far, 1, 77, false);
        fixture_do(f->far, STATUS_NOT_FOUND, "there is none");
        fixture_publish(f->far);
        assert_int_equal(order_wait(f->client, f->far->ring, 77), 0);
        assert_int_equal(folio_flush(f->client), FOLIO_E_NOT_FOUND);
        assert_int_equal(folio_flush(f->client), 0);
        client_fixture_free(f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_hash),
                UNIT_TEST(test_index_after_ring),
                UNIT_TEST(test_ring_after_socket),
                UNIT_TEST(test_index_after_a_word),
                UNIT_TEST(test_nothing_is_overtaken),
                UNIT_TEST(test_errors),
                UNIT_TEST(test_flush),
                UNIT_TEST(test_a_failure_noticed_by_another_call),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
