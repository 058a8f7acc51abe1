/* SPDX-License-Identifier: Apache-2.0 */
/* Leases in the store: how they are recalled, inherited and lost; and that whatever happens nothing is left. */
#include "lease-fixture.h"

#include <sys/wait.h>

#include "fail-alloc.h"

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The objects live on; the next holder goes on where there is room, with another epoch. */
static void test_orphan(void **state)
{
        uint64_t region_id, epoch;
        Fixture f;
        Writer w, next;
        Op lease;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        region_id = lease.op.region_id;
        epoch = lease.op.generation;
        write_at(&lease, 0, "left");
        assert_int_equal(put(&w.c, "a", &lease, 0, 4), STATUS_OK);
        lease_clear(&lease);
        writer_close(&w);
        assert_leases(&f, 0, 1, 2 * MIB);
        ticks(&f, 2 * N_IDLE_TICKS);
        assert_leases(&f, 0, 1, 2 * MIB); /* not empty: it stays */

        writer_open(&f, &next, 0, "default");
        assert_text(&next.c, "a", "left");
        /* One that does not fit gets another. */
        assert_int_equal(ask(&next.c, &lease, 2 * MIB, 0), STATUS_OK);
        assert_int_not_equal(lease.op.region_id, region_id);
        lease_clear(&lease);
        assert_int_equal(ask(&next.c, &lease, 2 * MIB - 64, 0), STATUS_OK);
        assert_int_equal(lease.op.region_id, region_id);
        assert_true(lease.op.generation > epoch);
        assert_int_equal(put(&next.c, "b", &lease, 0, 4), STATUS_EXISTS);
        assert_int_equal(put(&next.c, "b", &lease, 64, 4), STATUS_OK);
        assert_leases(&f, 2, 0, 4 * MIB);
        lease_clear(&lease);
        writer_close(&next);
        fixture_deinit(&f);
}

/* A region that nobody holds goes when the last object goes, and some time has passed. */
static void test_empty_orphan(void **state)
{
        uint64_t used;
        Fixture f;
        Writer w;
        Client c;
        Op lease;

        fixture_init(&f, NULL);
        client_open(&f, &c, 0, "default");
        used = fixture_fact(&f, "memory.used_bytes");
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 4 * MIB), STATUS_OK);
        assert_int_equal(put(&w.c, "a", &lease, 0, MIB), STATUS_OK);
        lease_clear(&lease);
        writer_close(&w);
        ticks(&f, N_IDLE_TICKS);
        assert_int_equal(client_delete(&c, "a", 0), STATUS_OK);
        fixture_settle(&f);
        ticks(&f, 1);
        assert_leases(&f, 0, 0, 0);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), used);
        client_close(&c);
        fixture_deinit(&f);
}

/* Somebody who is in the middle of it when the connection ends may go on: the region is nobody's until it is gone. */
static void test_spoiled(void **state)
{
        uint64_t region_id;
        Fixture f;
        Writer w, next;
        Op lease, op;

        for (int how = 0; how < 3; how++) {
                fixture_init(&f, NULL);
                writer_open(&f, &w, 0, "default");
                writer_open(&f, &next, 0, "default");
                assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
                region_id = lease.op.region_id;
                assert_int_equal(put(&w.c, "a", &lease, 0, 4), STATUS_OK);
                if (how == 0)
                        atomic_store(&w.ring->lease_use[0], 1);
                if (how > 0)
                        assert_int_equal(publish(&w.c, VERB_CREATE, "b", &lease, 64, 10, 0, &op), STATUS_OK);
                if (how == 2)
                        assert_int_equal(client_delete(&w.c, "b", 0), STATUS_OK);
                lease_clear(&lease);
                writer_close(&w);
                fixture_settle(&f);
                assert_int_equal(ask(&next.c, &lease, 64, 2 * MIB), STATUS_OK);
                assert_int_not_equal(lease.op.region_id, region_id);
                lease_clear(&lease);
                assert_leases(&f, 1, 1, 4 * MIB);
                /* With the last object it goes, whoever is there. */
                assert_int_equal(client_delete(&next.c, "a", 0), STATUS_OK);
                fixture_settle(&f);
                assert_leases(&f, 1, 0, 2 * MIB);
                writer_close(&next);
                fixture_deinit(&f);
        }
}

/* A process that has ended writes nothing any more. */
static void test_dead_writer(void **state)
{
        SessionConfig config = { .cred = { .uid = 0, .gid = 0 }, .comm = "dead" };
        int index_fd, pins_fd, status;
        uint64_t region_id;
        char *detail = NULL;
        ProtoNamespace ns;
        Fixture f;
        Writer w = { .is_drained = true }, next;
        Op lease;
        pid_t pid;

        fixture_init(&f, NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                _exit(0);
        config.cred.pid = pid;
        w.c.f = &f;
        w.ring = calloc(1, sizeof(*w.ring));
        assert_int_equal(session_new(f.store, &config, &w.c.session, &detail), STATUS_OK);
        assert_int_equal(store_namespace_open(f.store, w.c.session, "default", &ns, &index_fd, &pins_fd, &detail),
                         STATUS_OK);
        w.c.namespace_id = ns.id;
        session_set_ring(w.c.session, w.ring, is_drained, &w);
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        region_id = lease.op.region_id;
        assert_int_equal(put(&w.c, "a", &lease, 0, 4), STATUS_OK);
        atomic_store(&w.ring->lease_use[0], 1);
        lease_clear(&lease);
        session_close(w.c.session);
        free(w.ring);
        assert_int_equal(waitpid(pid, &status, 0), pid);

        writer_open(&f, &next, 0, "default");
        assert_int_equal(ask(&next.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(lease.op.region_id, region_id);
        lease_clear(&lease);
        writer_close(&next);
        fixture_deinit(&f);
}

/* What is not used for a while is recalled; not before its holder has finished, and its ring is drained. */
static void test_recall(void **state)
{
        const LeaseBook *book;
        uint64_t epoch;
        Fixture f;
        Writer w;
        Op lease;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        epoch = lease.op.generation;
        book = map_book(&lease);

        /* Used now and then: not idle. */
        for (unsigned i = 0; i < 3 * N_IDLE_TICKS; i++) {
                char key[16];

                snprintf(key, sizeof(key), "%u", i);
                if (i % 4 == 0)
                        assert_int_equal(put(&w.c, key, &lease, 64 * i, 10), STATUS_OK);
                ticks(&f, 1);
        }
        assert_int_equal(fixture_fact(&f, "leases.recalled"), 0);

        atomic_store(&w.ring->lease_use[0], 1);
        ticks(&f, N_IDLE_TICKS);
        assert_int_equal(fixture_fact(&f, "leases.recalled"), 1);
        assert_int_equal(book->epoch, epoch + 1);
        assert_leases(&f, 1, 0, 2 * MIB);
        /* What was placed before is still published, and the lease does not come to life again by that. */
        w.is_drained = false;
        atomic_store(&w.ring->lease_use[0], 0);
        ticks(&f, 1);
        assert_leases(&f, 1, 0, 2 * MIB);
        assert_int_equal(put(&w.c, "late", &lease, 4096, 10), STATUS_OK);
        w.is_drained = true;
        ticks(&f, 1);
        assert_leases(&f, 0, 1, 2 * MIB);
        assert_int_equal(put(&w.c, "too late", &lease, 8192, 10), STATUS_INVALID);
        assert_true(client_has(&w.c, "late"));
        assert_int_equal(fixture_fact(&f, "leases.recalled"), 1);

        /* The number is free again. */
        lease_clear(&lease);
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(lease.op.slot, 0);
        assert_true(lease.op.generation > epoch + 1);
        assert_int_equal(book->epoch, lease.op.generation);
        munmap((void *)book, 16384);
        lease_clear(&lease);
        writer_close(&w);
        fixture_deinit(&f);
}

/* Who writes in place is not idle, however long it takes. */
static void test_no_recall_while_writing(void **state)
{
        Fixture f;
        Writer w;
        Op lease, object;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(publish(&w.c, VERB_CREATE, "a", &lease, 0, 10, 0, &object), STATUS_OK);
        ticks(&f, 3 * N_IDLE_TICKS);
        assert_leases(&f, 1, 0, 2 * MIB);
        assert_int_equal(fixture_fact(&f, "leases.recalled"), 0);
        assert_int_equal(client_seal(&w.c, &object), STATUS_OK);
        ticks(&f, N_IDLE_TICKS);
        assert_leases(&f, 0, 1, 2 * MIB);
        op_clear(&object);
        lease_clear(&lease);
        writer_close(&w);
        fixture_deinit(&f);
}

/* Nor does it lose the region by a recall that was under way when it began. */
static void test_recall_ends_with_writing(void **state)
{
        Fixture f;
        Writer w;
        Op lease, object;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        w.is_drained = false;
        ticks(&f, N_IDLE_TICKS);
        assert_int_equal(fixture_fact(&f, "leases.recalled"), 1);
        assert_int_equal(publish(&w.c, VERB_CREATE, "a", &lease, 0, 10, 0, &object), STATUS_OK);
        w.is_drained = true;
        ticks(&f, N_IDLE_TICKS);
        assert_leases(&f, 1, 0, 2 * MIB);
        assert_int_equal(client_seal(&w.c, &object), STATUS_OK);
        ticks(&f, 1);
        assert_leases(&f, 0, 1, 2 * MIB);
        op_clear(&object);
        lease_clear(&lease);
        writer_close(&w);
        fixture_deinit(&f);
}

/* Empty regions give way to who needs memory: those that nobody holds, and those that are not used. */
static void test_short_memory(void **state)
{
        StoreConfig config = fixture_config();
        Op lease, idle, object;
        Writer w, dead;
        Fixture f;

        config.budget_bytes = 64 * MIB;
        fixture_init(&f, &config);
        writer_open(&f, &w, 0, "default");
        writer_open(&f, &dead, 0, "default");
        assert_int_equal(ask(&dead.c, &lease, 64, 16 * MIB), STATUS_OK);
        lease_clear(&lease);
        assert_int_equal(ask(&w.c, &idle, 64, 16 * MIB), STATUS_OK);
        writer_close(&dead);
        assert_leases(&f, 1, 1, 32 * MIB);
        /* The orphan is enough. */
        assert_int_equal(client_create(&w.c, &object, "a", 40 * MIB, FOLIO_SPARSE), STATUS_OK);
        op_clear(&object);
        assert_leases(&f, 1, 0, 16 * MIB);
        /* One that somebody is placing something in is not taken; as soon as he has done, it is. */
        atomic_store(&w.ring->lease_use[0], 1);
        assert_int_equal(client_create(&w.c, &object, "b", 16 * MIB, FOLIO_SPARSE), STATUS_FULL);
        op_clear(&object);
        atomic_store(&w.ring->lease_use[0], 0);
        assert_int_equal(client_create(&w.c, &object, "b", 16 * MIB, FOLIO_SPARSE), STATUS_OK);
        op_clear(&object);
        assert_leases(&f, 0, 0, 0);
        /* A lease for which there is no room is refused like anything else. */
        assert_int_equal(ask(&w.c, &lease, 16 * MIB, 0), STATUS_FULL);
        lease_clear(&lease);
        lease_clear(&idle);
        writer_close(&w);
        fixture_deinit(&f);
}

/* Whoever maps a region that is given back does not keep its memory. */
static void test_punched(void **state)
{
        struct stat st;
        Fixture f;
        Writer w;
        Op lease;

        fixture_init(&f, NULL);
        writer_open(&f, &w, 0, "default");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        ticks(&f, N_IDLE_TICKS);
        store_relieve(f.store);
        fixture_settle(&f);
        assert_leases(&f, 0, 0, 0);
        assert_int_equal(fstat(lease.op.fd, &st), 0);
        assert_int_equal(st.st_blocks, 0);
        assert_int_equal(st.st_size, 2 * MIB);
        lease_clear(&lease);
        writer_close(&w);
        fixture_deinit(&f);
}

/* A namespace that is removed takes its leases along, held or not. */
static void test_removed(void **state)
{
        ProtoNamespace settings = { .name = "second" }, ignored;
        char *detail = NULL;
        Writer admin, w;
        uint64_t used;
        Fixture f;
        Op lease;

        fixture_init(&f, NULL);
        writer_open(&f, &admin, 0, "default");
        used = fixture_fact(&f, "memory.used_bytes");
        assert_int_equal(store_namespace_add(f.store, admin.c.session, &settings, &ignored, &detail), STATUS_OK);
        writer_open(&f, &w, 0, "second");
        assert_int_equal(ask(&w.c, &lease, 64, 2 * MIB), STATUS_OK);
        assert_int_equal(put(&w.c, "a", &lease, 0, 10), STATUS_OK);
        assert_int_equal(store_namespace_remove(f.store, admin.c.session, "second", &detail), STATUS_OK);
        assert_int_equal(put(&w.c, "b", &lease, 64, 10), STATUS_NOT_FOUND);
        fixture_settle(&f);
        assert_leases(&f, 0, 0, 0);
        assert_int_equal(fixture_fact(&f, "memory.used_bytes"), used);
        lease_clear(&lease);
        writer_close(&w);
        writer_close(&admin);
        fixture_deinit(&f);
}

/* While it is made its session ends, or its namespace. */
static void test_gone_meanwhile(void **state)
{
        ProtoNamespace settings = { .name = "second" }, ignored;
        char *detail = NULL;
        Writer admin, w;
        Fixture f;
        Op lease;

        for (int removed = 0; removed < 2; removed++) {
                fixture_init(&f, NULL);
                writer_open(&f, &admin, 0, "default");
                assert_int_equal(store_namespace_add(f.store, admin.c.session, &settings, &ignored, &detail),
                                 STATUS_OK);
                writer_open(&f, &w, 0, "second");
                lease = (Op){ .item = { .size_bytes = 8 * MIB } };
                op_begin(&w.c, &lease, VERB_LEASE);
                assert_false(lease.is_done);
                if (removed)
                        assert_int_equal(store_namespace_remove(f.store, admin.c.session, "second", &detail),
                                         STATUS_OK);
                else
                        writer_close(&w);
                op_wait(&f, &lease);
                assert_int_equal(lease.op.status, STATUS_CANCELLED);
                lease_clear(&lease);
                fixture_settle(&f);
                assert_leases(&f, 0, 0, 0);
                if (removed)
                        writer_close(&w);
                writer_close(&admin);
                fixture_deinit(&f);
        }
}

static void test_ring_charge(void **state)
{
        StoreConfig config = fixture_config();
        char *detail = NULL;
        Client c, d;
        Fixture f;

        config.session_bytes_max = 3 * MIB;
        fixture_init(&f, &config);
        client_open(&f, &c, 0, "default");
        client_open(&f, &d, 0, "default");
        assert_int_equal(session_charge_ring(c.session, MIB, &detail), STATUS_OK);
        assert_int_equal(session_charge_ring(d.session, UINT64_MAX, &detail), STATUS_LIMIT);
        assert_non_null(detail);
        free(detail);
        detail = NULL;
        assert_int_equal(session_charge_ring(d.session, 4 * MIB, &detail), STATUS_LIMIT);
        free(detail);
        client_close(&c);
        client_close(&d);
        fixture_deinit(&f);
}

/* --- no memory ---------------------------------------------------------------------------------------------------- */

static Fixture sweep_fixture;
static Writer sweep_writer;

static int attempt_lease(void)
{
        Op op = { .item = { .size_bytes = 3 * MIB } };

        op_begin(&sweep_writer.c, &op, VERB_LEASE);
        op_wait(&sweep_fixture, &op);
        lease_clear(&op);
        if (op.op.status != STATUS_OK) {
                assert_int_equal(op.op.status, STATUS_FULL);
                fixture_settle(&sweep_fixture);
                assert_leases(&sweep_fixture, 0, 0, 0);
                return -ENOMEM;
        }
        ticks(&sweep_fixture, 2 * N_IDLE_TICKS);
        assert_leases(&sweep_fixture, 0, 0, 0);
        return 0;
}

static void test_no_memory(void **state)
{
        fail_alloc_skip_sanitized();
        fixture_init(&sweep_fixture, NULL);
        writer_open(&sweep_fixture, &sweep_writer, 0, "default");
        fail_alloc_sweep(attempt_lease);
        writer_close(&sweep_writer);
        fixture_deinit(&sweep_fixture);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_orphan),
                UNIT_TEST(test_empty_orphan),
                UNIT_TEST(test_spoiled),
                UNIT_TEST(test_dead_writer),
                UNIT_TEST(test_recall),
                UNIT_TEST(test_no_recall_while_writing),
                UNIT_TEST(test_recall_ends_with_writing),
                UNIT_TEST(test_short_memory),
                UNIT_TEST(test_punched),
                UNIT_TEST(test_removed),
                UNIT_TEST(test_gone_meanwhile),
                UNIT_TEST(test_ring_charge),
                UNIT_TEST(test_no_memory),
        };

        return cmocka_run_group_tests_name("store-lease-end", tests, NULL, NULL);
}
