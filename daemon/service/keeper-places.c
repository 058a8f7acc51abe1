/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many descriptors the manager takes, and how many of these are for whom. Where it does not say it is found out: at a
 * start only as much as a start needs, and the rest when that is over, as hundreds are some tens of milliseconds of the
 * manager's.
 */
#include <inttypes.h>
#include <string.h>

#include "base/macro.h"
#include "daemon/service/keeper-private.h"
#include "daemon/service/keeper-probe.h"
#include "daemon/service/log.h"

#define RESERVE_SHARE 16             /* for the next start */
#define RESERVE_MIN 2                /* one that was killed in its start may have taken one */
#define DIRECT_MAX 64                /* of 4,000 stored by themselves PID 1 makes 30 s */

void keeper_set_places(Keeper *keeper, uint64_t n_stored_max)
{
        keeper->n_stored_max = n_stored_max;
        keeper->n_reserved = MIN(MAX(n_stored_max / RESERVE_SHARE, RESERVE_MIN), n_stored_max / 2);
        keeper->n_direct_max = MIN(DIRECT_MAX, n_stored_max / 2);
}

uint64_t keeper_places(const Keeper *keeper, bool is_needed)
{
        return keeper->n_stored_max - (keeper->is_starting && is_needed ? 0 : keeper->n_reserved);
}

/* It is fewer than was thought. */
static void learn(Keeper *keeper, uint64_t n_places)
{
        uint64_t n_before = keeper->n_stored_max;

        keeper_set_places(keeper, n_places);
        if (n_places > 0) {
                log_warning("the service manager keeps %" PRIu64 " descriptors of this service, not %" PRIu64
                            ": with FileDescriptorStoreMax=%" PRIu64 " more objects can outlive a restart",
                            n_places, n_before, n_before);
                return;
        }
        log_warning("the service manager keeps no descriptors of this service (FileDescriptorStoreMax=0): objects do not "
                    "outlive this process; set it to %" PRIu64 ", and restart", n_before);
        keeper->is_lost = keeper->is_gone = true;
}

void keeper_prove_places(Keeper *keeper)
{
        uint64_t n_left = keeper->n_stored_max - MIN(keeper->n_stored, keeper->n_stored_max);
        uint64_t serial = ++keeper->serial;
        bool is_all = !keeper->is_starting;
        size_t n_wanted = is_all ? n_left : MIN(n_left, keeper->n_reserved), n_taken = 0;
        int r;

        keeper->is_probing = true;
        (void)pthread_mutex_unlock(&keeper->lock);
        r = keeper_probe(keeper->manager, serial, n_wanted, &n_taken);
        (void)pthread_mutex_lock(&keeper->lock);
        keeper->is_probing = false;
        /* What was inherited may be being removed by a message of who left it: it is counted once more when it is settled. */
        keeper->is_unproved = r == 0 && !is_all;
        if (r < 0)
                log_warning("how many descriptors the service manager keeps could not be found out: %s", strerror(-r));
        else if (n_taken < n_wanted)
                learn(keeper, keeper->n_stored + n_taken);
        (void)pthread_cond_broadcast(&keeper->change);
}
