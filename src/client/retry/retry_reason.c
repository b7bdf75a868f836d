/*
 * Three stages, three questions. Before anything was sent a repetition can do no harm, whatever the request is. In
 * flight nobody knows whether the server did it. What was answered is final, unless the server gave a reason that says
 * otherwise; an answer without a reason of ours comes from something in between.
 */
#include "client/retry_internal.h"

#include <stdio.h>

static const struct {
    const char *name;
    bool allows_non_idempotent;
    bool is_always;
    bool keeps_endpoint;
} reasons[LH_RETRY_REASON_COUNT + 1] = {
#define X(name, non_idempotent, always, same) [LH_RETRY_##name] = {#name, non_idempotent, always, same},
    RETRY_REASON_MAP(X)
#undef X
        [RETRY_NO_REASON] = {"NONE", false, false, true},
};

static unsigned known(unsigned reason)
{
    return reason < RETRY_NO_REASON ? reason : RETRY_NO_REASON;
}

const char *lh_retry_reason_name(enum lh_retry_reason reason)
{
    return reasons[known(reason)].name;
}

bool lh_retry_reason_allows_non_idempotent(enum lh_retry_reason reason)
{
    return reasons[known(reason)].allows_non_idempotent;
}

bool lh_retry_reason_is_always(enum lh_retry_reason reason)
{
    return reasons[known(reason)].is_always;
}

bool lh_retry_reason_keeps_endpoint(unsigned reason)
{
    return reasons[known(reason)].keeps_endpoint;
}

void lh_retry_reasons_format(uint32_t set, char text[RETRY_REASONS_TEXT_BYTES])
{
    size_t used = 0;

    snprintf(text, RETRY_REASONS_TEXT_BYTES, "none");
    for (unsigned reason = 0; reason < LH_RETRY_REASON_COUNT && used < RETRY_REASONS_TEXT_BYTES; reason++) {
        if ((set & 1u << reason) != 0)
            used += (size_t)snprintf(text + used, RETRY_REASONS_TEXT_BYTES - used, "%s%s", used > 0 ? "," : "",
                                     reasons[reason].name);
    }
}

static unsigned before_sending(enum lh_grpc_code code)
{
    switch (code) {
    case LH_GRPC_CANCELLED:
    case LH_GRPC_DEADLINE_EXCEEDED:
    case LH_GRPC_RESOURCE_EXHAUSTED:
    case LH_GRPC_UNAUTHENTICATED: /* a certificate is no better in a moment */
        return RETRY_NO_REASON;
    default:
        return LH_RETRY_SOCKET_NOT_AVAILABLE;
    }
}

static unsigned in_flight(enum lh_grpc_code code)
{
    switch (code) {
    case LH_GRPC_CANCELLED: /* not by the caller: something in between reset the stream */
    case LH_GRPC_UNAVAILABLE:
        return LH_RETRY_SOCKET_CLOSED_WHILE_IN_FLIGHT;
    case LH_GRPC_UNKNOWN:
    case LH_GRPC_INTERNAL: /* the stream broke, or what came is no reply */
    case LH_GRPC_RESOURCE_EXHAUSTED:
        return LH_RETRY_UNKNOWN;
    default:
        return RETRY_NO_REASON;
    }
}

static unsigned by_info(enum lh_status info)
{
    switch (info) {
    case LH_BLOCKING_TIMEOUT:
        return LH_RETRY_BLOCKING_TIMEOUT;
    case LH_SHUTTING_DOWN:
        return LH_RETRY_SHUTTING_DOWN;
    case LH_DATABASE_UNAVAILABLE:
        return LH_RETRY_DATABASE_UNAVAILABLE;
    case LH_OVERLOADED:
        return LH_RETRY_OVERLOADED;
    case LH_SCOPE_BUSY:
        return LH_RETRY_SCOPE_BUSY;
    case LH_LEASE_HELD:
        return LH_RETRY_LEASE_HELD;
    default:
        return RETRY_NO_REASON;
    }
}

static unsigned answered(const struct retry_evidence *evidence)
{
    if (evidence->info != RETRY_NO_INFO)
        return by_info((enum lh_status)evidence->info);
    if (evidence->code == LH_GRPC_OK)
        return RETRY_NO_REASON;
    if (evidence->has_retry_info)
        return LH_RETRY_RETRY_INFO;
    /* What proxies and load balancers say when they lost the server. */
    if (evidence->code == LH_GRPC_UNAVAILABLE || evidence->code == LH_GRPC_UNKNOWN)
        return LH_RETRY_UNKNOWN;
    return RETRY_NO_REASON;
}

unsigned lh_retry_reason_of(const struct retry_evidence *evidence)
{
    switch (evidence->stage) {
    case LH_RPC_NOT_SENT:
        return before_sending(evidence->code);
    case LH_RPC_IN_FLIGHT:
        return in_flight(evidence->code);
    case LH_RPC_ANSWERED:
        break;
    }
    return answered(evidence);
}

enum lh_status lh_retry_status_of(const struct retry_evidence *evidence)
{
    if (evidence->info != RETRY_NO_INFO)
        return (enum lh_status)evidence->info;
    switch (evidence->code) {
    case LH_GRPC_CANCELLED:
    case LH_GRPC_UNKNOWN:
    case LH_GRPC_UNAVAILABLE:
        return LH_UNAVAILABLE;
    case LH_GRPC_DEADLINE_EXCEEDED:
        return LH_TIMED_OUT;
    case LH_GRPC_INVALID_ARGUMENT:
        return LH_INVALID_ARGUMENT;
    case LH_GRPC_NOT_FOUND:
        return LH_NOT_HELD;
    case LH_GRPC_PERMISSION_DENIED:
        return LH_ACCESS_DENIED;
    case LH_GRPC_RESOURCE_EXHAUSTED:
        return LH_OVERLOADED;
    case LH_GRPC_UNIMPLEMENTED:
        return LH_UNIMPLEMENTED;
    case LH_GRPC_UNAUTHENTICATED:
        return LH_UNAUTHENTICATED;
    default:
        return LH_INTERNAL;
    }
}
