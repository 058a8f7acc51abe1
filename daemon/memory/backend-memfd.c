/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory files from memfd_create(): sealable, on a mount of the kernel's own that has no size limit, so the budget is
 * the only one.
 */
#include "daemon/memory/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/memfd.h"

static int make_file(const char *label, uint64_t size_bytes, int *ret_fd, const char **ret_failed_call)
{
        _cleanup_(cleanup_fd) int fd = -1;
        int r;

        r = memfd_make(label, &fd, ret_failed_call);
        if (r < 0)
                return r;
        *ret_failed_call = "ftruncate";
        if (size_bytes > INT64_MAX)
                return -EFBIG;
        if (ftruncate(fd, (off_t)size_bytes) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

static int memfd_create_file(Backend *backend, const char *label, uint64_t size_bytes, int *ret_fd)
{
        const char *ignored;

        return make_file(label, size_bytes, ret_fd, &ignored);
}

static void memfd_free(Backend *backend)
{
        free(backend);
}

static const BackendOps memfd_ops = {
        .name = "memfd",
        .backing = FOLIO_BACKING_MEMFD,
        .create_file = memfd_create_file,
        .free = memfd_free,
};

int backend_memfd_new(enum folio_huge huge, Backend **ret, const char **ret_failed_call)
{
        _cleanup_(cleanup_free) Backend *backend = NULL;
        _cleanup_(cleanup_fd) int fd = -1;
        int r;

        *ret_failed_call = "calloc";
        backend = calloc(1, sizeof(*backend));
        if (!backend)
                return -ENOMEM;
        backend->ops = &memfd_ops;
        backend->huge = huge;

        /* Once by itself, so that a refusal has the name of the call, which the interface has no room for. */
        r = make_file("probe", PAGE_BYTES, &fd, ret_failed_call);
        if (r < 0)
                return r;
        r = backend_probe(backend, ret_failed_call);
        if (r < 0)
                return r;
        *ret_failed_call = NULL;
        *ret = steal_ptr(&backend);
        return 0;
}
