/*
 * The rules for a request's headers by RFC 9113, sections 8.1 to 8.3. nghttp2 would check them too, but it resets a
 * stream whose :authority is a path, which is what grpc-java sends over a unix socket; so it leaves the checks to us.
 */
#ifndef LH_RPC_HEADER_CHECK_H
#define LH_RPC_HEADER_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* State of one request. Zero-initialised it has seen no header. */
struct rpc_header_check {
    uint8_t seen;    /* bits of the pseudo headers that came */
    bool has_fields; /* a header that is no pseudo header came: no pseudo header may follow */
    bool is_malformed;
    bool is_trailer;
    bool has_length;
    bool has_credentials;
    uint64_t length;   /* content-length */
    uint64_t received; /* bytes of the body */
};

/*
 * Returns true if the call may see this field, and notes a malformed one. It skips a field with invalid bytes that is
 * no pseudo header, as nghttp2 does, because too many clients send such fields. An authorization is never skipped:
 * without it, or with one of two, the call would run as another principal.
 */
bool lh_rpc_header_check_field(struct rpc_header_check *check, const char *name, size_t name_size, const char *value,
                               size_t value_size);
/* Ends a block of headers. Returns false if the request is malformed, also by an earlier field. */
bool lh_rpc_header_check_block(struct rpc_header_check *check, bool is_end);
/* Counts bytes of the body. */
void lh_rpc_header_check_data(struct rpc_header_check *check, size_t size);
/* Ends the body, when the client's half is closed. Returns true if it is as long as content-length. */
bool lh_rpc_header_check_end(const struct rpc_header_check *check);

#endif
