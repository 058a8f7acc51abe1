/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the store outlives the process: the regions that anything lies in are kept (daemon/service/keeper.h) before
 * anybody is told of what lies there, and dropped with the region. How they become a store again is store-restore's.
 *
 * Where nobody keeps anything any more, the store goes on without, and counts what will be lost with it.
 */
#include "daemon/store/store-private.h"

#include "daemon/store/fault.h"

uint64_t store_kept_detail(const Region *region, bool can_grow)
{
        return (uint64_t)region->backend->ops->backing | (can_grow ? STORE_KEPT_GROWS : 0);
}

int store_keep_region(Store *store, Region *region, KeptKind kind, uint32_t namespace_id, uint64_t id, bool can_grow)
{
        KeptRecord record = {
                .kind = kind,
                .owner = namespace_id,
                .id = id,
                .detail = store_kept_detail(region, can_grow),
        };
        int fd, r;

        if (!store->config.keeper || region->kept)
                return 0;
        /* What is closed by its mode is so only where nobody has it open for writing: a keeper neither. */
        if (kind == KEPT_OWN && !(region->backend->capabilities & BACKEND_SEALABLE)) {
                r = region_open_read_only(region);
                if (r < 0)
                        return r;
                fd = region->fd_read_only;
        } else {
                fd = region->fd >= 0 ? region->fd : region->fd_read_only;
        }
        FAULT("keep.before");
        region->keeper = store->config.keeper;
        r = keeper_keep(region->keeper, &record, fd, kind != KEPT_OWN, &region->kept);
        FAULT("keep.after");
        if (r == 0)
                return 0;
        region->kept = NULL;
        if (r != KEEPER_E_GONE)
                return r;
        atomic_fetch_add_explicit(&store->n_volatile, 1, memory_order_relaxed);
        return 0;
}

Status store_refuse_kept(const Store *store, int outcome, char **ret_detail)
{
        if (outcome < 0)
                return store_refuse_errno(ret_detail, outcome, "keeping the object's memory");
        return store_refuse(ret_detail, STATUS_LIMIT, "%s", keeper_explain(store->config.keeper, outcome));
}

void store_leave_region(Region *region)
{
        region->kept = NULL;
}
