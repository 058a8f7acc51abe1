/* SPDX-License-Identifier: Apache-2.0 */
/* See array.h. Mapped, not allocated: an allocator may hand out, and clear by hand, what was another's before. */
#include "daemon/memory/array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *map(size_t n_bytes)
{
        void *data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (data == MAP_FAILED)
                return NULL;
        (void)madvise(data, n_bytes, MADV_NOHUGEPAGE); /* refused where the kernel knows no others: just as well */
        return data;
}

void *array_new(size_t n, size_t item_bytes)
{
        size_t n_bytes;

        if (__builtin_mul_overflow(n, item_bytes, &n_bytes))
                return NULL;
        return n_bytes < ARRAY_OWN_BYTES ? calloc(n, item_bytes) : map(n_bytes);
}

void *array_grow(void *array, size_t n, size_t n_new, size_t item_bytes)
{
        size_t n_old_bytes = n * item_bytes, n_bytes;
        void *data;

        assert(n_new >= n);
        if (__builtin_mul_overflow(n_new, item_bytes, &n_bytes))
                return NULL;
        if (n_bytes < ARRAY_OWN_BYTES) {
                data = realloc(array, n_bytes);
                if (data)
                        memset((char *)data + n_old_bytes, 0, n_bytes - n_old_bytes);
                return data;
        }
        if (n_old_bytes >= ARRAY_OWN_BYTES) {
                /* Pages move, bytes do not. */
                data = mremap(array, n_old_bytes, n_bytes, MREMAP_MAYMOVE);
                return data == MAP_FAILED ? NULL : data;
        }
        data = map(n_bytes);
        if (!data)
                return NULL;
        if (n_old_bytes > 0)
                memcpy(data, array, n_old_bytes);
        free(array);
        return data;
}

void array_free(void *array, size_t n, size_t item_bytes)
{
        if (!array)
                return;
        if (n * item_bytes < ARRAY_OWN_BYTES)
                free(array);
        else
                (void)munmap(array, n * item_bytes); /* cannot fail for a mapping of ours that is whole */
}
