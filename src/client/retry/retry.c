#include "client/retry_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* A server that blocked for that long did its part: the request goes on, it does not begin to fail. */
#define BLOCKED_ENOUGH_US LH_US_PER_S
#define UNANSWERED INT64_MIN

static int64_t now_us(const struct retry *retry)
{
    const struct retry_port *port = &retry->retrier->port;
    return port->now_us(port->arg);
}

static int64_t left_us(const struct retry *retry)
{
    int64_t left;

    if (retry->deadline_us == LH_FOREVER)
        return LH_FOREVER;
    left = retry->deadline_us - now_us(retry);
    return left > 0 ? left : 0;
}

int64_t lh_request_remaining_us(const struct lh_request *request)
{
    return left_us((const struct retry *)request);
}

static bool is_same(const struct lh_table_entry *entry, const void *key)
{
    return LH_CONTAINER(struct retry, entry, entry)->id == *(const uint64_t *)key;
}

static uint64_t hash_of(uint64_t id)
{
    return id * UINT64_C(0x9e3779b97f4a7c15);
}

void lh_retrier_init(struct retrier *retrier, const struct retry_port *port)
{
    memset(retrier, 0, sizeof(*retrier));
    retrier->port = *port;
    retrier->limit = RETRY_LIMIT_DEFAULT;
    lh_table_init(&retrier->undecided, is_same);
}

void lh_retrier_finish(struct retrier *retrier)
{
    assert(retrier->count == 0);
    lh_table_finish(&retrier->undecided);
}

void lh_retry_init(struct retry *retry, struct retrier *retrier, bool is_idempotent, int64_t deadline_us,
                   retry_verdict_cb *on_verdict)
{
    memset(retry, 0, sizeof(*retry));
    retry->retrier = retrier;
    retry->on_verdict = on_verdict;
    retry->id = ++retrier->last_id;
    retry->is_idempotent = is_idempotent;
    retry->deadline_us = deadline_us;
    retry->last_reason = RETRY_NO_REASON;
    retry->verb = "request";
}

/* One sentence for each retry and each refusal. */
static void log_step(const struct retry *retry, enum lh_log_level level, const char *what, const char *message)
{
    char reasons[RETRY_REASONS_TEXT_BYTES];

    if (level < lh_log_level())
        return;
    lh_retry_reasons_format(retry->reasons, reasons);
    lh_log(level, "%s%s%s %s request=%llu attempts=%u reason=%s reasons=%s%s%s", retry->verb,
           retry->name != NULL ? " of " : "", retry->name != NULL ? retry->name : "", what,
           (unsigned long long)retry->id, retry->attempts,
           lh_retry_reason_name((enum lh_retry_reason)retry->last_reason), reasons, message != NULL ? ": " : "",
           message != NULL ? message : "");
}

static enum retry_answer refuse(struct retry *retry, enum retry_answer answer, const char *why, const char *message)
{
    retry->retrier->refusals++;
    log_step(retry, LH_LOG_INFO, why, message);
    return answer;
}

static void enter(struct retry *retry, enum retry_state state, enum retry_verdict verdict, int64_t at_us)
{
    struct retrier *retrier = retry->retrier;

    if (retry->state == RETRY_IDLE)
        retrier->count++;
    if (retry->state == RETRY_UNDECIDED)
        lh_table_remove(&retrier->undecided, &retry->entry);
    if (state == RETRY_UNDECIDED)
        lh_table_insert(&retrier->undecided, &retry->entry, hash_of(retry->id));
    retry->state = state;
    retry->verdict = verdict;
    retry->at_us = at_us;
    retrier->port.arm(retrier->port.arg, retry, at_us);
}

static void leave(struct retry *retry)
{
    if (retry->state == RETRY_UNDECIDED)
        lh_table_remove(&retry->retrier->undecided, &retry->entry);
    retry->retrier->count--;
    retry->state = RETRY_IDLE;
}

/* The delay is cut to what is left; when it was, the request will not be sent at its end. */
static void schedule(struct retry *retry, int64_t delay_us, const char *message)
{
    int64_t now = now_us(retry);
    int64_t left = left_us(retry);
    bool is_cut = left != LH_FOREVER && delay_us >= left;
    char what[64];

    if (is_cut)
        delay_us = left;
    if (delay_us > LH_FOREVER - 1 - now)
        delay_us = LH_FOREVER - 1 - now;
    snprintf(what, sizeof(what), "%s in %lld.%03d ms", is_cut ? "fails at its timeout," : "is tried again",
             (long long)(delay_us / LH_US_PER_MS), (int)(delay_us % LH_US_PER_MS));
    log_step(retry, LH_LOG_INFO, what, message);
    if (is_cut)
        retry->retrier->refusals++;
    else
        retry->retrier->retries++;
    enter(retry, RETRY_DECIDED, is_cut ? RETRY_TIMED_OUT : RETRY_AGAIN, now + delay_us);
}

static void count_up(uint32_t *counter)
{
    if (*counter < UINT32_MAX)
        (*counter)++;
}

static int64_t always_delay_us(struct retry *retry, const struct retry_failure *failure)
{
    if (failure->reason == LH_RETRY_BLOCKING_TIMEOUT) {
        retry->failures = 0;
        if (failure->blocked_us >= BLOCKED_ENOUGH_US) {
            retry->controlled = 0;
            return 0;
        }
    }
    count_up(&retry->controlled);
    return lh_controlled_backoff_us(NULL, retry->controlled);
}

static int64_t ask_strategy(struct retry *retry, enum lh_retry_reason reason)
{
    struct retrier *retrier = retry->retrier;
    struct retry *before = retrier->asking;
    struct lh_strategy strategy = retry->strategy;
    int64_t delay_us;

    if (strategy.decide == NULL && strategy.backoff == NULL)
        strategy = retrier->strategy;
    if (strategy.decide == NULL)
        strategy.decide = lh_best_effort;
    count_up(&retry->failures);
    retry->state = RETRY_ASKING;
    retry->answer_us = UNANSWERED;
    retrier->asking = retry;
    delay_us = strategy.decide(&strategy, (const struct lh_request *)retry, reason);
    retrier->asking = before;
    retry->state = RETRY_IDLE;
    if (delay_us == LH_RETRY_DEFER && retry->answer_us != UNANSWERED)
        delay_us = retry->answer_us;
    return delay_us;
}

static enum retry_answer by_strategy(struct retry *retry, const struct retry_failure *failure)
{
    int64_t delay_us = ask_strategy(retry, (enum lh_retry_reason)failure->reason);

    if (delay_us == LH_RETRY_DEFER) {
        log_step(retry, LH_LOG_DEBUG, "waits for its strategy", failure->message);
        enter(retry, RETRY_UNDECIDED, RETRY_TIMED_OUT, retry->deadline_us);
        return RETRY_LATER;
    }
    if (delay_us < 0)
        return refuse(retry, RETRY_REFUSED, "is not tried again: the strategy refused", failure->message);
    schedule(retry, delay_us, failure->message);
    return RETRY_LATER;
}

enum retry_answer lh_retry_consider(struct retry *retry, const struct retry_failure *failure)
{
    struct retrier *retrier = retry->retrier;
    bool is_always;
    int64_t delay_us = 1;

    assert(retry->state == RETRY_IDLE);
    count_up(&retry->attempts);
    retry->last_reason = (uint8_t)(failure->reason < RETRY_NO_REASON ? failure->reason : RETRY_NO_REASON);
    retry->retry_after_us = failure->retry_after_us;
    if (retry->last_reason == RETRY_NO_REASON)
        return RETRY_REFUSED;
    retry->reasons |= 1u << retry->last_reason;
    if (left_us(retry) == 0)
        return refuse(retry, RETRY_EXPIRED, "is not tried again: its time has passed", failure->message);
    is_always = lh_retry_reason_is_always((enum lh_retry_reason)failure->reason);
    if (is_always)
        delay_us = always_delay_us(retry, failure);
    /* What goes on at once does not wait in here. */
    if (delay_us > 0 && retrier->count >= retrier->limit)
        return refuse(retry, RETRY_LIMITED, "is not tried again: too many requests wait for that", failure->message);
    if (!is_always)
        return by_strategy(retry, failure);
    schedule(retry, delay_us, failure->message);
    return RETRY_LATER;
}

bool lh_retrier_decide(struct retrier *retrier, uint64_t id, int64_t delay_us)
{
    struct lh_table_entry *entry;
    struct retry *retry;

    if (delay_us == LH_RETRY_DEFER)
        return false;
    if (retrier->asking != NULL && retrier->asking->id == id) {
        if (retrier->asking->answer_us != UNANSWERED)
            return false;
        retrier->asking->answer_us = delay_us;
        return true;
    }
    entry = lh_table_find(&retrier->undecided, hash_of(id), &id);
    if (entry == NULL)
        return false;
    retry = LH_CONTAINER(struct retry, entry, entry);
    if (delay_us < 0) {
        refuse(retry, RETRY_REFUSED, "is not tried again: the strategy refused", NULL);
        enter(retry, RETRY_DECIDED, RETRY_DECLINED, now_us(retry));
    } else {
        schedule(retry, delay_us, NULL);
    }
    return true;
}

void lh_retry_on_due(struct retry *retry)
{
    enum retry_verdict verdict = (enum retry_verdict)retry->verdict;

    if (retry->state != RETRY_UNDECIDED && retry->state != RETRY_DECIDED)
        return;
    if (now_us(retry) < retry->at_us) {
        retry->retrier->port.arm(retry->retrier->port.arg, retry, retry->at_us);
        return;
    }
    if (retry->state == RETRY_UNDECIDED)
        refuse(retry, RETRY_EXPIRED, "is not tried again: its time passed before its strategy answered", NULL);
    leave(retry);
    retry->on_verdict(retry, verdict);
}

void lh_retry_stop(struct retry *retry)
{
    if (retry->state == RETRY_IDLE)
        return;
    retry->retrier->port.arm(retry->retrier->port.arg, retry, LH_FOREVER);
    leave(retry);
}

/* --- strategies --- */

/* The strategy that comes with the library, its two backoffs, and what a strategy may ask of a request. */
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
