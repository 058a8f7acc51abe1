/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever instruction the daemon ends at, the next one finds each object as it was before the change under way, or as it
 * was to be: never neither, never half, never the old one again once the new one was there; and an event counts exactly
 * when what it tells of has happened. A child changes the index, one instruction at a time; between any two we read it
 * as the next daemon does.
 */
#include "index-fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "daemon/store/index-old.h"

#define STEPS_MAX 3000000u

enum { N_WATCHED = 6 };

typedef enum Act {
        ACT_INSERT,                  /* it is being written */
        ACT_SEAL,
        ACT_PUT,                     /* written and named at once */
        ACT_CHANGE,                  /* another size, the same state */
        ACT_ZEROS,
        ACT_MOVE,                    /* as a change, but who has pinned it stays */
        ACT_MOVE_PINNED,
        ACT_REPLACE,
        ACT_DELETE,
} Act;

typedef struct Op {
        Act act;
        uint32_t id;
} Op;

/* What is known of a name. */
typedef struct Fact {
        uint64_t generation;         /* 0: not there */
        uint64_t size_bytes;
        uint8_t state;
} Fact;

typedef struct Run {
        Fixture f;
        Fact now[N_WATCHED];         /* when nothing is under way */
        Fact then;                   /* of the one that changes */
        uint32_t slots[N_WATCHED];   /* the writer's */
        bool is_after;               /* seen */
        uint64_t n_events;           /* before */
        uint64_t n_checks, n_before, n_after;
        _Atomic uint32_t *progress;
} Run;

static bool has_event(Act act)
{
        return act == ACT_SEAL || act == ACT_PUT || act == ACT_REPLACE || act == ACT_DELETE;
}

static bool is_pinned(void *userdata)
{
        return *(const bool *)userdata;
}

/* --- the writer --------------------------------------------------------------------------------------------------- */

static void change(Run *run, uint32_t id, Act what)
{
        static const LayoutExtents zeros = { .n_extents = 2, .extents = { { 0, 3 }, { 7, 9 } } };
        Index *index = run->f.index;
        uint32_t slot = run->slots[id], new_slot;
        LayoutSlot record;

        switch (what) {
        case ACT_INSERT:
                if (fixture_make(&run->f, id, LAYOUT_SLOT_WRITING, &slot) != 0)
                        _exit(2);
                index_insert(index, slot);
                break;
        case ACT_SEAL:
                index_get(index, slot, &record);
                record.state = LAYOUT_SLOT_SEALED;
                index_event_begin_of(index, FOLIO_EVENT_SEALED, slot, &record, 1, 0);
                index_update(index, slot, &record);
                index_event_end(index);
                break;
        case ACT_PUT:
                if (fixture_make(&run->f, id, LAYOUT_SLOT_FREE, &slot) != 0)
                        _exit(2);
                index_get(index, slot, &record);
                record.state = LAYOUT_SLOT_SEALED;
                index_event_begin_of(index, FOLIO_EVENT_SEALED, slot, &record, 1, 0);
                index_write(index, slot, &record);
                index_insert(index, slot);
                index_event_end(index);
                break;
        case ACT_CHANGE:
                index_get(index, slot, &record);
                record.size_bytes++;
                index_update(index, slot, &record);
                break;
        case ACT_ZEROS:
                index_get(index, slot, &record);
                index_update_extents(index, slot, &record, &zeros);
                break;
        case ACT_MOVE:
        case ACT_MOVE_PINNED:
                index_get(index, slot, &record);
                record.size_bytes++;
                (void)index_move(index, slot, &record, is_pinned, &(bool){ what == ACT_MOVE_PINNED });
                break;
        case ACT_REPLACE:
                if (fixture_make(&run->f, id, LAYOUT_SLOT_FREE, &new_slot) != 0)
                        _exit(2);
                index_get(index, new_slot, &record);
                record.state = LAYOUT_SLOT_SEALED;
                index_event_begin_of(index, FOLIO_EVENT_REPLACED, new_slot, &record, 1, 0);
                index_write(index, new_slot, &record);
                index_replace(index, slot, new_slot);
                index_event_end(index);
                index_free_slot(index, slot);
                slot = new_slot;
                break;
        case ACT_DELETE:
                index_event_begin(index, FOLIO_EVENT_DELETED, slot, 1, 0);
                index_retract(index, slot, FOLIO_EVENT_DELETED);
                index_event_end(index);
                index_free_slot(index, slot);
                break;
        }
        run->slots[id] = slot;
}

static void run_writer(Run *run, const Op *ops, unsigned n_ops)
{
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
                _exit(3);
        raise(SIGSTOP);
        for (unsigned i = 0; i < n_ops; i++) {
                atomic_store(run->progress, 2 * i + 1);
                change(run, ops[i].id, ops[i].act);
                atomic_store(run->progress, 2 * i + 2);
        }
        _exit(0);
}

/* --- the next daemon ---------------------------------------------------------------------------------------------- */

static void expect(Run *run, const Op *op)
{
        Fact *then = &run->then;

        *then = run->now[op->id];
        switch (op->act) {
        case ACT_INSERT:
        case ACT_PUT:
        case ACT_REPLACE:
                then->generation = ++run->f.generation;
                then->size_bytes = then->generation * 3;
                then->state = op->act == ACT_INSERT ? LAYOUT_SLOT_WRITING : LAYOUT_SLOT_SEALED;
                break;
        case ACT_SEAL:
                then->state = LAYOUT_SLOT_SEALED;
                break;
        case ACT_CHANGE:
        case ACT_MOVE:
                then->size_bytes++;
                break;
        case ACT_ZEROS:
        case ACT_MOVE_PINNED:
                break;
        case ACT_DELETE:
                *then = (Fact){ 0 };
                break;
        }
        run->is_after = false;
}

/* Of all records with that key the one with the greatest generation, as it stands. */
static void find_facts(const IndexOld *old, Fact facts[N_WATCHED])
{
        char wanted[FOLIO_KEY_BYTES_MAX + 1], buffer[FOLIO_KEY_BYTES_MAX], metadata_bytes[FOLIO_METADATA_BYTES_MAX];
        uint32_t n_slots = atomic_load(&old->header.n_slots);
        LayoutSlot record;
        Key key, content_type, metadata, good;
        uint32_t id;

        memset(facts, 0, N_WATCHED * sizeof(*facts));
        for (uint32_t slot = 0; slot < n_slots; slot++) {
                IndexVerdict verdict = index_old_judge(old, slot, &record);

                assert_int_not_equal(verdict, INDEX_BAD);
                if (verdict != INDEX_WHOLE || record.state == LAYOUT_SLOT_RETRACTED)
                        continue;
                index_old_texts(old, &record, buffer, &key, &content_type, &metadata);
                for (id = 0; id < N_WATCHED; id++) {
                        good = fixture_key(id, wanted);
                        if (good.n_bytes == key.n_bytes && memcmp(good.bytes, key.bytes, key.n_bytes) == 0)
                                break;
                }
                assert_true(id < N_WATCHED);
                assert_true(record.region_id == (record.generation ^ id));
                good = fixture_metadata(record.generation, metadata_bytes);
                assert_int_equal(metadata.n_bytes, good.n_bytes);
                assert_memory_equal(metadata.bytes, good.bytes, good.n_bytes);
                if (record.flags & LAYOUT_FLAG_ZEROS)
                        assert_int_equal(index_old_extents(old, &record)->extents[1].n_pages, 9);
                if (record.generation > facts[id].generation)
                        facts[id] = (Fact){ record.generation, record.size_bytes, record.state };
        }
}

static bool is_same(const Fact *a, const Fact *b)
{
        return a->generation == b->generation && a->size_bytes == b->size_bytes && a->state == b->state;
}

static void check(Run *run, const Op *op)
{
        Region *region = index_region(run->f.index);
        bool is_before, is_after, has_counted;
        const LayoutEvent *event;
        Fact facts[N_WATCHED];
        IndexOld old;

        run->n_checks++;
        assert_int_equal(index_old_open(region->fd_read_only, region->size_bytes, &old), 0);
        find_facts(&old, facts);
        for (uint32_t id = 0; id < N_WATCHED; id++)
                if (id != op->id && !is_same(&facts[id], &run->now[id]))
                        fail_msg("id %u has changed", id);
        is_before = is_same(&facts[op->id], &run->now[op->id]) && !run->is_after;
        is_after = is_same(&facts[op->id], &run->then);
        if (!is_before && !is_after)
                fail_msg("id %u: generation %llu state %u size %llu", op->id,
                         (unsigned long long)facts[op->id].generation, facts[op->id].state,
                         (unsigned long long)facts[op->id].size_bytes);
        event = index_old_pending_event(&old);
        has_counted = atomic_load(&old.header.event_sequence) > run->n_events ||
                      (event && index_old_has_happened(&old, event));
        if (has_event(op->act))
                assert_int_equal(has_counted, !is_before);
        run->n_before += is_before;
        run->n_after += !is_before;
        run->is_after = run->is_after || !is_before;
        index_old_close(&old);
}

static void settle(Run *run, const Op *op)
{
        check(run, op);
        if (!is_same(&run->then, &run->now[op->id]))
                assert_true(run->is_after);
        run->now[op->id] = run->then;
        run->n_events += has_event(op->act);
}

static void step_through(Run *run, pid_t pid, const Op *ops, unsigned n_ops)
{
        uint32_t seen = 0;
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status));
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
                                expect(run, &ops[progress / 2]);
                        else
                                settle(run, &ops[progress / 2 - 1]);
                        seen = progress;
                }
                if (progress % 2)
                        check(run, &ops[progress / 2]);
        }
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(seen, 2 * n_ops);
}

static void test_every_instruction(void **state)
{
        static const Op ops[] = {
                { ACT_INSERT, 0 }, { ACT_SEAL, 0 },    { ACT_PUT, 1 },    { ACT_PUT, 2 },    { ACT_REPLACE, 0 },
                { ACT_CHANGE, 1 }, { ACT_ZEROS, 2 },   { ACT_CHANGE, 2 }, { ACT_ZEROS, 2 },  { ACT_DELETE, 1 },
                { ACT_PUT, 3 },    { ACT_REPLACE, 2 }, { ACT_PUT, 4 },    { ACT_DELETE, 3 }, { ACT_PUT, 1 },
                { ACT_INSERT, 5 }, { ACT_DELETE, 0 },  { ACT_SEAL, 5 },   { ACT_PUT, 0 },
                { ACT_MOVE, 0 },   { ACT_MOVE_PINNED, 4 }, { ACT_MOVE, 4 },  { ACT_DELETE, 4 },
        };
        Run run = { .n_checks = 0 };
        pid_t pid;

        (void)state;
        run.progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(run.progress, MAP_FAILED);
        fixture_init(&run.f, 64, 4); /* so that events are written over as well */
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                run_writer(&run, ops, ARRAY_SIZE(ops));
        step_through(&run, pid, ops, ARRAY_SIZE(ops));
        printf("# %llu moments, %llu of them before\n", (unsigned long long)run.n_checks,
               (unsigned long long)run.n_before);
        assert_true(run.n_before > 1000 && run.n_after > 1000);
        fixture_deinit(&run.f);
        assert_int_equal(munmap((void *)run.progress, 4096), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_every_instruction),
        };

        return cmocka_run_group_tests_name("index-crash", tests, NULL, NULL);
}
