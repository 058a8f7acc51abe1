/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a get: look the name up, hold what is found (a pin, and a second look), find or ask for the mapping. A
 * waiting get sleeps on the bucket of its name: a blocking one itself, an asynchronous one by the timerfd of the
 * namespace, through client->gets. Nobody else knows that it waits.
 */
#include "client/get.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/lib/connection.h"
#include "client/loop.h"
#include "client/read.h"
#include "client/resume.h"
#include "client/sealed.h"

#define GET_SLICE_NS (UINT64_C(250) * 1000 * 1000)
#define GET_POLL_NS UINT64_C(100000)

typedef struct GetOp {
        Op op;
        uint32_t flags;
        GetUntil until;
        uint64_t writing_generation; /* of the unsealed object that we have waited for; 0: none yet */
        Object *object;
        /* folio_read_async() */
        bool is_read;
        uint64_t offset_bytes;
        void *buffer;
        size_t n_bytes;
} GetOp;

GetUntil get_until(int timeout_ms)
{
        GetUntil until = { .timeout_ms = timeout_ms };

        if (timeout_ms < 0)
                until.deadline_ns = UINT64_MAX;
        else if (timeout_ms > 0)
                until.deadline_ns = connection_now_ns() + (uint64_t)timeout_ms * 1000000;
        return until;
}

/* --- the operation -------------------------------------------------------------------------------------------------------------- */

static void get_step(Op *op);

static void get_end(GetOp *get)
{
        Op *op = &get->op;

        if (op->error == 0 && get->flags & FOLIO_GET_SEALED)
                op_fail_as_thread(op, sealed_make(get->object));
        if (op->error == 0 && op->done && !get->is_read) {
                op->object = object_give(get->object);
                if (op->object)
                        get->object = NULL;
                else
                        op_fail_connection(op, FOLIO_E_NO_MEMORY);
        }
        if (op->error || get->is_read) {
                object_unref(get->object);
                get->object = NULL;
        }
        op_complete(op);
}

static void get_region_came(Op *op)
{
        GetOp *get = CONTAINER_OF(op, GetOp, op);
        int r;

        if (op->error == 0 && get->is_read) {
                r = object_check_range(get->object, get->offset_bytes, get->n_bytes);
                if (r == 0)
                        r = object_read_region(get->object, &op->item, steal_fd(&op->fd), get->offset_bytes, get->buffer,
                                               get->n_bytes);
                if (r < 0)
                        op_fail_as_thread(op, r);
        } else if (op->error == 0) {
                r = object_add_region(get->object, &op->item, steal_fd(&op->fd), get->flags & FOLIO_GET_WRITABLE,
                                      get->flags & FOLIO_GET_POPULATE);
                if (r < 0)
                        op_fail_as_thread(op, r);
        }
        get_end(get);
}

static void take_watch(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Name *name = names_entry(op->client, op->space);

        if (n_fds != 1) {
                op_fail_connection(op, FOLIO_E_PROTOCOL);
                return;
        }
        requests_lock(op->client->requests);
        if (name->watch_fd < 0) {
                name->watch_fd = steal_fd(&fds[0]);
                loop_watch(op->client, name->watch_fd);
        }
        requests_unlock(op->client->requests);
}

/* True: it waits now, and may be over already. False: there is something to look at. */
static bool get_park(GetOp *get, const Lookup *look)
{
        Op *op = &get->op;
        Requests *requests = op->client->requests;
        bool is_same;

        requests_lock(requests);
        /* The daemon changes the bucket before it sets the timerfd, whose edge is taken before this lock: one of the two is seen. */
        is_same = atomic_load(&op->space->buckets[look->bucket].sequence) == look->bucket_sequence;
        if (is_same) {
                op->step = get_step;
                list_push_back(&op->client->gets, &op->link);
                op->client->gets_deadline_ns = MIN(op->client->gets_deadline_ns, get->until.deadline_ns);
        }
        requests_unlock(requests);
        return is_same;
}

/* Not there, or not sealed. True: look again now. */
static bool get_sleep(GetOp *get, const Lookup *look, uint64_t now_ns)
{
        Op *op = &get->op;
        Name *name;
        int error;

        idle_sweep(op->client->maps);
        if (op->is_waited && get->flags & FOLIO_GET_POLL &&
            lookup_poll(op->space, look, MIN(get->until.deadline_ns - now_ns, GET_POLL_NS)))
                return true;
        if (op->is_waited) {
                /* A daemon that has died wakes nobody; the next one does, where somebody has looked for it. */
                error = lookup_wait(op->space, look,
                                    MIN(get->until.deadline_ns - now_ns, resume_slice_ns(op->client, GET_SLICE_NS))) ?
                                0 :
                                resume_check(op->client);
                if (error < 0) {
                        op_fail_connection(op, error);
                        get_end(get);
                        return false;
                }
                return true;
        }
        error = requests_get_error(op->client->requests);
        if (error) {
                op_fail_connection(op, error);
                get_end(get);
                return false;
        }
        name = names_entry(op->client, op->space);
        if (name && name->watch_fd < 0) {
                ProtoRequest message = { .verb = VERB_WATCH, .namespace_id = op->space->id };

                op_send(op, &message, take_watch, get_step);
                return false;
        }
        return !get_park(get, look);
}

/* It is not to be had now. True: look again now; false: the operation waits, or is over. */
static bool get_not_now(GetOp *get, GetOutcome outcome, const Lookup *look)
{
        Op *op = &get->op;
        bool has_died = outcome == GET_MISSING && get->writing_generation != 0 &&
                        (look->reason == 0 || look->reason == LAYOUT_GRAVE_WRITER_DIED);
        uint64_t now_ns = get->until.deadline_ns == 0 ? 0 : connection_now_ns();

        if (outcome == GET_WRITING)
                get->writing_generation = look->copy.generation;
        if (has_died) {
                op_fail(op, FOLIO_E_WRITER_DIED, "the writer of %s ended before it sealed it", op->name);
        } else if (get->until.deadline_ns == 0) {
                op_fail_as_thread(op, outcome == GET_WRITING ? get_explain_writing(op->name) : get_explain_missing(op->name, look));
        } else if (now_ns >= get->until.deadline_ns) {
                op_fail(op, FOLIO_E_TIMEOUT, "%s is %s within %d ms", op->name,
                        outcome == GET_WRITING ? "there, but was not sealed" : "not there, and did not come", get->until.timeout_ms);
        } else {
                return get_sleep(get, look, now_ns);
        }
        get_end(get);
        return false;
}

static void get_begin(Op *op)
{
        Key namespace;

        if (op->error || get_split_name(op->name, &namespace, &op->key) < 0)
                get_end(CONTAINER_OF(op, GetOp, op));
        else
                names_open_to_look(op, namespace, get_step);
}

/* False: the operation is over, or has gone another way. */
static bool get_prepare(GetOp *get)
{
        Op *op = &get->op;

        if (op->error == 0 && !op->space->shared)
                op_fail(op, FOLIO_E_ACCESS, "this user may not read in namespace %s", op->space->name);
        if (op->error) {
                get_end(get);
                return false;
        }
        if (!names_is_open(op->space)) {
                object_unref(get->object);
                get->object = NULL;
                get_begin(op);
                return false;
        }
        if (!get->object)
                get->object = object_new(op->client, op->space);
        if (!get->object) {
                op_fail_connection(op, FOLIO_E_NO_MEMORY);
                get_end(get);
                return false;
        }
        return true;
}

/* Copies out what is held. False: its region must be asked for. */
static bool get_read(GetOp *get)
{
        int r = object_check_range(get->object, get->offset_bytes, get->n_bytes);

        if (r == 0)
                r = object_read_now(get->object, get->offset_bytes, get->buffer, get->n_bytes);
        if (r < 0)
                op_fail_as_thread(&get->op, r);
        return r != 0;
}

static void get_step(Op *op)
{
        GetOp *get = CONTAINER_OF(op, GetOp, op);

        while (get_prepare(get)) {
                GetOutcome outcome;
                ProtoItem item;
                Lookup look;
                int error = 0;

                outcome = get_try(get->object, op->key, get->flags, op->is_waited, &look, &error);
                if (outcome == GET_DONE && get->is_read && !get_read(get))
                        outcome = GET_REGION;
                switch (outcome) {
                case GET_DONE:
                        get_end(get);
                        return;
                case GET_REGION:
                        item = object_region_item(get->object, get->flags & FOLIO_GET_WRITABLE);
                        op_send_item(op, VERB_REGION, &item, get_region_came);
                        return;
                case GET_UNSURE:
                        settle_ask(op, get_step);
                        return;
                case GET_FAILED:
                        op_fail_as_thread(op, error);
                        get_end(get);
                        return;
                case GET_MISSING:
                case GET_WRITING:
                        if (!get_not_now(get, outcome, &look))
                                return;
                        break;
                }
        }
}

int get_wait(Client *client, const char *name, uint32_t flags, GetUntil until, Object **ret)
{
        GetOp get = { .flags = flags, .until = until };
        int r;

        op_init(&get.op, client);
        (void)op_set_name(&get.op, name);
        r = op_run(&get.op, get_begin);
        op_deinit(&get.op);
        if (r == 0)
                *ret = get.object;
        return r;
}

/* --- public ------------------------------------------------------------------------------------------------------------------------ */

static int check_arguments(Client *client, uint32_t flags, int timeout_ms)
{
        int r = client_check(client);

        if (r < 0)
                return r;
        if (flags & ~GET_FLAGS)
                return error_set(FOLIO_E_INVALID, "unknown flags 0x%x for a get", flags & ~GET_FLAGS);
        if (timeout_ms < FOLIO_TIMEOUT_FOREVER)
                return error_set(FOLIO_E_INVALID, "a timeout of %d ms", timeout_ms);
        return 0;
}

/* Bytes to be copied are wanted where they can be reached. */
uint32_t get_real_flags(uint32_t flags)
{
        return flags & FOLIO_GET_SEALED ? flags & ~FOLIO_GET_UNMAPPED : flags;
}

_public_ int folio_get(struct folio_client *client, const char *name, uint32_t flags, int timeout_ms,
                       struct folio_object **ret)
{
        Object *object;
        struct folio_object *handle;
        Key namespace, key;
        int r;

        r = check_arguments(client, flags, timeout_ms);
        if (r == 0 && !ret)
                r = error_set(FOLIO_E_INVALID, "there is no place for the handle");
        if (r == 0)
                r = get_split_name(name, &namespace, &key);
        if (r < 0)
                return r;
        object = flags & FOLIO_GET_SEALED ? NULL : get_now(client, namespace, key, flags);
        if (UNLIKELY(!object)) {
                r = get_wait(client, name, get_real_flags(flags), get_until(timeout_ms), &object);
                if (r < 0)
                        return r;
        }
        handle = object_give(object);
        if (!handle) {
                object_unref(object);
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for another handle");
        }
        *ret = handle;
        return 0;
}

static void get_op_free(Op *op)
{
        GetOp *get = CONTAINER_OF(op, GetOp, op);

        object_unref(get->object);
        op_deinit(op);
        free(get);
}

static GetOp *get_op_new(Client *client, const char *name, folio_done_fn done, void *userdata)
{
        GetOp *get = calloc(1, sizeof(*get));

        if (!get)
                return NULL;
        op_init(&get->op, client);
        op_set_async(&get->op, done, userdata, get_op_free);
        (void)op_set_name(&get->op, name);
        return get;
}

_public_ int folio_get_async(struct folio_client *client, const char *name, uint32_t flags, int timeout_ms,
                             folio_done_fn done, void *userdata)
{
        Key namespace, key;
        GetOp *get;
        int r;

        r = check_arguments(client, flags, timeout_ms);
        if (r == 0 && !done)
                r = error_set(FOLIO_E_INVALID, "there is no callback");
        if (r == 0)
                r = get_split_name(name, &namespace, &key);
        if (r < 0)
                return r;
        get = get_op_new(client, name, done, userdata);
        if (!get)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        get->flags = get_real_flags(flags);
        get->until = get_until(timeout_ms);
        op_begin(&get->op, get_begin);
        loop_update(client);
        return 0;
}

int get_start(Client *client, const char *name, uint32_t flags, GetUntil until, folio_done_fn done, void *userdata)
{
        GetOp *get = get_op_new(client, name, done, userdata);

        if (!get)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        get->flags = flags;
        get->until = until;
        get->op.is_part = true;
        op_schedule(&get->op, get_begin);
        return 0;
}

/* --- reading by name ---------------------------------------------------------------------------------------------------------------- */

static int read_check(Client *client, const char *name, const void *buffer, size_t n_bytes)
{
        Key namespace, key;
        int r = client_check(client);

        if (r == 0)
                r = get_split_name(name, &namespace, &key);
        if (r == 0 && !buffer && n_bytes > 0)
                r = error_set(FOLIO_E_INVALID, "the buffer is NULL");
        return r;
}

_public_ int folio_read(struct folio_client *client, const char *name, uint64_t offset_bytes, void *buffer, size_t n_bytes)
{
        int r = read_check(client, name, buffer, n_bytes);

        if (r == 0)
                r = get_read_now(client, name, offset_bytes, buffer, n_bytes);
        if (r == 0) {
                GetOp get = { .is_read = true, .flags = FOLIO_GET_UNMAPPED, .offset_bytes = offset_bytes, .buffer = buffer, .n_bytes = n_bytes };

                op_init(&get.op, client);
                (void)op_set_name(&get.op, name);
                r = op_run(&get.op, get_begin);
                op_deinit(&get.op);
        }
        return r < 0 ? r : 0;
}

_public_ int folio_read_async(struct folio_client *client, const char *name, uint64_t offset_bytes, void *buffer,
                              size_t n_bytes, folio_done_fn done, void *userdata)
{
        GetOp *get;
        int r;

        r = read_check(client, name, buffer, n_bytes);
        if (r == 0 && !done)
                r = error_set(FOLIO_E_INVALID, "there is no callback");
        if (r < 0)
                return r;
        get = get_op_new(client, name, done, userdata);
        if (!get)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        get->is_read = true;
        get->flags = FOLIO_GET_UNMAPPED;
        get->offset_bytes = offset_bytes;
        get->buffer = buffer;
        get->n_bytes = n_bytes;
        op_begin(&get->op, get_begin);
        loop_update(client);
        return 0;
}
