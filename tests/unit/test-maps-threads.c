/* SPDX-License-Identifier: Apache-2.0 */
/* One cache of mappings and several threads: nobody sees a mapping that has gone, and only the first and the last wait. */
#include "tests/unit/harness.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/maps.h"

static int new_fd(size_t n_bytes)
{
        int fd = memfd_create("maps", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)n_bytes), 0);
        return fd;
}

static unsigned n_looks;

typedef struct Race {
        Maps *maps;
        int fd;
        atomic_uint n_bad;
} Race;

static bool is_owned_by_race(MapsOwner *owner)
{
        return owner->space && owner->slot % 2;
}

static void *race_run(void *userdata)
{
        Race *race = userdata;
        uint32_t random = (uint32_t)(uintptr_t)&random;

        for (unsigned i = 0; i < 3000; i++) {
                uint64_t id;
                Mapping *mapping;

                random = random * 1664525 + 1013904223;
                id = random >> 24 & 15;
                mapping = maps_find(race->maps, id, false);
                if (!mapping && maps_add(race->maps, id, dup(race->fd), 4096, false, i % 8 == 0, &mapping) != 0) {
                        atomic_fetch_add(&race->n_bad, 1);
                        continue;
                }
                if (mapping->region_id != id || mapping->data[0] != 7)
                        atomic_fetch_add(&race->n_bad, 1);
                /* As several handles of one thread have it, and let it go in their several ways. */
                for (unsigned j = 0; j < i % 5; j++)
                        maps_ref(race->maps, mapping);
                for (unsigned j = 0; j < i % 5; j++) {
                        if (mapping->data[0] != 7)
                                atomic_fetch_add(&race->n_bad, 1);
                        if (j % 2)
                                maps_unref_owned(race->maps, mapping, &(MapsOwner){ .space = race, .slot = i });
                        else
                                maps_unref(race->maps, mapping, i % 64 == 1);
                }
                if (i % 128 == 0)
                        maps_sweep(race->maps, is_owned_by_race);
                maps_unref(race->maps, mapping, i % 16 == 0);
        }
        return NULL;
}

static void test_threads(void **state)
{
        Race race = { .fd = new_fd(4096) };
        pthread_t threads[4];

        assert_int_equal(pwrite(race.fd, "\7", 1, 0), 1);
        assert_int_equal(maps_new(6 * 4096, UINT_MAX, &race.maps), 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, race_run, &race), 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(race.n_bad, 0);
        assert_true(maps_count() <= 6);
        maps_free(race.maps);
        assert_int_equal(maps_count(), 0);
        close(race.fd);
}

/* All threads hold one mapping, and take and give more references to it: it is the first's until the last is back. */
static void *share_run(void *userdata)
{
        Race *race = userdata;
        Mapping *mapping = maps_find(race->maps, 1, false);

        for (unsigned i = 0; i < 20000; i++) {
                maps_ref(race->maps, mapping);
                if (mapping->data[0] != 7)
                        atomic_fetch_add(&race->n_bad, 1);
                maps_unref(race->maps, mapping, false);
        }
        maps_unref_owned(race->maps, mapping, &(MapsOwner){ .space = race });
        return NULL;
}

static void test_one_for_all_threads(void **state)
{
        Race race = { .fd = new_fd(4096) };
        pthread_t threads[4];
        Mapping *mapping;

        assert_int_equal(pwrite(race.fd, "\7", 1, 0), 1);
        assert_int_equal(maps_new(4096, 1, &race.maps), 0);
        assert_int_equal(maps_add(race.maps, 1, dup(race.fd), 4096, false, false, &mapping), 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, share_run, &race), 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(race.n_bad, 0);
        assert_int_equal(maps_count(), 1);
        /* Ours is the last. It has an owner, whom it got from one that was not. */
        maps_unref(race.maps, mapping, false);
        assert_int_equal(maps_count(), 1);
        maps_sweep(race.maps, is_owned_by_race);
        assert_int_equal(maps_count(), 0);
        maps_free(race.maps);
        close(race.fd);
}

static Maps *locked_maps;
static Mapping *locked_mapping;

/* Called with the lock, which is not one that a thread can take twice. */
static bool ref_and_unref(MapsOwner *owner)
{
        n_looks++;
        maps_ref(locked_maps, locked_mapping);
        maps_unref(locked_maps, locked_mapping, false);
        return true;
}

static void test_no_lock_between_first_and_last(void **state)
{
        int fd = new_fd(4096);
        Mapping *idle;

        assert_int_equal(maps_new(4 * 4096, 4, &locked_maps), 0);
        assert_int_equal(maps_add(locked_maps, 1, dup(fd), 4096, false, false, &locked_mapping), 0);
        assert_int_equal(maps_add(locked_maps, 2, dup(fd), 4096, false, false, &idle), 0);
        maps_unref_owned(locked_maps, idle, &(MapsOwner){ .space = &fd });
        n_looks = 0;
        (void)alarm(60); /* a deadlock is the failure */
        maps_sweep(locked_maps, ref_and_unref);
        (void)alarm(0);
        assert_int_equal(n_looks, 1);
        maps_unref(locked_maps, locked_mapping, true);
        maps_free(locked_maps);
        assert_int_equal(maps_count(), 0);
        close(fd);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_threads),
                UNIT_TEST(test_one_for_all_threads),
                UNIT_TEST(test_no_lock_between_first_and_last),
        };

        return cmocka_run_group_tests_name("maps-threads", tests, NULL, NULL);
}
