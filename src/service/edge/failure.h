/*
 * The failure of a call: one sentence for people, and google.rpc.Status with the details that programs branch on.
 *
 *     struct lh_failure failure = {.status = LH_LEASE_HELD, .message = words, .ns = ns, .key = key, .contention = c};
 *     lh_failure_send(call, &failure);
 *
 * Everything is cut so that all trailers together stay under 6 KiB, whatever the names look like.
 */
#ifndef LH_SERVICE_EDGE_FAILURE_H
#define LH_SERVICE_EDGE_FAILURE_H

#include "base/memory.h"
#include "base/status.h"
#include "lease/types.h"
#include "service/edge/violations.h"

struct lh_rpc_call;

#define LH_FAILURE_DOMAIN "leasehold"
/* Limit of grpc-message, percent-encoded. */
#define LH_FAILURE_MESSAGE_MAX_BYTES 1200
#define LH_TRAILERS_MAX_BYTES 6144

/* A failure. Members that are NULL are left out. */
struct lh_failure {
    enum lh_status status;
    const char *message; /* NULL: lh_status_text */
    const char *ns;
    const char *key;
    /* Metadata; NULL: the first violation's, if there is one. */
    const char *field;
    const char *limit;
    const char *principal; /* ACCESS_DENIED: principal and right */
    const char *right;
    const struct lh_contention *contention;
    const struct lh_violations *violations;
};

/* Returns the sentence as it is sent: no longer than the limit, cut between characters. In the arena. */
const char *lh_failure_message(const struct lh_failure *failure, struct lh_arena *arena);

/* Appends the serialized google.rpc.Status with that sentence. */
void lh_failure_encode(const struct lh_failure *failure, struct lh_buffer *details);

void lh_failure_send(struct lh_rpc_call *call, const struct lh_failure *failure);

/* Answers with a failure of ours (LH_INTERNAL): `words` go to the log under a number, and the caller gets the
   number. */
void lh_failure_send_internal(struct lh_rpc_call *call, const char *words);

/* Encodes errors of the transport, as lh_rpc_server_options.encode_error. */
void lh_failure_encode_transport(void *arg, enum lh_status status, const char *message, struct lh_buffer *details);

#endif
