/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting: from a name to an object that is held, and mapped where that is wanted. What the index answers costs no
 * system call; the rest, and the waiting, is an operation.
 */
#ifndef CLIENT_GET_H
#define CLIENT_GET_H

#include "client/object.h"
#include "client/settle.h"

#define GET_FLAGS (FOLIO_GET_UNMAPPED | FOLIO_GET_WRITABLE | FOLIO_GET_POPULATE | FOLIO_GET_SEALED | FOLIO_GET_POLL)

/* What @flags of the program come down to. */
uint32_t get_real_flags(uint32_t flags);

typedef enum GetOutcome {
        GET_DONE,                    /* held, and mapped where wanted */
        GET_REGION,                  /* held; the mapping must be asked for */
        GET_MISSING,
        GET_WRITING,
        GET_UNSURE,                  /* settle_ask(), and then again; not where it may wait */
        GET_FAILED,                  /* *@ret_error, with the thread's sentence */
} GetOutcome;

/*
 * @object is fresh from object_init(), and is again unless it is held. The space may be read. @may_wait: for foliod to
 * end what it is doing to the index, within the client's timeout.
 */
GetOutcome get_try(Object *object, Key key, uint32_t flags, bool may_wait, Lookup *ret_look, int *ret_error);

/*
 * The short way, for what has just been found: held, and mapped where that is wanted. NULL: anything is in the way, and
 * get_try() will find out what. No system call but where memory must be allocated.
 */
Object *get_found(Client *client, Space *space, const Lookup *look, uint32_t flags);

/* The same for a name, with its namespace open. NULL: it cannot be had at once, or at all. */
Object *get_now(Client *client, Key namespace, Key key, uint32_t flags);

/* Copies out what is there now and mapped, or can be read at once. 1: copied; 0: it takes more; an error. */
int get_read_now(Client *client, const char *name, uint64_t offset_bytes, void *buffer, size_t n_bytes);

/* FOLIO_E_NOT_FOUND and its kin, by the reason in @look; the sentence is the thread's. */
int get_explain_missing(const char *name, const Lookup *look);
int get_explain_writing(const char *name);

/*
 * Finds a name without holding it; 0, an error with the sentence, or, where it may not wait for foliod to end what it is
 * doing to the index, SETTLE_ASK. An object being written is found.
 */
int get_look(Client *client, Space *space, Key key, const char *name, bool may_wait, Lookup *ret_look);

/* A name given by the program. 0 or FOLIO_E_INVALID. */
int get_split_name(const char *name, Key *ret_namespace, Key *ret_key);

/* How long a get may wait: the time as it was given, for who is told that it has passed, and when it will have. */
typedef struct GetUntil {
        uint64_t deadline_ns;        /* CLOCK_MONOTONIC; 0: no waiting */
        int timeout_ms;
} GetUntil;

/* From now on. */
GetUntil get_until(int timeout_ms);

/* Blocking, once @object could not be had at once: waits and asks; then it is a handle's, or the caller's. */
int get_wait(Client *client, const char *name, uint32_t flags, GetUntil until, Object **ret);

/* The same, not blocking, as a part of another operation: @done is called as that of folio_get_async(), and never before this returns. */
int get_start(Client *client, const char *name, uint32_t flags, GetUntil until, folio_done_fn done, void *userdata);

#endif
