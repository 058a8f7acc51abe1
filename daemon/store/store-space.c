/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A space: a namespace with its index, its packed memory and its objects. One that is removed is out of sight at once,
 * and emptied bit by bit, since a million objects are more than the loop can do in a turn; it goes when the last
 * held object, work and session's table have gone.
 */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "daemon/memory/array.h"
#include "daemon/store/fault.h"
#include "folio/admin.h"

#define TABLES_LOOKED_AT_MAX 16u

Space *store_find_space(const Store *store, const char *name)
{
        LIST_FOREACH(node, &store->spaces)
                if (strcmp(LIST_ENTRY(node, Space, link)->ns.name, name) == 0)
                        return LIST_ENTRY(node, Space, link);
        return NULL;
}

Space *store_find_space_by_id(const Store *store, uint32_t id)
{
        LIST_FOREACH(node, &store->spaces)
                if (LIST_ENTRY(node, Space, link)->ns.id == id)
                        return LIST_ENTRY(node, Space, link);
        return NULL;
}

/* All that can be large. Not on the loop where it is. */
static void free_tables(Space *space)
{
        index_free(steal_ptr(&space->index));
        packed_free(steal_ptr(&space->packed));
        array_free(steal_ptr(&space->objects), space->ns.objects_max, sizeof(*space->objects));
}

static void free_space(Space *space)
{
        free_tables(space);
        namespace_deinit(&space->ns);
        free(space->creatorless);
        free(space);
}

static void burial_run(WorkerJob *job)
{
        free_tables(CONTAINER_OF(job, Space, burial));
}

static void burial_done(WorkerJob *job)
{
        free_space(CONTAINER_OF(job, Space, burial));
}

DEFINE_CLEANUP(Space *, cleanup_space, free_space)

static void insert_sorted(Store *store, Space *space)
{
        List *before = store->spaces.next;

        while (before != &store->spaces && strcmp(LIST_ENTRY(before, Space, link)->ns.name, space->ns.name) < 0)
                before = before->next;
        list_push_back(before, &space->link);
}

static Status choose_backend(const Store *store, Space *space, char **ret_detail)
{
        space->own_backend = space->ns.backing == FOLIO_BACKING_TMPFS ? store->tmpfs : store->memfd;
        if (!space->own_backend)
                return store_refuse(ret_detail, STATUS_UNSUPPORTED,
                                    "namespace %s asks for backing tmpfs, which is not to be had here (%s)",
                                    space->ns.name, store->tmpfs_error);
        return STATUS_OK;
}

/* Asked on every put: with many connections the answer would cost more than a needless wake-up. */
static bool has_sleepers(void *userdata)
{
        const Space *space = userdata;
        unsigned n = 0;

        LIST_FOREACH(node, &space->tables)
        {
                const SessionTable *table = LIST_ENTRY(node, SessionTable, space_link);

                if (n++ == TABLES_LOOKED_AT_MAX || (table->pins && pins_is_waiting(table->pins)))
                        return true;
        }
        return false;
}

void store_note_settings(Space *space)
{
        const Namespace *ns = &space->ns;
        LayoutSettings settings = {
                .quota_bytes = ns->quota_bytes,
                .quota_objects = ns->quota_objects,
                .objects_max = ns->objects_max,
                .owner_uid = ns->owner_uid,
                .owner_gid = ns->owner_gid,
                .mode = ns->mode,
                .backing = (uint8_t)ns->backing,
                .huge = (uint8_t)ns->huge,
                .writers = (uint8_t)ns->writers,
        };

        index_set_settings(space->index, &settings);
}

/* @old: NULL: it is a new one. */
static int fill_space(Store *store, Space *space, const StoreSpaceOld *old)
{
        IndexConfig config = {
                .backend = store->packed_backend,
                .name = space->ns.name,
                .namespace_id = space->ns.id,
                .instance = store->instance,
                .generation = old ? old->index_generation : 1,
                .hash_seed = old ? old->hash_seed : 0,
                .n_slots_max = space->ns.objects_max,
                .n_events = old ? old->n_events : store->config.n_events,
                .has_sleepers = has_sleepers,
                .userdata = space,
        };
        int r;

        /* So that nobody can choose keys that fall into one bucket. */
        if (!old && getrandom(&config.hash_seed, sizeof(config.hash_seed), 0) != sizeof(config.hash_seed))
                return -EIO;
        space->objects = array_new(space->ns.objects_max, sizeof(*space->objects));
        if (!space->objects)
                return -ENOMEM;
        r = packed_new(&space->packed);
        if (r < 0)
                return r;
        r = index_new(&config, &space->index);
        if (r == 0)
                store_note_settings(space);
        return r;
}

static Space *new_space(void)
{
        Space *space = calloc(1, sizeof(*space));

        if (!space)
                return NULL;
        list_init(&space->link);
        list_init(&space->dirty_link);
        list_init(&space->tables);
        list_init(&space->packed_waiters);
        list_init(&space->leases);
        list_init(&space->orphans);
        for (unsigned i = 0; i < STORE_CLAIM_LISTS; i++)
                list_init(&space->claims[i]);
        return space;
}

Status store_make_space(Store *store, const ProtoNamespace *settings, uint32_t default_mode, uid_t owner_uid,
                        gid_t owner_gid, Space **ret, char **ret_detail)
{
        NamespaceDefaults defaults = {
                .owner_uid = owner_uid,
                .owner_gid = owner_gid,
                .mode = default_mode,
                .objects_max = store->config.index_objects_max,
                .huge = store->config.huge,
                .writers = store->config.is_user_daemon ? FOLIO_WRITERS_TRUSTED : FOLIO_WRITERS_UNTRUSTED,
        };
        _cleanup_(cleanup_space) Space *space = NULL;
        Status status;
        int r;

        if (store->n_spaces >= store->config.n_namespaces_max)
                return store_refuse(ret_detail, STATUS_LIMIT, "there are %u namespaces, which is how many there may be",
                                    store->n_spaces);
        space = new_space();
        if (!space)
                return store_refuse_errno(ret_detail, -ENOMEM, "a namespace");
        namespace_init(&space->ns, store->last_namespace_id + 1, settings, &defaults);
        status = choose_backend(store, space, ret_detail);
        if (status != STATUS_OK)
                return status;
        r = fill_space(store, space, NULL);
        if (r < 0)
                return store_refuse_errno(ret_detail, r, "the index of a namespace");
        index_set_complete(space->index);
        FAULT("namespace.made");
        r = store_keep_region(store, index_region(space->index), KEPT_INDEX, space->ns.id, 1, false);
        if (r != 0)
                return store_refuse_kept(store, r, ret_detail);
        FAULT("namespace.kept");
        store->last_namespace_id++;
        store->n_spaces++;
        insert_sorted(store, space);
        *ret = steal_ptr(&space);
        return STATUS_OK;
}

Status store_make_old_space(Store *store, const StoreSpaceOld *old, Space **ret, char **ret_detail)
{
        const LayoutSettings *s = &old->settings;
        ProtoNamespace settings = {
                .fields = FOLIO_NAMESPACE_FIELD_OWNER | FOLIO_NAMESPACE_FIELD_GROUP | FOLIO_NAMESPACE_FIELD_MODE |
                          FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS |
                          FOLIO_NAMESPACE_FIELD_OBJECTS_MAX | FOLIO_NAMESPACE_FIELD_BACKING |
                          FOLIO_NAMESPACE_FIELD_HUGE | FOLIO_NAMESPACE_FIELD_WRITERS,
                .owner_uid = s->owner_uid, .owner_gid = s->owner_gid, .mode = s->mode, .backing = s->backing,
                .huge = s->huge, .writers = s->writers, .quota_bytes = s->quota_bytes,
                .quota_objects = s->quota_objects, .objects_max = s->objects_max,
        };
        NamespaceDefaults defaults = { .objects_max = s->objects_max };
        _cleanup_(cleanup_space) Space *space = new_space();
        int r;

        if (!space)
                return store_refuse_errno(ret_detail, -ENOMEM, "a namespace");
        memcpy(settings.name, old->name, strnlen(old->name, sizeof(settings.name) - 1));
        namespace_init(&space->ns, old->id, &settings, &defaults);
        /* Where its backing is not to be had any more, what is there is read on, and nothing new of that kind is made. */
        space->own_backend = space->ns.backing == FOLIO_BACKING_TMPFS && store->tmpfs ? store->tmpfs : store->memfd;
        r = fill_space(store, space, old);
        if (r < 0)
                return store_refuse_errno(ret_detail, r, "the index of a namespace");
        store->last_namespace_id = MAX(store->last_namespace_id, old->id);
        store->n_spaces++;
        insert_sorted(store, space);
        *ret = steal_ptr(&space);
        return STATUS_OK;
}

void store_remove_space(Store *store, Space *space)
{
        assert(!space->is_removed);
        space->is_removed = true;
        list_unlink(&space->link);
        list_push_back(&store->removed_spaces, &space->link);
        store->n_spaces--;
        /* Readers first: from now on they ask, and are told that there is no such namespace. */
        FAULT("namespace.removing");
        index_close(space->index);
        FAULT("namespace.removed");
        store_cancel_index_collapse(space);
        pool_forget(store->pool, space->ns.id);
        store_close_space_leases(store, space);
        store_schedule_chore(store);
        store_try_free_space(store, space);
}

static bool is_space_done(const Space *space)
{
        return space->is_removed && space->n_objects == 0 && space->n_works == 0 && !space->is_growing &&
               !space->index_collapse.is_running && list_is_empty(&space->tables) && list_is_empty(&space->leases) &&
               list_is_empty(&space->orphans);
}

void store_try_free_space(Store *store, Space *space)
{
        if (!is_space_done(space))
                return;
        /* Nobody knows it any more but the job. */
        list_unlink(&space->link);
        list_unlink(&space->dirty_link);
        space->burial.run = burial_run;
        space->burial.done = burial_done;
        worker_pool_submit(store->config.workers, WORKER_URGENT, &space->burial);
}

/* Objects of one space, as far as @slice goes. */
static void reap_space(Store *store, Space *space, Slice *slice)
{
        uint32_t n_slots = index_n_slots(space->index);

        space->n_works++; /* stays while we look at it */
        while (space->reap_slot < n_slots && store_take_slice(slice)) {
                Object *object = space->objects[space->reap_slot++];

                /* Drafts end with their works, held ones with their holders. */
                if (object && object->state != OBJECT_DRAFT && object->state != OBJECT_RETRACTED)
                        store_retire_object(store, object, 0, 0, 0);
        }
        space->n_works--;
}

void store_reap_spaces(Store *store, Slice *slice)
{
        LIST_FOREACH_SAFE(node, &store->removed_spaces)
        {
                Space *space = LIST_ENTRY(node, Space, link);

                if (slice->n_left == 0)
                        return;
                reap_space(store, space, slice);
                /* Frees this one at most, so the next stays the next. */
                store_try_free_space(store, space);
        }
}

void store_mark_dirty(Store *store, Space *space)
{
        if (!list_is_linked(&space->dirty_link))
                list_push_back(&store->dirty_spaces, &space->dirty_link);
}

uint32_t store_rights(const Store *store, const Space *space, const Session *session)
{
        return namespace_rights(&space->ns, &session->cred, store->uid);
}

uint32_t store_count_pins(const Space *space, uint32_t slot)
{
        uint64_t n = 0;

        LIST_FOREACH(node, &space->tables)
        {
                const SessionTable *table = LIST_ENTRY(node, SessionTable, space_link);

                if (table->pins)
                        n += pins_count(table->pins, slot);
        }
        return (uint32_t)MIN(n, UINT32_MAX);
}
