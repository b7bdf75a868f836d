/* Rows of leasehold.spread, for tests. */
#ifndef LH_TEST_SERVICE_SPREAD_H
#define LH_TEST_SERVICE_SPREAD_H

#include "lease/store.h"
#include "service/places/spread.h"

extern const char *const abc[], *const bc[], *const ab[];

struct lh_spread_row row_of(const char *section, const char *const *sections, size_t count, bool is_settled);
/* Has the slots that a settled claim gets. */
struct lh_spread_row settled(const char *section, const char *const *sections, size_t count);
/* `to` NULL: to nowhere. */
void move_all(struct lh_spread_row *from, struct lh_spread_row *to);

#endif
