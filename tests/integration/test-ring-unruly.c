/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings of clients that do not behave: they scribble while they are read, ring for nothing, never listen, or stand
 * still in the middle. Each harms itself only; others are answered meanwhile, foliod goes on, and nothing is left.
 */
#include "tests/integration/raw-ring.h"
#include "tests/integration/spaces.h"

#include <pthread.h>

#define MIB (UINT64_C(1) << 20)

/* --- changed while it is read ------------------------------------------------------------------------------------- */

typedef struct Scribbler {
        RawRing *ring;
        uint64_t random;
        _Atomic bool is_over;
} Scribbler;

static uint64_t draw(uint64_t *random, uint64_t n)
{
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (*random >> 33) % n;
}

/* Bytes of records and results, and of what the daemon says; not the tail, so that it is not disconnected at once. */
static void *scribble(void *userdata)
{
        Scribbler *scribbler = userdata;
        uint8_t *records = (uint8_t *)scribbler->ring->records;
        uint8_t *results = (uint8_t *)scribbler->ring->results;
        RingHeader *header = scribbler->ring->header;

        while (!atomic_load(&scribbler->is_over)) {
                /* In place (verb and all but the first 4 bytes), or a word that is meant to look good. */
                uint64_t at = draw(&scribbler->random, RING_RECORDS) * sizeof(RingRecord);

                ((volatile uint8_t *)records)[at + 4 + draw(&scribbler->random, sizeof(RingRecord) - 4)] =
                        (uint8_t)draw(&scribbler->random, 256);
                ((volatile uint8_t *)records)[at + 1] = (uint8_t)draw(&scribbler->random, 80);
                ((volatile uint8_t *)results)[draw(&scribbler->random, RING_RECORDS * sizeof(RingResult))] ^= 0x55;
                atomic_store(&header->lease_use[draw(&scribbler->random, RING_LEASES_MAX)],
                             (uint32_t)draw(&scribbler->random, 2));
                atomic_store(&header->failure_sequence, draw(&scribbler->random, 3));
                atomic_store(&header->n_failed, draw(&scribbler->random, 1000000));
                header->failure_bytes = (uint32_t)(draw(&scribbler->random, UINT32_MAX));
                atomic_store(&header->n_sleeping, (uint32_t)draw(&scribbler->random, 3));
        }
        return NULL;
}

static RingRecord draw_record(const RawHolder *hostile, uint64_t *random)
{
        RingRecord record = { .verb = (uint8_t)(1 + draw(random, _RING_VERB_MAX - 1)) };

        record.namespace_id = draw(random, 2) ? hostile->trusted_id : hostile->default_id;
        record.key_bytes = (uint8_t)draw(random, 6);
        for (unsigned i = 0; i < record.key_bytes; i++)
                record.key[i] = (uint8_t)('a' + draw(random, 3));
        record.slot = (uint32_t)draw(random, 40);
        record.generation = draw(random, 100);
        record.size_bytes = draw(random, 3) ? draw(random, 5000) : UINT64_MAX - draw(random, 100);
        record.region_id = draw(random, 2) ? hostile->lease.region_id : 0;
        record.offset_bytes = draw(random, 1000) * 64;
        record.flags = draw(random, 2) ? FOLIO_REPLACE : 0;
        if (draw(random, 2))
                record.flags |= RING_FLAG_RESULT;
        if (draw(random, 4) == 0)
                record.flags = (uint32_t)*random;
        return record;
}

static void test_scribbled(void **state)
{
        const char *seed = getenv("FOLIO_TEST_SEED");
        uint64_t random = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
        unsigned n_rounds = alive_scaled(100);
        Scene scene = scene_begin();

        (void)state;
        print_message("# FOLIO_TEST_SEED=%llu\n", (unsigned long long)random);
        for (unsigned round = 0; round < n_rounds; round++) {
                RawHolder hostile = raw_holder_open(scene.foliod);
                Scribbler scribbler = { .ring = hostile.ring, .random = random + round };
                pthread_t thread;
                bool is_there = true;

                assert_int_equal(pthread_create(&thread, NULL, scribble, &scribbler), 0);
                for (unsigned i = 0; i < 20 && is_there; i++) {
                        unsigned n = 1 + (unsigned)draw(&random, 100);

                        for (unsigned j = 0; j < n; j++)
                                (void)raw_ring_submit(hostile.ring, draw_record(&hostile, &random));
                        is_there = raw_ring_await(hostile.ring, hostile.ring->tail);
                }
                scene_work(&scene);
                atomic_store(&scribbler.is_over, true);
                assert_int_equal(pthread_join(thread, NULL), 0);
                raw_holder_close(&hostile);
        }
        scene_end(&scene);
}

/* --- the bell, and those who do not listen ------------------------------------------------------------------------ */

typedef struct Ringer {
        RawRing *ring;
        _Atomic bool is_over;
        uint64_t n_rung;
} Ringer;

static void *ring_for_nothing(void *userdata)
{
        static const uint64_t one = 1;
        Ringer *ringer = userdata;

        while (!atomic_load(&ringer->is_over)) {
                ringer->n_rung += write(ringer->ring->bell_fd, &one, sizeof(one)) == sizeof(one);
                atomic_store(&ringer->ring->header->bell, (uint32_t)(ringer->n_rung % 3));
        }
        return NULL;
}

static void test_bell_without_records(void **state)
{
        Scene scene = scene_begin();
        RawHolder hostile = raw_holder_open(scene.foliod);
        Ringer ringer = { .ring = hostile.ring };
        static const uint64_t many = UINT64_MAX - 1;
        RingRecord record = raw_record(RING_VERB_PUT, hostile.default_id, "after all");
        pthread_t thread;

        (void)state;
        assert_int_equal(pthread_create(&thread, NULL, ring_for_nothing, &ringer), 0);
        for (unsigned i = 0; i < alive_scaled(1000); i++)
                scene_work(&scene);
        atomic_store(&ringer.is_over, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(ringer.n_rung > 0);
        /* It has put the bell away that it would have to ring. Hung up again, all is well: from staging memory, as its
         * lease may have been idle for too long meanwhile. */
        record.size_bytes = 64;
        atomic_store(&hostile.ring->header->bell, 1);
        assert_int_equal(raw_ring_call(hostile.ring, record), STATUS_OK);
        /* Filled to the brim, so that the next who rings would have to wait. */
        (void)fcntl(hostile.ring->bell_fd, F_SETFL, O_NONBLOCK);
        (void)!write(hostile.ring->bell_fd, &many, sizeof(many));
        scene_work(&scene);
        raw_holder_close(&hostile);
        scene_end(&scene);
}

/* Results and sentences that nobody reads: each place is written again. */
static void test_results_never_read(void **state)
{
        Scene scene = scene_begin();
        RawHolder hostile = raw_holder_open(scene.foliod);

        (void)state;
        for (unsigned i = 0; i < alive_scaled(20000); i++) {
                RingRecord record = raw_holder_put(&hostile, "again", i % 2 ? 64 : 0, 64);

                record.flags = RING_FLAG_RESULT | (i % 3 ? FOLIO_REPLACE : 0);
                (void)raw_ring_submit(hostile.ring, record);
                if (i % RING_RECORDS == RING_RECORDS - 1)
                        assert_true(raw_ring_await(hostile.ring, hostile.ring->tail));
                if (i % 1000 == 0)
                        scene_work(&scene);
        }
        assert_true(raw_ring_await(hostile.ring, hostile.ring->tail));
        assert_true(atomic_load(&hostile.ring->header->n_failed) > 0);
        assert_true(atomic_load(&hostile.ring->header->failure_sequence) > 0);
        raw_holder_close(&hostile);
        scene_end(&scene);
}

/* --- in the middle, and then nothing ------------------------------------------------------------------------------ */

static void write_for_ever(Child *child)
{
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_client *client = child_connect_with(child, 0);
        uint8_t bytes[3000] = { 1 };
        char name[64];

        spaces_warm_up(client, "trusted");
        child_say(child, 1);
        for (unsigned i = 0;; i++) {
                (void)snprintf(name, sizeof(name), "%s:stopped %u", spaces_names[i / 100 % N_SPACES], i % 100);
                CHECK_OK(folio_put(client, name, bytes, i % sizeof(bytes), &replace));
        }
}

static void test_stopped_in_the_middle(void **state)
{
        Scene scene = scene_begin();
        uint64_t random = (uint64_t)getpid();

        (void)state;
        for (unsigned i = 0; i < alive_scaled(40); i++) {
                Child *child = child_start(scene.foliod, write_for_ever, NULL);
                struct folio_object *object;

                assert_int_equal(child_hear(child), 1);
                (void)usleep((useconds_t)draw(&random, 3000)); /* anywhere */
                assert_int_equal(kill(child->pid, SIGSTOP), 0);
                for (unsigned j = 0; j < 5; j++)
                        scene_work(&scene);
                /* As large as memory allows, whatever the stopped one keeps. */
                ASSERT_OK(folio_create(scene.client, "default:large", 128 * MIB, NULL, &object));
                ASSERT_OK(folio_object_abort(object));
                child_kill(child);
                spaces_await_sessions(scene.client, 1);
                (void)spaces_delete_all(scene.client, "trusted:stopped ");
                (void)spaces_delete_all(scene.client, "default:stopped ");
        }
        scene_end(&scene);
}

/* It says for ever that it is placing something: the lease cannot be taken back from it, until it is gone. */
static void test_never_lets_go(void **state)
{
        Scene scene = scene_begin();
        RawHolder hostile = raw_holder_open(scene.foliod);
        struct folio_object *object;
        int error;

        (void)state;
        atomic_store(&hostile.ring->header->lease_use[hostile.lease.number], UINT32_MAX);
        error = folio_create(scene.client, "default:large", 250 * MIB, NULL, &object);
        assert_true(error == 0 || error == FOLIO_E_FULL || error == FOLIO_E_TOO_LARGE);
        if (error == 0)
                ASSERT_OK(folio_object_abort(object));
        scene_work(&scene);
        assert_int_equal(raw_ring_call(hostile.ring, raw_holder_put(&hostile, "kept", 0, 64)), STATUS_OK);
        atomic_store(&hostile.ring->header->lease_use[hostile.lease.number], 0);
        raw_holder_close(&hostile);
        scene_end(&scene);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_scribbled),
                INTEGRATION_TEST(test_bell_without_records),
                INTEGRATION_TEST(test_results_never_read),
                INTEGRATION_TEST(test_stopped_in_the_middle),
                INTEGRATION_TEST(test_never_lets_go),
        };

        return cmocka_run_group_tests_name("ring-unruly", tests, NULL, NULL);
}
