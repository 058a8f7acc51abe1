/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slab is a head, and records behind it; free ones are chained through their first word, in the order of addresses.
 * All but the first have their pages from the start: who has filled one slab fills the next, and a page at a time costs
 * a fault for each 4 KiB (measured: a tenth of what an object takes that is put).
 */
#include "daemon/memory/slab.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macro.h"

typedef struct Slab {
        List link;                   /* of those with a free record */
        Slabs *slabs;
        void *first_free;
        size_t n_touched;            /* records from here on have never been taken, and are zero */
        size_t n_used;
} Slab;

static size_t records_max(const Slabs *slabs)
{
        return (SLAB_BYTES - sizeof(Slab)) / slabs->record_bytes;
}

static char *map(size_t n_bytes, int flags)
{
        void *address = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

        return address == MAP_FAILED ? NULL : address;
}

/*
 * The kernel puts mappings side by side: below one that is aligned the next one is too. Else twice the room, and a part
 * of it.
 */
static Slab *map_slab(int flags)
{
        char *reserved = map(SLAB_BYTES, flags);
        size_t n_before;

        if (!reserved || IS_ALIGNED((uintptr_t)reserved, SLAB_BYTES))
                return (Slab *)(void *)reserved;
        (void)munmap(reserved, SLAB_BYTES);
        reserved = map(2 * SLAB_BYTES, 0);
        if (!reserved)
                return NULL;
        n_before = (SLAB_BYTES - ((uintptr_t)reserved & (SLAB_BYTES - 1))) & (SLAB_BYTES - 1);
        /* What cannot be given back is address space, and no memory. */
        if (n_before > 0)
                (void)munmap(reserved, n_before);
        (void)munmap(reserved + n_before + SLAB_BYTES, SLAB_BYTES - n_before);
        return (Slab *)(void *)(reserved + n_before);
}

void slabs_init(Slabs *slabs, size_t record_bytes)
{
        assert(record_bytes >= sizeof(void *) && IS_ALIGNED(record_bytes, 8) && record_bytes <= SLAB_BYTES / 16);
        *slabs = (Slabs){ .record_bytes = record_bytes };
        list_init(&slabs->partial);
}

void slabs_deinit(Slabs *slabs)
{
        assert(slabs->n_records == 0 && list_is_empty(&slabs->partial));
        if (slabs->spare)
                (void)munmap(slabs->spare, SLAB_BYTES);
        slabs->spare = NULL;
}

static Slab *get_slab(Slabs *slabs)
{
        List *node = list_peek_front(&slabs->partial);
        Slab *slab;

        if (node)
                return LIST_ENTRY(node, Slab, link);
        slab = slabs->spare ? slabs->spare : map_slab(slabs->n_records > 0 ? MAP_POPULATE : 0);
        if (!slab)
                return NULL;
        slabs->spare = NULL;
        slab->slabs = slabs;
        list_init(&slab->link);
        list_push_front(&slabs->partial, &slab->link);
        return slab;
}

void *slabs_take(Slabs *slabs)
{
        Slab *slab = get_slab(slabs);
        void *record;

        if (!slab)
                return NULL;
        if (slab->first_free) {
                record = slab->first_free;
                memcpy(&slab->first_free, record, sizeof(slab->first_free));
                memset(record, 0, slabs->record_bytes);
        } else {
                record = (char *)slab + sizeof(*slab) + slab->n_touched++ * slabs->record_bytes;
        }
        slabs->n_records++;
        if (++slab->n_used == records_max(slabs))
                list_unlink(&slab->link);
        return record;
}

void slabs_give(void *record)
{
        Slab *slab = (Slab *)(void *)((char *)record - ((uintptr_t)record & (SLAB_BYTES - 1)));
        Slabs *slabs;

        if (!record)
                return;
        slabs = slab->slabs;
        assert(slab->n_used > 0 && slabs->n_records > 0);
        if (slab->n_used-- == records_max(slabs))
                list_push_front(&slabs->partial, &slab->link);
        slabs->n_records--;
        memcpy(record, &slab->first_free, sizeof(slab->first_free));
        slab->first_free = record;
        if (slab->n_used > 0)
                return;
        list_unlink(&slab->link);
        if (slabs->spare)
                (void)munmap(slab, SLAB_BYTES);
        else
                slabs->spare = slab;
}
