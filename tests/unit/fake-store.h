/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of store.h as a test wants them: every answer is scripted, every call is counted, and operations wait
 * until the test ends them where it says so. For tests of what talks to a store.
 */
#ifndef TESTS_UNIT_FAKE_STORE_H
#define TESTS_UNIT_FAKE_STORE_H

#include "daemon/store/store.h"

typedef struct FakeStore {
        unsigned n_sessions_open;
        unsigned n_sessions_made;
        Status session_status;       /* of session_new() */
        bool is_deferring;           /* operations wait for fake_end() */
        StoreOp *waiting[1024];
        size_t n_waiting;
        size_t n_submitted;
        void (*submitted)(StoreOp *op); /* looks at what has come, before anything is done with it; NULL: nobody */
        Status ring_status;          /* of session_charge_ring() */
        uint64_t n_ring_bytes;       /* charged */
        struct RingHeader *ring;     /* of session_set_ring(), as are: */
        bool (*is_drained)(void *userdata, uint64_t region_id);
        void *ring_userdata;
        void (*fill)(StoreOp *op);   /* gives an operation its results; NULL: OK and nothing else */
        Status verb_status;          /* of all other verbs */
        size_t n_verb_calls;
        int index_fd, pins_fd, watch_fd;
        size_t n_namespaces;         /* that a list finds */
        size_t n_holders;
        size_t n_facts;
        char last_comm[64];
        Session *ghost;              /* the one that session_next_ghost() finds; NULL: none */
        bool is_over;                /* its client says so */
        bool is_empty;               /* there is nothing of its client's */
        bool is_unwelcomed;          /* nor has that had the welcome */
        unsigned n_asked;            /* for the last of these */
        struct SessionRing *ghost_ring; /* of it */
        unsigned n_left;             /* by session_leave() */
        unsigned n_rings_kept;
        unsigned n_processes_kept;
        uid_t last_uid;
        size_t last_n_groups;
} FakeStore;

extern FakeStore fake;

void fake_reset(void);

/* A session that an earlier foliod has left, in @fake.ghost. @process_fd goes over. */
Session *fake_make_ghost(uint64_t token, uid_t uid, int process_fd);

/* Ends a waiting operation, as a worker would have it done. */
void fake_end(size_t i);

#endif
