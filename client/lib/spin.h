/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether who waits for the daemon looks again and again for a while before it sleeps, and for how long. Both ways
 * are tried, and what they cost is remembered: the one that ended sooner lately is taken, the other now and then
 * to see whether that is still so. So on a busy machine, where looking keeps the daemon from running, it falls
 * away by itself, and so it does where what is waited for takes long anyway. With one processor it never looks
 * twice. Any thread; nothing here needs to be exact.
 */
#ifndef CLIENT_LIB_SPIN_H
#define CLIENT_LIB_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SPIN_NS_MAX UINT32_C(30000)
#define SPIN_NS_MIN UINT32_C(2000)

typedef struct Spin {
        bool has_processors;         /* more than one that we may run on */
        _Atomic uint32_t budget_ns;  /* how long to look, where we look */
        _Atomic uint32_t spun_ns;    /* what a wait took lately that began with looking */
        _Atomic uint32_t slept_ns;   /* and one that did not */
        _Atomic uint32_t n_waits;
} Spin;

void spin_init(Spin *spin, bool has_processors);

/* For how long to look this time; 0: sleep at once. */
uint32_t spin_choose(Spin *spin);

/* What came of it: @waited_ns from the beginning to the end, sleep and all. @was_seen: while looking. */
void spin_learn(Spin *spin, uint32_t chosen_ns, bool was_seen, uint64_t waited_ns);

/* Tells the processor that this is such a loop. */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb" ::: "memory");
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

#endif
