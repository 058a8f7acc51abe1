/* SPDX-License-Identifier: Apache-2.0 */
/* The store as a whole: its beginning and end, its chores, its wake-ups, its facts. The verbs are in verbs-*.c. */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"

/* --- sentences ---------------------------------------------------------------------------------------------------- */

Status store_refuse(char **ret_detail, Status status, const char *format, ...)
{
        va_list arguments;

        assert(!*ret_detail);
        va_start(arguments, format);
        /* Without memory the status has to do. */
        if (vasprintf(ret_detail, format, arguments) < 0)
                *ret_detail = NULL;
        va_end(arguments);
        return status;
}

Status store_refuse_errno(char **ret_detail, int error, const char *what)
{
        switch (error) {
        case -ENOSPC:
        case -ENOMEM:
                return store_refuse(ret_detail, STATUS_FULL,
                                    "the kernel has no memory left for %s (%s); the budget is more than this machine, "
                                    "or the cgroup, can give",
                                    what, strerror(-error));
        case -EMFILE:
        case -ENFILE:
                return store_refuse(ret_detail, STATUS_LIMIT,
                                    "no descriptor left for %s (%s); raise LimitNOFILE of foliod", what,
                                            strerror(-error));
        case -ECANCELED:
                return store_refuse(ret_detail, STATUS_CANCELLED, "foliod is stopping");
        default:
                return store_refuse(ret_detail, STATUS_INTERNAL, "%s: %s", what, strerror(-error));
        }
}

static uint64_t monotonic_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for a clock there is */
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- chores ------------------------------------------------------------------------------------------------------- */

Slice store_begin_slice(void)
{
        return (Slice){ STORE_CHORES_PER_TURN, monotonic_ns() + STORE_CHORES_NS };
}

bool store_take_slice(Slice *slice)
{
        if (slice->n_left == 0)
                return false;
        /* The clock costs as much as a tenth of what an object does. */
        if (--slice->n_left % 8 == 0 && monotonic_ns() >= slice->until_ns)
                slice->n_left = 0;
        return true;
}

static void chore_run(WorkerJob *job)
{
        /* What it is for is done on the loop: the way through a worker is only so that the loop gets its turn. */
}

static void chore_done(WorkerJob *job)
{
        Store *store = CONTAINER_OF(job, Store, chore);
        Slice slice = store_begin_slice();

        store->has_chore = false;
        store_abandon_some(store, &slice);
        store_reap_spaces(store, &slice);
        store_sweep_some(store, &slice);
        store_wake_memory_waiters(store);
        if (slice.n_left == 0)
                store_schedule_chore(store);
        store_flush(store);
}

void store_schedule_chore(Store *store)
{
        if (store->has_chore)
                return;
        store->has_chore = true;
        worker_pool_submit(store->config.workers, WORKER_URGENT, &store->chore);
}

static void signal_watchers(const Space *space)
{
        const struct itimerspec at_once = { .it_value = { .tv_nsec = 1 } };

        /*
         * Not a write to an eventfd: the client has the descriptor too, and with it O_NONBLOCK of both, and the counter; it
         * could have us sleep for ever. To set a timer never does, and can only fail where there is none.
         */
        LIST_FOREACH(node, &space->tables)
        {
                const SessionTable *table = LIST_ENTRY(node, SessionTable, space_link);

                if (table->event_fd >= 0)
                        (void)timerfd_settime(table->event_fd, 0, &at_once, NULL);
        }
}

void store_flush(Store *store)
{
        List *node;

        store->turn_ns = 0;
        while ((node = list_take_front(&store->dirty_spaces))) {
                Space *space = LIST_ENTRY(node, Space, dirty_link);

                if (index_flush(space->index))
                        signal_watchers(space);
                store_collapse_index(store, space);
        }
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static void init_lists(Store *store)
{
        List *const lists[] = {
                &store->spaces, &store->removed_spaces, &store->dirty_spaces, &store->held, &store->sessions,
                &store->closed_sessions, &store->uid_accounts, &store->memory_waiters, &store->collapses,
                &store->preparing,
        };

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                list_init(lists[i]);
        for (size_t i = 0; i < STORE_SESSION_LISTS; i++)
                list_init(&store->sessions_by_number[i]);
}

Status store_make_default(Store *store, char **ret_detail)
{
        ProtoNamespace settings = { .name = FOLIO_NAMESPACE_DEFAULT };
        Space *ignored;

        return store_make_space(store, &settings, store->config.is_user_daemon ? 0700 : 0766, store->uid, store->gid,
                                &ignored, ret_detail);
}

static void free_half(Store *store)
{
        store_memory_deinit(store);
        free(store);
}

DEFINE_CLEANUP(Store *, cleanup_half, free_half)

/* A quarter of all descriptors stays: whatever is stored, clients can connect, and delete it. */
static int choose_object_fds_max(void)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return INT_MAX;
        return (int)MIN(limit.rlim_cur - limit.rlim_cur / 4, INT_MAX);
}

int store_new(const StoreConfig *config, Store **ret, const char **ret_failed_call)
{
        _cleanup_(cleanup_half) Store *store = NULL;
        _cleanup_(cleanup_free) char *detail = NULL;
        int r;

        *ret_failed_call = "calloc";
        store = calloc(1, sizeof(*store));
        if (!store)
                return -ENOMEM;
        store->config = *config;
        store->uid = geteuid();
        store->gid = getegid();
        store->object_fds_max = choose_object_fds_max();
        store->chore.run = chore_run;
        store->chore.done = chore_done;
        init_lists(store);
        slabs_init(&store->objects, sizeof(Object));
        account_init(&store->budget, NULL, config->budget_bytes, UINT64_MAX);
        *ret_failed_call = "getrandom";
        if (getrandom(&store->instance, sizeof(store->instance), 0) != sizeof(store->instance))
                return -EIO;
        store->instance |= 1; /* never 0 */
        r = store_memory_init(store, ret_failed_call);
        /* Where there is a keeper, what it has comes first. */
        if (r == 0 && !config->keeper && store_make_default(store, &detail) != STATUS_OK) {
                *ret_failed_call = "the namespace default";
                r = -ENOMEM;
        }
        if (r < 0) {
                store->is_stopping = true;
                worker_pool_drain(store->config.workers);
                return r;
        }
        *ret_failed_call = NULL;
        *ret = steal_ptr(&store);
        return 0;
}

void store_free(Store *store)
{
        List *node;

        if (!store)
                return;
        assert(store->n_sessions == 0);
        store->is_stopping = true;
        store_cancel_collapses(store);
        store_cancel_preparing(store, NULL);
        while ((node = list_peek_front(&store->spaces)))
                store_remove_space(store, LIST_ENTRY(node, Space, link));
        /*
         * Sessions that have closed, their operations, the objects of all namespaces: all of it comes to an end here.
         */
        worker_pool_drain(store->config.workers);
        store_sweep_held(store);
        worker_pool_drain(store->config.workers);
        assert(list_is_empty(&store->removed_spaces) && list_is_empty(&store->closed_sessions));
        assert(store->n_objects == 0 && store->n_held == 0 && store->freeing_bytes == 0);
        assert(store->n_leases == 0 && store->n_orphans == 0 && store->leased_bytes == 0);
        assert(list_is_empty(&store->collapses) && list_is_empty(&store->memory_waiters));
        assert(list_is_empty(&store->preparing));
        store_memory_deinit(store);
        account_deinit(&store->budget);
        expiry_deinit(&store->expiry);
        slabs_deinit(&store->objects);
        free(store);
}

static void retire_creatorless(Store *store, Space *space)
{
        for (size_t i = 0; i < space->n_creatorless; i++) {
                Object *object = space->objects[space->creatorless[i]];

                if (object && object->lifetime == FOLIO_WITH_CREATOR && !object->creator &&
                    (object->state == OBJECT_SEALED || object->state == OBJECT_MUTABLE))
                        store_retire_object(store, object, FOLIO_EVENT_DELETED, FOLIO_EVENT_DELETED, 0);
        }
        space->n_creatorless = 0;
        free(steal_ptr(&space->creatorless));
}

void store_take_over(Store *store, uint64_t start)
{
        store->start = start;
        LIST_FOREACH(node, &store->sessions)
                session_take_over(LIST_ENTRY(node, Session, link));
        /* Before any pin is counted that something depends on. */
        atomic_thread_fence(memory_order_seq_cst);
        LIST_FOREACH(node, &store->spaces)
                retire_creatorless(store, LIST_ENTRY(node, Space, link));
}

Backend *store_private_backend(const Store *store)
{
        return store->packed_backend;
}

uint64_t store_instance(const Store *store)
{
        return store->instance;
}

bool store_is_empty(const Store *store)
{
        return store->n_objects == 0;
}

void store_set_budget(Store *store, uint64_t budget_bytes)
{
        uint64_t before = store->budget.bytes_max;

        store->budget.bytes_max = budget_bytes;
        store->config.budget_bytes = budget_bytes;
        if (store->budget.bytes_used > budget_bytes) {
                (void)pool_drain(store->pool, store->budget.bytes_used - budget_bytes);
                (void)store_reclaim_leases(store, store->budget.bytes_used - budget_bytes);
        }
        /* More room, or none ever: those who wait have to know. */
        if (budget_bytes != before && !list_is_empty(&store->memory_waiters))
                store_schedule_chore(store);
}

/* --- facts -------------------------------------------------------------------------------------------------------- */

typedef struct Facts {
        Store *store;
        void (*each)(void *userdata, const char *name, uint64_t value, const char *text);
        void *userdata;
} Facts;

static void number(const Facts *facts, const char *name, uint64_t value)
{
        facts->each(facts->userdata, name, value, NULL);
}

static void backend_facts(const Facts *facts, const char *name, const Backend *backend, const char *error)
{
        static const struct {
                uint32_t bit;
                const char *word;
        } words[] = {
                { BACKEND_SEALABLE, "sealable" }, { BACKEND_READONLY_BY_MODE, "read-only-by-mode" },
                { BACKEND_PUNCHABLE, "punchable" }, { BACKEND_REWRITABLE, "rewritable" },
                { BACKEND_HUGE_AT_ALLOCATION, "huge-at-allocation" }, { BACKEND_COLLAPSIBLE, "collapsible" },
        };
        char text[128] = "";

        if (!backend) {
                snprintf(text, sizeof(text), "unavailable: %s", error);
        } else {
                for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                        if (backend->capabilities & words[i].bit)
                                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", *text ? " " : "",
                                         words[i].word);
        }
        facts->each(facts->userdata, name, 0, text);
}

static void lease_facts(const Facts *facts)
{
        const Store *store = facts->store;
        uint64_t n_used = 0;

        LIST_FOREACH(node, &store->spaces)
        {
                const Space *space = LIST_ENTRY(node, Space, link);

                LIST_FOREACH(l, &space->leases)
                        n_used += leased_used_bytes(LIST_ENTRY(l, Lease, link)->leased);
                LIST_FOREACH(l, &space->orphans)
                        n_used += leased_used_bytes(LIST_ENTRY(l, Lease, link)->leased);
        }
        number(facts, "leases.count", store->n_leases);
        number(facts, "leases.bytes", store->leased_bytes);
        number(facts, "leases.used_bytes", n_used);
        number(facts, "leases.orphans", store->n_orphans);
        number(facts, "leases.recalled", store->n_recalled);
}

static void memory_facts(const Facts *facts)
{
        const Store *store = facts->store;
        uint64_t unsealed = 0, n_unsealed = 0, n_index = 0, n_index_huge = 0, n_pins = 0;
        uint64_t allocated;
        PackedUsage sum = { 0 }, usage;
        PoolUsage pool;

        LIST_FOREACH(node, &store->spaces)
        {
                Space *space = LIST_ENTRY(node, Space, link);

                unsealed += space->unsealed_bytes;
                n_unsealed += space->n_unsealed;
                packed_get_usage(space->packed, &usage);
                sum.n_regions += usage.n_regions;
                sum.region_bytes += usage.region_bytes;
                sum.used_bytes += usage.used_bytes;
                sum.n_chunks += usage.n_chunks;
                if (region_get_allocated(index_region(space->index), &allocated) == 0)
                        n_index += allocated;
                n_index_huge += space->index_huge_bytes;
                LIST_FOREACH(t, &space->tables)
                        n_pins += LIST_ENTRY(t, SessionTable, space_link)->charge.n_bytes;
        }
        pool_get_usage(store->pool, &pool);
        number(facts, "memory.budget_bytes", store->budget.bytes_max);
        number(facts, "memory.used_bytes", store->budget.bytes_used);
        number(facts, "memory.held_bytes", store->held_bytes);
        number(facts, "memory.unsealed_bytes", unsealed);
        number(facts, "memory.freeing_bytes", store->freeing_bytes);
        number(facts, "pool.bytes", pool.bytes);
        number(facts, "pool.blank", pool.n_blank);
        number(facts, "pool.kept", pool.n_kept);
        number(facts, "pool.hits", pool.n_hits);
        number(facts, "pool.misses", pool.n_misses);
        number(facts, "pool.drained_bytes", store->pool_drained_bytes);
        number(facts, "packed.regions", sum.n_regions);
        number(facts, "packed.region_bytes", sum.region_bytes);
        number(facts, "packed.used_bytes", sum.used_bytes);
        number(facts, "packed.chunks", sum.n_chunks);
        number(facts, "index.bytes", n_index);
        number(facts, "index.huge_bytes", n_index_huge);
        number(facts, "pins.bytes", n_pins);
        number(facts, "unsealed.count", n_unsealed);
        number(facts, "collapse.done", store->n_collapsed);
        number(facts, "collapse.failed", store->n_collapse_failed + pool.n_collapse_failed);
}

static void keeping_facts(const Facts *facts)
{
        const Store *store = facts->store;
        const StoreRestoreFacts *restored = &store->restored;

        if (!store->config.keeper)
                return;
        number(facts, "keeper.volatile", atomic_load_explicit(&store->n_volatile, memory_order_relaxed));
        number(facts, "restore.namespaces", restored->n_namespaces);
        number(facts, "restore.objects", restored->n_objects);
        number(facts, "restore.bytes", restored->object_bytes);
        number(facts, "restore.held", restored->n_held);
        number(facts, "restore.writing", restored->n_writing);
        number(facts, "restore.sessions", restored->n_sessions);
        number(facts, "restore.dropped", restored->n_dropped);
        number(facts, "restore.ended", restored->n_ended);
        number(facts, "restore.bad_descriptors", restored->n_bad);
        number(facts, "restore.us", restored->us);
        number(facts, "evacuated.objects", store->n_evacuated);
        number(facts, "evacuated.bytes", store->evacuated_bytes);
}

void store_each_fact(Store *store, void (*each)(void *userdata, const char *name, uint64_t value, const char *text),
                     void *userdata)
{
        static const char *const policies[] = { "auto", "always", "never" };
        Facts facts = { store, each, userdata };

        memory_facts(&facts);
        lease_facts(&facts);
        keeping_facts(&facts);
        number(&facts, "objects.count", store->n_objects - store->n_held);
        number(&facts, "held.count", store->n_held);
        number(&facts, "sessions.count", store->n_sessions);
        number(&facts, "sessions.unkept", store->n_sessions_unkept);
        number(&facts, "namespaces.count", store->n_spaces);
        each(userdata, "huge.policy", 0, policies[store->config.huge]);
        each(userdata, "packed.protection", 0,
             store->packed_backend->capabilities & BACKEND_SEALABLE ? "seals" : "mode");
        backend_facts(&facts, "backend.memfd", store->memfd, "");
        backend_facts(&facts, "backend.tmpfs", store->tmpfs, store->tmpfs_error);
}
