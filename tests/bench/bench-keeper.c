/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to keep descriptors for the next process: parked in segments, and, for comparison, stored one by one
 * with a confirmation for each, as is the obvious way. The manager is a thread of this program that does nothing but
 * store, so that it stands for no real one: PID 1 takes far more for each that is stored (see folio(7)), and there are
 * far fewer.
 *
 * usage: bench-keeper [N...]                  (100 1000 4000 16000)
 *
 * Microseconds for each descriptor: to park it; to drop all of them in the order in which they were parked, at random
 * in batches of 64, each alone and waited for (at most 1000), at random in batches after a restart; and to store each
 * by itself. `take`: milliseconds for all of them after a restart. Duplicates of one memfd, so that memory plays no part.
 */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define FAKE_STORED_MAX 20000
#define assert_true(condition) assert(condition)
#define assert_int_equal(a, b) assert((a) == (b))
#include "tests/unit/fake-manager.h"

#include "base/macro.h"
#include "daemon/service/keeper-manager.h"
#include "daemon/service/log.h"

#define SLOTS 512

static FakeManager manager;
static Kept **kept;

static double now_us(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* there is such a clock */
        return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void keep_all(Keeper *keeper, unsigned n, int fd)
{
        for (unsigned i = 0; i < n; i++) {
                KeptRecord record = { .kind = KEPT_OWN, .id = i };

                if (keeper_keep(keeper, &record, fd, false, &kept[i]) != 0) {
                        fprintf(stderr, "bench-keeper: %s\n", keeper_explain(keeper, KEEPER_E_FULL));
                        exit(1);
                }
        }
}

static void shuffle(unsigned n)
{
        unsigned state = 1;

        for (unsigned i = n - 1; i > 0; i--) {
                unsigned at = (state = state * 1664525u + 1013904223u) >> 8;
                Kept *one = kept[i];

                at %= i + 1;
                kept[i] = kept[at];
                kept[at] = one;
        }
}

/* Each alone (@batch 1: who deletes waits for it), or some at a time. */
static double drop_all(Keeper *keeper, unsigned n, unsigned batch)
{
        double begun = now_us();

        for (unsigned i = 0; i < n; i++) {
                keeper_drop(keeper, kept[i]);
                if ((i + 1) % batch == 0)
                        keeper_settle(keeper);
        }
        keeper_settle(keeper);
        return (now_us() - begun) / n;
}

static void count(void *userdata, const KeptRecord *record, int consume_fd, Kept *one)
{
        close(consume_fd);
        kept[record->id] = one;
        ++*(unsigned *)userdata;
}

static double take(Keeper *keeper, unsigned n)
{
        double begun = now_us();
        unsigned n_told = 0;
        uint64_t n_bad;

        if (keeper_take_all(keeper, count, &n_told, &n_bad) != 0 || n_told != n) {
                fprintf(stderr, "bench-keeper: %u of %u came back\n", n_told, n);
                exit(1);
        }
        return (now_us() - begun) / 1000;
}

static double store_each(unsigned n, int fd)
{
        KeeperManager *connection;
        double begun = now_us();

        if (keeper_manager_new(manager.address, &connection) < 0)
                exit(1);
        for (unsigned i = 0; i < n; i++) {
                char name[32];

                snprintf(name, sizeof(name), "each-%u", i);
                if (keeper_manager_store(connection, name, fd) < 0)
                        exit(1);
        }
        keeper_manager_free(connection);
        return (now_us() - begun) / n;
}

static void run(unsigned n, int fd)
{
        double park, in_order, at_random, alone, restored, back, each;
        KeeperFacts facts;
        Keeper *keeper;

        fake_manager_start(&manager, FAKE_STORED_MAX);
        keeper = fake_manager_start_keeper(&manager, SLOTS);
        keeper_settle(keeper);
        park = now_us();
        keep_all(keeper, n, fd);
        park = (now_us() - park) / n;
        keeper_settle(keeper);
        keeper_get_facts(keeper, &facts);
        in_order = drop_all(keeper, n, n);
        keep_all(keeper, n, fd);
        shuffle(n);
        at_random = drop_all(keeper, n, 64);
        keep_all(keeper, n, fd);
        shuffle(n);
        alone = drop_all(keeper, MIN(n, 1000), 1);
        for (unsigned i = 0; i + 1000 < n; i++)
                keeper_drop(keeper, kept[1000 + i]);
        keep_all(keeper, n, fd);
        keeper_settle(keeper);
        keeper_free(keeper);
        keeper = fake_manager_start_keeper(&manager, SLOTS);
        restored = take(keeper, n);
        shuffle(n);
        back = drop_all(keeper, n, 64);
        keeper_free(keeper);
        each = store_each(n, fd);
        printf("%7u %8lu %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f\n", n, (unsigned long)facts.n_segments, park,
               in_order, at_random, alone, back, restored, each);
        fake_manager_stop(&manager);
}

int main(int argc, char **argv)
{
        static const char *const usual[] = { "100", "1000", "4000", "16000" };
        struct rlimit limit;
        int fd = memfd_create("bench-keeper", MFD_CLOEXEC);

        log_configure(LOG_LEVEL_WARNING, LOG_TARGET_STDERR);
        kept = calloc(FAKE_STORED_MAX, sizeof(*kept));
        if (fd < 0 || !kept)
                return 1;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
                limit.rlim_cur = limit.rlim_max;
                (void)setrlimit(RLIMIT_NOFILE, &limit); /* if not, it says what is missing */
        }
        printf("%7s %8s %8s %8s %8s %8s %8s %8s %8s\n", "n", "segments", "park", "order", "random", "alone",
               "restored", "take ms", "each");
        for (int i = 0; i < (argc > 1 ? argc - 1 : (int)ARRAY_SIZE(usual)); i++) {
                int n = atoi(argc > 1 ? argv[i + 1] : usual[i]);

                if (n < 1 || n >= FAKE_STORED_MAX)
                        return 2;
                run((unsigned)n, fd);
        }
        close(fd);
        free(kept);
        return 0;
}
