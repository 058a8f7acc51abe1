/* SPDX-License-Identifier: Apache-2.0 */
/* See fake-store.h. Sessions are real enough to be leaked: each has a descriptor. */
#include "fake-store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

FakeStore fake;

struct Session {
        int fd;
        Cred cred;
        char comm[64];
        uint64_t connected_ns;
        uint64_t token;
        uint32_t number;
        int process_fd;
        bool is_ghost;
};

static Session holder_session = { .fd = -1, .cred = { .uid = 7, .pid = 77 }, .comm = "a holder", .connected_ns = 777 };

void fake_reset(void)
{
        fake = (FakeStore){ .index_fd = -1, .pins_fd = -1, .watch_fd = -1 };
}

static Status answer(char **ret_detail)
{
        fake.n_verb_calls++;
        if (fake.verb_status != STATUS_OK && ret_detail)
                *ret_detail = strdup("because the test says so");
        return fake.verb_status;
}

uint64_t store_instance(const Store *store)
{
        return 4711;
}

void store_each_fact(Store *store, void (*each)(void *userdata, const char *name, uint64_t value, const char *text),
                     void *userdata)
{
        static char text[400];

        memset(text, 't', sizeof(text) - 1);
        for (size_t i = 0; i < fake.n_facts; i++)
                each(userdata, i % 2 ? "fact.number" : "fact.text", i, i % 2 ? NULL : text);
}

Status session_new(Store *store, const SessionConfig *config, Session **ret, char **ret_detail)
{
        Session *session;

        if (fake.session_status != STATUS_OK) {
                *ret_detail = strdup("no session for you");
                return fake.session_status;
        }
        session = calloc(1, sizeof(*session));
        assert(session);
        session->fd = memfd_create("staging", MFD_CLOEXEC);
        assert(session->fd >= 0);
        session->cred = config->cred;
        session->process_fd = -1;
        session->number = fake.n_sessions_made + 1;
        session->token = 1000 + session->number;
        snprintf(fake.last_comm, sizeof(fake.last_comm), "%s", config->comm);
        fake.last_uid = config->cred.uid;
        fake.last_n_groups = config->cred.n_groups;
        fake.n_sessions_made++;
        fake.n_sessions_open++;
        *ret = session;
        return STATUS_OK;
}

void session_close(Session *session)
{
        assert(fake.n_sessions_open > 0);
        fake.n_sessions_open--;
        close(session->fd);
        if (session->process_fd >= 0)
                close(session->process_fd);
        if (session == fake.ghost)
                fake.ghost = NULL;
        free(session);
}

void session_leave(Session *session)
{
        fake.n_left++;
        session_close(session);
}

Session *fake_make_ghost(uint64_t token, uid_t uid, int process_fd)
{
        SessionConfig config = { .cred = { .uid = uid, .pid = getpid() }, .comm = "ghost" };
        Session *session;

        assert(!fake.ghost && session_new(NULL, &config, &session, NULL) == STATUS_OK);
        session->token = token;
        session->process_fd = process_fd;
        session->is_ghost = true;
        return fake.ghost = session;
}

Session *session_next_ghost(const Store *store, const Session *after)
{
        return after ? NULL : fake.ghost;
}

bool session_is_ghost(const Session *session)
{
        return session->is_ghost;
}

bool session_is_cut(const Session *session)
{
        return false;
}

struct SessionRing *session_get_restored_ring(Session *session)
{
        return fake.ghost_ring;
}

bool session_has_anything(const Session *session)
{
        return !fake.is_empty;
}

bool session_has_arrived(const Session *session)
{
        fake.n_asked++;
        return !fake.is_unwelcomed;
}

bool session_is_over(const Session *session)
{
        return fake.is_over && session == fake.ghost;
}

int session_take_process(Session *session)
{
        int fd = session->process_fd;

        session->process_fd = -1;
        return fd;
}

int session_resume(Session *session, const SessionConfig *config)
{
        session->is_ghost = false;
        fake.ghost = NULL;
        return 0;
}

void session_keep_process(Session *session, int process_fd)
{
        fake.n_processes_kept += process_fd >= 0;
}

void session_keep_ring(Session *session, int ring_fd, int bell_fd)
{
        assert(ring_fd >= 0 && bell_fd >= 0);
        fake.n_rings_kept++;
}

uint64_t session_token(const Session *session)
{
        return session->token;
}

uint32_t session_number(const Session *session)
{
        return session->number;
}

int session_staging_fd(const Session *session)
{
        return session->fd;
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

Status session_charge_ring(Session *session, uint64_t n_bytes, char **ret_detail)
{
        if (fake.ring_status != STATUS_OK)
                *ret_detail = strdup("no ring for you");
        else
                fake.n_ring_bytes += n_bytes;
        return fake.ring_status;
}

void session_set_ring(Session *session, struct RingHeader *ring,
                      bool (*is_drained)(void *userdata, uint64_t region_id), void *userdata)
{
        fake.ring = ring;
        fake.is_drained = is_drained;
        fake.ring_userdata = userdata;
}

static void end(StoreOp *op)
{
        op->status = STATUS_OK;
        if (fake.fill)
                fake.fill(op);
        op->done(op);
}

void store_submit(Store *store, StoreOp *op)
{
        fake.n_submitted++;
        if (fake.submitted)
                fake.submitted(op);
        if (!fake.is_deferring) {
                end(op);
                return;
        }
        assert(fake.n_waiting < sizeof(fake.waiting) / sizeof(fake.waiting[0]));
        fake.waiting[fake.n_waiting++] = op;
}

uint64_t store_expect(Store *store, uint32_t namespace_id, Key key)
{
        /* A hint, and nothing that could be asserted: whoever gives it may have read anything. */
        assert(key.n_bytes > 0 && key.n_bytes <= FOLIO_KEY_BYTES_MAX);
        return 1;
}

void store_expect_object(Store *store, uint32_t namespace_id, uint64_t hash)
{
        assert(hash == 1);
}

void fake_end(size_t i)
{
        StoreOp *op = fake.waiting[i];

        assert(op);
        fake.waiting[i] = NULL;
        end(op);
}

static void describe(const char *name, ProtoNamespace *ret)
{
        *ret = (ProtoNamespace){ .id = 3, .quota_bytes = UINT64_MAX, .quota_objects = UINT64_MAX,
                .objects_max = UINT64_MAX,
                                 .used_bytes = UINT64_MAX, .n_objects = UINT64_MAX, .held_bytes = UINT64_MAX,
                                 .n_held = UINT64_MAX, .unsealed_bytes = UINT64_MAX, .n_unsealed = UINT64_MAX,
                                 .index_bytes = UINT64_MAX, .pins_bytes = UINT64_MAX, .owner_uid = UINT32_MAX,
                                 .owner_gid = UINT32_MAX, .fields = UINT32_MAX, .rights = UINT32_MAX,
                                         .mode = UINT32_MAX };
        snprintf(ret->name, sizeof(ret->name), "%s", name);
}

Status store_namespace_open(Store *store, Session *session, const char *name, ProtoNamespace *ret, int *ret_index_fd,
                            int *ret_pins_fd, char **ret_detail)
{
        Status status = answer(ret_detail);

        if (status == STATUS_OK) {
                describe(name, ret);
                *ret_index_fd = fake.index_fd;
                *ret_pins_fd = fake.pins_fd;
        }
        return status;
}

Status store_namespace_add(Store *store, Session *session, const ProtoNamespace *settings, ProtoNamespace *ret,
                           char **ret_detail)
{
        Status status = answer(ret_detail);

        if (status == STATUS_OK)
                *ret = *settings;
        return status;
}

Status store_namespace_set(Store *store, Session *session, const ProtoNamespace *settings, ProtoNamespace *ret,
                           char **ret_detail)
{
        return store_namespace_add(store, session, settings, ret, ret_detail);
}

Status store_namespace_remove(Store *store, Session *session, const char *name, char **ret_detail)
{
        return answer(ret_detail);
}

size_t store_namespace_list(Store *store, Session *session, Key after, ProtoNamespace *ret, size_t n_max)
{
        size_t n = fake.n_namespaces < n_max ? fake.n_namespaces : n_max;

        for (size_t i = 0; i < n; i++) {
                char name[64];

                snprintf(name, sizeof(name), "%063zu", i);
                describe(name, &ret[i]);
        }
        fake.n_verb_calls++;
        return n;
}

Status store_holders(Store *store, Session *session, uint32_t namespace_id, const ProtoItem *item,
                     StoreHolder *holders, size_t n_max, size_t *ret_n_holders, char **ret_detail)
{
        Status status = answer(ret_detail);

        for (size_t i = 0; i < fake.n_holders && i < n_max; i++)
                holders[i] = (StoreHolder){ &holder_session, i };
        *ret_n_holders = fake.n_holders;
        return status;
}

Status store_watch(Store *store, Session *session, uint32_t namespace_id, int *ret_fd, char **ret_detail)
{
        *ret_fd = fake.watch_fd;
        return answer(ret_detail);
}
