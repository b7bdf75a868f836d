/* The last hour of this daemon, a sample each LH_SAMPLE_PERIOD_US, for the console's graphs. */
#ifndef LH_SERVICE_METHODS_SAMPLES_H
#define LH_SERVICE_METHODS_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"

struct lh_coordinator_stats;

#define LH_SAMPLES_MAX 360
#define LH_SAMPLE_PERIOD_US INT64_C(10000000)

struct lh_sample {
    int64_t grants; /* in its period */
    int64_t renewals;
    int64_t waiters;        /* at its end */
    int64_t latency_p50_us; /* batches of acquires in its period; 0: no batch */
    int64_t latency_p99_us;
};

/* Zero-initialised it is empty. */
struct lh_samples {
    struct lh_sample ring[LH_SAMPLES_MAX];
    /* Samples ever taken; the newest is at (count - 1) % LH_SAMPLES_MAX. */
    size_t count;
    int64_t begun_us; /* start of the current period, on our clock; 0: not begun */
    uint64_t grants;  /* the counters at that time */
    uint64_t renewals;
    struct lh_histogram batches;
};

/* Takes a sample when the period is over. Call it more often than once in a period. */
void lh_samples_tick(struct lh_samples *samples, const struct lh_coordinator_stats *stats, int64_t now_us);
/* Return the number of samples, and the sample at `index`, the oldest first. */
size_t lh_samples_count(const struct lh_samples *samples);
const struct lh_sample *lh_samples_at(const struct lh_samples *samples, size_t index);

#endif
