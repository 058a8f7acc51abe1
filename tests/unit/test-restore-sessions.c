/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sessions have in the store outlives it with them: objects being written, in regions of their own, packed and in
 * leases, those that die with their creator, deleted ones that somebody holds, and the leases themselves.
 */
#include "lease-fixture.h"
#include "restore-fixture.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "proto/staging.h"

/* The client of the only ghost there is comes back. */
static void come_back(Next *next, Client *c)
{
        SessionConfig config = { .cred = { .uid = getuid(), .gid = getgid(), .pid = getpid() }, .comm = "test" };
        Session *ghost = session_next_ghost(next->f.store, NULL);
        int index_fd, pins_fd;
        char *detail = NULL;
        ProtoNamespace ns;

        assert_non_null(ghost);
        assert_null(session_next_ghost(next->f.store, ghost));
        assert_int_equal(session_resume(ghost, &config), 0);
        memset(c, 0, sizeof(*c));
        c->f = &next->f;
        c->session = ghost;
        assert_int_equal(store_namespace_open(next->f.store, ghost, "default", &ns, &index_fd, &pins_fd, &detail),
                         STATUS_OK);
        c->namespace_id = ns.id;
        assert_int_equal(space_new(&ns, 1, fcntl(index_fd, F_DUPFD_CLOEXEC, 3), fcntl(pins_fd, F_DUPFD_CLOEXEC, 3),
                                   &c->space), 0);
}

static void open_mine(Fixture *f, Client *c)
{
        client_open(f, c, getuid(), "default");
}

/* --- being written ------------------------------------------------------------------------------------------------ */

static void live_writing(Fixture *f, void *userdata)
{
        Client c;
        Op op;

        (void)userdata;
        open_mine(f, &c);
        assert_int_equal(client_put_text(&c, "replaced", "old", 0), STATUS_OK);
        assert_int_equal(client_create(&c, &op, "own", 100000, 0), STATUS_OK);
        assert_int_equal(pwrite(op.op.fd, "own bytes", 9, 0), 9);
        assert_int_equal(client_create(&c, &op, "packed", 6, PROTO_ITEM_STAGED), STATUS_OK);
        assert_int_equal(client_create(&c, &op, "replaced", 6, PROTO_ITEM_STAGED | FOLIO_REPLACE), STATUS_OK);
        assert_int_equal(client_create(&c, &op, "stream", 0, FOLIO_STREAM), STATUS_OK);
        op = (Op){ .item = { .flags = PROTO_ITEM_BY_SLOT, .slot = op.op.slot, .generation = op.op.generation,
                             .size_bytes = 8 } };
        client_stage(&c, 0, "flowing ", 8);
        assert_int_equal(op_run(&c, &op, VERB_WRITE), STATUS_OK);
}

static Status seal_staged(Client *c, uint32_t slot, uint64_t generation, const char *bytes)
{
        Op op = { .item = { .flags = PROTO_ITEM_BY_SLOT | PROTO_ITEM_STAGED, .slot = slot, .generation = generation } };

        client_stage(c, 0, bytes, strlen(bytes));
        return op_run_clear(c, &op, VERB_SEAL);
}

/* The slot of the only object of that size that is being written and has no name. */
static void find_nameless(Client *c, uint64_t size_bytes, uint32_t *ret_slot, uint64_t *ret_generation)
{
        *ret_generation = 0;
        for (uint32_t slot = 0; slot < 16; slot++) {
                const LayoutSlot *record = &c->space->slots[slot];

                if (record->state == LAYOUT_SLOT_WRITING && record->size_bytes == size_bytes &&
                    record->flags & LAYOUT_FLAG_REPLACING) {
                        *ret_slot = slot;
                        *ret_generation = record->generation;
                }
        }
        assert_true(*ret_generation != 0);
}

static void test_writing_goes_on(void **state)
{
        Keeper *keeper = fake_keeper_new();
        char bytes[100000] = "own bytes";
        uint64_t generation;
        uint32_t slot = 0;
        Lookup found;
        Client c;
        Next next;
        Op op;

        (void)state;
        restore_outlive(keeper, NULL, live_writing, NULL);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_writing, 4);
        assert_int_equal(next.facts.n_objects, 5);
        assert_int_equal(fixture_fact(&next.f, "unsealed.count"), 4);
        come_back(&next, &c);
        assert_text(&c, "replaced", "old");
        assert_int_equal(client_look(&c, "own", &found), LOOKUP_FOUND);
        op = (Op){ .op = { .slot = found.slot, .generation = found.copy.generation } };
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_content(&c, "own", bytes, sizeof(bytes));
        assert_int_equal(client_look(&c, "packed", &found), LOOKUP_FOUND);
        assert_int_equal(seal_staged(&c, found.slot, found.copy.generation, "packed"), STATUS_OK);
        assert_text(&c, "packed", "packed");
        find_nameless(&c, 6, &slot, &generation);
        assert_int_equal(seal_staged(&c, slot, generation, "newest"), STATUS_OK);
        assert_text(&c, "replaced", "newest");
        assert_int_equal(client_look(&c, "stream", &found), LOOKUP_FOUND);
        op = (Op){ .item = { .flags = PROTO_ITEM_BY_SLOT, .slot = found.slot, .generation = found.copy.generation,
                             .size_bytes = 2, .offset_bytes = 8 } };
        client_stage(&c, 0, "on", 2);
        assert_int_equal(op_run_clear(&c, &op, VERB_WRITE), STATUS_OK);
        op = (Op){ .op = { .slot = found.slot, .generation = found.copy.generation } };
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_text(&c, "stream", "flowing on");
        client_close(&c);
        assert_int_equal(fixture_fact(&next.f, "unsealed.count"), 0);
        next_deinit(&next);
}

static void live_no_longer(Fixture *f, void *userdata)
{
        (void)f;
        (void)userdata;
}

static void test_writers_that_do_not_come_back(void **state)
{
        (void)state;
        for (int is_known = 0; is_known < 2; is_known++) {
                Keeper *keeper = fake_keeper_new();
                Client c;
                Next next;

                restore_outlive(keeper, NULL, live_writing, NULL);
                restore_outlive(keeper, NULL, live_no_longer, NULL);
                if (!is_known)
                        for (int kind = KEPT_STAGING; kind <= KEPT_WATCH; kind++)
                                fake_keeper_forget(keeper, (KeptKind)kind);
                next_init(&next, NULL, keeper);
                assert_int_equal(next.facts.n_ended, is_known ? 0 : 4);
                assert_int_equal(next.facts.n_dropped, 0);
                if (is_known)
                        session_close(session_next_ghost(next.f.store, NULL));
                fixture_settle(&next.f);
                open_mine(&next.f, &c);
                assert_text(&c, "replaced", "old");
                assert_int_equal(client_reason(&c, "own"), LAYOUT_GRAVE_WRITER_DIED);
                assert_int_equal(client_reason(&c, "packed"), LAYOUT_GRAVE_WRITER_DIED);
                assert_int_equal(fixture_fact(&next.f, "objects.count"), 1);
                assert_int_equal(fake_keeper_count(keeper, KEPT_OWN), 0);
                client_close(&c);
                next_deinit(&next);
        }
}

/* --- with their creator ------------------------------------------------------------------------------------------- */

static void live_with_creator(Fixture *f, void *userdata)
{
        Op op = { .item = { .key = key_of("mine"), .size_bytes = 4, .lifetime = FOLIO_WITH_CREATOR } };
        Client c;

        (void)userdata;
        open_mine(f, &c);
        client_stage(&c, 0, "mine", 4);
        assert_int_equal(op_run_clear(&c, &op, VERB_PUT), STATUS_OK);
        assert_int_equal(client_put_text(&c, "everybody's", "text", 0), STATUS_OK);
}

static void test_with_creator(void **state)
{
        (void)state;
        for (int is_known = 0; is_known < 2; is_known++) {
                Keeper *keeper = fake_keeper_new();
                Client c;
                Next next;

                restore_outlive(keeper, NULL, live_with_creator, NULL);
                restore_outlive(keeper, NULL, live_no_longer, NULL);
                if (!is_known)
                        for (int kind = KEPT_STAGING; kind <= KEPT_WATCH; kind++)
                                fake_keeper_forget(keeper, (KeptKind)kind);
                next_init(&next, NULL, keeper);
                open_mine(&next.f, &c);
                if (is_known) {
                        assert_text(&c, "mine", "mine");
                        session_close(session_next_ghost(next.f.store, NULL));
                }
                assert_int_equal(client_reason(&c, "mine"), FOLIO_EVENT_DELETED);
                assert_text(&c, "everybody's", "text");
                client_close(&c);
                next_deinit(&next);
        }
}

/* --- held --------------------------------------------------------------------------------------------------------- */

static void live_holding(Fixture *f, void *userdata)
{
        Client c;
        Lookup found;
        Op op;

        open_mine(f, &c);
        assert_int_equal(client_put_text(&c, "held", "somebody reads this", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "not held", "nobody does", 0), STATUS_OK);
        assert_int_equal(client_create(&c, &op, "own", 3 * MIB, 0), STATUS_OK);
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(client_look(&c, i ? "own" : "held", &found), LOOKUP_FOUND);
                client_pin(&c, found.slot, 1);
                ((uint32_t *)userdata)[i] = found.slot;
        }
        assert_int_equal(client_delete(&c, "held", 0), STATUS_OK);
        assert_int_equal(client_delete(&c, "not held", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "own", "another", FOLIO_REPLACE), STATUS_OK);
}

static void test_held(void **state)
{
        uint32_t *slots = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        Keeper *keeper = fake_keeper_new();
        uint64_t generation;
        char seen[32];
        Client c;
        Next next;

        (void)state;
        assert_ptr_not_equal(slots, MAP_FAILED);
        restore_outlive(keeper, NULL, live_holding, slots);
        restore_outlive(keeper, NULL, live_no_longer, NULL);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_held, 2);
        assert_int_equal(fixture_fact(&next.f, "held.count"), 2);
        assert_int_equal(fake_keeper_count(keeper, KEPT_OWN), 1);
        come_back(&next, &c);
        assert_int_equal(client_reason(&c, "held"), FOLIO_EVENT_DELETED);
        assert_text(&c, "own", "another");
        generation = c.space->slots[slots[0]].generation;
        assert_int_equal(client_read_slot(&c, slots[0], generation, seen, 19, 0), STATUS_OK);
        assert_memory_equal(seen, "somebody reads this", 19);
        client_pin(&c, slots[0], -1);
        client_pin(&c, slots[1], -1);
        fixture_settle(&next.f);
        assert_int_equal(fixture_fact(&next.f, "held.count"), 0);
        assert_int_equal(fake_keeper_count(keeper, KEPT_OWN), 0);
        assert_int_equal(client_read_slot(&c, slots[0], generation, seen, 19, 0), STATUS_DELETED);
        client_close(&c);
        next_deinit(&next);
        assert_int_equal(munmap(slots, 4096), 0);
}

/* --- leases ------------------------------------------------------------------------------------------------------- */

static void live_leasing(Fixture *f, void *userdata)
{
        Op lease, op;
        Writer w;

        (void)userdata;
        writer_open(f, &w, getuid(), "default");
        assert_int_equal(ask(&w.c, &lease, 1, 2 * MIB), STATUS_OK);
        write_at(&lease, 0, "in a lease");
        assert_int_equal(put(&w.c, "leased", &lease, 0, 10), STATUS_OK);
        write_at(&lease, 4096, "another");
        assert_int_equal(put(&w.c, "another", &lease, 4096, 7), STATUS_OK);
        assert_int_equal(publish(&w.c, VERB_CREATE, "begun", &lease, 8192, 5, 0, &op), STATUS_OK);
        write_at(&lease, 8192, "begun");
        assert_int_equal(put(&w.c, "gone", &lease, 12288, 5), STATUS_OK);
        assert_int_equal(client_delete(&w.c, "gone", 0), STATUS_OK);
}

static void test_leases(void **state)
{
        Keeper *keeper = fake_keeper_new();
        RingHeader *ring = calloc(1, sizeof(*ring));
        Lookup found;
        Writer w = { .is_drained = true };
        Client c;
        Next next;
        Op op, lease;

        (void)state;
        assert_non_null(ring);
        restore_outlive(keeper, NULL, live_leasing, NULL);
        restore_outlive(keeper, NULL, live_no_longer, NULL);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_dropped, 0);
        assert_int_equal(next.facts.n_objects, 3);
        assert_leases(&next.f, 1, 0, 2 * MIB);
        assert_int_equal(fixture_fact(&next.f, "leases.used_bytes"), 3 * 64);
        assert_int_equal(fake_keeper_count(keeper, KEPT_BOOK), 1);
        assert_int_equal(fake_keeper_count(keeper, KEPT_LEASED), 1);
        /* Nothing is taken from who has not come back, however long that takes. */
        ticks(&next.f, 20);
        assert_leases(&next.f, 1, 0, 2 * MIB);
        come_back(&next, &c);
        assert_text(&c, "leased", "in a lease");
        assert_text(&c, "another", "another");
        session_set_ring(c.session, ring, is_drained, &w);
        /* What it had placed before is still published; then the lease is over. */
        assert_int_equal(client_look(&c, "leased", &found), LOOKUP_FOUND);
        lease = (Op){ .op = { .region_id = found.copy.region_id } };
        assert_int_equal(put(&c, "late", &lease, 16384, 4), STATUS_OK);
        assert_int_equal(put(&c, "taken", &lease, 0, 4), STATUS_EXISTS);
        assert_int_equal(client_look(&c, "begun", &found), LOOKUP_FOUND);
        op = (Op){ .op = { .slot = found.slot, .generation = found.copy.generation } };
        ticks(&next.f, 1);
        assert_leases(&next.f, 1, 0, 2 * MIB); /* it is still being written */
        assert_int_equal(client_seal(&c, &op), STATUS_OK);
        assert_text(&c, "begun", "begun");
        ticks(&next.f, 1);
        assert_leases(&next.f, 0, 1, 2 * MIB);
        /* The next one gets it. */
        assert_int_equal(ask(&c, &op, 1, 2 * MIB), STATUS_OK);
        assert_true(op.op.region_id == lease.op.region_id);
        lease_clear(&op);
        client_close(&c);
        next_deinit(&next);
        free(ring);
}

static StagingEnd *map_staging_end(const Session *session)
{
        struct stat st;
        void *end;

        assert_int_equal(fstat(session_staging_fd(session), &st), 0);
        end = mmap(NULL, STAGING_END_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, session_staging_fd(session),
                   st.st_size - STAGING_END_BYTES);
        assert_ptr_not_equal(end, MAP_FAILED);
        return end;
}

/*
 * Who has not come back looks at the index of before still, and is told by the session's memory that it is not to be
 * gone by any more: so what it has not held until then is given back though it never comes.
 */
static void test_taken_over(void **state)
{
        Keeper *keeper = fake_keeper_new();
        StagingEnd *old_end, *new_end;
        Session *ghost;
        Client other;
        Next next;

        (void)state;
        restore_outlive(keeper, NULL, live_leasing, NULL);
        next_init(&next, NULL, keeper);
        ghost = session_next_ghost(next.f.store, NULL);
        assert_non_null(ghost);
        old_end = map_staging_end(ghost);
        assert_true(atomic_load(&old_end->taken_by) != 7);
        store_take_over(next.f.store, 7);
        assert_int_equal(atomic_load(&old_end->taken_by), 7);
        open_mine(&next.f, &other);
        new_end = map_staging_end(other.session);
        assert_int_equal(atomic_load(&new_end->taken_by), 7);
        assert_int_equal(atomic_load(&new_end->start), 0); /* that is the client's to say */
        assert_int_equal(client_delete(&other, "leased", 0), STATUS_OK);
        assert_int_equal(fixture_fact(&next.f, "held.count"), 0);
        assert_int_equal(fixture_fact(&next.f, "leases.used_bytes"), 2 * 64);
        assert_int_equal(munmap(old_end, STAGING_END_BYTES), 0);
        assert_int_equal(munmap(new_end, STAGING_END_BYTES), 0);
        client_close(&other);
        next_deinit(&next);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_writing_goes_on),
                UNIT_TEST(test_writers_that_do_not_come_back),
                UNIT_TEST(test_with_creator),
                UNIT_TEST(test_held),
                UNIT_TEST(test_leases),
                UNIT_TEST(test_taken_over),
        };

        return cmocka_run_group_tests_name("restore-sessions", tests, NULL, NULL);
}
