/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are made, sealed and given up through the ring: the daemon knows them by a number of ours until they are
 * sealed. Their bytes lie in a lease, where they stay, or in staging memory.
 *
 * A seal that nobody waits for leaves a handle that does not know its slot: what needs to know asks for the result first, and
 * only then holds the object by a pin. Until then the lease keeps the bytes, or, in staging memory, the pin was there before.
 */
#ifndef CLIENT_MADE_H
#define CLIENT_MADE_H

#include "client/direct.h"
#include "client/object.h"

/* Of an object that is neither: folio_create() goes by the socket. 0, an error with the thread's sentence, or DIRECT_NOT. */
int made_create(Client *client, const char *name, const ProtoItem *item, bool is_visible, Object **ret);

/* Blocking. 0 or an error with the thread's sentence. */
int made_seal(Object *object);

/* In two parts: asks for it; and, when the record has been carried out, what came of it. The same errors. */
int made_seal_begin(Object *object);
int made_seal_end(Object *object);

/*
 * Before @n_bytes are stored at @offset_bytes: what of the memory was another object's, and is before them, becomes zeros.
 * The answer: from where on it is up to the caller, if not all of them are stored after all.
 */
uint64_t made_prepare(Object *object, uint64_t offset_bytes, uint64_t n_bytes);

/* All that was not stored yet. */
void made_prepare_all(Object *object);

/* Its slot and generation, which the daemon has chosen. 0 or an error with the thread's sentence. */
int made_know_slot(Object *object);

/* OBJECT_PIPED becomes what it is. 0 or an error with the thread's sentence. */
int made_resolve(Object *object);

/* Lets go of all of it; one that is not sealed is given up. */
void made_end(Object *object);

#endif
