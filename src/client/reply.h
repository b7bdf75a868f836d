/* The reply of a server: a message, or an error with its details. */
#ifndef LH_CLIENT_REPLY_H
#define LH_CLIENT_REPLY_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "rpc/client.h"

/* A reply. Zero-initialised it is empty. It owns all its members. */
struct lh_reply {
    enum lh_grpc_code code;
    enum lh_rpc_delivery delivery;
    ProtobufCMessage *message; /* LH_GRPC_OK: the method's output; else NULL */

    char *words; /* an error's sentence, never NULL once filled */

    /* The reason of google.rpc.ErrorInfo, if the server sent one with our domain and a reason that we know. */
    bool has_reason;
    enum lh_status reason;
    char *field; /* from BadRequest or ErrorInfo, or NULL */
    char *limit; /* the field's limit, or NULL */

    Leasehold__V1__Contention *contention; /* NULL without one */
    int64_t retry_after_us;                /* from RetryInfo; 0: none */
};

/* Fills the reply; a success is unpacked as `output`. A reply that cannot be unpacked becomes an INTERNAL error. */
void lh_reply_fill(struct lh_reply *reply, const struct lh_rpc_result *result,
                   const ProtobufCMessageDescriptor *output);
void lh_reply_finish(struct lh_reply *reply);

#endif
