/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's ring, with what the ring itself does not know: how it is come by, whose bytes in staging memory a record
 * names, which numbers are taken by objects that are being written, and what is to be said of a record that failed when
 * nobody was waiting for it any more.
 *
 * It is made when a few calls could have used it: a program that puts one object is over sooner without.
 */
#ifndef CLIENT_PIPE_H
#define CLIENT_PIPE_H

#include "client/names.h"
#include "client/order.h"

typedef struct Pipe Pipe;

/* 0 or a negative errno. */
int pipe_new(Client *client);

/* Nobody uses the ring, nor points into a lease, any more. */
void pipe_free(Client *client);

/*
 * The ring for a blocking call, which may find out that it wants it made, and waits for that. NULL: there is none (yet),
 * or it must not be used now.
 */
Ring *pipe_want(Client *client);

/* As ring_begin(); 0 or an error with the thread's sentence. */
int pipe_begin(Client *client, Ring *ring, RingRecord **ret, uint64_t *ret_sequence);

/* Between begin and submit: @data is given back to staging memory when the record has been carried out. */
void pipe_keep_staged(Client *client, uint64_t sequence, void *data);

/* Room in staging memory, waiting for what is under way where that gives it back. NULL: none. */
void *pipe_take_staged(Client *client, Ring *ring, size_t n_bytes);

/* Waits for the result of a record that @name is about. 0, or what it failed with, with the thread's sentence. */
int pipe_result(Client *client, Ring *ring, uint64_t sequence, const char *name, RingResult *ret);

/* The error that @status stands for, with the thread's sentence: what @text says of @name. */
int pipe_refused(uint32_t status, const char *name, const char *text);

/* A failure that nobody was told of, with the thread's sentence, for the next flush; an earlier one stays. */
void pipe_keep_failure(Client *client, int error);

/* The failure that was kept, with the thread's sentence, and forgets it; 0: none. */
int pipe_take_failure(Client *client);

/*
 * A put has failed for want of memory, or of room in a limit, when nobody waited: puts wait for their results until one
 * succeeds.
 */
bool pipe_is_careful(const Client *client);
void pipe_note_result(Client *client, int error);

/* The client's number for an object that is being written; false: all are taken. */
bool pipe_take_number(Client *client, uint32_t *ret);
void pipe_give_number(Client *client, uint32_t number);

/* Another foliod has taken the ring over with the session; or has not: then what was under way is not known, and the next one is made. */
void pipe_resume(Client *client);
void pipe_lose(Client *client);

/*
 * While there is no connection: another foliod is at work on the ring already, so what this client has done may not be
 * in the index that it has.
 */
bool pipe_is_ahead(const Client *client);

/* Waits for the connection where there is none: what has been carried out is in the index that comes with it. */
void pipe_settle(Client *client);

/* Tells of the last pin on an object that has lost its name. False: not by this way, now. */
bool pipe_release(Client *client, uint32_t namespace_id, uint32_t slot, uint64_t generation);

#endif
