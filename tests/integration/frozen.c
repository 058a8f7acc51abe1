/* SPDX-License-Identifier: Apache-2.0 */
/* See frozen.h. */
#include "tests/integration/frozen.h"

#include "proto/layout.h"

static bool peek(int fd, uint64_t at, void *ret, size_t n_bytes)
{
        return pread(fd, ret, n_bytes, (off_t)at) == (ssize_t)n_bytes;
}

/* Of all that foliod maps: what begins as the index of that namespace does. 0: none. */
static uint64_t find_index(const Foliod *foliod, int memory_fd, const char *name, LayoutIndexHeader *ret)
{
        char path[64], line[512];
        uint64_t found = 0;
        FILE *maps;

        (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)foliod->pid);
        maps = fopen(path, "re");
        while (maps && found == 0 && fgets(line, sizeof(line), maps)) {
                unsigned long begin, end, offset;
                char rights[8];

                if (sscanf(line, "%lx-%lx %7s %lx", &begin, &end, rights, &offset) != 4 || offset != 0 ||
                    strcmp(rights, "rw-s") != 0 || !peek(memory_fd, begin, ret, sizeof(*ret)))
                        continue;
                if (ret->magic == LAYOUT_INDEX_MAGIC && strcmp(ret->namespace_name, name) == 0)
                        found = begin;
        }
        if (maps)
                (void)fclose(maps);
        return found;
}

static void add(const Frozen *frozen, uint64_t offset, uint32_t difference)
{
        uint32_t sequence = 0;
        bool is_done = peek(frozen->memory_fd, frozen->index + offset, &sequence, sizeof(sequence));

        sequence += difference;
        is_done = is_done && pwrite(frozen->memory_fd, &sequence, sizeof(sequence),
                                    (off_t)(frozen->index + offset)) == sizeof(sequence);
        harness_check(is_done, "the index of foliod can be written", __FILE__, __LINE__);
}

static void add_to_all(const Frozen *frozen, uint32_t difference)
{
        for (uint32_t i = 0; i < frozen->n_buckets; i++)
                add(frozen, frozen->buckets_offset + i * sizeof(LayoutBucket) + offsetof(LayoutBucket, sequence),
                    difference);
        for (uint32_t i = 0; i < frozen->n_slots; i++)
                add(frozen, frozen->slots_offset + i * sizeof(LayoutSlot) + offsetof(LayoutSlot, sequence), difference);
}

Frozen frozen_begin(const Foliod *foliod, const char *name)
{
        Frozen frozen = { .foliod = foliod };
        LayoutIndexHeader header;
        char path[64];
        int status = 0;

        assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
        assert_int_equal(waitpid(foliod->pid, &status, WUNTRACED), foliod->pid);
        assert_true(WIFSTOPPED(status));
        (void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)foliod->pid);
        frozen.memory_fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(frozen.memory_fd >= 0);
        frozen.index = find_index(foliod, frozen.memory_fd, name, &header);
        assert_true(frozen.index != 0);
        frozen.buckets_offset = header.buckets_offset;
        frozen.slots_offset = header.slots_offset;
        frozen.n_buckets = header.n_buckets;
        frozen.n_slots = header.n_slots;
        add_to_all(&frozen, 1);
        return frozen;
}

void frozen_forget(Frozen *frozen)
{
        (void)close(frozen->memory_fd);
        frozen->memory_fd = -1;
}

void frozen_end(Frozen *frozen)
{
        add_to_all(frozen, 1);
        (void)kill(frozen->foliod->pid, SIGCONT);
        frozen_forget(frozen);
}
