/* The servers of a client, and the breaker of each. */
#ifndef LH_CLIENT_ENDPOINTS_H
#define LH_CLIENT_ENDPOINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/retry_internal.h"
#include "leasehold.h"
#include "rpc/client.h"

/*
 * A circuit breaker: an endpoint that failed `limit` times in a row gets no call for a while, and then one call at a
 * time until one of them succeeds. A probe that takes its time (a call that waits for a lease) does not hold up the
 * next one for longer than the circuit stays open. No clock of its own.
 *
 *     ticket = lh_breaker_admit(&endpoint->breaker, now_us);
 *     if (ticket == BREAKER_OPEN)
 *         try another endpoint, or retry for CIRCUIT_BREAKER_OPEN
 *     ... when the call is over, with any result: lh_breaker_settle(&endpoint->breaker, ticket, result, now_us);
 *
 * Calls that were under way together and fail together (a connection that broke) count as one failure: only a call that
 * was admitted after the last failure counted can be the next one.
 */

#define BREAKER_FAILURES_DEFAULT 5
#define BREAKER_OPEN_US_DEFAULT INT64_C(1000000)

enum breaker_state {
    BREAKER_CLOSED,    /* calls pass */
    BREAKER_IS_OPEN,   /* no call passes until `probe_at_us` */
    BREAKER_HALF_OPEN, /* a probe is under way; the next may go at `probe_at_us` */
};

struct breaker {
    enum breaker_state state;
    uint32_t limit;    /* failures in a row that open it; 0: never */
    uint32_t failures; /* in a row */
    int64_t open_us;   /* time from a failure to the next probe */
    int64_t probe_at_us;
    uint64_t ticket; /* ticket of the next call */
    /* Calls with tickets below it have failed already, as one. */
    uint64_t failed_at;
    uint64_t probe;   /* ticket of the first probe since it is half open */
    uint64_t opened;  /* times that it opened */
    const char *name; /* name in the log; the caller's memory */
};

/* `failures` 0 and `open_us` 0: the defaults. */
void lh_breaker_init(struct breaker *breaker, const char *name, uint32_t failures, int64_t open_us);

#define BREAKER_OPEN 0

/* Returns a ticket for one call, or BREAKER_OPEN. */
uint64_t lh_breaker_admit(struct breaker *breaker, int64_t now_us);

/* Returns true if it would admit no call now. */
bool lh_breaker_is_open(const struct breaker *breaker, int64_t now_us);

enum breaker_result {
    BREAKER_SUCCEEDED, /* the endpoint answered, also with an error */
    BREAKER_FAILED,    /* no connection, or no answer on it */
    /* Canceled, or the time was over: no evidence about the endpoint. */
    BREAKER_SAID_NOTHING,
};
void lh_breaker_settle(struct breaker *breaker, uint64_t ticket, enum breaker_result result, int64_t now_us);

/* Returns the result for the endpoint of a call that is over. */
enum breaker_result lh_breaker_result_of(enum lh_rpc_delivery stage, enum lh_grpc_code code);

/*
 * The servers of a client: one channel and one circuit breaker each. Calls go to the current one until it fails for a
 * reason that the next one may not have; then that is the current one.
 */

struct endpoint {
    char *target;
    struct lh_rpc_channel *channel;
    struct breaker breaker;
};

struct endpoints {
    struct endpoint items[LH_ENDPOINTS_MAX];
    size_t count;
    size_t current;
};

/* Reads TLS and token options from the environment. LH_INVALID_ARGUMENT: a variable has no valid value. */
enum lh_status lh_tls_from_environment(struct lh_client_tls *tls, struct lh_error *error);
/* Copies the path of the key file to LEASEHOLD_TLS_KEY, which is read first. Call it before LEASEHOLD_KEY is set to
   the key of a lease. */
void lh_tls_move_key_file(void);

/* Creates the channels for the options' endpoints, or the environment's. LH_INVALID_ARGUMENT: there is nothing to
   finish. */
enum lh_status lh_endpoints_init(struct endpoints *endpoints, struct lh_loop *loop,
                                 const struct lh_client_options *options, struct lh_error *error);
void lh_endpoints_finish(struct endpoints *endpoints); /* answers open calls with CANCELLED */

/*
 * Returns the first endpoint from `wanted` on whose circuit lets a call pass, with the ticket to settle it with. NULL:
 * no circuit does.
 */
struct endpoint *lh_endpoints_admit(struct endpoints *endpoints, size_t wanted, int64_t now_us, uint64_t *ticket);

/* Sends calls to another endpoint from now on. */
void lh_endpoints_leave(struct endpoints *endpoints, const struct endpoint *endpoint);
size_t lh_endpoints_index(const struct endpoints *endpoints, const struct endpoint *endpoint);

#endif
