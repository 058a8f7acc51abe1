/* SPDX-License-Identifier: Apache-2.0 */
/* What the table of requests is made of: for request.c, which asks and reads, and reconnect.c, which connects anew. */
#ifndef CLIENT_LIB_REQUEST_PRIVATE_H
#define CLIENT_LIB_REQUEST_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/lib/connection.h"
#include "client/lib/reconnect.h"
#include "client/lib/request.h"

enum { REQUEST_BUCKETS = 256 };

typedef enum RequestsLink {
        REQUESTS_UP,                 /* connected; or for the first time not yet */
        REQUESTS_LOST,               /* the other side has hung up, and another connection is being tried for */
        REQUESTS_GREETING,           /* there is one, and what must be said first is being said */
        REQUESTS_ABSENT,             /* nobody listens: `error` is set until somebody does */
} RequestsLink;

/* Of a request, what to send again. */
typedef struct RequestCopy {
        bool is_sent;                /* on a connection that has ended, or on this one */
        bool is_greeting;
        bool is_judged;              /* in reconnect_finish() */
        uint64_t mark;               /* ReconnectConfig.mark */
        size_t n_done;               /* items at the front whose answers are known already: see RequestFate */
        ProtoItemReply *done;
        size_t n_bytes;
        uint8_t bytes[];
} RequestCopy;

/* A message that is not answered, until an answer to a later one tells that it has come. */
typedef struct Told {
        List link;
        uint64_t last_id;            /* of the requests before it */
        size_t n_bytes;
        uint8_t bytes[];
} Told;

struct Requests {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        Connection connection;
        int wake_fd;
        bool is_reading;
        pthread_t reader;            /* where is_reading */
        int error;                   /* not 0: the connection is of no use */
        unsigned n_sleeping;         /* in the condition variable */
        uint64_t timeout_ns;
        atomic_uint_fast64_t last_id;
        List by_age;
        List buckets[REQUEST_BUCKETS];
        /* Of reconnect.c. */
        ReconnectConfig reconnect;
        bool can_reconnect;
        bool is_opening;             /* connected for the first time, and nothing is agreed on yet */
        bool is_ended;               /* for good: `error` stays */
        RequestsLink link;
        uint32_t serial;             /* of the connection */
        atomic_int refused;          /* why the last try failed, a negative errno; read without the lock */
        uint64_t since_ns;           /* when there was last somebody */
        uint64_t next_ns;            /* LOST, ABSENT: not to be tried before */
        uint64_t pause_ns;
        List told;
        unsigned n_told;
        /* The reader's. */
        ProtoDecoder *decoder;
        ProtoItemReply *items;       /* room for those of an answer in two parts; NULL: none was needed yet */
        int fds[PROTO_FDS_MAX];
        uint8_t packet[PROTO_MESSAGE_BYTES_MAX];
};

/* With the lock. */
void requests_insert(Requests *requests, Request *request);
void requests_remove(Request *request);

/* Puts the bytes on the socket, or in its queue. With the lock. 0, CONNECTION_E_* or a negative errno. */
int requests_put(Requests *requests, const void *bytes, size_t n_bytes, bool is_hint);

/* Ends one that has been removed; without the lock. */
void requests_end(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds);

/* All of them; with @refusal, which is about the connection, as the reply to each where there is one. Without the lock. */
void requests_end_all(Requests *requests, int error, const ProtoReply *refusal);

/* --- of reconnect.c: what request.c asks it for ------------------------------------------------------------------------------ */

/* NULL: no memory. */
RequestCopy *reconnect_copy(Requests *requests, const ProtoRequest *message, const void *bytes, size_t n_bytes);
void reconnect_copy_free(RequestCopy *copy);

/* With the lock: keeps what has been, or is to be, said and not answered. */
void reconnect_keep_told(Requests *requests, const void *bytes, size_t n_bytes);
/* With the lock: that has come, as something that was sent after it is answered. */
void reconnect_forget_told(Requests *requests, uint64_t answered_id);

/* In the reader's part: the other side has hung up. False: there is nothing to be done about it. */
bool reconnect_lose(Requests *requests);

/* In the reader's part: tries to connect, where that is due. */
void reconnect_step(Requests *requests);

/* In the reader's part: the whole answer, of which @reply is what came. */
const ProtoReply *reconnect_join(Requests *requests, const RequestCopy *copy, const ProtoReply *reply, ProtoReply *ret);

#endif
