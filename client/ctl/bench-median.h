/* SPDX-License-Identifier: Apache-2.0 */
/* One figure of many. Both sort the values they are given. */
#ifndef CTL_BENCH_MEDIAN_H
#define CTL_BENCH_MEDIAN_H

#include <stddef.h>

/* 0 where there are none. */
double bench_median(double *values, size_t n_values);

/* How far the quartiles lie apart, as a share of the median; 0 for fewer than two, or a median that is not above 0. */
double bench_spread(double *values, size_t n_values);

#endif
