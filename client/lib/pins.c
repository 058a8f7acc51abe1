/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's half of an agreement without a lock. We: raise the counter, fence, look at the slot. The daemon: makes
 * the slot RETRACTED, fences, looks at the counter. Of the two fences one is first: so either we see that the
 * object is gone, or the daemon sees that it is held. Taking the last pin away is the same the other way round: either
 * we see that the object has lost its name and say so, or the daemon sees 0.
 *
 * A counter is raised by any thread; nothing else of the table is written but the summary bytes, which only ever become
 * 1.
 */
#include "client/lib/pins.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/macro.h"
#include "proto/seqlock.h"

#define PINS_TRIES_MAX 1000u

/* The first two words of a slot: its state and whose it is. */
typedef union PinsSlotHead {
        uint64_t words[2];
        struct {
                uint32_t sequence;
                uint8_t state;
                uint8_t others[3];
                uint64_t generation;
        };
} PinsSlotHead;

static_assert(offsetof(PinsSlotHead, state) == offsetof(LayoutSlot, state), "head of a slot");
static_assert(offsetof(PinsSlotHead, generation) == offsetof(LayoutSlot, generation), "head of a slot");

/* False: the daemon was writing there all the time. */
static bool pins_read_slot(const Space *space, uint32_t slot, PinsSlotHead *ret)
{
        const LayoutSlot *shared = &space->slots[slot];
        uint32_t begun;

        for (unsigned i = 0; i < PINS_TRIES_MAX; i++) {
                if (!seqlock_read_begin(&shared->sequence, &begun))
                        continue;
                seqlock_copy_out(ret->words, shared, ARRAY_SIZE(ret->words));
                if (seqlock_read_check(&shared->sequence, begun))
                        return true;
        }
        return false;
}

/*
 * Behind the change of a counter, before the look at the slot. Where a locked instruction is a barrier for everything
 * there is nothing left to do but to keep the compiler from moving the look.
 */
static inline void pins_fence(void)
{
#if defined(__x86_64__) || defined(__i386__)
        atomic_signal_fence(memory_order_seq_cst);
#else
        atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* The table is our own memory, but a hole of it still takes a page: so its daemon looks only where a byte is set. */
static void pins_add(Space *space, uint32_t slot)
{
        _Atomic uint8_t *summary = &space->pin_summary[slot / LAYOUT_PINS_PER_SUMMARY];

        if (!atomic_load_explicit(summary, memory_order_relaxed))
                atomic_store_explicit(summary, 1, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&space->pin_counters[slot], 1, memory_order_seq_cst);
        /*
         * For the daemon: whoever's fence comes second sees what the other wrote before his, summary and counter both.
         */
        pins_fence();
}

bool pins_hold(Space *space, uint32_t slot, uint64_t generation)
{
        PinsSlotHead head;

        if (!space->pins || slot >= space->header.n_slots_max)
                return false;
        pins_add(space, slot);
        if (pins_read_slot(space, slot, &head) && head.generation == generation && head.state != LAYOUT_SLOT_FREE &&
            head.state != LAYOUT_SLOT_RETRACTED)
                return true;
        /* Nobody waits for this one: the daemon, had it seen it, looks again by itself from time to time. */
        (void)atomic_fetch_sub_explicit(&space->pin_counters[slot], 1, memory_order_seq_cst);
        return false;
}

bool pins_drop(Space *space, uint32_t slot, uint64_t *generation)
{
        PinsSlotHead head;

        assert(space->pins && slot < space->header.n_slots_max);
        /* For the daemon: who sees 0 also sees that all our reading of the object is over. */
        if (atomic_fetch_sub_explicit(&space->pin_counters[slot], 1, memory_order_seq_cst) != 1)
                return false;
        pins_fence();
        /* In doubt we say so, and where it is another's object by now: one message too many does no harm. */
        if (!pins_read_slot(space, slot, &head))
                return true;
        *generation = head.generation;
        return head.state == LAYOUT_SLOT_RETRACTED;
}
