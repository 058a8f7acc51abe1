/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases while they last, and their end; how they are given is verbs-lease's.
 *
 * A lease ends with the session, or is recalled when nothing has been placed for a while, or when it is empty and
 * memory is short. Recalling is an agreement (proto/lease.h): the epoch is raised; and when the holder places nothing
 * at the moment and its ring is drained, the region is ours. Empty regions that nobody holds go back to the kernel
 * after the same while, or at once where memory is short.
 */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "proto/ring.h"

#define IDLE_TICKS 5u /* so many seconds */

/* --- the end of a region ------------------------------------------------------------------------------------------ */

static void drop_lease(Store *store, Lease *lease)
{
        Space *space = lease->space;

        assert(!lease->session && lease->n_writing == 0);
        list_unlink(&lease->link);
        store->n_orphans--;
        store->leased_bytes -= lease->leased->region->size_bytes;
        space->leased_bytes -= lease->leased->region->size_bytes;
        store_drop_leased(store, lease->leased);
        free(lease);
}

/*
 * Is somebody who wrote there, and has lost it, still about? A number of a process that is used again only costs
 * memory.
 */
bool store_is_spoiled(Lease *lease)
{
        if (lease->spoiler_pid > 0 && kill(lease->spoiler_pid, 0) < 0 && errno == ESRCH)
                lease->spoiler_pid = 0;
        return lease->spoiler_pid != 0;
}

static void spoil(Lease *lease)
{
        pid_t pid = lease->session ? lease->session->cred.pid : 0;

        if (lease->spoiler_pid == 0)
                lease->spoiler_pid = pid > 0 ? pid : -1;
}

/* Of an orphan: does it go now? Frees it perhaps. */
static void settle_orphan(Store *store, Lease *lease)
{
        const Space *space = lease->space;

        if (lease->leased->used_units == 0 && !store->is_restoring &&
            (space->is_removed || store->is_stopping || store_is_spoiled(lease)))
                drop_lease(store, lease);
}

/* --- the end of a lease ------------------------------------------------------------------------------------------- */

static bool is_in_use(const Lease *lease)
{
        const RingHeader *ring = lease->session->ring;

        return !ring || atomic_load_explicit(&((RingHeader *)ring)->lease_use[lease->number], memory_order_acquire) > 0;
}

/* The holder, if it lives, has been told. */
static void take_over(Store *store, Lease *lease)
{
        Session *session = lease->session;
        Space *space = lease->space;

        assert(session->leases[lease->number] == lease);
        session->leases[lease->number] = NULL;
        session->n_leases--;
        if (session->last_lease == lease)
                session->last_lease = NULL;
        lease->session = NULL;
        leased_note_used(lease->leased);
        leased_note_holder(lease->leased, 0, 0);
        lease->n_idle_ticks = 0;
        lease->is_recalled = false;
        list_unlink(&lease->link);
        list_push_back(&space->orphans, &lease->link);
        store->n_leases--;
        store->n_orphans++;
        settle_orphan(store, lease);
}

/* True: it is ours. Else somebody places something there at this moment, or has and it has not been carried out yet. */
static bool recall(Store *store, Lease *lease)
{
        const Session *session = lease->session;

        /* Who held it under another daemon does not know before it is back. */
        if (session->is_ghost)
                return false;
        if (!lease->is_recalled) {
                (void)leased_raise_epoch(lease->leased);
                lease->is_recalled = true;
                store->n_recalled++;
        }
        /*
         * In this order: what was placed is published before lease_use[] goes down. What is written in place is ended
         * first.
         */
        if (is_in_use(lease) || !session->is_drained(session->ring_userdata, lease->leased->region->id) ||
            lease->n_writing > 0)
                return false;
        take_over(store, lease);
        return true;
}

void store_close_leases(Store *store, Session *session)
{
        for (uint32_t i = 0; i < RING_LEASES_MAX; i++) {
                Lease *lease = session->leases[i];

                if (!lease)
                        continue;
                (void)leased_raise_epoch(lease->leased);
                /* The connection has ended, which need not be the end of the process. */
                if (lease->n_writing > 0 || is_in_use(lease))
                        spoil(lease);
                take_over(store, lease);
        }
        assert(session->n_leases == session->n_leases_pending);
}

void store_close_space_leases(Store *store, Space *space)
{
        /* There is no next holder: nothing can be spoiled. */
        LIST_FOREACH_SAFE(node, &space->leases)
        {
                Lease *lease = LIST_ENTRY(node, Lease, link);

                (void)leased_raise_epoch(lease->leased);
                take_over(store, lease);
        }
        LIST_FOREACH_SAFE(node, &space->orphans)
                settle_orphan(store, LIST_ENTRY(node, Lease, link));
}

/* --- units -------------------------------------------------------------------------------------------------------- */

static Lease *find_lease(Session *session, const Space *space, uint64_t region_id)
{
        Lease *lease = session->last_lease;

        if (lease && lease->leased->region->id == region_id && lease->space == space)
                return lease;
        for (uint32_t i = 0; i < RING_LEASES_MAX; i++) {
                lease = session->leases[i];
                if (lease && lease->leased->region->id == region_id && lease->space == space)
                        return session->last_lease = lease;
        }
        return NULL;
}

Status store_take_units(StoreOp *op, const Space *space, Leased **ret)
{
        const ProtoItem *item = op->item;
        Lease *lease = find_lease(op->session, space, op->leased_region_id);
        int r;

        if (!lease)
                return store_refuse(&op->detail, STATUS_INVALID,
                                    "this connection has no lease of region %llu in namespace %s",
                                    (unsigned long long)op->leased_region_id, space->ns.name);
        lease->n_idle_ticks = 0;
        r = leased_take(lease->leased, item->offset_bytes, item->size_bytes);
        if (r == LEASED_E_RANGE)
                return store_refuse(&op->detail, STATUS_RANGE,
                                    "%llu bytes at %llu are not whole units of the leased region of %llu bytes",
                                    (unsigned long long)item->size_bytes, (unsigned long long)item->offset_bytes,
                                    (unsigned long long)lease->leased->region->size_bytes);
        if (r == LEASED_E_TAKEN)
                return store_refuse(&op->detail, STATUS_EXISTS,
                                    "of %llu bytes at %llu of the leased region some are another object's",
                                    (unsigned long long)item->size_bytes, (unsigned long long)item->offset_bytes);
        *ret = lease->leased;
        return STATUS_OK;
}

void store_give_units(Store *store, Leased *leased, uint64_t offset_bytes, uint64_t n_bytes)
{
        Lease *lease = leased->lease;

        leased_give(leased, offset_bytes, n_bytes);
        if (!lease->session)
                settle_orphan(store, lease);
}

void store_count_writing(Leased *leased, int change)
{
        Lease *lease = leased->lease;

        assert(change > 0 || lease->n_writing > 0);
        lease->n_writing += (uint64_t)change;
}

void store_spoil_lease(Leased *leased)
{
        Lease *lease = leased->lease;

        /* Of an orphan that was judged when its holder lost it. */
        if (lease->session)
                spoil(lease);
}

/* --- memory that could be had ------------------------------------------------------------------------------------- */

/*
 * Also one that was used a moment ago: this is asked where somebody would be refused otherwise, and its holder can ask
 * for another.
 */
static bool is_idle(const Lease *lease)
{
        return lease->leased->used_units == 0 && lease->n_writing == 0;
}

uint64_t store_idle_lease_bytes(const Store *store)
{
        uint64_t n_bytes = 0;

        LIST_FOREACH(node, &store->spaces)
        {
                const Space *space = LIST_ENTRY(node, Space, link);

                LIST_FOREACH(l, &space->orphans)
                        if (is_idle(LIST_ENTRY(l, Lease, link)))
                                n_bytes += LIST_ENTRY(l, Lease, link)->leased->region->size_bytes;
                LIST_FOREACH(l, &space->leases)
                {
                        const Lease *lease = LIST_ENTRY(l, Lease, link);

                        if (is_idle(lease) && !is_in_use(lease))
                                n_bytes += lease->leased->region->size_bytes;
                }
        }
        return n_bytes;
}

/* Empty ones that nobody holds, until it is @n_bytes. */
static uint64_t drop_orphans(Store *store, Space *space, uint64_t n_bytes)
{
        uint64_t n_dropped = 0;

        LIST_FOREACH_SAFE(node, &space->orphans)
        {
                Lease *lease = LIST_ENTRY(node, Lease, link);

                if (n_dropped >= n_bytes)
                        break;
                if (!is_idle(lease))
                        continue;
                n_dropped += lease->leased->region->size_bytes;
                drop_lease(store, lease);
        }
        return n_dropped;
}

uint64_t store_reclaim_leases(Store *store, uint64_t n_bytes)
{
        uint64_t n_dropped = 0;

        LIST_FOREACH(node, &store->spaces)
                if (n_dropped < n_bytes)
                        n_dropped += drop_orphans(store, LIST_ENTRY(node, Space, link), n_bytes - n_dropped);
        /* Then those that somebody holds, one by one: he will have to ask for another. */
        LIST_FOREACH(node, &store->spaces)
        {
                Space *space = LIST_ENTRY(node, Space, link);

                LIST_FOREACH_SAFE(l, &space->leases)
                {
                        Lease *lease = LIST_ENTRY(l, Lease, link);
                        uint64_t size_bytes = lease->leased->region->size_bytes;

                        if (n_dropped >= n_bytes)
                                return n_dropped;
                        if (!is_idle(lease) || !recall(store, lease))
                                continue;
                        /* It is an orphan now, but for one that is spoiled and has gone already. */
                        (void)drop_orphans(store, space, size_bytes);
                        n_dropped += size_bytes;
                }
        }
        return n_dropped;
}

static void tick_space(Store *store, Space *space)
{
        LIST_FOREACH_SAFE(node, &space->leases)
        {
                Lease *lease = LIST_ENTRY(node, Lease, link);

                /* Who is writing in place is not idle. */
                if (lease->is_recalled || (++lease->n_idle_ticks >= IDLE_TICKS && lease->n_writing == 0))
                        (void)recall(store, lease);
        }
        LIST_FOREACH_SAFE(node, &space->orphans)
        {
                Lease *lease = LIST_ENTRY(node, Lease, link);

                if (++lease->n_idle_ticks > IDLE_TICKS && lease->leased->used_units == 0)
                        drop_lease(store, lease);
        }
}

void store_tick_leases(Store *store)
{
        LIST_FOREACH(node, &store->spaces)
                tick_space(store, LIST_ENTRY(node, Space, link));
}
