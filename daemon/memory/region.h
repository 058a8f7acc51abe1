/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region is one descriptor's worth of memory: a file of a fixed size, its seals, and the daemon's mapping of it if
 * there is one. It is counted: objects, chunks, jobs and the pool hold references; with the last one the memory goes
 * back to the kernel (which for large regions takes long: free those from a worker).
 *
 * Functions marked *slow* do memory work in proportion to their range; they work on the file only, hold no lock, may be
 * called in a worker thread while the caller holds a reference, restart after EINTR without losing progress, go in
 * slices of at most 64 MiB and stop between slices when *@cancelled becomes true (-ECANCELED).
 */
#ifndef DAEMON_MEMORY_REGION_H
#define DAEMON_MEMORY_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macro.h"
#include "daemon/memory/backend.h"
#include "daemon/memory/zeros.h"
#include "daemon/service/keeper.h"

typedef struct Region {
        atomic_uint n_references;
        Backend *backend;
        uint64_t id;                 /* never used again within the life of the store */
        uint64_t size_bytes;         /* of the file; a multiple of PAGE_BYTES */
        int fd;                      /* read-write */
        int fd_read_only;            /* -1 until region_open_read_only() */
        uint8_t *data;               /* the daemon's shared mapping, aligned to HUGE_BYTES; NULL: none */
        bool is_writable;            /* of @data */
        uint32_t seals;              /* F_SEAL_* known to be on it */
        uint64_t n_huge;             /* folios of 2 MiB that whoever made it knows to be in it; 0: not known */
        void *charge;                /* whoever pays; region does not look at it */
        Keeper *keeper;              /* what keeps it for another process, */
        Kept *kept;                  /* which is dropped with the last reference; NULL: nothing is */
} Region;

/*
 * What a region for @n_bytes (1 or more) is large: whole pages; from REGION_WHOLE_FOLIOS_BYTES on whole folios, so that the
 * last piece can be huge too and costs at most an eighth more. False: no file can be as large.
 */
#define REGION_WHOLE_FOLIOS_BYTES (8 * HUGE_BYTES)
bool region_round_size(uint64_t n_bytes, uint64_t *ret);

/* A sparse region of at least @size_bytes, rounded up; one reference. Fast. */
int region_new(Backend *backend, const char *label, uint64_t size_bytes, Region **ret);

/*
 * One that an earlier foliod has made: @consume_fd, open for reading and writing, goes over in any case. @id: what it
 * was (others that are made later have greater ones); 0: a new one. REGION_E_FOREIGN: the file has not that size, or
 * not all of @seals on it (none are asked for on a backend that cannot seal). Not mapped.
 */
int region_restore(Backend *backend, uint64_t id, uint64_t size_bytes, uint32_t seals, int consume_fd, Region **ret);

/* For one that is open for reading only: it is not closed yet (region_end_writing()). Needs /proc, and our own file. */
int region_restore_writing(Region *region);

/* The ids of those that are made from now on are greater than this one. */
void region_skip_ids(uint64_t last_id);
Region *region_ref(Region *region);
void region_unref(Region *region); /* unmaps, closes */

/*
 * Slow. Every page of the range is there afterwards. Else -ENOSPC, and what this call added is taken back, but for
 * parts that others had pages in already.
 */
int region_reserve(Region *region, uint64_t offset_bytes, uint64_t n_bytes, const atomic_bool *cancelled);

/* Slow. Stores bytes at @offset_bytes by write(): the fast way to fill what is not mapped. -ENOSPC, -EPERM, ... */
int region_write(Region *region, uint64_t offset_bytes, const void *bytes, size_t n_bytes);

/* Slow. Zeroes: whole pages are punched, the ends written over. */
int region_zero(Region *region, uint64_t offset_bytes, uint64_t n_bytes, const atomic_bool *cancelled);

/* Slow. Gives whole pages inside the range back to the kernel. -EPERM where the seals forbid it. */
int region_punch(Region *region, uint64_t offset_bytes, uint64_t n_bytes, const atomic_bool *cancelled);

/*
 * Slow. Tries to make the range of huge folios, through a read-only mapping of its own (works on sealed files, and
 * while others map it). 2 MiB pieces with no page at all are left alone, unless @touch (the region must be writable
 * then). Does nothing on a backend that is not BACKEND_COLLAPSIBLE.
 * Every failure is soft: counted in *@ret_n_failed, 0 is returned. *@ret_n_huge: pieces that are huge now.
 */
int region_collapse(Region *region, uint64_t offset_bytes, uint64_t n_bytes, bool touch, const atomic_bool *cancelled,
                    uint64_t *ret_n_huge, uint64_t *ret_n_failed);

/*
 * Slow. For a region that has no page yet: [0, @n_bytes) is there afterwards as after region_reserve(), and where
 * @want_huge and the backend needs it, of huge folios as far as the kernel gives them. Collapsed first, from one page
 * in each piece, and the rest reserved then: the other way round every piece is allocated twice (measured: 47 ms
 * for 64 MiB against 11). -ENOSPC leaves parts behind: the caller gives the region up.
 *
 * @piece_ns_max: somebody waits, so collapse only while a piece of 2 MiB costs no more processor time than this, and
 * reserve the rest in small pages, which can be collapsed later; 0: all of it, whatever it costs.
 */
int region_prepare(Region *region, uint64_t n_bytes, bool want_huge, uint64_t piece_ns_max,
                   const atomic_bool *cancelled, uint64_t *ret_n_huge, uint64_t *ret_n_failed);

/*
 * The same for a part, which others may be doing for other parts at the same time: [@offset_bytes, + @n_bytes), from a
 * multiple of HUGE_BYTES on, best REGION_PART_BYTES of it. *@is_dear is common to all parts, and false at first: who finds
 * that folios cost too much says so to the others.
 */
#define REGION_PART_BYTES (16 * HUGE_BYTES)
int region_prepare_part(Region *region, uint64_t offset_bytes, uint64_t n_bytes, bool want_huge, uint64_t piece_ns_max,
                        atomic_bool *is_dear, const atomic_bool *cancelled, uint64_t *ret_n_huge,
                        uint64_t *ret_n_failed);

/* Slow. Faults the daemon's writable mapping in, so that the loop will not have to. Allocates what is not reserved. */
int region_populate(Region *region, const atomic_bool *cancelled);

/*
 * Slow. What is really there: bytes allocated, and bytes in 2 MiB folios, by looking (PAGEMAP_SCAN, else smaps). A
 * page that is reserved and has never been written is allocated, but its folio is not looked at: to look would be to
 * zero it.
 */
int region_measure(Region *region, uint64_t *ret_allocated_bytes, uint64_t *ret_huge_bytes);

/* What the file takes now, by one fstat(). Fast. */
int region_get_allocated(Region *region, uint64_t *ret_allocated_bytes);

/*
 * Gives the file another size, rounded as in region_new(): for a region that nobody else has yet, that is not mapped
 * and whose size is not sealed. New parts are holes.
 */
int region_resize(Region *region, uint64_t size_bytes);

/*
 * Slow. Which pages of [0, @n_bytes) are holes to the kernel, as in zeros.h: those that are reserved but were never
 * written are. After @n_max of them, or when cancelled, the list is partial.
 */
int region_find_zeros(Region *region, uint64_t n_bytes, uint64_t n_max, const atomic_bool *cancelled,
                      LayoutExtents *ret);

/* Slow. Goes on with @scan: adds the pieces whose bytes are zeros to @zeros. -ENOMEM, -ECANCELED. */
int region_scan_zeros(Region *region, ZerosScan *scan, uint64_t budget_bytes, const atomic_bool *cancelled,
                      LayoutExtents *zeros);

/* The daemon's own mapping, aligned to HUGE_BYTES, MADV_DONTDUMP. Mapping twice is a bug. */
int region_map(Region *region, bool writable);
void region_unmap(Region *region);

/* A descriptor that clients may have for reading; the region's, CLOEXEC. -1 never: 0 or a negative errno. */
int region_open_read_only(Region *region);

/*
 * SHRINK|GROW: before any client sees it. On a backend that cannot seal the read-only descriptor is opened instead: a
 * client of our own uid that alone had the file open could take a lease on it, and our open() would wait for its end.
 */
int region_seal_size(Region *region);

/*
 * SHRINK|GROW|SEAL: as well, and it stays writable for ever. Who has a descriptor to write through could add seals of
 * its own to the first kind, and so take the file from everybody else.
 */
int region_seal_size_for_good(Region *region);

/*
 * FUTURE_WRITE|SHRINK|GROW|SEAL: only mappings made before can write. For what the daemon alone writes. Nothing on a
 * backend that has BACKEND_READONLY_BY_MODE instead of seals; -EOPNOTSUPP on one that has neither.
 */
int region_seal_to_daemon(Region *region);

enum {
        REGION_E_MAPPED = 1,         /* somebody still maps it writable, or could */
        REGION_E_SPOILED = 2,        /* who wrote it has done to the file what cannot be undone: resized or sealed it */
        REGION_E_FOREIGN = 3,        /* it is not the file that it is said to be */
};

/*
 * For files that cannot be sealed: gives the daemon's own writable descriptor up, and makes sure that nobody else has
 * one, or a mapping made through one. From then on the file's mode is all that stands before a writer, and @fd is
 * read-only. REGION_E_MAPPED changes nothing. The region is not mapped writable by the daemon. The size of such a file
 * cannot be sealed, so it is looked at in the end: REGION_E_SPOILED where it is another, or where there are pages
 * beyond it; nobody can write to it then either.
 */
int region_end_writing(Region *region);

/*
 * WRITE|SHRINK|GROW|SEAL: nobody can write ever again. REGION_E_MAPPED changes nothing. REGION_E_SPOILED: others have
 * put seals on it that leave no room for these. Can wait for the kernel: slow.
 * -EOPNOTSUPP on a backend that cannot seal: ask its capabilities first.
 */
int region_seal_finally(Region *region);

#endif
