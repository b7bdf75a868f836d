#include "cli/run_schedule.h"

#include "base/clock.h"

#define MARGIN_MAX_US LH_US_PER_S

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct lh_run_schedule lh_run_schedule_of(int64_t duration_us, int64_t kill_after_us)
{
    struct lh_run_schedule schedule = {
        .grace_us = least(kill_after_us, duration_us / 3),
        .margin_us = least(duration_us / 10, MARGIN_MAX_US),
    };

    if (schedule.grace_us < 2 * schedule.margin_us)
        schedule.grace_us = 2 * schedule.margin_us;
    return schedule;
}

int64_t lh_run_term_at_us(const struct lh_run_schedule *schedule, int64_t deadline_us)
{
    return deadline_us - schedule->grace_us;
}

int64_t lh_run_kill_at_us(const struct lh_run_schedule *schedule, int64_t now_us, int64_t deadline_us)
{
    return least(now_us + schedule->grace_us, deadline_us - schedule->margin_us);
}
