/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of both backends, what is in them and what they take: for the tests of regions. After harness.h. */
#ifndef TESTS_UNIT_REGION_FIXTURE_H
#define TESTS_UNIT_REGION_FIXTURE_H

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/memory/region.h"

static Backend *memfd, *tmpfs;

static inline int make_backends(void **state)
{
        const char *call;

        return backend_memfd_new(FOLIO_HUGE_ALWAYS, &memfd, &call) < 0 ||
               backend_tmpfs_new(FOLIO_HUGE_ALWAYS, &tmpfs, &call) < 0;
}

static inline int free_backends(void **state)
{
        backend_free(memfd);
        backend_free(tmpfs);
        return 0;
}

static inline Region *new_region(Backend *backend, uint64_t size_bytes)
{
        Region *region = NULL;

        assert_int_equal(region_new(backend, "test", size_bytes, &region), 0);
        return region;
}

static inline uint64_t allocated_bytes(const Region *region)
{
        struct stat st;

        assert_int_equal(fstat(region->fd, &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

static inline void fill(Region *region, uint64_t offset, uint64_t n_bytes, int byte)
{
        char *bytes = malloc(n_bytes);

        assert_non_null(bytes);
        memset(bytes, byte, n_bytes);
        assert_int_equal(pwrite(region->fd, bytes, n_bytes, (off_t)offset), n_bytes);
        free(bytes);
}

static inline void assert_bytes(Region *region, uint64_t offset, uint64_t n_bytes, char byte)
{
        char *bytes = malloc(n_bytes + 1);

        assert_non_null(bytes);
        assert_int_equal(pread(region->fd, bytes, n_bytes, (off_t)offset), n_bytes);
        for (uint64_t i = 0; i < n_bytes; i++)
                if (bytes[i] != byte)
                        fail_msg("byte %llu is %d", (unsigned long long)(offset + i), bytes[i]);
        free(bytes);
}

#endif
