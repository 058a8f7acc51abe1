/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-median.h. */
#include "client/ctl/bench-median.h"

#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

/* Between the two nearest, where it falls between them. */
static double quantile(const double *sorted, size_t n_values, double share)
{
        double place = share * (double)(n_values - 1);
        size_t below = (size_t)place;

        if (below + 1 >= n_values)
                return sorted[n_values - 1];
        return sorted[below] + (sorted[below + 1] - sorted[below]) * (place - (double)below);
}

double bench_median(double *values, size_t n_values)
{
        if (n_values == 0)
                return 0;
        qsort(values, n_values, sizeof(*values), compare_doubles);
        return quantile(values, n_values, 0.5);
}

double bench_spread(double *values, size_t n_values)
{
        double median = bench_median(values, n_values);

        if (n_values < 2 || median <= 0)
                return 0;
        return (quantile(values, n_values, 0.75) - quantile(values, n_values, 0.25)) / median;
}
