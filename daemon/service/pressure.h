/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells when the machine is short of memory: a trigger on /proc/pressure/memory, set so that it goes off when somebody has
 * waited for memory during 150 ms of one second; at most once a window. Does nothing about it.
 */
#ifndef DAEMON_SERVICE_PRESSURE_H
#define DAEMON_SERVICE_PRESSURE_H

struct event_base;

typedef struct Pressure Pressure;

typedef void (*PressureFn)(void *userdata);

/*
 * @root as of hostmem.h. 0, or a negative errno: there is nothing to watch (no such file, no right, an old kernel).
 * @on_pressure is called on the loop.
 */
int pressure_new(struct event_base *base, const char *root, PressureFn on_pressure, void *userdata, Pressure **ret);

/* The same with a descriptor that shows EPOLLPRI for it; taken over, whatever happens. */
int pressure_new_fd(struct event_base *base, int consume_fd, PressureFn on_pressure, void *userdata, Pressure **ret);
void pressure_free(Pressure *pressure);

#endif
