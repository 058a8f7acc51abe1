/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client says to a foliod that it has come back to, before all else, and what it does with the answers: says
 * hello with the token of its session, opens the namespaces that it had open, and when all has come puts it in place.
 * All of it in the reader's part.
 */
#ifndef CLIENT_GREETING_H
#define CLIENT_GREETING_H

#include "client/names.h"
#include "client/resume.h"

#include <pthread.h>

/* So many beacons stay mapped: nobody is in the middle of one look-up while so many foliods come and go. */
enum { GREETING_BEACONS = 16 };

/* A namespace that is being opened again. */
typedef struct Opening {
        Request request, watching;
        Client *client;
        Name *name;
        ProtoNamespace ns;
        int index_fd, pins_fd, watch_fd; /* -1 */
        uint32_t status;
} Opening;

typedef struct Resume {
        pthread_rwlock_t gap;        /* held for writing while things are replaced */
        atomic_uint n_replaced;      /* odd meanwhile */
        uint8_t *beacons;            /* a page for each of the last ones; NULL: there was none yet */
        unsigned n_beacons;
        _Atomic uint64_t nudged_ns;  /* when resume_enter() has last moved things on */
        uint64_t token;              /* of the session */
        uint32_t session;
        uint32_t last_session;       /* the one before: that of what was under way */
        bool is_other_store;         /* than before */
        /* A greeting. */
        Client *client;
        Request hello;
        bool is_resumed;
        uint64_t token_next;
        uint32_t session_next;
        uint64_t instance_next;
        uint64_t staging_bytes;
        int staging_fd, beacon_fd;   /* -1 */
        Opening *openings;
        size_t n_openings;
        size_t n_awaited;            /* answers that are to come */
        int failed;                  /* 0, or why it comes to nothing */
} Resume;

/* How each connection begins. @resume: the token of the session that is to be had again; 0: none. */
ProtoRequest greeting_hello(const Client *client, uint64_t resume);

/* ReconnectConfig.greet; @userdata is the client. */
void greeting_begin(void *userdata);

/* Maps the page at @consume_fd, and makes it the client's beacon. 0 or a negative errno. */
int greeting_light(Client *client, int consume_fd);

#endif
