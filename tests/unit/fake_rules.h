/* The database of the fake world: its rules, without time or transport. */
#ifndef LH_TESTS_FAKE_RULES_H
#define LH_TESTS_FAKE_RULES_H

#include "fake_store.h"

void fake_execute(struct fake_node *node, struct fake_batch *batch);
void fake_answer_control(struct fake_node *node, const struct fake_control *control, enum lh_status status);
void fake_unregister(struct fake_node *node);
void fake_scribble(struct fake_world *world, struct fake_batch *batch); /* nothing in a lost reply may be believed */

/* A rule was broken: says so, with the seed, and ends the test. Defined by each test program. */
void fake_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
