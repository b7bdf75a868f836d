/*
 * Retries on a virtual clock: what comes of each stage, code and reason for each kind of request under each kind of
 * strategy; how long each delay is, to the microsecond; and circuit breakers.
 */
#include "test_retry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "run_tests.h"

int64_t clock_us;
struct retrier retrier;
char log_text[64 * 1024];
size_t log_lines;

static int64_t virtual_now_us(void *arg)
{
    return clock_us;
}

static void arm(void *arg, struct retry *retry, int64_t at_us)
{
    ((struct lh_request *)(void *)retry)->armed_at_us = at_us;
}

static void on_verdict(struct retry *retry, enum retry_verdict verdict)
{
    struct lh_request *request = (void *)retry;

    request->verdicts++;
    request->verdict = verdict;
    request->verdict_at_us = clock_us;
}

static void on_line(void *arg, enum lh_log_level level, const char *line)
{
    size_t used = strlen(log_text);

    log_lines++;
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

void retry_setup(void)
{
    static const struct retry_port port = {.now_us = virtual_now_us, .arm = arm};

    clock_us = START_US;
    log_text[0] = '\0';
    log_lines = 0;
    lh_log_set_sink(on_line, NULL);
    lh_retrier_init(&retrier, &port);
}

void retry_teardown(void)
{
    lh_retrier_finish(&retrier);
    lh_log_set_sink(NULL, NULL);
}

void begin(struct lh_request *request, bool is_idempotent, int64_t timeout_us)
{
    int64_t deadline_us = timeout_us == LH_FOREVER ? LH_FOREVER : clock_us + timeout_us;

    memset(request, 0, sizeof(*request));
    lh_retry_init(&request->retry, &retrier, is_idempotent, deadline_us, on_verdict);
    request->retry.verb = "Acquire";
    request->retry.name = "db/7";
    request->armed_at_us = LH_FOREVER;
}

enum retry_answer failed_for(struct lh_request *request, unsigned reason)
{
    return lh_retry_consider(&request->retry, &(struct retry_failure){.reason = reason, .message = "no luck"});
}

int64_t wait_for_timer(struct lh_request *request)
{
    int64_t from_us = clock_us;

    ck_assert_int_ne(request->armed_at_us, LH_FOREVER);
    ck_assert_int_ge(request->armed_at_us, clock_us);
    clock_us = request->armed_at_us;
    request->armed_at_us = LH_FOREVER;
    lh_retry_on_due(&request->retry);
    return clock_us - from_us;
}

enum retry_answer fail_blocked(struct lh_request *request, int64_t blocked_us)
{
    return lh_retry_consider(&request->retry,
                             &(struct retry_failure){.reason = LH_RETRY_BLOCKING_TIMEOUT, .blocked_us = blocked_us});
}

/* --- strategies of all kinds --- */

static int64_t fail_fast(const struct lh_strategy *strategy, const struct lh_request *request,
                         enum lh_retry_reason reason)
{
    return LH_RETRY_REFUSE;
}

static int64_t even_when_held(const struct lh_strategy *strategy, const struct lh_request *request,
                              enum lh_retry_reason reason)
{
    return reason == LH_RETRY_LEASE_HELD ? 7 * MS : lh_best_effort(strategy, request, reason);
}

static int64_t later(const struct lh_strategy *strategy, const struct lh_request *request, enum lh_retry_reason reason)
{
    return LH_RETRY_DEFER;
}

static int64_t three_ms_each(void *arg, uint32_t failures)
{
    return 3 * MS * failures;
}

const struct lh_strategy strategies[STRATEGY_COUNT] = {
    [BEST_EFFORT] = {0},
    [CALCULATED] = {.backoff = three_ms_each},
    [FAIL_FAST] = {.decide = fail_fast},
    [EVEN_WHEN_HELD] = {.decide = even_when_held},
    [NEVER_ANSWERS] = {.decide = later},
};

int main(void)
{
    Suite *suite = suite_create("retry");

    suite_add_tcase(suite, tcase_retry_matrix());
    suite_add_tcase(suite, tcase_retry_delays());
    suite_add_tcase(suite, tcase_retry_decisions());
    suite_add_tcase(suite, tcase_retry_breakers());
    return run_tests(suite, CK_FORK_GETENV);
}
