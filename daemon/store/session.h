/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session is what one connection has in the store: who it is, its staging region, a pin table for each namespace it
 * has opened, the objects that die with it, the operations under way, its ring and the leases of regions. What it may,
 * and what its operations do, is not known here; store.h has the public face.
 *
 * A *ghost* is a session that an earlier foliod had and whose client has not come back yet: it has no connection, and
 * all that it had counts on. How a session outlives the process is session-kept.h's.
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
#include "proto/staging.h"

struct Store;

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
        void *space;                 /* store's; NULL: it is being restored, and its namespace has not come yet */
        uint32_t namespace_id;
        Pins *pins;                  /* NULL: opened without the read right */
        int restored_fd;             /* what becomes @pins when the namespace comes; -1 */
        Charge charge;
        int event_fd;                /* of WATCH; -1 */
        struct Kept *kept_pins;      /* NULL: not kept */
        struct Kept *kept_event;
} SessionTable;

/* An object that is being written under one of the client's numbers (proto/ring.h), as its slot told. */
typedef struct SessionMade {
        bool is_there;
        uint32_t namespace_id;
        uint32_t slot;
        uint64_t generation;
        uint64_t region_id;          /* of the lease; 0: its bytes come from staging memory */
} SessionMade;

/*
 * The ring of a session that was restored, until who carries it out takes it. Nothing in it is to be trusted but that
 * it is as large as it should be, and sealed.
 */
typedef struct SessionRing {
        int fd;                      /* -1: there is none, as behind it; they go over to who takes the ring */
        int bell_fd;
        uint64_t head, tail;         /* as found in it, and checked: head <= tail <= head + RING_RECORDS */
        /* Of the records between the last that is known, by its event, to be carried out already. */
        uint64_t n_done;             /* its number + 1; 0: there is none */
        uint32_t done_slot;
        uint64_t done_generation;
        SessionMade *made;           /* RING_MADE_MAX of them; NULL: no object is being written */
} SessionRing;

typedef struct Session {
        List link;                   /* of the store: open ones, or closed ones that are not empty yet */
        void *store;
        Cred cred;
        char *comm;
        uint64_t connected_ns;
        bool is_tool;                /* what it needs to begin is there beyond the limit of its uid */
        void *userdata;
        uint32_t number;             /* never 0, and no other session's of any start */
        List number_link;            /* of the store, by number */
        uint64_t token;              /* by which its client finds it again; 0: it cannot */
        bool is_ghost;
        bool is_cut;                 /* a ghost of whose rights not all is known until its client comes */
        int process_fd;              /* of a ghost: a pidfd of its client; -1: none */
        SessionRing restored_ring;   /* of a ghost */
        struct Kept *kept_staging;   /* NULL: not kept, as the others */
        struct Kept *kept_process;
        struct Kept *kept_ring;
        struct Kept *kept_bell;
        Region *staging;             /* mapped read-only, the end too; NULL: a ghost whose client cannot come back */
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

/* What the next session is called; or one that had a number. */
void session_take_number(Session *session);
void session_set_number(Session *session, uint32_t number);

/* NULL: not opened. */
SessionTable *session_find_table(const Session *session, const void *space);

/* For what a session cannot do without. The same as account_charge(). */
int session_charge(Session *session, uint64_t n_bytes, Charge *ret);

/* For what is there already: beyond the limit too. */
void session_charge_anyway(Session *session, uint64_t n_bytes, Charge *ret);

/* NULL: no memory. @space: NULL where it is still to come. */
SessionTable *session_add_table(Session *session, void *space, uint32_t namespace_id);

/* Of the store, and nothing is known of it yet. NULL: no memory. */
Session *session_new_ghost(struct Store *store);

/* Its uid is known: it pays for what there is. False: no memory. */
bool session_join_uid(Session *session);

/* It is this daemon's from here on: proto/staging.h. */
void session_take_over(Session *session);

/* Gives a table up: pins in it count no more. */
void session_drop_table(SessionTable *table);

/* Frees it if it is closed and nothing needs it. */
void session_try_free(Session *session);

/* What of its staging memory is for bytes. */
static inline uint64_t session_staging_bytes(const Session *session)
{
        return session->staging->size_bytes - STAGING_END_BYTES;
}

#endif
