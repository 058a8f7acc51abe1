/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory there is for this process: the machine's, and what its cgroup lets it have. Reads /proc and the
 * cgroup file system, of version 1 and 2, below @root ("" but in tests).
 */
#ifndef DAEMON_SERVICE_HOSTMEM_H
#define DAEMON_SERVICE_HOSTMEM_H

#include <stdbool.h>
#include <stdint.h>

/* MemTotal; 0 where it cannot be read. */
uint64_t hostmem_total_bytes(const char *root);

/*
 * The least limit of this process's cgroup and of those above it; UINT64_MAX where there is none. @ret_file: the file
 * that says so, to be freed; NULL where there is none.
 */
uint64_t hostmem_cgroup_limit_bytes(const char *root, char **ret_file);

/*
 * Of the same cgroups the one with the least left: its limit, and what is taken of it, without the pages of files on
 * disk, which the kernel takes back by itself. False: none has a limit.
 */
bool hostmem_cgroup_room(const char *root, uint64_t *ret_limit_bytes, uint64_t *ret_used_bytes);

#endif
