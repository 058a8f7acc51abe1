/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every instruction boundary of the writer is a valid table. A child shares the index with us and changes it, one
 * instruction at a time; between any two we look names up as a client does. An answer may be "unsure" while a change
 * is under
 * way; it may never be wrong: a name that is there throughout is always found, a name that moves to another object is
 * never missing, nothing comes back once it has gone, and no object is ever half.
 */
#include "index-fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define STEPS_MAX 3000000u           /* many times what it takes */

enum { N_WATCHED = 40 };

typedef enum Act {
        ACT_INSERT,
        ACT_SEAL,
        ACT_REPLACE,
        ACT_DELETE,
} Act;

typedef struct Op {
        Act act;
        unsigned watched;            /* which of the watched ids */
} Op;

/* What a lookup of one id may say. */
typedef struct Expected {
        uint32_t id;
        uint64_t before;             /* generation; 0: missing */
        uint64_t after;
        uint8_t state_before, state_after;
        bool has_after;              /* seen: the old is not to come back */
        uint32_t slot;               /* the writer's */
} Expected;

typedef struct Run {
        Fixture f;
        Expected watched[N_WATCHED];
        unsigned n_watched;
        uint64_t n_checks, n_unsure;
        _Atomic uint32_t *progress;  /* shared: 2 * op + 1 while it is going on, + 2 when it is over */
} Run;

/* Ids whose hashes end in the same two bits come first: they fill one bucket, and what is chained to it. */
static void choose_ids(Run *run, unsigned n_same)
{
        char buffer[FOLIO_KEY_BYTES_MAX + 1];
        uint32_t id = 0;

        for (run->n_watched = 0; run->n_watched < N_WATCHED; id++) {
                uint64_t hash = index_hash(run->f.index, fixture_key(id, buffer));

                if (run->n_watched >= n_same || (hash & 3) == 1)
                        run->watched[run->n_watched++] = (Expected){ .id = id };
        }
}

static void act(Fixture *f, Expected *e, Act what)
{
        uint32_t slot;
        LayoutSlot record;

        switch (what) {
        case ACT_INSERT:
                if (fixture_make(f, e->id, LAYOUT_SLOT_WRITING, &slot) != 0)
                        _exit(2);
                index_insert(f->index, slot);
                e->slot = slot;
                break;
        case ACT_SEAL:
                index_get(f->index, e->slot, &record);
                record.state = LAYOUT_SLOT_SEALED;
                index_update(f->index, e->slot, &record);
                break;
        case ACT_REPLACE:
                if (fixture_make(f, e->id, LAYOUT_SLOT_SEALED, &slot) != 0)
                        _exit(2);
                index_replace(f->index, e->slot, slot);
                index_free_slot(f->index, e->slot);
                e->slot = slot;
                break;
        case ACT_DELETE:
                index_retract(f->index, e->slot, FOLIO_EVENT_DELETED);
                index_free_slot(f->index, e->slot);
                break;
        }
        index_event(f->index, FOLIO_EVENT_SEALED, e->slot, 1);
}

/* The child's life. Nothing here allocates. */
static void run_writer(Run *run, const Op *ops, unsigned n_ops)
{
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
                _exit(3);
        raise(SIGSTOP);
        for (unsigned i = 0; i < n_ops; i++) {
                atomic_store(run->progress, 2 * i + 1);
                act(&run->f, &run->watched[ops[i].watched], ops[i].act);
                atomic_store(run->progress, 2 * i + 2);
        }
        _exit(0);
}

static void expect_op(Run *run, const Op *op)
{
        Expected *e = &run->watched[op->watched];

        switch (op->act) {
        case ACT_INSERT:
                e->after = ++run->f.generation;
                e->state_after = LAYOUT_SLOT_WRITING;
                break;
        case ACT_SEAL:
                e->after = e->before;
                e->state_after = LAYOUT_SLOT_SEALED;
                break;
        case ACT_REPLACE:
                e->after = ++run->f.generation;
                e->state_after = LAYOUT_SLOT_SEALED;
                break;
        case ACT_DELETE:
                e->after = 0;
                e->state_after = 0;
                break;
        }
        e->has_after = false;
}

static void check_one(Run *run, Expected *e, bool is_quiet)
{
        Lookup found;
        LookupOutcome outcome = fixture_look(&run->f, e->id, &found);
        uint64_t generation = outcome == LOOKUP_FOUND ? found.copy.generation : 0;
        uint8_t state = outcome == LOOKUP_FOUND ? found.copy.state : 0;
        bool is_before, is_after;

        run->n_checks++;
        if (outcome == LOOKUP_UNSURE) {
                run->n_unsure++;
                assert_false(is_quiet);
                return;
        }
        is_before = generation == e->before && state == e->state_before && !e->has_after;
        is_after = generation == e->after && state == e->state_after;
        if (!is_before && !is_after)
                fail_msg("id %u: generation %llu state %u, expected %llu/%u or %llu/%u", e->id,
                         (unsigned long long)generation, state, (unsigned long long)e->before, e->state_before,
                         (unsigned long long)e->after, e->state_after);
        e->has_after = e->has_after || !is_before;
        if (outcome == LOOKUP_FOUND)
                assert_true(fixture_is_whole(&run->f, e->id, found.slot, &found.copy));
        else if (e->before != 0)
                assert_int_equal(found.reason, FOLIO_EVENT_DELETED);
}

static void check_event(const Run *run)
{
        uint64_t newest = lookup_newest_event(run->f.space), oldest;
        LayoutEvent event;

        if (newest == 0)
                return;
        assert_int_equal(lookup_read_event(run->f.space, newest, &event, &oldest), LOOKUP_EVENT);
        assert_int_equal(event.sequence, newest);
        assert_int_equal(event.time_ns, 1);
}

static void check_all(Run *run, bool is_quiet)
{
        for (unsigned i = 0; i < run->n_watched; i++)
                check_one(run, &run->watched[i], is_quiet);
        check_event(run);
}

/* The operation is over: what was after is before now. */
static void settle(Run *run, const Op *op)
{
        Expected *e = &run->watched[op->watched];

        check_all(run, true);
        e->before = e->after;
        e->state_before = e->state_after;
        e->has_after = false;
}

static void step_through(Run *run, pid_t pid, const Op *ops, unsigned n_ops)
{
        uint32_t seen = 0;
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status));
        /* So that a test that fails leaves nobody standing there. */
        assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_EXITKILL), 0);
        for (uint32_t n_steps = 0;; n_steps++) {
                uint32_t progress;

                assert_true(n_steps < STEPS_MAX);
                assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                if (WIFEXITED(status))
                        break;
                assert_true(WIFSTOPPED(status));
                progress = atomic_load(run->progress);
                if (progress != seen) {
                        if (progress % 2)
                                expect_op(run, &ops[progress / 2]);
                        else
                                settle(run, &ops[progress / 2 - 1]);
                        seen = progress;
                }
                if (progress % 2)
                        check_all(run, false);
        }
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(seen, 2 * n_ops);
}

static void run_ops(unsigned n_same, unsigned n_before, const Op *ops, unsigned n_ops)
{
        Run run = { .n_watched = 0 };
        pid_t pid;

        run.progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(run.progress, MAP_FAILED);
        fixture_init(&run.f, 256, 16);
        choose_ids(&run, n_same);
        for (unsigned i = 0; i < n_before; i++) {
                act(&run.f, &run.watched[i], ACT_INSERT);
                run.watched[i].before = run.watched[i].after = run.f.generation;
                run.watched[i].state_before = run.watched[i].state_after = LAYOUT_SLOT_WRITING;
        }
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                run_writer(&run, ops, n_ops);
        step_through(&run, pid, ops, n_ops);
        printf("# %llu answers, %llu of them unsure\n", (unsigned long long)run.n_checks,
               (unsigned long long)run.n_unsure);
        assert_true(run.n_unsure < run.n_checks / 2);
        fixture_deinit(&run.f);
        assert_int_equal(munmap((void *)run.progress, 4096), 0);
}

static void test_life_of_an_object(void **state)
{
        static const Op ops[] = {
                { ACT_INSERT, 5 }, { ACT_SEAL, 5 }, { ACT_REPLACE, 5 }, { ACT_REPLACE, 5 }, { ACT_DELETE, 5 },
                { ACT_INSERT, 5 }, { ACT_DELETE, 0 }, { ACT_DELETE, 4 }, { ACT_INSERT, 0 },
        };

        (void)state;
        run_ops(0, 5, ops, ARRAY_SIZE(ops));
}

/* 14 names in one bucket and its overflow bucket; the third insert splits it. */
static void test_split_of_a_chain(void **state)
{
        static const Op ops[] = {
                { ACT_INSERT, 14 }, { ACT_INSERT, 15 }, { ACT_INSERT, 20 }, { ACT_INSERT, 21 }, { ACT_INSERT, 22 },
                { ACT_INSERT, 23 },
        };

        (void)state;
        run_ops(20, 14, ops, ARRAY_SIZE(ops));
}

/* Out of the middle of a chain, until its overflow buckets go, and back. */
static void test_shrinking_chain(void **state)
{
        static const Op ops[] = {
                { ACT_DELETE, 0 }, { ACT_DELETE, 11 }, { ACT_DELETE, 5 }, { ACT_DELETE, 7 }, { ACT_DELETE, 2 },
                { ACT_REPLACE, 3 }, { ACT_DELETE, 8 }, { ACT_INSERT, 0 }, { ACT_INSERT, 8 }, { ACT_INSERT, 12 },
        };

        (void)state;
        run_ops(20, 12, ops, ARRAY_SIZE(ops));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_life_of_an_object),
                UNIT_TEST(test_split_of_a_chain),
                UNIT_TEST(test_shrinking_chain),
        };

        return cmocka_run_group_tests_name("index-step", tests, NULL, NULL);
}
