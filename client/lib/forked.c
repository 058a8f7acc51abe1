/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One page for the process, mapped once and kept. A child finds the word 0; when it takes a mark itself it puts the
 * next number there, which no ancestor's mark is. Children that share our memory (vfork) share the word: rightly so.
 */
#include "client/lib/forked.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

#include "base/macro.h"

_Atomic uint32_t *_Atomic forked_word;

static pthread_mutex_t forked_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t forked_last_mark;

static void forked_in_child(void)
{
        /* Another thread of the parent may have held it. */
        pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

        forked_lock = fresh;
}

static int forked_make_page(void)
{
        void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int r;

        if (page == MAP_FAILED)
                return -errno;
        if (madvise(page, PAGE_BYTES, MADV_WIPEONFORK) < 0) {
                r = -errno;
                (void)munmap(page, PAGE_BYTES);
                return r;
        }
        r = pthread_atfork(NULL, NULL, forked_in_child);
        if (r != 0) {
                (void)munmap(page, PAGE_BYTES);
                return -r;
        }
        atomic_store(&forked_word, (_Atomic uint32_t *)page);
        return 0;
}

int forked_take_mark(uint32_t *ret)
{
        int r = 0;

        (void)pthread_mutex_lock(&forked_lock);
        if (!atomic_load(&forked_word))
                r = forked_make_page();
        if (r == 0) {
                _Atomic uint32_t *word = atomic_load(&forked_word);

                if (atomic_load(word) == 0)
                        atomic_store(word, ++forked_last_mark);
                *ret = atomic_load(word);
        }
        (void)pthread_mutex_unlock(&forked_lock);
        return r;
}
