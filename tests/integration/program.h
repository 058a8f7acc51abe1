/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other ways to start a program than foliod_start(): to its end with what it says, or a foliod in a world that lacks
 * something. The latter goes through the launcher (launch.c), which takes the world away and then becomes foliod.
 */
#ifndef TESTS_INTEGRATION_PROGRAM_H
#define TESTS_INTEGRATION_PROGRAM_H

#include "tests/integration/harness.h"

/*
 * Runs to the end, 30 s at most, with stdout and stderr together in @ret_output (NUL-terminated, cut off). Return: the
 * exit status, 128 + the signal, or -1 where it had to be killed.
 */
int program_run(char *const argv[], char *ret_output, size_t n_output);

/* foliod on @socket_path with @world (see launch.c; NULL: none) and further options, run to its end as above. */
int program_run_foliod(const char *world, const char *socket_path, char *ret_output, size_t n_output,
                       const char *option, ...) __attribute__((sentinel));

/* From now on foliod_start() starts in this world; NULL: in the real one again. */
void program_set_world(const char *world);

/* A directory of our own, removed with what is in it by program_remove_directory(). */
void program_make_directory(char ret_path[64]);
void program_remove_directory(const char *path);

/* A memory cgroup with a limit, for a foliod to start in: world "cgroup=PATH". False: none can be made here. */
bool program_make_cgroup(uint64_t limit_bytes, char ret_path[96]);
void program_remove_cgroup(const char *path);

#endif
