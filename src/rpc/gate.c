#include "rpc/gate.h"

#include <string.h>

#include "base/clock.h"

#define RESET_BYTES 4
#define PRIORITY_BYTES 5
#define FRAME_MAX_BYTES ((size_t)16384)
#define STAND_IN_MIN_BYTES 4097 /* see rpc/headers.h */
#define SETTINGS_COST 10
#define STREAMS_PER_COST 8 /* that SETTINGS make nghttp2 visit */
#define GIVEN_FOR_SENT 4   /* two windows and a PING, and some */

/* --- budgets --- */

void lh_rpc_budget_init(struct rpc_budget *budget, uint64_t most, uint64_t per_s, int64_t now_us)
{
    *budget = (struct rpc_budget){.most = most, .per_s = per_s, .left = most, .refilled_us = now_us};
}

static void rpc_budget_give(struct rpc_budget *budget, uint64_t amount)
{
    budget->left = amount >= budget->most - budget->left ? budget->most : budget->left + amount;
}

bool lh_rpc_budget_take(struct rpc_budget *budget, uint64_t cost, int64_t now_us)
{
    if (budget->left < cost) {
        uint64_t passed_us = (uint64_t)(now_us - budget->refilled_us);
        budget->refilled_us = now_us;
        rpc_budget_give(budget, passed_us / LH_US_PER_S * budget->per_s +
                                    passed_us % LH_US_PER_S * budget->per_s / LH_US_PER_S);
    }
    if (budget->left < cost)
        return false;
    budget->left -= cost;
    return true;
}

/* --- frames --- */

static uint32_t length_of(const uint8_t *header)
{
    return (uint32_t)header[0] << 16 | (uint32_t)header[1] << 8 | header[2];
}

static uint32_t stream_of(const uint8_t *header)
{
    return ((uint32_t)header[5] << 24 | (uint32_t)header[6] << 16 | (uint32_t)header[7] << 8 | header[8]) & 0x7fffffff;
}

static void write_header(uint8_t *to, size_t length, uint8_t type, uint8_t flags, uint32_t stream)
{
    to[0] = (uint8_t)(length >> 16);
    to[1] = (uint8_t)(length >> 8);
    to[2] = (uint8_t)length;
    to[3] = type;
    to[4] = flags;
    to[5] = (uint8_t)(stream >> 24);
    to[6] = (uint8_t)(stream >> 16);
    to[7] = (uint8_t)(stream >> 8);
    to[8] = (uint8_t)stream;
}

static ssize_t forward(nghttp2_session *session, const uint8_t *from, const uint8_t *to)
{
    return from < to ? nghttp2_session_mem_recv(session, from, (size_t)(to - from)) : 0;
}

/* From now on nghttp2 throws away what comes. */
static void send_away(struct rpc_gate *gate, nghttp2_session *session, enum rpc_gate_excess excess)
{
    if (gate->excess != RPC_GATE_CALM)
        return;
    gate->excess = excess;
    nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM);
}

void lh_rpc_gate_on_reset(struct rpc_gate *gate, nghttp2_session *session)
{
    if (!lh_rpc_budget_take(&gate->resets, 1, gate->now_us))
        send_away(gate, session, RPC_GATE_RESETS);
}

void lh_rpc_gate_on_sent(struct rpc_gate *gate)
{
    rpc_budget_give(&gate->control, GIVEN_FOR_SENT);
}

/* --- headers in more than one frame --- */

static ssize_t forward_block(struct rpc_gate *gate, nghttp2_session *session, bool is_last)
{
    const uint8_t *bytes = gate->block.out.data;
    size_t left = gate->block.out.size;
    ssize_t done = 0;

    while (done >= 0 && (left > 0 || is_last)) {
        size_t step = left < FRAME_MAX_BYTES ? left : FRAME_MAX_BYTES;
        uint8_t header[RPC_FRAME_HEADER_BYTES];
        bool is_end = is_last && step == left;

        write_header(header, step, NGHTTP2_CONTINUATION, is_end ? NGHTTP2_FLAG_END_HEADERS : 0, gate->block_stream);
        done = forward(session, header, header + sizeof(header));
        if (done >= 0 && step > 0)
            done = forward(session, bytes, bytes + step);
        bytes += step;
        left -= step;
        if (is_end)
            break;
    }
    gate->block.out.size = 0;
    return done;
}

/* HEADERS without an end: nghttp2 gets them without a byte of the block, which follows in CONTINUATION. */
static ssize_t begin_block(struct rpc_gate *gate, nghttp2_session *session, uint32_t stream, uint8_t flags)
{
    uint8_t header[RPC_FRAME_HEADER_BYTES];

    gate->block_stream = stream;
    gate->block_began_us = gate->now_us;
    gate->continuations = 0;
    gate->is_padded = (flags & NGHTTP2_FLAG_PADDED) != 0;
    gate->lead = (gate->is_padded ? 1u : 0u) + ((flags & NGHTTP2_FLAG_PRIORITY) != 0 ? PRIORITY_BYTES : 0u);
    gate->padding = 0;
    lh_rpc_header_block_begin(&gate->block, gate->max_header_bytes + STAND_IN_MIN_BYTES);
    write_header(header, 0, NGHTTP2_HEADERS, flags & NGHTTP2_FLAG_END_STREAM, stream);
    return forward(session, header, header + sizeof(header));
}

/* Bytes of a frame of the block. */
static ssize_t pass_block(struct rpc_gate *gate, nghttp2_session *session, const uint8_t *bytes, size_t size)
{
    uint32_t left = gate->left;
    size_t block_bytes;

    for (; size > 0 && gate->lead > 0; gate->lead--, bytes++, size--, left--) {
        if (gate->is_padded)
            gate->padding = *bytes;
        gate->is_padded = false;
    }
    if (gate->lead == 0 && gate->padding > left)
        return NGHTTP2_ERR_PROTO;
    block_bytes = left - gate->padding < size ? left - gate->padding : size;
    lh_rpc_header_block_pass(&gate->block, bytes, block_bytes);
    return forward_block(gate, session, false);
}

static ssize_t end_block_frame(struct rpc_gate *gate, nghttp2_session *session)
{
    ssize_t done;

    gate->lead = 0;
    gate->padding = 0;
    if ((gate->flags & NGHTTP2_FLAG_END_HEADERS) == 0)
        return 0;
    done = forward_block(gate, session, true);
    gate->block_stream = 0;
    lh_rpc_header_block_finish(&gate->block);
    return done;
}

/* --- early resets --- */

static uint32_t *find_kept(struct rpc_gate *gate, uint32_t stream)
{
    for (size_t i = 0; i < RPC_EARLY_RESETS_MAX; i++)
        if (gate->kept[i] == stream)
            return &gate->kept[i];
    return NULL;
}

static void keep(struct rpc_gate *gate, uint32_t stream)
{
    gate->kept[gate->next] = stream;
    gate->next = (gate->next + 1) % RPC_EARLY_RESETS_MAX;
}

/* The stream that was opened last was reset before. */
static ssize_t tell_reset(struct rpc_gate *gate, nghttp2_session *session)
{
    uint8_t frame[RPC_FRAME_HEADER_BYTES + RESET_BYTES] = {[12] = NGHTTP2_CANCEL};

    write_header(frame, RESET_BYTES, NGHTTP2_RST_STREAM, 0, gate->last);
    *find_kept(gate, gate->last) = 0;
    gate->is_opened = false;
    return nghttp2_session_mem_recv(session, frame, sizeof(frame));
}

/* --- a frame begins --- */

static uint64_t cost_of(const struct rpc_gate *gate, uint8_t type, uint8_t flags, uint32_t length)
{
    switch (type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_RST_STREAM: /* see lh_rpc_gate_on_reset */
        return 0;
    case NGHTTP2_DATA:
        return length > 0 || (flags & NGHTTP2_FLAG_END_STREAM) != 0 ? 0 : 1;
    case NGHTTP2_SETTINGS:
        return (flags & NGHTTP2_FLAG_ACK) != 0 ? 1 : SETTINGS_COST + gate->open_streams / STREAMS_PER_COST;
    default:
        return 1;
    }
}

/* False: not in this turn. */
static bool has_turn(struct rpc_gate *gate, bool is_new)
{
    unsigned *left = is_new ? &gate->streams_left : &gate->frames_left;

    if (*left == 0) {
        gate->pauses++;
        return false;
    }
    (*left)--;
    return true;
}

static void look_at_reset(struct rpc_gate *gate, nghttp2_session *session, uint32_t stream)
{
    if (gate->left != RESET_BYTES || stream % 2 == 0 || stream <= gate->last)
        return;
    gate->fate = FRAME_KEPT;
    keep(gate, stream);
    lh_rpc_gate_on_reset(gate, session);
}

static void look_at_headers(struct rpc_gate *gate, nghttp2_session *session, uint8_t type, uint32_t stream)
{
    bool has_end = (gate->flags & NGHTTP2_FLAG_END_HEADERS) != 0;

    if (type == NGHTTP2_HEADERS && stream > gate->last)
        gate->last = stream;
    if (type == NGHTTP2_HEADERS && gate->block_stream == 0 && !has_end && stream != 0)
        gate->fate = FRAME_BEGINS_BLOCK;
    if (type == NGHTTP2_CONTINUATION && stream != 0 && stream == gate->block_stream) {
        gate->fate = FRAME_OF_BLOCK;
        if (++gate->continuations > LH_RPC_CONTINUATIONS_MAX)
            send_away(gate, session, RPC_GATE_CONTINUATIONS);
    }
    /* The frames of a block of headers follow each other. */
    gate->is_opened = has_end && stream != 0 && stream == gate->last && find_kept(gate, stream) != NULL;
}

static void look_at(struct rpc_gate *gate, nghttp2_session *session, const uint8_t *header)
{
    uint8_t type = header[3];

    gate->is_reading = true;
    gate->is_opened = false;
    gate->left = length_of(header);
    gate->flags = header[4];
    gate->fate = FRAME_PASSED;
    if (!lh_rpc_budget_take(&gate->control, cost_of(gate, type, gate->flags, gate->left), gate->now_us))
        send_away(gate, session, RPC_GATE_CONTROL_FRAMES);
    if (type == NGHTTP2_RST_STREAM)
        look_at_reset(gate, session, stream_of(header));
    else if (type == NGHTTP2_HEADERS || type == NGHTTP2_CONTINUATION)
        look_at_headers(gate, session, type, stream_of(header));
}

/* --- the bytes --- */

/* An input: up to `from` nghttp2 has it, up to `at` it was looked at. */
struct input {
    const uint8_t *from;
    const uint8_t *at;
    const uint8_t *end;
};

static ssize_t catch_up(struct input *input, nghttp2_session *session)
{
    const uint8_t *from = input->from;

    input->from = input->at;
    return forward(session, from, input->at);
}

/* A frame's header, which may be cut in two by the end of an input. False: no frame begins now. */
static bool begin_frame(struct rpc_gate *gate, nghttp2_session *session, struct input *input, ssize_t *done)
{
    size_t missing = RPC_FRAME_HEADER_BYTES - gate->header_size, room = (size_t)(input->end - input->at);
    bool is_cut = missing < RPC_FRAME_HEADER_BYTES || room < missing;
    const uint8_t *header = is_cut ? gate->header : input->at;

    if (is_cut)
        memcpy(gate->header + gate->header_size, input->at, room < missing ? room : missing);
    if (room < missing) {
        *done = catch_up(input, session);
        gate->header_size += room;
        input->from = input->at = input->end;
        return false;
    }
    if (!has_turn(gate, header[3] == NGHTTP2_HEADERS && stream_of(header) > gate->last))
        return false;
    look_at(gate, session, header);
    if (is_cut || gate->fate != FRAME_PASSED)
        *done = catch_up(input, session);
    if (*done >= 0 && gate->fate == FRAME_BEGINS_BLOCK)
        *done = begin_block(gate, session, stream_of(header), gate->flags);
    else if (*done >= 0 && gate->fate == FRAME_PASSED && is_cut)
        *done = nghttp2_session_mem_recv(session, header, RPC_FRAME_HEADER_BYTES);
    input->at += missing;
    if (is_cut || gate->fate != FRAME_PASSED)
        input->from = input->at;
    gate->header_size = 0;
    return *done >= 0;
}

/* False: the input ends before the frame does. */
static bool read_frame(struct rpc_gate *gate, nghttp2_session *session, struct input *input, ssize_t *done)
{
    size_t room = (size_t)(input->end - input->at), step = room < gate->left ? room : gate->left;
    bool is_of_block = gate->fate == FRAME_BEGINS_BLOCK || gate->fate == FRAME_OF_BLOCK;

    if (is_of_block && step > 0)
        *done = pass_block(gate, session, input->at, step);
    input->at += step;
    gate->left -= (uint32_t)step;
    if (gate->fate != FRAME_PASSED)
        input->from = input->at;
    if (gate->left > 0 || *done < 0)
        return false;
    gate->is_reading = false;
    if (is_of_block)
        *done = end_block_frame(gate, session);
    if (*done >= 0 && gate->is_opened)
        *done = catch_up(input, session);
    if (*done >= 0 && gate->is_opened)
        *done = tell_reset(gate, session);
    return *done >= 0;
}

void lh_rpc_gate_init(struct rpc_gate *gate, size_t max_header_bytes)
{
    memset(gate, 0, sizeof(*gate));
    gate->is_reading = true;
    gate->left = sizeof(NGHTTP2_CLIENT_MAGIC) - 1;
    gate->max_header_bytes = max_header_bytes;
}

void lh_rpc_gate_finish(struct rpc_gate *gate)
{
    lh_rpc_header_block_finish(&gate->block);
}

void lh_rpc_gate_begin_turn(struct rpc_gate *gate, int64_t now_us)
{
    gate->now_us = now_us;
    gate->streams_left = LH_RPC_STREAMS_PER_TURN;
    gate->frames_left = RPC_GATE_FRAMES_PER_TURN;
}

ssize_t lh_rpc_gate_receive(struct rpc_gate *gate, nghttp2_session *session, const uint8_t *bytes, size_t size)
{
    struct input input = {bytes, bytes, bytes + size};
    ssize_t done = 0;

    while (gate->excess == RPC_GATE_CALM && (gate->is_reading || input.at < input.end)) {
        if (!gate->is_reading && !begin_frame(gate, session, &input, &done))
            break;
        if (!read_frame(gate, session, &input, &done))
            break;
    }
    if (gate->excess != RPC_GATE_CALM)
        return (ssize_t)size;
    if (done >= 0)
        done = catch_up(&input, session);
    return done < 0 ? done : input.at - bytes;
}
