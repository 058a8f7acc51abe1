/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a predecessor has left: sorted by name when the process begins, read whole when it is asked for, and told only
 * when all of it could be read. What can be neither told nor read belongs to somebody who was dropped at once.
 */
#include "daemon/service/keeper-private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <systemd/sd-daemon.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/service/keeper-record.h"

/* --- sorting ------------------------------------------------------------------------------------------------------ */

static void inherited_free(Inherited *inherited)
{
        list_unlink(&inherited->link);
        inherited->fd = close_fd(inherited->fd);
        free(inherited->name);
        free(inherited);
}

void keeper_forget_inherited(Keeper *keeper)
{
        for (List *link; (link = list_peek_front(&keeper->inherited));)
                inherited_free(LIST_ENTRY(link, Inherited, link));
}

static int add_inherited(Keeper *keeper, const char *name, int *fd)
{
        Inherited *inherited = calloc(1, sizeof(*inherited));
        uint64_t serial = 0;
        int r;

        if (!inherited)
                return -ENOMEM;
        list_init(&inherited->link);
        inherited->fd = -1;
        inherited->name = strdup(name);
        if (!inherited->name) {
                inherited_free(inherited);
                return -ENOMEM;
        }
        r = keeper_record_from_name(name, &inherited->record, &serial);
        inherited->serial = serial;
        inherited->is_segment = r == KEEPER_RECORD_E_SEGMENT;
        inherited->is_bad = r == KEEPER_RECORD_E_BAD;
        inherited->fd = steal_fd(fd);
        keeper->has_newer |= r == KEEPER_RECORD_E_NEWER;
        keeper->n_stored++;
        keeper->n_direct += !inherited->is_segment;
        list_push_back(&keeper->inherited, &inherited->link);
        return 0;
}

static bool has_twin(const Keeper *keeper, const Inherited *one)
{
        LIST_FOREACH(link, &keeper->inherited) {
                const Inherited *other = LIST_ENTRY(link, Inherited, link);

                if (other != one && other->is_segment && other->serial == one->serial)
                        return true;
        }
        return false;
}

static size_t forget_twins(Keeper *keeper, uint64_t serial)
{
        size_t n = 0;

        LIST_FOREACH_SAFE(link, &keeper->inherited) {
                Inherited *inherited = LIST_ENTRY(link, Inherited, link);

                if (!inherited->is_segment || inherited->serial != serial)
                        continue;
                inherited_free(inherited);
                n++;
        }
        return n;
}

/* Several segments of one name are what a probe has left that was killed in the middle: nothing is in them. */
static void drop_probes(Keeper *keeper)
{
        LIST_FOREACH_SAFE(link, &keeper->inherited) {
                const Inherited *inherited = LIST_ENTRY(link, Inherited, link);
                KeeperName name;

                if (!inherited->is_segment || !has_twin(keeper, inherited))
                        continue;
                keeper_record_to_segment_name(inherited->serial, name);
                (void)keeper_manager_remove(keeper->manager, name); /* else they stay for the next */
                keeper->n_stored -= forget_twins(keeper, inherited->serial);
                return;
        }
}

static int sort(Keeper *keeper, const KeeperPassed *passed)
{
        keeper->sockets = calloc(passed->n + 1, sizeof(*keeper->sockets));
        if (!keeper->sockets)
                return -ENOMEM;
        for (size_t i = 0; i < passed->n; i++) {
                KeptRecord record;
                uint64_t serial;

                if (keeper_record_from_name(passed->names[i], &record, &serial) == KEEPER_RECORD_E_FOREIGN) {
                        keeper->sockets[keeper->n_sockets++] = steal_fd(&passed->fds[i]);
                } else {
                        int r = add_inherited(keeper, passed->names[i], &passed->fds[i]);

                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

int keeper_new_from(const KeeperConfig *config, const char *address, const KeeperPassed *consume_passed, Keeper **ret)
{
        Keeper *keeper = NULL;
        int r = keeper_alloc(config, address, &keeper);

        if (r == 0)
                r = sort(keeper, consume_passed);
        if (r == 0)
                drop_probes(keeper);
        if (r == 0 && keeper->is_unproved) {
                (void)pthread_mutex_lock(&keeper->lock);
                keeper_prove_places(keeper);
                (void)pthread_mutex_unlock(&keeper->lock);
        }
        if (r == 0)
                r = keeper_start_thread(keeper);
        for (size_t i = 0; i < consume_passed->n; i++)
                consume_passed->fds[i] = close_fd(consume_passed->fds[i]);
        if (r < 0 && keeper)
                keeper_free(keeper);
        if (r == 0)
                *ret = keeper;
        return r;
}

int keeper_new(const KeeperConfig *config, Keeper **ret)
{
        const char *address = getenv("NOTIFY_SOCKET");
        KeeperPassed passed = { 0 };
        char **names = NULL;
        int n, r;

        if (!address)
                return KEEPER_E_GONE;
        n = sd_listen_fds_with_names(1, &names);
        if (n < 0)
                return n;
        passed = (KeeperPassed){ (size_t)n, names, calloc((size_t)n + 1, sizeof(int)) };
        if (passed.fds) {
                for (int i = 0; i < n; i++)
                        passed.fds[i] = SD_LISTEN_FDS_START + i;
                r = keeper_new_from(config, address, &passed, ret);
        } else {
                r = -ENOMEM;
        }
        for (int i = 0; i < n; i++)
                free(names[i]);
        free(names);
        free(passed.fds);
        return r;
}

int keeper_take_socket(Keeper *keeper)
{
        return keeper->sockets_taken < keeper->n_sockets ? keeper->sockets[keeper->sockets_taken++] : -1;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef struct Found {
        KeptRecord record;
        int fd;
        Kept *kept;
} Found;

/* What was read so far. */
typedef struct Take {
        Keeper *keeper;
        List segments;               /* as of the keeper */
        List direct;
        Segment *segment;            /* that is being read */
        Found *found;
        size_t n_found;
        size_t n_found_max;
        size_t *slots;               /* a hash table of indexes of found, + 1 */
        size_t n_slots;
        uint64_t n_bad;
} Take;

static int add_found(Take *take, const KeptRecord *record, int *fd, Kept *kept)
{
        if (take->n_found == take->n_found_max) {
                size_t n = MAX(2 * take->n_found_max, 256);
                Found *found = reallocarray(take->found, n, sizeof(*found));

                if (!found)
                        return -ENOMEM;
                take->found = found;
                take->n_found_max = n;
        }
        take->found[take->n_found++] = (Found){ *record, steal_fd(fd), kept };
        return 0;
}

static bool is_newer(const KeeperMessage *message)
{
        return message->n_bytes >= sizeof(message->record.version) && message->record.version > KEEPER_RECORD_VERSION;
}

static bool is_bad(const KeeperMessage *message)
{
        return message->n_bytes != sizeof(message->record) || message->n_fds != 1 ||
               !keeper_record_is_valid(&message->record);
}

static int look_at_version(void *userdata, const KeeperMessage *message)
{
        bool *has_newer = userdata;

        *has_newer |= is_newer(message);
        return 0;
}

static Kept *new_kept(List *list, Segment *segment)
{
        Kept *kept = calloc(1, sizeof(*kept));

        if (!kept)
                return NULL;
        kept->segment = segment;
        list_push_back(list, &kept->link);
        return kept;
}

static void give_up_kept(Take *take, Kept *kept)
{
        kept->is_dropped = true;
        if (kept->segment)
                kept->segment->n_dropped++;
}

static int take_message(void *userdata, const KeeperMessage *consume_message)
{
        _cleanup_(cleanup_fd) int fd = consume_message->fd;
        Take *take = userdata;
        Segment *segment = take->segment;
        Kept *kept = new_kept(&segment->kept, segment);

        if (!kept)
                return -ENOMEM;
        segment->n_messages++;
        if (is_bad(consume_message)) {
                take->n_bad++;
                give_up_kept(take, kept);
                return 0;
        }
        return add_found(take, &consume_message->record, &fd, kept);
}

static int take_segment(Take *take, Inherited *inherited)
{
        Segment *segment = keeper_segment_new(inherited->serial);

        if (!segment)
                return -ENOMEM;
        /* Another duplicate: should something fail, the first is still there to be tried again. */
        segment->queue.receive_fd = fcntl(inherited->fd, F_DUPFD_CLOEXEC, 3);
        if (segment->queue.receive_fd < 0) {
                int r = -errno;

                keeper_segment_free(segment);
                return r;
        }
        list_push_back(&take->segments, &segment->link);
        take->segment = segment;
        return keeper_segment_walk(&segment->queue, true, take_message, take);
}

static int take_direct(Take *take, Inherited *inherited)
{
        _cleanup_(cleanup_fd) int fd = -1;
        Kept *kept = new_kept(&take->direct, NULL);

        if (!kept)
                return -ENOMEM;
        kept->name = strdup(inherited->name);
        if (!kept->name)
                return -ENOMEM;
        if (inherited->is_bad) {
                take->n_bad++;
                give_up_kept(take, kept);
                return 0;
        }
        fd = fcntl(inherited->fd, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return -errno;
        return add_found(take, &inherited->record, &fd, kept);
}

/* --- what is there twice ------------------------------------------------------------------------------------------ */

static uint64_t hash(const KeptRecord *record)
{
        uint64_t x = record->id * UINT64_C(0x9e3779b97f4a7c15) ^ record->inode;

        x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9) ^ ((uint64_t)record->kind << 32 | record->owner);
        x = (x ^ x >> 32) * UINT64_C(0x94d049bb133111eb);
        return x ^ x >> 29;
}

static bool is_same(const KeptRecord *a, const KeptRecord *b)
{
        return a->kind == b->kind && a->owner == b->owner && a->id == b->id && a->inode == b->inode;
}

/* Leaves the first of each. Those that are left out are no error: a move that did not come to its end. */
static int drop_doubles(Take *take)
{
        size_t n = 0;

        for (take->n_slots = 64; take->n_slots < 2 * take->n_found;)
                take->n_slots *= 2;
        take->slots = calloc(take->n_slots, sizeof(*take->slots));
        if (!take->slots)
                return -ENOMEM;
        for (size_t i = 0; i < take->n_found; i++) {
                Found *found = &take->found[i];
                size_t at = hash(&found->record) & (take->n_slots - 1);

                while (take->slots[at] && !is_same(&take->found[take->slots[at] - 1].record, &found->record))
                        at = (at + 1) & (take->n_slots - 1);
                if (take->slots[at]) {
                        give_up_kept(take, found->kept);
                        found->fd = close_fd(found->fd);
                        continue;
                }
                take->found[n++] = *found;
                take->slots[at] = n;
        }
        take->n_found = n;
        return 0;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static int read_all(Take *take)
{
        Keeper *keeper = take->keeper;

        /* Those that are stored by themselves first: of two they stay. */
        for (unsigned pass = 0; pass < 2; pass++)
                LIST_FOREACH(link, &keeper->inherited) {
                        Inherited *inherited = LIST_ENTRY(link, Inherited, link);
                        int r = 0;

                        if (inherited->is_segment && pass == 1)
                                r = take_segment(take, inherited);
                        else if (!inherited->is_segment && pass == 0)
                                r = take_direct(take, inherited);
                        if (r < 0)
                                return r;
                }
        return drop_doubles(take);
}

static void take_deinit(Take *take)
{
        for (size_t i = 0; i < take->n_found; i++)
                take->found[i].fd = close_fd(take->found[i].fd);
        for (List *link; (link = list_peek_front(&take->segments));)
                keeper_segment_free(LIST_ENTRY(link, Segment, link));
        for (List *link; (link = list_peek_front(&take->direct));)
                keeper_kept_free(LIST_ENTRY(link, Kept, link));
        free(take->found);
        free(take->slots);
}

/* Cannot fail: from here on it is ours. */
static void adopt(Take *take)
{
        Keeper *keeper = take->keeper;

        keeper_forget_inherited(keeper);
        (void)pthread_mutex_lock(&keeper->lock);
        for (List *link; (link = list_take_front(&take->segments));) {
                Segment *segment = LIST_ENTRY(link, Segment, link);

                keeper->n_parked += segment->n_messages - segment->n_dropped;
                keeper->n_dropped += segment->n_dropped;
                keeper_add_segment(keeper, segment);
        }
        for (List *link; (link = list_take_front(&take->direct));)
                list_push_back(LIST_ENTRY(link, Kept, link)->is_dropped ? &keeper->removals : &keeper->direct, link);
        (void)pthread_cond_signal(&keeper->work);
        (void)pthread_mutex_unlock(&keeper->lock);
}

static int look_at_versions(Keeper *keeper)
{
        bool has_newer = keeper->has_newer;

        LIST_FOREACH(link, &keeper->inherited) {
                Inherited *inherited = LIST_ENTRY(link, Inherited, link);
                KeeperSegment segment = { .send_fd = -1, .receive_fd = inherited->fd };
                int r = 0;

                if (inherited->is_segment)
                        r = keeper_segment_walk(&segment, false, look_at_version, &has_newer);
                if (r < 0)
                        return r;
        }
        return has_newer ? KEEPER_E_NEWER : 0;
}

int keeper_take_all(Keeper *keeper,
                    void (*each)(void *userdata, const KeptRecord *record, int consume_fd, Kept *kept),
                    void *userdata, uint64_t *ret_n_bad)
{
        Take take = { .keeper = keeper };
        int r = look_at_versions(keeper);

        list_init(&take.segments);
        list_init(&take.direct);
        if (r == 0)
                r = read_all(&take);
        if (r == 0) {
                adopt(&take);
                for (size_t i = 0; i < take.n_found; i++)
                        each(userdata, &take.found[i].record, steal_fd(&take.found[i].fd), take.found[i].kept);
                *ret_n_bad = take.n_bad;
        }
        take_deinit(&take);
        return r;
}

int keeper_take_listener(Keeper *keeper, KeptRecord *ret_record, Kept **ret_kept)
{
        LIST_FOREACH(link, &keeper->inherited) {
                Inherited *inherited = LIST_ENTRY(link, Inherited, link);
                Kept *kept;
                int fd;

                if (inherited->is_segment || inherited->is_bad || inherited->record.kind != KEPT_LISTENER)
                        continue;
                (void)pthread_mutex_lock(&keeper->lock);
                kept = new_kept(&keeper->direct, NULL);
                (void)pthread_mutex_unlock(&keeper->lock);
                if (!kept)
                        return -1;
                kept->name = steal_ptr(&inherited->name);
                *ret_record = inherited->record;
                *ret_kept = kept;
                fd = steal_fd(&inherited->fd);
                inherited_free(inherited);
                return fd;
        }
        return -1;
}
