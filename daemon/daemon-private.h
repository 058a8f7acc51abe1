/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of the daemon share: its parts, and what one has for the other. */
#ifndef DAEMON_DAEMON_PRIVATE_H
#define DAEMON_DAEMON_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/daemon.h"
#include "daemon/service/keeper.h"
#include "daemon/server/dispatch.h"
#include "daemon/server/listener.h"
#include "daemon/server/poller.h"
#include "daemon/service/pressure.h"
#include "daemon/service/worker.h"
#include "daemon/store/store.h"

struct event;
struct event_base;

struct Daemon {
        Config config;
        int argc;
        char **argv;
        uint64_t started_ns;         /* monotonic */
        uint64_t asked_budget_bytes; /* by the settings; 0: left to us */
        uint64_t asked_pool_bytes;   /* by the settings; UINT64_MAX: left to us */
        char *clamp_reason;          /* why the budget is less than asked for; NULL: it is not */
        uint64_t limit_bytes;        /* of the cgroup, as last seen; UINT64_MAX: none */
        Pressure *pressure;          /* NULL: it cannot be watched */
        uint64_t n_pressures;        /* how often there was some */
        unsigned pressure_said_s;    /* n_seconds when the log had a line about it */
        unsigned n_seconds;
        Keeper *keeper;              /* NULL: nothing outlives us */
        ConfigKeeper keeper_kind;
        int keeper_pidfd;            /* of a process that keeps; -1 */
        struct event *keeper_end;
        Kept *kept_socket;           /* NULL: it is not ours, or nobody keeps it */
        struct event *watchdog;      /* NULL: there is none */
        struct event_base *base;
        Listener *listener;
        WorkerPool *workers;
        Store *store;
        Poller *poller;              /* of rings */
        DaemonBeacon *beacon;
        Ghosts *ghosts;              /* sessions that an earlier foliod has left us */
        Dispatch *dispatch;
        struct event *signals[4];
        struct event *housekeeping;
        struct event *expiry;
        uint64_t expiry_armed_ns;    /* what the timer is set to; UINT64_MAX: it is not */
        uint64_t idle_s;
        uint64_t turn_ns_max;        /* processor time of the longest turn of the loop so far */
        uint64_t n_long_turns;       /* of over TURN_LONG_NS */
        bool is_stopping;
        bool is_leaving;             /* the socket is another foliod's, too: we end for it, or have not begun */
};

/* --- facts.c ------------------------------------------------------------------------------------------------------ */

void daemon_each_fact(void *userdata, DispatchFactFn each, void *each_userdata);

/* --- keeping.c ---------------------------------------------------------------------------------------------------- */

/* 0 or DAEMON_E_FAILED, and the log says why. Without one daemon->keeper stays NULL. */
int daemon_start_keeper(Daemon *daemon);
void daemon_each_keeper_fact(const Daemon *daemon, DispatchFactFn each, void *each_userdata);

/* The socket that a service manager made for us; -1: none. 0 or DAEMON_E_FAILED. */
int daemon_take_activated_fd(Daemon *daemon, int *ret_fd);

/* The socket of ours that a predecessor had; @ret->fd -1: none. */
void daemon_take_kept_socket(Daemon *daemon, SocketKept *ret);

/* With the listener there, which has taken what was offered, or has a socket of its own. */
void daemon_keep_socket(Daemon *daemon, SocketKept *consume_offered);

/* What a predecessor has left becomes the store's. 0 or DAEMON_E_FAILED. */
int daemon_restore(Daemon *daemon);

/*
 * At the end, does what there is go on without us, at another foliod or for as long as the keeper is there? Then nothing
 * is taken from anybody.
 */
bool daemon_is_left(const Daemon *daemon);

/* The first thing at the end, and the last. */
void daemon_freeze_keeper(Daemon *daemon);
void daemon_free_keeper(Daemon *daemon);

/* 0, or -ENOMEM. */
int daemon_start_watchdog(Daemon *daemon);

/* --- reload.c ----------------------------------------------------------------------------------------------------- */

/* Remembers what was asked for, and makes of it what there can be. */
void daemon_settle_budget(Daemon *daemon);

/* False: one of them cannot be; all others are done. */
bool daemon_configure_namespaces(Daemon *daemon, const Config *config);

/* Reads the settings again; what can change at run time changes. */
void daemon_reload(Daemon *daemon);

/* Begins to watch the machine's memory; where that cannot be, says so. Once a second: looks at what cannot be watched. */
void daemon_watch_memory(Daemon *daemon);
void daemon_look_at_memory(Daemon *daemon);

#endif
