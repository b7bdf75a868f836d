#include "lease/turn.h"

int64_t lh_time_add(int64_t a_us, int64_t b_us)
{
    int64_t sum_us;
    return __builtin_add_overflow(a_us, b_us, &sum_us) ? LH_NEVER : sum_us;
}

int64_t lh_turn_jitter(struct lh_coordinator *c, int64_t value_us, int percent)
{
    int64_t span_us = value_us / 100 * percent;
    if (span_us <= 0)
        return value_us;
    return value_us - span_us + (int64_t)(c->port.random(c->port.arg) % (uint64_t)(2 * span_us + 1));
}

bool lh_turn_is_behind(const struct lh_coordinator *c)
{
    return c->port.is_behind != NULL && c->port.is_behind(c->port.arg);
}
