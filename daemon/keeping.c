/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the daemon outlives its process, and who sees to that: which keeper there is, the socket that goes from one
 * foliod to the next, and the end in which nothing is taken from anybody. Also the watchdog, which belongs to the same
 * manager.
 */
#include "daemon/daemon-private.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <event2/event.h>
#include <systemd/sd-daemon.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/service/keeper-process.h"
#include "daemon/service/log.h"

/* --- which one ---------------------------------------------------------------------------------------------------- */

/* Does a manager say that it stores descriptors? Before version 254 systemd does not, so that its unit has to. */
static bool is_manager_storing(void)
{
        const char *slots = getenv("FDSTORE"), *keeper = getenv("FOLIO_KEEPER");

        return getenv("NOTIFY_SOCKET") && ((slots && atoi(slots) > 0) || (keeper && strcmp(keeper, "systemd") == 0));
}

ConfigKeeper daemon_choose_keeper(const Config *config)
{
        /* Whatever the settings say by now: it has what there is. Another choice takes that it ends. */
        if (keeper_process_of_child() > 0)
                return CONFIG_KEEPER_PROCESS;
        if (config->keeper != CONFIG_KEEPER_AUTO)
                return config->keeper;
        return is_manager_storing() ? CONFIG_KEEPER_SYSTEMD : CONFIG_KEEPER_PROCESS;
}

bool daemon_is_kept_by_process(const Config *config)
{
        return daemon_choose_keeper(config) == CONFIG_KEEPER_PROCESS && keeper_process_of_child() == 0;
}

static void on_keeper_end(evutil_socket_t fd, short what, void *userdata)
{
        Daemon *daemon = userdata;

        keeper_set_gone(daemon->keeper);
        event_free(daemon->keeper_end);
        daemon->keeper_end = NULL;
        daemon->keeper_pidfd = close_fd(daemon->keeper_pidfd);
}

/* Where it cannot be watched its end is seen when it is needed. */
static void watch_keeper(Daemon *daemon, pid_t pid)
{
        daemon->keeper_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (getppid() != pid) {
                keeper_set_gone(daemon->keeper);
                return;
        }
        if (daemon->keeper_pidfd >= 0)
                daemon->keeper_end = event_new(daemon->base, daemon->keeper_pidfd, EV_READ, on_keeper_end, daemon);
        if (daemon->keeper_end)
                (void)event_add(daemon->keeper_end, NULL); /* as above */
}

static unsigned count_slots(const Config *config)
{
        const char *slots = getenv("FDSTORE");

        return slots ? MIN((unsigned)MAX(atoi(slots), 0), config->keeper_slots) : config->keeper_slots;
}

int daemon_start_keeper(Daemon *daemon)
{
        ConfigKeeper choice = daemon_choose_keeper(&daemon->config);
        KeeperConfig config = {
                .n_stored_max = count_slots(&daemon->config),
                .is_guess = choice == CONFIG_KEEPER_SYSTEMD && !getenv("FDSTORE"),
        };
        pid_t parent = keeper_process_of_child();
        int r;

        daemon->keeper_pidfd = -1;
        daemon->keeper_kind = CONFIG_KEEPER_NONE;
        /* PID 1 has a price for each that is stored, at every daemon-reload; our own process has none. */
        if (choice == CONFIG_KEEPER_PROCESS)
                config.n_segments_aim = config.n_stored_max / 2;
        if (choice == CONFIG_KEEPER_NONE || (choice == CONFIG_KEEPER_PROCESS && parent == 0))
                return 0;
        /* Said by who keeps, which has its reasons in the log. What it has passed to us is a socket at most. */
        if (config.n_stored_max == 0 && choice == CONFIG_KEEPER_PROCESS)
                return 0;
        r = keeper_new(&config, &daemon->keeper);
        if (r == KEEPER_E_GONE) {
                log_error("cannot start: keeper: there is no systemd that would keep anything (NOTIFY_SOCKET is not "
                          "set); --keeper process does without");
                return DAEMON_E_FAILED;
        }
        if (r < 0) {
                log_error("cannot start: keeper: %s", strerror(-r));
                return DAEMON_E_FAILED;
        }
        daemon->keeper_kind = choice;
        (void)unsetenv("FOLIO_KEEPER"); /* it was for us */
        if (choice == CONFIG_KEEPER_PROCESS)
                watch_keeper(daemon, parent);
        return 0;
}

static const char *describe_keeper(const Daemon *daemon)
{
        if (!daemon->keeper)
                return "none";
        if (keeper_is_gone(daemon->keeper))
                return "gone";
        return daemon->keeper_kind == CONFIG_KEEPER_SYSTEMD ? "systemd" : "process";
}

void daemon_each_keeper_fact(const Daemon *daemon, DispatchFactFn each, void *each_userdata)
{
        KeeperFacts facts = { 0 };

        each(each_userdata, "keeper.kind", 0, describe_keeper(daemon));
        if (daemon->keeper)
                keeper_get_facts(daemon->keeper, &facts);
        each(each_userdata, "keeper.direct", facts.n_direct, NULL);
        each(each_userdata, "keeper.parked", facts.n_parked, NULL);
        each(each_userdata, "keeper.parked_max", facts.n_parked_max, NULL);
        each(each_userdata, "keeper.segments", facts.n_segments, NULL);
        each(each_userdata, "keeper.slots", facts.n_stored_max, NULL);
        each(each_userdata, "keeper.moved", facts.n_moved, NULL);
        each(each_userdata, "keeper.failed", facts.n_failed, NULL);
}

/* --- the socket --------------------------------------------------------------------------------------------------- */

/* A keeper has taken the descriptors out of the environment. */
static int next_passed(Daemon *daemon, int at)
{
        if (daemon->keeper)
                return keeper_take_socket(daemon->keeper);
        return at < sd_listen_fds(0) ? SD_LISTEN_FDS_START + at : -1;
}

int daemon_take_activated_fd(Daemon *daemon, int *ret_fd)
{
        int fd, n = 0;

        *ret_fd = -1;
        while ((fd = next_passed(daemon, n)) >= 0) {
                if (n++ == 0 && sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) > 0)
                        *ret_fd = fd;
                else
                        (void)close_fd(fd);
        }
        (void)sd_listen_fds(1); /* they are ours now */
        if (n == 0 || (n == 1 && *ret_fd >= 0))
                return 0;
        *ret_fd = close_fd(*ret_fd);
        log_error("cannot start: the service manager passed %d descriptors; it takes one, a unix socket of type "
                  "SEQPACKET that listens", n);
        return DAEMON_E_FAILED;
}

/* @ret->fd -1: none. Of several the last counts: there is one at most unless something went wrong. */
void daemon_take_kept_socket(Daemon *daemon, SocketKept *ret)
{
        KeptRecord record;
        Kept *kept;
        int fd;

        *ret = (SocketKept){ .fd = -1 };
        while (daemon->keeper && (fd = keeper_take_listener(daemon->keeper, &record, &kept)) >= 0) {
                (void)close_fd(ret->fd);
                keeper_drop(daemon->keeper, daemon->kept_socket);
                *ret = (SocketKept){ fd, record.id, record.detail };
                daemon->kept_socket = kept;
        }
}

void daemon_keep_socket(Daemon *daemon, SocketKept *consume_offered)
{
        KeptRecord record = { .kind = KEPT_LISTENER };
        SocketKept own;
        int r;

        /* It was taken: what keeps it goes on keeping it. */
        if (daemon->kept_socket && consume_offered->fd < 0)
                return;
        keeper_drop(daemon->keeper, steal_ptr(&daemon->kept_socket));
        consume_offered->fd = close_fd(consume_offered->fd);
        if (!daemon->keeper || !listener_get_kept(daemon->listener, &own))
                return;
        daemon->is_leaving = false; /* nobody had it before us, and nobody will after a start that fails */
        record.id = own.device;
        record.detail = own.inode;
        r = keeper_keep(daemon->keeper, &record, own.fd, true, &daemon->kept_socket);
        if (r != 0)
                log_warning("clients that connect while foliod is started again will be refused: %s",
                            keeper_explain(daemon->keeper, r));
}

/* --- objects ------------------------------------------------------------------------------------------------------ */

static void tell_restored(const StoreRestoreFacts *facts)
{
        const LogField fields[] = {
                LOG_FIELD_NUMBER("FOLIO_OBJECTS", facts->n_objects),
                LOG_FIELD_NUMBER("FOLIO_BYTES", facts->object_bytes),
                LOG_FIELD_NUMBER("FOLIO_SESSIONS", facts->n_sessions),
                LOG_FIELD_NUMBER("FOLIO_DROPPED", facts->n_dropped),
        };

        for (unsigned i = 0; i < facts->n_lines; i++) {
                const LogField field = LOG_FIELD_TEXT("FOLIO_REASON", facts->lines[i]);

                log_event(LOG_EVENT_OBJECT_DROPPED, LOG_LEVEL_WARNING, &field, 1, "not taken over: %s", facts->lines[i]);
        }
        if (facts->n_bad > 0)
                log_warning("%" PRIu64 " descriptors that an earlier foliod left could not be used", facts->n_bad);
        if (facts->n_namespaces == 0 && facts->n_dropped == 0)
                return;
        log_event(LOG_EVENT_RESTORED, LOG_LEVEL_NOTICE, fields, ARRAY_SIZE(fields),
                  "taken over from an earlier foliod: %" PRIu64 " objects of %" PRIu64 " bytes in %" PRIu64 " namespaces, "
                  "%" PRIu64 " clients, in %" PRIu64 " us; %" PRIu64 " objects were lost", facts->n_objects,
                  facts->object_bytes, facts->n_namespaces, facts->n_sessions, facts->us, facts->n_dropped);
}

int daemon_restore(Daemon *daemon)
{
        _cleanup_(cleanup_free) char *message = NULL;
        StoreRestoreFacts facts;
        int r;

        if (!daemon->keeper)
                return 0;
        r = store_restore(daemon->store, &facts, &message);
        /* Ours has been taken already; another is of no use to anybody. */
        (void)close_fd(facts.listener_fd);
        keeper_drop(daemon->keeper, facts.listener_kept);
        if (r == 0) {
                keeper_reserve(daemon->keeper);
                tell_restored(&facts);
                return 0;
        }
        log_error("cannot start: %s", message ? message : keeper_explain(daemon->keeper, r < 0 ? r : KEEPER_E_NEWER));
        return DAEMON_E_FAILED;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

bool daemon_is_left(const Daemon *daemon)
{
        return daemon->keeper != NULL;
}

void daemon_freeze_keeper(Daemon *daemon)
{
        if (!daemon->keeper)
                return;
        if (daemon->is_leaving && daemon->kept_socket && daemon->listener && !keeper_is_gone(daemon->keeper))
                listener_leave_socket(daemon->listener);
        else
                keeper_drop(daemon->keeper, steal_ptr(&daemon->kept_socket));
        keeper_freeze(daemon->keeper);
}

void daemon_free_keeper(Daemon *daemon)
{
        if (daemon->keeper_end)
                event_free(daemon->keeper_end);
        daemon->keeper_end = NULL;
        daemon->keeper_pidfd = close_fd(daemon->keeper_pidfd);
        if (!daemon->keeper)
                return;
        keeper_free(daemon->keeper);
        daemon->keeper = NULL;
}

/* --- the watchdog ------------------------------------------------------------------------------------------------- */

static void on_watchdog(evutil_socket_t fd, short what, void *userdata)
{
        (void)sd_notify(0, "WATCHDOG=1"); /* nobody need listen */
}

/* Fed by the loop, and by nothing else: a loop that stands still is what it is for. */
int daemon_start_watchdog(Daemon *daemon)
{
        struct timeval half;
        uint64_t us = 0;

        if (sd_watchdog_enabled(0, &us) <= 0 || us == 0)
                return 0;
        us = MAX(us / 2, 1000);
        half = (struct timeval){ (time_t)(us / 1000000), (suseconds_t)(us % 1000000) };
        daemon->watchdog = event_new(daemon->base, -1, EV_PERSIST, on_watchdog, daemon);
        return daemon->watchdog && event_add(daemon->watchdog, &half) == 0 ? 0 : -ENOMEM;
}
