/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See leases.h. The one lock covers placing and saying which record it was published by; it may be held while a record
 * waits for room in the ring, as the daemon needs nothing of us to make some. A lease is asked for without the lock, by
 * one thread at a time: others go the other way meanwhile.
 */
#include "client/leases.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "client/lib/connection.h"
#include "client/resume.h"

/* An answer is a round trip: a hundredth of this. */
#define LEASES_REFUSED_NS (UINT64_C(10) * 1000 * 1000)
#define LEASES_FIRST_BYTES HUGE_BYTES
#define LEASES_LIKED_BYTES_MAX (64 * MIB)
#define LEASES_OTHER_BYTES_MIN (64 * KIB)

/* From here on it is worth while to look for where it fits best. */
#define LEASES_LARGE_BYTES (32 * KIB)

enum {
        LEASES_OTHER_MIN = 64,
        LEASES_TRIES_MAX = 8,
};

struct Leases {
        pthread_mutex_t lock;
        unsigned since;              /* Client.n_leased, as it was when they were had */
        unsigned n_leases;
        Lease *leases[RING_LEASES_MAX]; /* the first is the one placed in last */
        atomic_bool is_asked;
        atomic_bool has_some;        /* a guess, for who has not the lock */
        uint64_t next_bytes;         /* with is_asked */
        unsigned asked_since;        /* with is_asked: as `since`, of next_bytes */
        uint64_t refused_bytes;      /* with is_asked: at least so many were refused, until then */
        _Atomic uint64_t refused_until_ns; /* 0: nothing was */
        atomic_uint n_other;
        _Atomic uint64_t other_bytes;
};

static Leases *leases_new(void)
{
        Leases *leases = calloc(1, sizeof(*leases));

        if (!leases)
                return NULL;
        leases->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        leases->next_bytes = LEASES_FIRST_BYTES;
        return leases;
}

static void leases_free(Leases *leases)
{
        for (unsigned i = 0; i < leases->n_leases; i++)
                lease_unref(leases->leases[i]);
        (void)pthread_mutex_destroy(&leases->lock);
        free(leases);
}

Leases *leases_of(Name *name)
{
        Leases *leases = atomic_load_explicit(&name->leases, memory_order_acquire), *made;

        if (LIKELY(leases) || name->writers != FOLIO_WRITERS_TRUSTED)
                return leases;
        made = leases_new();
        if (made && !atomic_compare_exchange_strong(&name->leases, &leases, made)) {
                leases_free(made);
                return leases;
        }
        return made;
}

void leases_free_all(Client *client)
{
        for (Name *name = atomic_load(&client->names); name; name = name->next) {
                Leases *leases = atomic_exchange(&name->leases, NULL);

                if (leases)
                        leases_free(leases);
        }
}

void leases_count_other(Leases *leases, uint64_t n_bytes)
{
        atomic_fetch_add_explicit(&leases->n_other, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&leases->other_bytes, n_bytes, memory_order_relaxed);
}

void leases_note_freed(Name *name)
{
        Leases *leases = atomic_load_explicit(&name->leases, memory_order_acquire);

        if (leases && atomic_load_explicit(&leases->refused_until_ns, memory_order_relaxed) != 0)
                atomic_store_explicit(&leases->refused_until_ns, 0, memory_order_relaxed);
}

/* --- asking for one ------------------------------------------------------------------------------------------------------------------- */

typedef struct LeaseOp {
        Op op;
        Ring *ring;
        Lease *lease;
        ProtoItem item;
} LeaseOp;

static void take_lease(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        LeaseOp *ask = CONTAINER_OF(op, LeaseOp, op);
        const ProtoItemReply *item = reply->items;
        LeaseConfig config;
        uint32_t at;
        int r;

        if (reply->n_items != 1) {
                op_fail_connection(op, FOLIO_E_PROTOCOL);
                return;
        }
        if (item->status != 0) {
                op_fail_status(op, item->status, item->detail);
                return;
        }
        at = item->descriptor;
        if (at == 0 || at >= n_fds || item->slot >= RING_LEASES_MAX || item->generation > UINT32_MAX) {
                op_fail_connection(op, FOLIO_E_PROTOCOL);
                return;
        }
        config = (LeaseConfig){
                .region_id = item->region_id,
                .region_bytes = item->region_bytes,
                .number = item->slot,
                .epoch = (uint32_t)item->generation,
                .use = ring_lease_use(ask->ring, item->slot),
                .beacon = resume_beacon(op->client),
        };
        r = lease_new(&config, steal_fd(&fds[at - 1]), steal_fd(&fds[at]), &ask->lease);
        if (r != 0)
                op_fail_connection(op, r < 0 ? error_from_errno(r) : FOLIO_E_PROTOCOL);
}

/* NULL: it is not to be had; why is nobody's to know. */
static Lease *ask(Client *client, Ring *ring, Space *space, uint64_t n_bytes, uint64_t liked_bytes)
{
        LeaseOp ask = { .ring = ring, .item = { .size_bytes = n_bytes, .offset_bytes = liked_bytes } };
        ProtoRequest message = { .verb = VERB_LEASE, .namespace_id = space->id, .n_items = 1, .items = &ask.item };

        op_init(&ask.op, client);
        ask.op.space = space;
        op_send(&ask.op, &message, take_lease, op_complete);
        (void)op_wait_quietly(&ask.op);
        op_deinit(&ask.op);
        return ask.lease;
}

/* With is_asked. Is there any use in asking for so much? */
static bool is_to_be_had(const Leases *leases, uint64_t n_bytes)
{
        uint64_t until_ns = atomic_load_explicit(&leases->refused_until_ns, memory_order_relaxed);

        if (until_ns != 0 && n_bytes >= leases->refused_bytes && connection_now_ns() < until_ns)
                return false;
        return n_bytes <= LEASE_REGION_BYTES_MAX;
}

/* @since: Client.n_leased, before it was asked for. */
static bool add(Leases *leases, Lease *lease, unsigned since)
{
        bool has_room;

        (void)pthread_mutex_lock(&leases->lock);
        has_room = leases->since == since && leases->n_leases < ARRAY_SIZE(leases->leases);
        if (has_room) {
                leases->leases[leases->n_leases] = leases->leases[0];
                leases->leases[0] = lease;
                leases->n_leases++;
                atomic_store_explicit(&leases->has_some, true, memory_order_relaxed);
        }
        (void)pthread_mutex_unlock(&leases->lock);
        if (!has_room)
                lease_unref(lease);
        return has_room;
}

static bool take_one(Client *client, Ring *ring, Leases *leases, Space *space, uint64_t n_bytes)
{
        unsigned since = atomic_load_explicit(&client->n_leased, memory_order_acquire);
        uint64_t liked_bytes;
        Lease *lease = NULL;

        if (client_is_closing(client) || atomic_exchange(&leases->is_asked, true))
                return false;
        /* With all that there was gone back, it begins as small as it did at first. */
        if (leases->asked_since != since)
                leases->next_bytes = LEASES_FIRST_BYTES;
        leases->asked_since = since;
        if (is_to_be_had(leases, n_bytes)) {
                liked_bytes = MAX(leases->next_bytes, ALIGN_UP(n_bytes, HUGE_BYTES));
                lease = ask(client, ring, space, n_bytes, liked_bytes);
                leases->refused_bytes = n_bytes;
                atomic_store_explicit(&leases->refused_until_ns, lease ? 0 : connection_now_ns() + LEASES_REFUSED_NS,
                                      memory_order_relaxed);
                if (lease)
                        leases->next_bytes = MIN(leases->next_bytes * 2, LEASES_LIKED_BYTES_MAX);
        }
        atomic_store(&leases->is_asked, false);
        return lease && add(leases, lease, since);
}

/* --- placing -------------------------------------------------------------------------------------------------------------------------- */

static void drop(Leases *leases, unsigned i)
{
        lease_unref(leases->leases[i]);
        leases->leases[i] = leases->leases[--leases->n_leases];
        if (leases->n_leases == 0)
                atomic_store_explicit(&leases->has_some, false, memory_order_relaxed);
}

/*
 * With the lock. Another foliod has taken back what the last one gave: what is placed there stays, and what is just being
 * placed may be, but nothing is from now on.
 */
static void drop_old(Client *client, Leases *leases)
{
        unsigned since = atomic_load_explicit(&client->n_leased, memory_order_acquire);

        if (LIKELY(leases->since == since))
                return;
        while (leases->n_leases > 0)
                drop(leases, 0);
        leases->since = since;
        atomic_store_explicit(&leases->refused_until_ns, 0, memory_order_relaxed);
}

/* With the lock. The lease of which least is cut into comes first; where they are equal the one placed in last. */
static void sort_by_fit(Leases *leases, uint64_t n_bytes)
{
        uint64_t best_bytes = UINT64_MAX;
        unsigned best = 0;
        Lease *lease;

        for (unsigned i = 0; i < leases->n_leases && best_bytes > 0; i++) {
                uint64_t fit_bytes = lease_fit_bytes(leases->leases[i], n_bytes);

                if (fit_bytes < best_bytes) {
                        best_bytes = fit_bytes;
                        best = i;
                }
        }
        if (best == 0)
                return;
        lease = leases->leases[best];
        leases->leases[best] = leases->leases[0];
        leases->leases[0] = lease;
}

/* With the lock. LEASE_PLACE_*; BEHIND: *@ret_last records must have been carried out. */
static int place(Leases *leases, uint64_t n_bytes, uint64_t head, Placed *ret, uint64_t *ret_last)
{
        int outcome = LEASE_PLACE_FULL;

        if (n_bytes >= LEASES_LARGE_BYTES) {
                /* What is behind is not waited for: most have room somewhere. */
                for (unsigned i = 0; i < leases->n_leases; i++)
                        (void)lease_refresh(leases->leases[i], n_bytes, head);
                sort_by_fit(leases, n_bytes);
        }
        for (unsigned i = 0; i < leases->n_leases;) {
                Lease *lease = leases->leases[i];
                void *data;
                int r;

                if (UNLIKELY(!lease_begin(lease))) {
                        drop(leases, i);
                        continue;
                }
                r = n_bytes <= lease_region_bytes(lease) ? lease_place(lease, n_bytes, head, &ret->offset_bytes, &data) :
                                                           LEASE_PLACE_FULL;
                if (LIKELY(r == LEASE_PLACE_OK)) {
                        ret->lease = lease;
                        ret->data = data;
                        ret->is_zero = lease_is_placed_fresh(lease);
                        leases->leases[i] = leases->leases[0];
                        leases->leases[0] = lease;
                        return r;
                }
                if (r == LEASE_PLACE_BEHIND && outcome == LEASE_PLACE_FULL) {
                        outcome = r;
                        *ret_last = lease_last(lease);
                }
                lease_end(lease);
                i++;
        }
        return outcome;
}

/* Is one to be asked for where there is none yet? */
static bool is_worth_it(const Client *client, const Leases *leases, uint64_t n_bytes)
{
        return atomic_load_explicit(&leases->has_some, memory_order_relaxed) || n_bytes > client->packed_bytes_max ||
               atomic_load_explicit(&leases->n_other, memory_order_relaxed) >= LEASES_OTHER_MIN ||
               atomic_load_explicit(&leases->other_bytes, memory_order_relaxed) >= LEASES_OTHER_BYTES_MIN;
}

/*
 * None has room, as far as is known. Has anything come free that was not looked for, also by what is still under way?
 */
static void insist(Client *client, Ring *ring, Leases *leases)
{
        /* Whatever it says: what has come free is looked for where it has. */
        (void)ring_catch_up(ring, 0, client->timeout_ns);
        (void)pthread_mutex_lock(&leases->lock);
        for (unsigned i = 0; i < leases->n_leases; i++)
                lease_insist(leases->leases[i]);
        (void)pthread_mutex_unlock(&leases->lock);
}

bool leases_place(Client *client, Ring *ring, Leases *leases, Space *space, uint64_t n_bytes, bool is_to_lock, Placed *ret)
{
        uint64_t head = n_bytes >= LEASES_LARGE_BYTES ? ring_head_seen(ring) : 0, last = 0;
        bool has_insisted = false;

        if (UNLIKELY(!is_worth_it(client, leases, n_bytes)))
                return false;
        ret->leases = leases;
        ret->n_bytes = n_bytes;
        for (unsigned i = 0; i < LEASES_TRIES_MAX; i++) {
                int r;

                (void)pthread_mutex_lock(&leases->lock);
                drop_old(client, leases);
                r = place(leases, n_bytes, head, ret, &last);
                if (LIKELY(r == LEASE_PLACE_OK)) {
                        if (!is_to_lock) {
                                (void)lease_ref(ret->lease);
                                (void)pthread_mutex_unlock(&leases->lock);
                        }
                        ret->is_locked = is_to_lock;
                        return true;
                }
                (void)pthread_mutex_unlock(&leases->lock);
                /* All that is ours there has been carried out, and what is placed by others is on its way: another one. */
                if (r == LEASE_PLACE_BEHIND && head < last && ring_wait(ring, last - 1, client->timeout_ns) == 0) {
                        head = ring_head(ring);
                        continue;
                }
                if (!has_insisted) {
                        has_insisted = true;
                        insist(client, ring, leases);
                        continue;
                }
                if (!take_one(client, ring, leases, space, n_bytes))
                        return false;
        }
        return false;
}

static void leave(Placed *placed)
{
        Leases *leases = placed->leases;

        lease_end(placed->lease);
        if (!placed->is_locked)
                lease_unref(placed->lease);
        (void)pthread_mutex_unlock(&leases->lock);
}

void leases_lock(Leases *leases)
{
        (void)pthread_mutex_lock(&leases->lock);
}

void leases_unlock(Leases *leases)
{
        (void)pthread_mutex_unlock(&leases->lock);
}

void leases_published(Placed *placed)
{
        leave(placed);
}

void leases_give(Placed *placed)
{
        lease_unplace(placed->lease, placed->offset_bytes, placed->n_bytes);
        leave(placed);
}
