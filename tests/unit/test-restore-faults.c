/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store is killed at each of the places that fault.h knows, in the middle of each kind of change, and in the middle
 * of the restore: what was acknowledged is there, what was under way is done or not, and nothing is damaged.
 */
#include "restore-fixture.h"

#define LARGE_BYTES (3 * MIB)
#define CAPACITY (4 * MIB)

typedef enum Step {
        STEP_PUT,
        STEP_REPLACE,
        STEP_CREATE,
        STEP_SEAL,
        STEP_REPLACE_LARGE,
        STEP_DELETE,
        STEP_TRUNCATE,
        STEP_ADD,
        STEP_REMOVE,
        _STEP_MAX
} Step;

typedef struct Plan {
        const char *fault;
        uint32_t n_acknowledged;     /* steps */
        bool is_begun;               /* the one after them */
        bool is_over;                /* the fault was never passed */
} Plan;

static void create(Client *c, const char *key, char fill, uint32_t flags, Op *ret)
{
        char *bytes = malloc(LARGE_BYTES);

        assert_non_null(bytes);
        memset(bytes, fill, LARGE_BYTES);
        *ret = (Op){ .item = { .key = key_of(key), .size_bytes = LARGE_BYTES, .flags = flags,
                               .capacity_bytes = flags & FOLIO_MUTABLE ? CAPACITY : 0 } };
        assert_int_equal(op_run(c, ret, VERB_CREATE), STATUS_OK);
        assert_int_equal(pwrite(ret->op.fd, bytes, LARGE_BYTES, 0), LARGE_BYTES);
        close(ret->op.fd);
        ret->op.fd = -1;
        free(bytes);
}

static void do_step(Fixture *f, Client *c, Step step)
{
        static Op created, replacing;
        ProtoNamespace settings = { .name = "added" }, ignored;
        char *detail = NULL;

        switch (step) {
        case STEP_PUT:
                assert_int_equal(client_put_text(c, "put", "a new one", 0), STATUS_OK);
                break;
        case STEP_REPLACE:
                assert_int_equal(client_put_text(c, "replaced", "new bytes", FOLIO_REPLACE), STATUS_OK);
                break;
        case STEP_CREATE:
                create(c, "created", 'C', 0, &created);
                break;
        case STEP_SEAL:
                assert_int_equal(client_seal(c, &created), STATUS_OK);
                break;
        case STEP_REPLACE_LARGE:
                create(c, "large", 'N', FOLIO_REPLACE, &replacing);
                assert_int_equal(client_seal(c, &replacing), STATUS_OK);
                break;
        case STEP_DELETE:
                assert_int_equal(client_delete(c, "deleted", 0), STATUS_OK);
                break;
        case STEP_TRUNCATE:
                assert_int_equal(client_truncate(c, "mutable", MIB), STATUS_OK);
                break;
        case STEP_ADD:
                assert_int_equal(store_namespace_add(f->store, c->session, &settings, &ignored, &detail), STATUS_OK);
                break;
        case STEP_REMOVE:
                assert_int_equal(store_namespace_remove(f->store, c->session, "added", &detail), STATUS_OK);
                break;
        case _STEP_MAX:
                break;
        }
}

static void live(Fixture *f, void *userdata)
{
        Plan *plan = userdata;
        Client c;
        Op op;

        client_open(f, &c, getuid(), "default");
        assert_int_equal(client_put_text(&c, "kept", "as it was", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "replaced", "the old bytes", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "deleted", "was there", 0), STATUS_OK);
        create(&c, "large", 'L', 0, &op);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        create(&c, "mutable", 'M', FOLIO_MUTABLE, &op);
        if (plan->fault)
                (void)setenv("FOLIO_FAULT", plan->fault, 1);
        for (int step = 0; step < _STEP_MAX; step++) {
                plan->is_begun = true;
                do_step(f, &c, (Step)step);
                plan->n_acknowledged++;
                plan->is_begun = false;
        }
        plan->is_over = true;
}

/* --- what must be true afterwards --------------------------------------------------------------------------------- */

static bool has_text(Client *c, const char *key, const char *text)
{
        Lookup found;

        if (client_look(c, key, &found) != LOOKUP_FOUND)
                return false;
        if (found.copy.size_bytes != strlen(text))
                return false;
        assert_text(c, key, text);
        return true;
}

static bool has_fill(Client *c, const char *key, char fill, uint64_t n_bytes)
{
        char *bytes = malloc(n_bytes), *seen = malloc(n_bytes);
        bool is_it = false;
        Lookup found;

        assert_true(bytes && seen);
        memset(bytes, fill, n_bytes);
        if (client_look(c, key, &found) == LOOKUP_FOUND && found.copy.state != LAYOUT_SLOT_WRITING &&
            found.copy.size_bytes == n_bytes) {
                assert_int_equal(client_read_slot(c, found.slot, found.copy.generation, seen, n_bytes, 0), STATUS_OK);
                is_it = memcmp(seen, bytes, n_bytes) == 0;
        }
        free(bytes);
        free(seen);
        return is_it;
}

static bool has_namespace(Fixture *f, Client *c, const char *name)
{
        ProtoNamespace list[8];
        size_t n = store_namespace_list(f->store, c->session, (Key){ 0 }, list, 8);

        for (size_t i = 0; i < n; i++)
                if (strcmp(list[i].name, name) == 0)
                        return true;
        return false;
}

/* Is it as after the step, or as before it? Anything else fails. */
static bool is_done(Fixture *f, Client *c, Step step)
{
        bool is_new, is_old;
        Lookup found;

        switch (step) {
        case STEP_PUT:
                return has_text(c, "put", "a new one");
        case STEP_REPLACE:
                is_new = has_text(c, "replaced", "new bytes");
                assert_true(is_new || has_text(c, "replaced", "the old bytes"));
                return is_new;
        case STEP_CREATE:
                return client_look(c, "created", &found) == LOOKUP_FOUND;
        case STEP_SEAL:
                return has_fill(c, "created", 'C', LARGE_BYTES);
        case STEP_REPLACE_LARGE:
                is_new = has_fill(c, "large", 'N', LARGE_BYTES);
                assert_true(is_new || has_fill(c, "large", 'L', LARGE_BYTES));
                return is_new;
        case STEP_DELETE:
                is_old = has_text(c, "deleted", "was there");
                assert_true(is_old || client_reason(c, "deleted") == FOLIO_EVENT_DELETED);
                return !is_old;
        case STEP_TRUNCATE:
                assert_int_equal(client_look(c, "mutable", &found), LOOKUP_FOUND);
                assert_true(found.copy.size_bytes == MIB || found.copy.size_bytes == LARGE_BYTES);
                assert_true(has_fill(c, "mutable", 'M', found.copy.size_bytes));
                return found.copy.size_bytes == MIB;
        case STEP_ADD:
        case STEP_REMOVE:
                return has_namespace(f, c, "added") == (step == STEP_ADD);
        case _STEP_MAX:
                break;
        }
        return false;
}

static void check(Next *next, const Plan *plan)
{
        Client c;

        assert_int_equal(next->facts.n_dropped, 0);
        assert_int_equal(next->facts.n_bad, 0);
        client_open(&next->f, &c, getuid(), "default");
        assert_true(has_text(&c, "kept", "as it was"));
        for (uint32_t step = 0; step < _STEP_MAX; step++) {
                bool done = is_done(&next->f, &c, (Step)step);

                /* The second undoes the first. */
                if (step == STEP_ADD && (plan->n_acknowledged > STEP_REMOVE ||
                                         (plan->n_acknowledged == STEP_REMOVE && plan->is_begun)))
                        continue;
                if (step == STEP_REMOVE && plan->n_acknowledged < STEP_REMOVE)
                        continue;
                if (step < plan->n_acknowledged && !done)
                        fail_msg("%s: step %u was acknowledged and is undone", plan->fault, step);
                if (done && (step > plan->n_acknowledged || (step == plan->n_acknowledged && !plan->is_begun)))
                        fail_msg("%s: step %u has never begun", plan->fault, step);
        }
        /* It is a store as any. */
        assert_int_equal(client_put_text(&c, "after", "bytes", 0), STATUS_OK);
        assert_true(has_text(&c, "after", "bytes"));
        client_close(&c);
}

static Plan *plan_new(const char *fault)
{
        Plan *plan = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(plan, MAP_FAILED);
        plan->fault = fault;
        return plan;
}

static void test_each_place_of_a_change(void **state)
{
        static const char *const faults[] = {
                "keep.before", "keep.after", "put.copied", "create.made", "create.kept", "writing.written",
                "publish.begun", "publish.begun:2", "publish.begun:3", "publish.begun:4",
                "publish.written", "publish.written:2", "publish.written:3", "publish.written:4",
                "publish.named", "publish.named:2", "publish.named:3", "publish.named:4",
                "publish.counted", "publish.counted:2", "publish.counted:3", "publish.counted:4",
                "seal.kernel", "seal.kernel:2", "retire.begun", "retire.retracted", "retire.counted",
                "forget.given", "forget.given:2", "forget.given:3", "truncate.begun", "truncate.pages", "truncate.written",
                "namespace.made", "namespace.kept", "namespace.removing", "namespace.removed", NULL,
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
                Keeper *keeper = fake_keeper_new();
                Plan *plan = plan_new(faults[i]);
                Next next;

                restore_outlive(keeper, NULL, live, plan);
                if (plan->is_over != !faults[i])
                        fail_msg("%s was not passed", faults[i]);
                next_init(&next, NULL, keeper);
                check(&next, plan);
                printf("# %-22s after %u steps%s\n", faults[i] ? faults[i] : "none", plan->n_acknowledged,
                       plan->is_begun ? ", in the middle of the next" : "");
                next_deinit(&next);
                assert_int_equal(munmap(plan, 4096), 0);
        }
}

static void live_no_longer(Fixture *f, void *userdata)
{
        (void)f;
        *(bool *)userdata = true;
}

/* Each place of the restore, also twice, and then all the others. */
static void test_each_place_of_the_restore(void **state)
{
        static const char *const faults[] = { "restore.begin", "restore.namespace", "keep.before", "keep.after",
                                              "restore.filled", "restore.kept", "restore.complete", "restore.dropped",
                                              "restore.end" };
        bool *is_through = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        Keeper *keeper = fake_keeper_new();
        Plan *plan = plan_new(NULL);
        Next next;

        (void)state;
        assert_ptr_not_equal(is_through, MAP_FAILED);
        restore_outlive(keeper, NULL, live, plan);
        for (size_t i = 0; i < 2 * ARRAY_SIZE(faults); i++) {
                *is_through = false;
                (void)setenv("FOLIO_FAULT", faults[i / 2], 1);
                restore_outlive(keeper, NULL, live_no_longer, is_through);
                assert_false(*is_through);
        }
        (void)unsetenv("FOLIO_FAULT");
        next_init(&next, NULL, keeper);
        check(&next, plan);
        assert_int_equal(fake_keeper_count(keeper, KEPT_INDEX), 1);
        assert_int_equal(fake_keeper_count(keeper, KEPT_OWN), 3);
        next_deinit(&next);
        assert_int_equal(munmap(plan, 4096), 0);
        assert_int_equal(munmap(is_through, 4096), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_each_place_of_a_change),
                UNIT_TEST(test_each_place_of_the_restore),
        };

        return cmocka_run_group_tests_name("restore-faults", tests, NULL, NULL);
}
