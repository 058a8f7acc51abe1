/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/integration/faults.h"

#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t faults_count(void)
{
        struct rusage usage;

        if (getrusage(RUSAGE_SELF, &usage) < 0)
                return UINT64_MAX;
        return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

int faults_open_stops(void)
{
        struct perf_event_attr attributes = {
                .type = PERF_TYPE_SOFTWARE,
                .size = sizeof(attributes),
                .config = PERF_COUNT_SW_PAGE_FAULTS,
        };

        return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

uint64_t faults_read_stops(int fd)
{
        uint64_t n = 0;

        if (fd < 0)
                return 0;
        return read(fd, &n, sizeof(n)) == sizeof(n) ? n : UINT64_MAX;
}
