/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object of unknown size on its way to the daemon: blocks of it lie in staging memory, some under way at once, as
 * room allows. One write at a time is under way in a stream, as the next begins where it ends; another meanwhile is refused.
 */
#ifndef CLIENT_STREAM_H
#define CLIENT_STREAM_H

#include "client/object.h"

/* 0 or an error, with the thread's sentence. */
int stream_write(Object *object, uint64_t offset_bytes, const void *data, size_t n_bytes);

int stream_write_async(Object *object, uint64_t offset_bytes, const void *data, size_t n_bytes, folio_done_fn done,
                       void *userdata);

/* Until @n_bytes are there or @fd ends; read straight into staging memory. *@ret_n_bytes is written only on success. */
int stream_write_file(Object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes, uint64_t *ret_n_bytes);

#endif
