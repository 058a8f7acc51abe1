/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases B02 and F04: memory that takes long to get and long to give back, and a loop that goes on answering meanwhile.
 * No time is judged: answers are counted that came while the work was under way, and system calls by who made them.
 */
#include "tests/integration/alive.h"
#include "tests/integration/program.h"
#include "tests/integration/trace.h"

#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)

enum {
        ANSWERS_MIN = 3, /* a loop that does the work itself gives at most one */
        PINGS_MAX = 2000000,
        FACTS_MAX = 128,
};

static uint64_t large_bytes(void)
{
        return getenv("FOLIO_TEST_SLOW") ? 256 * MIB : 1024 * MIB;
}

/* One question, one answer: the facts asked for, in order. */
static void ask(struct folio_client *client, const char *const *names, uint64_t *ret, size_t n)
{
        static struct folio_status facts[FACTS_MAX];
        int n_facts;

        memset(facts, 0, sizeof(facts));
        facts[0].struct_bytes = sizeof(facts[0]);
        n_facts = folio_status_get(client, facts, FACTS_MAX);
        assert_true(n_facts > 0 && n_facts <= FACTS_MAX);
        for (size_t i = 0; i < n; i++) {
                int k = 0;

                while (k < n_facts && strcmp(facts[k].name, names[i]) != 0)
                        k++;
                assert_true(k < n_facts);
                ret[i] = facts[k].value;
        }
}

static void print_turns(struct folio_client *client, const char *what, uint64_t n_answers)
{
        print_message("# %s: answered %" PRIu64 " times meanwhile; longest turn so far %" PRIu64 " us, %" PRIu64
                      " over 1 ms\n", what, n_answers, foliod_fact(client, "loop.turn_us_max"),
                      foliod_fact(client, "loop.turns_over_1ms"));
}

/* --- B02: getting it ---------------------------------------------------------------------------------------------- */

typedef struct Creation {
        atomic_int stage;            /* 1: it has been asked for; 2: it is answered */
        uint64_t n_bytes;
} Creation;

static void create_large(Child *child)
{
        struct folio_client *client = child_connect(child);
        Creation *creation = child->userdata;
        struct folio_object *object;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        CHECK(folio_exists(client, "large") == 0);
        CHECK(child_hear(child) == 1);
        atomic_store(&creation->stage, 1);
        CHECK_OK(folio_create(client, "large", creation->n_bytes, NULL, &object));
        atomic_store(&creation->stage, 2);
        CHECK_OK(folio_object_stat(object, &stat));
        CHECK(stat.allocated_bytes >= creation->n_bytes);
        CHECK_OK(folio_object_write(object, 0, "first", 5));
        CHECK_OK(folio_object_write(object, creation->n_bytes - 4, "last", 4));
        child_say(child, stat.huge_bytes);
        CHECK(child_hear(child) == 2);
        CHECK_OK(folio_object_abort(object));
        folio_client_unref(client);
}

static Creation *creation_new(void)
{
        Creation *creation = mmap(NULL, sizeof(*creation), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_true(creation != MAP_FAILED);
        creation->n_bytes = large_bytes();
        return creation;
}

/* Pings while a child creates. How many of them were asked and answered between its question and its answer. */
static uint64_t ping_while_creating(struct folio_client *client, Creation *creation, Child *child)
{
        uint64_t n_answers = 0, used;

        atomic_store(&creation->stage, 0);
        child_say(child, 1);
        for (unsigned i = 0; i < PINGS_MAX && atomic_load(&creation->stage) < 2; i++) {
                bool is_asked = atomic_load(&creation->stage) == 1;

                ask(client, (const char *const[]){ "memory.used_bytes" }, &used, 1);
                n_answers += is_asked && atomic_load(&creation->stage) == 1;
        }
        assert_int_equal(atomic_load(&creation->stage), 2);
        return n_answers;
}

/* Where huge pages come: many of them, and not by the loop. */
static void test_b02_others_are_answered_during_a_create(void **state)
{
        Foliod *foliod = foliod_start("--budget", "1200M", "--huge", "always", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Creation *creation = creation_new();
        Child *child = child_start(foliod, create_large, creation);
        uint64_t n_answers = ping_while_creating(client, creation, child), n_huge = child_hear(child);

        (void)state;
        print_message("# %" PRIu64 " MiB of %" PRIu64 " are huge\n", n_huge / MIB, creation->n_bytes / MIB);
        print_turns(client, "create", n_answers);
        assert_true(n_answers >= ANSWERS_MIN);
        child_say(child, 2);
        child_finish(child);
        munmap(creation, sizeof(*creation));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Who asked for it dies in the middle: it is not gone on with, and the memory is back. */
static void test_b02_a_create_is_given_up(void **state)
{
        static const char *const names[] = { "memory.used_bytes", "unsealed.count" };
        Foliod *foliod = foliod_start("--budget", "1200M", "--huge", "always", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Creation *creation = creation_new();
        Child *child = child_start(foliod, create_large, creation);
        uint64_t facts[2] = { 0 };

        (void)state;
        child_say(child, 1);
        for (unsigned i = 0; i < PINGS_MAX && facts[0] < before.used_bytes + creation->n_bytes; i++)
                ask(client, names, facts, 2);
        child_kill(child);
        print_message("# killed %s its create was answered\n", atomic_load(&creation->stage) < 2 ? "before" : "after");
        for (unsigned i = 0; i < PINGS_MAX && facts[0] >= before.used_bytes + creation->n_bytes; i++)
                ask(client, names, facts, 2);
        assert_true(facts[0] < before.used_bytes + creation->n_bytes);
        munmap(creation, sizeof(*creation));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Where memory is in pieces: some huge pages are tried for, at a price, and the rest is made of small ones at once. */
static void test_b02_goes_on_with_small_pages(void **state)
{
        static const char *const names[] = { "collapse.failed", "collapse.done" };
        const char *shim = getenv("FOLIO_SHIM_COLLAPSE");
        char world[128], link_path[64];
        uint64_t n_answers, facts[2], n_huge;
        struct folio_client *client;
        Creation *creation;
        Foliod *foliod;
        Child *child;
        Alive before;

        (void)state;
        assert_non_null(shim);
        /* Through a link: the path of a checkout may hold a space, and LD_PRELOAD cannot. */
        (void)snprintf(link_path, sizeof(link_path), "/tmp/folio-shim-%d.so", (int)getpid());
        assert_int_equal(symlink(shim, link_path), 0);
        (void)snprintf(world, sizeof(world), "preload=%s", link_path);
        program_set_world(world);
        foliod = foliod_start("--budget", "1200M", "--huge", "always", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        assert_int_equal(unlink(link_path), 0);
        before = alive_begin(foliod);
        client = foliod_connect(foliod);
        ask(client, names, facts, 2);
        assert_int_equal(facts[1], 0);
        creation = creation_new();
        child = child_start(foliod, create_large, creation);
        n_answers = ping_while_creating(client, creation, child);
        n_huge = child_hear(child);
        {
                uint64_t after[2];

                ask(client, names, after, 2);
                print_message("# of %" PRIu64 " pieces %" PRIu64 " were tried\n", creation->n_bytes / (2 * MIB),
                              after[0] - facts[0]);
                assert_int_equal(after[1], 0);
                /* Tried, and given up long before the last one. */
                assert_true(after[0] > facts[0]);
                assert_true(after[0] - facts[0] <= creation->n_bytes / (2 * MIB) / 2);
        }
        assert_int_equal(n_huge, 0);
        print_turns(client, "create in small pages", n_answers);
        assert_true(n_answers >= ANSWERS_MIN);
        child_say(child, 2);
        child_finish(child);
        munmap(creation, sizeof(*creation));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- F04: giving it back ------------------------------------------------------------------------------------------ */

/* Of small pages, which take the longest. */
static void put_large(struct folio_client *client, const char *name, uint64_t n_bytes)
{
        struct folio_object *object;

        ASSERT_OK(folio_create(client, name, n_bytes, NULL, &object));
        ASSERT_OK(folio_object_write(object, n_bytes - 4, "last", 4));
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
}

/* foliod's descriptors of files with so much memory; how many. An index is as long, and nearly empty. */
static unsigned find_large_fds(const Foliod *foliod, uint64_t n_bytes, int *ret_fds, unsigned n_max)
{
        char path[64];
        unsigned n = 0;

        for (int fd = 0; fd < 256 && n < n_max; fd++) {
                struct stat file;

                (void)snprintf(path, sizeof(path), "/proc/%s/fd/%d", foliod->pid_text, fd);
                if (stat(path, &file) == 0 && S_ISREG(file.st_mode) && (uint64_t)file.st_blocks * 512 >= n_bytes)
                        ret_fds[n++] = fd;
        }
        return n;
}

/* How many answers came while the memory was being given back; until it is gone. */
static uint64_t ping_until_gone(struct folio_client *client)
{
        static const char *const names[] = { "memory.freeing_bytes", "memory.held_bytes" };
        uint64_t n_answers = 0, facts[2] = { 1, 1 };

        for (unsigned i = 0; i < PINGS_MAX && facts[0] + facts[1] > 0; i++) {
                ask(client, names, facts, 2);
                n_answers += facts[0] > 0;
        }
        assert_int_equal(facts[0] + facts[1], 0);
        return n_answers;
}

/* The first number behind @text in a line of a trace; 0 where it is another line. */
static uint64_t number_behind(const char *line, const char *text)
{
        const char *at = strstr(line, text);

        return at ? strtoull(at + strlen(text), NULL, 0) : 0;
}

/*
 * None of the calls that give memory back was made by the loop for a large piece: the closing of the file's
 * descriptors, unmapping, cutting, punching. The loop is the thread that has the number of the process.
 */
static void check_who_gave_it_back(const Trace *trace, const Foliod *foliod, const int *fds, unsigned n_fds)
{
        unsigned n_closed = 0;
        FILE *lines = fopen(trace->path, "re");
        char line[1024];

        assert_non_null(lines);
        while (fgets(line, sizeof(line), lines)) {
                bool is_loop = atoi(line) == foliod->pid;
                const char *comma = strstr(line, "munmap(") ? strchr(line, ',') : NULL;

                for (unsigned i = 0; i < n_fds; i++)
                        if (strstr(line, "close(") && (int)number_behind(line, "close(") == fds[i]) {
                                n_closed++;
                                if (is_loop)
                                        fail_msg("the loop closed it: %s", line);
                        }
                if (is_loop && ((comma && strtoull(comma + 1, NULL, 0) > 64 * MIB) || strstr(line, "ftruncate(") ||
                                strstr(line, "PUNCH_HOLE") || strstr(line, "MADV_REMOVE")))
                        fail_msg("the loop did it: %s", line);
        }
        fclose(lines);
        assert_true(n_closed >= n_fds);
}

static void delete_without_holder(Foliod *foliod, struct folio_client *client, bool *ret_is_traced)
{
        uint64_t n_bytes = large_bytes(), n_answers;
        unsigned n_fds;
        Trace trace;
        int fds[8];

        put_large(client, "large", n_bytes);
        assert_int_equal(folio_delete(client, "large", 0), 0);
        n_answers = ping_until_gone(client);
        print_turns(client, "delete", n_answers);
        assert_true(n_answers >= ANSWERS_MIN);
        /* Again, with somebody who looks at the system calls. */
        put_large(client, "large", n_bytes);
        *ret_is_traced = trace_begin(&trace, foliod, foliod->pid, "close,munmap,ftruncate,fallocate,madvise");
        /* Not before: a worker may have one for a while, to look at what has been sealed. */
        n_fds = find_large_fds(foliod, n_bytes, fds, 8);
        assert_true(n_fds > 0);
        assert_int_equal(folio_delete(client, "large", 0), 0);
        (void)ping_until_gone(client);
        if (*ret_is_traced) {
                trace_end(&trace);
                check_who_gave_it_back(&trace, foliod, fds, n_fds);
        }
}

/* Maps it, and lets go of it when told. */
static void hold_large(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;

        CHECK_OK(folio_get(client, "large", 0, 0, &object));
        CHECK(((const uint8_t *)folio_object_data(object))[0] == 0);
        child_say(child, 1);
        CHECK(child_hear(child) == 2);
        CHECK_OK(folio_object_release(object));
        child_say(child, 3);
        CHECK(child_hear(child) == 4);
        folio_client_unref(client);
}

static Child *start_holder(Foliod *foliod, struct folio_client *client)
{
        Child *holder = child_start(foliod, hold_large, NULL);

        assert_int_equal(child_hear(holder), 1);
        assert_int_equal(folio_delete(client, "large", 0), 0);
        assert_true(foliod_fact(client, "memory.held_bytes") >= large_bytes());
        return holder;
}

static void end_holder(Child *holder)
{
        assert_int_equal(child_hear(holder), 3);
        child_say(holder, 4);
        child_finish(holder);
}

/* By whom it is unmapped, it is not given back: foliod hears of the release when it is unmapped, and not before. */
static void check_order(const Trace *trace)
{
        FILE *lines = fopen(trace->path, "re");
        bool is_unmapped = false, is_told = false;
        char line[1024];

        assert_non_null(lines);
        while (fgets(line, sizeof(line), lines)) {
                const char *comma = strstr(line, "munmap(") ? strchr(line, ',') : NULL;

                if (comma && strtoull(comma + 1, NULL, 0) >= large_bytes())
                        is_unmapped = true;
                if (strstr(line, "sendmsg(") && !is_unmapped)
                        fail_msg("told before it was unmapped: %s", line);
                is_told |= strstr(line, "sendmsg(") != NULL;
        }
        fclose(lines);
        assert_true(is_unmapped && is_told);
}

static void delete_with_holder(Foliod *foliod, struct folio_client *client, bool *ret_is_traced)
{
        uint64_t n_answers;
        Child *holder;
        Trace trace;

        put_large(client, "large", large_bytes());
        holder = start_holder(foliod, client);
        child_say(holder, 2);
        n_answers = ping_until_gone(client);
        print_turns(client, "release", n_answers);
        assert_true(n_answers >= ANSWERS_MIN);
        end_holder(holder);

        put_large(client, "large", large_bytes());
        holder = start_holder(foliod, client);
        *ret_is_traced = trace_begin(&trace, foliod, holder->pid, "munmap,sendmsg");
        child_say(holder, 2);
        (void)ping_until_gone(client);
        if (*ret_is_traced) {
                trace_end(&trace);
                check_order(&trace);
        }
        end_holder(holder);
}

static void test_f04_others_are_answered_while_memory_goes(void **state)
{
        Foliod *foliod = foliod_start("--budget", "1200M", "--huge", "never", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        bool is_traced[2];

        (void)state;
        delete_without_holder(foliod, client, &is_traced[0]);
        delete_with_holder(foliod, client, &is_traced[1]);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
        if (!is_traced[0] || !is_traced[1]) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

static void put_small(struct folio_client *client, unsigned n)
{
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        struct folio_put_item *items = calloc(n, sizeof(*items));
        char(*names)[24] = calloc(n, sizeof(*names));

        assert_true(items && names);
        for (unsigned i = 0; i < n; i++) {
                (void)snprintf(names[i], sizeof(names[i]), "small %u", i);
                items[i] = (struct folio_put_item){ .name = names[i], .data = "0123456789", .size_bytes = 10,
                                                    .options = i % 10 ? NULL : &own };
        }
        assert_int_equal(folio_put_many(client, items, n), 0);
        free(items);
        free(names);
}

/* The search for leaks at the end, which a sanitizer makes, does not work in a process that is traced. */
static bool can_be_traced_to_the_end(void)
{
#if defined(__SANITIZE_ADDRESS__)
        return false;
#else
        return true;
#endif
}

/* SIGTERM with much in the store and much held: the loop turns a few times more, whatever there is, and it ends. */
static void test_f04_stops_with_much_held(void **state)
{
        enum { N_SMALL = 5000, TURNS_MAX = 200 };
        Foliod *foliod = foliod_start("--budget", "1200M", "--huge", "never", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool is_traced;
        int status = 0;
        Child *holder;
        Trace trace;

        (void)state;
        put_large(client, "large", large_bytes());
        holder = start_holder(foliod, client);
        put_small(client, N_SMALL);
        is_traced = can_be_traced_to_the_end() &&
                    trace_begin(&trace, foliod, foliod->pid, "epoll_wait,epoll_pwait,epoll_pwait2,poll,select");
        assert_int_equal(kill(foliod->pid, SIGTERM), 0);
        AWAIT(waitpid(foliod->pid, &status, WNOHANG) == foliod->pid);
        foliod->pid = 0;
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (is_traced) {
                unsigned n_turns;

                trace_end(&trace);
                n_turns = trace_count(&trace, "epoll_", false) + trace_count(&trace, "poll(", false);
                print_message("# it looked %u times for something to do\n", n_turns);
                assert_true(n_turns <= TURNS_MAX);
        }
        /* What it had is still there for who holds it. */
        child_say(holder, 2);
        end_holder(holder);
        folio_client_unref(client);
        foliod_stop(foliod);
        if (!is_traced && can_be_traced_to_the_end()) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_b02_others_are_answered_during_a_create),
                INTEGRATION_TEST(test_b02_a_create_is_given_up),
                INTEGRATION_TEST(test_b02_goes_on_with_small_pages),
                INTEGRATION_TEST(test_f04_others_are_answered_while_memory_goes),
                INTEGRATION_TEST(test_f04_stops_with_much_held),
        };

        return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
