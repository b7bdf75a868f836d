/* What a server answered: a message, or an error with the details that it carries. */
#ifndef LH_CLIENT_REPLY_H
#define LH_CLIENT_REPLY_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "rpc/client.h"

/* Zero-initialised it holds nothing. Everything in it is its own. */
struct lh_reply {
    enum lh_grpc_code code;
    enum lh_rpc_delivery delivery;
    ProtobufCMessage *message; /* LH_GRPC_OK: the method's output; else NULL */

    char *words; /* an error's sentence, never NULL once filled */

    /* Of google.rpc.ErrorInfo, where the server sent one with our domain and a reason that we know. */
    bool has_reason;
    enum lh_status reason;
    char *field; /* of BadRequest or ErrorInfo, or NULL */
    char *limit; /* likewise */

    Leasehold__V1__Contention *contention; /* or NULL */
    int64_t retry_after_us;                /* of RetryInfo; 0: none */
};

/* `output` is what a success is unpacked as. A reply that cannot be unpacked becomes an INTERNAL error. */
void lh_reply_fill(struct lh_reply *reply, const struct lh_rpc_result *result,
                   const ProtobufCMessageDescriptor *output);
void lh_reply_finish(struct lh_reply *reply);

#endif
