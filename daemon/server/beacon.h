/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end of the beacon (proto/beacon.h): a page that the kernel itself marks when the thread that lit it ends,
 * or executes another program. Clients map it read-only; nobody can write to it but by the mapping that is made here.
 */
#ifndef DAEMON_SERVER_BEACON_H
#define DAEMON_SERVER_BEACON_H

#include <stdint.h>

#include "daemon/memory/backend.h"

typedef struct DaemonBeacon DaemonBeacon;

/*
 * Lights it, for the calling thread, which is the main one and has forked for the last time: a child has no beacon. A
 * thread has one at most. @backend: sealable, or read-only by mode. 0 or a negative errno.
 */
int daemon_beacon_new(Backend *backend, uint64_t instance, DaemonBeacon **ret);

/* Puts it out, for all who have it. By the thread that lit it. */
void daemon_beacon_free(DaemonBeacon *beacon);

uint64_t daemon_beacon_start(const DaemonBeacon *beacon);
int daemon_beacon_fd(const DaemonBeacon *beacon); /* for clients; borrowed */

#endif
