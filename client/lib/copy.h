/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy engine: moving object bytes between mapped memory, descriptors and the caller's buffers by the loop that is
 * best for this processor and size. What is best is measured once in a process, when it has copied enough for that to
 * matter, or said by $FOLIO_COPY (`libc`, `movsb`, `vector`, `lanes`, `stream`: see copy-kernels.h). Restarts what
 * signals interrupt. Does not know what the bytes are, nor where they are published.
 */
#ifndef CLIENT_LIB_COPY_H
#define CLIENT_LIB_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Between memory that is the program's own, or that it writes in place. */
void copy_bytes(void *to, const void *from, size_t n_bytes);

/*
 * Out of mapped shared memory. 0, or -EIO where the kernel has no good page behind an address of @from (poisoned
 * memory: SIGBUS, which is caught and never reaches the program); @to has then any of the bytes. @n_ahead: bytes after
 * the range that are mapped too and likely to be read next, 0 where nothing is known; they may be prefetched.
 *
 * The first call installs a handler of SIGBUS that passes on what is not its own. Where the program installs another
 * afterwards, and that one does not pass on to what it found, or where the calling thread blocks SIGBUS, bad memory
 * ends the program as it would without us: see guard.h. A bad page of the destination is the program's own, and passed
 * on.
 */
int copy_out(void *to, const void *from, size_t n_bytes, size_t n_ahead);

/* A part of a copy of @n_whole bytes, in order: by the loop that is best for the whole. */
int copy_out_part(void *to, const void *from, size_t n_bytes, size_t n_ahead, size_t n_whole);

/* The same with the helper threads of @crew (see crew.h), for what is large enough; NULL: none. */
#define COPY_CREW_BYTES_MIN ((size_t)64 << 20)
typedef struct Crew Crew;
int copy_out_by(Crew *crew, void *to, const void *from, size_t n_bytes, size_t n_ahead);

/* Zeros. Never looks at the destination. */
void copy_fill(void *to, size_t n_bytes);

/* Which loops are in use, and why, for people: valid until the process ends, but a later call may tell another. */
const char *copy_describe(void);

/* A hint that [@from, @from + @n_bytes) is copied soon; never faults; fetches no more than is of use. */
void copy_prefetch(const void *from, size_t n_bytes);

/* All of it: 0, or a negative errno (-EIO: the file ends before, or the kernel found bad memory). */
int copy_from_fd(int fd, uint64_t offset_bytes, void *to, size_t n_bytes);
int copy_to_fd(int fd, uint64_t offset_bytes, const void *from, size_t n_bytes);

#endif
