/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles: requests of many items, several under way at once, for the calls that take many names, or many blocks. The
 * steps of one operation fill bundles, send them, and take them back answered, in whatever order. Nothing here waits:
 * the operation does. Does not know what the items are about.
 */
#ifndef CLIENT_BUNDLE_H
#define CLIENT_BUNDLE_H

#include "client/operation.h"

enum { BUNDLES_UNDER_WAY_MAX = 16 };

typedef struct Bundles Bundles;

typedef struct Bundle {
        Request request;
        List link;
        Bundles *owner;
        Space *space;
        ProtoVerb verb;
        size_t n_items;
        size_t n_items_max;
        size_t n_bytes;              /* that the items take in the message, at most */
        size_t index[PROTO_ITEMS_MAX]; /* the caller's number of each item */
        ProtoItem items[PROTO_ITEMS_MAX];
        void *staged[PROTO_ITEMS_MAX]; /* given back when the answer has come */
        bool has_staged;
        /* Answered: either an error for all, or a reply for each, whose detail is gone. */
        int error;
        bool is_lost;                /* FOLIO_E_LIMIT: the answer came, `replies` are there, but its descriptors are not */
        bool is_alone;               /* none was under way when it was sent */
        ProtoItemReply replies[PROTO_ITEMS_MAX];
        int fds[PROTO_FDS_MAX];      /* the rest is closed when the bundle is given back */
        size_t n_fds;
        size_t first_failed;         /* the item that the sentence is of, where not all have failed together */
        char sentence[ERROR_SENTENCE_BYTES];
} Bundle;

struct Bundles {
        Op *op;                      /* whose they are */
        List answered;               /* under the client's lock */
        bool is_waiting;             /* under it: for one that is answered */
        List idle;
        List filling;                /* one for each namespace and verb */
        size_t n_filling;
        size_t n_under_way;
        size_t n_max;                /* of both together */
        size_t n_fds_max;            /* items in one, where each brings a descriptor */
};

void bundles_init(Bundles *bundles, Op *op);
void bundles_deinit(Bundles *bundles); /* none is under way */

enum { BUNDLES_ADDED = 0, BUNDLES_BUSY = 1 };

/*
 * Puts an item into the bundle that is being filled for its like, and sends what is full. BUNDLES_BUSY: too many are
 * under way, so bundles_wait(), and then again. FOLIO_E_NO_MEMORY or FOLIO_E_INVALID, with the sentence: it cannot be.
 */
int bundles_add(Bundles *bundles, Space *space, ProtoVerb verb, const ProtoItem *item, size_t index, void *staged);

/* The one that is being filled; NULL. */
Bundle *bundles_peek(Bundles *bundles, const Space *space, ProtoVerb verb);

/* Sends all that hold something. True: some are under way. */
bool bundles_flush(Bundles *bundles);

/* An answered one, to be given back by bundle_give(); NULL: none now. */
Bundle *bundles_take(Bundles *bundles);
void bundle_give(Bundle *bundle);

/* The operation goes on with @step when there is an answered one. Some are under way; the operation must not be touched any more. */
void bundles_wait(Bundles *bundles, OpStep step);

/* The error of one of its items, with the thread's sentence where it is not 0. */
int bundle_get_error(const Bundle *bundle, size_t i);

/* The descriptor of one of its items, once; -1: it has none, or it was taken. */
int bundle_take_fd(Bundle *bundle, size_t i);

#endif
