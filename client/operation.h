/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation is one call of the program under way: it runs in steps, each of which ends by sending a request, by
 * waiting for something, or by completing. Blocking call and asynchronous call are the same steps: for the one the
 * caller's thread waits and runs them itself, for the other whoever reads the socket next does.
 *
 * A reply is taken (take) in the reader's part, which must be short; the step that follows runs without lock or part,
 * so it may copy gigabytes and call the program's callback. Once a step has sent or completed it must not touch the operation again.
 */
#ifndef CLIENT_OPERATION_H
#define CLIENT_OPERATION_H

#include "client/context.h"
#include "client/lib/space.h"

typedef struct Op Op;
typedef void (*OpStep)(Op *op);
typedef void (*OpTake)(Op *op, const ProtoReply *reply, int *fds, size_t n_fds);
typedef void (*OpSettle)(Op *op, int error);

struct Op {
        Client *client;
        Request request;
        List link;                   /* where it waits: ready, staging_waiters, gets, connecting, opening_waiters */
        OpTake take;
        OpStep step;
        OpSettle settle;             /* of the request under way: see op_send() */
        void (*free)(Op *op);        /* of an asynchronous operation: all that it owns, and itself */
        folio_done_fn done;
        void *userdata;
        bool is_waited;              /* a thread waits for it: a blocking call */
        bool is_ready;               /* under the lock: that thread shall run the next step */
        bool is_complete;
        bool is_part;                /* of another operation: the program has not called it */
        bool is_changing;            /* what it asks for changes something: see order.h; set before op_begin() */
        bool has_late_item;          /* for settle() with FOLIO_E_LIMIT: `item` is what came, without its descriptors */
        unsigned n_settles;          /* how often it could not tell what the index says: see settle.h */
        int error;
        int answer;                  /* where there is no error: 0, or what the call counts */
        /* What the verbs need, most of them. */
        Space *space;
        Key key;
        ProtoItemReply item;         /* of the last reply, without its text */
        int fd;                      /* that came with it; -1 */
        struct folio_object *object; /* the result */
        char name[FOLIO_NAME_BYTES_MAX + 1];
        char sentence[ERROR_SENTENCE_BYTES]; /* with an error; or, of a batch, of the last item that failed */
};

/* @op is memory of the caller, of a larger struct that begins with it perhaps; all of it set here. */
void op_init(Op *op, Client *client);
void op_deinit(Op *op);

/* For asynchronous operations: done() is called once, and then @free. */
void op_set_async(Op *op, folio_done_fn done, void *userdata, void (*free)(Op *op));

/*
 * A blocking call: runs the steps from @first on until one completes. Its error, with the thread's sentence set, or its
 * answer. While the client is being opened @first waits, and finds op->error set where that has failed.
 */
int op_run(Op *op, OpStep first);

/* The same, of one whose first step has been done. */
int op_wait(Op *op);

/* As op_wait(), for what the program has not called: the thread's sentence stays what it was. */
int op_wait_quietly(Op *op);

/* An asynchronous one: begins it. It may be over, and freed, when this returns. */
void op_begin(Op *op, OpStep first);

/* Keeps a copy of @name and splits it; false: failed with FOLIO_E_INVALID. */
bool op_set_name(Op *op, const char *name);

/*
 * Sends; then, later, @take and @step. A failure skips @take. After it op->settle is called, once, where it is set: with
 * 0 where the daemon has answered, whatever it said (see op->error), else with the error. There belongs what must not wait for a thread.
 */
void op_send(Op *op, ProtoRequest *message, OpTake take, OpStep step);

/* The usual message: one item, whose answer comes to op->item and op->fd; a status of it is op->error. */
void op_send_item(Op *op, ProtoVerb verb, const ProtoItem *item, OpStep step);

/* Lets @step run, in the waiting thread or the next one that comes along. */
void op_schedule(Op *op, OpStep step);
void op_make_ready(Op *op, OpStep step); /* the same, with the lock */

/* The error and its sentence; the first one stays. op_fail() does not complete. */
void op_fail(Op *op, int error, const char *format, ...) _printf_(3, 4);
void op_fail_status(Op *op, uint32_t status, Key detail);
void op_fail_connection(Op *op, int error);
void op_fail_as_thread(Op *op, int error); /* with the thread's sentence; 0 is no failure */
void op_complete(Op *op);

/* Of an object whose numbers mean nothing to the foliod that is there now; with the name of its namespace. */
#define OPERATION_OTHER_STORE                                                                                          \
        "the store that this object of namespace %s is in ended with its foliod: what is mapped of it stays readable"

/* The sentence of a request that ended without a reply. */
void operation_explain(const Client *client, int error, char *sentence);

/* Runs what is ready; the number of callbacks called. Nothing where a callback of this client is running in this thread. */
unsigned operations_run_ready(Client *client);

/* Looks again for all that wait for an object; with @error they end with it. */
void operations_retry_gets(Client *client, int error);

/* Hands over what the search has found. False: the client is being closed, and nobody wants it. */
bool operations_found(Client *client, struct Found *found);

/* The client is open, or with @error never will be: what has been called meanwhile begins. */
void operations_opened(Client *client, int error);

/* At the client's end: completes everything with FOLIO_E_CANCELLED before it returns, also where a callback calls it. */
void operations_cancel(Client *client);

/* Waits until @is_enough, with the lock, says so; runs what becomes ready meanwhile. */
void operations_wait(Client *client, bool (*is_enough)(void *userdata), void *userdata);

/* Staging memory that a request brings to the daemon: counted while under way, so that who finds no room knows what to wait for. */
void operations_staged_begin(Client *client);
void operations_staged_end(Client *client, void *data); /* gives it back; NULL: nothing */

/* As the end of @n places, but the daemon may still read them: given back when the late reply comes, or the connection ends. */
void operations_staged_orphan(Client *client, void *const *data, size_t n, uint64_t request_id);

/* False: nothing under way will give room back, so waiting is no use. True: @step will run when there is room. */
bool op_wait_staging(Op *op, OpStep step);

#endif
