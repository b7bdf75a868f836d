/*
 * A block of headers that comes in more than one frame, on its way to nghttp2.
 *
 * nghttp2 takes a string of over 64 KiB for an error of HPACK, which ends the connection and every call on it. Such a
 * string is cut out here, and one takes its place that is too large for a call but not for nghttp2: the call alone is
 * refused. Nothing is decoded, only the lengths are read (RFC 7541, sections 5 and 6), and nothing is kept: what was
 * read is passed on with the bytes at hand.
 *
 * The string in its place does to the dynamic table what the other would have done. That table has 4096 bytes: an entry
 * that is larger empties it. Whatever is cut out has, decoded, more than that (a code of HPACK has at most 30 bits).
 */
#ifndef LH_RPC_HEADER_BLOCK_H
#define LH_RPC_HEADER_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

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

#endif
