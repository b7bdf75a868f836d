/* Retries: reasons and strategies. Part of leasehold.h, which includes it. */
#ifndef LEASEHOLD_RETRY_H
#define LEASEHOLD_RETRY_H

#include "leasehold.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- 7. Retries --------------------------------------------------------------------------------------------------- */

/*
 * A request makes one or more attempts. An attempt fails for a reason, and a strategy decides whether and when another
 * one follows:
 *
 *   reason                                 also if not idempotent   always   at which endpoint
 *   UNKNOWN                                no                       no       the same
 *   SOCKET_NOT_AVAILABLE                   yes                      no       the next
 *   ENDPOINT_NOT_AVAILABLE                 yes                      no       the next
 *   SOCKET_CLOSED_WHILE_IN_FLIGHT          no                       no       the next
 *   CIRCUIT_BREAKER_OPEN                   yes                      no       the next
 *   BLOCKING_TIMEOUT                       yes                      yes      the same
 *   SHUTTING_DOWN                          yes                      yes      the next
 *   DATABASE_UNAVAILABLE, OVERLOADED       yes                      no       the next
 *   SCOPE_BUSY, OUTCOME_RETRY              yes                      no       the same
 *   LEASE_HELD                             yes                      no       the same
 *   RETRY_INFO                             yes                      no       the same
 *
 * A reason marked "always" is retried without the strategy, by the controlled backoff: 1, 10, 50, 100, 500, then
 * 1000 ms. After BLOCKING_TIMEOUT the request goes on at once with what is left of its wait, if the server blocked for
 * 1 s or more, and its count of failures begins anew. The default strategy, best effort, retries an idempotent request
 * for every reason, and another one for the reasons marked "yes". It never retries LEASE_HELD, which is an outcome.
 * RETRY_INFO means an unknown reason with a google.rpc.RetryInfo: the strategy decides, not the server's delay. A delay
 * never exceeds what is left of the request's time; a request whose delay was cut fails unsent (LH_TIMED_OUT). Every
 * retry and every refusal is logged at LH_LOG_INFO, with all reasons so far. Acquire, heartbeat, downgrade and release
 * are idempotent by their lease key.
 *
 * The table shows what follows from each gRPC code and each reason of the server, by how far the attempt had come. A
 * dash: impossible. A name of section 1: the final status of the request. Any other name: that retry reason.
 *
 *   code              reason given           before sending         in flight, no answer   answered
 *   0 OK              -                      -                      -                      done; of its items:
 *                     item OUTCOME_RETRY     -                      -                      OUTCOME_RETRY
 *                     item OUTCOME_LOST      -                      -                      LH_LOST
 *                     item OUTCOME_REJECTED  -                      -                      LH_HOOK_REJECTED
 *                     item OUTCOME_INVALID   -                      -                      LH_INVALID_ARGUMENT
 *                     item OUTCOME_DENIED    -                      -                      LH_ACCESS_DENIED
 *   1 CANCELLED       by the caller          LH_CANCELED            LH_CANCELED            -
 *                     by a proxy or server   -                      SOCKET_CLOSED_...      LH_UNAVAILABLE
 *   2 UNKNOWN         none                   SOCKET_NOT_AVAILABLE   UNKNOWN                UNKNOWN
 *   3 INVALID_ARGUMENT  the same             -                      -                      LH_INVALID_ARGUMENT
 *   4 DEADLINE_EXCEEDED none                 LH_TIMED_OUT           LH_TIMED_OUT           LH_TIMED_OUT
 *                     cut short to ask       SOCKET_NOT_AVAILABLE   SOCKET_CLOSED_...      -
 *                       the next endpoint
 *                     WAIT_TIMEOUT           -                      -                      LH_WAIT_TIMEOUT
 *   5 NOT_FOUND       NOT_HELD               -                      -                      LH_NOT_HELD
 *   6 ALREADY_EXISTS  none                   -                      -                      LH_INTERNAL
 *   7 PERMISSION_DENIED ACCESS_DENIED        -                      -                      LH_ACCESS_DENIED
 *   8 RESOURCE_EXHAUSTED QUOTA_EXCEEDED      -                      -                      LH_QUOTA_EXCEEDED
 *                     OVERLOADED             LH_OVERLOADED (ours)   -                      OVERLOADED
 *                     MESSAGE_TOO_LARGE      -                      -                      LH_MESSAGE_TOO_LARGE
 *                     none                   -                      UNKNOWN                LH_OVERLOADED
 *   9 FAILED_PRECONDITION NAMESPACE_FROZEN, HOOK_REJECTED, LEASE_ENDED: -   -              the same
 *   10 ABORTED        LEASE_HELD             -                      -                      LEASE_HELD
 *                     SCOPE_BUSY             -                      -                      SCOPE_BUSY
 *                     BLOCKING_TIMEOUT       -                      -                      BLOCKING_TIMEOUT
 *                     WATCH_LAGGED, none     -                      -                      LH_WATCH_LAGGED, LH_INTERNAL
 *   11 OUT_OF_RANGE   none                   -                      -                      LH_INTERNAL
 *   12 UNIMPLEMENTED  none                   -                      -                      LH_UNIMPLEMENTED
 *   13 INTERNAL       INTERNAL, none         -                      UNKNOWN (broken stream) LH_INTERNAL
 *   14 UNAVAILABLE    DATABASE_UNAVAILABLE   -                      -                      DATABASE_UNAVAILABLE
 *                     SHUTTING_DOWN          -                      -                      SHUTTING_DOWN
 *                     none                   SOCKET_NOT_AVAILABLE   SOCKET_CLOSED_...      UNKNOWN (a proxy's)
 *   15 DATA_LOSS      none                   -                      -                      LH_INTERNAL
 *   16 UNAUTHENTICATED the same              LH_UNAUTHENTICATED     -                      LH_UNAUTHENTICATED
 *                                            (a certificate)
 *   any               unknown, + RetryInfo   -                      -                      RETRY_INFO
 *   no endpoint can be asked                 ENDPOINT_NOT_AVAILABLE -                      -
 *   the circuit of all that can is open      CIRCUIT_BREAKER_OPEN   -                      -
 *
 * "Before sending" includes calls that the server says it did not process (GOAWAY, REFUSED_STREAM). When the strategy
 * refuses, the request ends with the status of the reason's name, or with LH_UNAVAILABLE if there is no such status.
 */
enum lh_retry_reason {
    LH_RETRY_UNKNOWN,
    LH_RETRY_SOCKET_NOT_AVAILABLE,
    LH_RETRY_ENDPOINT_NOT_AVAILABLE,
    LH_RETRY_SOCKET_CLOSED_WHILE_IN_FLIGHT,
    LH_RETRY_CIRCUIT_BREAKER_OPEN,
    LH_RETRY_BLOCKING_TIMEOUT,
    LH_RETRY_SHUTTING_DOWN,
    LH_RETRY_DATABASE_UNAVAILABLE,
    LH_RETRY_OVERLOADED,
    LH_RETRY_SCOPE_BUSY,
    LH_RETRY_OUTCOME_RETRY,
    LH_RETRY_LEASE_HELD,
    LH_RETRY_RETRY_INFO,
};
#define LH_RETRY_REASON_COUNT 13

const char *lh_retry_reason_name(enum lh_retry_reason reason);           /* "SCOPE_BUSY" */
bool lh_retry_reason_allows_non_idempotent(enum lh_retry_reason reason); /* the table's two properties */
bool lh_retry_reason_is_always(enum lh_retry_reason reason);

/* Facts about a request, for a strategy inside of `decide`. */
const char *lh_request_verb(const struct lh_request *request); /* "Acquire" */
/* The id that lh_retry_decide takes; unique within its client. */
uint64_t lh_request_id(const struct lh_request *request);
bool lh_request_is_idempotent(const struct lh_request *request);
uint32_t lh_request_attempts(const struct lh_request *request); /* so far, including the failed one */
/* Failed attempts that the backoff counts: from 1 on. */
uint32_t lh_request_failures(const struct lh_request *request);
uint32_t lh_request_reasons(const struct lh_request *request);       /* reasons so far: bit 1 << enum lh_retry_reason */
int64_t lh_request_remaining_us(const struct lh_request *request);   /* the rest of its time; LH_FOREVER: no limit */
int64_t lh_request_retry_after_us(const struct lh_request *request); /* the server's RetryInfo; 0: none */
void *lh_request_arg(const struct lh_request *request);              /* strategy_arg of its options */

/*
 * A strategy. The client calls `decide` on its thread after an attempt failed for `reason`. It returns the delay before
 * the next attempt in microseconds; or LH_RETRY_REFUSE: the request fails; or LH_RETRY_DEFER: lh_retry_decide gives the
 * answer later, with the request's id. A request without an answer ends when its time has passed.
 * Fail fast is three lines:
 *
 *     static int64_t fail_fast(const struct lh_strategy *s, const struct lh_request *r, enum lh_retry_reason reason) {
 *         return LH_RETRY_REFUSE;
 *     }
 */
struct lh_strategy;
#define LH_RETRY_REFUSE INT64_C(-1)
#define LH_RETRY_DEFER INT64_C(-2)
typedef int64_t lh_decide_cb(const struct lh_strategy *strategy, const struct lh_request *request,
                             enum lh_retry_reason reason);
typedef int64_t lh_backoff_cb(void *arg, uint32_t failures); /* microseconds, after so many failures: from 1 on */

struct lh_strategy {
    lh_decide_cb *decide; /* NULL: lh_best_effort */
    /* Used by lh_best_effort; NULL: lh_best_effort_backoff_us. */
    lh_backoff_cb *backoff;
    void *arg; /* passed to backoff; decide may use it too */
};

/* The default `decide`; a strategy that decides some reasons itself can call it for the others. */
int64_t lh_best_effort(const struct lh_strategy *strategy, const struct lh_request *request,
                       enum lh_retry_reason reason);
int64_t lh_best_effort_backoff_us(void *arg, uint32_t failures); /* 1, 2, 4 ... 256, 500 ms; `arg` is unused */
int64_t lh_controlled_backoff_us(void *arg, uint32_t failures);  /* 1, 10, 50, 100, 500, 1000 ms; likewise */

/*
 * Gives the answer that `decide` deferred: a delay, or LH_RETRY_REFUSE. Any thread; also inside decide, before it
 * returns LH_RETRY_DEFER. A late answer (the request is over or was answered before) does nothing.
 */
void lh_retry_decide(struct lh_client *client, uint64_t request_id, int64_t delay_us);

#ifdef __cplusplus
}
#endif

#endif
