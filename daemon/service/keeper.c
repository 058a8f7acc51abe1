/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping and dropping, as everybody sees it. Where there is no room in the open segment the emptiest one is opened
 * again, then the spare one, which the thread has made ahead; while it makes the next one, those there are are filled
 * beyond what they should have.
 */
#include "daemon/service/keeper-private.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/service/keeper-record.h"
#include "daemon/service/log.h"

#define SEGMENTS_AIM 32
#define SEGMENT_MESSAGES_MIN 8
#define ROOM_WAIT_NS UINT64_C(2000000000)

uint64_t keeper_clock_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* there is such a clock */
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- what it consists of ------------------------------------------------------------------------------------------ */

void keeper_kept_free(Kept *kept)
{
        list_unlink(&kept->link);
        free(kept->name);
        free(kept);
}

Segment *keeper_segment_new(uint64_t serial)
{
        Segment *segment = calloc(1, sizeof(*segment));

        if (!segment)
                return NULL;
        list_init(&segment->link);
        list_init(&segment->kept);
        segment->queue = (KeeperSegment)KEEPER_SEGMENT_NULL;
        segment->serial = serial;
        return segment;
}

void keeper_segment_free(Segment *segment)
{
        for (List *link; (link = list_peek_front(&segment->kept));)
                keeper_kept_free(LIST_ENTRY(link, Kept, link));
        list_unlink(&segment->link);
        keeper_segment_close(&segment->queue);
        free(segment);
}

void keeper_add_segment(Keeper *keeper, Segment *segment)
{
        list_push_back(&keeper->segments, &segment->link);
        keeper->n_segments++;
}

void keeper_mark_gone(Keeper *keeper, int error)
{
        const char *reason = keeper->is_lost ? "the process that did has ended" : strerror(error < 0 ? -error : error);
        const LogField field = LOG_FIELD_TEXT("FOLIO_REASON", reason);

        if (!keeper->is_gone)
                log_event(LOG_EVENT_KEEPER_GONE, LOG_LEVEL_WARNING, &field, 1,
                          "nobody keeps objects for a restart any more: %s; they do not outlive this process", reason);
        keeper->is_gone = true;
        (void)pthread_cond_broadcast(&keeper->change);
}

/* --- room --------------------------------------------------------------------------------------------------------- */

unsigned keeper_segment_target(const Keeper *keeper)
{
        return (unsigned)CLAMP(keeper->n_parked / keeper->n_segments_aim, SEGMENT_MESSAGES_MIN,
                               KEEPER_SEGMENT_MESSAGES_MAX);
}

static bool takes_more(const Segment *segment, const Segment *except, unsigned n_max)
{
        return segment != except && segment->queue.send_fd >= 0 && !segment->is_draining && segment->n_messages < n_max;
}

/* With less than @n_max messages. */
static Segment *find_emptiest(Keeper *keeper, const Segment *except, unsigned n_max)
{
        Segment *best = NULL;

        LIST_FOREACH(link, &keeper->segments) {
                Segment *segment = LIST_ENTRY(link, Segment, link);

                if (!takes_more(segment, except, n_max))
                        continue;
                best = segment;
                n_max = segment->n_messages;
        }
        return best;
}

static void want_spare(Keeper *keeper)
{
        keeper->is_spare_wanted = true;
        (void)pthread_cond_signal(&keeper->work);
}

bool keeper_has_room(Keeper *keeper)
{
        return keeper->spare || find_emptiest(keeper, NULL, KEEPER_SEGMENT_MESSAGES_MAX);
}

Segment *keeper_find_room(Keeper *keeper, const Segment *except)
{
        unsigned target = keeper_segment_target(keeper);
        Segment *segment = keeper->open;

        if (segment && takes_more(segment, except, target))
                return segment;
        /* Not one that would be full again with the next. */
        segment = find_emptiest(keeper, except, target - target / 4);
        if (!segment && keeper->spare) {
                segment = steal_ptr(&keeper->spare);
                keeper_add_segment(keeper, segment);
        }
        if (!keeper->spare && keeper->n_stored < keeper_places(keeper, !segment))
                want_spare(keeper);
        if (!segment)
                return find_emptiest(keeper, except, KEEPER_SEGMENT_MESSAGES_MAX);
        keeper->open = segment;
        return segment;
}

/* The kernel lets who may exceed it have any number in flight. */
static uint64_t find_in_flight_max(void)
{
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { { 0 } };
        struct rlimit limit;

        if (syscall(SYS_capget, &header, data) == 0 &&
            (data[0].effective & (1u << CAP_SYS_RESOURCE | 1u << CAP_SYS_ADMIN)) != 0)
                return UINT64_MAX;
        if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
                return UINT64_MAX;
        /* Others of the same user have some on the way, too, and so have we to clients. */
        return limit.rlim_cur - limit.rlim_cur / 8;
}

/* --- keeping ------------------------------------------------------------------------------------------------------ */

static Kept *kept_new(void)
{
        Kept *kept = calloc(1, sizeof(*kept));

        if (kept)
                list_init(&kept->link);
        return kept;
}

static int refuse(Keeper *keeper, KeeperFull full)
{
        keeper->full = full;
        return KEEPER_E_FULL;
}

/* Something stored is about to go. */
static bool is_making_room(const Keeper *keeper)
{
        if (keeper->n_removing > 0 || !list_is_empty(&keeper->removals))
                return true;
        LIST_FOREACH(link, &keeper->segments) {
                const Segment *segment = LIST_ENTRY(link, Segment, link);

                if (segment->n_messages == segment->n_dropped && segment != keeper->open)
                        return true;
        }
        return false;
}

/* One stored by itself may not take the last place, where nothing could be parked then. */
static bool has_place_to_store(Keeper *keeper)
{
        return keeper->n_stored + !(keeper->is_making || keeper_has_room(keeper)) < keeper_places(keeper, false);
}

/* With the lock held, which is given up while it waits for a spare one. */
static int await_room(Keeper *keeper, Segment **ret)
{
        uint64_t deadline_ns = 0;
        struct timespec deadline;

        while (!(*ret = keeper_find_room(keeper, NULL))) {
                if (keeper->is_gone || keeper->is_frozen)
                        return KEEPER_E_GONE;
                if (keeper->n_stored >= keeper_places(keeper, true) && !keeper->is_making && !is_making_room(keeper))
                        return refuse(keeper, KEEPER_FULL_STORED);
                if (deadline_ns == 0)
                        deadline_ns = keeper_clock_ns() + ROOM_WAIT_NS;
                else if (keeper_clock_ns() >= deadline_ns)
                        return KEEPER_E_GONE;
                deadline = (struct timespec){ (time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000) };
                (void)pthread_cond_timedwait(&keeper->change, &keeper->lock, &deadline);
        }
        return 0;
}

/* With the lock held. */
static int park(Keeper *keeper, const KeptRecord *record, int fd, Kept *kept)
{
        Segment *segment;
        int r;

        if (keeper->is_gone || keeper->is_frozen)
                return KEEPER_E_GONE;
        if (keeper->n_parked + keeper->n_dropped >= keeper->n_in_flight_max)
                return refuse(keeper, KEEPER_FULL_IN_FLIGHT);
        r = await_room(keeper, &segment);
        if (r != 0)
                return r;
        r = keeper_segment_push(&segment->queue, record, fd);
        if (r == -ETOOMANYREFS)
                return refuse(keeper, KEEPER_FULL_IN_FLIGHT);
        if (r < 0)
                return r;
        kept->segment = segment;
        list_push_back(&segment->kept, &kept->link);
        segment->n_messages++;
        keeper->n_parked++;
        return 0;
}

/* With the lock held, which is given up meanwhile. KEEPER_E_FULL: there are enough, or it does not fit. */
static int store(Keeper *keeper, const KeptRecord *record, int fd, Kept *kept)
{
        KeeperName name;
        int r;

        while (keeper->is_probing)
                (void)pthread_cond_wait(&keeper->change, &keeper->lock);
        if (keeper->is_gone || keeper->is_frozen)
                return KEEPER_E_GONE;
        if (keeper->n_direct >= keeper->n_direct_max || !has_place_to_store(keeper) ||
            !keeper_record_to_name(record, keeper->serial + 1, name))
                return refuse(keeper, KEEPER_FULL_STORED);
        kept->name = strdup(name);
        if (!kept->name)
                return -ENOMEM;
        keeper->serial++;
        keeper->n_direct++;
        keeper->n_stored++;
        (void)pthread_mutex_unlock(&keeper->lock);
        r = keeper_manager_store(keeper->manager, name, fd);
        (void)pthread_mutex_lock(&keeper->lock);
        if (r == 0) {
                list_push_back(&keeper->direct, &kept->link);
                return 0;
        }
        keeper->n_direct--;
        keeper->n_stored--;
        free(steal_ptr(&kept->name));
        keeper_mark_gone(keeper, r);
        return KEEPER_E_GONE;
}

int keeper_keep(Keeper *keeper, KeptRecord *record, int fd, bool is_direct, Kept **ret)
{
        struct stat st;
        Kept *kept;
        int r = KEEPER_E_FULL;

        if (fstat(fd, &st) < 0)
                return -errno;
        record->version = KEEPER_RECORD_VERSION;
        record->inode = st.st_ino;
        record->size_bytes = (uint64_t)st.st_size;
        if (!keeper_record_is_valid(record))
                return -EINVAL;
        kept = kept_new();
        if (!kept)
                return -ENOMEM;
        (void)atomic_fetch_add(&keeper->n_waiting, 1);
        (void)pthread_mutex_lock(&keeper->lock);
        (void)atomic_fetch_sub(&keeper->n_waiting, 1);
        if ((is_direct && record->kind != KEPT_STAGING) || record->kind == KEPT_LISTENER)
                r = store(keeper, record, fd, kept);
        if (r == KEEPER_E_FULL && record->kind != KEPT_LISTENER)
                r = park(keeper, record, fd, kept);
        keeper->n_failed += r != 0;
        (void)pthread_mutex_unlock(&keeper->lock);
        if (r != 0) {
                keeper_kept_free(kept);
                return r;
        }
        *ret = kept;
        return 0;
}

/* --- dropping ----------------------------------------------------------------------------------------------------- */

void keeper_drop(Keeper *keeper, Kept *consume_kept)
{
        Kept *kept = consume_kept;

        if (!kept)
                return;
        (void)atomic_fetch_add(&keeper->n_waiting, 1);
        (void)pthread_mutex_lock(&keeper->lock);
        (void)atomic_fetch_sub(&keeper->n_waiting, 1);
        /* A frozen one stays in its list, and goes with the keeper. */
        if (!keeper->is_frozen) {
                kept->is_dropped = true;
                if (kept->segment) {
                        kept->segment->n_dropped++;
                        keeper->n_dropped++;
                        keeper->n_parked--;
                } else {
                        list_unlink(&kept->link);
                        list_push_back(&keeper->removals, &kept->link);
                }
                (void)pthread_cond_signal(&keeper->work);
        }
        (void)pthread_mutex_unlock(&keeper->lock);
}

/* With the lock held. */
static void settle(Keeper *keeper)
{
        uint64_t mine = ++keeper->n_settle_asked;

        (void)pthread_cond_signal(&keeper->work);
        while (keeper->n_settled < mine && !keeper->is_stopping)
                (void)pthread_cond_wait(&keeper->change, &keeper->lock);
}

void keeper_settle(Keeper *keeper)
{
        (void)pthread_mutex_lock(&keeper->lock);
        settle(keeper);
        (void)pthread_mutex_unlock(&keeper->lock);
}

void keeper_freeze(Keeper *keeper)
{
        (void)pthread_mutex_lock(&keeper->lock);
        settle(keeper);
        keeper->is_frozen = true;
        (void)pthread_cond_broadcast(&keeper->change);
        (void)pthread_mutex_unlock(&keeper->lock);
}

/* --- this and that ------------------------------------------------------------------------------------------------ */

void keeper_set_gone(Keeper *keeper)
{
        (void)pthread_mutex_lock(&keeper->lock);
        keeper->is_lost = true;
        keeper_mark_gone(keeper, ECONNREFUSED);
        (void)pthread_mutex_unlock(&keeper->lock);
}

bool keeper_is_gone(Keeper *keeper)
{
        bool is_gone;

        (void)pthread_mutex_lock(&keeper->lock);
        is_gone = keeper->is_gone;
        (void)pthread_mutex_unlock(&keeper->lock);
        return is_gone;
}

const char *keeper_explain(const Keeper *keeper, int outcome)
{
        static _Thread_local char sentence[320];
        Keeper *self = (Keeper *)(uintptr_t)keeper; /* for the lock */

        (void)pthread_mutex_lock(&self->lock);
        if (outcome == KEEPER_E_FULL && keeper->full == KEEPER_FULL_STORED)
                (void)snprintf(sentence, sizeof(sentence),
                               "%" PRIu64 " of the %" PRIu64 " descriptors that may be stored for a restart are, with "
                               "%" PRIu64 " parked in %" PRIu64 " of them; FileDescriptorStoreMax= and keeper-slots say "
                               "how many may be",
                               keeper->n_stored, keeper->n_stored_max, keeper->n_parked, keeper->n_segments);
        else if (outcome == KEEPER_E_FULL)
                (void)snprintf(sentence, sizeof(sentence),
                               "%" PRIu64 " descriptors are parked for a restart and the kernel takes no more of this "
                               "user: %" PRIu64 ", by the limit of open files (LimitNOFILE=)", keeper->n_parked,
                               keeper->n_in_flight_max);
        else if (outcome == KEEPER_E_GONE)
                (void)snprintf(sentence, sizeof(sentence), "nobody keeps descriptors for a restart any more");
        else if (outcome == KEEPER_E_NEWER)
                (void)snprintf(sentence, sizeof(sentence),
                               "a later version of foliod has left objects that this one cannot read; they stay as "
                               "they are: start that version again");
        else
                (void)snprintf(sentence, sizeof(sentence), "descriptors cannot be kept for a restart: %s",
                               strerror(outcome < 0 ? -outcome : outcome));
        (void)pthread_mutex_unlock(&self->lock);
        return sentence;
}

void keeper_reserve(Keeper *keeper)
{
        (void)pthread_mutex_lock(&keeper->lock);
        keeper->is_starting = false;
        (void)pthread_cond_signal(&keeper->work);
        (void)pthread_mutex_unlock(&keeper->lock);
}

void keeper_get_facts(Keeper *keeper, KeeperFacts *ret)
{
        uint64_t n_segments_max;

        (void)pthread_mutex_lock(&keeper->lock);
        n_segments_max = keeper_places(keeper, true) - MIN(keeper_places(keeper, true), keeper->n_direct);
        *ret = (KeeperFacts){
                .n_direct = keeper->n_direct,
                .n_parked = keeper->n_parked,
                .n_segments = keeper->n_segments,
                .n_stored_max = keeper->n_stored_max,
                .n_parked_max = MIN(keeper->n_in_flight_max, n_segments_max * KEEPER_SEGMENT_MESSAGES_MAX),
                .n_moved = keeper->n_moved,
                .n_failed = keeper->n_failed,
        };
        (void)pthread_mutex_unlock(&keeper->lock);
}

/* --- begin and end ------------------------------------------------------------------------------------------------ */

/*
 * No two processes may use one name: a predecessor can have sent something that the manager has not come to when we
 * begin, and what removes the one would remove the other.
 */
static uint64_t choose_serial(void)
{
        uint32_t random = 0;

        if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
                random = (uint32_t)keeper_clock_ns() ^ (uint32_t)getpid() << 20; /* early at boot */
        return (uint64_t)random << 32;
}

int keeper_alloc(const KeeperConfig *config, const char *address, Keeper **ret)
{
        pthread_condattr_t attributes;
        Keeper *keeper = calloc(1, sizeof(*keeper));
        int r;

        if (!keeper)
                return -ENOMEM;
        (void)pthread_mutex_init(&keeper->lock, NULL);
        (void)pthread_condattr_init(&attributes);
        (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&keeper->work, &attributes);
        (void)pthread_cond_init(&keeper->change, &attributes);
        (void)pthread_condattr_destroy(&attributes);
        list_init(&keeper->segments);
        list_init(&keeper->direct);
        list_init(&keeper->removals);
        list_init(&keeper->inherited);
        keeper_set_places(keeper, config->n_stored_max);
        keeper->is_unproved = config->is_guess;
        keeper->is_starting = true;
        keeper->n_segments_aim = config->n_segments_aim > 0 ? config->n_segments_aim : SEGMENTS_AIM;
        keeper->n_in_flight_max = find_in_flight_max();
        keeper->is_spare_wanted = true;
        keeper->serial = choose_serial();
        r = keeper_manager_new(address, &keeper->manager);
        if (r < 0) {
                keeper_free(keeper);
                return r;
        }
        *ret = keeper;
        return 0;
}

/* Nothing is in it. If its name stays, the successor removes it. */
static void remove_empty(Keeper *keeper, const Segment *segment)
{
        KeeperName name;

        keeper_record_to_segment_name(segment->serial, name);
        if (segment->n_messages == 0 && !keeper->is_gone)
                (void)keeper_manager_remove(keeper->manager, name);
}

void keeper_free(Keeper *keeper)
{
        keeper_stop_thread(keeper);
        if (keeper->spare)
                list_push_back(&keeper->segments, &keeper->spare->link);
        for (List *link; (link = list_peek_front(&keeper->segments));) {
                remove_empty(keeper, LIST_ENTRY(link, Segment, link));
                keeper_segment_free(LIST_ENTRY(link, Segment, link));
        }
        for (List *link; (link = list_peek_front(&keeper->direct));)
                keeper_kept_free(LIST_ENTRY(link, Kept, link));
        for (List *link; (link = list_peek_front(&keeper->removals));)
                keeper_kept_free(LIST_ENTRY(link, Kept, link));
        keeper_forget_inherited(keeper);
        while (keeper->sockets_taken < keeper->n_sockets)
                (void)close_fd(keeper->sockets[keeper->sockets_taken++]);
        free(keeper->sockets);
        if (keeper->manager)
                keeper_manager_free(keeper->manager);
        (void)pthread_cond_destroy(&keeper->work);
        (void)pthread_cond_destroy(&keeper->change);
        (void)pthread_mutex_destroy(&keeper->lock);
        free(keeper);
}
