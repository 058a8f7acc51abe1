/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: reading mapped memory that the kernel may no longer be able to give. Where there is no good page behind an
 * address (poisoned memory, a file cut short) a load raises SIGBUS; a guarded call answers -EIO instead.
 *
 * At the first guarded call the process gets one handler of SIGBUS, for good. It takes what hits the guarded source
 * range of the very thread that is copying, and passes everything else on to the handler, or the default, that was
 * there before, as the kernel would have. A thread has as many guards as it has guarded calls on its stack (a signal
 * handler may interrupt one and make another); the innermost counts. Knows no objects and no copy loop.
 *
 * What it cannot do: a program, or a library, that installs a handler of its own later without passing on to the one
 * it found, or puts an earlier one back, takes ours away (test runners that catch crashes do, around every test); we
 * do not put it back, since theirs may pass on to ours. And where a thread blocks SIGBUS the kernel kills the process
 * at the load, whoever handles it. A handler that interrupts a guarded call and leaves it for good by a jump leaves the
 * guard behind on the thread, as it leaves behind whatever else the library was in the middle of: that is no way out of
 * any call of it.
 */
#ifndef CLIENT_LIB_GUARD_H
#define CLIENT_LIB_GUARD_H

#include <stddef.h>

typedef void (*GuardedFn)(void *to, const void *from, size_t n_bytes, size_t n_ahead);

/*
 * Calls @copy, which may own nothing: it is left in the middle where a byte of [@from, @from + @n_bytes) cannot be had.
 * 0 or -EIO.
 */
int guard_call(GuardedFn copy, void *to, const void *from, size_t n_bytes, size_t n_ahead);

#endif
