/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: the verbs, and the only place where namespaces, accounts, objects, index, memory and pins are taken
 * together. Knows nothing of sockets, packets or descriptors in flight: who talks hands it a StoreOp and gets it back
 * through its callback, at once or, where a worker had to do something, later on the loop.
 *
 * Every verb goes shape, permission, limit, state; then acquires all that can fail; then commits with calls that
 * cannot. A failed verb leaves nothing behind.
 */
#ifndef DAEMON_STORE_STORE_H
#define DAEMON_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "daemon/memory/backend.h"
#include "daemon/service/worker.h"
#include "daemon/store/cred.h"
#include "folio/types.h"
#include "proto/codec.h"
#include "proto/status.h"

typedef struct Store Store;
typedef struct Session Session;
typedef struct StoreOp StoreOp;

/* --- the store ---------------------------------------------------------------------------------------------------- */

typedef enum StoreProtection {
        STORE_PROTECT_AUTO,          /* memfd for a daemon that has its clients' uid or is root, else tmpfs */
        STORE_PROTECT_SEALS,         /* packed regions are memfds with FUTURE_WRITE */
        STORE_PROTECT_MODE,          /* packed regions are tmpfs files of mode 0600 */
} StoreProtection;

typedef struct StoreConfig {
        WorkerPool *workers;
        uint64_t budget_bytes;
        uint64_t packed_bytes_max;   /* larger objects have a region of their own */
        uint64_t pool_bytes_max;
        uint64_t staging_bytes;      /* for each client */
        uint64_t index_objects_max;  /* of a namespace that does not say */
        uint64_t session_bytes_max;  /* of staging and pin tables, for one uid */
        uint32_t n_events;           /* of an index; a power of two */
        uint32_t n_namespaces_max;
        enum folio_huge huge;
        StoreProtection packed_protection;
        const char *tmpfs_directory; /* as of backend_tmpfs_open(); borrowed; NULL: a mount of our own */
        bool is_user_daemon;         /* its clients have its uid */
        uint64_t (*now_ns)(void);    /* CLOCK_REALTIME; a test passes its own */
        struct Keeper *keeper;       /* borrowed: what outlives the process; NULL: nothing does */
} StoreConfig;

/* @ret_failed_call: which call refused, where it is the kernel's doing ("memfd_create"). */
int store_new(const StoreConfig *config, Store **ret, const char **ret_failed_call);
void store_free(Store *store); /* no session is left; drains the workers */

/*
 * With StoreConfig.keeper: what an earlier foliod has left becomes this store's, as it was when that ended, or a new
 * store is begun. Once, after store_new() and before anything else. Whatever moment this process ends at, what is not
 * restored yet is there for the next one.
 *
 * STORE_RESTORE_E_VERSION: a newer foliod has left it; all is left in place, and *@ret_message says what to do. Or a
 * negative errno, with a message too. In both cases the store can only be left (store_leave()).
 */
enum { STORE_RESTORE_E_VERSION = 1 };

#define STORE_RESTORE_LINES_MAX 16
typedef struct StoreRestoreFacts {
        uint64_t n_namespaces, n_objects, object_bytes; /* that are there again */
        uint64_t n_held;             /* of those: that have lost their name, and are pinned */
        uint64_t n_writing;          /* and that are being written */
        uint64_t n_sessions;
        uint64_t n_dropped;          /* objects that are lost: they are not what was written, or their memory is not */
        uint64_t n_ended;            /* objects that were being written by who has gone meanwhile */
        uint64_t n_bad;              /* descriptors that could not be used */
        uint64_t us;
        unsigned n_lines;            /* of what was dropped and why, for the log */
        char lines[STORE_RESTORE_LINES_MAX][200];
        int listener_fd;             /* KEPT_LISTENER, the caller's; -1: there was none */
        struct Kept *listener_kept;
} StoreRestoreFacts;
int store_restore(Store *store, StoreRestoreFacts *ret, char **ret_message);

/*
 * In place of store_free(), where another foliod goes on with it: nothing is taken from anybody, and all that is kept
 * stays so. No session is left (session_leave()); drains the workers.
 */
void store_leave(Store *store);

uint64_t store_instance(const Store *store);

/*
 * The number of the daemon's beacon, by which all sessions of before are taken over (proto/staging.h). Nothing that a client
 * may still find in an index of before has been retired until then; what died with its creator is now.
 */
void store_take_over(Store *store, uint64_t start);

/* Where files come from that nobody but the daemon can write; borrowed. */
Backend *store_private_backend(const Store *store);
bool store_is_empty(const Store *store); /* no object, held ones neither */

/* Changes what can change at run time. Never takes memory away from what is there. */
void store_set_budget(Store *store, uint64_t budget_bytes);
void store_set_pool(Store *store, uint64_t bytes_max);

/* Once a second: forgets what has not been asked for lately, and lets the pool follow. */
void store_tick(Store *store);

/* The machine is short of memory: all that the pool has goes, and it rests for a while. */
void store_relieve(Store *store);

/*
 * What this process may have, with all that share its limit, and what of it is taken and cannot be had back without
 * somebody's doing: the pool keeps a tenth of the limit free. UINT64_MAX: no limit.
 */
void store_set_host(Store *store, uint64_t limit_bytes, uint64_t used_bytes);
void store_set_session_limit(Store *store, uint64_t bytes_max); /* of one uid */

/* When expired objects must be looked for, CLOCK_REALTIME; UINT64_MAX: never. Then store_expire(). */
uint64_t store_next_expiry_ns(const Store *store);
void store_expire(Store *store);

/* From time to time, and after RELEASE and hang-up: frees held objects whose last pin has gone. */
void store_sweep_held(Store *store);

/* Writes wake-ups that have been put off: once after each batch of work, before the loop sleeps. */
void store_flush(Store *store);

/* Facts for `status`: calls @each for every one. */
void store_each_fact(Store *store, void (*each)(void *userdata, const char *name, uint64_t value, const char *text),
                     void *userdata);

/* --- sessions: what a connection has in the store ----------------------------------------------------------------- */

typedef struct SessionConfig {
        Cred cred;                   /* groups are copied */
        const char *comm;            /* for showing */
        uint64_t connected_ns;
        bool is_tool;                /* a few of each uid get in beyond session_bytes_max */
        void *userdata;
} SessionConfig;

/* STATUS_OK, or STATUS_LIMIT and STATUS_INTERNAL with *@ret_detail to be freed. Makes the staging region. */
Status session_new(Store *store, const SessionConfig *config, Session **ret, char **ret_detail);

/*
 * The connection has ended: drops its pins, aborts what it was writing, deletes with-creator objects. Its ops that
 * are under way still complete, with STATUS_CANCELLED or whatever came of them; the session is freed after the last.
 * No new op may begin.
 */
void session_close(Session *session);

int session_staging_fd(const Session *session); /* read-write, borrowed */
bool session_has_anything(const Session *session); /* there may be pins, objects that go with it, leases */
bool session_has_arrived(const Session *session); /* its client has had the welcome, and can have it back */
bool session_is_over(const Session *session); /* its client says that it does not come back (proto/staging.h) */

/*
 * For the next foliod, where there is a keeper: a pidfd of the client, and the ring. Without a keeper, or where it has
 * no room, they are not kept, and the client begins anew after a restart; that is no error. The descriptors are
 * borrowed. To be called before the client knows.
 */
void session_keep_process(Session *session, int process_fd);
void session_keep_ring(Session *session, int ring_fd, int bell_fd);

/*
 * By which the client asks for its session after a restart; 0: it cannot. And what its events have for an origin
 * (layout_origin_*()): never 0, and no other session's of any start.
 */
uint64_t session_token(const Session *session);
uint32_t session_number(const Session *session);

/*
 * We are about to end, in order, and another foliod comes: the connection is gone, but for the store the session is
 * not: it stays in the index and in what is kept as it is, and only our own memory of it goes. No operation may begin;
 * those under way end as with session_close().
 */
void session_leave(Session *session);

/* --- ghosts: sessions of an earlier foliod whose clients have not come back yet ------------------------------------ */

/* In no order; NULL begins, and ends. */
Session *session_next_ghost(const Store *store, const Session *after);
bool session_is_ghost(const Session *session);

/* Not all its rights are known before its client is there: its ring waits for that. */
bool session_is_cut(const Session *session);

/* As found (daemon/store/session.h), borrowed, for who carries it out from now on; NULL: it has none. */
struct SessionRing *session_get_restored_ring(Session *session);

/* A pidfd of the client, handed over; -1: nobody knows it. */
int session_take_process(Session *session);

/* The client is there again: @config as in session_new(), but for what it had already. It is a ghost no more. */
int session_resume(Session *session, const SessionConfig *config);

/*
 * The session's ring, mapped for writing by whoever made it and mapped for as long as the session is open: its leases
 * look at lease_use[] in it. @is_drained: has everything been carried out that is published now and names @region_id?
 */
struct RingHeader;
void session_set_ring(Session *session, struct RingHeader *ring,
                      bool (*is_drained)(void *userdata, uint64_t region_id), void *userdata);

/* What a ring of @n_bytes takes, paid by the uid like staging memory. STATUS_OK, or STATUS_LIMIT with the sentence. */
Status session_charge_ring(Session *session, uint64_t n_bytes, char **ret_detail);
const Cred *session_cred(const Session *session);

/* --- operations --------------------------------------------------------------------------------------------------- */

/*
 * One item of one request. The caller fills the first part, keeps it (and what @item borrows) until done() is called,
 * once, on the loop, perhaps before store_submit() returns; and frees what it owns then.
 */
struct StoreOp {
        Session *session;
        ProtoVerb verb;              /* PUT, CREATE, WRITE, SEAL, ABORT, REGION, RELEASE, TRUNCATE, DELETE, LEASE */
        uint32_t namespace_id;
        const ProtoItem *item;
        uint64_t hash;               /* what store_expect() has answered for the very same key; 0: it was not asked */
        uint64_t leased_region_id;   /* PUT, CREATE: the bytes lie there, at item->offset_bytes; 0: in staging memory */
        uint32_t made;               /* CREATE by a ring: 1 + the client's number for the object; 0: it has none */
        uint64_t origin;             /* layout_origin_*(), for the events that come of it; 0: nobody will ask */
        void (*done)(StoreOp *op);
        void *userdata;

        /* Results. */
        Status status;
        char *detail;                /* a sentence, where status is not OK; the caller frees it; may be NULL */
        uint32_t slot;
        uint64_t generation;
        uint64_t region_id;
        uint64_t region_bytes;
        uint64_t offset_bytes;
        enum folio_placement placement;
        int fd;                      /* a duplicate, the caller's to close; -1: none */
        int book_fd;                 /* LEASE: the same, of the book; @slot: the lease's number, @generation: epoch */

        /* The store's. */
        List link;
        void *object;
        void *work;
};

void store_submit(Store *store, StoreOp *op);

/*
 * An operation about @key comes next but for a few: what it will look at first, and is hardly ever in a cache, is
 * fetched meanwhile. A hint: @namespace_id and @key may be anything. What it answers is for StoreOp.hash, and, a little
 * later, for store_expect_object(), which fetches what the name leads to.
 */
uint64_t store_expect(Store *store, uint32_t namespace_id, Key key);
void store_expect_object(Store *store, uint32_t namespace_id, uint64_t hash);

/*
 * Verbs that are about namespaces or only look, and never wait. Each returns STATUS_OK or another status with
 * *@ret_detail set (to be freed) to a sentence.
 */

/* @ret_index_fd, @ret_pins_fd: borrowed; -1 without the read right. Opening twice gives the same. */
Status store_namespace_open(Store *store, Session *session, const char *name, ProtoNamespace *ret, int *ret_index_fd,
                            int *ret_pins_fd, char **ret_detail);
Status store_namespace_add(Store *store, Session *session, const ProtoNamespace *settings, ProtoNamespace *ret,
                           char **ret_detail);
Status store_namespace_set(Store *store, Session *session, const ProtoNamespace *settings, ProtoNamespace *ret,
                           char **ret_detail);
Status store_namespace_remove(Store *store, Session *session, const char *name, char **ret_detail);

/*
 * Up to @n_max of those @session may see (all may be seen by name; numbers only with a right), sorted, behind @after.
 */
size_t store_namespace_list(Store *store, Session *session, Key after, ProtoNamespace *ret, size_t n_max);

/* Without a session: the configuration's namespaces, at start and on reload. */
Status store_namespace_configure(Store *store, const ProtoNamespace *settings, char **ret_detail);

typedef struct StoreHolder {
        const Session *session;
        uint64_t n_pins;
} StoreHolder;

Status store_holders(Store *store, Session *session, uint32_t namespace_id, const ProtoItem *item,
                     StoreHolder *holders, size_t n_max, size_t *ret_n_holders, char **ret_detail);
const char *session_comm(const Session *session);
uint64_t session_connected_ns(const Session *session);

/* A timerfd of this session that expires after each batch of events of the namespace; borrowed. */
Status store_watch(Store *store, Session *session, uint32_t namespace_id, int *ret_fd, char **ret_detail);

#endif
