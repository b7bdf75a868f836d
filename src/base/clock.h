/* Time. Everything is in microseconds; names end in _us. */
#ifndef LH_BASE_CLOCK_H
#define LH_BASE_CLOCK_H

#include <stdint.h>

#define LH_US_PER_MS INT64_C(1000)
#define LH_US_PER_S INT64_C(1000000)

/* CLOCK_BOOTTIME: never steps, and runs while the machine is suspended. The clock for every deadline. */
int64_t lh_clock_us(void);

/* CLOCK_REALTIME since the Unix epoch: for logs and for people only. */
int64_t lh_clock_wall_us(void);

#endif
