/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many descriptors a service manager takes, where it does not say: one that has as many as its settings allow drops
 * the next without a word to anybody. So that many are stored for a moment, each the end of a connection whose other end
 * tells whether it is still there. Before systemd 254 there is no other way, and where nothing may be stored at all
 * (FileDescriptorStoreMax=0) no version says that.
 */
#ifndef DAEMON_SERVICE_KEEPER_PROBE_H
#define DAEMON_SERVICE_KEEPER_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/service/keeper-manager.h"

/*
 * Of @n_wanted more, how many it takes; nothing stays stored. Nobody may store anything meanwhile. @serial: of a segment that
 * there is not, as what a successor finds, should we be killed in the middle, is empty ones. 0 or a negative errno.
 */
int keeper_probe(KeeperManager *manager, uint64_t serial, size_t n_wanted, size_t *ret_n);

#endif
