/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message becomes verbs, and what comes of them becomes a reply. A request about objects is one operation of the
 * store for each item; the reply goes when the last has ended, whatever order they end in, and fits one packet always.
 * Keeps no state of a connection but the requests under way.
 */
#ifndef DAEMON_SERVER_DISPATCH_H
#define DAEMON_SERVER_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/server/beacon.h"
#include "daemon/server/ghosts.h"
#include "daemon/server/peer.h"
#include "daemon/server/poller.h"
#include "daemon/store/store.h"

struct event_base;

typedef struct Dispatch Dispatch;

typedef void (*DispatchFactFn)(void *userdata, const char *name, uint64_t value, const char *text);

typedef struct DispatchConfig {
        Store *store;
        struct event_base *base;     /* of rings; may be NULL: then there are none */
        Poller *poller;
        const DaemonBeacon *beacon;  /* NULL: HELLO tells of none */
        Ghosts *ghosts;              /* NULL: nobody can come back */
        uint64_t staging_bytes;      /* what HELLO tells */
        uint64_t packed_bytes_max;
        uint64_t budget_bytes;
        const char *version;         /* outlives the dispatch */
        /* The daemon's own facts, before the store's; may be NULL. */
        void (*each_fact)(void *userdata, DispatchFactFn each, void *each_userdata);
        void *userdata;
} DispatchConfig;

int dispatch_new(const DispatchConfig *config, Dispatch **ret);
void dispatch_free(Dispatch *dispatch); /* no request is under way */

/* A PeerConfig.on_message; @userdata: the dispatch. */
void dispatch_message(Peer *peer, const void *bytes, size_t n_bytes, void *userdata);

/* Is that the HELLO of a tool? */
bool dispatch_is_tool(Dispatch *dispatch, const void *bytes, size_t n_bytes);

void dispatch_set_budget(Dispatch *dispatch, uint64_t budget_bytes);
uint64_t dispatch_n_requests(const Dispatch *dispatch); /* so far */

#endif
