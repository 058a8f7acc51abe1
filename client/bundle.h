/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles: requests of many items, several under way at once, for the calls that take many names. The caller fills
 * bundles, sends them, and takes them back answered, in whatever order; all in its own thread. Does not know what the items are about.
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
        ProtoItemReply replies[PROTO_ITEMS_MAX];
        int fds[PROTO_FDS_MAX];      /* the rest is closed when the bundle is given back */
        size_t n_fds;
        char sentence[ERROR_SENTENCE_BYTES]; /* of the first item that failed */
} Bundle;

struct Bundles {
        Client *client;
        List answered;               /* under the client's lock */
        List idle;
        size_t n_under_way;
};

void bundles_init(Bundles *bundles, Client *client);
void bundles_deinit(Bundles *bundles); /* none is under way */

/* An empty one; NULL: no memory. Of more than BUNDLES_UNDER_WAY_MAX, take answered ones first. */
Bundle *bundle_new(Bundles *bundles, Space *space, ProtoVerb verb);

/* False: it is full; send it and begin another. */
bool bundle_add(Bundle *bundle, const ProtoItem *item, size_t index, void *staged);

void bundle_send(Bundle *bundle);

/* An answered one, to be given back by bundle_give(); waits for one unless none is under way: NULL. */
Bundle *bundles_take(Bundles *bundles);
void bundle_give(Bundle *bundle);

/* The error of one of its items, with the thread's sentence where it is not 0. */
int bundle_get_error(const Bundle *bundle, size_t i);

/* The descriptor of one of its items, once; -1: it has none, or it was taken. */
int bundle_take_fd(Bundle *bundle, size_t i);

#endif
