/* SPDX-License-Identifier: Apache-2.0 */
/* Where a ring goes on after a restart: a table of what was found, and what is left to be carried out. */
#include "harness.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/macro.h"
#include "daemon/server/ring-resume.h"

static struct {
        RingRecord records[RING_RECORDS];
        RingResult results[RING_RECORDS];
        RingMade made[RING_MADE_MAX];
        SessionMade found[RING_MADE_MAX];
        SessionRing ring;
} f;

static void begin(uint64_t head, uint64_t tail)
{
        memset(&f, 0, sizeof(f));
        f.ring = (SessionRing){ .fd = -1, .bell_fd = -1, .head = head, .tail = tail, .made = f.found };
        for (uint64_t n = tail > RING_RECORDS ? tail - RING_RECORDS : 0; n < tail; n++)
                f.records[n % RING_RECORDS] = (RingRecord){ .verb = RING_VERB_PUT, .key_bytes = 1, .key = "k" };
}

static void put_record(uint64_t n, RingVerb verb, uint32_t slot)
{
        f.records[n % RING_RECORDS] = (RingRecord){ .verb = (uint8_t)verb, .slot = slot, .namespace_id = 3 };
}

static void put_result(uint64_t n, Status status)
{
        RingResult *result = &f.results[n % RING_RECORDS];

        result->status = (uint32_t)status;
        atomic_store(&result->sequence, (uint32_t)(n + 1));
}

static void put_object(uint32_t number, uint32_t slot)
{
        f.found[number] = (SessionMade){ .is_there = true, .namespace_id = 3, .slot = slot, .generation = slot + 100 };
}

static uint64_t resume(void)
{
        return ring_resume(&f.ring, f.records, f.results, f.made);
}

static void assert_result(uint64_t n, Status status, uint32_t slot, uint64_t generation)
{
        const RingResult *result = &f.results[n % RING_RECORDS];

        assert_int_equal(atomic_load(&((RingResult *)result)->sequence), (uint32_t)(n + 1));
        assert_int_equal(result->status, status);
        assert_int_equal(result->slot, slot);
        assert_int_equal(result->generation, generation);
}

/* Nothing but numbers: which record is the first that is carried out. */
static void test_heads(void **state)
{
        static const struct {
                uint64_t head, tail;
                uint64_t result;     /* of record @result - 1 there is one; 0: of none */
                uint64_t done;       /* and an event of record @done - 1 */
                uint64_t expected;
        } rows[] = {
                { 0, 0, 0, 0, 0 },
                { 0, 1, 0, 0, 0 },
                { 0, 1, 1, 0, 1 },
                { 0, 1, 0, 1, 1 },
                { 0, 512, 0, 0, 0 },
                { 0, 512, 512, 0, 512 },
                { 0, 512, 0, 512, 512 },
                { 7, 7, 0, 0, 7 },
                { 7, 7, 7, 7, 7 },              /* of before the head */
                { 7, 9, 7, 7, 7 },
                { 7, 9, 8, 0, 8 },
                { 7, 9, 0, 8, 8 },
                { 7, 9, 9, 8, 9 },              /* a result behind the event wins */
                { 7, 9, 8, 9, 9 },              /* and the other way round */
                { 7, 9, 10, 0, 7 },             /* beyond the tail */
                { 7, 9, 0, 10, 7 },
                { 511, 520, 513, 0, 513 },      /* around the end of the ring */
                { 511, 1023, 1023, 0, 1023 },
                { 511, 1023, 511, 0, 511 },     /* that of 512 records ago stands at the same place */
                { UINT32_MAX - 1, UINT64_C(0x100000002), UINT64_C(0x100000001), 0, UINT64_C(0x100000001) },
                { UINT64_C(1) << 40, (UINT64_C(1) << 40) + 3, 0, (UINT64_C(1) << 40) + 2, (UINT64_C(1) << 40) + 2 },
                { UINT64_MAX - 600, UINT64_MAX - 90, 0, 0, UINT64_MAX - 600 },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                begin(rows[i].head, rows[i].tail);
                if (rows[i].result)
                        put_result(rows[i].result - 1, STATUS_EXISTS);
                f.ring.n_done = rows[i].done;
                f.ring.done_slot = 5;
                f.ring.done_generation = 55;
                assert_int_equal(resume(), rows[i].expected);
                for (size_t j = 0; j < RING_MADE_MAX; j++)
                        assert_int_equal(f.made[j].state, RING_MADE_NONE);
        }
}

/* What an event tells of becomes a result, for who waits for one; one that is there stays. */
static void test_events_become_results(void **state)
{
        begin(4, 8);
        f.ring.n_done = 6;
        f.ring.done_slot = 5;
        f.ring.done_generation = 55;
        assert_int_equal(resume(), 6);
        assert_result(5, STATUS_OK, 5, 55);
        assert_int_equal(atomic_load(&f.results[4].sequence), 0);

        begin(4, 8);
        f.ring.n_done = 6;
        put_result(5, STATUS_OK);
        f.results[5].slot = 9;
        assert_int_equal(resume(), 6);
        assert_result(5, STATUS_OK, 9, 0);
}

/* A creation leaves no event: the object is there, under its number. Only the first record can have been under way. */
static void test_created(void **state)
{
        begin(10, 12);
        put_record(10, RING_VERB_CREATE, 4);
        put_record(11, RING_VERB_CREATE, 5);
        put_object(4, 40);
        put_object(5, 50); /* which is a lie, or from before: it is for the record to be refused */
        assert_int_equal(resume(), 11);
        assert_result(10, STATUS_OK, 40, 140);
        assert_int_equal(f.made[4].state, RING_MADE_OBJECT);
        assert_int_equal(f.made[4].slot, 40);
        assert_int_equal(f.made[4].generation, 140);
        assert_int_equal(f.made[4].namespace_id, 3);

        /* It was not created yet. */
        begin(10, 11);
        put_record(10, RING_VERB_CREATE, 4);
        assert_int_equal(resume(), 10);
        assert_int_equal(f.made[4].state, RING_MADE_NONE);

        /* What has that number is another object. */
        begin(10, 11);
        put_record(10, RING_VERB_CREATE, 4);
        put_object(4, 40);
        f.found[4].namespace_id = 2;
        assert_int_equal(resume(), 10);
        begin(10, 11);
        put_record(10, RING_VERB_CREATE, 4);
        put_object(4, 40);
        f.found[4].region_id = 8;
        assert_int_equal(resume(), 10);

        /* No list of objects at all; numbers beyond any. */
        begin(10, 11);
        put_record(10, RING_VERB_CREATE, RING_MADE_MAX);
        f.ring.made = NULL;
        assert_int_equal(resume(), 10);
        begin(10, 11);
        put_record(10, RING_VERB_ABORT, UINT32_MAX);
        assert_int_equal(resume(), 10);
}

static void test_aborted(void **state)
{
        begin(10, 12);
        put_record(10, RING_VERB_ABORT, 4);
        put_record(11, RING_VERB_ABORT, 5);
        assert_int_equal(resume(), 11);
        assert_result(10, STATUS_OK, 0, 0);

        begin(10, 11);
        put_record(10, RING_VERB_ABORT, 4);
        put_object(4, 40);
        assert_int_equal(resume(), 10);
}

/* A seal or an abort that comes later finds out that nothing was created, and why. */
static void test_failed_creations_are_remembered(void **state)
{
        begin(10, 12);
        put_record(7, RING_VERB_CREATE, 4);
        put_result(7, STATUS_EXISTS);
        put_record(8, RING_VERB_CREATE, 5);
        put_result(8, STATUS_FULL);
        put_record(9, RING_VERB_ABORT, 5);
        put_record(10, RING_VERB_SEAL, 4);
        assert_int_equal(resume(), 10);
        assert_int_equal(f.made[4].state, RING_MADE_FAILED);
        assert_int_equal(f.made[4].status, STATUS_EXISTS);
        assert_int_equal(f.made[5].state, RING_MADE_NONE);

        /* The same number again, with success; and one that is nobody's status. */
        begin(10, 12);
        put_record(6, RING_VERB_CREATE, 4);
        put_result(6, STATUS_EXISTS);
        put_record(7, RING_VERB_CREATE, 4);
        put_object(4, 40);
        put_record(8, RING_VERB_CREATE, 5);
        put_result(8, (Status)UINT32_MAX);
        put_record(9, RING_VERB_CREATE, 6);
        put_result(9, _STATUS_MAX);
        assert_int_equal(resume(), 10);
        assert_int_equal(f.made[4].state, RING_MADE_OBJECT);
        assert_int_equal(f.made[5].state, RING_MADE_NONE);
        assert_int_equal(f.made[6].state, RING_MADE_NONE);

        /* One that was in doubt, and has a result. */
        begin(10, 12);
        put_record(10, RING_VERB_CREATE, 4);
        put_result(10, STATUS_LIMIT);
        assert_int_equal(resume(), 11);
        assert_int_equal(f.made[4].state, RING_MADE_FAILED);
        assert_int_equal(f.made[4].status, STATUS_LIMIT);
}

/* Whatever stands in the ring, head stays between what it was and the tail. */
static void test_garbage(void **state)
{
        unsigned seed = 1;

        for (unsigned i = 0; i < 2000; i++) {
                uint64_t head = (uint64_t)rand_r(&seed) << (rand_r(&seed) % 32), n = (unsigned)rand_r(&seed) % 513;
                uint64_t result;

                begin(head, head + n);
                for (size_t j = 0; j < sizeof(f.records); j++)
                        ((uint8_t *)f.records)[j] = (uint8_t)rand_r(&seed);
                for (size_t j = 0; j < RING_RECORDS; j++) {
                        f.results[j].status = (uint32_t)rand_r(&seed);
                        atomic_store(&f.results[j].sequence, (uint32_t)(head + (unsigned)rand_r(&seed) % 1024));
                        f.records[j].verb %= _RING_VERB_MAX + 1;
                        f.records[j].slot %= RING_MADE_MAX + 8;
                }
                f.ring.n_done = head + (unsigned)rand_r(&seed) % 1024;
                put_object((uint32_t)rand_r(&seed) % RING_MADE_MAX, 1);
                result = resume();
                assert_true(result >= head && result <= head + n);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_heads),
                UNIT_TEST(test_events_become_results),
                UNIT_TEST(test_created),
                UNIT_TEST(test_aborted),
                UNIT_TEST(test_failed_creations_are_remembered),
                UNIT_TEST(test_garbage),
        };

        return cmocka_run_group_tests_name("ring-resume", tests, NULL, NULL);
}
