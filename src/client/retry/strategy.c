/* The strategy that comes with the library, its two backoffs, and what a strategy may ask of a request. */
#include "base/clock.h"
#include "client/retry/retry.h"

static const int64_t controlled_ms[] = {1, 10, 50, 100, 500, 1000};
#define CONTROLLED_COUNT (sizeof(controlled_ms) / sizeof(controlled_ms[0]))

#define DOUBLING_MAX_MS 500
#define DOUBLING_STEPS 10 /* the tenth doubling would be over the maximum */

int64_t lh_controlled_backoff_us(void *arg, uint32_t failures)
{
    size_t step = failures > 0 ? failures - 1 : 0;
    return controlled_ms[step < CONTROLLED_COUNT ? step : CONTROLLED_COUNT - 1] * LH_US_PER_MS;
}

int64_t lh_best_effort_backoff_us(void *arg, uint32_t failures)
{
    unsigned doublings = failures > 0 ? failures - 1 : 0;
    return (doublings < DOUBLING_STEPS - 1 ? INT64_C(1) << doublings : DOUBLING_MAX_MS) * LH_US_PER_MS;
}

int64_t lh_best_effort(const struct lh_strategy *strategy, const struct lh_request *request,
                       enum lh_retry_reason reason)
{
    if (reason == LH_RETRY_LEASE_HELD)
        return LH_RETRY_REFUSE;
    if (!lh_request_is_idempotent(request) && !lh_retry_reason_allows_non_idempotent(reason))
        return LH_RETRY_REFUSE;
    if (strategy != NULL && strategy->backoff != NULL)
        return strategy->backoff(strategy->arg, lh_request_failures(request));
    return lh_best_effort_backoff_us(NULL, lh_request_failures(request));
}

/* The retry is a request's first member. */
static const struct retry *retry_of(const struct lh_request *request)
{
    return (const struct retry *)request;
}

const char *lh_request_verb(const struct lh_request *request)
{
    return retry_of(request)->verb;
}

uint64_t lh_request_id(const struct lh_request *request)
{
    return retry_of(request)->id;
}

bool lh_request_is_idempotent(const struct lh_request *request)
{
    return retry_of(request)->is_idempotent;
}

uint32_t lh_request_attempts(const struct lh_request *request)
{
    return retry_of(request)->attempts;
}

uint32_t lh_request_failures(const struct lh_request *request)
{
    return retry_of(request)->failures;
}

uint32_t lh_request_reasons(const struct lh_request *request)
{
    return retry_of(request)->reasons;
}

int64_t lh_request_retry_after_us(const struct lh_request *request)
{
    return retry_of(request)->retry_after_us;
}

void *lh_request_arg(const struct lh_request *request)
{
    return retry_of(request)->arg;
}
