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
#include <unistd.h>

#include "base/cleanup.h"

int ring_memory_init(RingMemory *memory)
{
        _cleanup_(cleanup_fd) int fd = -1;
        void *data;

        fd = memfd_create("folio-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;
        if (ftruncate(fd, RING_REGION_BYTES) < 0)
                return -errno;
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return -errno;
        data = mmap(NULL, RING_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
                return -errno;
        (void)madvise(data, RING_REGION_BYTES, MADV_DONTDUMP); /* a dump that has it too is only larger */
        memory->header = data;
        memory->header->magic = RING_MAGIC;
        memory->header->version = RING_VERSION;
        memory->header->n_records = RING_RECORDS;
        memory->header->region_bytes = RING_REGION_BYTES;
        memory->header->records_offset = sizeof(RingHeader);
        memory->header->results_offset = sizeof(RingHeader) + RING_RECORDS * sizeof(RingRecord);
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
