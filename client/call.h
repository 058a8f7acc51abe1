/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of the program in its two forms. What the call was given stands in a struct that begins with an Op, set up by
 * op_init() in the stack; the blocking form runs its steps there, the asynchronous one those of a copy on the heap. So the
 * first step, not the setting up, takes what has to be given back, and nothing in the struct points into it.
 */
#ifndef CLIENT_CALL_H
#define CLIENT_CALL_H

#include "client/operation.h"

/* The answer or the error, with the thread's sentence. */
int call_wait(Op *op, OpStep first);

/* Of a struct of @n_bytes. 0, or an error with the thread's sentence: then nothing has begun. */
int call_async(const Op *op, size_t n_bytes, OpStep first, folio_done_fn done, void *userdata);

#endif
