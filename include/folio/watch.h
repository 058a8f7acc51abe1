/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching: every change of a namespace is a numbered record in a ring in shared memory. A watch is a cursor in it;
 * the daemon keeps nothing for it, so a watch that is never read costs nobody anything. One that falls behind by
 * more than the ring holds learns by the numbers how much it missed.
 */
#ifndef FOLIO_WATCH_H
#define FOLIO_WATCH_H

#include <folio/client.h>

#ifdef __cplusplus
extern "C" {
#endif

struct folio_watch;

/* Set `struct_bytes` before the call. */
struct folio_event {
        size_t struct_bytes;
        uint64_t sequence;           /* of this namespace; counts from 1 without a gap, over all prefixes */
        uint64_t generation;         /* of the object it is about */
        uint64_t size_bytes;
        uint64_t time_ns;            /* CLOCK_REALTIME */
        uint64_t n_missed;           /* FOLIO_EVENT_MISSED: how many events are gone, of whatever prefix */
        uint32_t type;               /* enum folio_event_type */
        char name[FOLIO_NAME_BYTES_MAX + 1];
};

/**
 * folio_watch_open() - begin to watch
 * @client:         borrowed; kept until folio_watch_close()
 * @prefix:         `namespace:` and the beginning of a key, which may be empty
 * @after_sequence: the last sequence number seen; 0: from now on
 * @ret:            new watch; written only on success
 *
 * Lifetime:  until folio_watch_close().
 * Blocking:  the first use of a namespace: one round trip.
 * Threads:   a watch is for one thread at a time.
 * Return:    0; FOLIO_E_NOT_FOUND no such namespace; FOLIO_E_ACCESS; FOLIO_E_INVALID a bad prefix, or a number that is
 *            not reached yet; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_LIMIT; FOLIO_E_PROTOCOL; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_watch_open(struct folio_client *client, const char *prefix, uint64_t after_sequence, struct folio_watch **ret);
int folio_watch_open_async(struct folio_client *client, const char *prefix, uint64_t after_sequence,
                           struct folio_watch **ret, folio_done_fn done, void *userdata);

/**
 * folio_watch_next() - the next event
 * @watch:      borrowed
 * @timeout_ms: how long to wait for one; 0: not at all; FOLIO_TIMEOUT_FOREVER
 * @ret:        filled where 1 is returned
 *
 * After another foliod has taken the store over, the next event is the next by number. In another store there is none.
 *
 * Lifetime:  -
 * Blocking:  sleeps on a word of shared memory, without using the CPU.
 * Threads:   one at a time.
 * Return:    1 an event; 0 none within the time; FOLIO_E_DAEMON_GONE none is left, and nobody listens, or the namespace is gone; FOLIO_E_INVALID;
 *            FOLIO_E_FORKED.
 * Since:     0.1
 */
int folio_watch_next(struct folio_watch *watch, int timeout_ms, struct folio_event *ret);

/**
 * folio_watch_get_fd() - a descriptor that is readable when there may be events
 * @watch: borrowed
 *
 * Poll it for POLLIN; then call folio_watch_next() with timeout 0 until it returns 0, which also makes the
 * descriptor unreadable again.
 *
 * Lifetime:  the watch's: do not close it.
 * Blocking:  the first call: one round trip; never for a watch opened by folio_watch_open_async().
 * Threads:   one at a time.
 * Return:    a descriptor; FOLIO_E_LIMIT; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_watch_get_fd(struct folio_watch *watch);

/**
 * folio_watch_close() - end watching
 * @watch: NULL is legal
 *
 * Lifetime:  ends that of @watch.
 * Blocking:  never.
 * Threads:   one at a time.
 * Return:    nothing.
 * Since:     0.1
 */
void folio_watch_close(struct folio_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
