/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crew: helper threads that take pieces of one caller's work. They start at the first work, sleep between, take none
 * of the program's signals, and end with the crew. The caller works too, and alone where the crew serves another
 * caller, where no thread can be had, and in a child of fork(), which has none. Does not know what the work is.
 */
#ifndef CLIENT_LIB_CREW_H
#define CLIENT_LIB_CREW_H

#include <stddef.h>
#include <stdint.h>

#define CREW_THREADS_MAX 16u

typedef struct Crew Crew;

/* 0, or a negative errno. It ends the work: pieces that nobody has begun are left out. Any thread, several at once. */
typedef int (*CrewPieceFn)(void *userdata, size_t piece);

/* @n_threads: 1 to CREW_THREADS_MAX; more count as that many. 0 or a negative errno. */
int crew_new(uint32_t n_threads, Crew **ret);
/* Joins the threads. Not while a crew_run() goes on. In a child of fork() too. NULL is legal. Returns NULL. */
Crew *crew_free(Crew *crew);

/*
 * All of [0, @n_pieces), each once, in no order; returns when the last has ended. 0, or the error of one of those that
 * failed. Any number of threads may call at once.
 */
int crew_run(Crew *crew, CrewPieceFn run, void *userdata, size_t n_pieces);

/* How many threads there are now. */
uint32_t crew_count_threads(Crew *crew);

#endif
