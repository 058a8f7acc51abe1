/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of a put come from. A regular file knows its size, from where its descriptor stands; one of size 0
 * may be of /proc and have bytes all the same, so its size is not believed and it is read as a pipe is.
 */
#ifndef CTL_SOURCE_H
#define CTL_SOURCE_H

#include "client/ctl/ctl.h"

typedef struct Source {
        int fd;
        const char *label; /* for people; borrowed */
        bool is_size_known;
        uint64_t size_bytes; /* from begin_bytes on */
        uint64_t begin_bytes; /* where fd stood in the file; offsets below count from here */
} Source;

/* Opens @path ("-": standard input) and finds out how long it is. CTL_OK, or the status to end with: told. */
int source_open(Ctl *ctl, const char *path, Source *ret);
void source_close(Source *source);

/* Reads on until @n_bytes are there or the source ends. 0, or a negative errno. */
int source_read(Source *source, void *buffer, size_t n_bytes, size_t *ret_n_bytes);

/* The rest is for sources whose size is known. */
/* The next byte to be read is that at @offset_bytes. */
int source_seek(Source *source, uint64_t offset_bytes);

/* The size it has now. */
int source_get_size(Source *source, uint64_t *ret_bytes);

/* The first data at or behind @offset_bytes, up to the next hole. Behind all data both are size_bytes. Where fd stands then is not said. */
void source_find_data(Source *source, uint64_t offset_bytes, uint64_t *ret_begin_bytes, uint64_t *ret_end_bytes);

#endif
