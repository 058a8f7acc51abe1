/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch: one cursor over the items of a call, which stops only where too many requests are under way, where a
 * namespace must be opened, or where the kind of batch says so; and goes on from there. A kind may do some items
 * together before they are done one by one. An item's error is positive, which no caller sees, until it is known. Of
 * all that fail the first in order has the sentence. Knows nothing of what is done with an item.
 */
#ifndef CLIENT_BATCH_H
#define CLIENT_BATCH_H

#include "client/bundle.h"
#include "client/call.h"

enum { BATCH_AHEAD = 1024 };         /* items done together, at most */
enum { BATCH_PENDING = 1, BATCH_PENDING_MORE = 2 }; /* an item's error; the second is the kind's own */

typedef enum BatchTurn {
        BATCH_ON,                    /* the item has its error, or is under way: to the next */
        BATCH_BUSY,                  /* the same again when an answer has come */
        BATCH_OPENING,               /* the same again when `wanted` is open */
        BATCH_UNSURE,                /* the same again when foliod has ended what it is doing to the index */
        BATCH_AWAY,                  /* batch_go() will be scheduled; the batch is not to be touched */
} BatchTurn;

typedef struct Batch Batch;

typedef struct BatchKind {
        size_t item_bytes;
        size_t error_offset;
        size_t name_offset;          /* of its `const char *name` */
        bool (*begin)(Batch *batch); /* NULL; false: no memory */
        /* NULL; does those of the next items that can be done at once, the others stay BATCH_PENDING, for one(). */
        void (*ahead)(Batch *batch, size_t begin, size_t end);
        BatchTurn (*one)(Batch *batch, size_t index);
        void (*answered)(Batch *batch, Bundle *bundle); /* gives it back; NULL: no bundles are used */
        BatchTurn (*rest)(Batch *batch); /* NULL; behind the last item, again and again until it says ON */
        void (*end)(Batch *batch);   /* NULL */
} BatchKind;

struct Batch {
        Op op;
        const BatchKind *kind;
        uint8_t *items;
        size_t n_items;
        size_t next;
        size_t next_ahead;
        size_t first_failed;         /* whose sentence op.sentence is; n_items: of none yet */
        Bundles bundles;
        Key wanted;
        bool is_opened;              /* `wanted`, as op.space, for the item that asked */
        bool is_cancelled;
        size_t unsure_at;            /* the item that was so last */
        int failed;                  /* why failed_namespace cannot be had: asked once, not once for each item */
        Key failed_namespace;
        char failed_sentence[ERROR_SENTENCE_BYTES];
};

/* In the stack. 0, FOLIO_E_INVALID or FOLIO_E_FORKED. */
int batch_init(Batch *batch, Client *client, const BatchKind *kind, void *items, size_t n_items);

/* The first step; and the one that goes on. The answer is the number of items that failed. */
void batch_begin(Op *op);
void batch_go(Op *op);

void *batch_item(Batch *batch, size_t index);
int batch_get_error(Batch *batch, size_t index);

/* 0, an error with the thread's sentence, or BATCH_PENDING and its like. */
void batch_set_error(Batch *batch, size_t index, int error);

/* The namespace and key of an item's name. 0, an error with the sentence, or BATCH_OPENING: to be passed on. */
int batch_open(Batch *batch, const char *name, Space **ret_space, Key *ret_key);
int batch_open_readable(Batch *batch, const char *name, Space **ret_space, Key *ret_key);

#endif
