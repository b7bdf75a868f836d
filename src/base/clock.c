#include "base/clock.h"

#include <time.h>

static int64_t read_clock_us(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * LH_US_PER_S + now.tv_nsec / 1000;
}

int64_t lh_clock_us(void)
{
    return read_clock_us(CLOCK_BOOTTIME);
}

int64_t lh_clock_wall_us(void)
{
    return read_clock_us(CLOCK_REALTIME);
}
