/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Case D24: what is in a core dump. Nothing of the store, neither of a program that maps it nor of foliod, unless the
 * program asks for it. Looked at twice: what the kernel has noted of each mapping, and the size of a real dump, where
 * the machine writes dumps to plain files. The machine's own settings stay as they are.
 */
#include "client/lib/maps.h"
#include "tests/integration/alive.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/integration/program.h"

/* --- what is noted ------------------------------------------------------------------------------------------------ */

/* Memory without a name: what the store is made of. */
static bool is_of_store(const char *header)
{
        return strstr(header, "/memfd:") || strstr(header, "(deleted)");
}

typedef struct Noted {
        unsigned n_dumped, n_left_out; /* mappings of the store's memory */
} Noted;

static Noted look_at(const char *pid_text, bool is_loud)
{
        char path[64], line[1024], header[1024] = "";
        Noted noted = { 0 };
        FILE *smaps;

        (void)snprintf(path, sizeof(path), "/proc/%s/smaps", pid_text);
        smaps = fopen(path, "re");
        CHECK(smaps);
        while (fgets(line, sizeof(line), smaps)) {
                unsigned long begin, end;

                if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
                        memcpy(header, line, sizeof(header));
                if (strncmp(line, "VmFlags:", 8) != 0 || !is_of_store(header))
                        continue;
                if (strstr(line, " dd")) {
                        noted.n_left_out++;
                        continue;
                }
                noted.n_dumped++;
                if (is_loud)
                        print_message("# would be dumped: %s", header);
        }
        fclose(smaps);
        return noted;
}

/* Of the one mapping that has @data. */
static bool is_dumped(const void *data)
{
        FILE *smaps = fopen("/proc/self/smaps", "re");
        bool is_it = false, is_left_out = false, was_found = false;
        unsigned long begin, end;
        char line[1024];

        CHECK(smaps);
        while (fgets(line, sizeof(line), smaps)) {
                if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
                        is_it = (uintptr_t)data >= begin && (uintptr_t)data < end;
                if (is_it && strncmp(line, "VmFlags:", 8) == 0) {
                        was_found = true;
                        is_left_out = strstr(line, " dd");
                }
        }
        fclose(smaps);
        CHECK(was_found);
        return !is_left_out;
}

static struct folio_client *connect_with(const Foliod *foliod, uint32_t flags)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = foliod->socket_path,
                                              .flags = flags | FOLIO_OPEN_VISIBLE, .timeout_ms = 20000 };
        struct folio_client *client = NULL;

        CHECK_OK(folio_client_open(&options, &client));
        return client;
}

/* Everything that a client can map: small, large, to be written, mutable, and views of its own of both sizes. */
static void check_mappings(Foliod *foliod, const char *namespace, uint32_t flags)
{
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE };
        struct folio_client *client = connect_with(foliod, flags);
        bool is_wanted = flags & FOLIO_OPEN_DUMPABLE;
        struct folio_object *small, *large, *writing, *shared;
        uint8_t *bytes = calloc(1, 5 * MIB);
        void *data[4];
        char names[4][64];
        Noted noted;

        assert_non_null(bytes);
        for (unsigned i = 0; i < 4; i++)
                (void)snprintf(names[i], sizeof(names[i]), "%s:object %u", namespace, i);
        ASSERT_OK(folio_put(client, names[0], bytes, 100, NULL));
        ASSERT_OK(folio_put(client, names[1], bytes, 5 * MIB, NULL));
        ASSERT_OK(folio_get(client, names[0], 0, 0, &small));
        ASSERT_OK(folio_get(client, names[1], 0, 0, &large));
        ASSERT_OK(folio_create(client, names[2], 4 * MIB, NULL, &writing));
        ASSERT_OK(folio_create(client, names[3], 4096, &mutable, &shared));
        ASSERT_OK(folio_object_map_write(writing, &data[0]));
        ASSERT_OK(folio_object_map_write(shared, &data[1]));
        ASSERT_OK(folio_object_map_private(small, &data[2]));
        ASSERT_OK(folio_object_map_private(large, &data[3]));
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(is_dumped(data[i]), is_wanted);
        assert_int_equal(is_dumped(folio_object_data(small)), is_wanted);
        assert_int_equal(is_dumped(folio_object_data(large)), is_wanted);
        noted = look_at("self", !is_wanted);
        /* All that the library has mapped is seen here but the view of the small one, which has no file; and the beacon,
         * which it does not count. */
        assert_int_equal(noted.n_dumped + noted.n_left_out, maps_count() - 1 + 1);
        assert_int_equal(noted.n_dumped, is_wanted ? 5 : 0);
        /* Index, pins, staging and beacon at least: they are the library's. */
        assert_true(noted.n_left_out >= (is_wanted ? 4 : 9));
        noted = look_at(foliod->pid_text, true);
        assert_int_equal(noted.n_dumped, 0);
        assert_true(noted.n_left_out >= 3);
        ASSERT_OK(folio_object_release(writing));
        ASSERT_OK(folio_object_release(shared));
        ASSERT_OK(folio_object_release(small));
        ASSERT_OK(folio_object_release(large));
        for (unsigned i = 0; i < 4; i++)
                (void)folio_delete(client, names[i], FOLIO_IF_EXISTS);
        folio_client_unref(client);
        free(bytes);
}

static void test_d24_mappings_are_not_dumped(void **state)
{
        Foliod *foliod = foliod_start("--budget", "128M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool has_tmpfs = alive_add_tmpfs(client);

        (void)state;
        folio_client_unref(client);
        check_mappings(foliod, "default", 0);
        check_mappings(foliod, "default", FOLIO_OPEN_DUMPABLE);
        if (has_tmpfs) {
                check_mappings(foliod, "tmpfs", 0);
                check_mappings(foliod, "tmpfs", FOLIO_OPEN_DUMPABLE);
        }
        foliod_stop(foliod);
}

/* --- real dumps --------------------------------------------------------------------------------------------------- */

enum {
        DUMPED_BYTES = 300 << 20,
        PACKED_BYTES = 500000,
        N_PACKED = 500,
        CORE_BYTES_MAX = 200 << 20,
        CORE_BYTES_LIMIT = 600 << 20, /* of what is written at most where the test fails */
};

/* Are dumps written to where the process is? Only the name counts, and it must be a plain one. */
static bool are_plain_files(void)
{
        char pattern[256] = "";
        FILE *file = fopen("/proc/sys/kernel/core_pattern", "re");

        if (!file)
                return false;
        if (!fgets(pattern, sizeof(pattern), file))
                pattern[0] = '\0';
        fclose(file);
        return strcmp(pattern, "core\n") == 0;
}

static bool allow_dumps(struct rlimit *ret_before)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_CORE, &limit) != 0)
                return false;
        if (ret_before)
                *ret_before = limit;
        limit.rlim_cur = CORE_BYTES_LIMIT;
        return (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= CORE_BYTES_LIMIT) &&
               setrlimit(RLIMIT_CORE, &limit) == 0;
}

/* The dump's size, and removes it; 0: there is none. */
static uint64_t take_core(const char *directory, pid_t pid)
{
        char paths[2][96];
        uint64_t n_bytes = 0;
        struct stat file;

        (void)snprintf(paths[0], sizeof(paths[0]), "%s/core", directory);
        (void)snprintf(paths[1], sizeof(paths[1]), "%s/core.%d", directory, (int)pid);
        for (unsigned i = 0; i < 2; i++)
                if (stat(paths[i], &file) == 0) {
                        n_bytes = (uint64_t)file.st_size;
                        CHECK(unlink(paths[i]) == 0);
                }
        return n_bytes;
}

/*
 * All that a process can have dumped. To the kernel what is mapped through a descriptor for reading is a private
 * mapping of a file, which is not dumped unless this is asked for; so without it the test of what the library does
 * would say little.
 */
static void dump_everything(void)
{
        int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);

        CHECK(fd >= 0);
        CHECK(write(fd, "0x3f", 4) == 4);
        close(fd);
}

/* In a process of its own: maps all of it, looks at every page, and dies. */
static void map_and_die(const Foliod *foliod, uint32_t flags, const char *directory)
{
        struct folio_client *client = connect_with(foliod, flags);
        struct folio_object *object;
        const volatile uint8_t *data;
        uint64_t sum = 0;

        CHECK(chdir(directory) == 0);
        CHECK(allow_dumps(NULL));
        dump_everything();
        CHECK_OK(folio_get(client, "large", FOLIO_GET_POPULATE, 0, &object));
        data = folio_object_data(object);
        CHECK(data);
        for (uint64_t i = 0; i < DUMPED_BYTES; i += 4096)
                sum += data[i];
        CHECK(sum > 0);
        /* A sanitizer takes this signal for itself. */
        CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
        (void)raise(SIGSEGV);
        _exit(2);
}

typedef struct Crash {
        uint32_t flags;
        char directory[64];
} Crash;

/* In a child, which says how large the dump of its own child is. */
static void watch_it_die(Child *child)
{
        const Crash *crash = child->userdata;
        pid_t pid;
        int status;

        fflush(NULL);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                map_and_die(child->foliod, crash->flags, crash->directory);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        child_say(child, WCOREDUMP(status) ? take_core(crash->directory, pid) : 0);
}

static uint64_t core_bytes_of_client(Foliod *foliod, Crash *crash, uint32_t flags)
{
        uint64_t n_bytes;
        Child *child;

        crash->flags = flags;
        child = child_start(foliod, watch_it_die, crash);
        n_bytes = child_hear(child);
        child_finish(child);
        return n_bytes;
}

/* foliod, with all of it still there. Sanitizers take SIGSEGV for themselves, so another signal that dumps. */
static uint64_t core_bytes_of_daemon(Foliod *foliod, const char *directory)
{
        pid_t pid = foliod->pid;
        int status = 0;

        assert_int_equal(kill(pid, SIGABRT), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        foliod->pid = 0;
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        return WCOREDUMP(status) ? take_core(directory, pid) : 0;
}

static void make_large(struct folio_client *client)
{
        struct folio_object *object;
        uint8_t *block = malloc(MIB);

        assert_non_null(block);
        memset(block, 0x77, MIB);
        ASSERT_OK(folio_create(client, "large", DUMPED_BYTES, NULL, &object));
        for (uint64_t at = 0; at < DUMPED_BYTES; at += MIB)
                ASSERT_OK(folio_object_write(object, at, block, MIB));
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
        /* foliod maps what is packed, and nothing else that is large. */
        for (unsigned i = 0; i < N_PACKED; i++) {
                char name[32];

                (void)snprintf(name, sizeof(name), "packed %u", i);
                ASSERT_OK(folio_put(client, name, block, PACKED_BYTES, NULL));
        }
        free(block);
}

/* In the scratch directory, which is where foliod's dump goes too. */
static Foliod *start_there(const char *directory)
{
        int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct rlimit before;
        Foliod *foliod;

        assert_true(here >= 0);
        assert_int_equal(chdir(directory), 0);
        assert_true(allow_dumps(&before));
        foliod = foliod_start("--budget", "800M", ALIVE_NO_POOL, NULL);
        assert_int_equal(setrlimit(RLIMIT_CORE, &before), 0);
        assert_int_equal(fchdir(here), 0);
        close(here);
        return foliod;
}

static void test_d24_dumps_are_small(void **state)
{
        struct folio_client *client;
        uint64_t n_bytes, n_wanted, n_daemon;
        struct rlimit before;
        Foliod *foliod;
        Crash crash;

        (void)state;
        if (!are_plain_files() || !allow_dumps(&before)) {
                print_message("# this machine writes no core dumps to plain files\n");
                skip();
        }
        assert_int_equal(setrlimit(RLIMIT_CORE, &before), 0);
        program_make_directory(crash.directory);
        foliod = start_there(crash.directory);
        client = foliod_connect(foliod);
        make_large(client);
        n_bytes = core_bytes_of_client(foliod, &crash, 0);
        n_wanted = core_bytes_of_client(foliod, &crash, FOLIO_OPEN_DUMPABLE);
        n_daemon = core_bytes_of_daemon(foliod, crash.directory);
        folio_client_unref(client);
        foliod_stop(foliod);
        program_remove_directory(crash.directory);
        print_message("# %d MiB mapped: a dump of %" PRIu64 " MiB; with FOLIO_OPEN_DUMPABLE %" PRIu64
                      "; foliod's %" PRIu64 "\n",
                      (int)(DUMPED_BYTES / MIB), n_bytes / MIB, n_wanted / MIB, n_daemon / MIB);
        if (n_bytes == 0 && n_wanted == 0 && n_daemon == 0) {
                print_message("# no dump was written\n");
                skip();
        }
        assert_true(n_bytes < CORE_BYTES_MAX && n_daemon < CORE_BYTES_MAX);
        assert_true(n_wanted >= DUMPED_BYTES);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_d24_mappings_are_not_dumped),
                INTEGRATION_TEST(test_d24_dumps_are_small),
        };

        return cmocka_run_group_tests_name("dump", tests, NULL, NULL);
}
