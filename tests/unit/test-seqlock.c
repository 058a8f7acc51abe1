/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seqlock: each verb's rule by itself, then a writer and readers on one record, in which every word has to tell
 * the same story. What is whole must be consistent; what is torn must be seen to be.
 */
#include "tests/unit/harness.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/macro.h"
#include "proto/seqlock.h"

static void test_the_sequence_is_odd_while_writing(void **state)
{
        uint32_t sequence = 0, begun = 99;

        assert_true(seqlock_read_begin(&sequence, &begun));
        assert_int_equal(begun, 0);
        seqlock_write_begin(&sequence);
        assert_int_equal(sequence, 1);
        assert_false(seqlock_read_begin(&sequence, &begun));
        seqlock_write_end(&sequence);
        assert_int_equal(sequence, 2);
        assert_true(seqlock_read_begin(&sequence, &begun));
        assert_int_equal(begun, 2);
}

static void test_a_write_in_between_is_noticed(void **state)
{
        uint32_t sequence = 0, begun;

        assert_true(seqlock_read_begin(&sequence, &begun));
        assert_true(seqlock_read_check(&sequence, begun));
        seqlock_write_begin(&sequence);
        assert_false(seqlock_read_check(&sequence, begun));
        seqlock_write_end(&sequence);
        assert_false(seqlock_read_check(&sequence, begun));
}

static void test_the_sequence_may_wrap(void **state)
{
        uint32_t sequence = UINT32_MAX - 1, begun;

        assert_true(seqlock_read_begin(&sequence, &begun));
        seqlock_write_begin(&sequence);
        assert_int_equal(sequence, UINT32_MAX);
        seqlock_write_end(&sequence);
        assert_int_equal(sequence, 0);
        assert_false(seqlock_read_check(&sequence, begun));
        assert_true(seqlock_read_begin(&sequence, &begun));
        assert_true(seqlock_read_check(&sequence, begun));
}

static void test_copies(void **state)
{
        uint64_t from[5] = { 1, 2, 3, 4, 5 }, to[5] = { 0 };

        seqlock_copy_out(to, from, 4);
        assert_memory_equal(to, from, 4 * sizeof(from[0]));
        assert_int_equal(to[4], 0);
        from[0] = 7;
        seqlock_copy_in(to, from, 1);
        assert_int_equal(to[0], 7);
        assert_int_equal(to[1], 2);
        seqlock_copy_out(to, from, 0);
        assert_int_equal(to[4], 0);
}

enum { N_WORDS = 16, N_WRITES = 300 * 1000, N_READERS = 2 };

typedef struct Record {
        uint32_t sequence;
        uint64_t words[N_WORDS];     /* word i is number * (i + 1) */
} Record;

typedef struct Reader {
        pthread_t thread;
        uint64_t n_whole;
        uint64_t n_inconsistent;
        uint64_t n_backwards;
} Reader;

static Record shared_record;
static atomic_bool is_over;

static void *write_numbers(void *userdata)
{
        uint64_t words[N_WORDS];

        for (uint64_t number = 1; number <= N_WRITES; number++) {
                for (uint64_t i = 0; i < N_WORDS; i++)
                        words[i] = number * (i + 1);
                seqlock_write_begin(&shared_record.sequence);
                seqlock_copy_in(shared_record.words, words, N_WORDS);
                seqlock_write_end(&shared_record.sequence);
        }
        atomic_store(&is_over, true);
        return NULL;
}

static void *read_numbers(void *userdata)
{
        Reader *reader = userdata;
        uint64_t words[N_WORDS], last = 0;
        bool is_last;
        uint32_t begun;

        do {
                /* Once more after the end, so that each reader has at least one whole copy. */
                is_last = atomic_load(&is_over);
                if (!seqlock_read_begin(&shared_record.sequence, &begun))
                        continue;
                seqlock_copy_out(words, shared_record.words, N_WORDS);
                if (!seqlock_read_check(&shared_record.sequence, begun))
                        continue;
                reader->n_whole++;
                for (uint64_t i = 0; i < N_WORDS; i++)
                        reader->n_inconsistent += words[i] != words[0] * (i + 1);
                reader->n_backwards += words[0] < last;
                last = words[0];
        } while (!is_last);
        return NULL;
}

static void test_readers_see_whole_records(void **state)
{
        Reader readers[N_READERS] = { 0 };
        pthread_t writer;

        shared_record = (Record){ 0 };
        atomic_store(&is_over, false);
        for (int i = 0; i < N_READERS; i++)
                assert_int_equal(pthread_create(&readers[i].thread, NULL, read_numbers, &readers[i]), 0);
        assert_int_equal(pthread_create(&writer, NULL, write_numbers, NULL), 0);
        assert_int_equal(pthread_join(writer, NULL), 0);
        for (int i = 0; i < N_READERS; i++) {
                assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
                assert_true(readers[i].n_whole > 0);
                assert_int_equal(readers[i].n_inconsistent, 0);
                assert_int_equal(readers[i].n_backwards, 0);
        }
        assert_int_equal(shared_record.sequence, 2 * N_WRITES);
        assert_int_equal(shared_record.words[N_WORDS - 1], (uint64_t)N_WRITES * N_WORDS);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_the_sequence_is_odd_while_writing),
                UNIT_TEST(test_a_write_in_between_is_noticed),
                UNIT_TEST(test_the_sequence_may_wrap),
                UNIT_TEST(test_copies),
                UNIT_TEST(test_readers_see_whole_records),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
