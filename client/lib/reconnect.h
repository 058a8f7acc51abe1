/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that has ended is followed by another one. Requests that come meanwhile wait; those that were under way
 * are sent again, or answered from what can be known of them, when the new daemon has been *greeted*: when the user of
 * this has said what must be said first, and put what came of it in place.
 *
 * Whoever has the reader's part (request.h) drives all of it, one thread at a time, and never blocks in it. Tries
 * follow each other after a pause that doubles from 5 ms to 1 s, with some jitter. Where nobody has listened for half a
 * second all requests end with FOLIO_E_DAEMON_GONE, and new ones at once; but each pause one of those tries again.
 */
#ifndef CLIENT_LIB_RECONNECT_H
#define CLIENT_LIB_RECONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/request.h"

#define RECONNECT_ABSENT_NS (UINT64_C(500) * 1000 * 1000)
#define RECONNECT_PAUSE_NS (UINT64_C(5) * 1000 * 1000)
#define RECONNECT_PAUSE_NS_MAX (UINT64_C(1000) * 1000 * 1000)

/* What has become of a request that was under way when a connection ended. */
typedef struct RequestFate {
        uint32_t status;             /* not 0: it ends so, with `detail` */
        const char *detail;
        /*
         * Else the first n_done items have been carried out, or refused, and these are their answers; the others are asked
         * for again. Of a request without items, and of one that is to be sent again as it was: 0.
         */
        size_t n_done;
        ProtoItemReply items[PROTO_ITEMS_MAX];
} RequestFate;

typedef struct ReconnectConfig {
        /* Without waiting. 0 or a negative errno. */
        int (*connect)(void *userdata, int *ret_socket);
        /* What to remember of @message for judge(): with no lock, in the thread that sends. */
        uint64_t (*mark)(void *userdata, const ProtoRequest *message);
        /* It has ended. With the lock: must be short. */
        void (*lost)(void *userdata);
        /* There is a connection. Sends by reconnect_send(); ends, then or later, in reconnect_finish() or reconnect_refuse(). */
        void (*greet)(void *userdata);
        /* In reconnect_finish(); @ret is all 0. Of one that was not sent with @is_sent false: only whether it still may be. */
        void (*judge)(void *userdata, const ProtoRequest *message, bool is_sent, uint64_t mark, RequestFate *ret);
        /* Connected again, or, with @error, nobody is there. */
        void (*changed)(void *userdata, int error);
        void *userdata;
} ReconnectConfig;

/* From now on. All of it is called in the reader's part, without the lock, but for mark() and lost(). */
void reconnect_enable(Requests *requests, const ReconnectConfig *config);

/* From greet() on: before all others. Without memory it is done() at once. */
void reconnect_send(Requests *requests, Request *request, ProtoRequest *message);

/* All is in place. */
void reconnect_finish(Requests *requests);

/* They will not have us: the connection is given up; all ends with @error, and there will be other tries. */
void reconnect_refuse(Requests *requests, int error, const ProtoReply *refusal);

/* There is a connection, and what is sent goes at once. */
bool reconnect_is_up(Requests *requests);

/* Why there is nobody: a negative errno of connect(); 0: that is not it. Takes no lock. */
int reconnect_get_refusal(Requests *requests);

#endif
