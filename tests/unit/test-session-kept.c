/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How sessions outlive a store: what is kept of them and when it is dropped, what the next store makes of it, whole or
 * not, and that nothing is lost with what cannot be kept. The keeper is a table (fake-keeper.h). Over 600 lines: each
 * part of a session has its way of being broken.
 */
#include "store-fixture.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "daemon/memory/ring-memory.h"
#include "daemon/store/session-kept.h"
#include "fake-keeper.h"
#include "proto/staging.h"

/* --- what stands around it ---------------------------------------------------------------------------------------- */

static Keeper *keeper;
static Session *sessions[2048];      /* that a test has made, and that are open */
static size_t n_sessions;

static Session *track(Session *session)
{
        assert_true(n_sessions < ARRAY_SIZE(sessions));
        return sessions[n_sessions++] = session;
}

static void forget(Session *session)
{
        size_t i = 0;

        while (i < n_sessions && sessions[i] != session)
                i++;
        if (i < n_sessions)
                sessions[i] = sessions[--n_sessions];
}

static void close_tracked(Session *session)
{
        forget(session);
        session_close(session);
}

static void begin_test(void)
{
        keeper = fake_keeper_new();
        n_sessions = 0;
}

static void begin_with(Fixture *f, const StoreConfig *from)
{
        StoreConfig config = from ? *from : fixture_config();
        StoreRestoreFacts facts;
        char *message = NULL;

        config.keeper = keeper;
        fixture_init(f, &config);
        assert_int_equal(store_restore(f->store, &facts, &message), 0);
        assert_null(message);
        assert_int_equal(facts.listener_fd, -1);
}

static void begin(Fixture *f)
{
        begin_with(f, NULL);
}

static Session *open_session(Fixture *f, const SessionConfig *config)
{
        char *detail = NULL;
        Session *session;

        assert_int_equal(session_new(f->store, config, &session, &detail), STATUS_OK);
        return track(session);
}

static void open_client(Fixture *f, Client *c)
{
        client_open(f, c, geteuid(), "default");
        (void)track(c->session);
}

/* It ends as foliod does for another that comes. */
static void leave(Fixture *f)
{
        Session *session;

        while (n_sessions > 0)
                session_leave(sessions[--n_sessions]);
        while ((session = session_next_ghost(f->store, NULL)))
                session_leave(session);
        store_leave(f->store);
        worker_pool_free(f->workers);
        event_base_free(f->base);
}

/* And this is the end of the test. */
static void finish(Fixture *f)
{
        Session *session;

        while (n_sessions > 0)
                session_close(sessions[--n_sessions]);
        while ((session = session_next_ghost(f->store, NULL)))
                session_close(session);
        fixture_deinit(f);
        for (KeptKind kind = KEPT_STAGING; kind <= KEPT_WATCH; kind++)
                assert_int_equal(fake_keeper_count(keeper, kind), 0);
        fake_keeper_free(keeper);
}

static size_t n_kept(KeptKind kind)
{
        return fake_keeper_count(keeper, kind);
}

static KeptRecord *find_kept(KeptKind kind, uint32_t owner, uint64_t id)
{
        KeptRecord *record;
        int fd;

        for (size_t n = 0; (record = fake_keeper_get(keeper, kind, n, &fd)); n++)
                if (record->owner == owner && record->id == id)
                        return record;
        return NULL;
}

static Session *ghost_of(Fixture *f, uint32_t number)
{
        Session *session = store_find_session(f->store, number);

        assert_non_null(session);
        assert_true(session_is_ghost(session));
        return session;
}

static size_t count_ghosts(Fixture *f)
{
        size_t n = 0;

        for (Session *session = NULL; (session = session_next_ghost(f->store, session));)
                n++;
        return n;
}

static int open_self(void)
{
        return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

static bool is_drained(void *userdata, uint64_t region_id)
{
        return true;
}

typedef struct TestRing {
        RingMemory memory;
        int bell_fd;
} TestRing;

static void add_ring(Client *c, TestRing *ring)
{
        char *detail = NULL;

        ring->memory = (RingMemory)RING_MEMORY_NULL;
        assert_int_equal(ring_memory_init(&ring->memory), 0);
        ring->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_int_equal(session_charge_ring(c->session, RING_REGION_BYTES, &detail), STATUS_OK);
        session_set_ring(c->session, ring->memory.header, is_drained, NULL);
        session_keep_ring(c->session, ring->memory.fd, ring->bell_fd);
}

static void free_ring(TestRing *ring)
{
        ring_memory_deinit(&ring->memory);
        close(ring->bell_fd);
}

/* --- keeping ------------------------------------------------------------------------------------------------------ */

static void test_what_is_kept(void **state)
{
        Fixture f;
        Client c;
        TestRing ring;
        KeptRecord *kept;
        int process_fd = open_self(), watch_fd;
        uint32_t number;
        char *detail = NULL;

        begin_test();
        begin(&f);
        open_client(&f, &c);
        number = session_number(c.session);
        assert_true(number != 0);
        assert_true(session_token(c.session) != 0 && session_token(c.session) <= INT64_MAX);
        kept = find_kept(KEPT_STAGING, number, session_token(c.session));
        assert_non_null(kept);
        assert_true(kept->detail == ((uint64_t)geteuid() << 32 | geteuid()));
        assert_true(kept->size_bytes == 4 * MIB + STAGING_END_BYTES);
        assert_string_equal(kept->text, "test");
        assert_non_null(find_kept(KEPT_PINS, number, c.namespace_id));
        assert_int_equal(n_kept(KEPT_PROCESS), 0);
        session_keep_process(c.session, process_fd);
        session_keep_process(c.session, process_fd);
        assert_int_equal(n_kept(KEPT_PROCESS), 1);
        session_keep_process(c.session, -1);
        assert_int_equal(n_kept(KEPT_PROCESS), 0);
        session_keep_process(c.session, process_fd);
        assert_int_equal(store_watch(f.store, c.session, c.namespace_id, &watch_fd, &detail), STATUS_OK);
        assert_int_equal(store_watch(f.store, c.session, c.namespace_id, &watch_fd, &detail), STATUS_OK);
        add_ring(&c, &ring);
        for (KeptKind kind = KEPT_STAGING; kind <= KEPT_WATCH; kind++)
                assert_int_equal(n_kept(kind), 1);
        assert_int_equal(fixture_fact(&f, "sessions.unkept"), 0);
        forget(c.session);
        client_close(&c);
        for (KeptKind kind = KEPT_STAGING; kind <= KEPT_WATCH; kind++)
                assert_int_equal(n_kept(kind), 0);
        free_ring(&ring);
        close(process_fd);
        finish(&f);
}

static void test_without_a_keeper(void **state)
{
        uint32_t numbers[4];
        Client clients[4];
        Fixture f;

        fixture_init(&f, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
                client_open(&f, &clients[i], geteuid(), "default");
                assert_true(session_token(clients[i].session) == 0);
                session_keep_process(clients[i].session, 0);
                session_keep_ring(clients[i].session, 0, 0);
                numbers[i] = session_number(clients[i].session);
                assert_true(numbers[i] != 0);
                for (size_t j = 0; j < i; j++)
                        assert_true(numbers[i] != numbers[j]);
        }
        for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
                client_close(&clients[i]);
        fixture_deinit(&f);
}

/* Whatever the keeper refuses: the session is as good as any, but nobody can have it back. */
static void test_no_room(void **state)
{
        for (size_t n = 0; n <= 7; n++) {
                int watch_fd, process_fd = open_self();
                char *detail = NULL;
                TestRing ring;
                Fixture f;
                Client c;

                begin_test();
                begin(&f);
                fake_keeper_set_gone(keeper, n == 7);
                if (n < 7)
                        fake_keeper_set_limit(keeper, n_kept(KEPT_INDEX) + n_kept(KEPT_PACKED) + n);
                open_client(&f, &c);
                session_keep_process(c.session, process_fd);
                assert_int_equal(store_watch(f.store, c.session, c.namespace_id, &watch_fd, &detail), STATUS_OK);
                add_ring(&c, &ring);
                assert_true(watch_fd >= 0);
                client_pin(&c, 0, 1);
                /* Staging, pins, process, watch, ring, bell. */
                assert_true((session_token(c.session) != 0) == (n == 6));
                assert_int_equal(fixture_fact(&f, "sessions.unkept"), n != 6);
                assert_int_equal(n_kept(KEPT_STAGING), n == 6);
                fake_keeper_set_gone(keeper, false);
                fake_keeper_set_limit(keeper, SIZE_MAX);
                leave(&f);

                /* What is left of it is a ghost that nobody can have back, or none. */
                begin(&f);
                assert_int_equal(count_ghosts(&f), n != 0 && n != 7);
                if (n != 0 && n != 7)
                        assert_true((session_token(session_next_ghost(f.store, NULL)) != 0) == (n == 6));
                space_unref(c.space);
                free_ring(&ring);
                close(process_fd);
                finish(&f);
        }
}

/* --- coming back -------------------------------------------------------------------------------------------------- */

static void assert_is_as_it_was(const Session *ghost, uint64_t token)
{
        assert_true(session_token(ghost) == token);
        assert_false(session_is_cut(ghost));
        assert_int_equal(session_cred(ghost)->uid, 77);
        assert_int_equal(session_cred(ghost)->gid, 78);
        assert_int_equal(session_cred(ghost)->pid, 79);
        assert_int_equal(session_cred(ghost)->n_groups, 2);
        assert_int_equal(session_cred(ghost)->groups[1], 6);
        assert_string_equal(session_comm(ghost), "a name that is longer than it m");
        assert_int_equal(session_connected_ns(ghost), 99);
        assert_memory_equal(ghost->staging->data + 100, "staged", 6);
        assert_null(session_get_restored_ring((Session *)(uintptr_t)ghost));
}

static void test_back(void **state)
{
        gid_t groups[] = { 5, 6 };
        SessionConfig config = { .cred = { .uid = 77, .gid = 78, .pid = 79, .n_groups = 2, .groups = groups },
                                 .comm = "a name that is longer than it may be", .connected_ns = 99, .is_tool = true };
        SessionConfig again = config;
        uint32_t numbers[2];
        uint64_t token;
        Session *session, *ghost;
        Fixture f;
        int fd, process_fd = open_self();

        begin_test();
        begin(&f);
        session = open_session(&f, &config);
        session_keep_process(session, process_fd);
        close(process_fd);
        numbers[0] = session_number(session);
        token = session_token(session);
        assert_int_equal(pwrite(session_staging_fd(session), "staged", 6, 100), 6);
        session = open_session(&f, &config);
        numbers[1] = session_number(session);
        leave(&f);

        begin(&f);
        assert_int_equal(count_ghosts(&f), 2);
        assert_int_equal(fixture_fact(&f, "sessions.count"), 2);
        assert_int_equal(fixture_fact(&f, "restore.sessions"), 2);
        ghost = ghost_of(&f, numbers[0]);
        assert_is_as_it_was(ghost, token);
        fd = session_take_process(ghost);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(session_take_process(ghost), -1);
        assert_int_equal(session_take_process(ghost_of(&f, numbers[1])), -1);

        /* Another number than any there was. */
        session = open_session(&f, &config);
        assert_true(session_number(session) > numbers[1] + UINT16_MAX);
        assert_false(session_is_ghost(session));
        close_tracked(session);

        /* Its client is there again. */
        again.cred.pid = 80;
        again.cred.n_groups = 1;
        again.comm = "again";
        assert_int_equal(session_resume(track(ghost), &again), 0);
        assert_false(session_is_ghost(ghost));
        assert_int_equal(count_ghosts(&f), 1);
        assert_true(session_token(ghost) == token);
        assert_int_equal(session_number(ghost), numbers[0]);
        assert_int_equal(session_cred(ghost)->pid, 80);
        assert_int_equal(session_cred(ghost)->n_groups, 1);
        assert_string_equal(session_comm(ghost), "again");

        /* And once more, in the middle of all that. */
        leave(&f);
        begin(&f);
        assert_int_equal(count_ghosts(&f), 2);
        assert_true(session_token(ghost_of(&f, numbers[0])) == token);
        session_close(ghost_of(&f, numbers[0]));
        session_close(ghost_of(&f, numbers[1]));
        assert_int_equal(count_ghosts(&f), 0);
        finish(&f);
}

/* What a ghost holds is held: until it ends. */
static void test_pins_hold(void **state)
{
        Fixture f;
        Client c, other;
        Lookup found;
        uint32_t number;
        StoreHolder holders[4];
        size_t n_holders;
        char *detail = NULL;
        ProtoItem item;
        int index_fd, pins_fd;
        ProtoNamespace ns;
        struct stat before, after;

        begin_test();
        begin(&f);
        open_client(&f, &c);
        number = session_number(c.session);
        assert_int_equal(client_put_text(&c, "held", "x", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "other", "y", 0), STATUS_OK);
        assert_int_equal(client_look(&c, "held", &found), LOOKUP_FOUND);
        client_pin(&c, found.slot, 2);
        assert_int_equal(store_namespace_open(f.store, c.session, "default", &ns, &index_fd, &pins_fd, &detail),
                         STATUS_OK);
        assert_int_equal(fstat(pins_fd, &before), 0);
        leave(&f);

        begin(&f);
        open_client(&f, &other);
        item = (ProtoItem){ .key = key_of("held") };
        assert_int_equal(store_holders(f.store, other.session, other.namespace_id, &item, holders, 4, &n_holders,
                                       &detail), STATUS_OK);
        assert_int_equal(n_holders, 1);
        assert_int_equal(holders[0].n_pins, 2);
        assert_string_equal(session_comm(holders[0].session), "test");
        assert_int_equal(session_cred(holders[0].session)->pid, getpid());
        assert_int_equal(client_delete(&other, "held", 0), STATUS_OK);
        assert_int_equal(client_delete(&other, "other", 0), STATUS_OK);
        store_sweep_held(f.store);
        assert_int_equal(fixture_fact(&f, "held.count"), 1);
        leave(&f);

        /* Also what was deleted while it was one. */
        begin(&f);
        assert_int_equal(fixture_fact(&f, "held.count"), 1);
        assert_int_equal(store_namespace_open(f.store, ghost_of(&f, number), "default", &ns, &index_fd, &pins_fd,
                                              &detail), STATUS_OK);
        assert_int_equal(fstat(pins_fd, &after), 0);
        assert_true(after.st_ino == before.st_ino); /* the very table that its client has */
        client_pin(&c, found.slot, -1);
        store_sweep_held(f.store);
        assert_int_equal(fixture_fact(&f, "held.count"), 1);
        session_close(ghost_of(&f, number));
        store_sweep_held(f.store);
        assert_int_equal(fixture_fact(&f, "held.count"), 0);
        space_unref(c.space);
        space_unref(other.space);
        finish(&f);
}

/* Has its client had the welcome, and is there anything that it would miss? Also of a ghost. */
static void test_arrived(void **state)
{
        for (unsigned i = 0; i < 2; i++) {
                uint64_t start = 5;
                uint32_t number;
                Lookup found;
                Session *ghost;
                Fixture f;
                Client c;
                Op op;

                begin_test();
                begin(&f);
                open_client(&f, &c);
                number = session_number(c.session);
                assert_false(session_has_arrived(c.session));
                assert_false(session_has_anything(c.session));
                assert_int_equal(client_put_text(&c, "there", "x", 0), STATUS_OK);
                assert_false(session_has_anything(c.session)); /* that is nobody's */
                assert_int_equal(client_create(&c, &op, "begun", 100000, 0), STATUS_OK);
                assert_true(session_has_anything(c.session));
                assert_int_equal(client_seal(&c, &op), STATUS_OK);
                op_clear(&op);
                assert_false(session_has_anything(c.session));
                if (i == 1) {
                        assert_int_equal(pwrite(session_staging_fd(c.session), &start, sizeof(start),
                                                4 * MIB + (off_t)offsetof(StagingEnd, start)), sizeof(start));
                        assert_int_equal(client_look(&c, "there", &found), LOOKUP_FOUND);
                        client_pin(&c, found.slot, 1);
                }
                assert_int_equal(session_has_arrived(c.session), i);
                assert_int_equal(session_has_anything(c.session), i);
                leave(&f);

                begin(&f);
                ghost = ghost_of(&f, number);
                assert_int_equal(session_has_arrived(ghost), i);
                assert_int_equal(session_has_anything(ghost), i);
                space_unref(c.space);
                finish(&f);
        }
}

static void test_watches_go_on(void **state)
{
        int watch_fd, again_fd, mine;
        char *detail = NULL;
        uint64_t n;
        Fixture f;
        Client c, writer;
        uint32_t number;

        begin_test();
        begin(&f);
        open_client(&f, &c);
        number = session_number(c.session);
        assert_int_equal(store_watch(f.store, c.session, c.namespace_id, &watch_fd, &detail), STATUS_OK);
        mine = fcntl(watch_fd, F_DUPFD_CLOEXEC, 3);
        leave(&f);

        begin(&f);
        (void)!read(mine, &n, sizeof(n));
        open_client(&f, &writer);
        assert_int_equal(client_put_text(&writer, "k", "x", 0), STATUS_OK);
        store_flush(f.store);
        assert_int_equal(read(mine, &n, sizeof(n)), sizeof(n));
        assert_int_equal(store_watch(f.store, ghost_of(&f, number), c.namespace_id, &again_fd, &detail), STATUS_OK);
        assert_int_equal(n_kept(KEPT_WATCH), 1);
        close(mine);
        space_unref(c.space);
        space_unref(writer.space);
        finish(&f);
}

/* With more groups than are kept: whether it may do something is not to be said before it is there. */
static void test_cut(void **state)
{
        gid_t groups[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };

        for (size_t n = 7; n <= 9; n++) {
                SessionConfig config = { .cred = { .uid = 77, .n_groups = n, .groups = groups }, .comm = "c" };
                uint32_t number;
                Session *session;
                Fixture f;

                begin_test();
                begin(&f);
                session = open_session(&f, &config);
                number = session_number(session);
                leave(&f);
                for (unsigned i = 0; i < 2; i++) {
                        begin(&f);
                        session = ghost_of(&f, number);
                        assert_true(session_is_cut(session) == (n > 8));
                        assert_int_equal(session_cred(session)->n_groups, MIN(n, 8));
                        if (i == 0)
                                leave(&f);
                }
                assert_int_equal(session_resume(track(session), &config), 0);
                assert_false(session_is_cut(session));
                assert_int_equal(session_cred(session)->n_groups, n);
                finish(&f);
        }
}

/* Ghosts are there already, whatever their uid may have now; but nobody else gets in. */
static void test_beyond_the_limit(void **state)
{
        SessionConfig config = { .cred = { .uid = 77 }, .comm = "c" };
        StoreConfig tight = fixture_config();
        char *detail = NULL;
        Session *session;
        Fixture f;

        begin_test();
        begin(&f);
        for (unsigned i = 0; i < 5; i++)
                session = open_session(&f, &config);
        leave(&f);
        tight.session_bytes_max = 100 * KIB;
        begin_with(&f, &tight);
        assert_int_equal(count_ghosts(&f), 5);
        assert_int_equal(session_new(f.store, &config, &session, &detail), STATUS_LIMIT);
        free(steal_ptr(&detail));
        store_tick(f.store);
        session = session_next_ghost(f.store, NULL);
        assert_int_equal(session_resume(track(session), &config), 0);
        while ((session = session_next_ghost(f.store, NULL)))
                session_close(session);
        assert_int_equal(session_new(f.store, &config, &session, &detail), STATUS_LIMIT);
        free(steal_ptr(&detail));
        close_tracked(sessions[0]);
        session = open_session(&f, &config);
        finish(&f);
}

/* --- what is broken ----------------------------------------------------------------------------------------------- */

/* A record of @kind, of a file that a test has made. */
static void keep_file(KeptKind kind, uint32_t owner, uint64_t id, int consume_fd)
{
        KeptRecord record = { .version = KEEPER_RECORD_VERSION, .kind = kind, .owner = owner, .id = id, .detail = 77 };
        struct stat st;

        assert_int_equal(fstat(consume_fd, &st), 0);
        record.inode = st.st_ino;
        record.size_bytes = (uint64_t)st.st_size;
        fake_keeper_add(keeper, &record, consume_fd);
        close(consume_fd);
}

static int make_memfd(uint64_t size_bytes, int seals)
{
        int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)size_bytes), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
        return fd;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Each alone is a ghost without a token at most, and what cannot be what it says is dropped. */
static void test_strange_parts(void **state)
{
        static const struct {
                KeptKind kind;
                uint64_t id, size_bytes;
                int seals;
                bool stays;          /* as long as the ghost does */
                bool is_resumable;
        } rows[] = {
                { KEPT_STAGING, 5, 64 * KIB, SEALS, true, true },
                { KEPT_STAGING, 0, 64 * KIB, SEALS, true, false },
                { KEPT_STAGING, 5, 64 * KIB, F_SEAL_GROW | F_SEAL_SEAL, false, false },
                { KEPT_STAGING, 5, 64 * KIB, F_SEAL_SHRINK | F_SEAL_SEAL, false, false },
                { KEPT_STAGING, 5, 64 * KIB, F_SEAL_SHRINK | F_SEAL_GROW, false, false },
                { KEPT_STAGING, 5, 0, SEALS, false, false },
                { KEPT_STAGING, 5, 100, SEALS, false, false },
                { KEPT_PROCESS, 0, 0, SEALS, true, false },
                { KEPT_RING, 0, RING_REGION_BYTES, SEALS, false, false }, /* without a bell, and without staging memory */
                { KEPT_RING, 0, RING_REGION_BYTES - 1, SEALS, false, false },
                { KEPT_RING, 0, RING_REGION_BYTES, F_SEAL_SHRINK | F_SEAL_GROW, false, false },
                { KEPT_BELL, 0, 0, SEALS, false, false },
                { KEPT_PINS, 4711, 64 * KIB, SEALS, false, false }, /* no such namespace */
                { KEPT_PINS, 1, 64 * KIB, SEALS, false, false },    /* not of its size */
                { KEPT_WATCH, 4711, 0, SEALS, false, false },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                Session *ghost;
                Fixture f;

                begin_test();
                keep_file(rows[i].kind, 9, rows[i].id, make_memfd(rows[i].size_bytes, rows[i].seals));
                begin(&f);
                assert_int_equal(n_kept(rows[i].kind), rows[i].stays);
                ghost = ghost_of(&f, 9);
                assert_int_equal(session_cred(ghost)->uid, 77);
                assert_true((session_token(ghost) != 0) == rows[i].is_resumable);
                store_tick(f.store);
                finish(&f);
        }
}

static void test_nobodys_records(void **state)
{
        Fixture f;

        begin_test();
        /* The same twice, and things that are no memory. */
        keep_file(KEPT_STAGING, 9, 5, make_memfd(64 * KIB, SEALS));
        keep_file(KEPT_STAGING, 9, 6, make_memfd(64 * KIB, SEALS));
        keep_file(KEPT_STAGING, 10, 5, open("/dev/null", O_RDWR | O_CLOEXEC));
        keep_file(KEPT_RING, 10, 5, open("/dev/null", O_RDWR | O_CLOEXEC));
        keep_file(KEPT_PINS, 10, 1, open("/dev/null", O_RDWR | O_CLOEXEC));
        begin(&f);
        assert_int_equal(count_ghosts(&f), 2);
        assert_int_equal(n_kept(KEPT_STAGING), 1);
        assert_int_equal(n_kept(KEPT_RING), 0);
        assert_int_equal(n_kept(KEPT_PINS), 0);
        assert_true(fixture_fact(&f, "restore.bad_descriptors") >= 3);
        finish(&f);
}

/* What a client has scribbled over its ring: it loses the way back, and nobody else anything. */
static void test_scribbled_rings(void **state)
{
        static const struct {
                uint64_t magic, version, head, tail, done;
                bool is_good;
                uint64_t expected;   /* head */
        } rows[] = {
                { RING_MAGIC, RING_VERSION, 0, 0, 0, true, 0 },
                { RING_MAGIC, RING_VERSION, 5, 9, 5, true, 5 },
                { RING_MAGIC, RING_VERSION, 5, 9, 7, true, 7 },
                { RING_MAGIC, RING_VERSION, 5, 9, 9, true, 9 },
                { RING_MAGIC, RING_VERSION, 5, 517, 5, true, 5 },
                { RING_MAGIC, RING_VERSION, UINT64_MAX - 3, 4, UINT64_MAX, true, UINT64_MAX },
                { RING_MAGIC, RING_VERSION, 5, 518, 5, false, 0 },
                { RING_MAGIC, RING_VERSION, 5, 4, 5, false, 0 },
                { RING_MAGIC, RING_VERSION, 5, UINT64_MAX, 5, false, 0 },
                { RING_MAGIC, RING_VERSION, 5, 9, 4, false, 0 },
                { RING_MAGIC, RING_VERSION, 5, 9, 10, false, 0 },
                { RING_MAGIC, RING_VERSION, 5, 9, UINT64_MAX, false, 0 },
                { RING_MAGIC + 1, RING_VERSION, 5, 9, 5, false, 0 },
                { RING_MAGIC, RING_VERSION + 1, 5, 9, 5, false, 0 },
                { 0, 0, 0, 0, 0, false, 0 },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                TestRing ring;
                Fixture f;
                Client c;
                uint32_t number;
                Session *ghost;
                SessionRing *restored;

                begin_test();
                begin(&f);
                open_client(&f, &c);
                number = session_number(c.session);
                add_ring(&c, &ring);
                ring.memory.header->magic = rows[i].magic;
                ring.memory.header->version = (uint32_t)rows[i].version;
                atomic_store(&ring.memory.header->head, rows[i].head);
                atomic_store(&ring.memory.header->tail, rows[i].tail);
                atomic_store(&ring.memory.header->carried_out, rows[i].done);
                leave(&f);
                begin(&f);
                ghost = ghost_of(&f, number);
                restored = session_get_restored_ring(ghost);
                assert_true((restored != NULL) == rows[i].is_good);
                assert_true((session_token(ghost) != 0) == rows[i].is_good);
                if (restored) {
                        assert_true(restored->head == rows[i].expected);
                        assert_true(restored->tail == rows[i].tail);
                        assert_true(restored->n_done == 0);
                }
                free_ring(&ring);
                space_unref(c.space);
                finish(&f);
        }
}

/* A ring that its client was never told of. */
static void test_half_a_ring(void **state)
{
        for (KeptKind kind = KEPT_RING; kind <= KEPT_BELL; kind++) {
                TestRing ring;
                Fixture f;
                Client c;
                Session *ghost;
                uint32_t number;

                begin_test();
                begin(&f);
                open_client(&f, &c);
                number = session_number(c.session);
                add_ring(&c, &ring);
                leave(&f);
                find_kept(kind, number, 0)->owner = number + 1000;
                begin(&f);
                ghost = ghost_of(&f, number);
                assert_null(session_get_restored_ring(ghost));
                assert_true(session_token(ghost) != 0);
                assert_int_equal(n_kept(KEPT_RING) + n_kept(KEPT_BELL), 0);
                assert_int_equal(count_ghosts(&f), 2);
                free_ring(&ring);
                space_unref(c.space);
                finish(&f);
        }
}

/* --- what restoring tells a session ------------------------------------------------------------------------------- */

static Session *make_ghost_with_ring(Fixture *f, uint64_t head, uint64_t tail, TestRing *ring, Client *c)
{
        uint32_t number;

        begin_test();
        begin(f);
        open_client(f, c);
        number = session_number(c->session);
        add_ring(c, ring);
        atomic_store(&ring->memory.header->head, head);
        atomic_store(&ring->memory.header->carried_out, head);
        atomic_store(&ring->memory.header->tail, tail);
        leave(f);
        begin(f);
        return ghost_of(f, number);
}

static void test_origins(void **state)
{
        static const struct {
                uint64_t head, tail, record, expected;
        } rows[] = {
                { 0, 4, 0, 1 },
                { 0, 4, 3, 4 },
                { 0, 4, 4, 0 },
                { 5, 9, 4, 0 },
                { 5, 5, 5, 0 },
                { 5, 5, 4, 0 },
                { 5, 517, 516, 517 },
                { 5, 517, 517, 0 },
                { UINT64_C(0x7ffffffe), UINT64_C(0x80000002), UINT64_C(0x80000001), UINT64_C(0x80000002) },
                { UINT64_C(0x17ffffffe), UINT64_C(0x180000002), UINT64_C(0x180000001), UINT64_C(0x180000002) },
                { UINT64_C(0x17ffffffe), UINT64_C(0x180000002), UINT64_C(0x17ffffffd), 0 },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                TestRing ring;
                Fixture f;
                Client c;
                Session *ghost = make_ghost_with_ring(&f, rows[i].head, rows[i].tail, &ring, &c);
                const SessionRing *restored = session_get_restored_ring(ghost);
                uint32_t number = session_number(ghost);

                store_note_origin(f.store, 0, 1, 1);
                store_note_origin(f.store, layout_origin_of_record(number + 1, rows[i].record), 1, 1);
                store_note_origin(f.store, layout_origin_of_message(number, rows[i].record, 0), 1, 1);
                assert_true(restored->n_done == 0);
                store_note_origin(f.store, layout_origin_of_record(number, rows[i].record), 7, 8);
                assert_true(restored->n_done == rows[i].expected);
                if (rows[i].expected) {
                        assert_int_equal(restored->done_slot, 7);
                        assert_int_equal(restored->done_generation, 8);
                }
                /* One before it changes nothing. */
                store_note_origin(f.store, layout_origin_of_record(number, rows[i].record - 1), 1, 1);
                assert_true(restored->n_done == rows[i].expected || rows[i].expected == 0);
                free_ring(&ring);
                space_unref(c.space);
                finish(&f);
        }
}

static void test_made(void **state)
{
        TestRing ring;
        Fixture f;
        Client c;
        Session *ghost = make_ghost_with_ring(&f, 0, 0, &ring, &c);
        const SessionRing *restored = session_get_restored_ring(ghost);

        assert_true(session_restore_made(ghost, 0, 1, 2, 3, 0));
        assert_null(restored->made);
        assert_false(session_restore_made(ghost, RING_MADE_MAX + 1, 1, 2, 3, 0));
        assert_false(session_restore_made(ghost, UINT32_MAX, 1, 2, 3, 0));
        assert_true(session_restore_made(ghost, RING_MADE_MAX, 1, 2, 3, 4));
        assert_true(session_restore_made(ghost, 1, 1, 5, 6, 0));
        assert_false(session_restore_made(ghost, 1, 1, 7, 8, 0));
        assert_int_equal(restored->made[0].slot, 5);
        assert_int_equal(restored->made[0].generation, 6);
        assert_int_equal(restored->made[RING_MADE_MAX - 1].region_id, 4);
        free_ring(&ring);
        space_unref(c.space);
        finish(&f);
}

static void test_many(void **state)
{
        enum { N = 1000 };
        SessionConfig config = { .cred = { .uid = 77 }, .comm = "c" };
        StoreConfig small = fixture_config();
        uint32_t first = 0;
        Session *session;
        Fixture f;

        small.staging_bytes = 64 * KIB;
        begin_test();
        begin_with(&f, &small);
        for (unsigned i = 0; i < N; i++) {
                session = open_session(&f, &config);
                if (i == 0)
                        first = session_number(session);
        }
        leave(&f);
        begin_with(&f, &small);
        assert_int_equal(count_ghosts(&f), N);
        for (uint32_t i = 0; i < N; i++)
                assert_int_equal(session_number(ghost_of(&f, first + i)), first + i);
        assert_null(store_find_session(f.store, first + N));
        finish(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_what_is_kept),      UNIT_TEST(test_without_a_keeper), UNIT_TEST(test_no_room),
                UNIT_TEST(test_back),              UNIT_TEST(test_pins_hold),        UNIT_TEST(test_watches_go_on),
                UNIT_TEST(test_cut),               UNIT_TEST(test_beyond_the_limit), UNIT_TEST(test_strange_parts),
                UNIT_TEST(test_nobodys_records),   UNIT_TEST(test_scribbled_rings),  UNIT_TEST(test_half_a_ring),
                UNIT_TEST(test_arrived),           UNIT_TEST(test_origins),           UNIT_TEST(test_made),             UNIT_TEST(test_many),
        };

        return cmocka_run_group_tests_name("session-kept", tests, NULL, NULL);
}
