/*
 * A circuit breaker: an endpoint that failed so many times in a row is left alone for a while, and is then given one
 * call at a time until one of them succeeds. A probe that takes its time (a call that waits for a lease) does not hold
 * up the next one for longer than the circuit stays open. No clock of its own.
 *
 *     ticket = lh_breaker_admit(&endpoint->breaker, now_us);
 *     if (ticket == BREAKER_OPEN)
 *         try another endpoint, or retry for CIRCUIT_BREAKER_OPEN
 *     ... when the call is over, whatever came of it: lh_breaker_settle(&endpoint->breaker, ticket, result, now_us);
 *
 * Calls that were under way together and fail together (a connection that broke) count as one failure: only a call that
 * was admitted after the last failure counted can be the next one.
 */
#ifndef LH_CLIENT_BREAKER_H
#define LH_CLIENT_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/retry/retry_reason.h"

#define BREAKER_FAILURES_DEFAULT 5
#define BREAKER_OPEN_US_DEFAULT INT64_C(1000000)

enum breaker_state {
    BREAKER_CLOSED,    /* calls pass */
    BREAKER_IS_OPEN,   /* none does, until `probe_at_us` */
    BREAKER_HALF_OPEN, /* a probe is under way; the next may go at `probe_at_us` */
};

struct breaker {
    enum breaker_state state;
    uint32_t limit;    /* failures in a row that open it; 0: it never opens */
    uint32_t failures; /* in a row */
    int64_t open_us;   /* from a failure to the next probe */
    int64_t probe_at_us;
    uint64_t ticket;    /* of the next call */
    uint64_t failed_at; /* tickets below that have failed already, as one */
    uint64_t probe;     /* the ticket of the first probe since it is half open */
    uint64_t opened;    /* how often, since the beginning */
    const char *name;   /* for the log; the caller's memory */
};

/* `failures` 0 and `open_us` 0: the defaults. */
void lh_breaker_init(struct breaker *breaker, const char *name, uint32_t failures, int64_t open_us);

#define BREAKER_OPEN 0

/* A ticket for one call, or BREAKER_OPEN. */
uint64_t lh_breaker_admit(struct breaker *breaker, int64_t now_us);

/* Would it admit a call now? */
bool lh_breaker_is_open(const struct breaker *breaker, int64_t now_us);

enum breaker_result {
    BREAKER_SUCCEEDED,    /* the endpoint answered, whatever it said */
    BREAKER_FAILED,       /* no connection, or no answer on it */
    BREAKER_SAID_NOTHING, /* cancelled, or the time was over: nothing is known of the endpoint */
};
void lh_breaker_settle(struct breaker *breaker, uint64_t ticket, enum breaker_result result, int64_t now_us);

/* What a call that is over says of its endpoint. */
enum breaker_result lh_breaker_result_of(enum lh_rpc_delivery stage, enum lh_grpc_code code);

#endif
