/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of the daemon share: its parts, and what one has for the other. */
#ifndef DAEMON_DAEMON_PRIVATE_H
#define DAEMON_DAEMON_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/daemon.h"
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
        unsigned n_seconds;
        struct event_base *base;
        Listener *listener;
        WorkerPool *workers;
        Store *store;
        Poller *poller;              /* of rings */
        Dispatch *dispatch;
        struct event *signals[3];
        struct event *housekeeping;
        struct event *expiry;
        uint64_t expiry_armed_ns;    /* what the timer is set to; UINT64_MAX: it is not */
        uint64_t idle_s;
        uint64_t turn_ns_max;        /* processor time of the longest turn of the loop so far */
        uint64_t n_long_turns;       /* of over TURN_LONG_NS */
        bool is_stopping;
};

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
