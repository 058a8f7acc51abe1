/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What everything of one client shares: `struct folio_client` is this. The program's references end the connection;
 * the memory goes with the last *user*: the program, a handle, a list, a call that is under way. So what a handle
 * points at stays mapped for as long as there is the handle.
 */
#ifndef CLIENT_CONTEXT_H
#define CLIENT_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "client/error.h"
#include "client/idle.h"
#include "client/lib/copy.h"
#include "client/lib/forked.h"
#include "client/lib/maps.h"
#include "client/lib/request.h"
#include "client/lib/ring.h"
#include "client/lib/spares.h"
#include "client/lib/spawn.h"
#include "client/lib/staging.h"
#include "folio/client.h"
#include "proto/beacon.h"

typedef struct folio_client Client;
typedef struct Name Name;

struct folio_client {
        atomic_uint n_references;    /* the program's */
        atomic_uint n_users;
        uint32_t fork_mark;
        uint64_t timeout_ns;         /* UINT64_MAX: none */
        Requests *requests;
        Staging *staging;
        Maps *maps;
        Crew *crew;                  /* helps with large copies; NULL: none */
        uint64_t packed_bytes_max;
        uint64_t staging_bytes;
        Name *_Atomic names;         /* namespaces opened, newest first; entries stay */
        Name *_Atomic name_last;     /* the one used last, or NULL */
        const Beacon *_Atomic beacon; /* of foliod; never NULL: see resume.h */
        List siblings;               /* all clients of the process */
        char address[SPAWN_ADDRESS_BYTES_MAX];
        /* Of the connection, and of those that follow it: see resume.h. */
        _Atomic uint64_t instance;   /* of the store: what is held of another one is not asked for any more */
        _Atomic uint64_t newest_made; /* the greatest generation that foliod has answered to a CREATE */
        atomic_uint n_leased;        /* leases that were had before this was raised are over: see leases.h */
        struct Resume *resume;
        char client_name[PROTO_CLIENT_NAME_BYTES_MAX];
        bool is_tool;
        List watches;                /* under the lock of `requests`: see watch.c */
        Spares spares;               /* objects let go of: see object_take() */
        bool is_visible;             /* FOLIO_OPEN_VISIBLE */
        Ring *_Atomic ring;          /* NULL: not made yet, or refused: see pipe.h. Once there it stays. */
        struct Pipe *pipe;

        /* What has been asked for by the socket and may not have been carried out yet: see order.h. */
        atomic_uint n_changing;      /* asynchronous operations under way that change something */
        _Atomic uint64_t told_id;    /* the last request before the last word that is not answered; 0: nothing of the kind */

        /* Under the lock of `requests`. */
        atomic_bool is_opening;      /* written under it: what is called waits in opening_waiters */
        List connecting;             /* the operation that opens the client, while a foliod is searched for */
        struct Found *found;         /* what the search has found, for that operation; NULL */
        List opening_waiters;        /* operations that have not begun */
        List ready;                  /* operations to be continued by whoever comes first */
        List staging_waiters;        /* operations that found no room in staging */
        unsigned n_staged;           /* requests under way that will give room back */
        List gets;                   /* asynchronous ones that wait for an object */
        uint64_t gets_deadline_ns;   /* the earliest of theirs; UINT64_MAX: none */

        /* Under loop_lock, which comes before the other. */
        pthread_mutex_t loop_lock;
        _Atomic int epoll_fd;        /* -1 until somebody asks for it */
        int timer_fd;
        uint64_t timer_ns;           /* what it is set to; UINT64_MAX: nothing */
        bool epoll_has_room;         /* it waits for room in the socket too */
        bool epoll_has_socket;
        uint32_t epoll_serial;       /* of the connection whose socket that is */
};

void client_release_user(Client *client);

static inline void client_add_user(Client *client)
{
        atomic_fetch_add_explicit(&client->n_users, 1, memory_order_relaxed);
}

/* The last reference is gone, and folio_client_unref() is at work: nothing may begin any more. */
static inline bool client_is_closing(const Client *client)
{
        return atomic_load_explicit(&client->n_references, memory_order_acquire) == 0;
}

/* 0, FOLIO_E_INVALID or FOLIO_E_FORKED. */
static inline int client_check(const Client *client)
{
        if (UNLIKELY(!client))
                return error_set(FOLIO_E_INVALID, "the client is NULL");
        if (UNLIKELY(!forked_is_mine(client->fork_mark)))
                return error_set(FOLIO_E_FORKED, "this client belongs to the parent process; open another after fork()");
        return 0;
}

#endif
