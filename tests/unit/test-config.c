/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from files, drop-ins and options: which wins, what is refused and how it is told, and that what
 * --check-config prints says the same again.
 */
#include "harness.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/service/config.h"
#include "folio/admin.h"

static char directory[64], file[128];

static void put_file(const char *name, const char *text)
{
        char path[256];
        FILE *stream;

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        stream = fopen(path, "we");
        assert_non_null(stream);
        fputs(text, stream);
        assert_int_equal(fclose(stream), 0);
}

static int setup(void **state)
{
        char path[256];

        harness_setup(state);
        snprintf(directory, sizeof(directory), "/tmp/test-config-XXXXXX");
        if (!mkdtemp(directory))
                return -1;
        snprintf(file, sizeof(file), "%s/foliod.conf", directory);
        snprintf(path, sizeof(path), "%s.d", file);
        (void)unsetenv("XDG_RUNTIME_DIR");
        (void)setenv("XDG_CONFIG_HOME", directory, 1);
        put_file("foliod.conf", "");
        return mkdir(path, 0700);
}

static int teardown(void **state)
{
        char command[128];

        snprintf(command, sizeof(command), "rm -rf %s", directory);
        if (system(command) != 0)
                return -1;
        return harness_teardown(state);
}

#define CONFIG_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

/* With --config FILE, and up to seven arguments more, ending with NULL. */
static int read_with(Config *config, char **ret_message, ...)
{
        char *argv[12] = { (char *)(uintptr_t)"foliod", (char *)(uintptr_t)"--config", file };
        int argc = 3;
        va_list arguments;

        va_start(arguments, ret_message);
        while (argc < 11 && (argv[argc] = va_arg(arguments, char *)))
                argc++;
        va_end(arguments);
        return config_read(config, argc, argv, ret_message);
}

#define READ(config, message, ...) read_with(config, message, ##__VA_ARGS__, (char *)NULL)

static void assert_wrong(const char *text, const char *expected)
{
        Config config = CONFIG_NULL;
        char *message = NULL;

        put_file("foliod.conf", text);
        assert_int_equal(READ(&config, &message), CONFIG_E_USAGE);
        if (!strstr(message, expected))
                fail_msg("'%s' is not in: %s", expected, message);
        assert_int_equal(strncmp(message, file, strlen(file)), 0);
        free(message);
        config_deinit(&config);
}

static void assert_wrong_option(const char *option, const char *expected)
{
        Config config = CONFIG_NULL;
        char *message = NULL;

        assert_int_equal(READ(&config, &message, option), CONFIG_E_USAGE);
        if (!strstr(message, expected))
                fail_msg("'%s' is not in: %s", expected, message);
        free(message);
        config_deinit(&config);
}

static void test_defaults(void **state)
{
        Config config = CONFIG_NULL;
        char *message = NULL, *reason = NULL, expected[64];

        assert_int_equal(READ(&config, &message, "--system"), 0);
        assert_null(message);
        assert_string_equal(config.socket_path, "/run/folio/folio.sock");
        assert_int_equal(config.socket_mode, 0666);
        assert_false(config.is_user_daemon);
        assert_int_equal(config.ready_fd, -1);
        assert_int_equal(config.packed_bytes_max, MIB);
        assert_int_equal(config.staging_bytes, 4 * MIB);
        assert_int_equal(config.objects_max, 1048576);
        assert_int_equal(config.n_events, 8192);
        assert_int_equal(config.clients_max, 4096);
        assert_int_equal(config.clients_per_uid_max, 2048);
        assert_int_equal(config.idle_exit_s, 0);
        assert_true(config.budget_bytes == config_default_budget(""));
        assert_true(config.budget_bytes <= config_budget_max("", &reason));
        assert_non_null(reason);
        assert_true(config.pool_bytes_max == MIN(config.budget_bytes / 16, 256 * MIB));
        assert_true(config.session_bytes_max >= 64 * config.staging_bytes);
        assert_int_equal(config.n_namespaces, 0);
        free(reason);
        config_deinit(&config);

        assert_int_equal(READ(&config, &message, "--user"), 0);
        snprintf(expected, sizeof(expected), "/tmp/folio-%u/folio.sock", (unsigned)getuid());
        assert_string_equal(config.socket_path, expected);
        assert_int_equal(config.socket_mode, 0600);
        assert_int_equal(config.clients_per_uid_max, 4096);
        config_deinit(&config);

        assert_int_equal(setenv("XDG_RUNTIME_DIR", "/run/user/7", 1), 0);
        assert_int_equal(READ(&config, &message, "--user"), 0);
        assert_string_equal(config.socket_path, "/run/user/7/folio/folio.sock");
        config_deinit(&config);
        assert_int_equal(setenv("XDG_RUNTIME_DIR", "relative", 1), 0);
        assert_int_equal(READ(&config, &message, "--user"), 0);
        assert_string_equal(config.socket_path, expected);
        config_deinit(&config);
}

static void test_file_drop_ins_options_in_order(void **state)
{
        Config config = CONFIG_NULL;
        char *message = NULL;

        put_file("foliod.conf", "# comment\n[daemon]\nclients-max = 1\nlog-level=debug ; comment\n\n"
                                "[memory]\n  budget = 1G\n  packed-max = 512K\nevents=16\n");
        put_file("foliod.conf.d/20-b.conf", "[memory]\nbudget = 3G\n[daemon]\nclients-max = 20\n");
        put_file("foliod.conf.d/10-a.conf", "[memory]\nbudget = 2G\nstaging = 1M\n[daemon]\nclients-max = 10\n");
        put_file("foliod.conf.d/.hidden.conf", "[nonsense]\n");
        put_file("foliod.conf.d/30-c.conf~", "[nonsense]\n");
        put_file("foliod.conf.d/README", "[nonsense]\n");
        assert_int_equal(READ(&config, &message, "--clients-max=30", "--huge", "never", "--socket", "/x/y.sock"), 0);
        assert_int_equal(config.clients_max, 30);
        assert_int_equal(config.log_level, LOG_LEVEL_DEBUG);
        assert_int_equal(config.budget_bytes, 3 * GIB);
        assert_int_equal(config.staging_bytes, MIB);
        assert_int_equal(config.packed_bytes_max, 512 * KIB);
        assert_int_equal(config.n_events, 16);
        assert_int_equal(config.huge, FOLIO_HUGE_NEVER);
        assert_string_equal(config.socket_path, "/x/y.sock");
        config_deinit(&config);
}

static void test_namespaces(void **state)
{
        Config config = CONFIG_NULL;
        char *message = NULL;
        ConfigNamespace *ns;

        put_file("foliod.conf", "[namespace one]\nowner = root\ngroup = 7\nmode = 0740\nquota = 10M\nbacking = tmpfs\n"
                                "[namespace two]\nhuge = always\nquota-objects = 5\nobjects-max = 100\nwriters = untrusted\n"
                                "[namespace one]\nquota = 20M\n");
        assert_int_equal(READ(&config, &message, "--namespace", "two:quota=none,mode=0700",
                              "--namespace=three:writers=trusted"), 0);
        assert_int_equal(config.n_namespaces, 3);
        ns = &config.namespaces[0];
        assert_string_equal(ns->name, "one");
        assert_int_equal(ns->fields, FOLIO_NAMESPACE_FIELD_OWNER | FOLIO_NAMESPACE_FIELD_GROUP |
                FOLIO_NAMESPACE_FIELD_MODE |
                                             FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_BACKING);
        assert_int_equal(ns->owner_uid, 0);
        assert_int_equal(ns->owner_gid, 7);
        assert_int_equal(ns->mode, 0740);
        assert_int_equal(ns->quota_bytes, 20 * MIB);
        assert_int_equal(ns->backing, FOLIO_BACKING_TMPFS);
        ns = &config.namespaces[1];
        assert_string_equal(ns->name, "two");
        assert_int_equal(ns->huge, FOLIO_HUGE_ALWAYS);
        assert_int_equal(ns->quota_objects, 5);
        assert_int_equal(ns->objects_max, 100);
        assert_int_equal(ns->quota_bytes, 0);
        assert_int_equal(ns->mode, 0700);
        assert_int_equal(ns->fields, FOLIO_NAMESPACE_FIELD_HUGE | FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS |
                                             FOLIO_NAMESPACE_FIELD_OBJECTS_MAX | FOLIO_NAMESPACE_FIELD_QUOTA_BYTES |
                                             FOLIO_NAMESPACE_FIELD_MODE | FOLIO_NAMESPACE_FIELD_WRITERS);
        assert_int_equal(ns->writers, FOLIO_WRITERS_UNTRUSTED);
        assert_string_equal(config.namespaces[2].name, "three");
        assert_int_equal(config.namespaces[2].fields, FOLIO_NAMESPACE_FIELD_WRITERS);
        assert_int_equal(config.namespaces[2].writers, FOLIO_WRITERS_TRUSTED);
        config_deinit(&config);
}

static void test_what_is_wrong_in_files(void **state)
{
        static const struct { const char *text; const char *expected; } rows[] = {
                { "[memory]\nbugdet = 1G\n", ":2: unknown key 'bugdet' in [memory]; there are: budget, packed-max" },
                { "[memroy]\nbudget = 1G\n", ":2: unknown section [memroy]; there are: [daemon]" },
                { "budget = 1G\n", ":1: key 'budget' outside a section; there are: [daemon]" },
                { "[memory]\n\n# x\nbudget = lots\n", ":4: budget: 'lots' is not understood" },
                { "[memory]\nbudget = 1\n", ":2: budget: '1' is outside 1M to" },
                { "[memory]\nbudget = 99999999999999999999\n", ":2: budget:" },
                { "[memory]\nbudget =\n", ":2: budget:" },
                { "[memory]\nhuge = sometimes\n", ":2: huge: 'sometimes'" },
                { "[memory]\nbudget = 1G\nnot a setting\n", ":3: neither [section], key = value, nor a comment" },
                { "[memory\n", ":1: neither" },
                { "x\n[memory]\nhuge = no\n", ":1: neither" },
                { "[memory]\nhuge = no\nx\n", ":2: huge" },
                { "[daemon]\nsocket = relative\n", ":2: socket: 'relative'" },
                { "[daemon]\nsocket = auto\n", ":2: socket: 'auto'" },
                { "[memory]\ntmpfs-directory = here\n", ":2: tmpfs-directory: 'here'" },
                { "[daemon]\nready-fd = 3\n", ":2: unknown key 'ready-fd'" },
                { "[daemon]\nsocket-mode = 0\n", ":2: socket-mode" },
                { "[daemon]\nclients-max = 0\n", ":2: clients-max: '0' is outside 1 to" },
                { "[namespace Upper]\nquota = 1G\n", ":2: namespace: 'Upper'" },
                { "[namespace ]\nquota = 1G\n", ":2: namespace: ''" },
                { "[namespace a]\nqouta = 1G\n", ":2: unknown key 'qouta' of namespace 'a'; there are: owner" },
                { "[namespace a]\nowner = nobody-at-all-here\n", ":2: owner" },
                { "[namespace a]\nbacking = hugetlb\n", ":2: backing" },
                { "[namespace a]\nwriters = all\n", ":2: writers: 'all'" },
                { "[memory]\nwriters = trusted\n", ":2: unknown key 'writers' in [memory]" },
                { "[daemon]\nsocket = /s\n  log-level = loud\n", ":3: log-level: 'loud'" },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_wrong(rows[i].text, rows[i].expected);
}

static void test_long_lines(void **state)
{
        char text[4096];

        memset(text, 'x', sizeof(text));
        memcpy(text, "[memory]\nbudget = ", 18);
        text[sizeof(text) - 1] = '\0';
        assert_wrong(text, ":2: the line is longer than");
        /* And a drop-in is told by its own name. */
        put_file("foliod.conf", "");
        put_file("foliod.conf.d/x.conf", "[memory]\nx = 1\n");
        {
                Config config = CONFIG_NULL;
                char *message = NULL;

                assert_int_equal(READ(&config, &message), CONFIG_E_USAGE);
                assert_non_null(strstr(message, "foliod.conf.d/x.conf:2: unknown key 'x'"));
                free(message);
                config_deinit(&config);
        }
}

static void test_what_is_wrong_in_options(void **state)
{
        assert_wrong_option("--bugdet=1G", "'--bugdet=1G' is no option");
        assert_wrong_option("--bugdet", "'--bugdet' is no option");
        assert_wrong_option("budget=1G", "'budget=1G' is no option");
        assert_wrong_option("-v", "'-v' is no option");
        assert_wrong_option("--", "'--' is no option");
        assert_wrong_option("", "'' is no option");
        assert_wrong_option("--=1", "is no option");
        assert_wrong_option("--budget", "--budget: a value is missing");
        assert_wrong_option("--budget=", "budget: ''");
        assert_wrong_option("--user=yes", "is no option");
        assert_wrong_option("--quota=1G", "is no option"); /* a namespace's */
        assert_wrong_option("--ready-fd=x", "--ready-fd: 'x' is no descriptor");
        assert_wrong_option("--ready-fd=99999999999", "is no descriptor");
        assert_wrong_option("--events=100", "events: 100 is no power of two");
        assert_wrong_option("--staging=64K", "staging: an object of packed-max");
        assert_wrong_option("--namespaces-max=0", "namespaces-max");
        assert_wrong_option("--namespace=a:b", "'b' is no key=value");
        assert_wrong_option("--namespace=a:b=c", "unknown key 'b' of namespace 'a'");
        assert_wrong_option("--namespace=:quota=1", "namespace: ''");
        assert_wrong_option("--socket=/0123456789012345678901234567890123456789012345678901234567890123456789012345678"
                            "90123456789012345678901234567", "is no absolute path of at most 107 bytes");
        {
                Config config = CONFIG_NULL;
                char *message = NULL;

                assert_int_equal(READ(&config, &message, "--user", "--system"), CONFIG_E_USAGE);
                free(message);
                config_deinit(&config);
        }
}

static void test_files_that_are_missing(void **state)
{
        char *argv[] = { (char *)(uintptr_t)"foliod", (char *)(uintptr_t)"--user", NULL };
        Config config = CONFIG_NULL;
        char *message = NULL;

        /* The default one may be; one that is asked for may not. */
        assert_int_equal(config_read(&config, 2, argv, &message), 0);
        config_deinit(&config);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(READ(&config, &message), CONFIG_E_USAGE);
        assert_non_null(strstr(message, "cannot be opened: No such file"));
        free(message);
        config_deinit(&config);
        /* A directory can be opened, but not read. */
        assert_int_equal(mkdir(file, 0700), 0);
        assert_int_equal(READ(&config, &message), CONFIG_E_USAGE);
        assert_non_null(strstr(message, "cannot be read"));
        free(message);
        config_deinit(&config);
}

static void test_the_users_file_is_found(void **state)
{
        char *argv[] = { (char *)(uintptr_t)"foliod", (char *)(uintptr_t)"--user", NULL };
        Config config = CONFIG_NULL;
        char *message = NULL, path[256];

        snprintf(path, sizeof(path), "%s/folio", directory);
        assert_int_equal(mkdir(path, 0700), 0);
        put_file("folio/foliod.conf", "[memory]\nbudget = 123M\n");
        assert_int_equal(config_read(&config, 2, argv, &message), 0);
        assert_int_equal(config.budget_bytes, 123 * MIB);
        config_deinit(&config);
}

static void test_check_config_says_the_same_again(void **state)
{
        Config first = CONFIG_NULL, second = CONFIG_NULL;
        char *message = NULL, *text, *again;

        put_file("foliod.conf", "[memory]\nbudget = 100000001\npool=0\nhuge=always\npacked-protection = mode\n"
                                "tmpfs-directory = /run/folio-memory\n"
                                "[daemon]\nidle-exit = 5m\nworkers=3\nlog-target=stderr\nsocket = /a b/s\n"
                                "[namespace a]\nowner=1\ngroup=2\nmode=750\nquota=1G\nquota-objects=2\nobjects-max=3\n"
                                "backing=memfd\nhuge=never\n[namespace b]\nquota=none\n");
        assert_int_equal(READ(&first, &message, "--system", "--check-config"), CONFIG_E_CHECKED);
        text = message;
        assert_non_null(strstr(text, "[memory]\n"));
        assert_non_null(strstr(text, "budget = 100000001\n"));
        assert_non_null(strstr(text, "idle-exit = 300\n"));
        assert_non_null(strstr(text, "packed-max = 1M\n"));
        assert_non_null(strstr(text, "tmpfs-directory = /run/folio-memory\n"));
        assert_non_null(strstr(text, "\n[namespace a]\nowner = 1\ngroup = 2\nmode = 0750\nquota = 1G\n"));
        assert_non_null(strstr(text, "\n[namespace b]\nquota = none\n"));
        put_file("foliod.conf", text);
        assert_int_equal(READ(&second, &message, "--system", "--check-config"), CONFIG_E_CHECKED);
        again = message;
        assert_string_equal(text, again);
        free(text);
        free(again);
        config_deinit(&first);
        config_deinit(&second);
}

static void test_a_path_can_be_a_word(void **state)
{
        char *message = NULL;
        Config config = CONFIG_NULL;

        put_file("foliod.conf", "[memory]\ntmpfs-directory = /a\n");
        assert_int_equal(READ(&config, &message, "--system"), 0);
        assert_string_equal(config.tmpfs_directory, "/a");
        config_deinit(&config);
        assert_int_equal(READ(&config, &message, "--system", "--tmpfs-directory", "/b"), 0);
        assert_string_equal(config.tmpfs_directory, "/b");
        config_deinit(&config);
        assert_int_equal(READ(&config, &message, "--system", "--tmpfs-directory=auto"), 0);
        assert_null(config.tmpfs_directory);
        config_deinit(&config);
}

static void test_help_and_version(void **state)
{
        Config config = CONFIG_NULL;
        char *message = NULL;

        assert_int_equal(READ(&config, &message, "--nonsense", "--help"), CONFIG_E_HELP);
        assert_non_null(strstr(message, "packed-max"));
        assert_non_null(strstr(message, "[namespace NAME]"));
        free(message);
        config_deinit(&config);
        assert_int_equal(READ(&config, &message, "--version"), CONFIG_E_HELP);
        assert_int_equal(strncmp(message, "foliod ", 7), 0);
        free(message);
        config_deinit(&config);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                CONFIG_TEST(test_defaults),
                CONFIG_TEST(test_file_drop_ins_options_in_order),
                CONFIG_TEST(test_namespaces),
                CONFIG_TEST(test_what_is_wrong_in_files),
                CONFIG_TEST(test_long_lines),
                CONFIG_TEST(test_what_is_wrong_in_options),
                CONFIG_TEST(test_files_that_are_missing),
                CONFIG_TEST(test_the_users_file_is_found),
                CONFIG_TEST(test_check_config_says_the_same_again),
                CONFIG_TEST(test_a_path_can_be_a_word),
                CONFIG_TEST(test_help_and_version),
        };

        return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
