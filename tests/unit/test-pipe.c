/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipe: when its ring is made and used, whose bytes it gives back, and what becomes of failures that nobody waited for.
 */
#include "tests/unit/client-fixture.h"

#include "tests/unit/fail-alloc.h"

/* A record of @verb, with a key where there is one, whose bytes are @staged. */
static uint64_t submit(ClientFixture *f, RingVerb verb, const char *key, uint32_t namespace_id, void *staged, bool wants_result)
{
        RingRecord *record;
        uint64_t sequence;

        assert_int_equal(pipe_begin(f->client, f->far->ring, &record, &sequence), 0);
        *record = (RingRecord){ .verb = verb, .namespace_id = namespace_id, .key_bytes = (uint16_t)strlen(key) };
        memcpy(record->key, key, strlen(key));
        pipe_keep_staged(f->client, sequence, staged);
        ring_submit(f->far->ring, 0, wants_result);
        return sequence;
}

static void fail_one(ClientFixture *f, RingVerb verb, const char *key, uint32_t namespace_id, uint32_t status, const char *text)
{
        (void)submit(f, verb, key, namespace_id, NULL, false);
        fixture_do(f->far, status, text);
        fixture_publish(f->far);
        assert_int_equal(ring_catch_up(f->far->ring, 0, FIXTURE_WAIT_NS), 0);
}

static void test_made_when_some_calls_want_it(void **state)
{
        ClientFixture *f = client_fixture_new();
        Ring *ring;

        assert_null(pipe_want(f->client));
        assert_null(pipe_want(f->client));
        assert_int_equal(f->n_rings, 0);
        ring = pipe_want(f->client);
        assert_non_null(ring);
        assert_int_equal(f->n_rings, 1);
        for (unsigned i = 0; i < 10; i++)
                assert_ptr_equal(pipe_want(f->client), ring);
        assert_int_equal(f->n_rings, 1);
        client_fixture_free(f);
}

static void test_not_before_what_is_on_the_socket(void **state)
{
        ClientFixture *f = client_fixture_new();
        Ring *ring = client_fixture_get_ring(f);

        f->client->n_changing = 1;
        assert_null(pipe_want(f->client));
        f->client->n_changing = 0;
        assert_ptr_equal(pipe_want(f->client), ring);
        f->client->told_id = 1;
        assert_null(pipe_want(f->client));
        f->client->told_id = 0;
        assert_ptr_equal(pipe_want(f->client), ring);
        client_fixture_free(f);
}

/* Refused: calls go another way, without asking again each time; what the thread was told last stays. */
static void test_refused(void **state)
{
        ClientFixture *f = client_fixture_new();

        f->ring_status = STATUS_LIMIT;
        (void)error_set(FOLIO_E_STATE, "before");
        for (unsigned i = 0; i < 100; i++)
                assert_null(pipe_want(f->client));
        assert_int_equal(f->n_rings, 1);
        assert_string_equal(folio_strerror_full(), "before");
        client_fixture_free(f);
}

static void test_not_while_it_opens_or_closes(void **state)
{
        ClientFixture *f = client_fixture_new();

        f->client->is_opening = true;
        for (unsigned i = 0; i < 8; i++)
                assert_null(pipe_want(f->client));
        f->client->is_opening = false;
        f->client->n_references = 0;
        for (unsigned i = 0; i < 8; i++)
                assert_null(pipe_want(f->client));
        assert_int_equal(f->n_rings, 0);
        assert_false(pipe_release(f->client, 1, 2, 3));
        client_fixture_free(f);
}

static void test_numbers(void **state)
{
        ClientFixture *f = client_fixture_new();
        bool is_taken[RING_MADE_MAX] = { false };
        uint32_t number;

        for (unsigned i = 0; i < RING_MADE_MAX; i++) {
                assert_true(pipe_take_number(f->client, &number));
                assert_in_range(number, 0, RING_MADE_MAX - 1);
                assert_false(is_taken[number]);
                is_taken[number] = true;
        }
        assert_false(pipe_take_number(f->client, &number));
        for (uint32_t i = 0; i < RING_MADE_MAX; i += 37) {
                pipe_give_number(f->client, i);
                assert_true(pipe_take_number(f->client, &number));
                assert_int_equal(number, i);
                assert_false(pipe_take_number(f->client, &number));
        }
        client_fixture_free(f);
}

/* What failed when nobody waited is told once, by its name, and the first of several. */
static void test_kept_failures(void **state)
{
        ClientFixture *f = client_fixture_new();

        (void)client_fixture_get_ring(f);
        assert_int_equal(pipe_take_failure(f->client), 0);
        fail_one(f, RING_VERB_PUT, "a", CLIENT_FIXTURE_SPACE_ID, STATUS_EXISTS, "there is one");
        fail_one(f, RING_VERB_DELETE, "b", CLIENT_FIXTURE_SPACE_ID, STATUS_NOT_FOUND, "there is none");
        (void)error_set(FOLIO_E_STATE, "a later one");
        pipe_keep_failure(f->client, FOLIO_E_STATE);
        assert_int_equal(pipe_take_failure(f->client), FOLIO_E_EXISTS);
        assert_string_equal(folio_strerror_full(), "ns:a: there is one");
        assert_int_equal(pipe_take_failure(f->client), 0);

        /* Where the daemon had no room for a sentence, there is the one of the status. */
        fail_one(f, RING_VERB_PUT, "c", CLIENT_FIXTURE_SPACE_ID, STATUS_EXISTS, NULL);
        assert_int_equal(pipe_take_failure(f->client), FOLIO_E_EXISTS);
        assert_non_null(strstr(folio_strerror_full(), "ns:c: "));
        assert_non_null(strstr(folio_strerror_full(), status_to_text(STATUS_EXISTS)));

        fail_one(f, RING_VERB_SEAL, "", CLIENT_FIXTURE_SPACE_ID, STATUS_STATE, "why");
        assert_int_equal(pipe_take_failure(f->client), FOLIO_E_STATE);
        assert_string_equal(folio_strerror_full(), "an object of namespace ns: why");
        fail_one(f, RING_VERB_PUT, "d", CLIENT_FIXTURE_SPACE_ID + 1, STATUS_ACCESS, "why");
        assert_int_equal(pipe_take_failure(f->client), FOLIO_E_ACCESS);
        assert_string_equal(folio_strerror_full(), "?:d: why");

        (void)error_set(FOLIO_E_ACCESS, "kept by hand");
        pipe_keep_failure(f->client, FOLIO_E_ACCESS);
        (void)error_set(FOLIO_E_STATE, "something else");
        assert_int_equal(pipe_take_failure(f->client), FOLIO_E_ACCESS);
        assert_string_equal(folio_strerror_full(), "kept by hand");
        client_fixture_free(f);
}

/* Words that nobody has asked for fail in silence. */
static void test_hints_fail_in_silence(void **state)
{
        ClientFixture *f = client_fixture_new();

        assert_false(pipe_release(f->client, 1, 2, 3)); /* no ring yet */
        (void)client_fixture_get_ring(f);
        fail_one(f, RING_VERB_RELEASE, "", CLIENT_FIXTURE_SPACE_ID, STATUS_NOT_FOUND, "gone");
        fail_one(f, RING_VERB_ABORT, "", CLIENT_FIXTURE_SPACE_ID, STATUS_LIMIT, "gone");
        assert_int_equal(pipe_take_failure(f->client), 0);
        assert_false(pipe_is_careful(f->client));
        assert_true(pipe_release(f->client, 1, 2, 3));
        assert_int_equal(f->far->records[2].verb, RING_VERB_RELEASE);
        assert_int_equal(f->far->records[2].namespace_id, 1);
        assert_int_equal(f->far->records[2].slot, 2);
        assert_int_equal(f->far->records[2].generation, 3);
        client_fixture_free(f);
}

/* Careful from a failure for want of room on, told or not, until a put succeeds that was waited for. */
static void test_careful(void **state)
{
        static const struct {
                uint32_t status;
                bool makes_careful;
        } rows[] = {
                { STATUS_FULL, true }, { STATUS_LIMIT, true }, { STATUS_EXISTS, false }, { STATUS_NOT_FOUND, false },
                { STATUS_TOO_LARGE, false }, { STATUS_ACCESS, false }, { STATUS_INTERNAL, false },
        };
        ClientFixture *f = client_fixture_new();

        (void)client_fixture_get_ring(f);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_false(pipe_is_careful(f->client));
                fail_one(f, RING_VERB_PUT, "a", CLIENT_FIXTURE_SPACE_ID, rows[i].status, "why");
                assert_int_equal(pipe_is_careful(f->client), rows[i].makes_careful);
                assert_true(pipe_take_failure(f->client) < 0);
                assert_int_equal(pipe_is_careful(f->client), rows[i].makes_careful);
                pipe_note_result(f->client, FOLIO_E_EXISTS); /* says nothing of room */
                assert_int_equal(pipe_is_careful(f->client), rows[i].makes_careful);
                pipe_note_result(f->client, 0);
        }
        pipe_note_result(f->client, FOLIO_E_FULL);
        assert_true(pipe_is_careful(f->client));
        pipe_note_result(f->client, FOLIO_E_LIMIT);
        assert_true(pipe_is_careful(f->client));
        pipe_note_result(f->client, 0);
        assert_false(pipe_is_careful(f->client));
        client_fixture_free(f);
}

/* Staging memory comes back with the records that were carried out, more of them than the ring has places, each once. */
static void test_staged(void **state)
{
        enum { BLOCK_BYTES = 64 * 1024 };
        ClientFixture *f = client_fixture_new();
        Ring *ring = client_fixture_get_ring(f);
        unsigned n_taken = 0;
        void *data;

        for (unsigned round = 0; round < 3 * RING_RECORDS; round++) {
                data = pipe_take_staged(f->client, ring, 64);
                assert_non_null(data);
                (void)submit(f, RING_VERB_PUT, "a", CLIENT_FIXTURE_SPACE_ID, round % 3 ? data : NULL, false);
                if (round % 3 == 0)
                        staging_give(f->client->staging, data);
                if (round % 5 == 0)
                        fixture_drain(f->far);
                if (ring_tail(ring) - f->far->head >= RING_RECORDS - 1)
                        fixture_drain(f->far);
        }
        fixture_drain(f->far);
        assert_int_equal(ring_head(ring), 3 * RING_RECORDS);
        /* All of it is there again: so many large pieces, and then none while nothing is carried out. */
        while ((data = staging_take(f->client->staging, BLOCK_BYTES))) {
                (void)submit(f, RING_VERB_PUT, "a", CLIENT_FIXTURE_SPACE_ID, data, false);
                n_taken++;
        }
        assert_true(n_taken >= CLIENT_FIXTURE_STAGING_BYTES / BLOCK_BYTES - 1);
        f->client->timeout_ns = 1;
        assert_null(pipe_take_staged(f->client, ring, BLOCK_BYTES));
        /* One is carried out: its piece is there, and no other. */
        f->client->timeout_ns = FIXTURE_WAIT_NS;
        fixture_do(f->far, STATUS_OK, NULL);
        fixture_publish(f->far);
        (void)ring_head(ring);
        data = pipe_take_staged(f->client, ring, BLOCK_BYTES);
        assert_non_null(data);
        assert_null(staging_take(f->client->staging, BLOCK_BYTES));
        staging_give(f->client->staging, data);
        fixture_drain(f->far);
        (void)ring_head(ring);
        for (unsigned i = 0; i < n_taken; i++)
                assert_non_null(staging_take(f->client->staging, BLOCK_BYTES));
        client_fixture_free(f);
}

static void test_results(void **state)
{
        ClientFixture *f = client_fixture_new();
        Ring *ring = client_fixture_get_ring(f);
        RingResult result;
        RingRecord *record;
        uint64_t sequence = submit(f, RING_VERB_PUT, "a", CLIENT_FIXTURE_SPACE_ID, NULL, true);

        fixture_drain(f->far);
        assert_int_equal(pipe_result(f->client, ring, sequence, "ns:a", &result), 0);
        sequence = submit(f, RING_VERB_PUT, "a", CLIENT_FIXTURE_SPACE_ID, NULL, true);
        fixture_do(f->far, STATUS_EXISTS, "there is one");
        fixture_publish(f->far);
        assert_int_equal(pipe_result(f->client, ring, sequence, "ns:a", &result), FOLIO_E_EXISTS);
        assert_string_equal(folio_strerror_full(), "ns:a: there is one");
        /* Who asked was told: no flush is. */
        assert_int_equal(pipe_take_failure(f->client), 0);
        sequence = submit(f, RING_VERB_PUT, "a", CLIENT_FIXTURE_SPACE_ID, NULL, true);
        f->client->timeout_ns = 1;
        assert_int_equal(pipe_result(f->client, ring, sequence, "ns:a", &result), FOLIO_E_TIMEOUT);
        f->client->timeout_ns = FIXTURE_WAIT_NS;
        sequence = submit(f, RING_VERB_PUT, "a", CLIENT_FIXTURE_SPACE_ID, NULL, true);
        requests_fail(f->client->requests, FOLIO_E_DAEMON_GONE);
        assert_int_equal(pipe_result(f->client, ring, sequence, "ns:a", &result), FOLIO_E_DAEMON_GONE);
        /* A full ring, and nobody there. */
        for (;;) {
                int r = pipe_begin(f->client, ring, &record, &sequence);

                if (r != 0) {
                        assert_int_equal(r, FOLIO_E_DAEMON_GONE);
                        break;
                }
                assert_true(sequence < 2 * RING_RECORDS);
                *record = (RingRecord){ .verb = RING_VERB_PUT };
                ring_submit(ring, 0, false);
        }
        client_fixture_free(f);
}

static int attempt(void)
{
        Client client = { .n_references = 1 };
        int r = pipe_new(&client);

        if (r == 0)
                pipe_free(&client);
        return r;
}

static void test_without_memory(void **state)
{
        fail_alloc_sweep(attempt);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_made_when_some_calls_want_it),
                UNIT_TEST(test_not_before_what_is_on_the_socket),
                UNIT_TEST(test_refused),
                UNIT_TEST(test_not_while_it_opens_or_closes),
                UNIT_TEST(test_numbers),
                UNIT_TEST(test_kept_failures),
                UNIT_TEST(test_hints_fail_in_silence),
                UNIT_TEST(test_careful),
                UNIT_TEST(test_staged),
                UNIT_TEST(test_results),
                UNIT_TEST(test_without_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
