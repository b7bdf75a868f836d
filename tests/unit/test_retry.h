/*
 * What the suites of test_retry share: requests on a virtual clock, whose verdicts and timers are noted, and strategies
 * of all kinds.
 */
#ifndef LH_TEST_RETRY_H
#define LH_TEST_RETRY_H

#include <check.h>

#include "base/clock.h"
#include "client/retry_internal.h"

#define MS LH_US_PER_MS
#define START_US (1000 * LH_US_PER_S)
#define ATTEMPTS_MAX 100

struct lh_request {
    struct retry retry;
    int64_t armed_at_us; /* LH_FOREVER: not */
    unsigned verdicts;
    enum retry_verdict verdict;
    int64_t verdict_at_us;
};

extern int64_t clock_us;
extern struct retrier retrier;
extern char log_text[64 * 1024];
extern size_t log_lines;

void retry_setup(void);
void retry_teardown(void);
void begin(struct lh_request *request, bool is_idempotent, int64_t timeout_us);
enum retry_answer failed_for(struct lh_request *request, unsigned reason);
/* At the server's blocking limit. */
enum retry_answer fail_blocked(struct lh_request *request, int64_t blocked_us);
/* Lets its timer fire; how long that took. */
int64_t wait_for_timer(struct lh_request *request);

enum strategy_kind { BEST_EFFORT, CALCULATED, FAIL_FAST, EVEN_WHEN_HELD, NEVER_ANSWERS, STRATEGY_COUNT };

extern const struct lh_strategy strategies[STRATEGY_COUNT];

TCase *tcase_retry_matrix(void);
TCase *tcase_retry_delays(void);
TCase *tcase_retry_decisions(void);
TCase *tcase_retry_breakers(void);

#endif
