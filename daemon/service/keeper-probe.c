/* SPDX-License-Identifier: Apache-2.0 */
/* See keeper-probe.h. All have one name, so one message removes them. */
#include "daemon/service/keeper-probe.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/service/keeper-record.h"
#include "daemon/service/keeper-segment.h"

/* Its receiving end is the manager's alone. */
static bool is_kept(const KeeperSegment *end)
{
        struct pollfd state = { .fd = end->send_fd };

        return poll(&state, 1, 0) == 0 || !(state.revents & (POLLHUP | POLLERR));
}

static int offer_all(KeeperManager *manager, const char *name, KeeperSegment *ends, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                int r = keeper_segment_open(&ends[i]);

                if (r == 0)
                        r = keeper_manager_offer(manager, name, ends[i].receive_fd);
                if (r < 0)
                        return r;
        }
        return keeper_manager_confirm(manager);
}

int keeper_probe(KeeperManager *manager, uint64_t serial, size_t n_wanted, size_t *ret_n)
{
        KeeperSegment *ends = calloc(n_wanted + 1, sizeof(*ends));
        size_t n_kept = 0;
        KeeperName name;
        int r;

        if (!ends)
                return -ENOMEM;
        for (size_t i = 0; i < n_wanted; i++)
                ends[i] = (KeeperSegment)KEEPER_SEGMENT_NULL;
        keeper_record_to_segment_name(serial, name);
        r = offer_all(manager, name, ends, n_wanted);
        for (size_t i = 0; r == 0 && i < n_wanted; i++) {
                ends[i].receive_fd = close_fd(ends[i].receive_fd);
                n_kept += is_kept(&ends[i]);
        }
        (void)keeper_manager_remove(manager, name); /* if it does not arrive, nor does anything else */
        for (size_t i = 0; i < n_wanted; i++)
                keeper_segment_close(&ends[i]);
        free(ends);
        if (r == 0)
                *ret_n = n_kept;
        return r;
}
