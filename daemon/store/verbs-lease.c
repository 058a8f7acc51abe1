/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LEASE: a client gets a region to place objects in. It is one of the orphans of the namespace, if one has room; else a
 * warm blank, or a new one: a worker makes it ready, with its book. It is paid for whole.
 *
 * A session may have no more than a quarter of the budget in leased memory that it has put nothing in, besides what one
 * object needs: so it cannot take the budget by asking.
 */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "proto/ring.h"

#define USUAL_BYTES_MAX (64 * MIB)   /* larger ones only for an object that needs it */
#define BUDGET_SHARE 4
#define ORPHANS_LOOKED_AT_MAX 16u    /* each a search of its book, which is long where it is full of gaps */
#define ORPHANS_LOOKED_AT_SHORT 64u  /* before somebody is refused */
#define FREE_SHARE_MIN 4             /* an orphan of which less is free would soon have to be replaced */

typedef struct Wish {
        uint64_t least_bytes, best_bytes; /* of the region */
} Wish;

/* --- giving it ---------------------------------------------------------------------------------------------- */

static void answer(StoreOp *op, const Lease *lease, int consume_fd, int consume_book_fd)
{
        const Region *region = lease->leased->region;

        op->slot = lease->number;
        op->generation = leased_epoch(lease->leased);
        op->region_id = region->id;
        op->region_bytes = region->size_bytes;
        op->placement = FOLIO_PLACEMENT_PACKED;
        op->fd = consume_fd;
        op->book_fd = consume_book_fd;
}

/* The session may have one more. @lease is in no list, or an orphan. Where it is refused nothing has changed. */
static Status hand_out(Store *store, StoreOp *op, Lease *lease)
{
        _cleanup_(cleanup_fd) int fd = fcntl(lease->leased->region->fd, F_DUPFD_CLOEXEC, 3);
        _cleanup_(cleanup_fd) int book_fd = fcntl(lease->leased->book_region->fd_read_only, F_DUPFD_CLOEXEC, 3);
        Session *session = op->session;
        Space *space = lease->space;
        uint32_t number = 0;

        if (fd < 0 || book_fd < 0)
                return store_refuse_errno(&op->detail, -errno, "a descriptor of a leased region");
        while (session->leases[number])
                number++;
        assert(number < RING_LEASES_MAX);
        if (list_is_linked(&lease->link))
                store->n_orphans--;
        list_unlink(&lease->link);
        list_push_back(&space->leases, &lease->link);
        store->n_leases++;
        lease->session = session;
        lease->number = number;
        lease->n_idle_ticks = 0;
        session->leases[number] = lease;
        session->n_leases++;
        /* What a holder before knows is of no use to it any more. */
        (void)leased_raise_epoch(lease->leased);
        leased_note_holder(lease->leased, session->number, number);
        answer(op, lease, steal_fd(&fd), steal_fd(&book_fd));
        return STATUS_OK;
}

/*
 * Of the first few that fit the one with most room. Where memory is short, @is_short, the one with least: whatever is
 * free in it, nothing else is to be had, and the others are there for who needs more.
 */
static Lease *find_orphan(Store *store, Space *space, uint64_t n_bytes, bool is_short)
{
        uint64_t share = is_short ? 0 : 1, best_bytes = 0;
        Lease *best = NULL;
        unsigned n = 0;

        LIST_FOREACH(node, &space->orphans)
        {
                Lease *lease = LIST_ENTRY(node, Lease, link);
                uint64_t region_bytes = lease->leased->region->size_bytes;
                uint64_t free_bytes = region_bytes - leased_used_bytes(lease->leased);

                if (free_bytes < MAX(n_bytes, share * region_bytes / FREE_SHARE_MIN) || store_is_spoiled(lease))
                        continue;
                if (best && (free_bytes < best_bytes) != is_short)
                        continue;
                if (leased_find_free_bytes(lease->leased, n_bytes) >= n_bytes) {
                        best = lease;
                        best_bytes = free_bytes;
                }
                if (++n == (is_short ? ORPHANS_LOOKED_AT_SHORT : ORPHANS_LOOKED_AT_MAX))
                        break;
        }
        return best;
}

/* --- making it ---------------------------------------------------------------------------------------------------- */

/* In a worker thread, and a part at a time. Filled in small pages it would cost its holder a fault for each of them. */
static void make_run(WorkerJob *job)
{
        Work *work = CONTAINER_OF(job, Work, job);
        Region *region = work->region;
        atomic_bool is_dear = false; /* it may cost what it costs: it is used again and again */
        uint64_t n_bytes, n_huge, n_failed;

        job->is_unfinished = false;
        work->result = atomic_load_explicit(&job->is_cancelled, memory_order_relaxed) ? -ECANCELED : 0;
        if (work->result == 0 && work->offset_bytes < work->n_bytes) {
                n_bytes = MIN(work->n_bytes - work->offset_bytes, REGION_PART_BYTES);
                work->result = region_prepare_part(region, work->offset_bytes, n_bytes, work->want_huge, 0, &is_dear,
                                                   &job->is_cancelled, &n_huge, &n_failed);
                work->n_huge += n_huge;
                work->n_failed += n_failed;
                work->offset_bytes += n_bytes;
                region->n_huge = work->n_huge;
        }
        job->is_unfinished = work->result == 0 && work->offset_bytes < work->n_bytes;
        if (work->result < 0 || job->is_unfinished)
                return;
        work->result = region_seal_size_for_good(region);
        if (work->result == 0)
                work->result = leased_new(region->backend, region, &work->leased);
        if (work->result != 0)
                return;
        work->region = NULL;
        work->result = store_keep_region(work->store, region, KEPT_LEASED, work->space->ns.id, region->id, false);
        if (work->result == 0)
                work->result = store_keep_region(work->store, work->leased->book_region, KEPT_BOOK, work->space->ns.id,
                                                 region->id, false);
}

/* @consume_leased: paid for. */
static Status add_lease(Store *store, Space *space, StoreOp *op, Leased *consume_leased)
{
        Lease *lease = calloc(1, sizeof(*lease));
        Status status;

        if (!lease) {
                store_drop_leased(store, consume_leased);
                return store_refuse_errno(&op->detail, -ENOMEM, "a lease");
        }
        list_init(&lease->link);
        lease->leased = consume_leased;
        lease->space = space;
        consume_leased->lease = lease;
        status = hand_out(store, op, lease);
        if (status != STATUS_OK) {
                store_drop_leased(store, consume_leased);
                free(lease);
                return status;
        }
        store->leased_bytes += consume_leased->region->size_bytes;
        space->leased_bytes += consume_leased->region->size_bytes;
        return STATUS_OK;
}

static void make_finish(Work *work)
{
        Store *store = work->store;
        StoreOp *op = work->op;
        Leased *leased = steal_ptr(&work->leased);
        Region *region = steal_ptr(&work->region);
        Status status;

        store->n_collapsed += work->n_huge;
        store->n_collapse_failed += work->n_failed;
        op->session->n_leases_pending--;
        op->session->n_leases--;
        op->session->leases_pending_bytes -= region ? region->size_bytes : leased->region->size_bytes;
        if (work->result > 0) {
                status = store_refuse_kept(store, work->result, &op->detail);
        } else if (work->result < 0) {
                status = store_refuse_errno(&op->detail, work->result, "a leased region");
        } else if (op->session->is_closed || work->space->is_removed) {
                status = store_refuse(&op->detail, STATUS_CANCELLED, "the connection or the namespace has gone "
                                                                     "meanwhile");
        } else {
                status = add_lease(store, work->space, op, leased);
                leased = NULL;
        }
        if (leased)
                store_drop_leased(store, leased);
        if (region)
                store_drop_region(store, region);
        store_end_work(work, status);
}

/* It is about no name, so it stands in nobody's way. */
static Work *begin_work(Store *store, Space *space, StoreOp *op)
{
        Target target = { .space = space };
        Work *work = store_begin_work(store, &target, op, NULL);

        if (work) {
                list_unlink(&work->claim);
                work->has_claim = false;
        }
        return work;
}

/* A blank, or a new one of which no page is there; paid for with its book. 0, STORE_PAY_*, or a negative errno. */
static int get_region(Store *store, const Space *space, uint64_t n_bytes, Region **ret, bool *ret_is_blank)
{
        uint64_t paid_bytes = n_bytes + leased_book_bytes(n_bytes);
        Charge charge = CHARGE_NULL;
        Region *region = NULL;
        int r;

        /* Blanks are huge, which not every namespace wants. */
        if (space->ns.huge != FOLIO_HUGE_NEVER || store->config.huge == FOLIO_HUGE_NEVER) {
                store_note_demand(store, n_bytes);
                region = store_take_blank(store, store->memfd, n_bytes, false, 0);
        }
        *ret_is_blank = region != NULL;
        if (region) {
                r = store_pay_more(store, region->charge, region->size_bytes + leased_book_bytes(region->size_bytes));
                if (r == 0 && region->fd >= store->object_fds_max)
                        r = -EMFILE;
                if (r)
                        store_drop_region(store, region);
                else
                        *ret = region;
                return r;
        }
        r = store_pay(store, paid_bytes, &charge);
        if (r)
                return r;
        r = region_new(store->memfd, "folio-leased", n_bytes, &region);
        if (r == 0 && region->fd >= store->object_fds_max)
                r = -EMFILE;
        if (r == 0 && !store_attach_charge(region, &charge))
                r = -ENOMEM;
        charge_release(&charge);
        if (r == 0)
                *ret = region;
        else
                region_unref(region);
        return r;
}

static int make_lease(Store *store, Space *space, StoreOp *op, const Wish *wish)
{
        Work *work = begin_work(store, space, op);
        bool is_blank = false;
        Lease *orphan;
        int r;

        if (!work)
                return store_refuse_errno(&op->detail, -ENOMEM, "an operation that has to wait");
        r = get_region(store, space, wish->best_bytes, &work->region, &is_blank);
        if (r && wish->least_bytes < wish->best_bytes)
                r = get_region(store, space, wish->least_bytes, &work->region, &is_blank);
        orphan = r > 0 ? find_orphan(store, space, MAX(op->item->size_bytes, 1), true) : NULL;
        if (orphan) {
                store_end_work(work, hand_out(store, op, orphan));
                return STORE_OP_PENDING;
        }
        if (r == STORE_PAY_WAIT) {
                list_push_back(&store->memory_waiters, &work->link);
                return STORE_OP_PENDING;
        }
        if (r) {
                store_end_work(work, r < 0 ? store_refuse_errno(&op->detail, r, "a leased region") :
                                             store_refuse_payment(store, r, wish->least_bytes, &op->detail));
                return STORE_OP_PENDING;
        }
        op->session->n_leases++;
        op->session->n_leases_pending++;
        op->session->leases_pending_bytes += work->region->size_bytes;
        work->n_bytes = is_blank ? 0 : work->region->size_bytes;
        work->n_huge = 0;
        work->want_huge = space->ns.huge != FOLIO_HUGE_NEVER;
        store_submit_work(work, WORKER_URGENT, make_run, make_finish);
        return STORE_OP_PENDING;
}

/* --- the verb ---------------------------------------------------------------------------------------------- */

static uint64_t unused_bytes(const Session *session)
{
        uint64_t n_bytes = session->leases_pending_bytes;

        for (uint32_t i = 0; i < RING_LEASES_MAX; i++)
                if (session->leases[i])
                        n_bytes += session->leases[i]->leased->region->size_bytes -
                                   leased_used_bytes(session->leases[i]->leased);
        return n_bytes;
}

static Status check_limits(const Store *store, StoreOp *op, Wish *ret)
{
        uint64_t most = store->budget.bytes_max / BUDGET_SHARE, unused = unused_bytes(op->session), want, least;

        if (op->session->n_leases >= RING_LEASES_MAX)
                return store_refuse(&op->detail, STATUS_LIMIT, "this connection has %u leases, which is the most",
                                    op->session->n_leases);
        if (unused > most)
                return store_refuse(&op->detail, STATUS_LIMIT,
                                    "this connection has %llu unused bytes in leased regions, and a quarter of the "
                                    "budget, %llu, is the most",
                                    (unsigned long long)unused, (unsigned long long)most);
        least = ALIGN_UP(MAX(op->item->size_bytes, 1), HUGE_BYTES);
        want = MIN(ALIGN_UP(MIN(op->item->offset_bytes, USUAL_BYTES_MAX), HUGE_BYTES),
                   ALIGN_DOWN(most - unused, HUGE_BYTES));
        *ret = (Wish){ .least_bytes = least, .best_bytes = MAX(least, want) };
        return STATUS_OK;
}

int store_verb_lease(Store *store, StoreOp *op)
{
        const ProtoItem *item = op->item;
        Lease *orphan;
        Status status;
        Space *space;
        Wish wish = { 0 };

        if (item->flags || item->key.n_bytes > 0)
                return store_refuse(&op->detail, STATUS_INVALID, "a lease is asked for by sizes, and nothing else");
        space = store_find_space_by_id(store, op->namespace_id);
        if (!space)
                return store_refuse(&op->detail, STATUS_NOT_FOUND, "there is no namespace %u any more",
                                    op->namespace_id);
        status = store_check_rights(store, op, space, FOLIO_RIGHT_READ | FOLIO_RIGHT_WRITE);
        if (status != STATUS_OK)
                return status;
        if (space->ns.writers != FOLIO_WRITERS_TRUSTED)
                return store_refuse(&op->detail, STATUS_STATE,
                                    "namespace %s does not trust its writers with its memory",
                                    space->ns.name);
        if (!op->session->ring)
                return store_refuse(&op->detail, STATUS_STATE, "a connection without a ring has no leases");
        if (!(store->memfd->capabilities & BACKEND_SEALABLE))
                return store_refuse(&op->detail, STATUS_UNSUPPORTED, "this kernel cannot seal the size of a region");
        status = store_check_size(store, space, item->size_bytes, &op->detail);
        if (status == STATUS_OK && item->size_bytes > LEASE_REGION_BYTES_MAX)
                status = store_refuse(&op->detail, STATUS_TOO_LARGE,
                                      "%llu bytes are more than a leased region can have",
                                      (unsigned long long)item->size_bytes);
        if (status == STATUS_OK)
                status = check_limits(store, op, &wish);
        if (status != STATUS_OK)
                return status;
        orphan = find_orphan(store, space, MAX(item->size_bytes, 1), false);
        return orphan ? (int)hand_out(store, op, orphan) : make_lease(store, space, op, &wish);
}
