/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store with real workers and a loop, and clients that speak to it by store_submit() and read its index as libfolio
 * does: what the tests of the store share. Waiting is for the callback, never for a time.
 */
#ifndef TESTS_UNIT_STORE_FIXTURE_H
#define TESTS_UNIT_STORE_FIXTURE_H

#include "harness.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/lookup.h"
#include "daemon/store/store.h"
#include "folio/admin.h"

#define FIXTURE_TURNS_MAX 1000000u

static uint64_t fixture_now = 1000;

static inline uint64_t fixture_now_ns(void)
{
        return fixture_now;
}

typedef struct Fixture {
        struct event_base *base;
        WorkerPool *workers;
        Store *store;
} Fixture;

/* One connection, with one namespace open. */
typedef struct Client {
        Fixture *f;
        Session *session;
        Space *space;
        uint32_t namespace_id;
} Client;

typedef struct Op {
        StoreOp op;
        ProtoItem item;
        bool is_done;
} Op;

static inline StoreConfig fixture_config(void)
{
        return (StoreConfig){
                .budget_bytes = 256 * MIB,
                .packed_bytes_max = MIB,
                .pool_bytes_max = 0,
                .staging_bytes = 4 * MIB,
                .index_objects_max = 4096,
                .session_bytes_max = 256 * MIB,
                .n_events = 1024,
                .n_namespaces_max = 8,
                .huge = FOLIO_HUGE_NEVER,
                .packed_protection = STORE_PROTECT_SEALS,
                .is_user_daemon = true,
                .now_ns = fixture_now_ns,
        };
}

static inline void fixture_init(Fixture *f, const StoreConfig *config)
{
        StoreConfig mine = config ? *config : fixture_config();
        const char *failed_call = NULL;

        fixture_now = 1000;
        f->base = event_base_new();
        assert_non_null(f->base);
        assert_int_equal(worker_pool_new(f->base, 2, &f->workers), 0);
        mine.workers = f->workers;
        assert_int_equal(store_new(&mine, &f->store, &failed_call), 0);
}

static inline void fixture_deinit(Fixture *f)
{
        store_free(f->store);
        worker_pool_free(f->workers);
        event_base_free(f->base);
}

static inline void client_open(Fixture *f, Client *c, uid_t uid, const char *name)
{
        SessionConfig config = { .cred = { .uid = uid, .gid = uid, .pid = getpid() }, .comm = "test",
                .connected_ns = 7 };
        int index_fd, pins_fd;
        ProtoNamespace ns;
        char *detail = NULL;

        memset(c, 0, sizeof(*c));
        c->f = f;
        assert_int_equal(session_new(f->store, &config, &c->session, &detail), STATUS_OK);
        assert_int_equal(store_namespace_open(f->store, c->session, name, &ns, &index_fd, &pins_fd, &detail),
                         STATUS_OK);
        c->namespace_id = ns.id;
        if (index_fd >= 0)
                assert_int_equal(space_new(&ns, 1, fcntl(index_fd, F_DUPFD_CLOEXEC, 3), fcntl(pins_fd,
                                                                                              F_DUPFD_CLOEXEC, 3),
                                           &c->space), 0);
}

static inline void client_close(Client *c)
{
        session_close(c->session);
        space_unref(c->space);
        c->session = NULL;
        c->space = NULL;
}

static inline void op_done(StoreOp *op)
{
        ((Op *)op->userdata)->is_done = true;
}

static inline void op_begin(Client *c, Op *op, ProtoVerb verb)
{
        op->op.session = c->session;
        op->op.verb = verb;
        op->op.namespace_id = c->namespace_id;
        op->op.item = &op->item;
        op->op.done = op_done;
        op->op.userdata = op;
        op->is_done = false;
        store_submit(c->f->store, &op->op);
}

static inline void fixture_turn(Fixture *f)
{
        store_flush(f->store);
        (void)event_base_loop(f->base, EVLOOP_ONCE);
        store_flush(f->store);
}

static inline void op_wait(Fixture *f, Op *op)
{
        for (unsigned i = 0; !op->is_done; i++) {
                assert_true(i < FIXTURE_TURNS_MAX);
                fixture_turn(f);
        }
        store_flush(f->store);
}

static inline void op_clear(Op *op)
{
        free(op->op.detail);
        op->op.detail = NULL;
        if (op->op.fd >= 0)
                close(op->op.fd);
        op->op.fd = -1;
}

/* Failures come with a sentence. */
static inline Status op_run(Client *c, Op *op, ProtoVerb verb)
{
        op_begin(c, op, verb);
        op_wait(c->f, op);
        assert_true((op->op.status == STATUS_OK) == (op->op.detail == NULL));
        return op->op.status;
}

/* For the answers that nothing else is wanted of. */
static inline Status op_run_clear(Client *c, Op *op, ProtoVerb verb)
{
        Status status = op_run(c, op, verb);

        op_clear(op);
        return status;
}

static inline Key key_of(const char *text)
{
        return (Key){ text, strlen(text) };
}

static inline void client_stage(Client *c, uint64_t offset, const void *bytes, size_t n_bytes)
{
        assert_int_equal(pwrite(session_staging_fd(c->session), bytes, n_bytes, (off_t)offset), n_bytes);
}

static inline Status client_put(Client *c, const char *key, const void *bytes, size_t n_bytes, uint32_t flags)
{
        Op op = { .item = { .key = key_of(key), .size_bytes = n_bytes, .flags = flags } };

        client_stage(c, 0, bytes, n_bytes);
        return op_run_clear(c, &op, VERB_PUT);
}

static inline Status client_put_text(Client *c, const char *key, const char *text, uint32_t flags)
{
        return client_put(c, key, text, strlen(text), flags);
}

/* *@op has the descriptor, the slot and the generation. */
static inline Status client_create(Client *c, Op *op, const char *key, uint64_t n_bytes, uint32_t flags)
{
        *op = (Op){ .item = { .key = key_of(key), .size_bytes = n_bytes, .flags = flags } };
        return op_run(c, op, VERB_CREATE);
}

static inline Status client_by_slot(Client *c, Op *op, ProtoVerb verb, const Op *object, uint32_t flags)
{
        *op = (Op){ .item = { .flags = PROTO_ITEM_BY_SLOT | flags, .slot = object->op.slot,
                              .generation = object->op.generation } };
        return op_run(c, op, verb);
}

static inline Status client_seal(Client *c, const Op *object)
{
        Op op;
        Status status = client_by_slot(c, &op, VERB_SEAL, object, 0);

        op_clear(&op);
        return status;
}

static inline Status client_delete(Client *c, const char *key, uint32_t flags)
{
        Op op = { .item = { .key = key_of(key), .flags = flags } };

        return op_run_clear(c, &op, VERB_DELETE);
}

static inline Status client_truncate(Client *c, const char *key, uint64_t size_bytes)
{
        Op op = { .item = { .key = key_of(key), .size_bytes = size_bytes } };

        return op_run_clear(c, &op, VERB_TRUNCATE);
}

static inline LookupOutcome client_look(const Client *c, const char *key, Lookup *ret)
{
        return lookup_find(c->space, key_of(key), fixture_now, ret);
}

static inline bool client_has(const Client *c, const char *key)
{
        Lookup found;

        return client_look(c, key, &found) == LOOKUP_FOUND;
}

static inline uint8_t client_reason(const Client *c, const char *key)
{
        Lookup found;

        assert_int_equal(client_look(c, key, &found), LOOKUP_MISSING);
        return found.reason;
}

static inline void client_pin(Client *c, uint32_t slot, int change)
{
        atomic_store(&c->space->pin_summary[slot / LAYOUT_PINS_PER_SUMMARY], 1);
        atomic_fetch_add(&c->space->pin_counters[slot], (uint32_t)change);
}

/* The bytes of an object, through the descriptor that a reader gets. */
static inline Status client_read_slot(Client *c, uint32_t slot, uint64_t generation, void *bytes, size_t n_bytes,
                                      uint64_t offset)
{
        Op op = { .item = { .flags = PROTO_ITEM_BY_SLOT, .slot = slot, .generation = generation } };
        Status status = op_run(c, &op, VERB_REGION);

        if (status == STATUS_OK) {
                assert_int_equal(fcntl(op.op.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
                assert_int_equal(pread(op.op.fd, bytes, n_bytes, (off_t)(op.op.offset_bytes + offset)), n_bytes);
        }
        op_clear(&op);
        return status;
}

static inline void assert_content(Client *c, const char *key, const void *bytes, size_t n_bytes)
{
        char *seen = malloc(n_bytes + 1);
        Lookup found;

        assert_int_equal(client_look(c, key, &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.size_bytes, n_bytes);
        assert_int_equal(client_read_slot(c, found.slot, found.copy.generation, seen, n_bytes, 0), STATUS_OK);
        assert_memory_equal(seen, bytes, n_bytes);
        free(seen);
}

static inline void assert_text(Client *c, const char *key, const char *text)
{
        assert_content(c, key, text, strlen(text));
}

typedef struct FactQuery {
        const char *name;
        uint64_t value;
        bool is_there;
} FactQuery;

static inline void fact_each(void *userdata, const char *name, uint64_t value, const char *text)
{
        FactQuery *query = userdata;

        (void)text;
        assert_true(strlen(name) < 64);
        if (strcmp(name, query->name) == 0) {
                query->value = value;
                query->is_there = true;
        }
}

static inline uint64_t fixture_fact(Fixture *f, const char *name)
{
        FactQuery query = { .name = name };

        store_each_fact(f->store, fact_each, &query);
        assert_true(query.is_there);
        return query.value;
}

/* Until nothing is going on any more. */
static inline void fixture_settle(Fixture *f)
{
        store_sweep_held(f->store);
        worker_pool_drain(f->workers);
        store_flush(f->store);
}

#endif
