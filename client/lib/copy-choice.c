/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measurement copies within one huge page of its own (half of it the source, driven out of the caches before every
 * sample; a quarter the destination, which stays in them, but for the class that is beyond them). Candidates and
 * classes take turns, so that a disturbance hits no one of them alone, and the least time counts: nothing makes a copy
 * faster than it is. It goes on until its time is over, and another loop than the assumed one must be better by more
 * than the noise. Only one thread measures; others go on with what is assumed.
 */
#include "client/lib/copy-choice.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"

#define SAMPLE_BYTES ((size_t)256 << 10)
/* As many fit into the time where nothing disturbs. One that was not taken so often is not known: it stays as it is. */
#define N_ROUNDS_MAX 4
#define N_SAMPLES_MIN 2

/* Where the caches end: as much of the last one as is this processor's if all use it, within what is usual. */
#define BEYOND_BYTES_MIN ((size_t)4 << 20)
#define BEYOND_BYTES_MAX ((size_t)32 << 20)

/* Better by one part in this many, or it stays. */
#define GAIN_PARTS 25

static const size_t sample_blocks[_CHOICE_CLASS_MAX] = {
        [CHOICE_SMALL] = (size_t)8 << 10,
        [CHOICE_MIDDLE] = (size_t)64 << 10,
        [CHOICE_LARGE] = SAMPLE_BYTES,
        [CHOICE_BEYOND] = SAMPLE_BYTES,
};

static const char *const origin_words[_CHOICE_ORIGIN_MAX] = {
        [CHOICE_ASSUMED] = "assumed",
        [CHOICE_MEASURED] = "measured",
        [CHOICE_TOLD] = "FOLIO_COPY",
};

typedef struct Times {
        int64_t least_ns[_CHOICE_CLASS_MAX][_COPY_KERNEL_MAX];
        unsigned n_samples[_CHOICE_CLASS_MAX][_COPY_KERNEL_MAX];
} Times;

static pthread_once_t choice_once = PTHREAD_ONCE_INIT;
static Choice choice_first, choice_measured;
static const Choice *_Atomic choice_now;
static atomic_bool choice_is_settled;

static _Thread_local size_t choice_n_bytes;

static void choice_finish(Choice *choice)
{
        const char *names[_CHOICE_CLASS_MAX];

        for (ChoiceClass i = 0; i < _CHOICE_CLASS_MAX; i++) {
                choice->copies[i] = copy_kernel_find(choice->kernels[i]);
                names[i] = copy_kernel_name(choice->kernels[i]);
        }
        (void)snprintf(choice->text, sizeof(choice->text), "4 KiB %s, 32 KiB %s, above 1 MiB %s, above %zu MiB %s (%s)",
                       names[CHOICE_SMALL], names[CHOICE_MIDDLE], names[CHOICE_LARGE], choice->large_bytes_max >> 20,
                       names[CHOICE_BEYOND], origin_words[choice->origin]);
}

static size_t find_beyond_bytes(void)
{
        size_t bytes = 0;
        long n_bytes = -1, n_processors = sysconf(_SC_NPROCESSORS_ONLN);

#ifdef _SC_LEVEL3_CACHE_SIZE
        n_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
        if (n_bytes > 0 && n_processors > 0)
                bytes = (size_t)n_bytes / (size_t)n_processors;
        bytes = CLAMP(bytes, BEYOND_BYTES_MIN, BEYOND_BYTES_MAX);
        return ALIGN_DOWN(bytes, (size_t)1 << 20);
}

static void choice_begin(void)
{
        static const CopyKernel assumed[_CHOICE_CLASS_MAX] = {
                [CHOICE_SMALL] = COPY_KERNEL_VECTOR,
                [CHOICE_MIDDLE] = COPY_KERNEL_LANES,
                [CHOICE_LARGE] = COPY_KERNEL_LANES,
                [CHOICE_BEYOND] = COPY_KERNEL_STREAM,
        };
        const char *told_name = secure_getenv("FOLIO_COPY");
        CopyKernel told = told_name ? copy_kernel_by_name(told_name) : _COPY_KERNEL_MAX;
        bool is_told = told != _COPY_KERNEL_MAX && copy_kernel_find(told);

        choice_first.origin = is_told ? CHOICE_TOLD : CHOICE_ASSUMED;
        choice_first.large_bytes_max = find_beyond_bytes();
        for (ChoiceClass i = 0; i < _CHOICE_CLASS_MAX; i++) {
                CopyKernel kernel = is_told ? told : assumed[i];

                choice_first.kernels[i] = copy_kernel_find(kernel) ? kernel : COPY_KERNEL_LIBC;
        }
        choice_finish(&choice_first);
        /* With one loop there is nothing to measure. */
        atomic_store(&choice_is_settled, is_told || !copy_kernel_find(COPY_KERNEL_VECTOR));
        atomic_store_explicit(&choice_now, &choice_first, memory_order_release);
}

const Choice *choice_get(void)
{
        const Choice *choice = atomic_load_explicit(&choice_now, memory_order_acquire);

        if (LIKELY(choice))
                return choice;
        (void)pthread_once(&choice_once, choice_begin);
        return atomic_load_explicit(&choice_now, memory_order_acquire);
}

CopyFn choice_find(size_t n_bytes)
{
        const Choice *choice = choice_get();

        if (n_bytes <= CHOICE_SMALL_BYTES_MAX)
                return choice->copies[CHOICE_SMALL];
        if (n_bytes <= CHOICE_MIDDLE_BYTES_MAX)
                return choice->copies[CHOICE_MIDDLE];
        return choice->copies[n_bytes <= choice->large_bytes_max ? CHOICE_LARGE : CHOICE_BEYOND];
}

static int64_t now_monotonic_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool is_candidate(CopyKernel kernel, ChoiceClass class)
{
        /* Stores past the caches serve a destination that is not read soon; nothing else is worth them. */
        bool is_fit = class == CHOICE_BEYOND ? kernel != COPY_KERNEL_VECTOR && kernel != COPY_KERNEL_LANES
                                             : kernel != COPY_KERNEL_STREAM;

        return is_fit && copy_kernel_find(kernel);
}

static int64_t take_sample(CopyKernel kernel, ChoiceClass class, uint8_t *to, const uint8_t *from,
                           int64_t (*now_ns)(void))
{
        CopyFn copy = copy_kernel_find(kernel);
        size_t block_bytes = sample_blocks[class];
        int64_t begin_ns;

        copy_kernel_evict(from, SAMPLE_BYTES);
        if (class == CHOICE_BEYOND)
                copy_kernel_evict(to, SAMPLE_BYTES);
        begin_ns = now_ns();
        for (size_t at = 0; at < SAMPLE_BYTES; at += block_bytes)
                copy(class == CHOICE_BEYOND ? to + at : to, from + at, block_bytes, SAMPLE_BYTES - at - block_bytes);
        /* What lies in the caches has to leave them some time: part of the price. */
        if (class == CHOICE_BEYOND)
                copy_kernel_evict(to, SAMPLE_BYTES);
        return now_ns() - begin_ns;
}

static bool is_better(const Times *times, ChoiceClass class, CopyKernel kernel, CopyKernel than)
{
        const int64_t *least_ns = times->least_ns[class];

        return times->n_samples[class][kernel] >= N_SAMPLES_MIN && times->n_samples[class][than] >= N_SAMPLES_MIN &&
               least_ns[kernel] < least_ns[than];
}

static void choose_best(const Choice *assumed, const Times *times, Choice *ret)
{
        *ret = *assumed;
        ret->origin = CHOICE_MEASURED;
        for (ChoiceClass class = 0; class < _CHOICE_CLASS_MAX; class++) {
                const int64_t *least_ns = times->least_ns[class];
                CopyKernel first = assumed->kernels[class], best = first;

                for (CopyKernel kernel = 0; kernel < _COPY_KERNEL_MAX; kernel++)
                        if (is_better(times, class, kernel, best))
                                best = kernel;
                if (least_ns[best] < least_ns[first] - least_ns[first] / GAIN_PARTS)
                        ret->kernels[class] = best;
        }
        choice_finish(ret);
}

/* Rounds of all candidates until the time is over. */
static void take_rounds(uint8_t *to, const uint8_t *from, int64_t end_ns, int64_t (*now_ns)(void), Times *times)
{
        for (unsigned round = 0; round < N_ROUNDS_MAX; round++)
                for (CopyKernel kernel = 0; kernel < _COPY_KERNEL_MAX; kernel++)
                        for (ChoiceClass class = 0; class < _CHOICE_CLASS_MAX; class++) {
                                int64_t *least_ns = &times->least_ns[class][kernel], ns;

                                if (!is_candidate(kernel, class))
                                        continue;
                                if (now_ns() >= end_ns)
                                        return;
                                ns = take_sample(kernel, class, to, from, now_ns);
                                if (times->n_samples[class][kernel]++ == 0 || ns < *least_ns)
                                        *least_ns = ns;
                        }
}

int choice_measure(const Choice *assumed, int64_t (*now_ns)(void), Choice *ret)
{
        Times times = { 0 };
        int64_t end_ns = now_ns() + CHOICE_MEASURE_NS_MAX;
        size_t n_mapped = (size_t)(2 * HUGE_BYTES);
        uint8_t *mapped = mmap(NULL, n_mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint8_t *from, *to;

        if (mapped == MAP_FAILED)
                return -errno;
        from = (uint8_t *)ALIGN_UP((uintptr_t)mapped, (uintptr_t)HUGE_BYTES);
        to = from + HUGE_BYTES / 2;
        /* Neither has to succeed: small pages serve too, and page by page. */
        (void)madvise(from, (size_t)HUGE_BYTES, MADV_HUGEPAGE);
        memset(from, 1, SAMPLE_BYTES);
        memset(to, 1, SAMPLE_BYTES);
        take_rounds(to, from, end_ns, now_ns, &times);
        (void)munmap(mapped, n_mapped);
        choose_best(assumed, &times, ret);
        return 0;
}

CopyFn choice_find_counted(size_t n_bytes, size_t n_whole)
{
        if (UNLIKELY(!atomic_load_explicit(&choice_is_settled, memory_order_relaxed))) {
                const Choice *assumed = choice_get();

                choice_n_bytes = n_bytes < CHOICE_MEASURE_BYTES ? choice_n_bytes + n_bytes : CHOICE_MEASURE_BYTES;
                if (choice_n_bytes >= CHOICE_MEASURE_BYTES && !atomic_exchange(&choice_is_settled, true)) {
                        int saved = errno;

                        /* Without memory it stays as it is. */
                        if (choice_measure(assumed, now_monotonic_ns, &choice_measured) == 0)
                                atomic_store_explicit(&choice_now, &choice_measured, memory_order_release);
                        errno = saved;
                }
        }
        return choice_find(n_whole);
}
