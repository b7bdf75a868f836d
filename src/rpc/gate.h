/*
 * The gate between a client's bytes and nghttp2, in a server: it sees each frame's header and decides.
 *
 * Turns. In a turn of the loop the server takes 64 new streams and 1024 other frames of one connection. The rest of the
 * bytes waits, so that the other connections get their turn.
 *
 * Budgets. Frames that cost the server much and a client little draw on a budget that time refills: PING, SETTINGS,
 * WINDOW_UPDATE, PRIORITY, CONTINUATION, DATA without data, unknown frames. Data sent to the client refill it too,
 * because a client that receives much sends many of these: Go and Python send a PING every 4 ms to measure. SETTINGS
 * cost more with more open streams, because nghttp2 visits all of them. Resets of unanswered calls have a budget of
 * their own, because a client's deadlines are such resets. A client beyond its budget gets GOAWAY ENHANCE_YOUR_CALM,
 * and its bytes are not read any more.
 *
 * Early resets. grpc-core (Python, C++, Ruby, PHP) numbers the stream of a call before it writes its HEADERS, and
 * writes a reset ahead of its other frames. Of a call that is canceled in that moment the server sees only an
 * RST_STREAM of an idle stream (https://github.com/grpc/grpc/issues/19655 and 38758). By RFC 9113, section 6.4, that is
 * an error of the connection, and nghttp2 ends it, with every other call on it. grpc-core's and Go's servers ignore
 * such a reset. So does this one: nghttp2 does not see it. If the HEADERS of its stream come after all, nghttp2 gets
 * the reset behind them.
 *
 * Headers in more than one frame go through rpc/headers.h.
 */
#ifndef LH_RPC_GATE_H
#define LH_RPC_GATE_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/headers.h"
#include "rpc/server.h"

#define RPC_FRAME_HEADER_BYTES 9
#define RPC_GATE_FRAMES_PER_TURN 1024
/* Early resets that are remembered; the oldest are forgotten. A stream of a forgotten one has never been seen to
   open later. */
#define RPC_EARLY_RESETS_MAX 32

struct rpc_budget {
    uint64_t most;
    uint64_t per_s;
    uint64_t left;
    int64_t refilled_us;
};

void lh_rpc_budget_init(struct rpc_budget *budget, uint64_t most, uint64_t per_s, int64_t now_us);
/* Takes from the budget. Returns false if it has not enough left. */
bool lh_rpc_budget_take(struct rpc_budget *budget, uint64_t cost, int64_t now_us);

enum rpc_gate_excess { RPC_GATE_CALM, RPC_GATE_RESETS, RPC_GATE_CONTROL_FRAMES, RPC_GATE_CONTINUATIONS };

struct rpc_gate {
    struct rpc_budget resets;
    struct rpc_budget control;
    enum rpc_gate_excess excess; /* reason that the client was sent away */
    uint64_t pauses;             /* turns that ended before the bytes did */
    size_t open_streams;         /* set by the owner, for the cost of SETTINGS */
    size_t max_header_bytes;

    /* The turn. */
    int64_t now_us;
    unsigned streams_left;
    unsigned frames_left;

    /* The frame that is being read. */
    enum { FRAME_PASSED, FRAME_KEPT, FRAME_BEGINS_BLOCK, FRAME_OF_BLOCK } fate;
    uint8_t header[RPC_FRAME_HEADER_BYTES]; /* header of the next frame, if it comes in pieces */
    size_t header_size;
    bool is_reading; /* the frame's header was taken; the preface counts as a frame */
    uint32_t left;   /* bytes left of the frame */
    uint8_t flags;

    /* A block of headers in more than one frame. */
    struct rpc_header_block block;
    uint32_t block_stream; /* 0: no block */
    int64_t block_began_us;
    unsigned continuations;
    unsigned lead;    /* bytes of HEADERS before the block: pad length, priority */
    uint32_t padding; /* bytes of padding behind the block */
    bool is_padded;

    /* Early resets. */
    bool is_opened;                      /* the frame is the last of the HEADERS of a stream that was reset early */
    uint32_t last;                       /* the stream that was opened last */
    uint32_t kept[RPC_EARLY_RESETS_MAX]; /* streams that were reset early; 0: none */
    size_t next;                         /* place of the next one in `kept` */
};

/* Initialises; the owner sets the budgets. */
void lh_rpc_gate_init(struct rpc_gate *gate, size_t max_header_bytes);
void lh_rpc_gate_finish(struct rpc_gate *gate);
void lh_rpc_gate_begin_turn(struct rpc_gate *gate, int64_t now_us);

/* Does nghttp2_session_mem_recv() for a server. Returns the number of bytes taken, less than `size` when the turn is
   over, or its error. */
ssize_t lh_rpc_gate_receive(struct rpc_gate *gate, nghttp2_session *session, const uint8_t *bytes, size_t size);

/* Counts a call that was reset before it was answered. */
void lh_rpc_gate_on_reset(struct rpc_gate *gate, nghttp2_session *session);
/* Refills the budget after HEADERS or DATA were sent to the client. */
void lh_rpc_gate_on_sent(struct rpc_gate *gate);

#endif
