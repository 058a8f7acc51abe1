/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's end of its ring (proto/ring.h): records go in, in order, and are carried out later. Any thread.
 * Knows no verb; what is to be done about a record that failed is its user's.
 *
 * Read your own writes. The daemon shows in the index what it has carried out. A reader that must see what this
 * client has asked for before calls ring_catch_up() first: it waits, where a record whose hash falls together with
 * that of the reader's key is still under way. Hashes are remembered in a small table, so it may wait for another
 * key's; that does no harm.
 */
#ifndef CLIENT_LIB_RING_H
#define CLIENT_LIB_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macro.h"
#include "proto/ring.h"

typedef struct Ring Ring;

enum {
        RING_E_LAYOUT = 1,           /* not a ring we can use */
        RING_E_GONE = 2,             /* the daemon has gone: what is under way will never be carried out */
        RING_E_TIMEOUT = 3,
};

typedef struct RingConfig {
        /*
         * Is there still somebody at the other end, or will there be? Asked from time to time by who waits. Where there will
         * not, all that is under way is given up, until ring_resume().
         */
        bool (*is_alive)(void *userdata);
        /* A record that nobody waits for has failed. With the ring's lock; must not come back here. @text is ""
         * where the daemon had no room for the sentence. */
        void (*on_failure)(void *userdata, const RingRecord *record, uint32_t status, const char *text);
        /* Every record up to @head has been carried out: called with the lock, whenever that is noticed. */
        void (*on_progress)(void *userdata, uint64_t head);
        void *userdata;
} RingConfig;

/* Both descriptors are taken over whatever happens. 0, RING_E_LAYOUT, or a negative errno. */
int ring_new(const RingConfig *config, int consume_fd, int consume_bell_fd, Ring **ret);
void ring_free(Ring *ring);

/*
 * One record: ring_begin() takes the lock, and waits for room; the caller fills the record in (all of it: it has
 * another's bytes) and calls ring_submit(), or gives up by ring_cancel(). 0, RING_E_GONE, RING_E_TIMEOUT (no lock
 * is held then). *@ret_sequence: the number the record will have; the record is carried out when ring_head() is
 * greater.
 */
int ring_begin(Ring *ring, uint64_t timeout_ns, RingRecord **ret, uint64_t *ret_sequence);
void ring_cancel(Ring *ring);

/*
 * @hash: of the key it is about, as the index has it; 0: of none. @wants_result: ring_wait_result() will be
 * called, once.
 */
void ring_submit(Ring *ring, uint64_t hash, bool wants_result);

/* Until record @sequence has been carried out. 0, RING_E_GONE, RING_E_TIMEOUT. */
int ring_wait(Ring *ring, uint64_t sequence, uint64_t timeout_ns);

/*
 * The same, and what came of it; @text (RING_FAILURE_BYTES_MAX + 1): the sentence, or "". The result is given up
 * in any case.
 */
int ring_wait_result(Ring *ring, uint64_t sequence, uint64_t timeout_ns, RingResult *ret, char *text);

/* Without waiting: true, and as ring_wait_result(), where it has been carried out. */
bool ring_try_result(Ring *ring, uint64_t sequence, RingResult *ret, char *text);

/* Nobody will ask for the result of @sequence any more; if it failed, or fails, on_failure() is told. */
void ring_forget_result(Ring *ring, uint64_t sequence);

/*
 * How many daemons have taken the ring over, and whether one has since @n_restarts of ring_resume(): what it has carried
 * out does not show where the one before showed it.
 */
uint32_t ring_count_restarts(const Ring *ring);
bool ring_is_taken_over(const Ring *ring);

/* Another daemon has taken the ring over, as it was, and what it has done can be seen: as the @n_restarts-th. */
void ring_resume(Ring *ring, uint32_t n_restarts);

/* None ever will: whoever waits is told, and is from now on. How many records were under way. */
uint64_t ring_lose(Ring *ring);

uint64_t ring_tail(Ring *ring);  /* records submitted */

/*
 * Records carried out: as last noticed by anybody, which costs nothing; and looked at anew, and taken notice of
 * (not between ring_begin() and ring_submit(), as it takes the lock).
 */
uint64_t ring_head_seen(Ring *ring);
uint64_t ring_head(Ring *ring);

/* Of the ring's memory: for leases. @number < RING_LEASES_MAX. */
_Atomic uint32_t *ring_lease_use(Ring *ring, uint32_t number);

/* True: nothing is under way that could be about @hash; cheap. */
bool ring_is_caught_up(Ring *ring, uint64_t hash);

/*
 * Waits until that is so. 0, RING_E_GONE, RING_E_TIMEOUT. @hash 0: until all has been carried out that was
 * submitted before.
 */
int ring_catch_up(Ring *ring, uint64_t hash, uint64_t timeout_ns);

#endif
