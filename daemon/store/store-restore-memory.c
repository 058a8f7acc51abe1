/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of what is restored: each record is held against the descriptor it names: the file that was kept, its
 * size, the seals that its protection promises, and nothing of it another object's. Packed regions come back as old
 * ones, since no new process can write to them; leased ones with a new book.
 */
#include "daemon/store/restore.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "daemon/store/session-kept.h"

#define SEALS_SIZE (F_SEAL_SHRINK | F_SEAL_GROW)

/* --- regions ------------------------------------------------------------------------------------------------------ */

/* The region of @find, open and paid for, with what is kept of it. 0; 1: it is not what it should be; negative errno. */
static int open_region(Restore *restore, Find *find, uint32_t seals, Region **ret)
{
        Backend *backend = restore_backend(restore, &find->record);
        Charge charge = CHARGE_NULL;
        Region *region;
        struct stat st;
        int r;

        if (find->is_bad || find->is_claimed)
                return 1;
        find->is_bad = true; /* until it is found to be good */
        if (!backend || fstat(find->fd, &st) < 0 || st.st_ino != find->record.inode || st.st_size <= 0 ||
            (!(find->record.detail & STORE_KEPT_GROWS) && (uint64_t)st.st_size != find->record.size_bytes))
                return 1;
        r = region_restore(backend, find->record.id, (uint64_t)st.st_size, seals, steal_fd(&find->fd), &region);
        if (r != 0)
                return r < 0 ? r : 1;
        account_charge_anyway(&restore->store->budget, region->size_bytes, 0, &charge);
        if (!store_attach_charge(region, &charge)) {
                charge_release(&charge);
                region_unref(region);
                return -ENOMEM;
        }
        region->keeper = restore->store->config.keeper;
        region->kept = steal_ptr(&find->kept);
        find->is_bad = false;
        find->is_claimed = true;
        find->region = region;
        *ret = region;
        return 0;
}

/* --- packed ------------------------------------------------------------------------------------------------------- */

static int open_packed(Restore *restore, RestoredSpace *restored, Find *find)
{
        Region *region;
        int r;

        r = open_region(restore, find, SEALS_SIZE | F_SEAL_FUTURE_WRITE, &region);
        if (r != 0)
                return r;
        find->region = NULL;
        find->taken = calloc(region->size_bytes / LAYOUT_CHUNK_UNIT_BYTES / 64 + 1, sizeof(uint64_t));
        r = find->taken ? region_open_read_only(region) : -ENOMEM;
        if (r == 0) {
                Charge *paid = region->charge;

                r = packed_add_old_region(restored->space->packed, region, &find->home);
                if (r < 0) {
                        charge_release(paid);
                        free(paid);
                        return r;
                }
                find->region = region;
                return 0;
        }
        store_drop_region(restore->store, region);
        return r;
}

/* Whole units; false: some of them are another's. */
static bool take_units(uint64_t *taken, uint64_t first, uint64_t n)
{
        for (uint64_t unit = first; unit < first + n; unit++)
                if (taken[unit / 64] >> unit % 64 & 1)
                        return false;
        for (uint64_t unit = first; unit < first + n; unit++)
                taken[unit / 64] |= UINT64_C(1) << unit % 64;
        return true;
}

static int restore_packed(Restore *restore, RestoredSpace *restored, Find *find, const LayoutSlot *record,
                          Object *object, const char **ret_why)
{
        uint64_t offset = (uint64_t)record->offset_units * LAYOUT_CHUNK_UNIT_BYTES, n_bytes;
        int r;

        if (!find->home) {
                r = open_packed(restore, restored, find);
                *ret_why = "its packed region is not what was kept";
                if (r != 0)
                        return r;
        }
        if (!checked_align_up(MAX(record->size_bytes, 1), LAYOUT_CHUNK_UNIT_BYTES, &n_bytes) ||
            !checked_range(offset, n_bytes, find->region->size_bytes)) {
                *ret_why = "it ends outside its packed region";
                return 1;
        }
        if (!take_units(find->taken, offset / LAYOUT_CHUNK_UNIT_BYTES, n_bytes / LAYOUT_CHUNK_UNIT_BYTES)) {
                *ret_why = "its bytes are another object's";
                return 1;
        }
        r = packed_take_old_chunk(restored->space->packed, find->home, offset, n_bytes, object->slot,
                                  &object->chunk);
        if (r == 0)
                charge_set(&object->charge, n_bytes);
        return r;
}

/* --- leased ------------------------------------------------------------------------------------------------------- */

/* The newest book that there is of it: a restore that was broken off may have left two. */
static LeasedOld read_book(Restore *restore, const Find *find)
{
        Find *book = restore_find(restore, KEPT_BOOK, find->record.owner, find->record.id);
        LeasedOld best = { .region_id = find->record.id }, one;

        for (; book && book < restore->finds + restore->n_finds && book->record.kind == KEPT_BOOK &&
               book->record.owner == find->record.owner && book->record.id == find->record.id; book++)
                if (book->fd >= 0 && leased_read_old(book->fd, &one) && one.region_id == find->record.id &&
                    one.epoch >= best.epoch)
                        best = one;
        return best;
}

/* Whoever held it holds it again, recalled, if his session is there; else it is nobody's. */
static void hand_back(Restore *restore, Lease *lease, const LeasedOld *book)
{
        Session *session = book->holder_session ? store_find_session(restore->store, book->holder_session) : NULL;
        Space *space = lease->space;

        list_push_back(&space->leases, &lease->link);
        if (session && session_restore_lease(session, book->holder_number, lease)) {
                restore->store->n_leases++;
                leased_note_holder(lease->leased, book->holder_session, book->holder_number);
                return;
        }
        list_unlink(&lease->link);
        list_push_back(&space->orphans, &lease->link);
        restore->store->n_orphans++;
        /* Somebody may still write there, and there is nobody whose end we would see. */
        if (book->holder_session)
                lease->spoiler_pid = -1;
}

static int open_leased(Restore *restore, RestoredSpace *restored, Find *find)
{
        LeasedOld book = read_book(restore, find);
        Store *store = restore->store;
        Leased *leased = NULL;
        Region *region;
        Lease *lease;
        int r;

        r = open_region(restore, find, SEALS_SIZE | F_SEAL_SEAL, &region);
        if (r != 0)
                return r;
        find->region = NULL;
        lease = calloc(1, sizeof(*lease));
        r = lease ? leased_restore(region->backend, region, book.epoch, &leased) : -ENOMEM;
        if (r == 0)
                r = store_keep_region(store, leased->book_region, KEPT_BOOK, restored->space->ns.id, region->id, false);
        if (r != 0) {
                free(lease);
                store_drop_region(store, leased ? leased_leave(leased) : region);
                return r < 0 ? r : -ENOSPC;
        }
        charge_set(region->charge, region->size_bytes + leased->book_region->size_bytes);
        list_init(&lease->link);
        lease->leased = leased;
        lease->space = restored->space;
        leased->lease = lease;
        store->leased_bytes += region->size_bytes;
        restored->space->leased_bytes += region->size_bytes;
        hand_back(restore, lease, &book);
        find->region = region;
        find->lease = lease;
        return 0;
}

static int restore_leased(Restore *restore, RestoredSpace *restored, Find *find, const LayoutSlot *record,
                          Object *object, const char **ret_why)
{
        uint64_t offset = (uint64_t)record->offset_units * LEASE_UNIT_BYTES;
        int r;

        if (!find->lease) {
                r = open_leased(restore, restored, find);
                *ret_why = "its leased region is not what was kept";
                if (r != 0)
                        return r;
        }
        r = leased_take(find->lease->leased, offset, record->size_bytes);
        if (r != 0) {
                *ret_why = r == LEASED_E_TAKEN ? "its bytes are another object's" : "it ends outside its leased region";
                return 1;
        }
        object->leased = find->lease->leased;
        object->leased_unit = record->offset_units;
        charge_set(&object->charge, lease_units(record->size_bytes) * LEASE_UNIT_BYTES);
        return 0;
}

int restore_leases(Restore *restore, RestoredSpace *restored)
{
        for (size_t i = 0; i < restore->n_finds; i++) {
                Find *find = &restore->finds[i];
                LeasedOld book;
                int r;

                if (find->record.kind != KEPT_LEASED || find->record.owner != restored->space->ns.id || find->lease ||
                    find->is_claimed)
                        continue;
                book = read_book(restore, find);
                if (book.holder_session == 0 || !store_find_session(restore->store, book.holder_session))
                        continue;
                r = open_leased(restore, restored, find);
                if (r < 0)
                        return r;
                if (r > 0)
                        restore->facts->n_bad++;
        }
        return 0;
}

/* --- own ---------------------------------------------------------------------------------------------------------- */

static uint32_t promised_seals(const LayoutSlot *record)
{
        if (record->protection == FOLIO_PROTECTION_KERNEL)
                return SEALS_SIZE | F_SEAL_WRITE;
        return record->flags & LAYOUT_FLAG_STREAM ? 0 : SEALS_SIZE;
}

/* A file that no seal guards: nobody else may open it. */
static bool is_private(const Region *region)
{
        struct stat st;

        return region->backend->capabilities & BACKEND_READONLY_BY_MODE && fstat(region->fd, &st) == 0 &&
               (st.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

static int restore_own(Restore *restore, Find *find, const LayoutSlot *record, Object *object, const char **ret_why)
{
        Region *region;
        int r;

        *ret_why = "its region is not what was kept, or not sealed as it should be";
        r = open_region(restore, find, promised_seals(record), &region);
        if (r != 0)
                return r;
        object->region = region;
        if (record->state == LAYOUT_SLOT_WRITING && region_restore_writing(region) < 0) {
                *ret_why = "its file cannot be opened for writing any more";
                return 1;
        }
        if (record->capacity_bytes > region->size_bytes) {
                *ret_why = "it is larger than its region";
                return 1;
        }
        if (record->protection == FOLIO_PROTECTION_MODE && !is_private(region)) {
                *ret_why = "its file is not protected by its mode";
                return 1;
        }
        charge_set(&object->charge, region->size_bytes);
        return 0;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

int restore_memory(Restore *restore, RestoredSpace *restored, const LayoutSlot *record, Object *object,
                   const char **ret_why)
{
        uint32_t owner = restored->space->ns.id;
        Find *find;

        *ret_why = "its region is not there";
        if (record->placement == FOLIO_PLACEMENT_OWN) {
                find = restore_find(restore, KEPT_OWN, owner, record->region_id);
                return find ? restore_own(restore, find, record, object, ret_why) : 1;
        }
        if (record->placement != FOLIO_PLACEMENT_PACKED)
                return 1;
        find = restore_find(restore, KEPT_PACKED, owner, record->region_id);
        if (find)
                return restore_packed(restore, restored, find, record, object, ret_why);
        find = restore_find(restore, KEPT_LEASED, owner, record->region_id);
        return find ? restore_leased(restore, restored, find, record, object, ret_why) : 1;
}

void restore_settle_memory(Restore *restore, Space *space)
{
        for (size_t i = 0; i < restore->n_finds; i++) {
                Find *find = &restore->finds[i];
                PackedRegion *home = find->home;
                Region *empty;

                if (find->record.owner != space->ns.id || !home || !find->taken)
                        continue;
                free(steal_ptr(&find->taken));
                empty = packed_settle_old_region(space->packed, home);
                find->home = NULL;
                if (empty)
                        store_drop_region(restore->store, empty);
        }
}
