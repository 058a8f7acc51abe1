/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A foliod that dies at each of the places daemon/store/fault.h knows, in the middle of what a client has asked for,
 * and is started again by its keeper. Once the client lives on: it is told the truth, which is mostly that all went
 * well. Once it dies too: then what it asked for is done or not done, and nothing in between. Each time everything else is as it was.
 *
 * The table is told, and every place in the sources has to be in it. Over 600 lines: the table, what each row asks for,
 * and what has to have come of it, are one thing.
 */
#include "tests/integration/baseline.h"
#include "tests/integration/program.h"

#include <ftw.h>
#include <sys/stat.h>

#include "base/macro.h"

enum {
        SMALL_BYTES = 1000,
        LARGE_BYTES = 3 << 20,
        CAPACITY_BYTES = 4 << 20,
        N_MANY = 400,
        SEED_OLD = 1,
        SEED_NEW = 2,
};

typedef enum Deed {
        DEED_PUT,
        DEED_PUT_RING,
        DEED_PUT_TRUSTED,
        DEED_REPLACE,
        DEED_REPLACE_RING,
        DEED_CREATE,
        DEED_STAGE,
        DEED_REPLACE_LARGE,
        DEED_DELETE,
        DEED_DELETE_RING,
        DEED_DELETE_LARGE,
        DEED_TRUNCATE,
        DEED_ADD,
        DEED_REMOVE,
        DEED_RESTORE,
        DEED_EVACUATE,
} Deed;

static const char *const deed_words[] = {
        "put",
        "put by ring",
        "put by lease",
        "replace",
        "replace by ring",
        "create and seal",
        "create and seal a small one",
        "replace a large one",
        "delete",
        "delete by ring",
        "delete a large one",
        "truncate",
        "add a namespace",
        "remove a namespace",
        "restore",
        "evacuate",
};

typedef struct Row {
        const char *point;
        Deed deed;
        bool may_be_unknown; /* the client may be told that nobody knows */
} Row;

#define PUBLISHED(deed)                                                                                                \
        { "publish.begun", deed }, { "publish.written", deed }, { "publish.named", deed },                             \
        {                                                                                                              \
                "publish.counted", deed                                                                                \
        }
#define RETIRED(deed)                                                                                                  \
        { "retire.begun", deed }, { "retire.retracted", deed }, { "retire.counted", deed },                            \
        {                                                                                                              \
                "forget.given", deed                                                                                   \
        }
#define BY_RING(deed)                                                                                                  \
        { "ring.done", deed }, { "ring.answered", deed },                                                              \
        {                                                                                                              \
                "ring.counted", deed                                                                                   \
        }

static const Row rows[] = {
        { "keep.before", DEED_PUT },
        { "keep.after", DEED_PUT },
        { "put.copied", DEED_PUT },
        PUBLISHED(DEED_PUT),
        { "keep.before", DEED_PUT_TRUSTED },
        { "keep.after", DEED_PUT_TRUSTED },
        PUBLISHED(DEED_PUT_TRUSTED),
        BY_RING(DEED_PUT_TRUSTED),
        BY_RING(DEED_PUT_RING),
        PUBLISHED(DEED_PUT_RING),
        PUBLISHED(DEED_REPLACE),
        { "forget.given", DEED_REPLACE },
        BY_RING(DEED_REPLACE_RING),
        { "create.made", DEED_CREATE },
        { "keep.before", DEED_CREATE },
        { "keep.after", DEED_CREATE },
        { "create.kept", DEED_CREATE },
        { "writing.written", DEED_CREATE },
        { "seal.kernel", DEED_CREATE },
        PUBLISHED(DEED_CREATE),
        { "writing.written", DEED_STAGE },
        { "seal.copied", DEED_STAGE },
        PUBLISHED(DEED_STAGE),
        { "seal.kernel", DEED_REPLACE_LARGE },
        PUBLISHED(DEED_REPLACE_LARGE),
        { "forget.given", DEED_REPLACE_LARGE },
        RETIRED(DEED_DELETE),
        RETIRED(DEED_DELETE_RING),
        BY_RING(DEED_DELETE_RING),
        RETIRED(DEED_DELETE_LARGE),
        { "truncate.begun", DEED_TRUNCATE },
        { "truncate.pages", DEED_TRUNCATE },
        { "truncate.written", DEED_TRUNCATE },
        { "namespace.made", DEED_ADD, true },
        { "namespace.kept", DEED_ADD, true },
        { "namespace.removing", DEED_REMOVE, true },
        { "namespace.removed", DEED_REMOVE, true },
        { "restore.begin", DEED_RESTORE },
        { "restore.namespace", DEED_RESTORE },
        { "restore.namespace:2", DEED_RESTORE },
        { "keep.before", DEED_RESTORE },
        { "keep.after", DEED_RESTORE },
        { "restore.filled", DEED_RESTORE },
        { "restore.kept", DEED_RESTORE },
        { "restore.complete", DEED_RESTORE },
        { "restore.dropped", DEED_RESTORE },
        { "restore.dropped:2", DEED_RESTORE },
        { "restore.end", DEED_RESTORE },
        { "evacuate.copied", DEED_EVACUATE },
        { "evacuate.moved", DEED_EVACUATE },
        { "evacuate.moved:7", DEED_EVACUATE },
};

static char fault_directory[64];

static void fault_path(char path[128], const char *name)
{
        (void)snprintf(path, 128, "%s/%s", fault_directory, name);
}

/* The next process that passes there dies, and none after it. */
static void arm(const char *point)
{
        char path[128], draft[128];
        int fd;

        fault_path(path, "fault");
        fault_path(draft, "draft");
        fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, point, strlen(point)), strlen(point));
        close(fd);
        assert_int_equal(rename(draft, path), 0);
}

static bool is_armed(void)
{
        char path[128];

        fault_path(path, "fault");
        return access(path, F_OK) == 0;
}

/* --- what is asked for ----------------------------------------------------------------------------------------- */

static const uint8_t *bytes_of(uint64_t seed, size_t n_bytes)
{
        static uint8_t bytes[LARGE_BYTES];

        harness_fill(bytes, n_bytes, seed);
        return bytes;
}

static int create(struct folio_client *client, const char *name, size_t n_bytes, uint64_t seed, uint32_t flags)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        struct folio_object *object;
        int r;

        if (flags & FOLIO_MUTABLE)
                options.capacity_bytes = CAPACITY_BYTES;
        r = folio_create(client, name, n_bytes, &options, &object);
        if (r < 0)
                return r;
        r = folio_object_write(object, 0, bytes_of(seed, n_bytes), n_bytes);
        if (r == 0 && !(flags & FOLIO_MUTABLE))
                r = folio_object_seal(object);
        (void)folio_object_release(object);
        return r;
}

static int put(struct folio_client *client, const char *name, uint32_t flags)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        int r = folio_put(client, name, bytes_of(SEED_NEW, SMALL_BYTES), SMALL_BYTES, &options);

        return r < 0 ? r : folio_flush(client);
}

static int delete (struct folio_client *client, const char *name)
{
        int r = folio_delete(client, name, 0);

        return r < 0 ? r : folio_flush(client);
}

static int do_deed(struct folio_client *client, Deed deed)
{
        struct folio_namespace added = { .struct_bytes = sizeof(added), .name = "added" };

        switch (deed) {
        case DEED_PUT:
        case DEED_PUT_RING:
                return put(client, "new", 0);
        case DEED_PUT_TRUSTED:
                return put(client, "trusted:new", 0);
        case DEED_REPLACE:
        case DEED_REPLACE_RING:
                return put(client, "small", FOLIO_REPLACE);
        case DEED_CREATE:
                return create(client, "new", LARGE_BYTES, SEED_NEW, 0);
        case DEED_STAGE:
                return create(client, "new", SMALL_BYTES, SEED_NEW, 0);
        case DEED_REPLACE_LARGE:
                return create(client, "large", LARGE_BYTES, SEED_NEW, FOLIO_REPLACE);
        case DEED_DELETE:
        case DEED_DELETE_RING:
                return delete (client, "small");
        case DEED_DELETE_LARGE:
                return delete (client, "large");
        case DEED_TRUNCATE:
                return folio_truncate(client, "mutable", 1 << 20);
        case DEED_ADD:
                return folio_namespace_add(client, &added);
        case DEED_REMOVE:
                return folio_namespace_remove(client, "old");
        case DEED_RESTORE:
        case DEED_EVACUATE:
        default:
                return FOLIO_E_INVALID;
        }
}

static bool is_by_ring(Deed deed)
{
        return deed == DEED_PUT_RING || deed == DEED_PUT_TRUSTED || deed == DEED_REPLACE_RING ||
               deed == DEED_DELETE_RING;
}

/* --- what has come of it --------------------------------------------------------------------------------------- */

typedef enum State { STATE_ABSENT, STATE_OLD, STATE_NEW } State;

static const char *const state_words[] = { "absent", "old", "new" };

static State look(struct folio_client *client, const char *name, size_t n_bytes)
{
        struct folio_object *object;
        State state = STATE_OLD;
        int r = folio_get(client, name, 0, 0, &object);

        if (r == FOLIO_E_NOT_FOUND || r == FOLIO_E_DELETED || r == FOLIO_E_WRITER_DIED)
                return STATE_ABSENT;
        ASSERT_OK(r);
        assert_int_equal(folio_object_size(object), n_bytes);
        if (harness_is_filled(folio_object_data(object), n_bytes, SEED_NEW, 0))
                state = STATE_NEW;
        else if (!harness_is_filled(folio_object_data(object), n_bytes, SEED_OLD, 0))
                fail_msg("%s is neither old nor new", name);
        ASSERT_OK(folio_object_release(object));
        return state;
}

static bool has_namespace(struct folio_client *client, const char *name)
{
        struct folio_namespace entries[8] = { { .struct_bytes = sizeof(entries[0]) } };
        int n = folio_namespace_list(client, "", entries, 8);

        assert_true(n > 0 && n < 8);
        for (int i = 0; i < n; i++)
                if (strcmp(entries[i].name, name) == 0)
                        return true;
        return false;
}

static void look_at_many(struct folio_client *client)
{
        char name[32];

        for (unsigned i = 0; i < N_MANY; i++) {
                (void)snprintf(name, sizeof(name), "many-%u", i);
                assert_int_equal(look(client, name, 4000), i % 10 ? STATE_ABSENT : STATE_OLD);
        }
}

static State look_at_size(struct folio_client *client)
{
        struct folio_object *object;
        uint64_t n_bytes;

        ASSERT_OK(folio_get(client, "mutable", 0, 0, &object));
        n_bytes = folio_object_size(object);
        assert_true(n_bytes == LARGE_BYTES || n_bytes == 1 << 20);
        assert_true(harness_is_filled(folio_object_data(object), (size_t)n_bytes, SEED_OLD, 0));
        ASSERT_OK(folio_object_release(object));
        return n_bytes == LARGE_BYTES ? STATE_OLD : STATE_NEW;
}

/* Everything is looked at; what the deed was not about is as it was. Which of the two is it: OLD or NEW? */
static State look_at_all(struct folio_client *client, Deed deed)
{
        State small = look(client, "small", SMALL_BYTES), large = look(client, "large", LARGE_BYTES),
              size = look_at_size(client);
        State new = look(client, "new", deed == DEED_CREATE ? LARGE_BYTES : SMALL_BYTES);
        State trusted = look(client, "trusted:new", SMALL_BYTES);
        bool is_added = has_namespace(client, "added"), is_old = has_namespace(client, "old");
        bool is_small =
                deed == DEED_REPLACE || deed == DEED_REPLACE_RING || deed == DEED_DELETE || deed == DEED_DELETE_RING;
        bool is_large = deed == DEED_REPLACE_LARGE || deed == DEED_DELETE_LARGE;
        State wish = deed == DEED_REPLACE || deed == DEED_REPLACE_RING || deed == DEED_REPLACE_LARGE ? STATE_NEW
                                                                                                     : STATE_ABSENT;
        bool is_done;

        assert_true(look(client, "kept", SMALL_BYTES) == STATE_OLD &&
                    look(client, "trusted:kept", SMALL_BYTES) == STATE_OLD);
        assert_true(small == STATE_OLD || (is_small && small == wish));
        assert_true(large == STATE_OLD || (is_large && large == wish));
        assert_true(size == STATE_OLD || deed == DEED_TRUNCATE);
        assert_true(new == STATE_ABSENT || (new == STATE_NEW && (deed == DEED_PUT || deed == DEED_PUT_RING ||
                                                                 deed == DEED_CREATE || deed == DEED_STAGE)));
        assert_true(trusted == STATE_ABSENT || (trusted == STATE_NEW && deed == DEED_PUT_TRUSTED));
        assert_true(!is_added || deed == DEED_ADD);
        assert_true(is_old || deed == DEED_REMOVE);
        if (deed == DEED_EVACUATE)
                look_at_many(client);
        is_done = small != STATE_OLD || large != STATE_OLD || size == STATE_NEW || new == STATE_NEW ||
                  trusted == STATE_NEW || is_added || !is_old;
        return is_done ? STATE_NEW : STATE_OLD;
}

/* --- a row ----------------------------------------------------------------------------------------------------- */

/* In a process that ends: what was kept for a client is dropped some time after it has hung up. */
static void fill_store(Child *child)
{
        Deed deed = ((const Row *)child->userdata)->deed;
        struct folio_client *client = child_connect(child);
        struct folio_namespace old = { .struct_bytes = sizeof(old), .name = "old" };
        char name[32];

        CHECK_OK(create(client, "large", LARGE_BYTES, SEED_OLD, 0));
        CHECK_OK(create(client, "mutable", LARGE_BYTES, SEED_OLD, FOLIO_MUTABLE));
        CHECK_OK(folio_namespace_add(client, &old));
        for (unsigned i = 0; deed == DEED_EVACUATE && i < N_MANY; i++) {
                (void)snprintf(name, sizeof(name), "many-%u", i);
                CHECK_OK(folio_put(client, name, bytes_of(SEED_OLD, 4000), 4000, NULL));
        }
        CHECK_OK(folio_put(client, "kept", bytes_of(SEED_OLD, SMALL_BYTES), SMALL_BYTES, NULL));
        CHECK_OK(folio_put(client, "small", bytes_of(SEED_OLD, SMALL_BYTES), SMALL_BYTES, NULL));
        CHECK_OK(folio_put(client, "trusted:kept", bytes_of(SEED_OLD, SMALL_BYTES), SMALL_BYTES, NULL));
        for (unsigned i = 0; deed == DEED_EVACUATE && i < N_MANY; i++) {
                (void)snprintf(name, sizeof(name), "many-%u", i);
                if (i % 10)
                        CHECK_OK(folio_delete(client, name, 0));
        }
        folio_client_unref(client);
}

static void prepare(const Foliod *foliod, const Row *row)
{
        child_finish(child_start(foliod, fill_store, (void *)(uintptr_t)row));
        /* So a new process has to make its first region for small ones, and has one to evacuate. */
        baseline_kill(foliod);
}

static void ask(Child *child)
{
        const Row *row = child->userdata;
        struct folio_client *client = child_connect_with(child, is_by_ring(row->deed) ? 0 : FOLIO_OPEN_VISIBLE);
        int r;

        /* It has a ring, and a lease, but where it is the lease that must be kept. */
        for (unsigned i = 0; is_by_ring(row->deed) && strncmp(row->point, "keep.", 5) != 0 && i < 4; i++) {
                const char *name = i % 2 && row->deed == DEED_PUT_TRUSTED ? "trusted:warm" : "warm";

                CHECK_OK(folio_put(client, name, "x", 1, NULL));
                CHECK_OK(folio_flush(client));
                CHECK_OK(folio_delete(client, name, 0));
                CHECK_OK(folio_flush(client));
        }
        child_say(child, 1);
        (void)child_hear(child);
        r = do_deed(client, row->deed);
        child_say(child, (uint64_t)(int64_t)r);
        folio_client_unref(client);
}

/* By the client; @is_killed: it dies when foliod does. Return: its answer. */
static int let_ask(const Foliod *foliod, const Row *row, bool is_killed)
{
        Child *child = child_start(foliod, ask, (void *)(uintptr_t)row);
        unsigned rounds = 0;
        int r;

        assert_int_equal(child_hear(child), 1);
        arm(row->point);
        child_say(child, 1);
        if (!is_killed) {
                r = (int)(int64_t)child_hear(child);
                child_finish(child);
                if (is_armed())
                        fail_msg("%s was not passed: %s", row->point, deed_words[row->deed]);
                return r;
        }
        /* Sooner than the next process can have been started. */
        while (is_armed() && rounds++ < 200000)
                (void)usleep(100);
        child_kill(child);
        if (is_armed())
                fail_msg("%s was not passed: %s", row->point, deed_words[row->deed]);
        return FOLIO_E_DAEMON_GONE;
}

static void check_row(const Foliod *foliod, const Row *row, bool is_killed, int r)
{
        struct folio_client *client = foliod_connect(foliod);
        State state, again;

        assert_int_equal(foliod_fact(client, "restore.dropped"), 0);
        assert_int_equal(foliod_fact(client, "restore.bad_descriptors"), 0);
        AWAIT(foliod_fact(client, "sessions.ghosts") == 0);
        AWAIT(foliod_fact(client, "unsealed.count") == 0);
        state = look_at_all(client, row->deed);
        if (r == 0 && row->deed < DEED_RESTORE && state != STATE_NEW)
                fail_msg("%s: %s was acknowledged, and is not there", row->point, deed_words[row->deed]);
        if (r != 0 && !is_killed && !row->may_be_unknown)
                fail_msg("%s: %s: %s", row->point, deed_words[row->deed], folio_strerror(r));
        /* It is a foliod like any other, and so is the next. */
        ASSERT_OK(folio_put(client, "afterwards", "bytes", 5, NULL));
        ASSERT_OK(folio_delete(client, "afterwards", 0));
        baseline_kill(foliod);
        again = look_at_all(client, row->deed);
        if (again != state)
                fail_msg("%s: %s: it was %s, and is %s", row->point, deed_words[row->deed], state_words[state],
                         state_words[again]);
        assert_int_equal(foliod_fact(client, "restore.dropped"), 0);
        folio_client_unref(client);
        print_message("# %-20s %-28s %-22s %s\n", row->point, deed_words[row->deed],
                      row->deed >= DEED_RESTORE ? ""
                      : is_killed               ? "client killed"
                      : r == 0                  ? "told: done"
                                                : folio_strerror(r),
                      row->deed >= DEED_RESTORE ? "all there"
                      : state == STATE_NEW      ? "done"
                                                : "not done");
}

static void run_row(const Row *row, bool is_killed)
{
        Foliod *foliod =
                foliod_start_kept("--budget", "256M", "--objects-max", "4096", "--pool", "0", FOLIOD_TRUSTED, NULL);
        pid_t pid;
        int r = 0;

        prepare(foliod, row);
        pid = foliod_serving_pid(foliod);
        if (row->deed < DEED_RESTORE) {
                r = let_ask(foliod, row, is_killed);
        } else {
                arm(row->point);
                if (row->deed == DEED_RESTORE)
                        assert_int_equal(kill(pid, SIGKILL), 0);
                AWAIT(!is_armed());
        }
        AWAIT(foliod_serving_pid(foliod) != pid);
        check_row(foliod, row, is_killed, r);
        foliod_stop(foliod);
}

static void with_faults(void (*run)(void))
{
        const char *usual = getenv("FOLIOD"), *faulty = getenv("FOLIOD_FAULTS");
        char path[128], *before = usual ? strdup(usual) : NULL;

        assert_non_null(faulty);
        program_make_directory(fault_directory);
        fault_path(path, "fault");
        (void)setenv("FOLIO_FAULT_FILE", path, 1);
        (void)setenv("FOLIOD", faulty, 1);
        run();
        (void)unsetenv("FOLIO_FAULT_FILE");
        if (before)
                (void)setenv("FOLIOD", before, 1);
        free(before);
        program_remove_directory(fault_directory);
}

static void run_all(void)
{
        /* Slow builds take each third; the client is killed too in each sixth, unless there is time (FOLIO_TEST_LONG). */
        bool is_long = getenv("FOLIO_TEST_LONG");
        size_t step = getenv("FOLIO_TEST_SLOW") ? 3 : 1;

        const char *only = getenv("FOLIO_TEST_ONLY"); /* a place */

        for (size_t i = 0; i < ARRAY_SIZE(rows); i += step) {
                if (only && strcmp(only, rows[i].point) != 0)
                        continue;
                run_row(&rows[i], false);
                if (rows[i].deed < DEED_RESTORE && (is_long || i % 6 == 0))
                        run_row(&rows[i], true);
        }
}

static void test_each_place(void **state)
{
        (void)state;
        with_faults(run_all);
}

/* --- where there is hardly any room ---------------------------------------------------------------------------- */

enum { N_SPACES = 12, N_DEATHS = 4 };

/* Everything in it, in a keeper whose places are all taken: deaths one after the other leave room for the next start. */
static void run_crowded(const char *point)
{
        Foliod *foliod = foliod_start_kept("--budget", "256M", "--objects-max", "4096", "--pool", "0", "--keeper-slots",
                                           "8", NULL);
        struct folio_client *client = foliod_connect(foliod);
        char name[32];
        pid_t pid;

        for (unsigned i = 0; i < N_SPACES; i++) {
                struct folio_namespace added = { .struct_bytes = sizeof(added) };

                (void)snprintf(added.name, sizeof(added.name), "space-%u", i);
                (void)snprintf(name, sizeof(name), "space-%u:small", i);
                ASSERT_OK(folio_namespace_add(client, &added));
                ASSERT_OK(folio_put(client, name, bytes_of(SEED_OLD, SMALL_BYTES), SMALL_BYTES, NULL));
        }
        ASSERT_OK(folio_flush(client));
        assert_int_equal(foliod_fact(client, "keeper.volatile"), 0);
        for (unsigned i = 0; i < N_DEATHS; i++) {
                pid = foliod_serving_pid(foliod);
                arm(point);
                if (i == 0)
                        assert_int_equal(kill(pid, SIGKILL), 0);
                AWAIT(!is_armed());
        }
        folio_client_unref(client);
        client = foliod_connect(foliod);
        for (unsigned i = 0; i < N_SPACES; i++) {
                (void)snprintf(name, sizeof(name), "space-%u:small", i);
                assert_int_equal(look(client, name, SMALL_BYTES), STATE_OLD);
        }
        assert_int_equal(foliod_fact(client, "restore.dropped"), 0);
        ASSERT_OK(folio_put(client, "space-0:afterwards", "bytes", 5, NULL));
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void run_all_crowded(void)
{
        size_t step = getenv("FOLIO_TEST_SLOW") ? 3 : 1;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i += step)
                if (rows[i].deed == DEED_RESTORE)
                        run_crowded(rows[i].point);
}

static void test_no_room(void **state)
{
        (void)state;
        with_faults(run_all_crowded);
}

/* --- the table is whole ---------------------------------------------------------------------------------------- */

static unsigned n_places;

static bool is_in_table(const char *point, size_t n_point)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                if (strncmp(rows[i].point, point, n_point) == 0 &&
                    (rows[i].point[n_point] == '\0' || rows[i].point[n_point] == ':'))
                        return true;
        return false;
}

static int look_at_source(const char *path, const struct stat *st, int kind, struct FTW *place)
{
        static const char mark[] = "FAULT(\"";
        FILE *file = kind == FTW_F && strcmp(path + strlen(path) - 2, ".c") == 0 ? fopen(path, "re") : NULL;
        char line[512];

        (void)st;
        (void)place;
        while (file && fgets(line, sizeof(line), file)) {
                const char *found = strstr(line, mark), *end = found ? strchr(found + strlen(mark), '"') : NULL;

                if (!end)
                        continue;
                found += strlen(mark);
                n_places++;
                if (!is_in_table(found, (size_t)(end - found)))
                        fail_msg("%s: %.*s is in no row of the table", path, (int)(end - found), found);
        }
        if (file)
                fclose(file);
        return 0;
}

static void test_table_is_whole(void **state)
{
        const char *source = getenv("FOLIO_SOURCE");
        char path[512];

        (void)state;
        if (!source)
                skip();
        (void)snprintf(path, sizeof(path), "%s/daemon", source);
        assert_int_equal(nftw(path, look_at_source, 16, FTW_PHYS), 0);
        assert_true(n_places > 20);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_table_is_whole),
                INTEGRATION_TEST(test_each_place),
                INTEGRATION_TEST(test_no_room),
        };

        return cmocka_run_group_tests_name("fault-points", tests, NULL, NULL);
}
