#include "samples.h"

#include <stdlib.h>

#include "base/memory.h"

void samples_add(struct samples *samples, int64_t us)
{
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity == 0 ? 65536 : samples->capacity * 2;
        samples->us = lh_realloc(samples->us, samples->capacity, sizeof(*samples->us));
    }
    samples->us[samples->count++] = us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void samples_sort(struct samples *samples)
{
    if (samples->count > 0)
        qsort(samples->us, samples->count, sizeof(*samples->us), compare);
}

double samples_quantile_ms(const struct samples *samples, double q)
{
    if (samples->count == 0)
        return 0;
    return (double)samples->us[(size_t)((double)(samples->count - 1) * q)] / 1000.0;
}

void samples_finish(struct samples *samples)
{
    free(samples->us);
    samples->us = NULL;
    samples->count = samples->capacity = 0;
}
