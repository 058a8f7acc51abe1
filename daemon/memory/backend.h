/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend is a place that files of memory come from. It knows how to make one of a size; everything done with the
 * file afterwards is region's. What a backend can promise is in its capability bits, found out by a probe that really
 * maps, writes and counts; nothing is assumed.
 */
#ifndef DAEMON_MEMORY_BACKEND_H
#define DAEMON_MEMORY_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "folio/types.h"

#define BACKEND_SEALABLE (1u << 0)          /* F_SEAL_WRITE and FUTURE_WRITE work */
#define BACKEND_READONLY_BY_MODE (1u << 1)  /* another uid cannot reopen an O_RDONLY descriptor of it for writing */
#define BACKEND_PUNCHABLE (1u << 2)         /* holes can be punched while it is shared */
#define BACKEND_REWRITABLE (1u << 3)        /* can be mapped writable again by a restarted daemon */
#define BACKEND_HUGE_AT_ALLOCATION (1u << 4) /* fallocate() gives 2 MiB folios */
#define BACKEND_COLLAPSIBLE (1u << 5)       /* MADV_COLLAPSE makes 2 MiB folios of small pages */

typedef struct Backend Backend;

typedef struct BackendOps {
        const char *name;
        enum folio_backing backing;
        /*
         * A new file of @size_bytes (a multiple of PAGE_BYTES), mode 0600, open read-write, CLOEXEC, sparse, not
         * sealed yet. @label is cosmetic. Any thread. 0 or a negative errno.
         */
        int (*create_file)(Backend *backend, const char *label, uint64_t size_bytes, int *ret_fd);
        void (*free)(Backend *backend);
} BackendOps;

struct Backend {
        const BackendOps *ops;
        uint32_t capabilities;       /* BACKEND_*, from the probe */
        enum folio_huge huge;        /* the policy in force */
};

/*
 * Each opens, probes and returns a backend; or a negative errno, and says in @ret_failed_call which call refused
 * ("memfd_create"). The second is a private, detached mount; made in a user namespace where that is needed.
 */
int backend_memfd_new(enum folio_huge huge, Backend **ret, const char **ret_failed_call);
int backend_tmpfs_new(enum folio_huge huge, Backend **ret, const char **ret_failed_call);

/*
 * The same on a tmpfs that is mounted at @directory already, by who could (a unit's TemporaryFileSystem=), for a daemon
 * that may not mount. That nobody else sees it, and its options, are up to who mounted it: with huge=within_size pages are
 * huge at allocation, whatever @huge says. -ENODEV from "statfs": it is no tmpfs.
 */
int backend_tmpfs_open(const char *directory, enum folio_huge huge, Backend **ret, const char **ret_failed_call);
void backend_free(Backend *backend);

/*
 * Fills in @backend->capabilities by trying: makes a file of two huge folios, reserves it, seals, collapses, counts.
 * 0 or a negative errno; *@ret_failed_call as above.
 */
int backend_probe(Backend *backend, const char **ret_failed_call);

/* Does the administrator allow huge pages under `auto`? False with enabled=never, or shmem_enabled=deny. */
bool backend_system_allows_huge(void);

#endif
