/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session is what one connection has in the store: who it is, its staging region, a pin table for each namespace it
 * has opened, the objects that die with it, the operations under way, its ring and the leases of regions. What it may,
 * and what its operations do, is not known here; store.h has the public face.
 */
#ifndef DAEMON_STORE_SESSION_H
#define DAEMON_STORE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/memory/region.h"
#include "daemon/store/account.h"
#include "daemon/store/cred.h"
#include "daemon/store/lease.h"
#include "daemon/store/pins.h"
#include "proto/ring.h"

/* What all sessions of a uid have together. */
typedef struct UidAccount {
        List link;
        uid_t uid;
        unsigned n_sessions;
        unsigned n_tools;            /* of those */
        Account account;
} UidAccount;

/* A namespace as one session has opened it. */
typedef struct SessionTable {
        List link;                   /* of the session */
        List space_link;             /* of the space */
        struct Session *session;
        void *space;                 /* store's */
        Pins *pins;                  /* NULL: opened without the read right */
        Charge charge;
        int event_fd;                /* of WATCH; -1 */
} SessionTable;

typedef struct Session {
        List link;                   /* of the store: open ones, or closed ones that are not empty yet */
        void *store;
        Cred cred;
        char *comm;
        uint64_t connected_ns;
        bool is_tool;                /* what it needs to begin is there beyond the limit of its uid */
        void *userdata;
        Region *staging;             /* mapped read-only */
        Charge staging_charge;
        UidAccount *uid_account;
        List tables;
        List objects;                /* unsealed, and with-creator */
        RingHeader *ring;            /* mapped while the session is open; NULL: none */
        bool (*is_drained)(void *userdata, uint64_t region_id);
        void *ring_userdata;
        Charge ring_charge;
        Lease *leases[RING_LEASES_MAX]; /* by number */
        Lease *last_lease;           /* that something was placed in; NULL */
        unsigned n_leases;           /* those that are being made too, of which there are */
        unsigned n_leases_pending;
        uint64_t leases_pending_bytes;
        unsigned n_ops;              /* under way: the session stays for them */
        bool is_closed;
} Session;

/* NULL: not opened. */
SessionTable *session_find_table(const Session *session, const void *space);

/* For what a session cannot do without. The same as account_charge(). */
int session_charge(Session *session, uint64_t n_bytes, Charge *ret);

/* Gives a table up: pins in it count no more. */
void session_drop_table(SessionTable *table);

/* Frees it if it is closed and nothing needs it. */
void session_try_free(Session *session);

#endif
