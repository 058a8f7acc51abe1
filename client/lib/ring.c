/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock for those who put records in. `seen` is how far the daemon had come when somebody last looked, with the
 * lock; up to there failures have been told, and places are free. The daemon's lines are looked at only when the
 * ring has moved on by a quarter, or somebody waits: so the two sides seldom take a cache line from each other.
 *
 * Never more than n_records numbers lie between `seen` and `tail`. The table of hashes has the low halves of
 * numbers, each above by one; one that is that little above `seen` is under way, any other is long past (or of
 * another age of the counter). As keys share places in it, what it finds is looked for among the records under way,
 * each of which has its whole hash in `hashes`.
 *
 * A result that somebody wants stays at its place until the place is needed again, or for failures until they are
 * noticed; then it goes to `kept`. Whatever the daemon writes is looked at as numbers only: a head that runs
 * backwards, or past what was submitted, and the ring is *broken*, which is the same as a daemon that has gone.
 */
#include "client/lib/ring.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/lib/ring-private.h"
#include "proto/status.h"

#define RING_SLICE_NS (UINT64_C(50) * 1000 * 1000)
/* So many looks at the head between two at the clock; and a longer step of it means that we did not run. */
#define RING_LOOKS 8u
#define RING_GAP_NS 8000u
#define RING_RECORDS_PER_PAUSE 8u
#define RING_PAUSES_MAX 8u

/* -- noticing what the daemon has done; with the lock -------------------------------------------------------------- */

static void ring_lock(Ring *ring)
{
        int r = pthread_mutex_lock(&ring->lock);

        assert(r == 0);
        (void)r;
}

static void ring_unlock(Ring *ring)
{
        (void)pthread_mutex_unlock(&ring->lock);
}

static uint64_t ring_seen(const Ring *ring)
{
        return atomic_load_explicit(&ring->seen, memory_order_acquire);
}

static bool ring_is_broken(const Ring *ring)
{
        return atomic_load_explicit(&ring->is_broken, memory_order_relaxed);
}

/* A copy of the result of @sequence as it stands in the ring. False: there is none. */
static bool ring_read_result(const Ring *ring, uint64_t sequence, KeptResult *ret)
{
        const RingResult *shared = &ring->results[sequence & ring->mask];

        *ret = (KeptResult){ .sequence_end = sequence + 1, .status = STATUS_PROTOCOL };
        if (atomic_load_explicit(&shared->sequence, memory_order_acquire) != (uint32_t)(sequence + 1))
                return false;
        ret->status = shared->status;
        ret->slot = shared->slot;
        ret->generation = shared->generation;
        return true;
}

/* The sentence is there until we store 0; @ret has room for it and a NUL. */
static void ring_read_text(Ring *ring, uint64_t sequence, char *ret)
{
        RingHeader *shared = ring->shared;
        uint32_t n;

        ret[0] = '\0';
        if (atomic_load_explicit(&shared->failure_sequence, memory_order_acquire) != sequence + 1)
                return;
        n = MIN(*(volatile uint32_t *)&shared->failure_bytes, RING_FAILURE_BYTES_MAX);
        memcpy(ret, shared->failure_text, n);
        ret[n] = '\0';
        atomic_store_explicit(&shared->failure_sequence, 0, memory_order_release);
}

/* Where somebody will ask for it. Without memory it stays where it is, as long as it can, and its sentence is lost. */
static void ring_keep_failure(Ring *ring, KeptResult *result, const KeptFailure *failure)
{
        KeptFailure *copy = malloc(sizeof(*copy));

        if (copy) {
                *copy = *failure;
                result->failure = copy;
                if (kept_push(&ring->kept, result))
                        ring->is_wanted[(result->sequence_end - 1) & ring->mask] = false;
                else
                        free(copy);
        }
}

static void ring_tell_failures(Ring *ring, uint64_t begin, uint64_t end)
{
        uint64_t text_of;

        for (uint64_t sequence = begin; sequence < end; sequence++) {
                KeptFailure failure;
                KeptResult result;

                if (!ring_read_result(ring, sequence, &result) || result.status == STATUS_OK)
                        continue;
                ring->n_failed++;
                failure.record = ring->records[sequence & ring->mask];
                ring_read_text(ring, sequence, failure.text);
                if (ring->is_wanted[sequence & ring->mask])
                        ring_keep_failure(ring, &result, &failure);
                else
                        ring->config.on_failure(ring->config.userdata, &failure.record, result.status, failure.text);
        }
        /* A sentence that is nobody's must not keep the next one out. */
        text_of = atomic_load_explicit(&ring->shared->failure_sequence, memory_order_relaxed);
        if (text_of != 0 && text_of <= end)
                atomic_store_explicit(&ring->shared->failure_sequence, 0, memory_order_release);
}

/* False: broken. */
static bool ring_look(Ring *ring)
{
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        uint64_t seen = atomic_load_explicit(&ring->seen, memory_order_relaxed);
        uint64_t head = atomic_load_explicit(&ring->shared->head, memory_order_acquire);

        if (ring_is_broken(ring))
                return false;
        if (head < seen || head > tail) {
                atomic_store_explicit(&ring->is_broken, true, memory_order_relaxed);
                ring->look_at = 0;
                return false;
        }
        ring->look_at = MIN(tail + MAX(ring->n_records / 4, 1u), head + ring->n_records);
        if (head == seen)
                return true;
        /* It is raised before head: what failed below is counted, and perhaps some more, for which we look again. */
        if (atomic_load_explicit(&ring->shared->n_failed, memory_order_relaxed) != ring->n_failed)
                ring_tell_failures(ring, seen, head);
        /* For readers: who sees this sees in the index what the daemon did before. */
        atomic_store_explicit(&ring->seen, head, memory_order_release);
        ring->config.on_progress(ring->config.userdata, head);
        return true;
}

/* -- waiting; without the lock ------------------------------------------------------------------------------------- */

static uint64_t ring_now_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Whether the records below @end have been carried out, if the daemon is to be believed. */
static bool ring_has_come(const Ring *ring, uint64_t end)
{
        return atomic_load_explicit(&ring->shared->head, memory_order_acquire) >= end;
}

static bool ring_look_for(const Ring *ring, uint64_t end, uint64_t begun_ns, uint64_t ns)
{
        for (uint64_t last_ns = begun_ns, now_ns; last_ns - begun_ns < ns; last_ns = now_ns) {
                for (unsigned i = 0; i < RING_LOOKS; i++) {
                        uint64_t head = atomic_load_explicit(&ring->shared->head, memory_order_acquire);

                        if (head >= end)
                                return true;
                        /* The further it has to come the less often: each look takes the line away from the daemon. */
                        for (uint64_t n = MIN(1 + (end - head) / RING_RECORDS_PER_PAUSE, RING_PAUSES_MAX); n > 0; n--)
                                spin_pause();
                }
                now_ns = ring_now_ns();
                /* Somebody else wanted the processor, perhaps the one that we wait for. */
                if (now_ns - last_ns > RING_GAP_NS)
                        break;
        }
        return ring_has_come(ring, end);
}

/* Until the daemon says that it has come on, or @ns, at most a slice, are over. */
static void ring_sleep_slice(Ring *ring, uint64_t end, uint64_t ns)
{
        RingHeader *shared = ring->shared;
        /* What SYS_futex takes: two longs, also where time_t has become wider than those. */
        struct {
                long s;
                long ns;
        } timeout = { .s = 0, .ns = (long)ns };
        uint32_t value;

        (void)atomic_fetch_add_explicit(&shared->n_sleeping, 1, memory_order_seq_cst);
        value = atomic_load_explicit(&shared->head_futex, memory_order_acquire);
        /* For the daemon: either it sees that we sleep, or we see what it has done. */
        atomic_thread_fence(memory_order_seq_cst);
        if (!ring_has_come(ring, end))
                /* A signal, or a wake-up for others: the caller looks again. */
                (void)syscall(SYS_futex, &shared->head_futex, FUTEX_WAIT, value, &timeout, NULL, 0);
        (void)atomic_fetch_sub_explicit(&shared->n_sleeping, 1, memory_order_relaxed);
}

static int ring_sleep(Ring *ring, uint64_t end, uint64_t begun_ns, uint64_t timeout_ns)
{
        uint64_t ask_ns = ring_now_ns() + RING_SLICE_NS;

        while (!ring_has_come(ring, end)) {
                uint64_t now_ns = ring_now_ns();

                if (now_ns >= ask_ns) {
                        if (!ring->config.is_alive(ring->config.userdata)) {
                                atomic_store_explicit(&ring->is_gone, true, memory_order_relaxed);
                                return ring_has_come(ring, end) ? 0 : RING_E_GONE;
                        }
                        ask_ns = now_ns + RING_SLICE_NS;
                }
                if (ring_is_broken(ring))
                        return RING_E_GONE;
                if (now_ns - begun_ns >= timeout_ns)
                        return RING_E_TIMEOUT;
                ring_sleep_slice(ring, end, MIN(ask_ns - now_ns, timeout_ns - (now_ns - begun_ns)));
        }
        return 0;
}

/* Until the records below @end have been carried out; nothing is noticed of it. */
static int ring_await(Ring *ring, uint64_t end, uint64_t timeout_ns)
{
        uint64_t begun_ns, look_ns;
        uint32_t chosen_ns;
        bool was_seen = false;
        int r = 0;

        if (ring_has_come(ring, end))
                return 0;
        if (ring_is_broken(ring) || atomic_load_explicit(&ring->is_gone, memory_order_relaxed))
                return RING_E_GONE;
        if (timeout_ns == 0)
                return RING_E_TIMEOUT;
        begun_ns = ring_now_ns();
        /* It may have been woken on this processor, and would run only when we have looked for long enough. */
        if (atomic_exchange_explicit(&ring->has_rung, false, memory_order_relaxed))
                (void)sched_yield();
        chosen_ns = spin_choose(&ring->spin);
        look_ns = MIN(chosen_ns, timeout_ns);
        if (look_ns > 0)
                was_seen = ring_look_for(ring, end, begun_ns, look_ns);
        if (!was_seen)
                r = ring_sleep(ring, end, begun_ns, timeout_ns);
        if (r == 0)
                spin_learn(&ring->spin, chosen_ns, was_seen, ring_now_ns() - begun_ns);
        return r;
}

/* The same, and takes notice. With the lock afterwards, whatever came of it. */
static int ring_await_locked(Ring *ring, uint64_t end, uint64_t timeout_ns)
{
        int r = 0;

        if (ring_seen(ring) < end)
                r = ring_await(ring, end, timeout_ns);
        ring_lock(ring);
        if (ring_seen(ring) >= end)
                return 0;
        if (!ring_look(ring))
                return RING_E_GONE;
        /* It has been there once: if it is not any more, the daemon runs backwards. */
        return ring_seen(ring) >= end ? 0 : r != 0 ? r : RING_E_GONE;
}

/* -- putting records in -------------------------------------------------------------------------------------------- */

/* The place of the next record is free but for a result that somebody wants. False: no memory. */
static bool ring_step_by(Ring *ring, uint64_t tail)
{
        KeptResult result;

        (void)ring_read_result(ring, tail - ring->n_records, &result);
        if (result.status != STATUS_OK) {
                KeptFailure failure = { .record = ring->records[tail & ring->mask] };

                ring_keep_failure(ring, &result, &failure);
        } else if (kept_push(&ring->kept, &result)) {
                ring->is_wanted[tail & ring->mask] = false;
        }
        return !ring->is_wanted[tail & ring->mask];
}

/* With the lock; it is given up unless this answers 0. */
static int ring_make_room(Ring *ring, uint64_t timeout_ns)
{
        uint64_t begun_ns = 0;
        int waited = 0;

        for (;;) {
                uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
                uint64_t passed_ns = 0;

                if (!ring_look(ring)) {
                        ring_unlock(ring);
                        return RING_E_GONE;
                }
                if (tail - ring_seen(ring) < ring->n_records) {
                        if (!ring->is_wanted[tail & ring->mask] || ring_step_by(ring, tail))
                                return 0;
                        waited = RING_E_TIMEOUT;
                }
                ring_unlock(ring);
                if (waited != 0)
                        return waited;
                if (begun_ns == 0)
                        begun_ns = ring_now_ns();
                else
                        passed_ns = MIN(ring_now_ns() - begun_ns, timeout_ns);
                /* For some places at once, so as not to wait for each. What came of it shows above. */
                waited = ring_await(ring, tail - ring->n_records + MAX(ring->n_records / 8, 1u),
                                    timeout_ns - passed_ns);
                ring_lock(ring);
        }
}

int ring_begin(Ring *ring, uint64_t timeout_ns, RingRecord **ret, uint64_t *ret_sequence)
{
        uint64_t tail;
        int r;

        ring_lock(ring);
        tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        /* Whoever has waited for the daemon, and found that it has ended, knows that nobody will read this one. */
        if (UNLIKELY(atomic_load_explicit(&ring->is_gone, memory_order_relaxed))) {
                ring_unlock(ring);
                return RING_E_GONE;
        }
        if (UNLIKELY(tail >= ring->look_at || ring->is_wanted[tail & ring->mask])) {
                r = ring_make_room(ring, timeout_ns);
                if (r != 0)
                        return r;
                tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        }
        *ret = &ring->records[tail & ring->mask];
        *ret_sequence = tail;
        return 0;
}

void ring_cancel(Ring *ring)
{
        ring_unlock(ring);
}

static uint32_t ring_latest_place(uint64_t hash)
{
        return (uint32_t)(hash ^ hash >> 32) & (RING_LATEST - 1);
}

static void ring_ring_bell(Ring *ring)
{
        uint64_t one = 1;

        atomic_store_explicit(&ring->has_rung, true, memory_order_relaxed);
        atomic_store_explicit(&ring->shared->bell_cpu, (uint32_t)(sched_getcpu() + 1), memory_order_relaxed);
        /* Full is as good as rung; anything else is noticed by who waits. */
        (void)!write(ring->bell_fd, &one, sizeof(one));
}

void ring_submit(Ring *ring, uint64_t hash, bool wants_result)
{
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        int is_asleep;

        if (wants_result) {
                ring->records[tail & ring->mask].flags |= RING_FLAG_RESULT;
                ring->is_wanted[tail & ring->mask] = true;
        }
        tail++;
        /* For readers: `seen` as they find it after this is not further behind than the ring is long. */
        atomic_store_explicit(&ring->hashes[(tail - 1) & ring->mask], hash, memory_order_relaxed);
        if (hash != 0)
                atomic_store_explicit(&ring->latest[ring_latest_place(hash)], (uint32_t)tail, memory_order_release);
        atomic_store_explicit(&ring->tail, tail, memory_order_release);
        is_asleep = ring_publish_tail(ring->shared, tail);
        ring_unlock(ring);
        if (is_asleep)
                ring_ring_bell(ring);
}

/* -- another daemon ------------------------------------------------------------------------------------------------- */

void ring_resume(Ring *ring, uint32_t n_restarts)
{
        atomic_store_explicit(&ring->n_restarts, n_restarts, memory_order_release);
        atomic_store_explicit(&ring->is_gone, false, memory_order_relaxed);
        /* The one that has ended may have said that it was awake. */
        ring_ring_bell(ring);
}

uint64_t ring_lose(Ring *ring)
{
        uint64_t n;

        ring_lock(ring);
        (void)ring_look(ring);
        n = ring_tail(ring) - ring_seen(ring);
        atomic_store_explicit(&ring->is_gone, true, memory_order_relaxed);
        atomic_store_explicit(&ring->is_broken, true, memory_order_relaxed);
        ring->look_at = 0;
        ring_unlock(ring);
        return n;
}

/* -- asking what came of them -------------------------------------------------------------------------------------- */

int ring_wait(Ring *ring, uint64_t sequence, uint64_t timeout_ns)
{
        int r;

        assert(sequence < ring_tail(ring));
        if (ring_seen(ring) > sequence)
                return 0;
        r = ring_await_locked(ring, sequence + 1, timeout_ns);
        ring_unlock(ring);
        return r;
}

/* With the lock; @sequence has been carried out, and is wanted. @ret->failure is the caller's from then on. */
static void ring_take_result(Ring *ring, uint64_t sequence, KeptResult *ret)
{
        bool is_here = ring->is_wanted[sequence & ring->mask] &&
                       sequence + ring->n_records >= atomic_load_explicit(&ring->tail, memory_order_relaxed);
        bool is_kept = is_here ? false : kept_take(&ring->kept, sequence, ret);

        assert(is_here || is_kept);
        (void)is_kept;
        if (is_here) {
                (void)ring_read_result(ring, sequence, ret);
                ring->is_wanted[sequence & ring->mask] = false;
        }
}

static void ring_give_result(KeptResult *result, RingResult *ret, char *text)
{
        _cleanup_(cleanup_free) KeptFailure *failure = steal_ptr(&result->failure);

        *ret = (RingResult){
                .sequence = (uint32_t)result->sequence_end,
                .status = result->status,
                .slot = result->slot,
                .generation = result->generation,
        };
        if (failure)
                memcpy(text, failure->text, sizeof(failure->text));
        else
                text[0] = '\0';
}

/* With the lock. */
static void ring_forget(Ring *ring, uint64_t sequence)
{
        RingRecord record = ring->records[sequence & ring->mask];
        KeptResult result;

        if (ring_seen(ring) <= sequence) {
                ring->is_wanted[sequence & ring->mask] = false;
                return;
        }
        ring_take_result(ring, sequence, &result);
        if (result.failure)
                ring->config.on_failure(ring->config.userdata, &result.failure->record, result.status,
                                        result.failure->text);
        else if (result.status != STATUS_OK && sequence + ring->n_records >= ring_tail(ring))
                ring->config.on_failure(ring->config.userdata, &record, result.status, "");
        free(result.failure);
}

int ring_wait_result(Ring *ring, uint64_t sequence, uint64_t timeout_ns, RingResult *ret, char *text)
{
        KeptResult result;
        int r;

        assert(sequence < ring_tail(ring));
        r = ring_await_locked(ring, sequence + 1, timeout_ns);
        if (r == 0)
                ring_take_result(ring, sequence, &result);
        else
                ring_forget(ring, sequence);
        ring_unlock(ring);
        if (r == 0)
                ring_give_result(&result, ret, text);
        return r;
}

bool ring_try_result(Ring *ring, uint64_t sequence, RingResult *ret, char *text)
{
        KeptResult result;

        assert(sequence < ring_tail(ring));
        if (ring_seen(ring) <= sequence && !ring_has_come(ring, sequence + 1))
                return false;
        if (ring_await_locked(ring, sequence + 1, 0) != 0) {
                ring_unlock(ring);
                return false;
        }
        ring_take_result(ring, sequence, &result);
        ring_unlock(ring);
        ring_give_result(&result, ret, text);
        return true;
}

void ring_forget_result(Ring *ring, uint64_t sequence)
{
        ring_lock(ring);
        ring_forget(ring, sequence);
        ring_unlock(ring);
}

uint64_t ring_tail(Ring *ring)
{
        return atomic_load_explicit(&ring->tail, memory_order_acquire);
}

uint64_t ring_head_seen(Ring *ring)
{
        return ring_seen(ring);
}

uint64_t ring_head(Ring *ring)
{
        /* Also where it runs backwards. */
        if (atomic_load_explicit(&ring->shared->head, memory_order_relaxed) == ring_seen(ring))
                return ring_seen(ring);
        ring_lock(ring);
        (void)ring_look(ring);
        ring_unlock(ring);
        return ring_seen(ring);
}

_Atomic uint32_t *ring_lease_use(Ring *ring, uint32_t number)
{
        assert(number < RING_LEASES_MAX);
        return &ring->shared->lease_use[number];
}

/* -- reading one's own writes -------------------------------------------------------------------------------------- */

/* How many records have to be carried out before nothing of @hash is under way; 0: nothing is, as far as was seen. */
static uint64_t ring_under_way(Ring *ring, uint64_t hash)
{
        uint32_t latest = atomic_load_explicit(&ring->latest[ring_latest_place(hash)], memory_order_acquire);
        uint64_t seen = ring_seen(ring);
        uint32_t ahead = latest - (uint32_t)seen;

        if (LIKELY(ahead - 1 >= ring->n_records))
                return 0;
        /*
         * That place is shared: with some hundred under way one in ten keys finds another's there. A later one than ours, if so;
         * and where another thread is putting that one in at this moment, the tail does not count it yet, but does ours.
         */
        for (uint64_t end = MIN(seen + ahead, ring_tail(ring)); end > seen; end--)
                if (atomic_load_explicit(&ring->hashes[(end - 1) & ring->mask], memory_order_relaxed) == hash)
                        return end;
        return 0;
}

bool ring_is_caught_up(Ring *ring, uint64_t hash)
{
        uint64_t end = hash != 0 ? ring_under_way(ring, hash) : ring_tail(ring);

        return end <= ring_seen(ring) || ring_has_come(ring, end);
}

int ring_catch_up(Ring *ring, uint64_t hash, uint64_t timeout_ns)
{
        uint64_t end = hash != 0 ? ring_under_way(ring, hash) : ring_tail(ring);
        int r;

        /* Who asks for everything wants to know of failures too. */
        if (end <= ring_seen(ring) || (hash != 0 && ring_has_come(ring, end)))
                return 0;
        r = ring_await_locked(ring, end, timeout_ns);
        ring_unlock(ring);
        return r;
}
