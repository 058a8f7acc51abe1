/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's thread makes a segment ahead, so that nobody waits for the manager, and takes out what was dropped.
 *
 * What is in front of something dropped goes to the end of its own queue, or, where that is a predecessor's or has few
 * messages left, to another: first it is sent there, then it is consumed here. In one pass from the front to the last
 * that is dropped all of those go. A segment that became empty is the next spare one, or is removed.
 *
 * What fails here (no descriptor, nothing more in flight, a manager who does not answer) is tried again a little later.
 */
#include "daemon/service/keeper-private.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/service/keeper-record.h"
#include "daemon/service/log.h"

#define RETRY_NS UINT64_C(1000000000)
#define YIELDS_MAX 64
#define INHERITED_MAX 16 /* segments of predecessors: smaller ones of more are emptied */

static void retry_later(Keeper *keeper)
{
        keeper->retry_ns = keeper_clock_ns() + RETRY_NS;
}

/* Lets those in who are waited for. */
static void breathe(Keeper *keeper)
{
        (void)pthread_mutex_unlock(&keeper->lock);
        for (unsigned i = 0; i < YIELDS_MAX && atomic_load(&keeper->n_waiting) > 0; i++)
                (void)sched_yield();
        (void)pthread_mutex_lock(&keeper->lock);
}

/* --- the manager -------------------------------------------------------------------------------------------------- */

static int make_segment(Keeper *keeper, uint64_t serial, Segment **ret)
{
        Segment *segment = keeper_segment_new(serial);
        KeeperName name;
        int r;

        if (!segment)
                return -ENOMEM;
        r = keeper_segment_open(&segment->queue);
        keeper_record_to_segment_name(serial, name);
        if (r == 0)
                r = keeper_manager_store(keeper->manager, name, segment->queue.receive_fd);
        if (r < 0) {
                keeper_segment_free(segment);
                return r;
        }
        *ret = segment;
        return 0;
}

static void make_spare(Keeper *keeper)
{
        uint64_t serial = ++keeper->serial;
        Segment *segment = NULL;
        int r;

        keeper->is_spare_wanted = false;
        if (keeper->spare || keeper->is_lost ||
            keeper->n_stored >= keeper_places(keeper, !keeper_has_room(keeper))) {
                (void)pthread_cond_broadcast(&keeper->change);
                return;
        }
        keeper->n_stored++;
        keeper->is_making = true;
        (void)pthread_mutex_unlock(&keeper->lock);
        r = make_segment(keeper, serial, &segment);
        (void)pthread_mutex_lock(&keeper->lock);
        keeper->is_making = false;
        if (r < 0) {
                keeper->n_stored--;
                keeper_mark_gone(keeper, r);
                keeper->is_spare_wanted = true;
                retry_later(keeper);
                return;
        }
        if (keeper->is_gone && !keeper->is_lost) {
                keeper->is_gone = false;
                log_notice("descriptors are kept for a restart again");
        }
        keeper->spare = segment;
        keeper->retry_ns = 0; /* what had nowhere to go has now */
        (void)pthread_cond_broadcast(&keeper->change);
}

static void remove_name(Keeper *keeper, const char *name)
{
        int r = 0;

        if (!keeper->is_lost) {
                keeper->n_removing++;
                (void)pthread_mutex_unlock(&keeper->lock);
                r = keeper_manager_remove(keeper->manager, name);
                (void)pthread_mutex_lock(&keeper->lock);
                keeper->n_removing--;
        }
        (void)pthread_cond_broadcast(&keeper->change);
        /* It is no longer ours to count even where the manager has not heard of it: it is gone, or does not answer. */
        keeper->n_stored--;
        if (r < 0)
                keeper_mark_gone(keeper, r);
}

static void remove_direct(Keeper *keeper)
{
        for (List *link; (link = list_take_front(&keeper->removals));) {
                Kept *kept = LIST_ENTRY(link, Kept, link);

                remove_name(keeper, kept->name);
                keeper->n_direct--;
                keeper_kept_free(kept);
        }
}

static void remove_segment(Keeper *keeper, Segment *segment)
{
        KeeperName name;

        keeper_record_to_segment_name(segment->serial, name);
        remove_name(keeper, name);
        keeper_segment_free(segment);
}

/* With no message in it. */
static void retire(Keeper *keeper, Segment *segment)
{
        segment->is_draining = false;
        if (segment == keeper->open)
                return;
        list_unlink(&segment->link);
        keeper->n_segments--;
        if (!keeper->spare && segment->queue.send_fd >= 0) {
                keeper->spare = segment;
                (void)pthread_cond_broadcast(&keeper->change);
        } else {
                remove_segment(keeper, segment);
        }
}

/* --- what was dropped --------------------------------------------------------------------------------------------- */

static int consume_front(Segment *segment)
{
        int r = keeper_segment_consume(&segment->queue);

        if (r == 0)
                segment->n_messages--;
        return r;
}

static int forget_front(Keeper *keeper, Segment *segment, Kept *kept)
{
        int r = consume_front(segment);

        if (r < 0)
                return r;
        segment->n_dropped--;
        keeper->n_dropped--;
        keeper_kept_free(kept);
        return 0;
}

static Segment *choose_target(Keeper *keeper, Segment *segment)
{
        unsigned n_live = segment->n_messages - segment->n_dropped;
        Segment *target;

        if (segment->queue.send_fd >= 0 && !segment->is_draining && n_live >= keeper_segment_target(keeper) / 4)
                return segment;
        target = keeper_find_room(keeper, segment);
        return target || segment->queue.send_fd < 0 ? target : segment;
}

/* The order is what matters: at no moment it is nowhere. */
static int move_front(Keeper *keeper, Segment *segment, Kept *kept)
{
        Segment *target = choose_target(keeper, segment);
        KeeperMessage message;
        int r;

        if (!target)
                return -ENOSPC;
        r = keeper_segment_peek(&segment->queue, &message);
        if (r < 0)
                return r;
        r = keeper_segment_push(&target->queue, &message.record, message.fd);
        (void)close_fd(message.fd);
        if (r < 0)
                return r;
        target->n_messages++;
        list_unlink(&kept->link);
        list_push_back(&target->kept, &kept->link);
        kept->segment = target;
        keeper->n_moved++;
        return consume_front(segment);
}

/* False: not now. */
static bool clean_segment(Keeper *keeper, Segment *segment)
{
        while (segment->n_dropped > 0 || (segment->is_draining && segment->n_messages > 0)) {
                List *front = list_peek_front(&segment->kept);
                Kept *kept = LIST_ENTRY(front, Kept, link);
                int r = kept->is_dropped ? forget_front(keeper, segment, kept) : move_front(keeper, segment, kept);

                if (r < 0) {
                        segment->is_draining = false;
                        retry_later(keeper);
                        return false;
                }
                breathe(keeper);
        }
        return true;
}

static Segment *find_dirty(Keeper *keeper, uint64_t serial_min)
{
        Segment *best = NULL;

        LIST_FOREACH(link, &keeper->segments) {
                Segment *segment = LIST_ENTRY(link, Segment, link);
                bool is_dirty = segment->n_dropped > 0 || segment->is_draining ||
                                (segment->n_messages == 0 && segment != keeper->open);

                if (is_dirty && segment->serial >= serial_min && (!best || segment->serial < best->serial))
                        best = segment;
        }
        return best;
}

/* Each restart leaves some segments that cannot be filled again; with many of them the smallest goes into others. */
static bool tidy(Keeper *keeper)
{
        Segment *smallest = NULL;
        unsigned n = 0;

        LIST_FOREACH(link, &keeper->segments) {
                Segment *segment = LIST_ENTRY(link, Segment, link);

                if (segment->queue.send_fd >= 0 || segment->n_messages == 0)
                        continue;
                n++;
                if (!smallest || segment->n_messages < smallest->n_messages)
                        smallest = segment;
        }
        if (n <= MAX(MIN(INHERITED_MAX, keeper->n_stored_max / 4), 2 * keeper->n_parked / KEEPER_SEGMENT_MESSAGES_MAX))
                return false;
        smallest->is_draining = true;
        return true;
}

/* Each segment once, in the order of their serials; others may come and go meanwhile. False: something is left. */
static bool clean_all(Keeper *keeper)
{
        uint64_t serial_min = 0;
        bool is_done = true;

        remove_direct(keeper);
        for (Segment *segment; (segment = find_dirty(keeper, serial_min));) {
                serial_min = segment->serial + 1;
                if (!clean_segment(keeper, segment))
                        is_done = false;
                else if (segment->n_messages == 0)
                        retire(keeper, segment);
        }
        return is_done;
}

/* What makes room, and what needs it, in turns until there is nothing left to do, or nothing that can be done now. */
static void work(Keeper *keeper)
{
        bool is_done;

        do {
                if (keeper->is_spare_wanted)
                        make_spare(keeper);
                is_done = clean_all(keeper);
        } while (!keeper->is_stopping && ((is_done && tidy(keeper)) || (keeper->is_spare_wanted && !keeper->is_gone)));
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static bool is_to_be_proved(const Keeper *keeper)
{
        return keeper->is_unproved && !keeper->is_starting && !keeper->is_gone;
}

static bool has_work(Keeper *keeper)
{
        bool is_retry = keeper->retry_ns != 0;

        if (keeper->n_settle_asked > keeper->n_settled || is_to_be_proved(keeper))
                return true;
        if (is_retry && keeper_clock_ns() < keeper->retry_ns)
                return !list_is_empty(&keeper->removals) || (keeper->is_spare_wanted && !keeper->is_gone);
        keeper->retry_ns = 0;
        return (keeper->is_spare_wanted && !keeper->is_lost) || !list_is_empty(&keeper->removals) ||
               find_dirty(keeper, 0) != NULL;
}

static void rest(Keeper *keeper)
{
        struct timespec until = {
                (time_t)(keeper->retry_ns / 1000000000),
                (long)(keeper->retry_ns % 1000000000),
        };

        if (keeper->retry_ns != 0)
                (void)pthread_cond_timedwait(&keeper->work, &keeper->lock, &until);
        else
                (void)pthread_cond_wait(&keeper->work, &keeper->lock);
}

static void *run(void *userdata)
{
        Keeper *keeper = userdata;

        (void)pthread_mutex_lock(&keeper->lock);
        while (!keeper->is_stopping) {
                uint64_t n_asked = keeper->n_settle_asked;

                if (!has_work(keeper)) {
                        rest(keeper);
                        continue;
                }
                work(keeper);
                if (is_to_be_proved(keeper))
                        keeper_prove_places(keeper);
                if (n_asked == keeper->n_settled)
                        continue;
                if (!keeper->is_lost) {
                        (void)pthread_mutex_unlock(&keeper->lock);
                        (void)keeper_manager_confirm(keeper->manager); /* who asked waits no longer than that */
                        (void)pthread_mutex_lock(&keeper->lock);
                }
                keeper->n_settled = n_asked;
                (void)pthread_cond_broadcast(&keeper->change);
        }
        (void)pthread_mutex_unlock(&keeper->lock);
        return NULL;
}

int keeper_start_thread(Keeper *keeper)
{
        sigset_t blocked, before;
        int r;

        (void)sigfillset(&blocked); /* signals are the loop's */
        (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
        r = pthread_create(&keeper->thread, NULL, run, keeper);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        keeper->has_thread = r == 0;
        return -r;
}

void keeper_stop_thread(Keeper *keeper)
{
        if (!keeper->has_thread)
                return;
        (void)pthread_mutex_lock(&keeper->lock);
        keeper->is_stopping = true;
        (void)pthread_cond_broadcast(&keeper->work);
        (void)pthread_cond_broadcast(&keeper->change);
        (void)pthread_mutex_unlock(&keeper->lock);
        (void)pthread_join(keeper->thread, NULL); /* it looks at the flag after at most one wait for the manager */
        keeper->has_thread = false;
}
