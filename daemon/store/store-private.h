/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the store share and nobody else may see: the store itself, a namespace with all that is in it (a
 * space), and an operation that waits for a worker, for memory or for its turn (a work).
 *
 * Order and waiting. Operations about one object are carried out in order: one that finds its object busy waits in the
 * object's list; one whose key is claimed by an operation under way waits behind that claim. A work that ends lets go,
 * answers, and runs those who waited from the beginning: whoever waits has nothing yet.
 */
#ifndef DAEMON_STORE_STORE_PRIVATE_H
#define DAEMON_STORE_STORE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/macro.h"
#include "daemon/memory/demand.h"
#include "daemon/memory/packed.h"
#include "daemon/memory/pool.h"
#include "daemon/memory/prepare.h"
#include "daemon/memory/region.h"
#include "daemon/store/account.h"
#include "daemon/store/expiry.h"
#include "daemon/store/index.h"
#include "daemon/store/lease.h"
#include "daemon/store/namespace.h"
#include "daemon/store/object.h"
#include "daemon/store/pins.h"
#include "daemon/store/session.h"
#include "daemon/store/store.h"

/*
 * More goes to a worker. A copy of 256 KiB takes about as long as handing it over and back (7 to 20 us, warm or cold,
 * against two wake-ups of 10), and nothing else can get in its way here.
 */
#define STORE_SLOW_COPY_BYTES (256 * KIB)
#define STORE_SLOW_WRITE_BYTES (32 * KIB)    /* into a file whose pages are not there yet */
#define STORE_SLOW_RESERVE_BYTES (256 * KIB) /* measured, as the next one, as about the tenth of a millisecond */
#define STORE_SLOW_TRUNCATE_BYTES MIB
#define STORE_SLOW_SEAL_BYTES HUGE_BYTES
#define STORE_SLOW_FREE_BYTES HUGE_BYTES
#define STORE_CHEAP_PIECE_NS 750000u        /* zeroing 2 MiB takes 200 us where the folio is at hand */
#define STORE_SLOW_SEARCH_BYTES (256 * KIB) /* in a file with holes: at most two calls for each page of them */
#define STORE_HOLES_MAX 65536u              /* that are looked at; what is behind counts as data */
#define STORE_SCAN_SLICE_BYTES (8 * MIB)    /* read: a millisecond or two */
#define STORE_COLLAPSE_SLICE_BYTES (8 * MIB) /* a few milliseconds of a worker: others wait no longer */
#define STORE_CHORES_PER_TURN 512u          /* objects looked at before the loop gets its turn, */
#define STORE_CHORES_NS UINT64_C(250000)    /* or so long */
#define STORE_CLAIM_LISTS 64u
#define STORE_SESSION_LISTS 64u

/*
 * Staging regions and pin tables are as large as they might be needed, and mostly holes. A connection pays so much for
 * each of them from the start, and for more when it is there, as found by looking from time to time; then it is too
 * late to refuse it, but no other connection gets in until the uid has less than its limit. A page is in any case on
 * the account of the client's cgroup, which touched it first.
 */
#define STORE_SESSION_BASE_BYTES (64 * KIB)
#define STORE_SESSION_TOOLS_MAX 4u    /* sessions of a uid that begin beyond its limit: what they may take is little */
#define STORE_SESSIONS_MEASURED 128u /* in one tick: two system calls each */

/* A job that makes a part of a space's index huge. */
typedef struct IndexCollapse {
        WorkerJob job;
        Store *store;
        bool is_running;             /* the space stays for it */
        Region *region;              /* a reference, while it runs */
        uint64_t offset_bytes, n_bytes;
        uint64_t n_huge, n_failed;   /* pieces of 2 MiB */
        unsigned n_rounds;
        uint64_t huge_bytes;         /* of the whole index, as found afterwards */
        int result;
} IndexCollapse;

typedef struct Space {
        List link;                   /* of the store, by name; not of removed ones */
        List dirty_link;             /* has wake-ups to write */
        Namespace ns;
        Index *index;
        Packed *packed;
        Backend *own_backend;
        Object **objects;            /* by slot */
        uint64_t n_objects;          /* records, held ones too */
        List tables;                 /* of the sessions that opened it */
        List claims[STORE_CLAIM_LISTS]; /* works, by hash of the key */
        List packed_waiters;         /* works that wait for a packed region */
        unsigned n_works;
        bool is_growing;             /* a packed region is being made */
        bool is_evacuating;          /* objects are being moved */
        bool is_removed;
        WorkerJob burial;            /* its end: large tables take long to give back */
        uint32_t reap_slot;          /* how far a removed one has been emptied */
        IndexCollapse index_collapse;
        uint64_t index_huge_bytes;   /* as last measured */
        uint64_t held_bytes, n_held, unsealed_bytes, n_unsealed;
        List leases;                 /* held ones, */
        List orphans;                /* and those that nobody holds */
        uint64_t leased_bytes;       /* of both, whole */
        uint32_t *creatorless;       /* slots of restored objects that die with a session that is not there any more */
        size_t n_creatorless;
} Space;

/* How much may be done of what is long before the loop gets its turn. */
typedef struct Slice {
        unsigned n_left;             /* 0: it is over */
        uint64_t until_ns;           /* monotonic */
} Slice;

/* A kind of blanks that the pool has been asked to keep. */
typedef struct Wanted {
        Backend *backend;
        uint64_t size_bytes;
        bool for_packed;
        unsigned n;
} Wanted;

#define STORE_WANTED_MAX (DEMAND_CLASSES_MAX + 8)

typedef struct Work {
        WorkerJob job;
        Store *store;
        Space *space;
        StoreOp *op;
        Object *object;              /* made busy, or being made */
        bool is_busy;                /* the former */
        List claim;                  /* in a list of the space */
        bool has_claim;
        uint64_t hash;
        List waiters;                /* operations behind the claim */
        List link;                   /* in a list of those who wait */
        void (*finish)(struct Work *work); /* on the loop, when the job is over */
        int result;                  /* of the job; -ECANCELED before it has run */
        /* What the job needs, and what it found. */
        Region *region;
        const uint8_t *from;
        uint8_t *to;
        uint64_t offset_bytes, n_bytes, old_bytes;
        uint64_t allocated_bytes, huge_bytes;
        uint64_t n_huge, n_failed;   /* pieces of 2 MiB */
        LayoutExtents *zeros;        /* what reads as zeros; NULL: not wanted, or no memory for it */
        Leased *leased;              /* of LEASE, when it is made */
        bool want_huge;
        bool has_holes;
        bool is_stream;
        bool is_closed_by_mode;
        Prepare *prepare;            /* while it is being made, and @link is in the store's list of those */
} Work;

/* What an operation is about. */
typedef struct Target {
        Space *space;
        uint64_t hash;               /* of the key, where it is by key */
        Object *object;              /* NULL: no such name */
} Target;

struct Store {
        StoreConfig config;
        uid_t uid;
        gid_t gid;
        int object_fds_max;          /* descriptors from this number on are not for objects, but for who comes for them */
        uint64_t instance;
        uint64_t last_generation;
        uint32_t last_namespace_id;
        Backend *memfd;
        Backend *tmpfs;              /* NULL: not to be had, tmpfs_error says why */
        Backend *packed_backend;
        char tmpfs_error[96];
        Account budget;              /* memory of regions, whole */
        Charge pool_charge;          /* what of it the pool has */
        Pool *pool;
        Slabs objects;
        Demand demand;               /* of own regions */
        Wanted wanted[STORE_WANTED_MAX];
        unsigned n_wanted;
        uint64_t turn_ns;            /* CLOCK_REALTIME as last looked at in this turn of the loop; 0: not yet */
        unsigned n_ticks;
        unsigned n_rest_ticks;       /* so long the pool makes nothing */
        uint64_t ceiling_bytes;      /* of what is paid for: up to here the pool may grow; UINT64_MAX: no limit seen */
        uint64_t pool_drained_bytes; /* for the sake of others than our clients */
        List spaces;                 /* by name */
        List removed_spaces;
        unsigned n_spaces;
        List dirty_spaces;
        Expiry expiry;
        List held;                   /* objects, those looked at longest ago first */
        uint64_t held_bytes, n_held, n_objects;
        List sessions;
        List closed_sessions;        /* that still have something */
        unsigned n_sessions;
        List sessions_by_number[STORE_SESSION_LISTS];
        uint32_t last_session_number;
        uint64_t n_sessions_unkept;  /* ever: that will not outlive us */
        uint64_t start;              /* of the beacon; 0: there is none */
        uint64_t n_bad_ghost_parts;  /* what an earlier foliod left of sessions, and could not be used */
        List uid_accounts;
        List memory_waiters;         /* works */
        List preparing;              /* works */
        List collapses;
        uint64_t freeing_bytes;      /* on its way back to the kernel */
        uint64_t leased_bytes, n_leases, n_orphans;
        uint64_t n_recalled;
        uint64_t n_sweep_left;       /* held objects to look at in this round */
        WorkerJob chore;
        bool has_chore;
        bool is_waking;              /* those who wait for memory */
        bool is_stopping;
        bool is_restoring;           /* nothing goes back that more may be found in */
        bool is_leaving;             /* another daemon goes on: what was taken from its name is held, whoever holds it */
        uint64_t n_collapsed, n_collapse_failed; /* pieces of 2 MiB */
        _Atomic uint64_t n_volatile; /* regions that nobody keeps, though somebody should */
        StoreRestoreFacts restored;
        uint64_t n_evacuated, evacuated_bytes;
        Backend old_tmpfs;           /* where files of an earlier daemon's tmpfs belong, if there is none now */
};

/* The clock is looked at once in a turn of the loop: store_flush() ends it. */
static inline uint64_t store_now_ns(Store *store)
{
        if (store->turn_ns == 0)
                store->turn_ns = store->config.now_ns();
        return store->turn_ns;
}

/* --- store.c ------------------------------------------------------------------------------------------------------ */

/* A sentence, and the status it belongs to. @ret_detail must be empty. */
Status store_refuse(char **ret_detail, Status status, const char *format, ...) _printf_(3, 4);
Status store_refuse_errno(char **ret_detail, int error, const char *what);

/* The namespace that is always there. */
Status store_make_default(Store *store, char **ret_detail);

Slice store_begin_slice(void);

/* False: no more in this turn. Else one more object may be looked at. */
bool store_take_slice(Slice *slice);

/* Has something to be done later: on the loop, but not in the call that found it. */
void store_schedule_chore(Store *store);

/* --- store-space.c ------------------------------------------------------------------------------------------------ */

Space *store_find_space(const Store *store, const char *name);
Space *store_find_space_by_id(const Store *store, uint32_t id);
Status store_make_space(Store *store, const ProtoNamespace *settings, uint32_t default_mode, uid_t owner_uid,
                        gid_t owner_gid, Space **ret, char **ret_detail);

/* One that an earlier daemon had, without objects; its index is not kept and not complete yet. */
typedef struct StoreSpaceOld {
        const char *name;
        uint32_t id;
        uint64_t hash_seed;
        uint64_t index_generation;   /* of the new index */
        uint32_t n_events;           /* as many as before: clients have it mapped with these */
        LayoutSettings settings;
} StoreSpaceOld;
Status store_make_old_space(Store *store, const StoreSpaceOld *old, Space **ret, char **ret_detail);

/* The settings have changed: the index says so. */
void store_note_settings(Space *space);
void store_remove_space(Store *store, Space *space);  /* from view; its objects go bit by bit */
void store_reap_spaces(Store *store, Slice *slice);
void store_try_free_space(Store *store, Space *space); /* if it is removed, and empty */
void store_mark_dirty(Store *store, Space *space);
uint32_t store_rights(const Store *store, const Space *space, const Session *session);
uint32_t store_count_pins(const Space *space, uint32_t slot);

/* --- store-memory.c ----------------------------------------------------------------------------------------------- */

enum {
        STORE_PAY_WAIT = 1,          /* enough is on its way back */
        STORE_PAY_FULL = 2,
        STORE_PAY_NEVER = 3,
};

int store_memory_init(Store *store, const char **ret_failed_call);
void store_memory_deinit(Store *store);

/* Takes @n_bytes of the budget, from the pool if it must be. 0 or STORE_PAY_*. */
int store_pay(Store *store, uint64_t n_bytes, Charge *ret);
int store_pay_more(Store *store, Charge *charge, uint64_t n_bytes); /* resizes */
Status store_refuse_payment(const Store *store, int outcome, uint64_t n_bytes, char **ret_detail);

/* What a file for @n_bytes of an own region is large; false: it does not fit into a number. */
bool store_own_file_bytes(uint64_t n_bytes, uint64_t *ret);

/* @consume_charge goes into the region, and is released with its memory. False: no memory; nothing is taken. */
bool store_attach_charge(Region *region, Charge *consume_charge);
void store_drop_region(Store *store, Region *consume_region);

/* One that nothing is taken in. Whoever maps it still finds zeros from then on: the memory goes for certain. */
void store_drop_leased(Store *store, Leased *consume_leased);

/* A blank one from the pool, paid for; NULL. */
Region *store_take_blank(Store *store, Backend *backend, uint64_t n_bytes, bool for_packed, uint64_t tag);

/*
 * A chunk of the space's packed regions. 0, STORE_PAY_* (WAIT: wait for memory), STORE_CHUNK_GROWING (wait for the
 * packed region that is being made), or a negative errno.
 */
enum { STORE_CHUNK_GROWING = 16 };
int store_take_chunk(Store *store, Space *space, uint64_t n_bytes, Chunk **ret);
void store_give_chunk(Store *store, Space *space, Chunk *chunk);

/* Runs those who waited for memory again; what does not fit into a slice, a chore will. */
void store_wake_memory_waiters(Store *store);

/* --- store-kept.c ------------------------------------------------------------------------------------------------- */

#define STORE_KEPT_BACKING UINT64_C(0xff) /* of KeptRecord.detail: enum folio_backing */
#define STORE_KEPT_GROWS UINT64_C(0x100)  /* the size is another since */

uint64_t store_kept_detail(const Region *region, bool can_grow);

/*
 * Before anything in @region is acknowledged, in a worker or on the loop; nothing where there is no keeper. 0, or
 * KEEPER_E_FULL or a negative errno: then it is not kept, and nobody may have it.
 */
int store_keep_region(Store *store, Region *region, KeptKind kind, uint32_t namespace_id, uint64_t id, bool can_grow);
Status store_refuse_kept(const Store *store, int outcome, char **ret_detail);

/* Before the last reference goes: what is kept of it stays. */
void store_leave_region(Region *region);

/* --- store-evacuate.c --------------------------------------------------------------------------------------------- */

/* Idle work, if there is any to be done: moves objects out of a region that an earlier daemon has filled. */
void store_evacuate_some(Store *store, Space *space);
void store_tick_evacuation(Store *store);

/* --- store-lease.c ------------------------------------------------------------------------------------------------ */

/* The units that @op names, in a lease of its session in @space: taken by the object that comes to be there. */
Status store_take_units(StoreOp *op, const Space *space, Leased **ret);

/* They come back; an orphan may go with the last of them. */
void store_give_units(Store *store, Leased *leased, uint64_t offset_bytes, uint64_t n_bytes);

/* An object in it is being written from now on (1), or not any more (-1). */
void store_count_writing(Leased *leased, int change);

/* An object has been taken away from who writes it in place, and may go on: nobody else may have those units. */
void store_spoil_lease(Leased *leased);
bool store_is_spoiled(Lease *lease);

/* All leases of a session that has closed, or of a namespace that is removed, end. */
void store_close_leases(Store *store, Session *session);
void store_close_space_leases(Store *store, Space *space);

/* What could be had of empty regions that are not used at the moment; tries to have @n_bytes of it, or all there is. */
uint64_t store_idle_lease_bytes(const Store *store);
uint64_t store_reclaim_leases(Store *store, uint64_t n_bytes);

void store_tick_leases(Store *store);

/* --- store-pool.c ------------------------------------------------------------------------------------------------- */

int store_pool_init(Store *store);
void store_begin_pool(Store *store); /* nothing is made before: with a keeper, only when it has told of what there is */

/* An own region of @n_bytes is asked for: such a one may be wanted again. */
void store_note_demand(Store *store, uint64_t n_bytes);

/* --- store-huge.c ------------------------------------------------------------------------------------------------- */

/*
 * For an object that has just been sealed. @consume_zeros: what is known to read as zeros; NULL: nothing is, and it is
 * not looked for. @wants_huge: some of its pages are small.
 */
void store_begin_idle_work(Store *store, Object *object, LayoutExtents *consume_zeros, bool wants_huge);

/* The object goes: its region stays with the job until that is over. */
void store_orphan_collapse(Store *store, Object *object);
void store_cancel_collapses(Store *store);

/* --- store-extents.c ---------------------------------------------------------------------------------------------- */

/* Is it one whose holes come and go? */
bool store_has_changing_zeros(const Object *object);

/* Should a search for the holes of the file be a worker's? */
bool store_is_search_slow(Region *region);

/* In a worker, or on the loop: fills in @work->zeros, if it is there, for the whole of its region. */
void store_find_zeros(Work *work);

/* Writes the record of an object that has no page yet, or the one it has, with what reads as zeros. */
void store_publish_empty(const Object *object, LayoutSlot *record);
void store_publish_zeros(const Object *object, const LayoutExtents *zeros);

/*
 * Somebody is going to read: if its holes change, what they are now is in the index when this returns OK; or PENDING,
 * and when @finish has called store_end_refreshing(), before it ends the work.
 */
int store_refresh_zeros(Store *store, const Target *target, StoreOp *op, void (*finish)(Work *work));
void store_end_refreshing(Work *work);

/* --- store-index-huge.c ------------------------------------------------------------------------------------------- */

/* If the index has grown by enough, and no job is at it, begins one. Costs next to nothing otherwise. */
void store_collapse_index(Store *store, Space *space);
void store_cancel_index_collapse(Space *space);

/* --- store-object.c ----------------------------------------------------------------------------------------------- */

/*
 * A draft: the quota of @n_bytes, a slot, a place to expire at. @ret_record: with the key's hash in it before, and what
 * the record begins with afterwards, for who fills in the rest at once (store_fill_record) and publishes; NULL: it is
 * in the slot, for later (store_begin_record).
 */
Status store_draft_object(Store *store, Space *space, const StoreOp *op, uint64_t n_bytes, Object **ret,
                          LayoutSlot *ret_record, char **ret_detail);
Status store_charge_object(Object *object, uint64_t n_bytes, char **ret_detail); /* resizes; not of a held one */

/* Fills in what the object is and where. */
void store_describe_object(const Object *object, LayoutSlot *record);

/* A draft becomes an object that is being written, of @session. */
void store_publish_writing(Store *store, Object *object, Session *session, LayoutSlot *record);

/* A draft, or an object being written, becomes one that can be got. The name may be taken only where it replaces. */
Status store_publish(Store *store, Object *object, Session *session, ObjectState state, LayoutSlot *record,
                     uint64_t origin, char **ret_detail);

/*
 * The same where nothing can have changed since the name was checked (store_check_name): @rival has it, or nobody
 * (NULL).
 */
void store_publish_over(Store *store, Object *object, Session *session, ObjectState state, LayoutSlot *record,
                        Object *rival, uint64_t origin);

/* Takes the object from everybody: @grave and @event 0: none. @origin: of the request, as in StoreOp. */
void store_retire_object(Store *store, Object *object, uint8_t grave, enum folio_event_type event, uint64_t origin);

/* Retracted, but somebody holds it, or a worker is at it. */
void store_hold_object(Store *store, Object *object);

/* A draft, or a retracted object that nobody holds: everything it has goes back. */
void store_forget_object(Store *store, Object *object);

/* Where its bytes lie, and what was paid for them, is given back. */
void store_give_bytes(Store *store, Object *object);

/* After an operation on it: frees a retracted object if it can. */
void store_settle_object(Store *store, Object *object);
void store_sweep_some(Store *store, Slice *slice);

/* --- session.c ---------------------------------------------------------------------------------------------------- */

/* What a few of the sessions, in turn, really have of their staging memory and pin tables, they are charged for. */
void store_measure_sessions(Store *store);

/* Objects of connections that have ended. */
void store_abandon_some(Store *store, Slice *slice);

/* --- store-op.c --------------------------------------------------------------------------------------------------- */

/* What a handler returns when the operation will be finished later; else it returns a Status. */
#define STORE_OP_PENDING (-1)

/*
 * Finds what the operation is about, and checks that the session has @rights. PENDING: it is not its turn and has
 * been put into a queue. By slot there is an object always; by key there may be none.
 */
int store_resolve(Store *store, StoreOp *op, uint32_t rights, Target *ret);

Status store_check_rights(const Store *store, StoreOp *op, const Space *space, uint32_t rights);

/* Why there is no object of that name: a Status with its sentence. */
Status store_refuse_missing(const Target *target, const StoreOp *op);

/* @object: made busy; NULL: the key is claimed. NULL is returned where memory is out. */
Work *store_begin_work(Store *store, const Target *target, StoreOp *op, Object *object);
void store_submit_work(Work *work, WorkerQueue queue, void (*run)(WorkerJob *job), void (*finish)(Work *work));

/* Nobody will want what they make: those of @session, or all with NULL. */
void store_cancel_preparing(Store *store, const Session *session);

/* Lets go, answers, frees @work, and runs who waited behind it. */
void store_end_work(Work *work, Status status);

/* As before, but the operation runs again from the beginning. */
void store_retry_work(Work *work);

/* PENDING, with the operation in @queue and nobody overtaking it; or a Status. */
int store_wait(Store *store, const Target *target, StoreOp *op, Object *object, List *queue);

void store_run_queue(Store *store, List *consume_queue); /* of operations */

/* --- the verbs: PENDING or a Status ------------------------------------------------------------------------------- */

int store_verb_put(Store *store, StoreOp *op);
int store_verb_create(Store *store, StoreOp *op);
int store_verb_write(Store *store, StoreOp *op);
int store_verb_seal(Store *store, StoreOp *op);
int store_verb_abort(Store *store, StoreOp *op);
int store_verb_region(Store *store, StoreOp *op);
int store_verb_release(Store *store, StoreOp *op);
int store_verb_truncate(Store *store, StoreOp *op);
int store_verb_delete(Store *store, StoreOp *op);
int store_verb_lease(Store *store, StoreOp *op);

/* Shape and limits that PUT and CREATE share. */
Status store_check_options(const StoreOp *op, uint32_t flags_known, char **ret_detail);
Status store_check_size(const Store *store, const Space *space, uint64_t n_bytes, char **ret_detail);

/* By slot, an object that the session of @op is writing; @verb for the sentence. PENDING or a Status. */
int store_resolve_writing(Store *store, StoreOp *op, const char *verb, Target *ret);

/* May the name be taken? @is_at_once: or only when the object is sealed. */
Status store_check_name(const Target *target, const StoreOp *op, bool is_at_once, char **ret_detail);

/* A draft where its client has placed it. */
Status store_draft_leased(Store *store, const Target *target, StoreOp *op, Object **ret, LayoutSlot *ret_record);

/* A draft with a chunk. PENDING or a Status. */
int store_draft_packed(Store *store, const Target *target, StoreOp *op, Object **ret);

/* The record of a new object as the options say: begun as its slot has it, or as the draft gave it. */
void store_fill_record(Store *store, const StoreOp *op, const Object *object, LayoutSlot *record);
void store_begin_record(Store *store, const StoreOp *op, const Object *object, LayoutSlot *ret);

/* What a packed or leased object takes. */
void store_measure_object(const Object *object, LayoutSlot *record);

/*
 * What is in allocated_pages of the record of a packed or leased object; while it is being written, StoreOp.made is
 * there instead, for the next foliod.
 */
uint32_t store_packed_pages(const Object *object);

/* Where the bytes lie that the item says are staged. */
Status store_check_staging(const StoreOp *op, uint64_t n_bytes, const uint8_t **ret_from);

/* A job: copies n_bytes from @from to @to. */
void store_copy_run(WorkerJob *job);

/* What guards a sealed packed object. */
enum folio_protection store_packed_protection(const Store *store);

/* What is in the results of an operation about @object. */
void store_fill_op(StoreOp *op, const Object *object);

#endif
