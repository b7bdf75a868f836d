/*
 * How a call fails: one sentence for people, and google.rpc.Status with the details programs branch on.
 *
 *     struct lh_failure failure = {.status = LH_LEASE_HELD, .message = words, .ns = ns, .key = key, .contention = c};
 *     lh_failure_send(call, &failure);
 *
 * Everything is cut so that all trailers together stay under 6 KiB, whatever the names look like.
 */
#ifndef LH_SERVICE_FAILURE_H
#define LH_SERVICE_FAILURE_H

#include "base/memory.h"
#include "base/status.h"
#include "lease/types.h"
#include "service/violations.h"

struct lh_rpc_call;

#define LH_FAILURE_DOMAIN "leasehold"
/* As grpc-message, percent-encoded. */
#define LH_FAILURE_MESSAGE_MAX_BYTES 1200
#define LH_TRAILERS_MAX_BYTES 6144

/* What is NULL is left out. */
struct lh_failure {
    enum lh_status status;
    const char *message; /* NULL: lh_status_text */
    const char *ns;
    const char *key;
    const char *field; /* metadata; of the first violation when there are any */
    const char *limit;
    const char *principal; /* this and `right` of ACCESS_DENIED */
    const char *right;
    const struct lh_contention *contention;
    const struct lh_violations *violations;
};

/* The sentence as it is sent: no longer than the limit, cut between characters. In the arena. */
const char *lh_failure_message(const struct lh_failure *failure, struct lh_arena *arena);

/* Append the serialized google.rpc.Status with that sentence. */
void lh_failure_encode(const struct lh_failure *failure, struct lh_buffer *details);

void lh_failure_send(struct lh_rpc_call *call, const struct lh_failure *failure);

/* A failure of ours (LH_INTERNAL): `words` go to the log under a number, the number goes to the caller. */
void lh_failure_send_internal(struct lh_rpc_call *call, const char *words);

/* lh_rpc_server_options.encode_error, for what the transport finds by itself. */
void lh_failure_encode_transport(void *arg, enum lh_status status, const char *message, struct lh_buffer *details);

#endif
