/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keeper that keeps in memory, in place of the real one, whose symbols it hides. Several stores, one after the other,
 * can have it. One that is *remote* keeps by sending to another process (fake_keeper_collect()), so that what it keeps
 * outlives the process that it is in, as with the real one.
 */
#ifndef TESTS_UNIT_FAKE_KEEPER_H
#define TESTS_UNIT_FAKE_KEEPER_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/service/keeper.h"

Keeper *fake_keeper_new(void);

/* In the process that will end: from now on it only sends. */
void fake_keeper_set_remote(Keeper *keeper, int consume_socket);

/* Closes what it keeps. */
void fake_keeper_free(Keeper *keeper);

/* What was sent until the other end closed becomes @keeper's. */
void fake_keeper_collect(Keeper *keeper, int socket);

/* No more than so many; is there anybody at all? */
void fake_keeper_set_limit(Keeper *keeper, size_t n_max);
void fake_keeper_set_gone(Keeper *keeper, bool is_gone);

size_t fake_keeper_count(Keeper *keeper, KeptKind kind);

/* The n-th of a kind, to look at and to damage; NULL. */
KeptRecord *fake_keeper_get(Keeper *keeper, KeptKind kind, size_t n, int *ret_fd);

/* All of a kind are lost. */
void fake_keeper_forget(Keeper *keeper, KeptKind kind);

/* A new entry, as if somebody had kept it. @fd is borrowed. */
void fake_keeper_add(Keeper *keeper, const KeptRecord *record, int fd);

#endif
