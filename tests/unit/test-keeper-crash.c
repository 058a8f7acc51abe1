/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process keeps and drops at random and is killed at a random moment; the next one takes over what it finds, checks
 * it against what was acknowledged, and goes on. 200 of them. What is told by each is in a table that all of them
 * share.
 */
#include "harness.h"
#include "fake-manager.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/macro.h"
#include "daemon/service/log.h"

enum {
        ROUNDS = 200,
        IDS = 600,                   /* places: what is kept at one is dropped before the next is kept there */
        STORED_MAX = 512,
};

/* Of a place. Who is killed in between has begun, and either is right. */
typedef enum Phase {
        NOTHING,
        KEEPING,
        KEPT,
        DROPPING,
} Phase;

typedef struct Place {
        _Atomic uint32_t phase;
        uint32_t generation;         /* of what is kept there; goes up with each */
} Place;

typedef struct Shared {
        Place places[IDS];
        _Atomic uint32_t is_taken;   /* the child has checked what it found */
        _Atomic uint32_t n_wrong;
        _Atomic uint64_t n_told;
        char wrong[256];
} Shared;

static Shared *shared;
static FakeManager manager;
static Kept *kept[IDS];

static void complain(const char *what, unsigned id)
{
        if (atomic_fetch_add(&shared->n_wrong, 1) == 0)
                snprintf(shared->wrong, sizeof(shared->wrong), "place %u, phase %u: %s", id,
                         (unsigned)shared->places[id].phase, what);
}

static void on_told(void *userdata, const KeptRecord *record, int consume_fd, Kept *one)
{
        unsigned id = (unsigned)record->id % IDS;
        Place *place = &shared->places[id];
        uint64_t content = 0;
        Keeper *keeper = userdata;

        if (pread(consume_fd, &content, sizeof(content), 0) != sizeof(content) || content != record->detail)
                complain("the descriptor is another's", id);
        close(consume_fd);
        atomic_fetch_add(&shared->n_told, 1);
        /* What was dropped may still be there: nobody has said that it is gone. */
        if (record->detail >> 32 != place->generation) {
                keeper_drop(keeper, one);
                return;
        }
        if (kept[id])
                complain("told twice", id);
        kept[id] = one;
}

static void check_places(Keeper *keeper)
{
        for (unsigned id = 0; id < IDS; id++) {
                Place *place = &shared->places[id];

                if (atomic_load(&place->phase) == KEPT && !kept[id])
                        complain("acknowledged, and not there", id);
                if (atomic_load(&place->phase) != KEPT && kept[id]) {
                        keeper_drop(keeper, kept[id]);
                        kept[id] = NULL;
                }
                if (!kept[id])
                        atomic_store(&place->phase, NOTHING);
        }
}

static int make_memfd(uint64_t content)
{
        int fd = memfd_create("crash", MFD_CLOEXEC);

        if (fd < 0 || pwrite(fd, &content, sizeof(content), 0) != sizeof(content))
                complain("no memfd", 0);
        return fd;
}

static void keep_one(Keeper *keeper, unsigned id, bool is_direct)
{
        Place *place = &shared->places[id];
        uint64_t content = (uint64_t)(place->generation + 1) << 32 | id;
        KeptRecord record = { .kind = is_direct ? KEPT_PACKED : KEPT_OWN, .owner = 1, .detail = content };
        int fd = make_memfd(content);

        record.id = (uint64_t)(place->generation + 1) * IDS + id;
        place->generation++;
        atomic_store(&place->phase, KEEPING);
        if (keeper_keep(keeper, &record, fd, is_direct, &kept[id]) == 0)
                atomic_store(&place->phase, KEPT);
        else
                complain("could not be kept", id);
        close(fd);
}

/* Until it is killed. */
static void run_child(unsigned seed)
{
        Keeper *keeper = fake_manager_start_keeper(&manager, STORED_MAX);
        uint64_t n_bad = 0;

        memset(kept, 0, sizeof(kept));
        if (keeper_take_all(keeper, on_told, keeper, &n_bad) != 0 || n_bad != 0)
                complain("cannot be taken", 0);
        check_places(keeper);
        atomic_store(&shared->is_taken, 1);
        for (;;) {
                unsigned id = (seed = seed * 1664525u + 1013904223u) >> 8;
                bool is_direct = id % 37 == 0;

                id = id / 37 % IDS;
                if (kept[id]) {
                        atomic_store(&shared->places[id].phase, DROPPING);
                        keeper_drop(keeper, kept[id]);
                        kept[id] = NULL;
                        atomic_store(&shared->places[id].phase, NOTHING);
                } else {
                        keep_one(keeper, id, is_direct);
                }
        }
}

/* The child runs for @us after it has taken everything; sometimes it is not let come so far. */
static void let_run(pid_t pid, unsigned us)
{
        struct timespec pause = { .tv_nsec = us * 1000L };
        bool is_patient = us % 5 != 0;

        for (unsigned i = 0; is_patient && i < 100000 && !atomic_load(&shared->is_taken); i++)
                (void)nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        (void)nanosleep(&pause, NULL);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_nothing_acknowledged_is_lost(void **state)
{
        unsigned seed = (unsigned)time(NULL);

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(shared, MAP_FAILED);
        fake_manager_start(&manager, STORED_MAX);
        print_message("# seed %u\n", seed);
        for (unsigned round = 0; round < ROUNDS; round++) {
                pid_t pid;

                seed = seed * 1664525u + 1013904223u;
                atomic_store(&shared->is_taken, 0);
                fake_manager_lock_out(&manager);
                pid = fork();
                if (pid == 0) {
                        fake_manager_let_in(&manager);
                        run_child(seed);
                }
                fake_manager_let_in(&manager);
                assert_true(pid > 0);
                let_run(pid, (seed >> 8) % 4000);
                if (atomic_load(&shared->n_wrong) > 0)
                        fail_msg("round %u: %s", round, shared->wrong);
                assert_int_equal(manager.n_refused, 0);
        }
        assert_int_equal(manager.n_strange, 0);
        print_message("# %lu told, %zu stored in the end\n", (unsigned long)atomic_load(&shared->n_told),
                      manager.n_stored);
        fake_manager_stop(&manager);
        munmap(shared, sizeof(*shared));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_nothing_acknowledged_is_lost),
        };

        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
