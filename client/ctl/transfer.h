/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between a descriptor and an object, in slices, with a progress line. A source that turns out longer or shorter
 * than it said is an error and told; a reader that went away (EPIPE) is one, and not told.
 */
#ifndef CTL_TRANSFER_H
#define CTL_TRANSFER_H

#include "client/ctl/ctl.h"
#include "client/ctl/source.h"

/* Up to here a file or a stream is put in one call, and packed with other small objects. */
#define TRANSFER_SMALL_BYTES ((size_t)1 << 20)

/*
 * All of @source, or where its size is not known @head and then the rest of it, into @object. Each: CTL_OK, or the
 * status to end with, told.
 */
int transfer_fill_known(Ctl *ctl, Source *source, struct folio_object *object, const char *name);
int transfer_fill_sparse(Ctl *ctl, Source *source, struct folio_object *object, const char *name);
int transfer_fill_stream(Ctl *ctl, Source *source, struct folio_object *object, const char *name, const void *head,
                         size_t n_head_bytes, bool is_mutable);

/* [@offset_bytes, + @n_bytes) of @object to @fd. */
int transfer_drain(Ctl *ctl, struct folio_object *object, const char *name, uint64_t offset_bytes, uint64_t n_bytes,
                   int fd, const char *label);

/* "SOURCE shrank from 5M to 3M while it was read": CTL_REFUSED. */
int transfer_complain_changed(Ctl *ctl, const Source *source, const char *name, bool has_grown, uint64_t found_bytes);

#endif
