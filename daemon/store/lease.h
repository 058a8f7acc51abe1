/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a leased region: of which namespace it is, and who holds the lease of it. What is taken in it is
 * leased's to know (daemon/memory/leased.h), when a lease is given and ended store-lease's.
 *
 * It is *held* by one session, or an *orphan*: nobody places objects in it then, those that are there live on, and the
 * next who asks for a lease in the namespace may get it. A holder whose lease is *recalled* may place nothing more, but
 * what it has placed before is still published. One that is *spoiled* is never anybody's again: somebody who lost it
 * may still be writing where nothing is taken any more. It goes when the last object in it goes.
 */
#ifndef DAEMON_STORE_LEASE_H
#define DAEMON_STORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "daemon/memory/leased.h"

struct Session;

typedef struct Lease {
        List link;                   /* of the space's leases, or of its orphans */
        Leased *leased;
        void *space;                 /* store's */
        struct Session *session;     /* who holds it; NULL: an orphan */
        uint32_t number;             /* among the session's, and of lease_use[] in its ring */
        uint32_t n_idle_ticks;       /* since something was placed in it, or it was given back */
        uint64_t n_writing;          /* objects in it that are being written */
        pid_t spoiler_pid;           /* not 0: spoiled, as long as that process is there; -1: for ever */
        bool is_recalled;
} Lease;

#endif
