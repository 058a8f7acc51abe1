/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket comes first: of many that start at once one gets its lock, and only that one takes memory; clients that
 * connect meanwhile wait in the backlog. The last thing is to say that we are ready.
 *
 * Each turn of the loop carries out what was ready, and then lets the store write the wake-ups it has put off, before
 * the loop sleeps. It does not sleep while the poller has rings to look at: then its turns and the loop's alternate.
 *
 * PR_SET_THP_DISABLE is not set to keep our own heap small: it would also make MADV_COLLAPSE fail; one that we
 * inherited is taken back.
 */
#include "daemon/daemon-private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>
#include <systemd/sd-daemon.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/server/ring.h"
#include "daemon/service/keeper-process.h"
#include "daemon/service/log.h"

#define WORKERS_MIN 3 /* idle work, memory being made, and one for who waits for a copy */
#define WORKERS_MAX 8
#define HOUSEKEEPING_S 1
#define EXPIRY_LOOK_S 60 /* at least so often: the clock that lifetimes go by can be set */
#define TURN_LONG_NS UINT64_C(1000000)
#define SPIN_NS_MAX UINT64_C(50000) /* a sleeper's way through the kernel and back, twice */

static uint64_t clock_ns(clockid_t clock)
{
        struct timespec now;

        if (clock_gettime(clock, &now) < 0)
                return 0;
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t realtime_ns(void)
{
        return clock_ns(CLOCK_REALTIME);
}

static uint64_t monotonic_ns(void)
{
        return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t thread_cpu_ns(void)
{
        return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static int fail(const char *what, int error)
{
        log_error("cannot start: %s: %s", what, strerror(error < 0 ? -error : error));
        return DAEMON_E_FAILED;
}

/* --- what it says of itself --------------------------------------------------------------------------------------- */

typedef struct Summary {
        char text[512];
        size_t n_bytes;
} Summary;

static void summarize(void *userdata, const char *name, uint64_t value, const char *text)
{
        Summary *summary = userdata;
        int n;

        if (!text || (strncmp(name, "backend.", 8) != 0 && strncmp(name, "huge.", 5) != 0))
                return;
        n = snprintf(summary->text + summary->n_bytes, sizeof(summary->text) - summary->n_bytes, "%s%s: %s",
                     summary->n_bytes > 0 ? "; " : "", name, text);
        if (n > 0)
                summary->n_bytes = MIN(summary->n_bytes + (size_t)n, sizeof(summary->text) - 1);
}

static void announce(Daemon *daemon)
{
        Summary summary = { .text = "" };
        const LogField fields[] = {
                LOG_FIELD_TEXT("FOLIO_VERSION", FOLIO_VERSION),
                LOG_FIELD_TEXT("FOLIO_SOCKET", daemon->config.socket_path),
                LOG_FIELD_NUMBER("FOLIO_BUDGET_BYTES", daemon->config.budget_bytes),
        };

        store_each_fact(daemon->store, summarize, &summary);
        log_event(LOG_EVENT_STARTED, LOG_LEVEL_NOTICE, fields, ARRAY_SIZE(fields),
                  "foliod " FOLIO_VERSION " is ready: socket %s, budget %" PRIu64 " MiB", daemon->config.socket_path,
                  daemon->config.budget_bytes / MIB);
        if (summary.n_bytes > 0)
                log_info("memory: %s", summary.text);
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static void stop(Daemon *daemon)
{
        daemon->is_stopping = true;
        (void)event_base_loopbreak(daemon->base); /* the flag is what counts */
}

static void reload(Daemon *daemon)
{
        /* Nobody need listen. */
        (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_ns(CLOCK_MONOTONIC) / 1000);
        daemon_reload(daemon);
        (void)sd_notify(0, "READY=1"); /* as above */
}

static void on_signal(evutil_socket_t number, short what, void *userdata)
{
        Daemon *daemon = userdata;

        if (number == SIGHUP) {
                reload(daemon);
                return;
        }
        if (number == SIGUSR1 && (!daemon->keeper || keeper_is_gone(daemon->keeper))) {
                log_warning("signal %d is ignored: nobody keeps the objects of this foliod, and they would end with it",
                            (int)number);
                return;
        }
        /* Whether another foliod comes a service manager does not say: if none does, it forgets what it keeps. */
        daemon->is_leaving = number == SIGUSR1 || daemon->keeper_kind == CONFIG_KEEPER_SYSTEMD;
        log_notice("stopping: signal %d", (int)number);
        if (daemon->keeper_kind == CONFIG_KEEPER_SYSTEMD && !getenv("FDSTORE") && !store_is_empty(daemon->store))
                log_notice("a restart takes the objects over; a stop ends them, with a systemd before 254");
        stop(daemon);
}

static void on_message(Peer *peer, const void *bytes, size_t n_bytes, void *userdata)
{
        Daemon *daemon = userdata;

        dispatch_message(peer, bytes, n_bytes, daemon->dispatch);
}

static bool is_tool(const void *bytes, size_t n_bytes, void *userdata)
{
        Daemon *daemon = userdata;

        return dispatch_is_tool(daemon->dispatch, bytes, n_bytes);
}

static void on_hangup(void *userdata)
{
        Daemon *daemon = userdata;

        /* What only this client held can go now. */
        store_sweep_held(daemon->store);
        daemon->idle_s = 0;
}

static void on_housekeeping(evutil_socket_t fd, short what, void *userdata)
{
        Daemon *daemon = userdata;

        store_sweep_held(daemon->store);
        daemon_look_at_memory(daemon);
        if (daemon->config.idle_exit_s == 0 || listener_n_peers(daemon->listener) > 0 ||
            !store_is_empty(daemon->store)) {
                daemon->idle_s = 0;
                return;
        }
        daemon->idle_s += HOUSEKEEPING_S;
        if (daemon->idle_s < daemon->config.idle_exit_s)
                return;
        log_notice("stopping: empty and unused for %" PRIu64 " s", daemon->config.idle_exit_s);
        stop(daemon);
}

static void on_expiry(evutil_socket_t fd, short what, void *userdata)
{
        Daemon *daemon = userdata;

        daemon->expiry_armed_ns = UINT64_MAX;
        store_expire(daemon->store);
}

/* The next moment can have come nearer with any request. */
static void arm_expiry(Daemon *daemon)
{
        uint64_t next_ns = store_next_expiry_ns(daemon->store), now, wait_us;
        struct timeval timeout;

        if (next_ns == daemon->expiry_armed_ns)
                return;
        daemon->expiry_armed_ns = UINT64_MAX;
        (void)event_del(daemon->expiry); /* cannot fail for an event of ours */
        if (next_ns == UINT64_MAX)
                return;
        now = realtime_ns();
        wait_us = next_ns > now ? (next_ns - now) / 1000 + 1 : 1;
        wait_us = MIN(wait_us, EXPIRY_LOOK_S * UINT64_C(1000000));
        timeout = (struct timeval){ (time_t)(wait_us / 1000000), (suseconds_t)(wait_us % 1000000) };
        /* Should it fail, the next turn tries again. */
        if (event_add(daemon->expiry, &timeout) == 0)
                daemon->expiry_armed_ns = next_ns;
}

/*
 * What a turn cost the loop itself: processor time, so that neither sleeping nor a busy machine counts. To ask for that
 * is a system call; a turn that has not even taken so long by the clock on the wall is not asked about.
 */
typedef struct TurnClock {
        uint64_t wall_ns;            /* when the turn began */
        uint64_t cpu_ns;             /* processor time, as last asked for */
        uint64_t unasked_ns;         /* by the wall, since then and before this turn */
} TurnClock;

static void start_clock(TurnClock *clock)
{
        *clock = (TurnClock){ clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_THREAD_CPUTIME_ID), 0 };
}

static void count_turn(Daemon *daemon, TurnClock *clock)
{
        uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), turn_ns = now_ns - clock->wall_ns, cpu_ns, used_ns;

        clock->wall_ns = now_ns;
        if (turn_ns <= daemon->turn_ns_max && turn_ns <= TURN_LONG_NS) {
                clock->unasked_ns += turn_ns;
                return;
        }
        cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        used_ns = cpu_ns - clock->cpu_ns;
        used_ns -= MIN(used_ns, clock->unasked_ns); /* of the turns before, as much as it can have been */
        turn_ns = MIN(turn_ns, used_ns);
        clock->cpu_ns = cpu_ns;
        clock->unasked_ns = 0;
        daemon->turn_ns_max = MAX(daemon->turn_ns_max, turn_ns);
        daemon->n_long_turns += turn_ns > TURN_LONG_NS;
}

int daemon_run(Daemon *daemon)
{
        TurnClock clock;

        start_clock(&clock);
        while (!daemon->is_stopping) {
                bool is_hot;

                arm_expiry(daemon);
                is_hot = poller_turn(daemon->poller);
                if (event_base_loop(daemon->base, EVLOOP_ONCE | (is_hot ? EVLOOP_NONBLOCK : 0)) != 0) {
                        log_error("the event loop failed: %s", strerror(errno));
                        return DAEMON_E_FAILED;
                }
                store_flush(daemon->store);
                count_turn(daemon, &clock);
        }
        return 0;
}

/* --- start and stop ----------------------------------------------------------------------------------------------- */

static void prepare_process(void)
{
        struct rlimit limit;

        (void)signal(SIGPIPE, SIG_IGN); /* cannot fail for a signal there is */
        /* Descriptors are what a daemon like this runs out of first; a soft limit is for programs that use select(). */
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
                        log_warning("the limit of open files stays at its soft value: %s", strerror(errno));
        }
        (void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); /* a kernel without huge pages has none to lose */
}

/* That we may use; 1 where that is not known. */
static int count_cpus(void)
{
        cpu_set_t cpus;

        return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

static unsigned choose_n_workers(const Config *config)
{
        return config->n_workers > 0 ? config->n_workers : (unsigned)CLAMP(count_cpus(), WORKERS_MIN, WORKERS_MAX);
}

static void flush_store(void *userdata)
{
        Daemon *daemon = userdata;

        store_flush(daemon->store);
}

/*
 * To any other processor that we may use. The kernel moves a thread that may not stay where it is at once, and leaves it
 * there afterwards for as long as it sees no reason. Whatever fails leaves us where we are.
 */
static void move_away(void *userdata)
{
        cpu_set_t all, others;
        int cpu = sched_getcpu();

        if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(all), &all) < 0)
                return;
        others = all;
        CPU_CLR(cpu, &others);
        if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0)
                (void)sched_setaffinity(0, sizeof(all), &all); /* it was allowed a moment ago */
}

static int start_poller(Daemon *daemon)
{
        PollerConfig config = {
                /* With one processor, who looks for something keeps it from coming. */
                .spin_ns_max = count_cpus() > 1 ? SPIN_NS_MAX : 0,
                .now_ns = monotonic_ns,
                .cpu_ns = thread_cpu_ns,
                .flush = flush_store,
                .move = move_away,
                .userdata = daemon,
        };
        int r = poller_new(&config, &daemon->poller);

        return r < 0 ? fail("making the poller", r) : 0;
}

static int start_listener(Daemon *daemon)
{
        _cleanup_(cleanup_free) char *message = NULL;
        ListenerConfig config = {
                .base = daemon->base,
                .socket_path = daemon->config.socket_path,
                .socket_mode = daemon->config.socket_mode,
                .clients_max = daemon->config.clients_max,
                .clients_per_uid_max = daemon->config.clients_per_uid_max,
                .on_message = on_message,
                .message_userdata = daemon,
                .is_tool = is_tool,
                .tool_userdata = daemon,
                .on_hangup = on_hangup,
                .hangup_userdata = daemon,
        };
        SocketKept kept;
        int r = daemon_take_activated_fd(daemon, &config.activated_fd);

        if (r != 0)
                return r;
        daemon_take_kept_socket(daemon, &kept);
        config.kept = &kept;
        r = listener_new(&config, &daemon->listener, &message);
        if (r == 0)
                daemon_keep_socket(daemon, &kept);
        kept.fd = close_fd(kept.fd);
        if (r == LISTENER_E_RUNNING) {
                log_notice("not started: %s", message ? message : "another foliod runs");
                return DAEMON_E_RUNNING;
        }
        if (r != 0) {
                log_error("cannot start: %s", message ? message : strerror(r < 0 ? -r : EPERM));
                return DAEMON_E_FAILED;
        }
        return 0;
}

/* All that outlived our predecessor is there; who lights the beacon is the thread that turns the loop. */
static int start_ghosts(Daemon *daemon)
{
        GhostsConfig config = {
                .host = {
                        .base = daemon->base,
                        .store = daemon->store,
                        .poller = daemon->poller,
                        .packed_bytes_max = daemon->config.packed_bytes_max,
                },
        };
        int r;

        r = ghosts_new(&config, &daemon->ghosts);
        if (r < 0)
                return fail("taking the sessions of an earlier foliod over", r);
        r = daemon_beacon_new(store_private_backend(daemon->store), store_instance(daemon->store), &daemon->beacon);
        if (r < 0)
                return fail("making the beacon", r);
        store_take_over(daemon->store, daemon_beacon_start(daemon->beacon));
        return 0;
}

static int start_store(Daemon *daemon)
{
        const Config *config = &daemon->config;
        StoreConfig store_config = {
                .budget_bytes = config->budget_bytes,
                .packed_bytes_max = config->packed_bytes_max,
                .pool_bytes_max = config->pool_bytes_max,
                .staging_bytes = config->staging_bytes,
                .index_objects_max = config->objects_max,
                .session_bytes_max = config->session_bytes_max,
                .n_events = config->n_events,
                .n_namespaces_max = config->n_namespaces_max,
                .huge = config->huge,
                .packed_protection = (StoreProtection)config->packed_protection,
                .tmpfs_directory = config->tmpfs_directory,
                .is_user_daemon = config->is_user_daemon,
                .now_ns = realtime_ns,
                .keeper = daemon->keeper,
        };
        DispatchConfig dispatch_config = {
                .staging_bytes = config->staging_bytes,
                .packed_bytes_max = config->packed_bytes_max,
                .budget_bytes = config->budget_bytes,
                .version = FOLIO_VERSION,
                .each_fact = daemon_each_fact,
                .userdata = daemon,
        };
        const char *failed_call = NULL;
        int r;

        r = worker_pool_new(daemon->base, choose_n_workers(config), &daemon->workers);
        if (r < 0)
                return fail("starting threads", r);
        store_config.workers = daemon->workers;
        r = store_new(&store_config, &daemon->store, &failed_call);
        if (r < 0)
                return fail(failed_call ? failed_call : "making the store", r);
        r = daemon_restore(daemon);
        if (r != 0)
                return r;
        r = start_poller(daemon);
        if (r != 0)
                return r;
        r = start_ghosts(daemon);
        if (r != 0)
                return r;
        dispatch_config.beacon = daemon->beacon;
        dispatch_config.ghosts = daemon->ghosts;
        dispatch_config.store = daemon->store;
        dispatch_config.base = daemon->base;
        dispatch_config.poller = daemon->poller;
        r = dispatch_new(&dispatch_config, &daemon->dispatch);
        if (r < 0)
                return fail("making the dispatch", r);
        return daemon_configure_namespaces(daemon, config) ? 0 : DAEMON_E_FAILED;
}

static int start_events(Daemon *daemon)
{
        static const int numbers[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1 };
        struct timeval second = { .tv_sec = HOUSEKEEPING_S };

        static_assert(ARRAY_SIZE(numbers) == ARRAY_SIZE(daemon->signals), "an event for each");
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
                daemon->signals[i] = evsignal_new(daemon->base, numbers[i], on_signal, daemon);
                if (!daemon->signals[i] || event_add(daemon->signals[i], NULL) < 0)
                        return fail("watching signals", ENOMEM);
        }
        daemon->housekeeping = event_new(daemon->base, -1, EV_PERSIST, on_housekeeping, daemon);
        daemon->expiry = event_new(daemon->base, -1, 0, on_expiry, daemon);
        if (!daemon->housekeeping || !daemon->expiry || event_add(daemon->housekeeping, &second) < 0)
                return fail("making timers", ENOMEM);
        daemon_watch_memory(daemon);
        return daemon_start_watchdog(daemon) < 0 ? fail("making timers", ENOMEM) : 0;
}

static int start_base(Daemon *daemon)
{
        struct event_config *config = event_config_new();

        /* One thread only ever touches the loop. */
        if (config && event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0)
                daemon->base = event_base_new_with_config(config);
        if (config)
                event_config_free(config);
        return daemon->base ? 0 : fail("epoll_create", errno);
}

/* Whoever started us may wait for a byte, or for the service manager's word. */
static void tell_ready(Daemon *daemon)
{
        if (daemon->config.ready_fd >= 0) {
                (void)!write(daemon->config.ready_fd, "1", 1); /* who has gone need not know */
                daemon->config.ready_fd = close_fd(daemon->config.ready_fd);
        }
        (void)sd_notifyf(0, "READY=1\nSTATUS=Serving %s", daemon->config.socket_path); /* nobody need listen */
}

int daemon_new(Config *consume_config, int argc, char **argv, Daemon **ret)
{
        Daemon *daemon;
        int r;

        log_configure(consume_config->log_level, consume_config->log_target);
        daemon = calloc(1, sizeof(*daemon));
        if (!daemon)
                return fail("allocating memory", ENOMEM);
        daemon->config = *consume_config;
        *consume_config = (Config)CONFIG_NULL;
        daemon->argc = argc;
        daemon->argv = argv;
        daemon->started_ns = clock_ns(CLOCK_MONOTONIC);
        daemon->expiry_armed_ns = UINT64_MAX;
        daemon->limit_bytes = UINT64_MAX;
        /* A descriptor with that number that we open ourselves would be taken for it. */
        if (keeper_process_of_child() > 0)
                daemon->config.ready_fd = -1; /* the keeper has it, and passes the word on */
        if (daemon->config.ready_fd >= 0 && fcntl(daemon->config.ready_fd, F_SETFD, FD_CLOEXEC) < 0) {
                r = fail("--ready-fd", errno);
                daemon->config.ready_fd = -1;
                daemon_free(daemon);
                return r;
        }
        prepare_process();
        daemon_settle_budget(daemon);
        daemon->is_leaving = true; /* until it has begun: what is kept is left as it is */
        r = start_base(daemon);
        if (r == 0)
                r = daemon_start_keeper(daemon);
        if (r == 0)
                r = start_listener(daemon);
        if (r == 0)
                r = start_store(daemon);
        if (r == 0)
                r = start_events(daemon);
        if (r != 0) {
                daemon_free(daemon);
                return r;
        }
        daemon->is_leaving = false;
        announce(daemon);
        tell_ready(daemon);
        *ret = daemon;
        return 0;
}

void daemon_free(Daemon *daemon)
{
        if (daemon->store)
                (void)sd_notify(0, "STOPPING=1"); /* nobody need listen */
        for (size_t i = 0; i < ARRAY_SIZE(daemon->signals); i++)
                if (daemon->signals[i])
                        event_free(daemon->signals[i]);
        if (daemon->housekeeping)
                event_free(daemon->housekeeping);
        if (daemon->expiry)
                event_free(daemon->expiry);
        if (daemon->watchdog)
                event_free(daemon->watchdog);
        daemon_freeze_keeper(daemon);
        pressure_free(daemon->pressure);
        (void)close_fd(daemon->config.pressure_fd);
        /* The connections, then what they had under way, which ends in the dispatch, then what carried it out. */
        if (daemon->listener && daemon_is_left(daemon))
                listener_leave(daemon->listener);
        if (daemon->listener)
                listener_free(daemon->listener);
        ghosts_free(daemon->ghosts);
        if (daemon->store && daemon_is_left(daemon))
                store_leave(daemon->store);
        else if (daemon->store)
                store_free(daemon->store);
        if (daemon->poller)
                poller_free(daemon->poller);
        if (daemon->dispatch)
                dispatch_free(daemon->dispatch);
        daemon_beacon_free(daemon->beacon);
        if (daemon->workers)
                worker_pool_free(daemon->workers);
        daemon_free_keeper(daemon);
        if (daemon->base)
                event_base_free(daemon->base);
        (void)close_fd(daemon->config.ready_fd);
        config_deinit(&daemon->config);
        free(daemon->clamp_reason);
        free(daemon);
}
