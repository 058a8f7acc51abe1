/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Its size is sealed before anybody else has it, and so are the seals: whoever could shorten the file would have the
 * daemon end with a signal. Pages come as they are touched: a client that asks for little has few of them.
 */
#include "daemon/memory/ring-memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/memory/memfd.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int map(int fd, RingHeader **ret)
{
        void *data = mmap(NULL, RING_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (data == MAP_FAILED)
                return -errno;
        (void)madvise(data, RING_REGION_BYTES, MADV_DONTDUMP); /* a dump that has it too is only larger */
        *ret = data;
        return 0;
}

int ring_memory_restore(RingMemory *memory, int consume_fd)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        struct stat st;
        int seals = fcntl(fd, F_GET_SEALS), r;

        if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || (uint64_t)st.st_size != RING_REGION_BYTES)
                return -EBADF;
        r = map(fd, &memory->header);
        if (r == 0)
                memory->fd = steal_fd(&fd);
        return r;
}

int ring_memory_init(RingMemory *memory)
{
        _cleanup_(cleanup_fd) int fd = -1;
        const char *ignored;
        int r;

        r = memfd_make("folio-ring", &fd, &ignored);
        if (r < 0)
                return r;
        if (ftruncate(fd, RING_REGION_BYTES) < 0)
                return -errno;
        if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
                return -errno;
        r = map(fd, &memory->header);
        if (r < 0)
                return r;
        memory->header->magic = RING_MAGIC;
        memory->header->version = RING_VERSION;
        memory->header->n_records = RING_RECORDS;
        memory->header->region_bytes = RING_REGION_BYTES;
        memory->header->records_offset = RING_RECORDS_OFFSET;
        memory->header->results_offset = RING_RESULTS_OFFSET;
        (void)ring_hang_bell(memory->header, 0); /* nobody can have published anything */
        memory->fd = steal_fd(&fd);
        return 0;
}

void ring_memory_deinit(RingMemory *memory)
{
        if (memory->header)
                (void)munmap(memory->header, RING_REGION_BYTES); /* cannot fail for a mapping of ours */
        memory->header = NULL;
        memory->fd = close_fd(memory->fd);
}
