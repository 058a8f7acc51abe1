/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mincore() says of private memory whether a page is there, and of a file's whether the file has it. Populating for
 * writing is what Linux 5.14 and later can; before, the pages come one by one as they always did.
 */
#include "client/lib/fresh.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

bool fresh_is(const void *to, size_t n_bytes)
{
        uintptr_t page_bytes = (uintptr_t)getpagesize(), first = (uintptr_t)to, last = first + (n_bytes - 1);
        uintptr_t probes[] = { last, first + n_bytes / 2, first };
        int saved = errno;
        bool is_fresh = false;

        /* The last is asked first: what is used again was often used by a smaller read before. */
        for (size_t i = 0; i < ARRAY_SIZE(probes) && !is_fresh; i++) {
                void *page = (void *)ALIGN_DOWN(probes[i], page_bytes);
                unsigned char is_there = 1;

                is_fresh = mincore(page, page_bytes, &is_there) == 0 && !(is_there & 1);
        }
        errno = saved;
        return is_fresh;
}

void fresh_make(void *to, size_t n_bytes)
{
        uintptr_t page_bytes = (uintptr_t)getpagesize();
        uintptr_t begin = ALIGN_DOWN((uintptr_t)to, page_bytes), end = ALIGN_UP((uintptr_t)to + n_bytes, page_bytes);
        int saved = errno;

        /* What stands in its way the store will meet too, or not: no error of ours. */
        (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
        errno = saved;
}
