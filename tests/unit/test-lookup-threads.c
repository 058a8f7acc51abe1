/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the index while another thread writes it: nothing half, nothing denied that is there. Ends with a
 * measurement, printed and not judged.
 */
#include <pthread.h>
#include <time.h>

#include "client/lib/lookup.h"
#include "tests/unit/index-fake.h"

#define NOW UINT64_C(1000000)

#define WRITER_TURNS 30000u

static const char long_key[] = "a key that is longer than the thirty-two bytes of a slot, and so goes on in the heap";

typedef struct Race {
        FakeIndex fake;
        Space *space;
        atomic_bool is_over;
        atomic_uint n_bad;
        atomic_uint n_found;
} Race;

static void race_read(Race *race, Key key, bool is_always_there)
{
        Lookup found;

        switch (lookup_find(race->space, key, NOW, &found)) {
        case LOOKUP_FOUND:
                /* Whole: the writer keeps these two together. */
                if (found.copy.size_bytes != found.copy.generation * 3)
                        atomic_fetch_add(&race->n_bad, 1);
                atomic_fetch_add(&race->n_found, 1);
                break;
        case LOOKUP_MISSING:
                if (is_always_there)
                        atomic_fetch_add(&race->n_bad, 1);
                break;
        case LOOKUP_UNSURE:
                break;
        }
}

static void *race_reader(void *userdata)
{
        Race *race = userdata;
        LayoutSlot copy;
        LayoutEvent event;
        uint64_t oldest, next = 1;
        char key[255], type[255], metadata[4096];

        while (!atomic_load(&race->is_over)) {
                race_read(race, fake_key("stays"), true);
                race_read(race, fake_key("replaced"), true);
                race_read(race, fake_key(long_key), true);
                race_read(race, fake_key("comes and goes"), false);
                if (lookup_read_slot(race->space, 2, &copy) &&
                    lookup_read_texts(race->space, 2, &copy, key, type, metadata) &&
                    memcmp(key, long_key, strlen(long_key)) != 0)
                        atomic_fetch_add(&race->n_bad, 1);
                switch (lookup_read_event(race->space, next, &event, &oldest)) {
                case LOOKUP_EVENT:
                        if (event.sequence != next || event.generation != next)
                                atomic_fetch_add(&race->n_bad, 1);
                        next++;
                        break;
                case LOOKUP_EVENT_LAPPED:
                        next = oldest;
                        break;
                case LOOKUP_EVENT_NONE:
                        break;
                }
        }
        return NULL;
}

static void race_write(Race *race)
{
        FakeIndex *fake = &race->fake;
        FakeObject object = { .state = LAYOUT_SLOT_SEALED };
        uint32_t current[2] = { 1, 2 }, other[2] = { 4, 5 }, swapped;
        const char *const keys[2] = { "replaced", long_key };
        char key[32];

        for (unsigned turn = 0; turn < WRITER_TURNS; turn++) {
                unsigned i = turn & 1;

                object.key = fake_key(keys[i]);
                object.size_bytes = (fake->generation + 1) * 3;
                fake_index_fill(fake, other[i], &object);
                fake_index_replace(fake, current[i], other[i]);
                swapped = current[i];
                current[i] = other[i];
                other[i] = swapped;
                if (turn % 3 == 0) {
                        fake_index_retract(fake, 3, FOLIO_EVENT_DELETED);
                        object.key = fake_key("comes and goes");
                        object.size_bytes = (fake->generation + 1) * 3;
                        fake_index_reuse(fake, 3, &object);
                }
                if (turn % 64 == 0 && fake->n_slots < 512) {
                        snprintf(key, sizeof(key), "filler %u", turn);
                        object.key = fake_key(key);
                        object.size_bytes = (fake->generation + 1) * 3;
                        fake_index_add(fake, &object);
                        if (atomic_load(&fake->header->n_buckets) < 200)
                                fake_index_split(fake);
                }
                fake_index_event(fake, FOLIO_EVENT_REPLACED, 0, "key");
        }
}

static void test_threads_read_while_one_writes(void **state)
{
        static const char *const keys[] = { "stays", "replaced", long_key, "comes and goes" };
        Race *race = test_calloc(1, sizeof(*race));
        pthread_t threads[2];

        fake_index_new(&race->fake, 2048, 256, 512);
        assert_int_equal(fake_index_open(&race->fake, &race->space), 0);
        for (unsigned i = 0; i < 4; i++)
                fake_index_add(&race->fake, &(FakeObject){ .key = fake_key(keys[i]), .state = LAYOUT_SLOT_SEALED,
                                                             .size_bytes = (race->fake.generation + 1) * 3 });
        race->fake.n_slots = 6; /* two more, into which the replacements go */
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, race_reader, race), 0);
        race_write(race);
        atomic_store(&race->is_over, true);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(race->n_bad, 0);
        assert_true(race->n_found > 0);
        space_unref(race->space);
        fake_index_free(&race->fake);
        test_free(race);
}

/* -- how fast ----------------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void measure_name(char key[16], uint32_t n)
{
        for (unsigned i = 0; i < 16; i++)
                key[i] = (char)('a' + (n >> (i % 8 * 4) & 15));
}

static double measure_lookups(const Space *space, uint32_t n_objects, uint32_t n_hot)
{
        enum { N = 400000 };
        char (*keys)[16] = test_malloc(4096 * 16);
        uint32_t random = 1;
        uint64_t begin, spent = 0;
        unsigned n_found = 0;

        /* Names are made outside the measured time, in lots. */
        for (unsigned done = 0; done < 2 * N; done += 4000) {
                for (unsigned i = 0; i < 4000; i++) {
                        random = random * 1664525 + 1013904223;
                        measure_name(keys[i], (uint32_t)((uint64_t)random * n_hot >> 32) * (n_objects / n_hot));
                }
                begin = now_ns();
                for (unsigned i = 0; i < 4000; i++) {
                        Lookup found;

                        n_found += lookup_find(space, (Key){ keys[i], 16 }, NOW, &found) == LOOKUP_FOUND;
                }
                /* The first half makes it warm. */
                if (done >= N)
                        spent += now_ns() - begin;
        }
        assert_int_equal(n_found, 2 * N);
        test_free(keys);
        return (double)spent / N;
}

static void measure(uint32_t n_objects, uint32_t n_buckets)
{
        FakeIndex fake;
        Space *space;
        char key[16];

        fake_index_new(&fake, n_objects, n_buckets, 4096);
        atomic_store(&fake.header->n_buckets, n_buckets);
        for (uint32_t n = 0; n < n_objects; n++) {
                measure_name(key, n);
                fake_index_add(&fake, &(FakeObject){ .key = { key, 16 }, .state = LAYOUT_SLOT_SEALED });
        }
        assert_int_equal(fake_index_open(&fake, &space), 0);
        print_message("# lookup, %u objects: %.0f ns; a thousand of them: %.0f ns\n", n_objects,
                      measure_lookups(space, n_objects, n_objects), measure_lookups(space, n_objects, 1000));
        space_unref(space);
        fake_index_free(&fake);
}

static void test_measure(void **state)
{
        measure(1000, 256);
        measure(500000, 131072);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_threads_read_while_one_writes),
                UNIT_TEST(test_measure),
        };

        return cmocka_run_group_tests_name("lookup-threads", tests, NULL, NULL);
}
