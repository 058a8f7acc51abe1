/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of page faults of this process and this thread. A page that is there after one call for many (populate) counts as
 * a fault to the kernel, but stops nobody: so the two are counted apart.
 */
#ifndef TESTS_INTEGRATION_FAULTS_H
#define TESTS_INTEGRATION_FAULTS_H

#include <stdint.h>

/* Of the process, as getrusage() has them. */
uint64_t faults_count(void);

/* A counter of how often this thread is stopped for a fault; closed by close(). -1: there is none here. */
int faults_open_stops(void);

/* 0 without a counter; UINT64_MAX where it cannot be read. */
uint64_t faults_read_stops(int fd);

#endif
