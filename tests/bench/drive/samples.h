/* Latencies of a run, in microseconds, all of them kept: quantiles are exact. */
#ifndef LH_BENCH_SAMPLES_H
#define LH_BENCH_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

struct samples {
    uint32_t *us;
    size_t count, capacity;
};

void samples_add(struct samples *samples, int64_t us);
void samples_sort(struct samples *samples);
/* Of sorted ones; 0 when there are none. */
double samples_quantile_ms(const struct samples *samples, double q);
void samples_finish(struct samples *samples);

#endif
