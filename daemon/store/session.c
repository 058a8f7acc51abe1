/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: beginning, end, and what lies between that is not an operation. */
#include "daemon/store/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/store/session-kept.h"
#include "daemon/store/store-private.h"

/* --- what a uid has ----------------------------------------------------------------------------------------------- */

static UidAccount *get_uid_account(Store *store, uid_t uid)
{
        UidAccount *account;

        LIST_FOREACH(node, &store->uid_accounts)
                if (LIST_ENTRY(node, UidAccount, link)->uid == uid)
                        return LIST_ENTRY(node, UidAccount, link);
        account = calloc(1, sizeof(*account));
        if (!account)
                return NULL;
        account->uid = uid;
        account_init(&account->account, NULL, store->config.session_bytes_max, UINT64_MAX);
        list_push_back(&store->uid_accounts, &account->link);
        return account;
}

static void drop_uid_account(UidAccount *account)
{
        if (account->n_sessions > 0)
                return;
        list_unlink(&account->link);
        account_deinit(&account->account);
        free(account);
}

int session_charge(Session *session, uint64_t n_bytes, Charge *ret)
{
        const Account *ignored;
        int r = account_charge(&session->uid_account->account, n_bytes, 0, ret, &ignored);

        if (r == 0 || !session->is_tool)
                return r;
        session_charge_anyway(session, n_bytes, ret);
        return 0;
}

void session_charge_anyway(Session *session, uint64_t n_bytes, Charge *ret)
{
        const Account *ignored;
        int r = account_charge(&session->uid_account->account, 0, 0, ret, &ignored);

        assert(r == 0); /* it takes nothing, and so cannot be refused */
        charge_set(ret, n_bytes);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static List *number_list(const Store *store, uint32_t number)
{
        return (List *)&store->sessions_by_number[number % STORE_SESSION_LISTS];
}

Session *store_find_session(const Store *store, uint32_t number)
{
        LIST_FOREACH(node, number_list(store, number))
                if (LIST_ENTRY(node, Session, number_link)->number == number)
                        return LIST_ENTRY(node, Session, number_link);
        return NULL;
}

void session_set_number(Session *session, uint32_t number)
{
        session->number = number;
        list_push_back(number_list(session->store, number), &session->number_link);
}

void session_take_number(Session *session)
{
        Store *store = session->store;

        do
                store->last_session_number++;
        while (store->last_session_number == 0 || store_find_session(store, store->last_session_number));
        session_set_number(session, store->last_session_number);
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

SessionTable *session_find_table(const Session *session, const void *space)
{
        LIST_FOREACH(node, &session->tables)
                if (LIST_ENTRY(node, SessionTable, link)->space == space)
                        return LIST_ENTRY(node, SessionTable, link);
        return NULL;
}

SessionTable *session_add_table(Session *session, void *space, uint32_t namespace_id)
{
        SessionTable *table = calloc(1, sizeof(*table));

        if (!table)
                return NULL;
        table->session = session;
        table->namespace_id = namespace_id;
        table->event_fd = table->restored_fd = -1;
        list_init(&table->space_link);
        list_push_back(&session->tables, &table->link);
        if (space) {
                table->space = space;
                list_push_back(&((Space *)space)->tables, &table->space_link);
        }
        return table;
}

static void free_table(SessionTable *table)
{
        list_unlink(&table->link);
        list_unlink(&table->space_link);
        pins_free(table->pins);
        charge_release(&table->charge);
        (void)close_fd(table->event_fd);
        (void)close_fd(table->restored_fd);
        free(table);
}

void session_drop_table(SessionTable *table)
{
        session_drop_kept_table(table);
        free_table(table);
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

static void free_session(Session *session)
{
        assert(list_is_empty(&session->tables) && list_is_empty(&session->objects) && session->n_ops == 0);
        assert(session->n_leases == 0);
        list_unlink(&session->link);
        list_unlink(&session->number_link);
        (void)close_fd(session->process_fd);
        (void)close_fd(session->restored_ring.fd);
        (void)close_fd(session->restored_ring.bell_fd);
        free(session->restored_ring.made);
        if (session->staging)
                region_unref(session->staging);
        charge_release(&session->staging_charge);
        charge_release(&session->ring_charge);
        if (session->uid_account) {
                session->uid_account->n_sessions--;
                session->uid_account->n_tools -= session->is_tool;
                drop_uid_account(session->uid_account);
        }
        free(session->cred.groups);
        free(session->comm);
        free(session);
}

DEFINE_CLEANUP(Session *, cleanup_session, free_session)

void session_try_free(Session *session)
{
        if (session->is_closed && session->n_ops == 0 && list_is_empty(&session->objects))
                free_session(session);
}

/* Where it fails nothing has changed. */
static int copy_cred(Session *session, const SessionConfig *config)
{
        _cleanup_(cleanup_free) char *comm = strdup(config->comm ? config->comm : "");
        gid_t *groups = NULL;

        if (config->cred.n_groups > 0)
                groups = calloc(config->cred.n_groups, sizeof(gid_t));
        if (!comm || (config->cred.n_groups > 0 && !groups)) {
                free(groups);
                return -ENOMEM;
        }
        if (groups)
                memcpy(groups, config->cred.groups, config->cred.n_groups * sizeof(gid_t));
        free(session->comm);
        free(session->cred.groups);
        session->comm = steal_ptr(&comm);
        session->cred = config->cred;
        session->cred.groups = groups;
        return 0;
}

static StagingEnd *staging_end_of(const Session *session)
{
        return (StagingEnd *)(void *)(session->staging->data + session_staging_bytes(session));
}

void session_take_over(Session *session)
{
        const Store *store = session->store;

        if (session->staging)
                atomic_store(&staging_end_of(session)->taken_by, store->start);
}

/*
 * Its pages appear as the client writes them, and are paid for by the uid: STORE_SESSION_BASE_BYTES.
 *
 * A memfd, since only there the size can be sealed: whoever has a file of the tmpfs open for writing can shorten it,
 * and the copy through our mapping would end in a signal. Not made huge beforehand: that is worth 0.4 ms once to a
 * client that puts 1 MiB (measured: 490 us for the first copy into small pages, 90 into a huge one; afterwards both are
 * the same), and would cost every client, readers too, 2 MiB and 0.2 ms of a worker. Nor read by pread(), which would
 * spare us the 16 faults for 1 MiB and loses more than that on every put after the first (88 us against 58).
 */
static int make_staging(Store *store, Session *session)
{
        int r;

        r = region_new(store->memfd, "folio-staging", store->config.staging_bytes + STAGING_END_BYTES,
                       &session->staging);
        if (r < 0)
                return r;
        r = region_seal_size_for_good(session->staging);
        if (r == 0)
                r = region_map(session->staging, true);
        if (r == 0)
                session_take_over(session);
        return r;
}

/* In no list; NULL: no memory. */
static Session *make_empty(Store *store)
{
        Session *session = calloc(1, sizeof(*session));

        if (!session)
                return NULL;
        session->store = store;
        session->process_fd = session->restored_ring.fd = session->restored_ring.bell_fd = -1;
        list_init(&session->link);
        list_init(&session->number_link);
        list_init(&session->tables);
        list_init(&session->objects);
        return session;
}

static void add_to_store(Store *store, Session *session)
{
        list_push_back(&store->sessions, &session->link);
        store->n_sessions++;
}

/* False: no memory. */
static bool join_uid(Session *session, bool is_tool)
{
        UidAccount *uid_account = get_uid_account(session->store, session->cred.uid);

        if (!uid_account)
                return false;
        session->uid_account = uid_account;
        uid_account->n_sessions++;
        session->is_tool = is_tool && uid_account->n_tools < STORE_SESSION_TOOLS_MAX;
        uid_account->n_tools += session->is_tool;
        return true;
}

Status session_new(Store *store, const SessionConfig *config, Session **ret, char **ret_detail)
{
        _cleanup_(cleanup_session) Session *session = make_empty(store);
        uint64_t base_bytes = MIN(store->config.staging_bytes, STORE_SESSION_BASE_BYTES);
        int r;

        if (!session)
                return store_refuse_errno(ret_detail, -ENOMEM, "a session");
        session->connected_ns = config->connected_ns;
        session->userdata = config->userdata;
        r = copy_cred(session, config);
        if (r == 0 && !join_uid(session, config->is_tool))
                r = -ENOMEM;
        if (r < 0)
                return store_refuse_errno(ret_detail, r, "a session");
        if (session_charge(session, base_bytes, &session->staging_charge))
                return store_refuse(ret_detail, STATUS_LIMIT,
                                    "uid %u has %llu bytes of staging memory and pin tables in its %u connections, "
                                    "and %llu is the most; "
                                    "close some",
                                    config->cred.uid, (unsigned long long)session->uid_account->account.bytes_used,
                                    session->uid_account->n_sessions - 1,
                                    (unsigned long long)store->config.session_bytes_max);
        r = make_staging(store, session);
        if (r < 0)
                return store_refuse_errno(ret_detail, r, "the staging region");
        session_take_number(session);
        session_keep(session);
        add_to_store(store, session);
        *ret = steal_ptr(&session);
        return STATUS_OK;
}

/* --- ghosts ------------------------------------------------------------------------------------------------------- */

Session *session_new_ghost(Store *store)
{
        _cleanup_(cleanup_session) Session *session = make_empty(store);

        if (!session)
                return NULL;
        session->comm = strdup("?"); /* until somebody knows better */
        if (!session->comm)
                return NULL;
        session->is_ghost = true;
        add_to_store(store, session);
        return steal_ptr(&session);
}

bool session_join_uid(Session *session)
{
        if (!join_uid(session, session->is_tool))
                return false;
        session_charge_anyway(session, session->staging ? MIN(session->staging->size_bytes, STORE_SESSION_BASE_BYTES) : 0,
                              &session->staging_charge);
        return true;
}

int session_resume(Session *session, const SessionConfig *config)
{
        int r;

        assert(session->is_ghost && session->token != 0 && config->cred.uid == session->cred.uid);
        r = copy_cred(session, config);
        if (r < 0)
                return r;
        session->userdata = config->userdata;
        session->is_ghost = session->is_cut = false;
        return 0;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The objects that die with a connection, as far as @slice goes. Each takes itself off the list. */
static void abandon_objects(Store *store, Session *session, Slice *slice)
{
        List *node;

        while ((node = list_peek_front(&session->objects)) && store_take_slice(slice)) {
                Object *object = LIST_ENTRY(node, Object, link);

                if (object->state == OBJECT_WRITING)
                        store_retire_object(store, object, LAYOUT_GRAVE_WRITER_DIED, 0, 0);
                else
                        store_retire_object(store, object, FOLIO_EVENT_DELETED, FOLIO_EVENT_DELETED, 0);
        }
}

void store_abandon_some(Store *store, Slice *slice)
{
        LIST_FOREACH_SAFE(node, &store->closed_sessions)
        {
                Session *session = LIST_ENTRY(node, Session, link);

                if (slice->n_left == 0)
                        return;
                abandon_objects(store, session, slice);
                session_try_free(session);
        }
}

static void measure(Session *session)
{
        uint64_t size_bytes = session->staging ? session->staging->size_bytes : 0, n_bytes = 0;

        if (session->staging && region_get_allocated(session->staging, &n_bytes) < 0)
                n_bytes = size_bytes;
        charge_set(&session->staging_charge, MAX(n_bytes, MIN(size_bytes, STORE_SESSION_BASE_BYTES)));
        LIST_FOREACH(node, &session->tables)
        {
                SessionTable *table = LIST_ENTRY(node, SessionTable, link);

                if (table->pins)
                        charge_set(&table->charge, MAX(pins_allocated_bytes(table->pins),
                                                       MIN(pins_region_bytes(table->pins), STORE_SESSION_BASE_BYTES)));
        }
}

void store_measure_sessions(Store *store)
{
        for (unsigned n = MIN(store->n_sessions, STORE_SESSIONS_MEASURED); n > 0; n--) {
                List *node = list_take_front(&store->sessions);

                list_push_back(&store->sessions, node);
                measure(LIST_ENTRY(node, Session, link));
        }
}

void store_set_session_limit(Store *store, uint64_t bytes_max)
{
        store->config.session_bytes_max = bytes_max;
        LIST_FOREACH(node, &store->uid_accounts)
                LIST_ENTRY(node, UidAccount, link)->account.bytes_max = bytes_max;
}

void session_close(Session *session)
{
        Store *store = session->store;
        Slice slice = store_begin_slice();
        List *node;

        assert(!session->is_closed);
        session->is_closed = true;
        session->is_ghost = false;
        session->n_ops++; /* stays until we are through, whatever ends meanwhile */
        session_drop_kept(session);
        list_unlink(&session->link);
        list_push_back(&store->closed_sessions, &session->link);
        store->n_sessions--;
        store_cancel_preparing(store, session);
        store_close_leases(store, session);
        session->ring = NULL;
        /* Its pins first: what it alone held can go at once. */
        while ((node = list_peek_front(&session->tables))) {
                SessionTable *table = LIST_ENTRY(node, SessionTable, link);
                Space *space = table->space;

                session_drop_table(table);
                if (space)
                        store_try_free_space(store, space);
        }
        abandon_objects(store, session, &slice);
        if (!list_is_empty(&session->objects))
                store_schedule_chore(store);
        store_sweep_held(store);
        session->n_ops--;
        session_try_free(session);
}

void session_leave(Session *session)
{
        Store *store = session->store;
        List *node;

        assert(!session->is_closed);
        store->is_leaving = true;
        session->is_closed = true;
        session->is_ghost = false;
        session->n_ops++; /* as above */
        list_unlink(&session->link);
        list_push_back(&store->closed_sessions, &session->link);
        store->n_sessions--;
        session->ring = NULL;
        for (uint32_t i = 0; i < RING_LEASES_MAX; i++) {
                if (!session->leases[i])
                        continue;
                session->leases[i]->session = NULL;
                session->leases[i] = NULL;
                session->n_leases--;
        }
        session->last_lease = NULL;
        while ((node = list_peek_front(&session->tables)))
                free_table(LIST_ENTRY(node, SessionTable, link));
        while ((node = list_take_front(&session->objects)))
                LIST_ENTRY(node, Object, link)->creator = NULL;
        session->n_ops--;
        session_try_free(session);
}

void session_set_ring(Session *session, RingHeader *ring,
                      bool (*is_drained)(void *userdata, uint64_t region_id), void *userdata)
{
        assert(!session->is_closed && !session->ring);
        session->ring = ring;
        session->is_drained = is_drained;
        session->ring_userdata = userdata;
}

Status session_charge_ring(Session *session, uint64_t n_bytes, char **ret_detail)
{
        Account *account = &session->uid_account->account;
        const Account *ignored;

        assert(!session->ring_charge.account);
        if (account_charge(account, n_bytes, 0, &session->ring_charge, &ignored) == 0)
                return STATUS_OK;
        return store_refuse(ret_detail, STATUS_LIMIT,
                            "uid %u has %llu bytes of staging memory, pin tables and rings and needs %llu more, and "
                            "%llu is the most; close connections",
                            session->cred.uid, (unsigned long long)account->bytes_used, (unsigned long long)n_bytes,
                            (unsigned long long)account->bytes_max);
}

Session *session_next_ghost(const Store *store, const Session *after)
{
        for (List *node = after ? after->link.next : store->sessions.next; node != &store->sessions; node = node->next)
                if (LIST_ENTRY(node, Session, link)->is_ghost)
                        return LIST_ENTRY(node, Session, link);
        return NULL;
}

bool session_is_ghost(const Session *session)
{
        return session->is_ghost;
}

bool session_is_cut(const Session *session)
{
        return session->is_cut;
}

SessionRing *session_get_restored_ring(Session *session)
{
        return session->restored_ring.fd >= 0 ? &session->restored_ring : NULL;
}

int session_take_process(Session *session)
{
        return steal_fd(&session->process_fd);
}

uint64_t session_token(const Session *session)
{
        return session->token;
}

uint32_t session_number(const Session *session)
{
        return session->number;
}

bool session_has_anything(const Session *session)
{
        LIST_FOREACH(node, &session->tables)
        {
                const SessionTable *table = LIST_ENTRY(node, SessionTable, link);

                if (table->pins && !pins_is_untouched(table->pins))
                        return true;
        }
        return !list_is_empty(&session->objects) || session->n_leases > 0;
}

bool session_has_arrived(const Session *session)
{
        return session->token != 0 && session->staging &&
               atomic_load_explicit(&staging_end_of(session)->start, memory_order_acquire) != 0;
}

bool session_is_over(const Session *session)
{
        return session->staging && atomic_load_explicit(&staging_end_of(session)->is_over, memory_order_acquire) != 0;
}

int session_staging_fd(const Session *session)
{
        return session->staging->fd;
}

const Cred *session_cred(const Session *session)
{
        return &session->cred;
}

const char *session_comm(const Session *session)
{
        return session->comm;
}

uint64_t session_connected_ns(const Session *session)
{
        return session->connected_ns;
}
