/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of a client in one namespace: when the first is asked for, how large the next, and what a refusal is worth. */
#include "tests/unit/client-fixture.h"

/* Places an object, and publishes it as nothing: the places are never used again. */
static bool place(ClientFixture *f, uint64_t n_bytes)
{
        Leases *leases = leases_of(&f->name);
        Placed placed;

        if (!leases_place(f->client, f->far->ring, leases, &f->space, n_bytes, true, &placed))
                return false;
        assert_ptr_equal(placed.leases, leases);
        assert_true(placed.is_locked);
        assert_int_equal(placed.n_bytes, n_bytes);
        assert_true(placed.offset_bytes + n_bytes <= lease_region_bytes(placed.lease));
        assert_ptr_equal(placed.data, lease_data(placed.lease) + placed.offset_bytes);
        leases_published(&placed);
        return true;
}

/* So that it is worth it. */
static void put_others(ClientFixture *f)
{
        for (unsigned i = 0; i < 64; i++)
                leases_count_other(leases_of(&f->name), 0);
}

static ClientFixture *begin(void)
{
        ClientFixture *f = client_fixture_new();

        (void)client_fixture_get_ring(f);
        return f;
}

static void test_only_where_writers_are_trusted(void **state)
{
        ClientFixture *f = client_fixture_new();
        Leases *leases;

        f->name.writers = FOLIO_WRITERS_UNTRUSTED;
        assert_null(leases_of(&f->name));
        leases_note_freed(&f->name); /* of none */
        f->name.writers = FOLIO_WRITERS_TRUSTED;
        leases = leases_of(&f->name);
        assert_non_null(leases);
        assert_ptr_equal(leases_of(&f->name), leases);
        leases_note_freed(&f->name);
        client_fixture_free(f);
}

/* One row for each threshold: just below it, and at it. */
static void test_when_the_first_is_asked_for(void **state)
{
        static const struct {
                unsigned n_other;
                uint64_t other_bytes; /* of all of them */
                uint64_t n_bytes;
                bool is_asked;
        } rows[] = {
                { 0, 0, 0, false },
                { 0, 0, 64, false },
                { 63, 63, 64, false },
                { 64, 64, 64, true },
                { 1, 64 * KIB - 1, 64, false },
                { 1, 64 * KIB, 64, true },
                { 2, 64 * KIB - 1, MIB, false },
                { 2, UINT64_MAX / 2, 0, true },
                { 0, 0, MIB, false }, /* as large as what is packed */
                { 0, 0, MIB + 1, true },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                ClientFixture *f = begin();

                for (unsigned k = 0; k < rows[i].n_other; k++)
                        leases_count_other(leases_of(&f->name), k == 0 ? rows[i].other_bytes - (rows[i].n_other - 1) : 1);
                assert_int_equal(place(f, rows[i].n_bytes), rows[i].is_asked);
                assert_int_equal(f->n_leases, rows[i].is_asked);
                /* With one there is no threshold any more. */
                assert_int_equal(place(f, 64), rows[i].is_asked);
                assert_int_equal(f->n_leases, rows[i].is_asked);
                client_fixture_free(f);
        }
}

/* Each is twice as large as the last, up to 64 MiB; or as large as what must fit, in whole huge pages. */
static void test_sizes(void **state)
{
        static const uint64_t liked[] = { 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB, 64 * MIB, 64 * MIB };
        ClientFixture *f = begin();

        for (size_t i = 0; i < ARRAY_SIZE(liked); i++) {
                uint64_t n_bytes = i == 0 ? HUGE_BYTES : liked[i - 1] + 1;

                /* Larger than any there is, and smaller than the next. */
                assert_true(place(f, n_bytes));
                assert_int_equal(f->n_leases, i + 1);
                assert_int_equal(f->wanted_bytes[i], n_bytes);
                assert_int_equal(f->liked_bytes[i], MAX(liked[i], ALIGN_UP(n_bytes, HUGE_BYTES)));
        }
        assert_true(place(f, 300 * MIB + 1));
        assert_int_equal(f->n_leases, ARRAY_SIZE(liked) + 1);
        assert_int_equal(f->liked_bytes[ARRAY_SIZE(liked)], 302 * MIB);
        client_fixture_free(f);
}

static void test_too_large_is_not_asked_for(void **state)
{
        static const uint64_t sizes[] = { LEASE_REGION_BYTES_MAX + 1, UINT64_MAX / 2, UINT64_MAX };
        ClientFixture *f = begin();

        put_others(f);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                assert_false(place(f, sizes[i]));
        assert_int_equal(f->n_leases, 0);
        client_fixture_free(f);
}

/* What was refused is not asked for again at once, nor is more; less is, and all of it when something was deleted. */
static void test_refused(void **state)
{
        ClientFixture *f = begin();
        unsigned n, n_tries = 2000;

        put_others(f);
        f->lease_status = STATUS_FULL;
        (void)error_set(FOLIO_E_STATE, "before");
        for (unsigned i = 0; i < n_tries; i++)
                assert_false(place(f, 64 * KIB + i));
        n = f->n_leases;
        assert_string_equal(folio_strerror_full(), "before"); /* no call of the program's has failed */
        assert_in_range(n, 1, n_tries / 2); /* one, on a machine that does not stand still meanwhile */
        assert_false(place(f, 64));
        assert_int_equal(f->n_leases, n + 1);
        leases_note_freed(&f->name);
        assert_false(place(f, MIB));
        assert_int_equal(f->n_leases, n + 2);
        assert_int_equal(f->liked_bytes[n + 1], HUGE_BYTES); /* a refusal makes none larger */
        f->lease_status = STATUS_OK;
        leases_note_freed(&f->name);
        assert_true(place(f, MIB));
        assert_int_equal(f->n_leases, n + 3);
        client_fixture_free(f);
}

/* One that the daemon has taken back is dropped where that is noticed, and another is asked for. */
static void test_taken_back(void **state)
{
        ClientFixture *f = begin();

        put_others(f);
        for (unsigned i = 1; i <= 5; i++) {
                assert_true(place(f, 64));
                assert_int_equal(f->n_leases, i);
                assert_true(place(f, 64));
                assert_int_equal(f->n_leases, i);
                atomic_fetch_add(&f->book->epoch, 1);
        }
        client_fixture_free(f);
}

/* Without a lock that is kept: a reference, and the lease begun, until nothing came of it. */
static void test_given_back(void **state)
{
        ClientFixture *f = begin();
        Leases *leases = leases_of(&f->name);
        _Atomic uint32_t *use = &f->far->shared->lease_use[0];
        uint64_t first = 0;

        put_others(f);
        for (unsigned i = 0; i < 3; i++) {
                Placed placed;

                assert_true(leases_place(f->client, f->far->ring, leases, &f->space, 100, false, &placed));
                assert_false(placed.is_locked);
                assert_int_equal(atomic_load(use), 1);
                if (i == 0)
                        first = placed.offset_bytes;
                assert_int_equal(placed.offset_bytes, first); /* the same again: nothing was lost */
                leases_lock(leases);
                leases_give(&placed);
                assert_int_equal(atomic_load(use), 0);
        }
        assert_int_equal(f->n_leases, 1);
        client_fixture_free(f);
}

/* Answers that no daemon gives: nothing is placed, and no descriptor stays. */
static void test_answers_that_err(void **state)
{
        static const struct {
                uint32_t number, descriptor;
                size_t n_fds;
                uint64_t epoch, bytes;
        } rows[] = {
                { 0, 0, 0, 3, 0 },
                { 0, 0, 2, 3, 0 },
                { 0, 1, 1, 3, 0 },
                { 0, 2, 2, 3, 0 },
                { 0, UINT32_MAX, 2, 3, 0 },
                { RING_LEASES_MAX, 1, 2, 3, 0 },
                { UINT32_MAX, 1, 2, 3, 0 },
                { 0, 1, 2, UINT64_C(1) << 32, 0 },
                { 0, 1, 2, 3, LEASE_UNIT_BYTES - 1 },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                ClientFixture *f = begin();

                put_others(f);
                f->lease_number = rows[i].number;
                f->descriptor = rows[i].descriptor;
                f->n_fds = rows[i].n_fds;
                f->epoch = rows[i].epoch;
                f->lease_bytes = rows[i].bytes;
                assert_false(place(f, 64));
                assert_true(f->n_leases > 0);
                client_fixture_free(f);
        }
}

/* As many as there are numbers for; then the other way. */
static void test_as_many_as_there_are_numbers(void **state)
{
        ClientFixture *f = begin();

        put_others(f);
        f->lease_bytes = LEASE_UNIT_BYTES;
        for (unsigned i = 0; i < RING_LEASES_MAX; i++) {
                assert_true(place(f, 64));
                assert_int_equal(f->n_leases, i + 1);
        }
        f->lease_number = 0;
        assert_false(place(f, 64));
        client_fixture_free(f);
}

static void test_not_at_the_clients_end(void **state)
{
        ClientFixture *f = begin();

        put_others(f);
        f->client->n_references = 0;
        assert_false(place(f, 64));
        assert_int_equal(f->n_leases, 0);
        client_fixture_free(f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_only_where_writers_are_trusted),
                UNIT_TEST(test_when_the_first_is_asked_for),
                UNIT_TEST(test_sizes),
                UNIT_TEST(test_too_large_is_not_asked_for),
                UNIT_TEST(test_refused),
                UNIT_TEST(test_taken_back),
                UNIT_TEST(test_given_back),
                UNIT_TEST(test_answers_that_err),
                UNIT_TEST(test_as_many_as_there_are_numbers),
                UNIT_TEST(test_not_at_the_clients_end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
