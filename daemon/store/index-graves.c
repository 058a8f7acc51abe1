/* SPDX-License-Identifier: Apache-2.0 */
/* See index-graves.h. Each is one word, so that a reader has an old one or a new one. */
#include "daemon/store/index-graves.h"

#define GRAVES_MIN 1024u
#define GRAVES_MAX (1u << 20)
#define GRAVES_PER_WRITE 128u /* after so many writes nearly every page of them is there */

uint32_t index_graves_plan(uint32_t n_slots_max)
{
        uint32_t n = GRAVES_MIN;

        while (n < GRAVES_MAX && n < n_slots_max / 4)
                n *= 2;
        return n;
}

void index_graves_write(IndexGraves *graves, uint64_t hash, uint8_t reason)
{
        graves->n_written++;
        atomic_store_explicit(&graves->graves[layout_grave_place(hash, graves->n_graves)], layout_grave(hash, reason),
                              memory_order_relaxed);
}

uint8_t index_graves_read(const IndexGraves *graves, uint64_t hash)
{
        uint64_t grave = atomic_load_explicit(&graves->graves[layout_grave_place(hash, graves->n_graves)],
                                              memory_order_relaxed);

        return (grave ^ hash) & ~LAYOUT_GRAVE_REASON_MASK ? 0 : (uint8_t)(grave & LAYOUT_GRAVE_REASON_MASK);
}

uint64_t index_graves_used_bytes(const IndexGraves *graves)
{
        return graves->n_written < graves->n_graves / GRAVES_PER_WRITE ?
                       0 : (uint64_t)graves->n_graves * sizeof(LayoutGrave);
}
