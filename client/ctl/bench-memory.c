/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-memory.h. */
#include "client/ctl/bench-memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int bench_area_init(BenchArea *area, size_t n_bytes)
{
        size_t n_area = (n_bytes + BENCH_HUGE_BYTES - 1) & ~(BENCH_HUGE_BYTES - 1), n_head, n_all;
        unsigned char *all;

        if (n_bytes == 0 || n_bytes > SIZE_MAX / 2)
                return -EINVAL;
        n_all = n_area + BENCH_HUGE_BYTES;
        all = mmap(NULL, n_all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED)
                return -errno;
        n_head = (BENCH_HUGE_BYTES - ((uintptr_t)all & (BENCH_HUGE_BYTES - 1))) & (BENCH_HUGE_BYTES - 1);
        if (n_head)
                (void)munmap(all, n_head);
        (void)munmap(all + n_head + n_area, n_all - n_head - n_area);
        *area = (BenchArea){ .address = all + n_head, .n_bytes = n_area };
        /* Advice: where there are no huge pages, small ones do. */
        (void)madvise(area->address, n_area, MADV_HUGEPAGE);
        memset(area->address, 0x5a, n_area);
        return 0;
}

void bench_area_deinit(BenchArea *area)
{
        if (area->address)
                (void)munmap(area->address, area->n_bytes);
        *area = (BenchArea)BENCH_AREA_NULL;
}

void bench_fill(void *buffer, size_t n_bytes, uint64_t seed)
{
        unsigned char *bytes = buffer;
        uint64_t word = seed | 1;

        for (; n_bytes >= sizeof(word); bytes += sizeof(word), n_bytes -= sizeof(word)) {
                word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                memcpy(bytes, &word, sizeof(word));
        }
        for (; n_bytes > 0; n_bytes--)
                *bytes++ = (unsigned char)(n_bytes | 1);
}

uint64_t bench_smaps_bytes(const void *address, size_t n_bytes, const char *field)
{
        uintptr_t wanted_begin = (uintptr_t)address, wanted_end = wanted_begin + n_bytes;
        FILE *file = fopen("/proc/self/smaps", "re");
        size_t n_field = strlen(field);
        int is_ours = 0;
        uint64_t sum = 0;
        char line[512];

        if (!file)
                return 0;
        while (fgets(line, sizeof(line), file)) {
                unsigned long long begin, end;

                if (sscanf(line, "%llx-%llx ", &begin, &end) == 2)
                        is_ours = begin < wanted_end && end > wanted_begin;
                else if (is_ours && strncmp(line, field, n_field) == 0)
                        sum += strtoull(line + n_field, NULL, 10) * 1024;
        }
        (void)fclose(file);
        return sum < n_bytes ? sum : n_bytes;
}

/* --- loops -------------------------------------------------------------------------------------------------------- */

static void copy_memcpy(void *to, const void *from, size_t n_bytes)
{
        memcpy(to, from, n_bytes);
}

#if defined(__x86_64__) || defined(__i386__)
static void copy_movsb(void *to, const void *from, size_t n_bytes)
{
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n_bytes) : : "memory");
}
#endif

const BenchCopy bench_copies[] = {
        { "memcpy", copy_memcpy },
#if defined(__x86_64__) || defined(__i386__)
        { "rep movsb", copy_movsb },
#endif
        { 0 },
};

/* --- how much there is -------------------------------------------------------------------------------------------- */

/* The first number of a file, after @field where that is given. */
static uint64_t read_number(const char *path, const char *field)
{
        FILE *file = fopen(path, "re");
        uint64_t number = UINT64_MAX;
        char line[256], *end;

        if (!file)
                return UINT64_MAX;
        while (number == UINT64_MAX && fgets(line, sizeof(line), file)) {
                const char *digits = line;

                if (field && strncmp(line, field, strlen(field)) != 0)
                        continue;
                digits += field ? strlen(field) : 0;
                number = strtoull(digits, &end, 10);
                if (end == digits) /* "max" */
                        break;
        }
        (void)fclose(file);
        return number == 0 && !field ? UINT64_MAX : number;
}

/* cgroup v2; of the limits on the way up only our own group's is looked at. */
static uint64_t group_available(void)
{
        uint64_t limit_bytes, used_bytes;
        FILE *file = fopen("/proc/self/cgroup", "re");
        char line[512], path[640];
        const char *group = NULL;

        if (!file)
                return UINT64_MAX;
        while (!group && fgets(line, sizeof(line), file))
                if (strncmp(line, "0::", 3) == 0)
                        group = line + 3;
        (void)fclose(file);
        if (!group)
                return UINT64_MAX;
        line[strcspn(line, "\n")] = '\0';
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
        limit_bytes = read_number(path, NULL);
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", group);
        used_bytes = read_number(path, NULL);
        if (limit_bytes == UINT64_MAX || used_bytes == UINT64_MAX)
                return UINT64_MAX;
        return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
}

uint64_t bench_memory_available(void)
{
        uint64_t machine_kib = read_number("/proc/meminfo", "MemAvailable:"), group_bytes = group_available();
        uint64_t machine_bytes = machine_kib < UINT64_MAX / 1024 ? machine_kib * 1024 : UINT64_MAX;

        return machine_bytes < group_bytes ? machine_bytes : group_bytes;
}
