#include "service/methods/samples.h"

#include "lease/coordinator.h"

/* The bound of the histogram below which that share of what was added between the two lies; 0: nothing was. */
static int64_t quantile(const struct lh_histogram *before, const struct lh_histogram *after, unsigned percent)
{
    const struct lh_bounds *bounds = &lh_latency_bounds;
    uint64_t total = 0, seen = 0;
    size_t i;

    for (i = 0; i <= bounds->count; i++)
        total += after->counts[i] - before->counts[i];
    if (total == 0)
        return 0;
    for (i = 0; i < bounds->count; i++) {
        seen += after->counts[i] - before->counts[i];
        if (seen * 100 >= total * percent)
            return bounds->at[i];
    }
    return bounds->at[bounds->count - 1];
}

static void begin(struct lh_samples *samples, const struct lh_coordinator_stats *stats, int64_t now_us)
{
    samples->begun_us = now_us;
    samples->grants = stats->grants;
    samples->renewals = stats->heartbeats;
    samples->batches = stats->batch_us[0];
}

void lh_samples_tick(struct lh_samples *samples, const struct lh_coordinator_stats *stats, int64_t now_us)
{
    struct lh_sample *sample = &samples->ring[samples->count % LH_SAMPLES_MAX];

    if (samples->begun_us != 0 && now_us - samples->begun_us < LH_SAMPLE_PERIOD_US)
        return;
    if (samples->begun_us != 0) {
        sample->grants = (int64_t)(stats->grants - samples->grants);
        sample->renewals = (int64_t)(stats->heartbeats - samples->renewals);
        sample->waiters = (int64_t)stats->waiters;
        sample->latency_p50_us = quantile(&samples->batches, &stats->batch_us[0], 50);
        sample->latency_p99_us = quantile(&samples->batches, &stats->batch_us[0], 99);
        samples->count++;
    }
    begin(samples, stats, now_us);
}

size_t lh_samples_count(const struct lh_samples *samples)
{
    return samples->count < LH_SAMPLES_MAX ? samples->count : LH_SAMPLES_MAX;
}

const struct lh_sample *lh_samples_at(const struct lh_samples *samples, size_t index)
{
    return &samples->ring[(samples->count - lh_samples_count(samples) + index) % LH_SAMPLES_MAX];
}
