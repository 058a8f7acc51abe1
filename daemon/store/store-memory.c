/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and who pays for it. The budget is charged for regions, whole: what a client can make the kernel allocate is
 * paid before the kernel is asked. A payment goes back when the memory is really gone; who finds the budget short while
 * enough is on its way back waits for it.
 */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"

/* --- the budget --------------------------------------------------------------------------------------------------- */

/* Is there, or will there be, room for @n_bytes without anybody's doing? */
static int look_for_room(Store *store, uint64_t n_bytes)
{
        uint64_t n_free = account_free_bytes(&store->budget), n_missing;
        PoolUsage usage;

        if (n_free >= n_bytes)
                return 0;
        n_missing = n_bytes - n_free;
        pool_get_usage(store->pool, &usage);
        if (usage.bytes + store->freeing_bytes < n_missing) {
                uint64_t n_wanted = n_missing - usage.bytes - store->freeing_bytes;

                if (store_idle_lease_bytes(store) < n_wanted)
                        return STORE_PAY_FULL;
                (void)store_reclaim_leases(store, n_wanted);
                if (account_free_bytes(&store->budget) >= n_bytes)
                        return 0;
                /* Somebody may have begun to use one at this moment. */
                if (usage.bytes + store->freeing_bytes < n_missing)
                        return STORE_PAY_FULL;
        }
        if (store->freeing_bytes < n_missing)
                (void)pool_drain(store->pool, n_missing - store->freeing_bytes);
        return account_free_bytes(&store->budget) >= n_bytes ? 0 : STORE_PAY_WAIT;
}

int store_pay(Store *store, uint64_t n_bytes, Charge *ret)
{
        const Account *ignored;
        int r;

        if (!account_can_ever(&store->budget, n_bytes, 0, &ignored))
                return STORE_PAY_NEVER;
        r = look_for_room(store, n_bytes);
        if (r)
                return r;
        r = account_charge(&store->budget, n_bytes, 0, ret, &ignored);
        assert(r == 0);
        return r;
}

int store_pay_more(Store *store, Charge *charge, uint64_t n_bytes)
{
        const Account *ignored;
        int r;

        if (!account_can_ever(&store->budget, n_bytes, 0, &ignored))
                return STORE_PAY_NEVER;
        if (n_bytes > charge->n_bytes) {
                r = look_for_room(store, n_bytes - charge->n_bytes);
                if (r)
                        return r;
        }
        r = charge_resize(charge, n_bytes, &ignored);
        assert(r == 0);
        return r;
}

Status store_refuse_payment(const Store *store, int outcome, uint64_t n_bytes, char **ret_detail)
{
        uint64_t unsealed_bytes = 0, n_unsealed = 0;
        PoolUsage usage;

        if (outcome == STORE_PAY_NEVER)
                return store_refuse(ret_detail, STATUS_TOO_LARGE,
                                    "%llu bytes are more than the store's budget of %llu bytes; raise the budget, "
                                    "or store less",
                                    (unsigned long long)n_bytes, (unsigned long long)store->budget.bytes_max);
        pool_get_usage(store->pool, &usage);
        LIST_FOREACH(node, &store->spaces)
        {
                unsealed_bytes += LIST_ENTRY(node, Space, link)->unsealed_bytes;
                n_unsealed += LIST_ENTRY(node, Space, link)->n_unsealed;
        }
        return store_refuse(ret_detail, STATUS_FULL,
                            "no room for %llu bytes: of the store's budget of %llu bytes, %llu are in use (%llu by "
                            "%llu objects being written, %llu by %llu deleted objects that somebody holds, %llu by the "
                            "warm pool, %llu by regions that clients place objects in); delete something, or raise the "
                            "budget",
                            (unsigned long long)n_bytes, (unsigned long long)store->budget.bytes_max,
                            (unsigned long long)store->budget.bytes_used, (unsigned long long)unsealed_bytes,
                            (unsigned long long)n_unsealed, (unsigned long long)store->held_bytes,
                            (unsigned long long)store->n_held, (unsigned long long)usage.bytes,
                            (unsigned long long)store->leased_bytes);
}

void store_wake_memory_waiters(Store *store)
{
        List works = LIST_INIT(works);
        Slice slice = store_begin_slice();

        if (store->is_waking)
                return; /* from within: whoever wakes them now comes to all of them */
        store->is_waking = true;
        /* Those who have to wait again come to the end of the other list. */
        list_splice_back(&works, &store->memory_waiters);
        while (!list_is_empty(&works) && store_take_slice(&slice))
                store_retry_work(LIST_ENTRY(list_take_front(&works), Work, link));
        store->is_waking = false;
        if (list_is_empty(&works))
                return;
        /* The others in another turn, before those who have come meanwhile. */
        list_splice_back(&works, &store->memory_waiters);
        list_splice_back(&store->memory_waiters, &works);
        store_schedule_chore(store);
}

/* --- regions that are paid for ------------------------------------------------------------------------------------ */

bool store_own_file_bytes(uint64_t n_bytes, uint64_t *ret)
{
        return region_round_size(MAX(n_bytes, 1), ret);
}

bool store_attach_charge(Region *region, Charge *consume_charge)
{
        Charge *charge = malloc(sizeof(*charge));

        assert(!region->charge);
        if (!charge)
                return false;
        *charge = *consume_charge;
        *consume_charge = (Charge)CHARGE_NULL;
        region->charge = charge;
        return true;
}

typedef struct Drop {
        WorkerJob job;
        Store *store;
        Region *region;
        Leased *leased;              /* or this, which has a region */
        Charge charge;
} Drop;

/* Who placed objects there may map it still, and so might readers: what is not punched would stay with them. */
static void drop_leased(Leased *leased)
{
        Region *region = leased_free(leased);

        /* Should it fail, the memory goes with the last mapping. */
        (void)region_punch(region, 0, region->size_bytes, NULL);
        region_unref(region);
}

static void drop_memory(Drop *drop)
{
        if (drop->leased)
                drop_leased(steal_ptr(&drop->leased));
        region_unref(steal_ptr(&drop->region));
}

static void drop_run(WorkerJob *job)
{
        drop_memory(CONTAINER_OF(job, Drop, job));
}

static void drop_done(WorkerJob *job)
{
        Drop *drop = CONTAINER_OF(job, Drop, job);
        Store *store = drop->store;

        drop_memory(drop); /* where the job was cancelled */
        store->freeing_bytes -= drop->charge.n_bytes;
        charge_release(&drop->charge);
        free(drop);
        store_wake_memory_waiters(store);
}

/* The memory has gone already. */
static void settle_charge(Store *store, Charge *consume_charge)
{
        if (consume_charge)
                charge_release(consume_charge);
        free(consume_charge);
        if (!list_is_empty(&store->memory_waiters))
                store_schedule_chore(store);
}

static void submit_drop(Store *store, Drop *drop, Charge *consume_charge)
{
        drop->store = store;
        if (consume_charge)
                drop->charge = *consume_charge;
        free(consume_charge);
        drop->job.run = drop_run;
        drop->job.done = drop_done;
        store->freeing_bytes += drop->charge.n_bytes;
        worker_pool_submit(store->config.workers, WORKER_URGENT, &drop->job);
}

void store_drop_region(Store *store, Region *consume_region)
{
        Charge *charge = consume_region->charge;
        Drop *drop = NULL;

        consume_region->charge = NULL;
        if (consume_region->size_bytes > STORE_SLOW_FREE_BYTES)
                drop = calloc(1, sizeof(*drop));
        if (!drop) {
                /* Also where there is no memory for the job: it takes longer, but it goes. */
                region_unref(consume_region);
                settle_charge(store, charge);
                return;
        }
        drop->region = consume_region;
        submit_drop(store, drop, charge);
}

void store_drop_leased(Store *store, Leased *consume_leased)
{
        Charge *charge = consume_leased->region->charge;
        Drop *drop = calloc(1, sizeof(*drop));

        consume_leased->region->charge = NULL;
        if (!drop) {
                drop_leased(consume_leased);
                settle_charge(store, charge);
                return;
        }
        drop->leased = consume_leased;
        submit_drop(store, drop, charge);
}

Region *store_take_blank(Store *store, Backend *backend, uint64_t n_bytes, bool for_packed, uint64_t tag)
{
        bool is_blank;
        Region *region = pool_take(store->pool, backend, n_bytes, for_packed, tag, &is_blank);
        Charge charge = CHARGE_NULL;

        if (!region)
                return NULL;
        charge_move(&store->pool_charge, &charge, region->size_bytes);
        if (!store_attach_charge(region, &charge)) {
                region_unref(region);
                charge_release(&charge);
                return NULL;
        }
        return region;
}

/* --- packed regions ----------------------------------------------------------------------------------------------- */

static void give_packed_region(Store *store, Space *space, Region *consume_region)
{
        Charge *charge = consume_region->charge;

        /* Nobody can write to an old one any more. */
        if (!consume_region->is_writable) {
                store_drop_region(store, consume_region);
                return;
        }
        consume_region->charge = NULL;
        /* The pool pays from here on: for the namespace that may have it again, or until it is gone. */
        charge_move(charge, &store->pool_charge, charge->n_bytes);
        free(charge);
        pool_give(store->pool, consume_region, space->is_removed ? 0 : space->ns.id);
}

/* Regions that were made for objects that have gone meanwhile, or have not come: a namespace without one has none. */
static void give_unused_regions(Store *store, Space *space)
{
        Region *unused;

        while ((unused = packed_take_unused(space->packed)))
                give_packed_region(store, space, unused);
}

typedef struct Growth {
        WorkerJob job;
        Store *store;
        Space *space;
        uint64_t n_bytes;
        Charge charge;
        Region *region;              /* what has come of it; before, one that is there and only has to be kept */
        int result;                  /* KEEPER_E_FULL too */
        bool want_huge;
        uint64_t n_huge, n_failed;
} Growth;

/* In a worker thread. Reserved, huge if it can be, mapped, and then closed to everybody else. */
static int make_packed_region(Growth *growth, Region *region)
{
        const atomic_bool *cancelled = &growth->job.is_cancelled;
        int r;

        r = region_prepare(region, region->size_bytes, growth->want_huge, 0, cancelled, &growth->n_huge,
                           &growth->n_failed);
        if (r < 0)
                return r;
        r = region_map(region, true);
        if (r < 0)
                return r;
        r = region_populate(region, cancelled);
        if (r < 0)
                return r;
        r = region_seal_to_daemon(region);
        if (r < 0)
                return r;
        return region_open_read_only(region);
}

static void growth_run(WorkerJob *job)
{
        Growth *growth = CONTAINER_OF(job, Growth, job);
        Region *region = steal_ptr(&growth->region);

        growth->result = 0;
        if (!region) {
                growth->result = region_new(growth->store->packed_backend, "folio-packed", growth->n_bytes, &region);
                if (growth->result < 0)
                        return;
                growth->result = make_packed_region(growth, region);
        } else {
                growth->result = region_open_read_only(region);
        }
        if (growth->result == 0)
                growth->result = store_keep_region(growth->store, region, KEPT_PACKED, growth->space->ns.id, region->id,
                                                   false);
        if (growth->result != 0)
                region_unref(region);
        else
                growth->region = region;
}

static void retry_packed_waiters(Space *space)
{
        List works = LIST_INIT(works), *node;

        list_splice_back(&works, &space->packed_waiters);
        while ((node = list_take_front(&works)))
                store_retry_work(LIST_ENTRY(node, Work, link));
}

static void fail_packed_waiters(const Store *store, Space *space, int error)
{
        List works = LIST_INIT(works), *node;

        list_splice_back(&works, &space->packed_waiters);
        while ((node = list_take_front(&works))) {
                Work *work = LIST_ENTRY(node, Work, link);

                store_end_work(work, error > 0 ? store_refuse_kept(store, error, &work->op->detail) :
                                                 store_refuse_errno(&work->op->detail, error,
                                                                    "making a packed region"));
        }
}

static void growth_done(WorkerJob *job)
{
        Growth *growth = CONTAINER_OF(job, Growth, job);
        Store *store = growth->store;
        Space *space = growth->space;
        int r = growth->result;

        /* One that only had to be kept, and was not looked at any more. */
        if (r != 0)
                region_unref(steal_ptr(&growth->region));
        space->is_growing = false;
        packed_tune(space->packed, !list_is_empty(&space->packed_waiters));
        store->n_collapsed += growth->n_huge;
        store->n_collapse_failed += growth->n_failed;
        if (growth->region && !store_attach_charge(growth->region, &growth->charge)) {
                region_unref(steal_ptr(&growth->region));
                r = -ENOMEM;
        }
        if (growth->region) {
                Region *region = steal_ptr(&growth->region);

                if (space->is_removed) {
                        store_drop_region(store, region);
                } else {
                        Charge *charge = region->charge;

                        r = packed_add_region(space->packed, region);
                        if (r < 0) {
                                charge_release(charge);
                                free(charge);
                        }
                }
        } else {
                charge_release(&growth->charge);
        }
        free(growth);
        space->n_works++; /* stays while the waiters are looked after */
        if (r != 0)
                fail_packed_waiters(store, space, r);
        else
                retry_packed_waiters(space);
        give_unused_regions(store, space);
        space->n_works--;
        store_try_free_space(store, space);
}

/* @consume_region: NULL; or one that is whole, taken over where this succeeds. */
static int start_growth(Store *store, Space *space, uint64_t n_bytes, Region *consume_region, Charge *consume_charge)
{
        Growth *growth = calloc(1, sizeof(*growth));

        if (!growth)
                return -ENOMEM;
        growth->store = store;
        growth->space = space;
        growth->n_bytes = n_bytes;
        growth->region = consume_region;
        growth->charge = *consume_charge;
        *consume_charge = (Charge)CHARGE_NULL;
        growth->result = -ECANCELED;
        growth->want_huge = space->ns.huge != FOLIO_HUGE_NEVER;
        growth->job.run = growth_run;
        growth->job.done = growth_done;
        space->is_growing = true;
        worker_pool_submit(store->config.workers, WORKER_URGENT, &growth->job);
        return 0;
}

/* What has to be kept first takes as long as the keeper does: a worker's. */
static int keep_blank(Store *store, Space *space, Region *consume_region)
{
        Charge *paid = consume_region->charge;
        int r;

        consume_region->charge = NULL;
        r = start_growth(store, space, consume_region->size_bytes, consume_region, paid);
        if (r < 0) {
                region_unref(consume_region);
                charge_release(paid);
        }
        free(paid);
        return r < 0 ? r : STORE_CHUNK_GROWING;
}

/* A region that is whole, paid for. */
static int add_blank(Store *store, Space *space, Region *consume_region)
{
        Charge *paid = consume_region->charge;
        int r;

        if (store->config.keeper && !consume_region->kept)
                return keep_blank(store, space, consume_region);
        r = region_open_read_only(consume_region);
        if (r < 0) {
                store_drop_region(store, consume_region);
                return r;
        }
        r = packed_add_region(space->packed, consume_region);
        if (r < 0) {
                charge_release(paid);
                free(paid);
        }
        return r;
}

/* One that is ready: 0. One that will be: STORE_CHUNK_GROWING. STORE_PAY_*, negative errno. */
static int get_packed_region(Store *store, Space *space, uint64_t n_bytes)
{
        uint64_t best = packed_next_region_bytes(space->packed, n_bytes), least;
        Charge charge = CHARGE_NULL;
        Region *region;
        int r;

        if (space->is_growing)
                return STORE_CHUNK_GROWING;
        if (!checked_align_up(n_bytes, HUGE_BYTES, &least))
                return STORE_PAY_NEVER;
        region = store_take_blank(store, store->packed_backend, best, true, space->ns.id);
        if (!region && least < best)
                region = store_take_blank(store, store->packed_backend, least, true, space->ns.id);
        if (region)
                return add_blank(store, space, region);
        r = store_pay(store, best, &charge);
        if (r && least < best) {
                best = least;
                r = store_pay(store, best, &charge);
        }
        if (r)
                return r;
        r = start_growth(store, space, best, NULL, &charge);
        charge_release(&charge);
        return r < 0 ? r : STORE_CHUNK_GROWING;
}

int store_take_chunk(Store *store, Space *space, uint64_t n_bytes, Chunk **ret)
{
        int r = packed_take_chunk(space->packed, n_bytes, ret);

        if (r == PACKED_E_NO_ROOM) {
                r = get_packed_region(store, space, n_bytes);
                if (r)
                        return r;
                r = packed_take_chunk(space->packed, n_bytes, ret);
                /* The region was made for this size. */
                assert(r != PACKED_E_NO_ROOM);
        }
        /* The next one before it is missed; if there is none to be had, that is for then. */
        if (r == 0 && !space->is_growing && packed_is_low(space->packed, &n_bytes) &&
            account_free_bytes(&store->budget) > store->budget.bytes_max / 4)
                (void)get_packed_region(store, space, n_bytes);
        return r;
}

void store_give_chunk(Store *store, Space *space, Chunk *chunk)
{
        Region *empty = NULL;

        packed_give_chunk(space->packed, chunk, false, &empty);
        if (!empty)
                return;
        give_packed_region(store, space, empty);
        give_unused_regions(store, space);
}

enum folio_protection store_packed_protection(const Store *store)
{
        return store->packed_backend->capabilities & BACKEND_SEALABLE ? FOLIO_PROTECTION_KERNEL : FOLIO_PROTECTION_MODE;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static int choose_packed_backend(Store *store, const char **ret_failed_call)
{
        bool want_mode = store->config.packed_protection == STORE_PROTECT_MODE ||
                         (store->config.packed_protection == STORE_PROTECT_AUTO && !store->config.is_user_daemon &&
                          store->uid != 0);

        store->packed_backend = store->memfd;
        if (want_mode && store->tmpfs && store->tmpfs->capabilities & BACKEND_READONLY_BY_MODE) {
                store->packed_backend = store->tmpfs;
                return 0;
        }
        if (store->config.packed_protection == STORE_PROTECT_MODE || !(store->memfd->capabilities & BACKEND_SEALABLE)) {
                *ret_failed_call = want_mode ? "fsopen" : "fcntl(F_ADD_SEALS)";
                return -EOPNOTSUPP;
        }
        return 0;
}

int store_memory_init(Store *store, const char **ret_failed_call)
{
        const char *tmpfs_call = NULL;
        int r;

        r = backend_memfd_new(store->config.huge, &store->memfd, ret_failed_call);
        if (r < 0)
                return r;
        if (store->config.tmpfs_directory)
                r = backend_tmpfs_open(store->config.tmpfs_directory, store->config.huge, &store->tmpfs, &tmpfs_call);
        else
                r = backend_tmpfs_new(store->config.huge, &store->tmpfs, &tmpfs_call);
        if (r < 0) {
                /* Not needed unless somebody asks for it; then this is what is said. */
                store->tmpfs = NULL;
                snprintf(store->tmpfs_error, sizeof(store->tmpfs_error), "%s: %s", tmpfs_call ? tmpfs_call : "tmpfs",
                         strerror(-r));
        }
        r = choose_packed_backend(store, ret_failed_call);
        if (r < 0)
                return r;
        *ret_failed_call = "calloc";
        return store_pool_init(store);
}

void store_memory_deinit(Store *store)
{
        pool_free(store->pool);
        charge_release(&store->pool_charge);
        backend_free(store->tmpfs);
        backend_free(store->memfd);
}
