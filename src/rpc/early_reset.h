/*
 * Clients that reset a stream which they have not opened.
 *
 * grpc-core (Python, C++, Ruby, PHP) numbers the stream of a call before it writes its HEADERS, and writes a reset
 * ahead of what else it has to write: of a call that is cancelled in that moment nothing comes but an RST_STREAM of an
 * idle stream (https://github.com/grpc/grpc/issues/19655 and 38758). By RFC 9113, section 6.4, that is an error of the
 * connection, and nghttp2 ends it, with every other call on it: one cancel would cost whoever shares the channel its
 * leases. grpc-core's and Go's servers pass over such a reset. So does this one: it is kept from nghttp2, and is told
 * behind the HEADERS of its stream, should they come after all.
 */
#ifndef LH_RPC_EARLY_RESET_H
#define LH_RPC_EARLY_RESET_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPC_FRAME_HEADER_BYTES 9
/* Of more, the oldest are forgotten: that one of their streams is opened later has never been seen. */
#define RPC_EARLY_RESETS_MAX 32

struct rpc_early_reset {
    uint8_t header[RPC_FRAME_HEADER_BYTES]; /* of the next frame, where the input ended in the middle of it */
    uint8_t header_size;
    bool is_kept;                        /* the frame that is being read is a reset which nghttp2 does not get */
    bool is_opened;                      /* it is the last of the HEADERS of a stream that was reset early */
    uint32_t left;                       /* of its bytes */
    uint32_t last;                       /* the stream that was opened last */
    uint32_t kept[RPC_EARLY_RESETS_MAX]; /* streams that were reset early; 0: none */
    size_t next;                         /* of them to be written */
};

void rpc_early_reset_init(struct rpc_early_reset *early);

/* nghttp2_session_mem_recv() for a server: `size` when all was taken, or its error. */
ssize_t rpc_early_reset_receive(struct rpc_early_reset *early, nghttp2_session *session, const uint8_t *bytes,
                                size_t size);

#endif
