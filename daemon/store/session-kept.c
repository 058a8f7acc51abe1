/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a record says of a session beyond its number: every one of them whose uid pays, and those of the staging memory
 * and of the process who it is. Groups are kept as far as there is room; where there is not, the ghost is *cut*, and its
 * ring waits for the client, so that nothing is refused to it for a right that it has.
 *
 * The ring of a ghost is only looked at here, through reads of its file, and its numbers are the client's: what is
 * impossible makes a ghost without a ring, that its client cannot have back.
 */
#include "daemon/store/session-kept.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/store/store-private.h"

#define COMM_BYTES_MAX 31
#define GROUPS_KEPT_MAX 8
#define NUMBERS_SKIPPED (UINT32_C(1) << 16) /* those of sessions that began and ended unseen are among them */
#define RING_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* KeptRecord.text of KEPT_STAGING and KEPT_PROCESS; of the others, the pid alone. Another version's foliod reads it: as for ever as the record. */
typedef struct SessionText {
        char comm[COMM_BYTES_MAX + 1];
        uint64_t connected_ns;
        int32_t pid;
        uint8_t is_tool;
        uint8_t is_cut;              /* there are more groups */
        uint8_t n_groups;
        uint8_t reserved;
        uint32_t groups[GROUPS_KEPT_MAX];
} SessionText;

static_assert(sizeof(SessionText) == KEEPER_TEXT_BYTES_MAX, "it fits");

static void note_number(Store *store, uint32_t number)
{
        store->last_session_number = MAX(store->last_session_number, number);
}

/* --- keeping ------------------------------------------------------------------------------------------------------ */

/* Each says whose it is: where only some parts are left, nobody waits for a process that has ended. */
static KeptRecord make_record(const Session *session, KeptKind kind, uint64_t id)
{
        KeptRecord record = {
                .kind = kind,
                .owner = session->number,
                .id = id,
                .detail = (uint64_t)session->cred.gid << 32 | session->cred.uid,
                .n_text = sizeof(int32_t),
        };
        int32_t pid = session->cred.pid;

        memcpy(record.text, &pid, sizeof(pid));
        return record;
}

static void add_text(const Session *session, KeptRecord *record)
{
        SessionText text = {
                .connected_ns = session->connected_ns,
                .pid = session->cred.pid,
                .is_tool = session->is_tool,
                .is_cut = session->is_cut || session->cred.n_groups > GROUPS_KEPT_MAX,
                .n_groups = (uint8_t)MIN(session->cred.n_groups, GROUPS_KEPT_MAX),
        };

        (void)snprintf(text.comm, sizeof(text.comm), "%s", session->comm); /* cut if too long: it is for showing */
        for (size_t i = 0; i < text.n_groups; i++)
                text.groups[i] = session->cred.groups[i];
        memcpy(record->text, &text, sizeof(text));
        record->n_text = sizeof(text);
}

static Kept *keep(const Session *session, KeptRecord *record, int fd)
{
        Store *store = session->store;
        Kept *kept = NULL;

        if (!store->config.keeper || keeper_keep(store->config.keeper, record, fd, false, &kept) != 0)
                return NULL;
        return kept;
}

static void drop(const Session *session, Kept **kept)
{
        Store *store = session->store;

        if (*kept)
                keeper_drop(store->config.keeper, steal_ptr(kept));
}

/* Something that its client shares with us is not kept: after a restart it has to begin anew. */
static void give_resuming_up(Session *session)
{
        Store *store = session->store;

        if (session->token == 0)
                return;
        session->token = 0;
        store->n_sessions_unkept++;
        drop(session, &session->kept_staging);
}

static uint64_t make_token(void)
{
        uint64_t token;

        if (getrandom(&token, sizeof(token), 0) != sizeof(token))
                return 0;
        return token & INT64_MAX;
}

void session_keep(Session *session)
{
        Store *store = session->store;
        KeptRecord record;

        if (!store->config.keeper)
                return;
        session->token = make_token();
        if (session->token == 0)
                return;
        record = make_record(session, KEPT_STAGING, session->token);
        add_text(session, &record);
        session->kept_staging = keep(session, &record, session->staging->fd);
        if (!session->kept_staging)
                give_resuming_up(session);
}

void session_keep_process(Session *session, int process_fd)
{
        KeptRecord record = make_record(session, KEPT_PROCESS, 0);

        drop(session, &session->kept_process);
        if (process_fd < 0)
                return;
        add_text(session, &record);
        session->kept_process = keep(session, &record, process_fd); /* without it, it is only waited for less long */
}

void session_keep_ring(Session *session, int ring_fd, int bell_fd)
{
        KeptRecord ring = make_record(session, KEPT_RING, 0), bell = make_record(session, KEPT_BELL, 0);
        const Store *store = session->store;

        if (!store->config.keeper)
                return;
        session->kept_ring = keep(session, &ring, ring_fd);
        if (session->kept_ring)
                session->kept_bell = keep(session, &bell, bell_fd);
        if (session->kept_bell)
                return;
        give_resuming_up(session);
        drop(session, &session->kept_ring);
}

void session_keep_pins(SessionTable *table)
{
        KeptRecord record = make_record(table->session, KEPT_PINS, table->namespace_id);
        const Store *store = table->session->store;

        if (!store->config.keeper)
                return;
        table->kept_pins = keep(table->session, &record, pins_fd(table->pins));
        if (!table->kept_pins)
                give_resuming_up(table->session);
}

void session_keep_event(SessionTable *table)
{
        KeptRecord record = make_record(table->session, KEPT_WATCH, table->namespace_id);
        const Store *store = table->session->store;

        if (!store->config.keeper)
                return;
        table->kept_event = keep(table->session, &record, table->event_fd);
        if (!table->kept_event)
                give_resuming_up(table->session);
}

void session_drop_kept(Session *session)
{
        /*
         * In this order: what is left of it, should we end in the middle, is nothing that its client could have back, and
         * tells until last whether that is there.
         */
        drop(session, &session->kept_staging);
        drop(session, &session->kept_ring);
        drop(session, &session->kept_bell);
        LIST_FOREACH(node, &session->tables)
                session_drop_kept_table(LIST_ENTRY(node, SessionTable, link));
        drop(session, &session->kept_process);
}

void session_drop_kept_table(SessionTable *table)
{
        drop(table->session, &table->kept_pins);
        drop(table->session, &table->kept_event);
}

/* --- restoring: what is found ------------------------------------------------------------------------------------- */

bool session_is_record(const KeptRecord *record)
{
        switch ((KeptKind)record->kind) {
        case KEPT_STAGING:
        case KEPT_PROCESS:
        case KEPT_RING:
        case KEPT_BELL:
        case KEPT_PINS:
        case KEPT_WATCH:
                return true;
        case KEPT_INDEX:
        case KEPT_PACKED:
        case KEPT_LEASED:
        case KEPT_BOOK:
        case KEPT_OWN:
        case KEPT_LISTENER:
                break;
        }
        return false;
}

/* NULL: no memory. */
static Session *get_ghost(Store *store, const KeptRecord *record)
{
        Session *session = store_find_session(store, record->owner);

        if (session)
                return session;
        session = session_new_ghost(store);
        if (!session)
                return NULL;
        session->cred.uid = (uid_t)record->detail;
        session->cred.gid = (gid_t)(record->detail >> 32);
        note_number(store, record->owner);
        session_set_number(session, record->owner);
        return session;
}

static SessionTable *get_table(Session *session, uint32_t namespace_id)
{
        SessionTable *table;

        LIST_FOREACH(node, &session->tables)
        {
                table = LIST_ENTRY(node, SessionTable, link);
                if (table->namespace_id == namespace_id)
                        return table;
        }
        return session_add_table(session, NULL, namespace_id);
}

/* Who it is; the last of two wins, which say the same. */
static void take_text(Session *session, const KeptRecord *record)
{
        SessionText text;
        gid_t *groups;
        char *comm;

        if (record->n_text == sizeof(int32_t) && session->cred.pid == 0) {
                int32_t pid;

                memcpy(&pid, record->text, sizeof(pid));
                session->cred.pid = MAX(pid, 0);
        }
        if (record->n_text != sizeof(text))
                return;
        memcpy(&text, record->text, sizeof(text));
        text.comm[COMM_BYTES_MAX] = '\0';
        comm = strdup(text.comm);
        if (comm) {
                free(session->comm);
                session->comm = comm;
        }
        session->connected_ns = text.connected_ns;
        session->cred.pid = MAX(text.pid, 0);
        session->is_tool = text.is_tool;
        session->is_cut = text.is_cut || text.n_groups > GROUPS_KEPT_MAX;
        groups = calloc(GROUPS_KEPT_MAX, sizeof(gid_t));
        if (!groups) {
                session->is_cut = true;
                return;
        }
        free(session->cred.groups);
        session->cred.groups = groups;
        session->cred.n_groups = MIN(text.n_groups, GROUPS_KEPT_MAX);
        for (size_t i = 0; i < session->cred.n_groups; i++)
                groups[i] = text.groups[i];
}

static bool is_of_size(int fd, uint64_t size_bytes, int seals)
{
        struct stat st;
        int found = fcntl(fd, F_GET_SEALS);

        return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size_bytes && found >= 0 &&
               (found & seals) == seals;
}

/* 0, REGION_E_FOREIGN or a negative errno. */
static int take_staging(Store *store, Session *session, const KeptRecord *record, int *fd)
{
        Region *region;
        int r;

        if (record->size_bytes <= STAGING_END_BYTES || record->size_bytes % STAGING_END_BYTES != 0)
                return REGION_E_FOREIGN;
        r = region_restore(store->memfd, 0, record->size_bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
                           steal_fd(fd), &region);
        if (r != 0)
                return r;
        r = region_map(region, true);
        if (r < 0) {
                region_unref(region);
                return r;
        }
        session->staging = region;
        session->token = record->id & INT64_MAX;
        return 0;
}

/* Where this is to be remembered; NULL: it is there already, or no memory. */
static Kept **find_place(Session *session, const KeptRecord *record, SessionTable **ret_table)
{
        Kept **kept = NULL;

        *ret_table = NULL;
        if (record->kind == KEPT_PINS || record->kind == KEPT_WATCH) {
                *ret_table = get_table(session, (uint32_t)record->id);
                if (*ret_table)
                        kept = record->kind == KEPT_PINS ? &(*ret_table)->kept_pins : &(*ret_table)->kept_event;
        } else if (record->kind == KEPT_STAGING) {
                kept = &session->kept_staging;
        } else if (record->kind == KEPT_PROCESS) {
                kept = &session->kept_process;
        } else {
                kept = record->kind == KEPT_RING ? &session->kept_ring : &session->kept_bell;
        }
        return kept && !*kept ? kept : NULL;
}

void store_take_session_record(Store *store, const KeptRecord *record, int consume_fd, Kept *consume_kept)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        Session *session = record->owner != 0 ? get_ghost(store, record) : NULL;
        SessionTable *table = NULL;
        Kept **place = session ? find_place(session, record, &table) : NULL;
        bool is_good = place;

        assert(session_is_record(record));
        if (is_good)
                take_text(session, record);
        if (is_good && record->kind == KEPT_STAGING)
                is_good = take_staging(store, session, record, &fd) == 0;
        else if (is_good && record->kind == KEPT_RING)
                is_good = is_of_size(fd, RING_REGION_BYTES, RING_SEALS);
        if (!is_good) {
                store->n_bad_ghost_parts++;
                keeper_drop(store->config.keeper, consume_kept);
                return;
        }
        *place = consume_kept;
        if (record->kind == KEPT_PROCESS)
                session->process_fd = steal_fd(&fd);
        else if (record->kind == KEPT_RING)
                session->restored_ring.fd = steal_fd(&fd);
        else if (record->kind == KEPT_BELL)
                session->restored_ring.bell_fd = steal_fd(&fd);
        else if (record->kind == KEPT_PINS)
                table->restored_fd = steal_fd(&fd);
        else if (record->kind == KEPT_WATCH)
                table->event_fd = steal_fd(&fd);
}

/* --- restoring: ghosts -------------------------------------------------------------------------------------------- */

/* As it was when the foliod that had it ended. False: it is of no use, to anybody. */
static bool look_at_ring(SessionRing *ring)
{
        RingHeader header;
        ssize_t n = pread(ring->fd, &header, sizeof(header), 0);

        if (n != sizeof(header) || header.magic != RING_MAGIC || header.version != RING_VERSION)
                return false;
        /* Copies: nobody else has this header. */
        ring->head = atomic_load_explicit(&header.head, memory_order_relaxed);
        ring->tail = atomic_load_explicit(&header.tail, memory_order_relaxed);
        if (ring->tail - ring->head > RING_RECORDS)
                return false;
        ring->n_done = atomic_load_explicit(&header.carried_out, memory_order_relaxed);
        /* It is behind where the head was told after it. */
        if (ring->n_done - ring->head > ring->tail - ring->head)
                return false;
        ring->head = ring->n_done;
        ring->n_done = 0;
        return true;
}

static void drop_ring(Session *session)
{
        SessionRing *ring = &session->restored_ring;

        ring->fd = close_fd(ring->fd);
        ring->bell_fd = close_fd(ring->bell_fd);
        drop(session, &session->kept_ring);
        drop(session, &session->kept_bell);
}

static void settle_ring(Store *store, Session *session)
{
        SessionRing *ring = &session->restored_ring;

        if (ring->fd < 0 && ring->bell_fd < 0)
                return;
        /* One without the other: its client was never told, and will ask again. */
        if (ring->fd < 0 || ring->bell_fd < 0) {
                drop_ring(session);
                return;
        }
        if (session->staging && look_at_ring(ring)) {
                session_charge_anyway(session, RING_REGION_BYTES, &session->ring_charge);
                return;
        }
        store->n_bad_ghost_parts += session->staging != NULL;
        session->token = 0;
        drop(session, &session->kept_staging);
        drop_ring(session);
}

void store_make_ghosts(Store *store)
{
        LIST_FOREACH_SAFE(node, &store->sessions)
        {
                Session *session = LIST_ENTRY(node, Session, link);

                if (!session->is_ghost)
                        continue;
                if (!session_join_uid(session)) {
                        store->n_bad_ghost_parts++;
                        session_close(session);
                        continue;
                }
                if (!session->staging)
                        session->token = 0;
                settle_ring(store, session);
        }
}

static void restore_table(Store *store, SessionTable *table, Space *space)
{
        int r;

        table->space = space;
        list_push_back(&space->tables, &table->space_link);
        if (table->restored_fd < 0)
                return;
        r = pins_restore(store->memfd, space->ns.objects_max, steal_fd(&table->restored_fd), &table->pins);
        if (r != 0) {
                store->n_bad_ghost_parts++;
                table->session->token = 0;
                drop(table->session, &table->session->kept_staging);
                drop(table->session, &table->kept_pins);
                return;
        }
        session_charge_anyway(table->session, MIN(pins_region_bytes(table->pins), STORE_SESSION_BASE_BYTES),
                              &table->charge);
}

void store_restore_tables(Store *store, Space *space)
{
        LIST_FOREACH(node, &store->sessions)
        {
                Session *session = LIST_ENTRY(node, Session, link);

                LIST_FOREACH(t, &session->tables)
                {
                        SessionTable *table = LIST_ENTRY(t, SessionTable, link);

                        if (!table->space && table->namespace_id == space->ns.id)
                                restore_table(store, table, space);
                }
        }
}

void store_note_origin(Store *store, uint64_t origin, uint32_t slot, uint64_t generation)
{
        uint32_t number = (uint32_t)(origin >> 32), low = (uint32_t)origin;
        Session *session;
        SessionRing *ring;
        uint64_t n_ahead;

        if (origin == 0)
                return;
        note_number(store, number);
        session = store_find_session(store, number);
        if (!session || !layout_origin_is_record(origin) || session->restored_ring.fd < 0)
                return;
        ring = &session->restored_ring;
        /* Of the number only the low bits are there: it is of a record that we have to ask about, or of an old one. */
        n_ahead = (low - (uint32_t)ring->head) & (UINT32_MAX >> 1);
        if (n_ahead >= ring->tail - ring->head || ring->head + n_ahead + 1 <= ring->n_done)
                return;
        ring->n_done = ring->head + n_ahead + 1;
        ring->done_slot = slot;
        ring->done_generation = generation;
}

bool session_restore_made(Session *session, uint32_t made, uint32_t namespace_id, uint32_t slot, uint64_t generation,
                          uint64_t region_id)
{
        SessionRing *ring = &session->restored_ring;

        if (made == 0)
                return true;
        if (made > RING_MADE_MAX || ring->fd < 0)
                return false;
        if (!ring->made)
                ring->made = calloc(RING_MADE_MAX, sizeof(SessionMade));
        if (!ring->made || ring->made[made - 1].is_there)
                return false;
        ring->made[made - 1] = (SessionMade){ true, namespace_id, slot, generation, region_id };
        return true;
}

bool session_restore_lease(Session *session, uint32_t number, Lease *lease)
{
        if (number >= RING_LEASES_MAX || session->leases[number])
                return false;
        session->leases[number] = lease;
        session->n_leases++;
        lease->session = session;
        lease->number = number;
        lease->is_recalled = true;
        return true;
}

void store_finish_ghosts(Store *store, GhostFacts *ret)
{
        store->last_session_number += NUMBERS_SKIPPED; /* it may wrap: who gives them out looks */
        *ret = (GhostFacts){ 0 };
        LIST_FOREACH(node, &store->sessions)
        {
                Session *session = LIST_ENTRY(node, Session, link);

                LIST_FOREACH_SAFE(t, &session->tables)
                {
                        SessionTable *table = LIST_ENTRY(t, SessionTable, link);

                        if (table->space)
                                continue;
                        session_drop_kept_table(table);
                        session_drop_table(table);
                }
                ret->n_ghosts += session->is_ghost;
        }
        ret->n_bad = store->n_bad_ghost_parts;
}
