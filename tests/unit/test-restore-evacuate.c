/* SPDX-License-Identifier: Apache-2.0 */
/* What is left in regions that an earlier daemon has filled is moved, and their memory comes back. */
#include "restore-fixture.h"

enum { N = 400, BYTES = 4096, KEPT_EVERY = 5 };

#define TICKS_MAX 200u

static void fill(char bytes[BYTES], unsigned i)
{
        memset(bytes, (int)('a' + i % 26), BYTES);
        (void)snprintf(bytes, 16, "%u", i);
}

static void live(Fixture *f, void *userdata)
{
        char bytes[BYTES], key[32];
        Lookup found;
        Client c;

        client_open(f, &c, getuid(), "default");
        for (unsigned i = 0; i < N; i++) {
                fill(bytes, i);
                snprintf(key, sizeof(key), "%u", i);
                assert_int_equal(client_put(&c, key, bytes, BYTES, 0), STATUS_OK);
        }
        for (unsigned i = 0; i < N; i++) {
                snprintf(key, sizeof(key), "%u", i);
                if (i % KEPT_EVERY != 0)
                        assert_int_equal(client_delete(&c, key, 0), STATUS_OK);
        }
        assert_int_equal(client_look(&c, "10", &found), LOOKUP_FOUND);
        if (userdata) {
                client_pin(&c, found.slot, 1);
                *(uint32_t *)userdata = found.slot;
        }
}

static void check(Client *c)
{
        char bytes[BYTES], key[32];

        for (unsigned i = 0; i < N; i++) {
                snprintf(key, sizeof(key), "%u", i);
                fill(bytes, i);
                if (i % KEPT_EVERY != 0)
                        assert_false(client_has(c, key));
                else
                        assert_content(c, key, bytes, BYTES);
        }
}

static void tick_until(Next *next, uint64_t n_moved)
{
        for (unsigned i = 0; fixture_fact(&next->f, "evacuated.objects") < n_moved; i++) {
                assert_true(i < TICKS_MAX);
                store_tick(next->f.store);
                fixture_settle(&next->f);
        }
        /* There would be another turn, if there was anything left to do. */
        for (unsigned i = 0; i < 3; i++) {
                store_tick(next->f.store);
                fixture_settle(&next->f);
        }
}

static void live_no_longer(Fixture *f, void *userdata)
{
        (void)f;
        (void)userdata;
}

static void test_all_of_them(void **state)
{
        Keeper *keeper = fake_keeper_new();
        Client c;
        Next next;

        (void)state;
        restore_outlive(keeper, NULL, live, NULL);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_objects, N / KEPT_EVERY);
        client_open(&next.f, &c, getuid(), "default");
        check(&c);
        tick_until(&next, N / KEPT_EVERY);
        assert_int_equal(fixture_fact(&next.f, "evacuated.objects"), N / KEPT_EVERY);
        assert_int_equal(fixture_fact(&next.f, "packed.regions"), 1);
        assert_int_equal(fake_keeper_count(keeper, KEPT_PACKED), 1);
        check(&c);
        client_close(&c);
        next_deinit(&next);
}

static void tick_and_end(Fixture *f, void *userdata)
{
        unsigned n = *(unsigned *)userdata;

        for (unsigned i = 0; i < n; i++) {
                store_tick(f->store);
                (void)event_base_loop(f->base, EVLOOP_NONBLOCK);
                store_flush(f->store);
        }
}

/* Killed in the middle of it, again and again: one way or the other each of them is there. */
static void test_ended_in_between(void **state)
{
        Keeper *keeper = fake_keeper_new();
        Client c;
        Next next;

        (void)state;
        restore_outlive(keeper, NULL, live, NULL);
        for (unsigned n = 1; n < 12; n++)
                restore_outlive(keeper, NULL, tick_and_end, &n);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_objects, N / KEPT_EVERY);
        assert_int_equal(next.facts.n_dropped, 0);
        client_open(&next.f, &c, getuid(), "default");
        check(&c);
        client_close(&c);
        next_deinit(&next);
}

static void test_a_pinned_one_stays(void **state)
{
        uint32_t *slot = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        Keeper *keeper = fake_keeper_new();
        uint64_t region_id;
        Client c;
        Next next;

        (void)state;
        assert_ptr_not_equal(slot, MAP_FAILED);
        restore_outlive(keeper, NULL, live, slot);
        restore_outlive(keeper, NULL, live_no_longer, NULL);
        next_init(&next, NULL, keeper);
        client_open(&next.f, &c, getuid(), "default");
        region_id = c.space->slots[*slot].region_id;
        tick_until(&next, N / KEPT_EVERY - 1);
        assert_int_equal(fixture_fact(&next.f, "evacuated.objects"), N / KEPT_EVERY - 1);
        assert_int_equal(fixture_fact(&next.f, "packed.regions"), 2);
        assert_true(c.space->slots[*slot].region_id == region_id);
        check(&c);
        session_close(session_next_ghost(next.f.store, NULL));
        tick_until(&next, N / KEPT_EVERY);
        assert_int_equal(fixture_fact(&next.f, "packed.regions"), 1);
        assert_true(c.space->slots[*slot].region_id != region_id);
        check(&c);
        client_close(&c);
        next_deinit(&next);
        assert_int_equal(munmap(slot, 4096), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_all_of_them),
                UNIT_TEST(test_ended_in_between),
                UNIT_TEST(test_a_pinned_one_stays),
        };

        return cmocka_run_group_tests_name("restore-evacuate", tests, NULL, NULL);
}
