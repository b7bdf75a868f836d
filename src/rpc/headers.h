/*
 * The headers of a request, in a server: a block that comes in more than one frame, and the rules for each field.
 *
 * nghttp2 takes a string of over 64 KiB for an error of HPACK, which ends the connection and every call on it. Such a
 * string is cut out here, and one takes its place that is too large for a call but not for nghttp2: the call alone is
 * refused. Nothing is decoded, only the lengths are read (RFC 7541, sections 5 and 6), and nothing is kept: what was
 * read is passed on with the bytes at hand.
 *
 * The string in its place does to the dynamic table what the other would have done. That table has 4096 bytes: an entry
 * that is larger empties it. Whatever is cut out has, decoded, more than that (a code of HPACK has at most 30 bits).
 *
 * The rules for a request's headers by RFC 9113, sections 8.1 to 8.3. nghttp2 would check them too, but it resets a
 * stream whose :authority is a path, which is what grpc-java sends over a unix socket; so it leaves the checks to us.
 */
#ifndef LH_RPC_HEADERS_H
#define LH_RPC_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"

/* Returns true if a header, whose name is not terminated, has this name. */
static inline bool lh_rpc_is_name(const char *name, size_t size, const char *wanted)
{
    return size == strlen(wanted) && memcmp(name, wanted, size) == 0;
}

/* Limit of an encoded string; with the shortest code, 5 bits, it has 52 KiB decoded. */
#define RPC_HEADER_STRING_MAX_BYTES ((uint64_t)32 * 1024)

struct rpc_header_block {
    enum { BLOCK_FIELD, BLOCK_INDEX, BLOCK_LENGTH, BLOCK_STRING, BLOCK_BROKEN } state;
    uint64_t number; /* the integer that is being read */
    unsigned shift;
    unsigned strings; /* strings of this field, still to come */
    uint64_t left;    /* bytes left of this string */
    bool is_cut;      /* the string is left out */
    uint8_t held[12]; /* the bytes of a length, until it is known */
    size_t held_size;
    size_t stand_in_bytes;
    struct lh_buffer out;
};

/* Begins a block. A string that is cut out is replaced by stand_in_bytes, more than 4096. */
void lh_rpc_header_block_begin(struct rpc_header_block *block, size_t stand_in_bytes);
/* Passes bytes on: `block->out` gets those for nghttp2. */
void lh_rpc_header_block_pass(struct rpc_header_block *block, const uint8_t *bytes, size_t size);
void lh_rpc_header_block_finish(struct rpc_header_block *block);

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
