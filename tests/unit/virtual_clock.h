/*
 * Time for tests of what runs on a loop: it stands still while anything is going on, and jumps to the next timer when
 * nothing is. So a test that waits for seconds takes none, and a slow machine changes nothing.
 *
 *     virtual_clock_begin();
 *     while (!is_done)
 *         virtual_clock_turn(loop);
 *
 * The program is linked with --wrap for lh_clock_us and timerfd_settime. For one thread; without virtual_clock_begin
 * time is the machine's, and a turn waits for a millisecond.
 */
#ifndef LH_TEST_VIRTUAL_CLOCK_H
#define LH_TEST_VIRTUAL_CLOCK_H

#include "loop/loop.h"

void virtual_clock_begin(void);
void virtual_clock_end(void);

/* One turn of the loop; then, if nothing is on its way, time jumps. */
void virtual_clock_turn(struct lh_loop *loop);

/* Some time passes at once; timers that it makes due wait for a turn. */
void virtual_clock_pass(int64_t time_us);

#endif
