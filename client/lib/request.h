/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests under way. Each is answered once, through its done(): by the reply, or by an error when its time has passed, the
 * connection has ended or is closed. A request is the caller's memory, and its own again from the call of done() on.
 *
 * One lock for each client, which the layers above share, and one *reader* at a time: a thread that waits and finds
 * none reads the socket, without the lock, and calls done() for whatever comes, its own or others'. It gives the part up when
 * what it waits for is there; the next waiter takes it over. done() runs in the reader's part: it must neither block nor wait.
 */
#ifndef CLIENT_LIB_REQUEST_H
#define CLIENT_LIB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/codec.h"

typedef struct Requests Requests;
typedef struct Request Request;

/*
 * @error 0: @reply is the answer, borrowed for the call, and @fds came with it: done() takes those it wants by
 * putting -1 in their places. FOLIO_E_LIMIT: @reply has come, but its descriptors are lost, as this process has too
 * many open. Otherwise FOLIO_E_TIMEOUT, _DAEMON_GONE, _PROTOCOL, _CANCELLED or _NO_MEMORY, and no reply.
 */
typedef void (*RequestDoneFn)(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds);

struct Request {
        List link;
        List age_link;
        uint64_t id;
        uint64_t deadline_ns;
        RequestDoneFn done;
        struct RequestCopy *copy;    /* what to send again: of reconnect.c; NULL: nothing */
};

/*
 * @timeout_ns: of each request; UINT64_MAX: none. The socket is taken over whatever happens; -1: requests_connect() brings
 * it, and nothing is sent before. Where a connection that came so ends before reconnect_enable(), what waits for an answer
 * ends, and another can be brought. 0 or a negative errno.
 */
int requests_new(int consume_socket, uint64_t timeout_ns, Requests **ret);
void requests_connect(Requests *requests, int consume_socket);
void requests_free(Requests *requests); /* closed before */

/* The client's lock. Never held while a callback runs, and never over a system call that can block. */
void requests_lock(Requests *requests);
void requests_unlock(Requests *requests);

/* Gives @message its id and sends it. done() can be called before this returns, in this thread or another. */
void requests_send(Requests *requests, Request *request, ProtoRequest *message);

/* A message that is not answered (id 0). A @is_hint may be dropped. */
void requests_tell(Requests *requests, ProtoRequest *message, bool is_hint);

/* The id of the last request so far: those that are sent from now on have greater ones. */
uint64_t requests_last_id(Requests *requests);

/* From done() with FOLIO_E_TIMEOUT only: @request gets the late reply of what had the id @id, or the end of the connection. */
void requests_expect(Requests *requests, uint64_t id, Request *request);

/* Until @is_enough() answers true; it is called with the lock. Reads where nobody else does. */
void requests_wait(Requests *requests, bool (*is_enough)(void *userdata), void *userdata);

/* With the lock: something that a waiter may be waiting for has changed. */
void requests_wake(Requests *requests);

/* Sends and receives what can be without waiting, and ends what is over time; nothing where another thread reads. */
void requests_turn(Requests *requests);

/* For the requests to come. */
void requests_set_timeout(Requests *requests, uint64_t timeout_ns);

/* Hangs up: ends all requests with @error, later ones with FOLIO_E_DAEMON_GONE. Nobody reads or waits any more. */
void requests_close(Requests *requests, int error);

/* The connection is of no use, for good: ends all requests, and later ones, with @error. */
void requests_fail(Requests *requests, int error);

/* 0, or why nothing can be asked for now: for good, or, with reconnect.h, until somebody listens again. */
int requests_get_error(Requests *requests);

/* Whether the other side still holds its end, and all has been said that must be said first; looks at the socket. */
bool requests_is_alive(Requests *requests);

/*
 * For an event loop: the socket, borrowed, and with it a number that tells one connection from the next; whether it
 * should wait for room too; when something is due next (UINT64_MAX: never).
 */
int requests_get_socket(Requests *requests);
int requests_get_connection(Requests *requests, uint32_t *ret_serial);
bool requests_wants_room(Requests *requests);
uint64_t requests_next_deadline_ns(Requests *requests);

/* In a child after fork(): lets go of the connection without a word, so that it ends with the parent. */
void requests_abandon(Requests *requests);

#endif
