/*
 * Counts of values by size, for the metrics: fixed bounds, a few comparisons and one increment for each value.
 *
 *     lh_histogram_add(&histogram, &lh_latency_bounds, now_us - begun_us);
 *
 * counts[i] are the values above bound i - 1 and up to bound i, the last of them those above every bound.
 */
#ifndef LH_BASE_HISTOGRAM_H
#define LH_BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define LH_HISTOGRAM_BOUNDS_MAX 16

struct lh_bounds {
    size_t count;
    int64_t at[LH_HISTOGRAM_BOUNDS_MAX]; /* ascending */
};

struct lh_histogram {
    uint64_t counts[LH_HISTOGRAM_BOUNDS_MAX + 1];
    uint64_t sum;
};

extern const struct lh_bounds lh_latency_bounds; /* microseconds, from half a millisecond to a minute */
extern const struct lh_bounds lh_size_bounds;    /* items of a batch */

/* A negative value counts as 0. */
static inline void lh_histogram_add(struct lh_histogram *histogram, const struct lh_bounds *bounds, int64_t value)
{
    size_t i = 0;

    if (value < 0)
        value = 0;
    while (i < bounds->count && value > bounds->at[i])
        i++;
    histogram->counts[i]++;
    histogram->sum += (uint64_t)value;
}

#endif
