/* Whether and when a request is tried again. */
#ifndef LH_CLIENT_RETRY_INTERNAL_H
#define LH_CLIENT_RETRY_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"
#include "base/table.h"
#include "leasehold.h"
#include "rpc/client.h"

/*
 * The reason to send a call again, from the evidence of its end. The reasons, their two properties and the whole table
 * are public (leasehold_retry.h).
 *
 *     reason = lh_retry_reason_of(&(struct retry_evidence){.stage = reply.delivery, .code = reply.code, ...});
 *     if (reason == RETRY_NO_REASON)
 *         the answer is final
 */

/* X(name, does it allow to repeat a request that is not idempotent, is it always retried, at the same endpoint) */
#define RETRY_REASON_MAP(X)                                                                                            \
    X(UNKNOWN, false, false, true)                                                                                     \
    X(SOCKET_NOT_AVAILABLE, true, false, false)                                                                        \
    X(ENDPOINT_NOT_AVAILABLE, true, false, false)                                                                      \
    X(SOCKET_CLOSED_WHILE_IN_FLIGHT, false, false, false)                                                              \
    X(CIRCUIT_BREAKER_OPEN, true, false, false)                                                                        \
    X(BLOCKING_TIMEOUT, true, true, true)                                                                              \
    X(SHUTTING_DOWN, true, true, false)                                                                                \
    X(DATABASE_UNAVAILABLE, true, false, false)                                                                        \
    X(OVERLOADED, true, false, false)                                                                                  \
    X(SCOPE_BUSY, true, false, true)                                                                                   \
    X(OUTCOME_RETRY, true, false, true)                                                                                \
    X(LEASE_HELD, true, false, true)                                                                                   \
    X(RETRY_INFO, true, false, true)

#define RETRY_NO_REASON LH_RETRY_REASON_COUNT

/* Returns true if a retry for this reason goes to the same endpoint, false: to the next one. */
bool lh_retry_reason_keeps_endpoint(unsigned reason);

/* Writes the names in a set of reasons, "SHUTTING_DOWN,UNKNOWN"; "none" for the empty one. */
#define RETRY_REASONS_TEXT_BYTES 256
void lh_retry_reasons_format(uint32_t reasons, char text[RETRY_REASONS_TEXT_BYTES]);

#define RETRY_NO_INFO (-1)

/* Evidence about a call that did not succeed. A call that the caller itself canceled is not judged. */
struct retry_evidence {
    enum lh_rpc_delivery stage;
    enum lh_grpc_code code;
    int info;            /* enum lh_status of an ErrorInfo of ours, or RETRY_NO_INFO */
    bool has_retry_info; /* google.rpc.RetryInfo came with it */
};

/* Returns an enum lh_retry_reason, or RETRY_NO_REASON. */
unsigned lh_retry_reason_of(const struct retry_evidence *evidence);

/* Returns the status of a request that ends with this evidence: the server's own if it gave one, else by code. */
enum lh_status lh_retry_status_of(const struct retry_evidence *evidence);

/*
 * The retry orchestrator: it decides about a request whose attempt failed. It has no clock, no timer and no socket of
 * its own; they are handed in, so that tests run it on a clock of theirs.
 *
 * A request that fails is considered. For a reason that is always retried the controlled backoff decides; for any other
 * the request's strategy, at once or later. A request that is to go again waits out its delay (its one timer, which the
 * port arms) and then gets RETRY_AGAIN. No delay is longer than the rest of the request's time: if the delay was cut,
 * the request is not sent again at its end but gets RETRY_TIMED_OUT, and so does one whose strategy never answered.
 *
 *     struct lh_request { struct retry retry; ... };
 *     lh_retry_init(&request->retry, &client->retrier, true, deadline_us, on_verdict);
 *     ...
 *     if (lh_retry_consider(&request->retry, &failure) != RETRY_LATER)
 *         the request fails, now
 *
 * The callback promise: RETRY_LATER, and on_verdict fires exactly once, never before lh_retry_consider returned, unless
 * lh_retry_stop comes first; any other answer, and it never fires. All of it belongs to one thread.
 */

#define RETRY_LIMIT_DEFAULT 65536

struct retry;

struct retry_port {
    int64_t (*now_us)(void *arg);
    /* Sets the request's one timer: call lh_retry_on_due at that time, never from in here. LH_FOREVER: no timer. */
    void (*arm)(void *arg, struct retry *retry, int64_t at_us);
    void *arg;
};

/* The common state of the requests of a client. */
struct retrier {
    struct retry_port port;
    struct lh_strategy strategy; /* strategy of requests without one of their own */
    size_t limit;                /* bound of requests that wait in here at once */
    size_t count;
    struct lh_table undecided; /* requests whose strategy answers later, by id */
    struct retry *asking;      /* the request inside of its strategy */
    uint64_t last_id;
    uint64_t retries; /* retries since the beginning */
    uint64_t refusals;
};

void lh_retrier_init(struct retrier *retrier, const struct retry_port *port);
void lh_retrier_finish(struct retrier *retrier); /* call it after every request was stopped */

/* Applies a deferred decision. Returns false, without effect, if the request is over or was decided already. */
bool lh_retrier_decide(struct retrier *retrier, uint64_t id, int64_t delay_us);

enum retry_answer {
    RETRY_LATER,   /* on_verdict follows */
    RETRY_REFUSED, /* refused by the strategy, or there is no reason to repeat it */
    RETRY_LIMITED, /* too many requests wait already: LH_OVERLOADED */
    RETRY_EXPIRED, /* the time of the request has passed: LH_TIMED_OUT */
};

enum retry_verdict {
    /* Send it again; lh_retry_reason_keeps_endpoint(retry->last_reason) tells to which endpoint. */
    RETRY_AGAIN,
    RETRY_TIMED_OUT, /* the rest of its time has passed: LH_TIMED_OUT */
    RETRY_DECLINED,  /* the strategy's late answer was no */
};
typedef void retry_verdict_cb(struct retry *retry, enum retry_verdict verdict);

enum retry_state {
    RETRY_IDLE,      /* not in here: under way, or over */
    RETRY_ASKING,    /* inside of the strategy */
    RETRY_UNDECIDED, /* the strategy answers later */
    RETRY_DECIDED,   /* waits for its time; the decision is in `verdict` */
};

/* The first member of a struct lh_request. After lh_retry_init the caller may set the first five. */
struct retry {
    struct lh_strategy strategy; /* decide and backoff NULL: the client's */
    void *arg;                   /* lh_request_arg */
    const char *verb;            /* verb in the log: "Acquire" */
    /* Subject in the log: "payments/invoice-42", or NULL; the caller's memory. */
    const char *name;
    int64_t deadline_us; /* deadline of the request, on the port's clock, or LH_FOREVER */

    struct retrier *retrier;
    retry_verdict_cb *on_verdict;
    struct lh_table_entry entry; /* in `undecided` */
    uint64_t id;
    int64_t at_us;
    int64_t retry_after_us;
    int64_t answer_us; /* decision given inside of the strategy, ahead of its LH_RETRY_DEFER */
    uint32_t attempts;
    uint32_t failures;   /* in a row, for the strategy's delay */
    uint32_t controlled; /* in a row, for the controlled backoff */
    uint32_t reasons;    /* bit 1 << reason */
    uint8_t last_reason;
    uint8_t state;   /* enum retry_state */
    uint8_t verdict; /* enum retry_verdict */
    bool is_idempotent;
};

void lh_retry_init(struct retry *retry, struct retrier *retrier, bool is_idempotent, int64_t deadline_us,
                   retry_verdict_cb *on_verdict);

/* An attempt that failed. */
struct retry_failure {
    unsigned reason;        /* enum lh_retry_reason; RETRY_NO_REASON is refused */
    int64_t blocked_us;     /* BLOCKING_TIMEOUT: time that the server blocked */
    int64_t retry_after_us; /* from its RetryInfo; 0: none */
    const char *message;    /* words for the log, or NULL */
};

enum retry_answer lh_retry_consider(struct retry *retry, const struct retry_failure *failure);
void lh_retry_on_due(struct retry *retry);

/* Stops without a verdict, because the request is canceled or its owner goes away. May be repeated. */
void lh_retry_stop(struct retry *retry);

#endif
