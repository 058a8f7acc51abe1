/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings are one table: section, key, kind, place in Config, limits, help. Files, options, --help and
 * --check-config all go by it, so that a key cannot exist in one of them only. What is not in the table is an error,
 * with its place and with what there is: a misspelt limit must not become no limit.
 *
 * Nothing is done with a setting here; only what can be told from the settings alone is checked.
 */
#include "daemon/service/config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/service/hostmem.h"
#include "daemon/service/inifile.h"
#include "daemon/service/setting.h"
#include "folio/admin.h"
#include "proto/key.h"

#define OF_CONFIG(member) SETTING_MEMBER(Config, member)
#define OF_NAMESPACE(member) SETTING_MEMBER(ConfigNamespace, member)
#define NAMESPACE "namespace"
#define NAMESPACES_MAX 4096

/* Not given. Where 0 is a value that can be given, the highest number stands for it. */
#define AUTO UINT64_MAX

static const ValueWord word_auto[] = { { "auto", 0 }, { NULL, 0 } };
static const ValueWord word_auto_high[] = { { "auto", AUTO }, { NULL, 0 } };
static const ValueWord word_never[] = { { "never", 0 }, { NULL, 0 } };
static const ValueWord word_none[] = { { "none", 0 }, { NULL, 0 } };
static const ValueWord words_level[] = {
        { "error", LOG_LEVEL_ERROR }, { "warning", LOG_LEVEL_WARNING }, { "notice", LOG_LEVEL_NOTICE },
        { "info", LOG_LEVEL_INFO },   { "debug", LOG_LEVEL_DEBUG },     { NULL, 0 },
};
static const ValueWord words_target[] = {
        { "auto", LOG_TARGET_AUTO }, { "stderr", LOG_TARGET_STDERR }, { "journal", LOG_TARGET_JOURNAL }, { NULL, 0 },
};
static const ValueWord words_keeper[] = {
        { "auto", CONFIG_KEEPER_AUTO }, { "systemd", CONFIG_KEEPER_SYSTEMD }, { "process", CONFIG_KEEPER_PROCESS },
        { "none", CONFIG_KEEPER_NONE }, { NULL, 0 },
};
static const ValueWord words_huge[] = {
        { "auto", FOLIO_HUGE_AUTO }, { "always", FOLIO_HUGE_ALWAYS }, { "never", FOLIO_HUGE_NEVER }, { NULL, 0 },
};
/* In the order of StoreProtection, which lives above this file. */
static const ValueWord words_protection[] = { { "auto", 0 }, { "seals", 1 }, { "mode", 2 }, { NULL, 0 } };
static const ValueWord words_backing[] = {
        { "memfd", FOLIO_BACKING_MEMFD }, { "tmpfs", FOLIO_BACKING_TMPFS }, { NULL, 0 },
};
static const ValueWord words_writers[] = {
        { "trusted", FOLIO_WRITERS_TRUSTED }, { "untrusted", FOLIO_WRITERS_UNTRUSTED }, { NULL, 0 },
};

static const Setting settings[] = {
        { "daemon", "socket", SETTING_PATH, OF_CONFIG(socket_path), 0, 0, NULL, 0, "where clients connect [$XDG_RUNTIME_DIR/folio/folio.sock; of the machine: /run/folio/folio.sock]" },
        { "daemon", "socket-mode", SETTING_MODE, OF_CONFIG(socket_mode), 1, 0777, word_auto, 0,
          "its mode; auto: 0600 with --user, else 0666" },
        { "daemon", "workers", SETTING_COUNT, OF_CONFIG(n_workers), 1, 64, word_auto, 0,
          "threads for memory work; auto: by the number of CPUs" },
        { "daemon", "idle-exit", SETTING_SECONDS, OF_CONFIG(idle_exit_s), 1, 1000000000, word_never, 0,
          "end when empty and unused for so long" },
        { "daemon", "clients-max", SETTING_COUNT, OF_CONFIG(clients_max), 1, 1000000, NULL, 0, "connections" },
        { "daemon", "clients-per-uid-max", SETTING_COUNT, OF_CONFIG(clients_per_uid_max), 1, 1000000, word_auto, 0,
          "connections of one uid; auto: half of clients-max, with --user all" },
        { "daemon", "keeper", SETTING_WORD, OF_CONFIG(keeper), 0, 0, words_keeper, 0,
          "what keeps objects over the end of foliod: systemd, process or none; auto: systemd where it can" },
        { "daemon", "keeper-slots", SETTING_COUNT, OF_CONFIG(keeper_slots), 4, 4096, NULL, 0,
          "descriptors it holds for us; under systemd at most its FileDescriptorStoreMax=" },
        { "daemon", "log-level", SETTING_WORD, OF_CONFIG(log_level), 0, 0, words_level, 0,
          "error, warning, notice, info or debug" },
        { "daemon", "log-target", SETTING_WORD, OF_CONFIG(log_target), 0, 0, words_target, 0,
          "auto, stderr or journal" },
        { "memory", "budget", SETTING_SIZE, OF_CONFIG(budget_bytes), MIB, UINT64_C(1) << 60, word_auto, 0,
          "what the store may take; auto: half of memory, or 80 % of the cgroup's limit" },
        { "memory", "packed-max", SETTING_SIZE, OF_CONFIG(packed_bytes_max), 64, 32 * MIB, NULL, 0,
          "larger objects have a region of their own" },
        { "memory", "pool", SETTING_SIZE, OF_CONFIG(pool_bytes_max), 0, UINT64_C(1) << 60, word_auto_high, 0,
          "blank memory kept ready; auto: a sixteenth of the budget, at most 256M" },
        { "memory", "staging", SETTING_SIZE, OF_CONFIG(staging_bytes), 64 * KIB, GIB, NULL, 0,
          "memory of each client to bring small objects in" },
        { "memory", "session-max", SETTING_SIZE, OF_CONFIG(session_bytes_max), MIB, UINT64_C(1) << 60, word_auto, 0,
          "staging and pin tables of one uid; auto: half of the budget, at least for 64 clients" },
        { "memory", "objects-max", SETTING_COUNT, OF_CONFIG(objects_max), 1, UINT64_C(1) << 28, NULL, 0,
          "objects of a namespace that does not say" },
        { "memory", "events", SETTING_COUNT, OF_CONFIG(n_events), 16, 1u << 24, NULL, 0,
          "events remembered for watchers, of each namespace; a power of two" },
        { "memory", "namespaces-max", SETTING_COUNT, OF_CONFIG(n_namespaces_max), 1, NAMESPACES_MAX, NULL, 0,
          "namespaces" },
        { "memory", "huge", SETTING_WORD, OF_CONFIG(huge), 0, 0, words_huge, 0, "huge pages: auto, always or never" },
        { "memory", "packed-protection", SETTING_WORD, OF_CONFIG(packed_protection), 0, 0, words_protection, 0,
          "what keeps clients from writing to small objects: auto, seals or mode" },
        { "memory", "tmpfs-directory", SETTING_PATH, OF_CONFIG(tmpfs_directory), 0, 0, word_auto, 0,
          "a tmpfs for its files, mounted for foliod alone; auto: it makes one" },
        { NAMESPACE, "owner", SETTING_USER, OF_NAMESPACE(owner_uid), 0, UINT32_MAX - 1, NULL,
          FOLIO_NAMESPACE_FIELD_OWNER, "user, by name or number" },
        { NAMESPACE, "group", SETTING_GROUP, OF_NAMESPACE(owner_gid), 0, UINT32_MAX - 1, NULL,
          FOLIO_NAMESPACE_FIELD_GROUP, "group, by name or number" },
        { NAMESPACE, "mode", SETTING_MODE, OF_NAMESPACE(mode), 0, 0777, NULL, FOLIO_NAMESPACE_FIELD_MODE,
          "rights of owner, group, others: 4 read, 2 write, 1 admin" },
        { NAMESPACE, "quota", SETTING_SIZE, OF_NAMESPACE(quota_bytes), 0, UINT64_C(1) << 60, word_none,
          FOLIO_NAMESPACE_FIELD_QUOTA_BYTES, "bytes it may take" },
        { NAMESPACE, "quota-objects", SETTING_COUNT, OF_NAMESPACE(quota_objects), 0, UINT64_C(1) << 28, word_none,
          FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS, "objects it may have" },
        { NAMESPACE, "objects-max", SETTING_COUNT, OF_NAMESPACE(objects_max), 1, UINT64_C(1) << 28, NULL,
          FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, "room in its index; fixed once it is made" },
        { NAMESPACE, "backing", SETTING_WORD, OF_NAMESPACE(backing), 0, 0, words_backing,
          FOLIO_NAMESPACE_FIELD_BACKING, "memfd or tmpfs; fixed once it is made" },
        { NAMESPACE, "huge", SETTING_WORD, OF_NAMESPACE(huge), 0, 0, words_huge, FOLIO_NAMESPACE_FIELD_HUGE,
          "huge pages: auto, always or never" },
        { NAMESPACE, "writers", SETTING_WORD, OF_NAMESPACE(writers), 0, 0, words_writers, FOLIO_NAMESPACE_FIELD_WRITERS,
          "trusted or untrusted: may clients place objects themselves; fixed once it is made" },
};

static const Setting *find(const char *section, const char *key)
{
        return setting_find(settings, ARRAY_SIZE(settings), section, key);
}

static int get_namespace(Config *config, const char *name, ConfigNamespace **ret, char **ret_message)
{
        ConfigNamespace *namespaces;

        if (!key_is_valid_namespace(name, strlen(name)))
                return setting_complain(ret_message, "namespace: '%.80s%s' is not 1 to %d of a-z 0-9 . _ -", name,
                                        strlen(name) > 80 ? "..." : "", FOLIO_NAMESPACE_BYTES_MAX);
        for (size_t i = 0; i < config->n_namespaces; i++)
                if (strcmp(config->namespaces[i].name, name) == 0) {
                        *ret = &config->namespaces[i];
                        return 0;
                }
        if (config->n_namespaces >= NAMESPACES_MAX)
                return setting_complain(ret_message, "namespace: more than %d of them", NAMESPACES_MAX);
        namespaces = reallocarray(config->namespaces, config->n_namespaces + 1, sizeof(*namespaces));
        if (!namespaces)
                return -ENOMEM;
        config->namespaces = namespaces;
        *ret = &namespaces[config->n_namespaces++];
        **ret = (ConfigNamespace){ 0 };
        memcpy((*ret)->name, name, strlen(name));
        return 0;
}

static int set_namespace_value(Config *config, const char *name, const char *key, const char *text, char **ret_message)
{
        const Setting *setting = find(NAMESPACE, key);
        ConfigNamespace *ns;
        char known[512];
        int r;

        r = get_namespace(config, name, &ns, ret_message);
        if (r != 0)
                return r;
        if (!setting) {
                setting_list_keys(settings, ARRAY_SIZE(settings), NAMESPACE, known, sizeof(known));
                return setting_complain(ret_message, "unknown key '%s' of namespace '%s'; there are: %s", key, name,
                                        known);
        }
        r = setting_parse(setting, ns, text, ret_message);
        if (r == 0)
                ns->fields |= setting->flag;
        return r;
}

static int take_value(void *userdata, const char *section, const char *key, const char *text, char **ret_message)
{
        Config *config = userdata;
        const Setting *setting;
        char known[512];

        if (strncmp(section, NAMESPACE " ", sizeof(NAMESPACE)) == 0)
                return set_namespace_value(config, section + sizeof(NAMESPACE), key, text, ret_message);
        if (!*section)
                return setting_complain(ret_message, "key '%s' outside a section; there are: [daemon], [memory], "
                                        "[namespace NAME]", key);
        if (strcmp(section, "daemon") != 0 && strcmp(section, "memory") != 0)
                return setting_complain(ret_message, "unknown section [%s]; there are: [daemon], [memory], "
                                        "[namespace NAME]", section);
        setting = find(section, key);
        if (!setting) {
                setting_list_keys(settings, ARRAY_SIZE(settings), section, known, sizeof(known));
                return setting_complain(ret_message, "unknown key '%s' in [%s]; there are: %s", key, section, known);
        }
        return setting_parse(setting, config, text, ret_message);
}

int config_read_stream(Config *config, const char *name, FILE *stream, char **ret_message)
{
        return inifile_read_stream(name, stream, take_value, config, ret_message);
}

/* --- options -------------------------------------------------------------------------------------------------- */

typedef struct Options {
        const char *file;            /* --config */
        bool is_check;
        bool is_user;
        bool is_system;
        const char *ready_fd;
} Options;

/* `--namespace NAME:key=value,key=value` */
static int take_namespace_option(Config *config, const char *text, char **ret_message)
{
        _cleanup_(cleanup_free) char *copy = strdup(text);
        ConfigNamespace *ns;
        char *rest = copy, *name;
        int r;

        if (!copy)
                return -ENOMEM;
        name = strsep(&rest, ":");
        r = get_namespace(config, name, &ns, ret_message);
        while (r == 0 && rest) {
                char *value = strsep(&rest, ","), *key = strsep(&value, "=");

                if (!value)
                        return setting_complain(ret_message, "--namespace: '%s' is no key=value", key);
                r = set_namespace_value(config, name, key, value, ret_message);
        }
        return r;
}

static const Setting *find_option(const char *key)
{
        const Setting *setting = find("daemon", key);

        return setting ? setting : find("memory", key);
}

/* What is said of the reading itself, and needs no value. True: it was one of them. */
static bool take_flag(Options *options, const char *name)
{
        if (strcmp(name, "user") == 0)
                options->is_user = true;
        else if (strcmp(name, "system") == 0)
                options->is_system = true;
        else if (strcmp(name, "check-config") == 0)
                options->is_check = true;
        else
                return false;
        return true;
}

/* Splits `--name=value`; @ret_value is NULL where there is no '='. */
static bool split_option(const char *argument, char *name, size_t n_name, const char **ret_value)
{
        const char *end = strchrnul(argument, '=');
        size_t n;

        if (strncmp(argument, "--", 2) != 0)
                return false;
        n = (size_t)(end - argument) - 2;
        if (n == 0 || n >= n_name)
                return false;
        memcpy(name, argument + 2, n);
        name[n] = '\0';
        *ret_value = *end ? end + 1 : NULL;
        return true;
}

/*
 * Goes through the arguments: with @config NULL takes what says how to read, else the settings among them. A value
 * stands behind '=', or is the next argument.
 */
static int take_arguments(int argc, char **argv, Options *options, Config *config, char **ret_message)
{
        for (int i = 1; i < argc; i++) {
                const Setting *setting;
                const char *value;
                char name[64];
                int r = 0;

                if (!split_option(argv[i], name, sizeof(name), &value))
                        return setting_complain(ret_message, "'%s' is no option; see --help", argv[i]);
                if (!value && take_flag(options, name))
                        continue;
                setting = find_option(name);
                if (!setting && strcmp(name, NAMESPACE) != 0 && strcmp(name, "config") != 0 &&
                    strcmp(name, "ready-fd") != 0)
                        return setting_complain(ret_message, "'%s' is no option; see --help", argv[i]);
                if (!value && i + 1 < argc)
                        value = argv[++i];
                if (!value)
                        return setting_complain(ret_message, "--%s: a value is missing", name);
                if (strcmp(name, "config") == 0)
                        options->file = value;
                else if (strcmp(name, "ready-fd") == 0)
                        options->ready_fd = value;
                else if (config && !setting)
                        r = take_namespace_option(config, value, ret_message);
                else if (config)
                        r = setting_parse(setting, config, value, ret_message);
                if (r != 0)
                        return r;
        }
        return 0;
}

static void set_defaults(Config *config);

static void print_help(FILE *stream)
{
        Config defaults;

        set_defaults(&defaults);
        (void)fputs("usage: foliod [OPTION...]\n"
                    "Keeps the objects of a Folio store in memory. It stays in the foreground; SIGTERM ends it.\n\n"
                    "  --user, --system          the daemon of this user, or of the machine [root: of the machine]\n"
                    "  --config FILE             settings, and those in FILE.d/*.conf by name\n"
                    "                            [/etc/folio/foliod.conf; of a user ~/.config/folio/foliod.conf]\n"
                    "  --check-config            print the settings in force, or what is wrong with them, and end\n"
                    "  --ready-fd N              write a byte to this descriptor when clients can connect\n"
                    "  --namespace NAME:KEY=VALUE,...\n"
                    "                            a namespace and its settings\n"
                    "  --help, --version\n\n"
                    "Settings, in files as KEY = VALUE; those of [daemon] and [memory] also as --KEY VALUE.\n"
                    "Defaults are in brackets. A SIZE is a number of bytes, or a number and K, M, G or T of 1024 each;\n"
                    "a TIME is a number of seconds, or a number and s, m or h; a MODE is octal, as 0740.\n",
                    stream);
        for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
                if (i == 0 || strcmp(settings[i].section, settings[i - 1].section) != 0)
                        (void)fprintf(stream, "\n[%s%s]\n", settings[i].section,
                                      strcmp(settings[i].section, NAMESPACE) == 0 ? " NAME" : "");
                /* Where the socket is follows from the user; a namespace is given what is asked for. */
                setting_print_help(&settings[i],
                                   settings[i].kind == SETTING_PATH || strcmp(settings[i].section, NAMESPACE) == 0
                                           ? NULL
                                           : &defaults,
                                   stream);
        }
        (void)fputs("\nExample:\n"
                    "  foliod --user --budget 4G --namespace model:mode=0640,quota=2G\n\n"
                    "More: foliod(8), foliod.conf(5).\n",
                    stream);
}

/* --help and --version win, also over what is wrong. True: *@ret_message has it, or NULL for no memory. */
static bool take_help(int argc, char **argv, char **ret_message)
{
        FILE *stream;
        size_t n;

        for (int i = 1; i < argc; i++) {
                bool is_version = strcmp(argv[i], "--version") == 0;

                if (!is_version && strcmp(argv[i], "--help") != 0)
                        continue;
                *ret_message = NULL;
                stream = open_memstream(ret_message, &n);
                if (!stream)
                        return true;
                if (is_version)
                        (void)fputs("foliod " FOLIO_VERSION "\n", stream);
                else
                        print_help(stream);
                if (fclose(stream) != 0) {
                        free(*ret_message);
                        *ret_message = NULL;
                }
                return true;
        }
        return false;
}

/* --- the whole ------------------------------------------------------------------------------------------------ */

static void set_defaults(Config *config)
{
        *config = (Config){
                .ready_fd = -1,
                .host_root = "",
                .pressure_fd = -1,
                .clients_max = 4096,
                .keeper_slots = 512,
                .log_level = LOG_LEVEL_INFO,
                .log_target = LOG_TARGET_AUTO,
                .packed_bytes_max = MIB,
                .pool_bytes_max = AUTO,
                .staging_bytes = 4 * MIB,
                .objects_max = MIB,
                .n_events = 8192,
                .n_namespaces_max = 64,
                .huge = FOLIO_HUGE_AUTO,
        };
}

/* NULL with 0: there is no place for one. */
static int default_file(bool is_user, char **ret)
{
        const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        int n;

        *ret = NULL;
        if (!is_user)
                n = asprintf(ret, "/etc/folio/foliod.conf");
        else if (base && base[0] == '/')
                n = asprintf(ret, "%s/folio/foliod.conf", base);
        else if (home && home[0] == '/')
                n = asprintf(ret, "%s/.config/folio/foliod.conf", home);
        else
                return 0;
        return n < 0 ? -ENOMEM : 0;
}

static int default_socket(bool is_user, char **ret)
{
        const char *base = getenv("XDG_RUNTIME_DIR");
        int n;

        if (!is_user)
                n = asprintf(ret, "/run/folio/folio.sock");
        else if (base && base[0] == '/')
                n = asprintf(ret, "%s/folio/folio.sock", base);
        else
                n = asprintf(ret, "/tmp/folio-%u/folio.sock", (unsigned)getuid());
        if (n < 0)
                *ret = NULL;
        return n < 0 ? -ENOMEM : 0;
}

/* Fills in what was left to us, and checks what only the whole can tell. */
static int resolve(Config *config, const Options *options, char **ret_message)
{
        uint64_t ready_fd;

        if (options->ready_fd) {
                if (!value_parse_count(options->ready_fd, &ready_fd) || ready_fd > INT_MAX)
                        return setting_complain(ret_message, "--ready-fd: '%s' is no descriptor", options->ready_fd);
                config->ready_fd = (int)ready_fd;
        }
        if (!config->socket_path) {
                int r = default_socket(config->is_user_daemon, &config->socket_path);

                if (r < 0)
                        return r;
                if (strlen(config->socket_path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
                        return setting_complain(ret_message, "socket: '%s' is too long; give another with --socket",
                                                config->socket_path);
        }
        if (config->socket_mode == 0)
                config->socket_mode = config->is_user_daemon ? 0600 : 0666;
        if (config->clients_per_uid_max == 0)
                config->clients_per_uid_max =
                        config->is_user_daemon ? config->clients_max : (config->clients_max + 1) / 2;
        config->is_budget_given = config->budget_bytes != 0;
        if (!config->is_budget_given)
                config->budget_bytes = config_default_budget(config->host_root);
        config->is_pool_given = config->pool_bytes_max != AUTO;
        if (!config->is_pool_given)
                config->pool_bytes_max = config_default_pool(config->budget_bytes);
        if (config->session_bytes_max == 0)
                config->session_bytes_max = MAX(config->budget_bytes / 2,
                                                64 * (config->staging_bytes + 4 * config->objects_max + 64 * KIB));
        if (!IS_POWER_OF_TWO(config->n_events))
                return setting_complain(ret_message, "events: %u is no power of two", config->n_events);
        if (config->staging_bytes < config->packed_bytes_max)
                return setting_complain(ret_message, "staging: an object of packed-max (%" PRIu64 " bytes) does not "
                                        "fit into %" PRIu64 " bytes", config->packed_bytes_max, config->staging_bytes);
        config->staging_bytes = ALIGN_UP(config->staging_bytes, PAGE_BYTES);
        if (config->n_namespaces >= config->n_namespaces_max)
                return setting_complain(ret_message, "namespaces-max: %u leaves no room for default and the %zu "
                                        "that are configured", config->n_namespaces_max, config->n_namespaces);
        return 0;
}

static int read_everything(Config *config, int argc, char **argv, Options *options, char **ret_message)
{
        _cleanup_(cleanup_free) char *file = NULL;
        int r;

        r = take_arguments(argc, argv, options, NULL, ret_message);
        if (r != 0)
                return r;
        if (options->is_user && options->is_system)
                return setting_complain(ret_message, "--user and --system exclude each other");
        config->is_user_daemon = options->is_user || (!options->is_system && geteuid() != 0);

        if (options->file)
                file = strdup(options->file);
        else
                r = default_file(config->is_user_daemon, &file);
        if (r < 0 || (options->file && !file))
                return -ENOMEM;
        if (file) {
                r = inifile_read(file, !options->file, take_value, config, ret_message);
                if (r == 0)
                        r = inifile_read_drop_ins(file, take_value, config, ret_message);
                if (r != 0)
                        return r;
        }
        r = take_arguments(argc, argv, options, config, ret_message);
        return r != 0 ? r : resolve(config, options, ret_message);
}

int config_read(Config *config, int argc, char **argv, char **ret_message)
{
        Options options = { 0 };
        char *message = NULL;
        int r;

        set_defaults(config);
        if (take_help(argc, argv, &message)) {
                *ret_message = message;
                return message ? CONFIG_E_HELP : -ENOMEM;
        }
        r = read_everything(config, argc, argv, &options, &message);
        if (r == 0 && options.is_check) {
                message = config_print(config);
                r = message ? CONFIG_E_CHECKED : -ENOMEM;
        }
        *ret_message = message;
        return r;
}

void config_deinit(Config *config)
{
        free(config->socket_path);
        free(config->tmpfs_directory);
        free(config->namespaces);
        *config = (Config)CONFIG_NULL;
}

static void print_namespace(const ConfigNamespace *ns, FILE *stream)
{
        (void)fprintf(stream, "\n[" NAMESPACE " %s]\n", ns->name);
        for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
                if (strcmp(settings[i].section, NAMESPACE) == 0 && (ns->fields & settings[i].flag)) {
                        (void)fprintf(stream, "%s = ", settings[i].key);
                        setting_print(&settings[i], ns, stream);
                        (void)fputc('\n', stream);
                }
}

char *config_print(const Config *config)
{
        char *text = NULL;
        size_t n_text;
        FILE *stream = open_memstream(&text, &n_text);

        if (!stream)
                return NULL;
        for (size_t i = 0; i < ARRAY_SIZE(settings) && strcmp(settings[i].section, NAMESPACE) != 0; i++) {
                if (i == 0 || strcmp(settings[i].section, settings[i - 1].section) != 0)
                        (void)fprintf(stream, "%s[%s]\n", i == 0 ? "" : "\n", settings[i].section);
                (void)fprintf(stream, "%s = ", settings[i].key);
                setting_print(&settings[i], config, stream);
                (void)fputc('\n', stream);
        }
        for (size_t i = 0; i < config->n_namespaces; i++)
                print_namespace(&config->namespaces[i], stream);
        /* A stream in memory fails for want of memory only, and says so at its end. */
        if (fclose(stream) != 0) {
                free(text);
                return NULL;
        }
        return text;
}

uint64_t config_default_pool(uint64_t budget_bytes)
{
        return MIN(budget_bytes / 16, 256 * MIB);
}

uint64_t config_default_budget(const char *host_root)
{
        _cleanup_(cleanup_free) char *file = NULL;
        uint64_t total = hostmem_total_bytes(host_root), limit = hostmem_cgroup_limit_bytes(host_root, &file);
        uint64_t budget = total > 0 ? total / 2 : GIB;

        return MAX(ALIGN_DOWN(MIN(budget, limit / 5 * 4), HUGE_BYTES), HUGE_BYTES);
}

uint64_t config_budget_max(const char *host_root, char **ret_reason)
{
        _cleanup_(cleanup_free) char *file = NULL;
        uint64_t total = hostmem_total_bytes(host_root), limit = hostmem_cgroup_limit_bytes(host_root, &file);
        uint64_t by_total = total > 0 ? total / 10 * 9 : UINT64_MAX, by_limit = file ? limit / 5 * 4 : UINT64_MAX;
        int n;

        if (by_limit <= by_total)
                n = file ? asprintf(ret_reason, "80 %% of the %" PRIu64 " bytes of %s", limit, file)
                         : asprintf(ret_reason, "nothing");
        else
                n = asprintf(ret_reason, "90 %% of the %" PRIu64 " bytes of memory of this machine", total);
        if (n < 0)
                *ret_reason = NULL;
        return ALIGN_DOWN(MIN(by_total, by_limit), HUGE_BYTES);
}
