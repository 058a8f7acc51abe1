/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storm of restarts: objects of all sizes, four processes that read and compare all the time, one that writes, and a
 * foliod that is killed again and again at moments nobody has chosen. No reader sees an error or a wrong byte; what was
 * acknowledged is there and what was deleted is not, after the storm and in the middle of it; numbers only grow; and
 * when all is deleted, nothing is left of it.
 *
 * FOLIO_TEST_LONG=1 is the whole story (10,000 objects, one of 4 GiB where there is memory for it, 100 kills);
 * FOLIO_TEST_SEED repeats one. Times are told, never judged.
 */
#include "tests/integration/alive.h"
#include "tests/integration/baseline.h"

#include <inttypes.h>
#include <stdatomic.h>

#include "base/macro.h"

enum {
        N_READERS = 4,
        N_LIVE = 64, /* names of the writer; the odd ones are put by a client that flushes */
        N_FIXED_MAX = 10000,
        N_KILLS_MAX = 100,
        N_KEPT = 12, /* that a reader holds over kills */
        FLUSH_EVERY = 16,
        PIECE_BYTES = 1 << 20,
        WHOLE_BYTES = 256 << 10, /* larger ones are looked at in places, most of the time */
        OWN_BYTES = 2 << 20,
};

#define GIANT_BYTES (UINT64_C(4) << 30)
#define GIANT "fixed-giant"
#define GIANT_SEED 999999

/* What is known of a name that is written, in memory that all share: steps are numbered from 1. */
typedef struct Live {
        _Atomic uint64_t n_begun, n_done;
} Live;

typedef struct Story {
        atomic_bool is_over;
        atomic_uint n_reads[N_READERS], n_steps;
        unsigned n_fixed, n_kills, largest;
        uint64_t giant_bytes, seed;
        Live lives[N_LIVE];
        uint64_t generations[N_FIXED_MAX + 1];
} Story;

static uint64_t mix(uint64_t x)
{
        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}

static uint64_t roll(uint64_t *dice, uint64_t n)
{
        return mix(++*dice) % n;
}

static uint64_t now_us(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* --- what is there all the time -------------------------------------------------------------------------------- */

static void name_fixed(unsigned i, char name[32])
{
        (void)snprintf(name, 32, "%sfixed-%u", i % 3 == 2 ? "trusted:" : "", i);
}

static size_t fixed_bytes(const Story *story, unsigned i)
{
        if (i % 2000 == 1500 % story->n_fixed)
                return (size_t)story->largest;
        if (i % 333 == 17)
                return (1u << 20) + (size_t)(mix(i) % (3u << 20));
        if (i % 40 == 5)
                return (64u << 10) + i;
        return 100 + (size_t)(mix(i) % 3900);
}

static void put_large(struct folio_client *client, const char *name, uint64_t n_bytes, uint64_t seed)
{
        uint8_t *piece = malloc(PIECE_BYTES);
        struct folio_object *object;

        assert_non_null(piece);
        ASSERT_OK(folio_create(client, name, n_bytes, NULL, &object));
        for (uint64_t at = 0; at < n_bytes; at += PIECE_BYTES) {
                harness_fill(piece, PIECE_BYTES, seed + at / PIECE_BYTES * 1000003);
                ASSERT_OK(folio_object_write(object, at, piece, (size_t)MIN((uint64_t)PIECE_BYTES, n_bytes - at)));
        }
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
        free(piece);
}

static bool is_place_right(const uint8_t *bytes, uint64_t at, size_t n, uint64_t seed)
{
        return harness_is_filled(bytes + at, n, seed + at / PIECE_BYTES * 1000003, at % PIECE_BYTES);
}

static bool is_right(struct folio_object *object, uint64_t n_bytes, uint64_t seed, bool whole, uint64_t *dice)
{
        const uint8_t *bytes = folio_object_data(object);

        if (!bytes || folio_object_size(object) != n_bytes)
                return false;
        if (!whole && n_bytes > WHOLE_BYTES) {
                for (unsigned i = 0; i < 8; i++) {
                        uint64_t page = i == 0 ? (n_bytes - 1) / 4096 : roll(dice, (n_bytes + 4095) / 4096);

                        if (!is_place_right(bytes, page * 4096, (size_t)MIN(UINT64_C(4096), n_bytes - page * 4096),
                                            seed))
                                return false;
                }
                return true;
        }
        for (uint64_t at = 0; at < n_bytes; at += PIECE_BYTES)
                if (!is_place_right(bytes, at, (size_t)MIN((uint64_t)PIECE_BYTES, n_bytes - at), seed))
                        return false;
        return true;
}

static void put_fixed(struct folio_client *client, Story *story)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        char name[32];

        for (unsigned i = 0; i < story->n_fixed; i++) {
                size_t n_bytes = fixed_bytes(story, i);
                uint8_t small[8192];

                name_fixed(i, name);
                if (n_bytes <= 4096) {
                        harness_fill(small, n_bytes, i);
                        ASSERT_OK(folio_put(client, name, small, n_bytes, NULL));
                } else {
                        put_large(client, name, n_bytes, i);
                }
                ASSERT_OK(folio_stat(client, name, &stat));
                story->generations[i] = stat.generation;
        }
        if (story->giant_bytes) {
                put_large(client, GIANT, story->giant_bytes, GIANT_SEED);
                ASSERT_OK(folio_stat(client, GIANT, &stat));
                story->generations[N_FIXED_MAX] = stat.generation;
        }
}

/* Which is the number past the last for the giant. */
static struct folio_object *get_fixed(struct folio_client *client, const Story *story, unsigned which, bool whole,
                                      uint64_t *dice)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        bool is_giant = which == story->n_fixed;
        struct folio_object *object;
        char name[32] = GIANT;

        if (!is_giant)
                name_fixed(which, name);
        CHECK_OK(folio_get(client, name, 0, 0, &object));
        CHECK(is_right(object, is_giant ? story->giant_bytes : fixed_bytes(story, which), is_giant ? GIANT_SEED : which,
                       whole, dice));
        CHECK_OK(folio_object_stat(object, &stat));
        CHECK(stat.generation == story->generations[is_giant ? N_FIXED_MAX : which]);
        CHECK(stat.state == FOLIO_STATE_SEALED);
        return object;
}

/* --- what is written ------------------------------------------------------------------------------------------- */

typedef enum Step { STEP_NONE, STEP_PUT_NEW, STEP_PUT, STEP_CREATE, STEP_DELETE } Step;

static Step step_of(unsigned i, uint64_t n)
{
        if (n == 0)
                return STEP_NONE;
        return n % 5 == 0 ? STEP_DELETE : n % 5 == 1 ? STEP_PUT_NEW : n % 5 == 3 && i % 4 < 2 ? STEP_CREATE : STEP_PUT;
}

static size_t live_bytes(unsigned i, uint64_t n)
{
        uint64_t dice = mix(i * UINT64_C(1000003) + n);

        if (step_of(i, n) == STEP_CREATE && i % 8 == 0)
                return OWN_BYTES + (size_t)(dice % 8192);
        if (n % 5 == 4)
                return (100u << 10) + (size_t)(dice % 4096);
        return 64 + (size_t)(dice % 4000);
}

static void name_live(unsigned i, char name[32])
{
        (void)snprintf(name, 32, "%slive-%u", i % 4 == 3 || i % 8 == 0 ? "trusted:" : "", i);
}

/* Its first word says which step has made it, the others follow from that. */
static void fill_live(uint8_t *bytes, unsigned i, uint64_t n)
{
        harness_fill(bytes, live_bytes(i, n), n * N_LIVE + i);
        memcpy(bytes, &n, sizeof(n));
}

static bool is_live_right(struct folio_object *object, unsigned i, uint64_t *ret_n)
{
        const uint8_t *bytes = folio_object_data(object);
        uint64_t n;

        if (!bytes || folio_object_size(object) < 64)
                return false;
        memcpy(&n, bytes, sizeof(n));
        *ret_n = n;
        return folio_object_size(object) == live_bytes(i, n) &&
               harness_is_filled(bytes + 8, live_bytes(i, n) - 8, n * N_LIVE + i, 8);
}

static void take_step(struct folio_client *client, unsigned i, uint64_t n, uint8_t *bytes)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_REPLACE };
        struct folio_object *object;
        char name[32];

        name_live(i, name);
        switch (step_of(i, n)) {
        case STEP_PUT_NEW:
                options.flags = 0;
                /* fall through */
        case STEP_PUT:
                fill_live(bytes, i, n);
                CHECK_OK(folio_put(client, name, bytes, live_bytes(i, n), &options));
                break;
        case STEP_CREATE:
                fill_live(bytes, i, n);
                CHECK_OK(folio_create(client, name, live_bytes(i, n), &options, &object));
                CHECK_OK(folio_object_write(object, 0, bytes, live_bytes(i, n)));
                CHECK_OK(folio_object_seal(object));
                CHECK_OK(folio_object_release(object));
                break;
        case STEP_DELETE:
                CHECK_OK(folio_delete(client, name, 0));
                break;
        case STEP_NONE:
        default:
                CHECK(false);
        }
}

static void acknowledge(Story *story)
{
        for (unsigned i = 1; i < N_LIVE; i += 2)
                atomic_store(&story->lives[i].n_done, atomic_load(&story->lives[i].n_begun));
}

static void write_all(Child *child)
{
        Story *story = child->userdata;
        struct folio_client *visible = child_connect(child), *plain = child_connect_with(child, 0);
        uint8_t *bytes = malloc(OWN_BYTES + 16384);
        unsigned n_unflushed = 0;
        uint64_t dice = mix(story->seed);

        CHECK(bytes);
        for (bool is_first = true; !atomic_load(&story->is_over);) {
                unsigned i = (unsigned)roll(&dice, N_LIVE);
                Live *live = &story->lives[i];
                uint64_t n = atomic_load(&live->n_begun) + 1;

                atomic_store(&live->n_begun, n);
                take_step(i % 2 ? plain : visible, i, n, bytes);
                if (i % 2 == 0) {
                        atomic_store(&live->n_done, n);
                } else if (++n_unflushed % FLUSH_EVERY == 0) {
                        CHECK_OK(folio_flush(plain));
                        acknowledge(story);
                }
                atomic_fetch_add(&story->n_steps, 1);
                if (is_first)
                        child_say(child, 1);
                is_first = false;
        }
        CHECK_OK(folio_flush(plain));
        acknowledge(story);
        free(bytes);
        folio_client_unref(visible);
        folio_client_unref(plain);
}

/* --- who reads ------------------------------------------------------------------------------------------------- */

/* What a reader has seen of a name last. */
typedef struct Seen {
        uint64_t n, generation;
} Seen;

/* Between two looks at what the writer says it is one of the steps acknowledged before, or begun meanwhile. */
static void look_at_live(struct folio_client *client, Story *story, unsigned i, Seen *seen)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        uint64_t n_done = atomic_load(&story->lives[i].n_done), n_begun, n = 0;
        struct folio_object *object;
        char name[32];
        bool may_miss = false;
        int r;

        name_live(i, name);
        r = folio_get(client, name, 0, 0, &object);
        n_begun = atomic_load(&story->lives[i].n_begun);
        for (uint64_t step = n_done; step <= n_begun; step++)
                may_miss |= step_of(i, step) == STEP_NONE || step_of(i, step) == STEP_DELETE;
        if (r == FOLIO_E_NOT_FOUND || r == FOLIO_E_DELETED || r == FOLIO_E_WRITING) {
                if (!may_miss)
                        fprintf(stderr, "# %s: %s, done %" PRIu64 ", begun %" PRIu64 "\n", name, folio_strerror(r),
                                n_done, n_begun);
                CHECK(may_miss);
                return;
        }
        CHECK_OK(r);
        CHECK(is_live_right(object, i, &n));
        CHECK_OK(folio_object_stat(object, &stat));
        if (n < n_done || n > n_begun || n < seen->n)
                fprintf(stderr, "# %s: step %" PRIu64 ", done %" PRIu64 ", begun %" PRIu64 ", seen %" PRIu64 "\n", name,
                        n, n_done, n_begun, seen->n);
        CHECK(n >= n_done && n <= n_begun);
        CHECK(n >= seen->n);
        CHECK(n == seen->n ? stat.generation == seen->generation : stat.generation > seen->generation);
        *seen = (Seen){ n, stat.generation };
        CHECK_OK(folio_object_release(object));
}

static void read_all(Child *child)
{
        Story *story = child->userdata;
        unsigned me = (unsigned)child_hear(child), n_all = story->n_fixed + (story->giant_bytes > 0);
        struct folio_client *client = child_connect_with(child, 0);
        struct folio_object *kept[N_KEPT];
        unsigned which[N_KEPT];
        uint64_t dice = mix(story->seed + me + 1);
        Seen seen[N_LIVE] = { { 0 } };

        for (unsigned i = 0; i < N_KEPT; i++) {
                which[i] = (unsigned)roll(&dice, n_all);
                kept[i] = get_fixed(client, story, which[i], false, &dice);
        }
        child_say(child, 1);
        while (!atomic_load(&story->is_over)) {
                unsigned fixed = (unsigned)roll(&dice, n_all), place = (unsigned)roll(&dice, N_KEPT * 16), live;

                CHECK_OK(folio_object_release(
                        get_fixed(client, story, fixed, roll(&dice, 64) == 0 && fixed < story->n_fixed, &dice)));
                live = (unsigned)roll(&dice, N_LIVE);
                look_at_live(client, story, live, &seen[live]);
                if (place < N_KEPT) {
                        bool is_giant = which[place] == story->n_fixed;

                        CHECK(is_right(kept[place], is_giant ? story->giant_bytes : fixed_bytes(story, which[place]),
                                       is_giant ? GIANT_SEED : which[place], false, &dice));
                        CHECK_OK(folio_object_release(kept[place]));
                        which[place] = (unsigned)roll(&dice, n_all);
                        kept[place] = get_fixed(client, story, which[place], false, &dice);
                }
                atomic_fetch_add(&story->n_reads[me], 1);
        }
        for (unsigned i = 0; i < N_KEPT; i++)
                CHECK_OK(folio_object_release(kept[i]));
        folio_client_unref(client);
}

/* --- who kills ------------------------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
        const uint64_t *x = a, *y = b;

        return *x < *y ? -1 : *x > *y;
}

static uint64_t median(uint64_t *numbers, size_t n)
{
        qsort(numbers, n, sizeof(*numbers), compare_numbers);
        return numbers[n / 2];
}

/* Everybody reads and writes on: so many steps at least. */
static void await_progress(Story *story, unsigned n_more)
{
        unsigned before[N_READERS], n_steps = atomic_load(&story->n_steps);

        for (unsigned i = 0; i < N_READERS; i++)
                before[i] = atomic_load(&story->n_reads[i]);
        for (unsigned i = 0; i < N_READERS; i++)
                AWAIT(atomic_load(&story->n_reads[i]) > before[i]);
        AWAIT(atomic_load(&story->n_steps) >= n_steps + n_more);
}

static uint64_t storm(const Foliod *foliod, Story *story)
{
        uint64_t times[N_KILLS_MAX], dice = mix(story->seed + 77);

        for (unsigned i = 0; i < story->n_kills; i++) {
                if (i % 8 != 7)
                        await_progress(story, 1 + (unsigned)roll(&dice, 40));
                (void)usleep((useconds_t)roll(&dice, 4000)); /* a moment that nobody has chosen */
                times[i] = baseline_kill_and_ask(foliod);
        }
        return median(times, story->n_kills);
}

static uint64_t measure_empty(unsigned n)
{
        Foliod *foliod = foliod_start_kept("--budget", "64M", ALIVE_NO_POOL, NULL);
        uint64_t times[N_KILLS_MAX];

        for (unsigned i = 0; i < n; i++) {
                (void)usleep(60000);
                times[i] = baseline_kill_and_ask(foliod);
        }
        foliod_stop(foliod);
        return median(times, n);
}

/* --- afterwards ------------------------------------------------------------------------------------------------ */

static void check_all(struct folio_client *client, Story *story)
{
        unsigned n_all = story->n_fixed + (story->giant_bytes > 0);
        uint64_t dice = 1, n;
        char name[32];

        for (unsigned i = 0; i < n_all; i++)
                ASSERT_OK(folio_object_release(get_fixed(client, story, i, true, &dice)));
        for (unsigned i = 0; i < N_LIVE; i++) {
                uint64_t last = atomic_load(&story->lives[i].n_done);
                struct folio_object *object;

                assert_true(last == atomic_load(&story->lives[i].n_begun));
                name_live(i, name);
                if (step_of(i, last) == STEP_NONE || step_of(i, last) == STEP_DELETE) {
                        assert_int_equal(folio_exists(client, name), 0);
                        continue;
                }
                ASSERT_OK(folio_get(client, name, 0, 0, &object));
                assert_true(is_live_right(object, i, &n));
                assert_true(n == last);
                ASSERT_OK(folio_object_release(object));
        }
}

static void delete_all(struct folio_client *client, Story *story)
{
        char name[32];

        for (unsigned i = 0; i < story->n_fixed; i++) {
                name_fixed(i, name);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        if (story->giant_bytes)
                ASSERT_OK(folio_delete(client, GIANT, 0));
        for (unsigned i = 0; i < N_LIVE; i++) {
                name_live(i, name);
                ASSERT_OK(folio_delete(client, name, FOLIO_IF_EXISTS));
        }
}

/* Everything that is made at its first use is there, and one restart has been. */
static Baseline baseline_before(const Foliod *foliod)
{
        struct folio_client *client = foliod_connect(foliod);

        ASSERT_OK(folio_put(client, "first", "x", 1, NULL));
        ASSERT_OK(folio_put(client, "trusted:first", "x", 1, NULL));
        ASSERT_OK(folio_delete(client, "first", 0));
        ASSERT_OK(folio_delete(client, "trusted:first", 0));
        (void)baseline_kill_and_ask(foliod);
        ASSERT_OK(folio_put(client, "first", "x", 1, NULL));
        ASSERT_OK(folio_put(client, "trusted:first", "x", 1, NULL));
        ASSERT_OK(folio_delete(client, "first", 0));
        ASSERT_OK(folio_delete(client, "trusted:first", 0));
        folio_client_unref(client);
        return baseline_take(foliod);
}

/* --- the story ------------------------------------------------------------------------------------------------- */

static uint64_t available_bytes(void)
{
        FILE *file = fopen("/proc/meminfo", "re");
        unsigned long long kib = 0;
        char line[128];

        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
                        break;
        if (file)
                fclose(file);
        return kib * 1024;
}

static Story *plan(void)
{
        Story *story = mmap(NULL, sizeof(*story), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        const char *seed = getenv("FOLIO_TEST_SEED");
        bool is_long = getenv("FOLIO_TEST_LONG");

        assert_true(story != MAP_FAILED);
        story->seed = seed ? strtoull(seed, NULL, 10) : now_us() % 1000000;
        story->n_fixed = is_long ? N_FIXED_MAX : alive_scaled(2000);
        story->n_kills = is_long ? N_KILLS_MAX : getenv("FOLIO_TEST_SLOW") ? 6 : 20;
        story->largest = is_long || !getenv("FOLIO_TEST_SLOW") ? 64u << 20 : 4u << 20;
        if (is_long && available_bytes() > 3 * GIANT_BYTES)
                story->giant_bytes = GIANT_BYTES;
        print_message("# seed %" PRIu64 ", %u objects, %s, %u kills\n", story->seed, story->n_fixed,
                      story->giant_bytes ? "and one of 4 GiB" : "none of 4 GiB", story->n_kills);
        return story;
}

static void test_storm(void **state)
{
        Story *story = plan();
        Foliod *foliod = foliod_start_kept("--budget", story->giant_bytes ? "8G" : "900M", "--objects-max", "32768",
                                           FOLIOD_TRUSTED, ALIVE_NO_POOL, NULL);
        Baseline before = baseline_before(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Child *readers[N_READERS], *writer;
        uint64_t full_us, empty_us;
        unsigned n_reads = 0;

        put_fixed(client, story);
        for (unsigned i = 0; i < N_READERS; i++) {
                readers[i] = child_start(foliod, read_all, story);
                child_say(readers[i], i);
        }
        writer = child_start(foliod, write_all, story);
        for (unsigned i = 0; i < N_READERS; i++)
                (void)child_hear(readers[i]);
        (void)child_hear(writer);
        full_us = storm(foliod, story);
        await_progress(story, 1);
        atomic_store(&story->is_over, true);
        for (unsigned i = 0; i < N_READERS; i++) {
                child_finish(readers[i]);
                n_reads += atomic_load(&story->n_reads[i]);
        }
        child_finish(writer);
        check_all(client, story);
        assert_int_equal(foliod_fact(client, "keeper.failed"), 0);
        assert_int_equal(foliod_fact(client, "keeper.volatile"), 0);
        assert_int_equal(foliod_fact(client, "restore.dropped"), 0);
        assert_int_equal(foliod_fact(client, "restore.bad_descriptors"), 0);
        delete_all(client, story);
        folio_client_unref(client);
        baseline_check(foliod, &before);
        foliod_stop(foliod);
        empty_us = measure_empty(story->n_kills);
        print_message("# %u reads, %u steps; from kill to answer: %" PRIu64 " us, of an empty store %" PRIu64
                      " us, ratio %.2f\n",
                      n_reads, atomic_load(&story->n_steps), full_us, empty_us, (double)full_us / (double)empty_us);
        (void)munmap(story, sizeof(*story));
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_storm),
        };

        return cmocka_run_group_tests_name("storm", tests, NULL, NULL);
}
