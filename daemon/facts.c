/* SPDX-License-Identifier: Apache-2.0 */
/* What `status` tells of the daemon as a whole; what the store has to tell it tells itself. */
#include "daemon/daemon-private.h"

#include <time.h>
#include <unistd.h>

#include "daemon/server/ring.h"

static uint64_t monotonic_ns(void)
{
        struct timespec now;

        if (clock_gettime(CLOCK_MONOTONIC, &now) < 0)
                return 0;
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void each_ring_fact(const Daemon *daemon, DispatchFactFn each, void *each_userdata)
{
        PollerFacts poller;
        RingFacts ring;

        daemon_ring_get_facts(&ring);
        poller_get_facts(daemon->poller, &poller);
        each(each_userdata, "ring.count", ring.n_rings, NULL);
        each(each_userdata, "ring.records", ring.n_records, NULL);
        each(each_userdata, "ring.bells", ring.n_bells, NULL);
        each(each_userdata, "poller.spin_us", poller.spin_ns / 1000, NULL);
        each(each_userdata, "poller.rounds", poller.n_rounds, NULL);
        each(each_userdata, "poller.cooled", poller.n_cooled, NULL);
        each(each_userdata, "poller.preempted", poller.n_preempted, NULL);
        each(each_userdata, "poller.in_the_way", poller.n_in_the_way, NULL);
        each(each_userdata, "poller.moved", poller.n_moved, NULL);
}

void daemon_each_fact(void *userdata, DispatchFactFn each, void *each_userdata)
{
        Daemon *daemon = userdata;

        each(each_userdata, "daemon.version", 0, FOLIO_VERSION);
        each(each_userdata, "daemon.pid", (uint64_t)getpid(), NULL);
        each(each_userdata, "daemon.uptime_s", (monotonic_ns() - daemon->started_ns) / UINT64_C(1000000000),
             NULL);
        each(each_userdata, "daemon.socket", 0, daemon->config.socket_path);
        each(each_userdata, "clients.count", listener_n_peers(daemon->listener), NULL);
        each(each_userdata, "clients.accepted", listener_n_accepted(daemon->listener), NULL);
        each(each_userdata, "clients.refused", listener_n_refused(daemon->listener), NULL);
        each(each_userdata, "requests.count", dispatch_n_requests(daemon->dispatch), NULL);
        each_ring_fact(daemon, each, each_userdata);
        daemon_each_keeper_fact(daemon, each, each_userdata);
        each(each_userdata, "loop.turn_us_max", daemon->turn_ns_max / 1000, NULL);
        each(each_userdata, "loop.turns_over_1ms", daemon->n_long_turns, NULL);
        each(each_userdata, "pressure.events", daemon->n_pressures, daemon->pressure ? NULL : "not watched");
        if (daemon->limit_bytes != UINT64_MAX)
                each(each_userdata, "memory.limit_bytes", daemon->limit_bytes, NULL);
        if (daemon->clamp_reason)
                each(each_userdata, "memory.budget_clamped", 0, daemon->clamp_reason);
}
