/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restore: what an earlier daemon has left becomes this store's. Order: all descriptors are taken; of each namespace
 * the newest index that is complete is chosen; spaces, without objects; ghosts of the sessions, so that their pins
 * count; then the objects, namespace by namespace. A new index stands for the old one from the moment at which it is
 * marked complete; only then the old one is dropped. So whatever moment this process ends at, the next one finds
 * either.
 */
#include "daemon/store/restore.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "daemon/store/fault.h"
#include "daemon/store/session-kept.h"

#define GENERATIONS_SKIPPED (UINT64_C(1) << 32) /* what has been given out and stands nowhere is less */
#define REGION_IDS_SKIPPED (UINT64_C(1) << 20)

/* --- descriptors -------------------------------------------------------------------------------------------------- */

static int compare_keys(const KeptRecord *a, uint32_t kind, uint32_t owner, uint64_t id)
{
        if (a->kind != kind)
                return a->kind < kind ? -1 : 1;
        if (a->owner != owner)
                return a->owner < owner ? -1 : 1;
        return a->id < id ? -1 : a->id > id;
}

static int compare_finds(const void *a, const void *b)
{
        const KeptRecord *other = &((const Find *)b)->record;

        return compare_keys(&((const Find *)a)->record, other->kind, other->owner, other->id);
}

/* The first of them, where there are several. */
Find *restore_find(Restore *restore, KeptKind kind, uint32_t owner, uint64_t id)
{
        size_t begin = 0, end = restore->n_finds;

        while (begin < end) {
                size_t middle = begin + (end - begin) / 2;

                if (compare_keys(&restore->finds[middle].record, kind, owner, id) < 0)
                        begin = middle + 1;
                else
                        end = middle;
        }
        if (begin == restore->n_finds || compare_keys(&restore->finds[begin].record, kind, owner, id) != 0)
                return NULL;
        return &restore->finds[begin];
}

void restore_drop(Restore *restore, Find *find)
{
        find->fd = close_fd(find->fd);
        if (find->kept)
                keeper_drop(restore->store->config.keeper, steal_ptr(&find->kept));
}

void restore_say(Restore *restore, const char *format, ...)
{
        StoreRestoreFacts *facts = restore->facts;
        va_list arguments;

        if (facts->n_lines == STORE_RESTORE_LINES_MAX)
                return;
        va_start(arguments, format);
        vsnprintf(facts->lines[facts->n_lines++], sizeof(facts->lines[0]), format, arguments);
        va_end(arguments);
}

Backend *restore_backend(Restore *restore, const KeptRecord *record)
{
        static const BackendOps ops = { .name = "tmpfs", .backing = FOLIO_BACKING_TMPFS };
        Store *store = restore->store;

        switch (record->detail & STORE_KEPT_BACKING) {
        case FOLIO_BACKING_MEMFD:
                return store->memfd;
        case FOLIO_BACKING_TMPFS:
                if (store->tmpfs)
                        return store->tmpfs;
                /* No new file can be made there, but the old ones are as good as they were. */
                store->old_tmpfs = (Backend){ .ops = &ops, .capabilities = BACKEND_READONLY_BY_MODE | BACKEND_PUNCHABLE };
                return &store->old_tmpfs;
        default:
                return NULL;
        }
}

static bool is_kind(const KeptRecord *record)
{
        return record->kind >= KEPT_INDEX && record->kind <= KEPT_LISTENER;
}

static void take_find(Restore *restore, const KeptRecord *record, int consume_fd, Kept *kept)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;

        if (restore->n_finds == restore->n_room) {
                size_t n_room = MAX(2 * restore->n_room, 256u);
                Find *finds = reallocarray(restore->finds, n_room, sizeof(*finds));

                if (!finds) {
                        restore->error = -ENOMEM;
                        return;
                }
                restore->finds = finds;
                restore->n_room = n_room;
        }
        restore->finds[restore->n_finds++] = (Find){ .record = *record, .fd = steal_fd(&fd), .kept = kept };
}

static void take_each(void *userdata, const KeptRecord *record, int consume_fd, Kept *kept)
{
        Restore *restore = userdata;

        take_find(restore, record, consume_fd, kept);
}

/* What is not about objects goes where it belongs. Nothing is dropped before it is known that all of it is known. */
static void hand_on(Restore *restore)
{
        StoreRestoreFacts *facts = restore->facts;

        for (size_t i = 0; i < restore->n_finds; i++) {
                Find *find = &restore->finds[i];

                if (session_is_record(&find->record)) {
                        find->is_claimed = true;
                        store_take_session_record(restore->store, &find->record, steal_fd(&find->fd),
                                                  steal_ptr(&find->kept));
                } else if (find->record.kind == KEPT_LISTENER && facts->listener_fd < 0) {
                        find->is_claimed = true;
                        facts->listener_fd = steal_fd(&find->fd);
                        facts->listener_kept = steal_ptr(&find->kept);
                }
        }
}

/* --- indexes ------------------------------------------------------------------------------------------------------ */

static int refuse_version(const char *what, uint32_t version, char **ret_message)
{
        if (asprintf(ret_message,
                     "the objects that are kept were stored by a newer foliod (%s, version %u), which this one cannot "
                     "read; start that version again, or, to give them up, stop the keeper with all it keeps",
                     what, version) < 0)
                *ret_message = NULL;
        return STORE_RESTORE_E_VERSION;
}

static int check_versions(const Restore *restore, char **ret_message)
{
        for (size_t i = 0; i < restore->n_finds; i++) {
                const KeptRecord *record = &restore->finds[i].record;

                if (record->version != KEEPER_RECORD_VERSION)
                        return refuse_version("a kept descriptor", record->version, ret_message);
                if (!is_kind(record))
                        return refuse_version("a kind of kept descriptors", record->kind, ret_message);
        }
        return 0;
}

/* Is it the file that was kept, and can nobody cut it off below our mapping? */
static bool is_index_file(Restore *restore, const Find *find)
{
        Backend *backend = restore_backend(restore, &find->record);
        struct stat st;
        int seals;

        if (!backend || fstat(find->fd, &st) < 0 || st.st_ino != find->record.inode ||
            (uint64_t)st.st_size != find->record.size_bytes)
                return false;
        if (!(backend->capabilities & BACKEND_SEALABLE))
                return true;
        seals = fcntl(find->fd, F_GET_SEALS);
        return seals >= 0 && (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) == (F_SEAL_SHRINK | F_SEAL_GROW);
}

static int open_index(Restore *restore, Find *find, IndexOld *ret, char **ret_message)
{
        int r = is_index_file(restore, find) ? index_old_open(find->fd, find->record.size_bytes, ret) :
                                               INDEX_OLD_E_BROKEN;

        if (r == INDEX_OLD_E_VERSION)
                return refuse_version("an index", ret->header.layout_version, ret_message);
        if (r < 0)
                return r;
        if (r == 0 && ret->header.namespace_id == find->record.owner &&
            ret->header.index_generation == find->record.id)
                return 0;
        index_old_close(ret);
        find->is_bad = true;
        restore->facts->n_bad++;
        restore_say(restore, "an index of namespace %u is damaged", find->record.owner);
        return 0;
}

/* Of those of one namespace, [*@at, ...): the one that counts, closed if there is none. They are sorted by generation. */
static int choose_index(Restore *restore, size_t *at, RestoredSpace *ret, char **ret_message)
{
        uint32_t owner = restore->finds[*at].record.owner;
        int r = 0;

        *ret = (RestoredSpace){ .old = { .fd = -1 } };
        for (; *at < restore->n_finds && restore->finds[*at].record.kind == KEPT_INDEX &&
               restore->finds[*at].record.owner == owner; (*at)++) {
                Find *find = &restore->finds[*at];
                IndexOld old = { .fd = -1 };

                ret->index_generation = MAX(ret->index_generation, find->record.id);
                r = open_index(restore, find, &old, ret_message);
                if (r != 0)
                        break;
                /* One that is not complete was given up before it stood for anything. Its place may be wanted now. */
                if (!old.base || !atomic_load(&old.header.is_complete)) {
                        index_old_close(&old);
                        restore_drop(restore, find);
                        continue;
                }
                index_old_close(&ret->old);
                if (ret->find)
                        restore_drop(restore, ret->find);
                ret->old = old;
                ret->find = find;
        }
        ret->index_generation++;
        /* The namespace was removed. */
        if (r != 0 || (ret->old.base && atomic_load(&ret->old.header.is_closed)))
                index_old_close(&ret->old);
        return r;
}

/* --- spaces ------------------------------------------------------------------------------------------------------- */

static int make_space(Restore *restore, RestoredSpace *restored, char **ret_message)
{
        const LayoutIndexHeader *h = &restored->old.header;
        StoreSpaceOld old = {
                .name = h->namespace_name, .id = h->namespace_id, .hash_seed = h->hash_seed,
                .index_generation = restored->index_generation, .n_events = h->n_events,
        };
        Store *store = restore->store;

        if (!index_old_settings(&restored->old, &old.settings) || old.settings.objects_max != h->n_slots_max) {
                restore->facts->n_bad++;
                restore_say(restore, "the settings of namespace %s are damaged: the defaults are used", h->namespace_name);
                old.settings = (LayoutSettings){
                        .objects_max = h->n_slots_max, .owner_uid = store->uid, .owner_gid = store->gid, .mode = 0700,
                        .backing = FOLIO_BACKING_MEMFD, .huge = (uint8_t)store->config.huge,
                        .writers = FOLIO_WRITERS_UNTRUSTED,
                };
        }
        return store_make_old_space(store, &old, &restored->space, ret_message) == STATUS_OK ? 0 : -EIO;
}

/* --- one namespace after the other -------------------------------------------------------------------------------- */

/* The new index stands for the old one from here on. */
static int replace_index(Restore *restore, RestoredSpace *restored)
{
        Space *space = restored->space;
        int r;

        FAULT("restore.filled");
        r = store_keep_region(restore->store, index_region(space->index), KEPT_INDEX, space->ns.id,
                              restored->index_generation, false);
        if (r != 0)
                return r < 0 ? r : -ENOSPC;
        FAULT("restore.kept");
        index_set_complete(space->index);
        FAULT("restore.complete");
        index_old_close(&restored->old);
        restore_drop(restore, restored->find);
        FAULT("restore.dropped");
        return 0;
}

static int restore_space(Restore *restore, RestoredSpace *restored)
{
        int r;

        FAULT("restore.namespace");
        r = restore_objects(restore, restored);
        if (r == 0)
                r = restore_leases(restore, restored);
        restore_settle_memory(restore, restored->space);
        if (r == 0)
                r = replace_index(restore, restored);
        if (r == 0) {
                restored->space->n_creatorless = restored->orphans.n;
                restored->space->creatorless = steal_ptr(&restored->orphans.slots);
        }
        return r;
}

static int restore_spaces(Restore *restore, RestoredSpace *spaces, size_t n_spaces, char **ret_message)
{
        Store *store = restore->store;
        int r = 0;

        if (n_spaces > 0)
                store->instance = spaces[0].old.header.instance;
        region_skip_ids(restore->last_region_id + REGION_IDS_SKIPPED);
        for (size_t i = 0; i < n_spaces && r == 0; i++)
                r = make_space(restore, &spaces[i], ret_message);
        if (r != 0)
                return r;
        store_make_ghosts(store);
        for (size_t i = 0; i < n_spaces; i++)
                store_restore_tables(store, spaces[i].space);
        for (size_t i = 0; i < n_spaces && r == 0; i++)
                r = restore_space(restore, &spaces[i]);
        store->last_generation = restore->last_generation + GENERATIONS_SKIPPED;
        restore->facts->n_namespaces = n_spaces;
        return r;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static void drop_unclaimed(Restore *restore)
{
        for (size_t i = 0; i < restore->n_finds; i++) {
                Find *find = &restore->finds[i];

                /* A part of a segment's end, of an object that never was, or that has gone. */
                restore_drop(restore, find);
        }
}

static int choose_and_restore(Restore *restore, char **ret_message)
{
        RestoredSpace *spaces = calloc(restore->n_finds + 1, sizeof(*spaces));
        size_t n_spaces = 0;
        int r = 0;

        if (!spaces)
                return -ENOMEM;
        for (size_t i = 0; i < restore->n_finds && r == 0;) {
                const KeptRecord *record = &restore->finds[i].record;

                if (record->kind != KEPT_INDEX) {
                        if (record->kind == KEPT_PACKED || record->kind == KEPT_LEASED || record->kind == KEPT_OWN)
                                restore->last_region_id = MAX(restore->last_region_id, record->id);
                        i++;
                        continue;
                }
                restore->store->last_namespace_id = MAX(restore->store->last_namespace_id, record->owner);
                r = choose_index(restore, &i, &spaces[n_spaces], ret_message);
                if (r == 0 && spaces[n_spaces].old.base)
                        n_spaces++;
        }
        if (r == 0) {
                hand_on(restore);
                r = restore_spaces(restore, spaces, n_spaces, ret_message);
        }
        for (size_t i = 0; i < n_spaces; i++) {
                index_old_close(&spaces[i].old);
                free(spaces[i].orphans.slots);
                free(spaces[i].retracted.slots);
        }
        free(spaces);
        return r;
}

static uint64_t now_us(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static int take_and_restore(Restore *restore, char **ret_message)
{
        Store *store = restore->store;
        uint64_t n_bad = 0;
        GhostFacts ghosts;
        int r;

        FAULT("restore.begin");
        r = keeper_take_all(store->config.keeper, take_each, restore, &n_bad);
        if (r == 0)
                r = restore->error;
        if (r < 0)
                return r;
        restore->facts->n_bad += n_bad;
        r = check_versions(restore, ret_message);
        if (r != 0)
                return r;
        if (restore->n_finds > 0)
                qsort(restore->finds, restore->n_finds, sizeof(*restore->finds), compare_finds);
        r = choose_and_restore(restore, ret_message);
        if (r != 0)
                return r;
        store_finish_ghosts(store, &ghosts);
        restore->facts->n_sessions = ghosts.n_ghosts;
        restore->facts->n_bad += ghosts.n_bad;
        drop_unclaimed(restore);
        FAULT("restore.end");
        return 0;
}

int store_restore(Store *store, StoreRestoreFacts *ret, char **ret_message)
{
        Restore restore = { .store = store, .facts = ret };
        uint64_t begun_us = now_us();
        int r = 0;

        *ret_message = NULL;
        *ret = (StoreRestoreFacts){ .listener_fd = -1 };
        assert(list_is_empty(&store->spaces));
        store->is_restoring = true;
        if (store->config.keeper)
                r = take_and_restore(&restore, ret_message);
        store->is_restoring = false;
        for (size_t i = 0; i < restore.n_finds; i++) {
                (void)close_fd(restore.finds[i].fd);
                free(restore.finds[i].taken);
        }
        free(restore.finds);
        if (r == 0 && !store_find_space(store, FOLIO_NAMESPACE_DEFAULT) &&
            store_make_default(store, ret_message) != STATUS_OK)
                r = -ENOMEM;
        if (r < 0 && !*ret_message &&
            asprintf(ret_message, "what an earlier foliod has left cannot be taken over: %s", strerror(-r)) < 0)
                *ret_message = NULL;
        ret->us = now_us() - begun_us;
        store->restored = *ret;
        if (r == 0)
                store_begin_pool(store);
        store_flush(store);
        return r;
}
