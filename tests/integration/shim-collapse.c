/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into foliod: a machine whose memory is in pieces. To ask for a huge page takes the thread that asks two
 * milliseconds of the processor for each 2 MiB, as when the kernel moves pages about to find one, and gives none. But for
 * the first that is asked for, by which foliod finds out whether the kernel has them at all.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define COLLAPSE 25
#define PIECE_NS 2000000

static atomic_uint n_given;

int madvise(void *address, size_t n_bytes, int advice);

static unsigned long long spent_ns(void)
{
        struct timespec now = { 0 };

        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

EXPORT int madvise(void *address, size_t n_bytes, int advice)
{
        unsigned long long end_ns;

        if (advice != COLLAPSE || atomic_fetch_add(&n_given, 1) == 0)
                return (int)syscall(SYS_madvise, address, n_bytes, advice);
        end_ns = spent_ns() + (n_bytes >> 21) * PIECE_NS;
        while (spent_ns() < end_ns) {
        }
        errno = ENOMEM;
        return -1;
}
