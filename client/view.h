/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view: a sealed object's bytes as private memory of this process, to be changed at will, one for each handle and as
 * long as that. Of an object with a region of its own it is a copy-on-write mapping; of a small one a copy, as the pages that
 * it lies in are full of others' bytes.
 */
#ifndef CLIENT_VIEW_H
#define CLIENT_VIEW_H

#include "client/object.h"

/* 1: it is there; 0: the region must be asked for, then view_add_region(); an error with the thread's sentence. */
int view_now(Object *object);

/* By what REGION brought. @populate: what can be is faulted in, for reading. 0 or an error with the thread's sentence. */
int view_add_region(Object *object, const ProtoItemReply *item, int consume_fd, bool populate);

/* Byte 0 of one that is there. */
void *view_data(const Object *object);

#endif
