#include "base/histogram.h"

#include "base/clock.h"

#define MS(n) ((n)*LH_US_PER_MS)
#define S(n) ((n)*LH_US_PER_S)

const struct lh_bounds lh_latency_bounds = {
    16,
    {500, MS(1), 2500, MS(5), MS(10), MS(25), MS(50), MS(100), MS(250), MS(500), S(1), 2500000, S(5), S(10), S(30),
     S(60)},
};

const struct lh_bounds lh_size_bounds = {10, {1, 2, 4, 8, 16, 32, 64, 128, 256, 500}};
