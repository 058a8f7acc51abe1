/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the restore share: the descriptors that an earlier daemon has left, as a table, and what is known
 * of them. Each is claimed by the first who finds that it is what it should be; what nobody has claimed in the end is
 * dropped.
 */
#ifndef DAEMON_STORE_RESTORE_H
#define DAEMON_STORE_RESTORE_H

#include "daemon/store/index-old.h"
#include "daemon/store/store-private.h"

typedef struct Find {
        KeptRecord record;
        int fd;                      /* -1: claimed, or dropped */
        Kept *kept;                  /* NULL: the same */
        /* When an object was found in it: */
        Region *region;              /* borrowed from home, lease or object */
        PackedRegion *home;
        Lease *lease;
        uint64_t *taken;             /* packed: a bit for each unit */
        bool is_claimed;
        bool is_bad;                 /* it was looked at, and is not what it should be */
} Find;

typedef struct Restore {
        Store *store;
        StoreRestoreFacts *facts;
        Find *finds;                 /* sorted by kind, owner, id from restore_sort() on */
        size_t n_finds, n_room;
        int error;                   /* of taking */
        uint64_t last_region_id, last_generation;
} Restore;

typedef struct RestoredSlots {
        uint32_t *slots;
        size_t n, n_room;
} RestoredSlots;

/* A namespace that comes back. */
typedef struct RestoredSpace {
        IndexOld old;
        Find *find;                  /* of the old index */
        Space *space;
        uint64_t index_generation;   /* of the new one */
        RestoredSlots orphans;       /* of objects that die with a session that is not there any more */
        RestoredSlots retracted;     /* of records that are so */
} RestoredSpace;

/* NULL: none. */
Find *restore_find(Restore *restore, KeptKind kind, uint32_t owner, uint64_t id);
void restore_drop(Restore *restore, Find *find);

/* A line for the log, if there is room for one more. */
void restore_say(Restore *restore, const char *format, ...) _printf_(2, 3);

/* Where its files belong; NULL: a kind that we do not know. */
Backend *restore_backend(Restore *restore, const KeptRecord *record);

/* The objects of @restored, whose space is there and empty, with the tables of the ghosts. 0 or a negative errno. */
int restore_objects(Restore *restore, RestoredSpace *restored);

/* Leases that a session held, and in which no object was found; then what each session holds is as it was. */
int restore_leases(Restore *restore, RestoredSpace *restored);

/* The memory of a record: 0; 1: it is not there, or not what the record says, *@ret_why; a negative errno. */
int restore_memory(Restore *restore, RestoredSpace *restored, const LayoutSlot *record, Object *object,
                   const char **ret_why);

/* Lets go of empty regions that were opened, and frees what was kept to check overlaps. */
void restore_settle_memory(Restore *restore, Space *space);

#endif
