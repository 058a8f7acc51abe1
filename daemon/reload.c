/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changes while the daemon runs: the settings, when somebody asks to read them again, and what the machine has to
 * give. The budget is what was asked for, as far as the cgroup's limit allows it, and that can change at any time: it is
 * looked at every few seconds, since no file of a cgroup says when its limit is written.
 */
#include "daemon/daemon-private.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/service/hostmem.h"
#include "daemon/service/log.h"

#define LIMIT_LOOK_S 4
#define PRESSURE_QUIET_S 60

/* --- the settings ------------------------------------------------------------------------------------------------- */

/* More than there can be is not promised to anybody. */
static void clamp_budget(Config *config, char **ret_reason)
{
        _cleanup_(cleanup_free) char *reason = NULL;
        uint64_t max = config_budget_max(config->host_root, &reason);

        free(steal_ptr(ret_reason));
        if (config->budget_bytes <= max)
                return;
        log_warning("budget: %" PRIu64 " MiB is more than there is: %" PRIu64 " MiB, %s, is used",
                    config->budget_bytes / MIB, max / MIB, reason ? reason : "by the limits of this machine");
        config->pool_bytes_max = MIN(config->pool_bytes_max, max / 16);
        config->budget_bytes = max;
        *ret_reason = steal_ptr(&reason);
}

void daemon_warn_of_settings(Config *config)
{
        _cleanup_(cleanup_free) char *reason = NULL;

        log_configure(config->log_level, LOG_TARGET_STDERR);
        clamp_budget(config, &reason);
}

static ProtoNamespace namespace_settings(const ConfigNamespace *from)
{
        ProtoNamespace settings = {
                .fields = from->fields,
                .owner_uid = from->owner_uid,
                .owner_gid = from->owner_gid,
                .mode = from->mode,
                .backing = from->backing,
                .huge = from->huge,
                .writers = from->writers,
                .quota_bytes = from->quota_bytes,
                .quota_objects = from->quota_objects,
                .objects_max = from->objects_max,
        };

        static_assert(sizeof(settings.name) == sizeof(from->name), "names are alike");
        memcpy(settings.name, from->name, sizeof(settings.name));
        return settings;
}

bool daemon_configure_namespaces(Daemon *daemon, const Config *config)
{
        bool ok = true;

        for (size_t i = 0; i < config->n_namespaces; i++) {
                _cleanup_(cleanup_free) char *detail = NULL;
                ProtoNamespace settings = namespace_settings(&config->namespaces[i]);
                Status status = store_namespace_configure(daemon->store, &settings, &detail);

                if (status == STATUS_OK)
                        continue;
                log_error("namespace %s: %s", settings.name, detail ? detail : status_to_text(status));
                ok = false;
        }
        return ok;
}

static void warn_of_fixed(const Config *before, const Config *after)
{
        static const char text[] = "%s has changed; that takes a restart";

        if (strcmp(before->socket_path, after->socket_path) != 0 || before->socket_mode != after->socket_mode)
                log_warning(text, "socket");
        if (before->packed_bytes_max != after->packed_bytes_max)
                log_warning(text, "packed-max");
        if (before->staging_bytes != after->staging_bytes)
                log_warning(text, "staging");
        if (before->objects_max != after->objects_max)
                log_warning(text, "objects-max");
        if (before->n_events != after->n_events)
                log_warning(text, "events");
        if (before->n_namespaces_max != after->n_namespaces_max)
                log_warning(text, "namespaces-max");
        if (before->huge != after->huge)
                log_warning(text, "huge");
        if (before->packed_protection != after->packed_protection)
                log_warning(text, "packed-protection");
        if (strcmp(before->tmpfs_directory ? before->tmpfs_directory : "", after->tmpfs_directory ? after->tmpfs_directory : "") != 0)
                log_warning(text, "tmpfs-directory");
        if (before->n_workers != after->n_workers)
                log_warning(text, "workers");
        if (before->keeper != after->keeper)
                log_warning(text, "keeper");
        if (before->keeper_slots != after->keeper_slots)
                log_warning(text, "keeper-slots");
}

/* What the cgroup leaves, now. */
static void look_at_limit(Daemon *daemon)
{
        _cleanup_(cleanup_free) char *file = NULL;
        uint64_t used_bytes = 0, limit_bytes = UINT64_MAX;

        daemon->limit_bytes = hostmem_cgroup_limit_bytes(daemon->config.host_root, &file);
        if (!hostmem_cgroup_room(daemon->config.host_root, &limit_bytes, &used_bytes))
                limit_bytes = UINT64_MAX;
        store_set_host(daemon->store, limit_bytes, used_bytes);
}

/* What was asked for, as it is now that the limits are what they are. */
static void resolve_budget(Daemon *daemon, Config *config)
{
        config->budget_bytes = daemon->asked_budget_bytes ? daemon->asked_budget_bytes :
                                                            config_default_budget(config->host_root);
        config->pool_bytes_max = daemon->asked_pool_bytes != UINT64_MAX ? daemon->asked_pool_bytes :
                                                                          config_default_pool(config->budget_bytes);
        clamp_budget(config, &daemon->clamp_reason);
}

static void remember_asked(Daemon *daemon, const Config *config)
{
        daemon->asked_budget_bytes = config->is_budget_given ? config->budget_bytes : 0;
        daemon->asked_pool_bytes = config->is_pool_given ? config->pool_bytes_max : UINT64_MAX;
}

void daemon_settle_budget(Daemon *daemon)
{
        remember_asked(daemon, &daemon->config);
        resolve_budget(daemon, &daemon->config);
}

static void apply_budget(Daemon *daemon, const Config *config)
{
        daemon->config.pool_bytes_max = config->pool_bytes_max;
        store_set_pool(daemon->store, config->pool_bytes_max);
        if (daemon->config.budget_bytes == config->budget_bytes)
                return;
        store_set_budget(daemon->store, config->budget_bytes);
        dispatch_set_budget(daemon->dispatch, config->budget_bytes);
        daemon->config.budget_bytes = config->budget_bytes;
}

/* What can change at run time changes; the rest stays as it was, and in force. */
static void apply(Daemon *daemon, Config *config)
{
        warn_of_fixed(&daemon->config, config);
        log_configure(config->log_level, config->log_target);
        config->host_root = daemon->config.host_root;
        remember_asked(daemon, config);
        resolve_budget(daemon, config);
        listener_set_limits(daemon->listener, config->clients_max, config->clients_per_uid_max);
        (void)daemon_configure_namespaces(daemon, config); /* the log has what cannot be; the rest goes on */
        daemon->config.log_level = config->log_level;
        daemon->config.log_target = config->log_target;
        daemon->config.clients_max = config->clients_max;
        daemon->config.clients_per_uid_max = config->clients_per_uid_max;
        daemon->config.idle_exit_s = config->idle_exit_s;
        daemon->config.session_bytes_max = config->session_bytes_max;
        store_set_session_limit(daemon->store, config->session_bytes_max);
        apply_budget(daemon, config);
        look_at_limit(daemon);
}

void daemon_reload(Daemon *daemon)
{
        _cleanup_(cleanup_free) char *message = NULL;
        Config config = CONFIG_NULL;
        int r;

        r = config_read(&config, daemon->argc, daemon->argv, &message);
        if (r == 0) {
                apply(daemon, &config);
                log_notice("settings have been read again; the budget is %" PRIu64 " MiB",
                           daemon->config.budget_bytes / MIB);
        } else {
                log_error("settings stay as they are: %s", message ? message : strerror(-r));
        }
        config_deinit(&config);
}

/* --- the machine's memory ----------------------------------------------------------------------------------------- */

/* Another limit than before: the budget follows it, up and down. */
static void follow_limit(Daemon *daemon)
{
        Config config = daemon->config; /* of which only the numbers are used */

        resolve_budget(daemon, &config);
        if (config.budget_bytes == daemon->config.budget_bytes && config.pool_bytes_max == daemon->config.pool_bytes_max)
                return;
        apply_budget(daemon, &config);
        log_notice("the cgroup's limit of memory has changed; the budget is now %" PRIu64 " MiB",
                   daemon->config.budget_bytes / MIB);
}

void daemon_look_at_memory(Daemon *daemon)
{
        uint64_t before = daemon->limit_bytes;

        store_tick(daemon->store);
        if (++daemon->n_seconds % LIMIT_LOOK_S != 0)
                return;
        look_at_limit(daemon);
        if (daemon->limit_bytes != before)
                follow_limit(daemon);
}

static void on_pressure(void *userdata)
{
        Daemon *daemon = userdata;

        /* It comes in bursts: one line a minute. */
        if (daemon->n_pressures++ == 0 || daemon->n_seconds - daemon->pressure_said_s >= PRESSURE_QUIET_S) {
                const LogField field = LOG_FIELD_NUMBER("FOLIO_PRESSURES", daemon->n_pressures);

                daemon->pressure_said_s = daemon->n_seconds;
                log_event(LOG_EVENT_MEMORY_PRESSURE, LOG_LEVEL_NOTICE, &field, 1,
                          "the machine is short of memory: what is kept warm is given back");
        }
        store_relieve(daemon->store);
}

void daemon_watch_memory(Daemon *daemon)
{
        const Config *config = &daemon->config;
        int r;

        if (config->pressure_fd >= 0)
                r = pressure_new_fd(daemon->base, config->pressure_fd, on_pressure, daemon, &daemon->pressure);
        else
                r = pressure_new(daemon->base, config->host_root, on_pressure, daemon, &daemon->pressure);
        daemon->config.pressure_fd = -1;
        if (r < 0)
                log_info("memory pressure cannot be watched (%s): what is kept warm goes only by the limits",
                         strerror(-r));
        look_at_limit(daemon);
}
