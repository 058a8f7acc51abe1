/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: built-in values, then foliod.conf, then its drop-ins in the order of their names, then the command line;
 * the later wins. Read whole and checked before anything is done with them; nobody else reads argv, the environment or
 * a file of settings.
 */
#ifndef DAEMON_SERVICE_CONFIG_H
#define DAEMON_SERVICE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/service/log.h"
#include "folio/types.h"

typedef struct ConfigNamespace {
        char name[FOLIO_NAMESPACE_BYTES_MAX + 1];
        uint32_t fields;             /* FOLIO_NAMESPACE_FIELD_*: given */
        uint32_t owner_uid;
        uint32_t owner_gid;
        uint32_t mode;
        uint64_t quota_bytes;
        uint64_t quota_objects;
        uint64_t objects_max;
        enum folio_backing backing;
        enum folio_huge huge;
        enum folio_writers writers;
} ConfigNamespace;

/* What keeps descriptors for the next foliod. */
typedef enum ConfigKeeper {
        CONFIG_KEEPER_AUTO,
        CONFIG_KEEPER_SYSTEMD,
        CONFIG_KEEPER_PROCESS,
        CONFIG_KEEPER_NONE,
} ConfigKeeper;

typedef struct Config {
        /* [daemon] */
        char *socket_path;           /* by --user and --system, where not given */
        uint32_t socket_mode;        /* 0600 of a user's daemon, else 0666, where not given */
        bool is_user_daemon;         /* --user */
        unsigned n_workers;          /* 0: by the number of CPUs */
        uint64_t idle_exit_s;        /* 0: never */
        uint64_t clients_max;
        uint64_t clients_per_uid_max;
        int ready_fd;                /* --ready-fd: written one byte and closed when clients can connect; -1 */
        ConfigKeeper keeper;
        unsigned keeper_slots;       /* descriptors it holds at most */
        LogLevel log_level;
        LogTarget log_target;
        /* [memory] */
        uint64_t budget_bytes;       /* config_default_budget() where not given; can be more than config_budget_max() */
        uint64_t packed_bytes_max;
        bool is_budget_given;        /* else it follows the limits of the machine */
        uint64_t pool_bytes_max;     /* by the budget, where not given */
        bool is_pool_given;
        uint64_t staging_bytes;
        uint64_t objects_max;        /* of a namespace's index */
        uint32_t n_events;
        uint32_t n_namespaces_max;
        uint64_t session_bytes_max;  /* of staging and pin tables, for one uid */
        enum folio_huge huge;
        int packed_protection;       /* StoreProtection: auto, seals, mode */
        char *tmpfs_directory;       /* NULL: none is there for us */
        /* [namespace NAME] */
        ConfigNamespace *namespaces;
        size_t n_namespaces;
        /* No settings, but where the daemon looks: a test has its own. */
        const char *host_root;       /* as of hostmem.h; borrowed */
        int pressure_fd;             /* as of pressure_new_fd(); -1: the kernel's */
} Config;

#define CONFIG_NULL { .ready_fd = -1, .host_root = "", .pressure_fd = -1 }

enum {
        CONFIG_E_USAGE = 1,          /* the sentence is in *@ret_message */
        CONFIG_E_CHECKED = 2,        /* --check-config: all is well, *@ret_message is the configuration in force */
        CONFIG_E_HELP = 3,           /* --help or --version: *@ret_message is the text */
};

/*
 * 0, CONFIG_E_* or -ENOMEM. @config is CONFIG_NULL, and needs its config_deinit() whatever comes of it. *@ret_message
 * is to be freed, and NULL with 0.
 */
int config_read(Config *config, int argc, char **argv, char **ret_message);
void config_deinit(Config *config);

/* Settings from an open file called @name, on top of what @config has: part of config_read(), and for the fuzzer. */
int config_read_stream(Config *config, const char *name, FILE *stream, char **ret_message);

/* @config as a file of settings that says the same. NULL: no memory. */
char *config_print(const Config *config);

/* Half of memory, or 80 % of the cgroup's limit, whichever is less. */
uint64_t config_default_budget(const char *host_root);

/* A sixteenth of the budget, at most 256 MiB. */
uint64_t config_default_pool(uint64_t budget_bytes);

/*
 * The most that makes sense: 80 % of the cgroup's limit, or 90 % of memory, whichever is less. @ret_reason says which
 * it was; to be freed.
 */
uint64_t config_budget_max(const char *host_root, char **ret_reason);

#endif
