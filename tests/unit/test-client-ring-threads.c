/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring, a lease, and a daemon that is a thread of the test: several threads put records in, wait for them, ask
 * what came of them, and read what they have written. The daemon keeps an index of what it has carried out, and a
 * book; it sleeps and is rung for, stops now and then, and fails what it is told to. Nobody is left asleep,
 * nothing is told twice or to the wrong one, and nothing is placed where something is.
 */
#include "tests/unit/client-ring-fixture.h"

#include "client/lib/ring-private.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "tests/unit/book-fixture.h"

enum { THREADS = 4, ROUNDS = 3000, KEYS = 64, FAILS = 1000 };

typedef struct Race {
        RingFixture *ring;
        LeaseFixture *lease;
        pthread_mutex_t lock;        /* around place and publish */
        atomic_bool is_over;
        atomic_uint n_bad;
        /* The index: how often each key of each thread has been carried out. */
        _Atomic uint32_t done[THREADS][KEYS];
        unsigned n_told[THREADS];    /* of failures; with the ring's lock */
        unsigned n_expected[THREADS];
        unsigned n_seen[THREADS];
} Race;

#define CHECK(race, condition) ((condition) ? (void)0 : (void)atomic_fetch_add(&(race)->n_bad, 1))

static uint32_t draw(uint32_t *random, uint32_t n)
{
        *random = *random * 1664525 + 1013904223;
        return (*random >> 8) % n;
}

/* -- the daemon ---------------------------------------------------------------------------------------------------- */

typedef struct Held {
        uint32_t first;
        uint32_t n_units;
} Held;

static void carry_out(Race *race, Held *held, unsigned n_held, uint32_t *random)
{
        RingFixture *f = race->ring;
        RingRecord record = f->records[f->head & (f->n_records - 1)];
        bool fails = record.generation == FAILS;

        if (record.region_id != 0 && !fails) {
                Held *old = &held[draw(random, n_held)];

                CHECK(race, record.region_id == FIXTURE_REGION_ID);
                CHECK(race, lease_fixture_take(race->lease, (uint32_t)(record.offset_bytes / LEASE_UNIT_BYTES),
                                               (uint32_t)lease_units(record.size_bytes)));
                if (old->n_units > 0) {
                        lease_fixture_log(race->lease, old->first, old->n_units);
                        lease_fixture_clear(race->lease, old->first, old->n_units);
                }
                *old = (Held){ .first = (uint32_t)(record.offset_bytes / LEASE_UNIT_BYTES),
                               .n_units = (uint32_t)lease_units(record.size_bytes) };
        }
        if (!fails)
                atomic_fetch_add_explicit(&race->done[record.namespace_id][record.slot], 1, memory_order_relaxed);
        fixture_do(f, fails ? STATUS_FULL : STATUS_OK, draw(random, 2) ? "told" : NULL);
}

static void *daemon_run(void *userdata)
{
        Race *race = userdata;
        RingFixture *f = race->ring;
        Held held[100] = { 0 };
        uint32_t random = 99;

        while (!atomic_load(&race->is_over)) {
                struct pollfd bell = { .fd = f->bell_fd, .events = POLLIN };
                uint64_t n;

                for (unsigned i = draw(&random, 40) + 1; i > 0 && fixture_has_records(f); i--)
                        carry_out(race, held, ARRAY_SIZE(held), &random);
                fixture_publish(f);
                if (draw(&random, 30) == 0)
                        (void)sched_yield();
                if (fixture_has_records(f) || ring_hang_bell(f->shared, f->head))
                        continue;
                CHECK(race, poll(&bell, 1, 10000) == 1);
                (void)!read(f->bell_fd, &n, sizeof(n));
        }
        return NULL;
}

/* -- the client ---------------------------------------------------------------------------------------------------- */

typedef struct Producer {
        Race *race;
        unsigned index;
        pthread_t thread;
} Producer;

static void on_race_failure(void *userdata, const RingRecord *record, uint32_t status, const char *text)
{
        Race *race = userdata;

        CHECK(race, status == STATUS_FULL && record->generation == FAILS && record->namespace_id < THREADS);
        CHECK(race, text[0] == '\0' || strcmp(text, "told") == 0);
        race->n_told[record->namespace_id % THREADS]++;
}

static bool race_is_alive(void *userdata)
{
        return true;
}

static void on_race_progress(void *userdata, uint64_t head)
{
}

static uint64_t race_hash(unsigned thread, uint32_t key)
{
        return (uint64_t)(thread * KEYS + key + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Places in the lease and publishes, or where there is no room does without. False: the ring is of no use. */
static bool put(Producer *producer, uint32_t key, uint32_t n_bytes, bool fails, bool wants_result,
                uint64_t *ret_sequence)
{
        Race *race = producer->race;
        Lease *lease = race->lease->lease;
        RingRecord *record;
        uint64_t offset = 0;
        void *data;
        int placed, r;

        (void)pthread_mutex_lock(&race->lock);
        CHECK(race, lease_begin(lease));
        placed = lease_place(lease, n_bytes, ring_head_seen(race->ring->ring), &offset, &data);
        if (placed == LEASE_PLACE_OK)
                memset(data, (int)producer->index, n_bytes);
        r = ring_begin(race->ring->ring, FIXTURE_WAIT_NS, &record, ret_sequence);
        if (r == 0) {
                *record = (RingRecord){
                        .verb = RING_VERB_PUT,
                        .namespace_id = producer->index,
                        .slot = key,
                        .generation = fails ? FAILS : 0,
                        .size_bytes = n_bytes,
                        .region_id = placed == LEASE_PLACE_OK ? FIXTURE_REGION_ID : 0,
                        .offset_bytes = offset,
                };
                if (placed == LEASE_PLACE_OK)
                        lease_placed_at(lease, offset, *ret_sequence);
                ring_submit(race->ring->ring, race_hash(producer->index, key), wants_result);
        }
        lease_end(lease);
        (void)pthread_mutex_unlock(&race->lock);
        /* Outside the lock, so that others go on. */
        if (placed == LEASE_PLACE_BEHIND)
                (void)ring_head(race->ring->ring);
        return r == 0;
}

static void take_result(Producer *producer, uint64_t sequence, bool fails, uint32_t *random)
{
        Race *race = producer->race;
        Ring *ring = race->ring->ring;
        char text[RING_FAILURE_BYTES_MAX + 1];
        RingResult result;

        switch (draw(random, 3)) {
        case 0:
                ring_forget_result(ring, sequence);
                race->n_expected[producer->index] += fails;
                return;
        case 1:
                if (ring_try_result(ring, sequence, &result, text))
                        break;
                /* fallthrough */
        default:
                CHECK(race, ring_wait_result(ring, sequence, FIXTURE_WAIT_NS, &result, text) == 0);
        }
        CHECK(race, result.status == (fails ? STATUS_FULL : STATUS_OK));
        CHECK(race, result.sequence == (uint32_t)(sequence + 1));
        race->n_seen[producer->index] += fails;
}

static void *producer_run(void *userdata)
{
        Producer *producer = userdata;
        Race *race = producer->race;
        Ring *ring = race->ring->ring;
        uint32_t random = producer->index * 77 + 5, counts[KEYS] = { 0 };
        uint64_t late_sequence = 0;
        bool has_late = false, late_fails = false;

        for (unsigned i = 0; i < ROUNDS; i++) {
                uint32_t key = draw(&random, KEYS);
                uint32_t n_bytes = draw(&random, 20) ? draw(&random, 300) : draw(&random, 50000);
                bool fails = draw(&random, 10) == 0, wants = draw(&random, 4) == 0;
                uint64_t sequence;

                if (!put(producer, key, n_bytes, fails, wants, &sequence)) {
                        CHECK(race, false);
                        break;
                }
                counts[key] += !fails;
                if (!wants) {
                        race->n_expected[producer->index] += fails;
                } else if (!has_late && draw(&random, 2) == 0) {
                        /* Asked for much later, when its place has been used again. */
                        late_sequence = sequence;
                        late_fails = fails;
                        has_late = true;
                } else {
                        take_result(producer, sequence, fails, &random);
                }
                if (has_late && draw(&random, 50) == 0) {
                        take_result(producer, late_sequence, late_fails, &random);
                        has_late = false;
                }
                key = draw(&random, KEYS);
                if (draw(&random, 4) == 0) {
                        CHECK(race, ring_catch_up(ring, race_hash(producer->index, key), FIXTURE_WAIT_NS) == 0);
                        CHECK(race, atomic_load_explicit(&race->done[producer->index][key], memory_order_relaxed) ==
                                            counts[key]);
                }
                if (draw(&random, 200) == 0)
                        CHECK(race, ring_wait(ring, sequence, FIXTURE_WAIT_NS) == 0);
        }
        if (has_late)
                take_result(producer, late_sequence, late_fails, &random);
        CHECK(race, ring_catch_up(ring, 0, FIXTURE_WAIT_NS) == 0);
        for (uint32_t key = 0; key < KEYS; key++)
                CHECK(race, atomic_load(&race->done[producer->index][key]) == counts[key]);
        return NULL;
}

static void race_run(uint32_t n_records, uint64_t region_bytes)
{
        RingConfig config = {
                .is_alive = race_is_alive, .on_failure = on_race_failure, .on_progress = on_race_progress
        };
        Race *race = calloc(1, sizeof(*race));
        Producer producers[THREADS];
        pthread_t daemon_thread;
        uint64_t one = 1;
        int fd;

        assert_non_null(race);
        race->ring = calloc(1, sizeof(*race->ring));
        assert_non_null(race->ring);
        config.userdata = race;
        fd = fixture_make(race->ring, n_records);
        assert_int_equal(ring_new(&config, fd, fcntl(race->ring->bell_fd, F_DUPFD_CLOEXEC, 3), &race->ring->ring), 0);
        race->lease = lease_fixture_new(region_bytes);
        assert_int_equal(pthread_mutex_init(&race->lock, NULL), 0);
        assert_int_equal(pthread_create(&daemon_thread, NULL, daemon_run, race), 0);
        for (unsigned i = 0; i < THREADS; i++) {
                producers[i] = (Producer){ .race = race, .index = i };
                assert_int_equal(pthread_create(&producers[i].thread, NULL, producer_run, &producers[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++)
                assert_int_equal(pthread_join(producers[i].thread, NULL), 0);
        atomic_store(&race->is_over, true);
        assert_int_equal(write(race->ring->bell_fd, &one, sizeof(one)), sizeof(one));
        assert_int_equal(pthread_join(daemon_thread, NULL), 0);
        assert_int_equal(atomic_load(&race->n_bad), 0);
        for (unsigned i = 0; i < THREADS; i++) {
                assert_int_equal(race->n_told[i], race->n_expected[i]);
                assert_true(race->n_seen[i] > 0);
        }
        assert_int_equal(race->ring->shared->n_sleeping, 0);
        assert_int_equal(ring_head_seen(race->ring->ring), (uint64_t)THREADS * ROUNDS);
        (void)pthread_mutex_destroy(&race->lock);
        lease_fixture_free(race->lease);
        fixture_free(race->ring);
        free(race);
}

static void test_small_ring(void **state)
{
        race_run(4, 256 * KIB);
}

static void test_ring_of_one(void **state)
{
        race_run(1, 4 * MIB);
}

static void test_usual_ring(void **state)
{
        race_run(RING_RECORDS, 2 * MIB);
}

/*
 * A thread that has submitted looks for its key while another is in the middle of submitting: the table of hashes, where
 * the two share a place, has the other's number already, and the tail does not count it yet.
 */
static void test_catch_up_beside_one_that_submits(void **state)
{
        static const uint64_t begun[] = { 0, UINT32_MAX - 1, UINT32_MAX };

        for (size_t i = 0; i < ARRAY_SIZE(begun); i++) {
                RingFixture *f = fixture_new_at(16, begun[i]);

                (void)fixture_submit(f, 0, 17, false);
                atomic_store(&f->ring->latest[17], (uint32_t)(begun[i] + 2));
                assert_false(ring_is_caught_up(f->ring, 17));
                assert_int_equal(ring_catch_up(f->ring, 17, 0), RING_E_TIMEOUT);
                fixture_drain(f);
                assert_true(ring_is_caught_up(f->ring, 17));
                /* Nothing is waited for that is not there. */
                (void)ring_head(f->ring);
                assert_true(ring_is_caught_up(f->ring, 17));
                assert_int_equal(ring_catch_up(f->ring, 17, 0), 0);
                fixture_free(f);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_catch_up_beside_one_that_submits),
                UNIT_TEST(test_small_ring),
                UNIT_TEST(test_ring_of_one),
                UNIT_TEST(test_usual_ring),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
