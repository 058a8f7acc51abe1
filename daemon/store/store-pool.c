/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the warm pool is told: which blanks to keep, when to let go of them, and what they may cost.
 *
 * Blanks are kept of the sizes that were asked for lately, the most asked for first, as far as the pool's limit goes;
 * in what room that leaves, of sizes that many ask for. The pool takes only what nobody will miss: a quarter of the budget
 * stays free, and a tenth of whatever limit this process lives under; under pressure it gives all of it back.
 */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <errno.h>

#define TICKS_PER_AGE 4u             /* so many seconds */
#define REST_TICKS 30u               /* after pressure */
#define BLANK_BYTES_MAX (256 * MIB)  /* a piece of a second of a worker for each */
#define DEMAND_BYTES_MIN MIB         /* what is smaller is made while it is asked for */

/* --- paying ------------------------------------------------------------------------------------------------------- */

static bool pay_for_pool(void *userdata, uint64_t n_bytes)
{
        Store *store = userdata;
        const Account *ignored;
        Charge charge = CHARGE_NULL;

        /* Who waits for memory comes first. */
        if (store->is_stopping || store->is_waking || !list_is_empty(&store->memory_waiters) ||
            store->n_rest_ticks > 0)
                return false;
        if (n_bytes > store->ceiling_bytes || store->budget.bytes_used > store->ceiling_bytes - n_bytes)
                return false;
        if (account_free_bytes(&store->budget) < n_bytes + store->budget.bytes_max / 4 ||
            account_charge(&store->budget, n_bytes, 0, &charge, &ignored))
                return false;
        charge_move(&charge, &store->pool_charge, n_bytes);
        return true;
}

static void repay_for_pool(void *userdata, uint64_t n_bytes)
{
        Store *store = userdata;
        Charge charge = CHARGE_NULL;

        charge_move(&store->pool_charge, &charge, n_bytes);
        charge_release(&charge);
        /* Not from in here: the pool is in the middle of something. */
        if (!list_is_empty(&store->memory_waiters))
                store_schedule_chore(store);
}

/* --- what to keep ------------------------------------------------------------------------------------------------- */

typedef struct Plan {
        Wanted wanted[STORE_WANTED_MAX];
        unsigned n;
        uint64_t bytes_left;
} Plan;

static Wanted *find_wanted(Wanted *wanted, unsigned n, const Wanted *like)
{
        for (unsigned i = 0; i < n; i++)
                if (wanted[i].backend == like->backend && wanted[i].size_bytes == like->size_bytes &&
                    wanted[i].for_packed == like->for_packed)
                        return &wanted[i];
        return NULL;
}

/* As many as there is room for; none twice. */
static void add_wanted(Plan *plan, Wanted one)
{
        one.n = (unsigned)MIN((uint64_t)one.n, plan->bytes_left / one.size_bytes);
        if (one.n == 0 || plan->n == STORE_WANTED_MAX || find_wanted(plan->wanted, plan->n, &one))
                return;
        plan->wanted[plan->n++] = one;
        plan->bytes_left -= one.n * one.size_bytes;
}

/* Of sizes that are asked for most; large ones only where there is plenty. */
static void add_usual(const Store *store, Plan *plan)
{
        static const struct {
                uint64_t size_bytes;
                unsigned n;
                uint64_t pool_bytes_min;
        } kinds[] = {
                { 2 * MIB, 4, 8 * MIB },
                { 8 * MIB, 2, 64 * MIB },
                { 32 * MIB, 1, 256 * MIB },
                { 64 * MIB, 1, 512 * MIB },
        };

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
                if (store->config.pool_bytes_max >= kinds[i].pool_bytes_min)
                        add_wanted(plan, (Wanted){ store->memfd, kinds[i].size_bytes, false, kinds[i].n });
}

/* For packed regions: one, and one of the size that is wanted next where objects come faster than regions are made. */
static void add_packed(const Store *store, Plan *plan)
{
        if (store->config.pool_bytes_max >= 4 * MIB)
                add_wanted(plan, (Wanted){ store->packed_backend, HUGE_BYTES, true, 1 });
        if (store->config.pool_bytes_max >= 64 * MIB)
                add_wanted(plan, (Wanted){ store->packed_backend, 8 * MIB, true, 1 });
}

/* No size may have the whole pool. */
static void add_demanded(const Store *store, Plan *plan)
{
        uint64_t class_bytes_max = MIN(store->config.pool_bytes_max / 4, BLANK_BYTES_MAX);

        for (unsigned i = 0; i < store->demand.n_classes; i++) {
                const DemandClass *class = &store->demand.classes[i];

                if (class->size_bytes <= class_bytes_max)
                        add_wanted(plan, (Wanted){ store->memfd, class->size_bytes, false, demand_wanted(class) });
        }
}

static void follow_demand(Store *store)
{
        Plan plan = { .bytes_left = store->config.pool_bytes_max };

        add_packed(store, &plan);
        add_demanded(store, &plan);
        add_usual(store, &plan);
        /* Room first. */
        for (unsigned i = 0; i < store->n_wanted; i++) {
                const Wanted *old = &store->wanted[i];

                if (!find_wanted(plan.wanted, plan.n, old))
                        pool_want(store->pool, old->backend, old->size_bytes, old->for_packed, 0);
        }
        for (unsigned i = 0; i < plan.n; i++) {
                const Wanted *one = &plan.wanted[i];

                pool_want(store->pool, one->backend, one->size_bytes, one->for_packed, one->n);
                store->wanted[i] = *one;
        }
        store->n_wanted = plan.n;
}

void store_note_demand(Store *store, uint64_t n_bytes)
{
        if (n_bytes >= DEMAND_BYTES_MIN && n_bytes <= BLANK_BYTES_MAX && demand_note(&store->demand, n_bytes))
                follow_demand(store);
}

void store_tick(Store *store)
{
        if (store->n_rest_ticks > 0)
                store->n_rest_ticks--;
        store_tick_leases(store);
        store_tick_evacuation(store);
        store_measure_sessions(store);
        if (++store->n_ticks % TICKS_PER_AGE != 0)
                return;
        demand_age(&store->demand);
        /* Also where it is the same: what there was no room for before, there may be now. */
        follow_demand(store);
}

void store_set_pool(Store *store, uint64_t bytes_max)
{
        store->config.pool_bytes_max = bytes_max;
        pool_set_limit(store->pool, bytes_max);
        follow_demand(store);
}

/* --- giving back -------------------------------------------------------------------------------------------------- */

static void drain(Store *store, uint64_t n_bytes)
{
        PoolUsage before, after;

        pool_get_usage(store->pool, &before);
        (void)pool_drain(store->pool, MIN(n_bytes, before.bytes));
        pool_get_usage(store->pool, &after);
        store->pool_drained_bytes += before.ready_bytes - after.ready_bytes;
}

void store_relieve(Store *store)
{
        /* First, or what is given back would be made again. */
        store->n_rest_ticks = REST_TICKS;
        drain(store, UINT64_MAX);
        (void)store_reclaim_leases(store, UINT64_MAX);
}

void store_set_host(Store *store, uint64_t limit_bytes, uint64_t used_bytes)
{
        uint64_t most = limit_bytes - limit_bytes / 10;

        store->ceiling_bytes = UINT64_MAX;
        if (limit_bytes == UINT64_MAX)
                return;
        /* In terms of what is paid for: the others in the same limit have had the rest. */
        store->ceiling_bytes = used_bytes < most ? store->budget.bytes_used + (most - used_bytes) : 0;
        if (used_bytes > most)
                drain(store, used_bytes - most);
}

int store_pool_init(Store *store)
{
        PoolConfig config = {
                .workers = store->config.workers,
                .bytes_max = store->config.pool_bytes_max,
                .pay = pay_for_pool,
                .repay = repay_for_pool,
                .userdata = store,
        };
        const Account *ignored;
        int r;

        store->ceiling_bytes = UINT64_MAX;
        r = account_charge(&store->budget, 0, 0, &store->pool_charge, &ignored);
        assert(r == 0);
        r = pool_new(&config, &store->pool);
        if (r < 0)
                return r;
        if (!store->config.keeper)
                follow_demand(store);
        return 0;
}

void store_begin_pool(Store *store)
{
        follow_demand(store);
}
