/*
 * The reason to send a call again, from the evidence of its end. The reasons, their two properties and the whole table
 * are public (leasehold_retry.h).
 *
 *     reason = lh_retry_reason_of(&(struct retry_evidence){.stage = reply.delivery, .code = reply.code, ...});
 *     if (reason == RETRY_NO_REASON)
 *         the answer is final
 */
#ifndef LH_CLIENT_RETRY_REASON_H
#define LH_CLIENT_RETRY_REASON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "leasehold.h"
#include "rpc/client.h"

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

#endif
