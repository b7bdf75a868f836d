/*
 * gRPC's status codes and the three text encodings of its headers, for both sides.
 * https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
 */
#ifndef LH_RPC_GRPC_H
#define LH_RPC_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
enum lh_grpc_code {
    LH_GRPC_OK = 0,
    LH_GRPC_CANCELLED = 1,
    LH_GRPC_UNKNOWN = 2,
    LH_GRPC_INVALID_ARGUMENT = 3,
    LH_GRPC_DEADLINE_EXCEEDED = 4,
    LH_GRPC_NOT_FOUND = 5,
    LH_GRPC_ALREADY_EXISTS = 6,
    LH_GRPC_PERMISSION_DENIED = 7,
    LH_GRPC_RESOURCE_EXHAUSTED = 8,
    LH_GRPC_FAILED_PRECONDITION = 9,
    LH_GRPC_ABORTED = 10,
    LH_GRPC_OUT_OF_RANGE = 11,
    LH_GRPC_UNIMPLEMENTED = 12,
    LH_GRPC_INTERNAL = 13,
    LH_GRPC_UNAVAILABLE = 14,
    LH_GRPC_DATA_LOSS = 15,
    LH_GRPC_UNAUTHENTICATED = 16,
};

/* A deadline on lh_clock_us() that never comes. */
#define LH_RPC_FOREVER INT64_MAX

/* Returns "DEADLINE_EXCEEDED"; "UNKNOWN" for a number that is no code. */
const char *lh_grpc_code_name(int code);

/* Parse and write grpc-timeout: 1 to 8 digits and a unit of H M S m u n. The parser returns false for any other
   text, and rounds nanoseconds up. */
bool lh_grpc_timeout_parse(const char *text, size_t size, int64_t *timeout_us);
#define LH_GRPC_TIMEOUT_TEXT_BYTES 16
void lh_grpc_timeout_format(int64_t timeout_us, char text[LH_GRPC_TIMEOUT_TEXT_BYTES]);

/* Encode and decode grpc-message: all bytes outside of 0x20..0x7E, and '%', as %XX. Decoding leaves malformed bytes
   as they are. */
void lh_grpc_percent_encode(struct lh_buffer *out, const char *text, size_t size);
void lh_grpc_percent_decode(struct lh_buffer *out, const char *text, size_t size);

#endif
