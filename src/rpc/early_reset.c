#include "rpc/early_reset.h"

#include <string.h>

#define RESET_BYTES 4

static uint32_t length_of(const uint8_t *header)
{
    return (uint32_t)header[0] << 16 | (uint32_t)header[1] << 8 | header[2];
}

static uint32_t stream_of(const uint8_t *header)
{
    return ((uint32_t)header[5] << 24 | (uint32_t)header[6] << 16 | (uint32_t)header[7] << 8 | header[8]) & 0x7fffffff;
}

static uint32_t *find_kept(struct rpc_early_reset *early, uint32_t stream)
{
    for (size_t i = 0; i < RPC_EARLY_RESETS_MAX; i++)
        if (early->kept[i] == stream)
            return &early->kept[i];
    return NULL;
}

static void keep(struct rpc_early_reset *early, uint32_t stream)
{
    early->kept[early->next] = stream;
    early->next = (early->next + 1) % RPC_EARLY_RESETS_MAX;
}

void rpc_early_reset_init(struct rpc_early_reset *early)
{
    memset(early, 0, sizeof(*early));
    early->left = sizeof(NGHTTP2_CLIENT_MAGIC) - 1;
}

/* A frame begins. */
static void look_at(struct rpc_early_reset *early, const uint8_t *header)
{
    uint32_t stream = stream_of(header);
    uint8_t type = header[3], flags = header[4];

    early->left = length_of(header);
    early->is_kept =
        type == NGHTTP2_RST_STREAM && early->left == RESET_BYTES && stream % 2 == 1 && stream > early->last;
    if (early->is_kept)
        keep(early, stream);
    if (type == NGHTTP2_HEADERS && stream > early->last)
        early->last = stream;
    /* The frames of a block of headers follow each other. */
    early->is_opened = (type == NGHTTP2_HEADERS || type == NGHTTP2_CONTINUATION) &&
                       (flags & NGHTTP2_FLAG_END_HEADERS) && stream != 0 && stream == early->last &&
                       find_kept(early, stream) != NULL;
}

static ssize_t forward(nghttp2_session *session, const uint8_t *from, const uint8_t *to)
{
    return from < to ? nghttp2_session_mem_recv(session, from, (size_t)(to - from)) : 0;
}

/* The stream that was opened last was reset before. */
static ssize_t tell_reset(struct rpc_early_reset *early, nghttp2_session *session)
{
    uint32_t stream = early->last;
    const uint8_t frame[RPC_FRAME_HEADER_BYTES + RESET_BYTES] = {
        [2] = RESET_BYTES,
        [3] = NGHTTP2_RST_STREAM,
        [5] = (uint8_t)(stream >> 24),
        [6] = (uint8_t)(stream >> 16),
        [7] = (uint8_t)(stream >> 8),
        [8] = (uint8_t)stream,
        [12] = NGHTTP2_CANCEL,
    };

    *find_kept(early, stream) = 0;
    early->is_opened = false;
    return nghttp2_session_mem_recv(session, frame, sizeof(frame));
}

/* The header of a frame that is cut in two by the end of an input: it goes on when all of it is there. */
static ssize_t read_cut_header(struct rpc_early_reset *early, nghttp2_session *session, const uint8_t **at,
                               const uint8_t *end)
{
    while (*at < end && early->header_size < RPC_FRAME_HEADER_BYTES)
        early->header[early->header_size++] = *(*at)++;
    if (early->header_size < RPC_FRAME_HEADER_BYTES)
        return 0;
    early->header_size = 0;
    look_at(early, early->header);
    return early->is_kept ? 0 : nghttp2_session_mem_recv(session, early->header, RPC_FRAME_HEADER_BYTES);
}

ssize_t rpc_early_reset_receive(struct rpc_early_reset *early, nghttp2_session *session, const uint8_t *bytes,
                                size_t size)
{
    const uint8_t *at = bytes, *end = bytes + size;
    const uint8_t *from = bytes; /* what is to be forwarded together, up to `at` */
    ssize_t done = 0;

    while (done >= 0 && at < end) {
        if (early->left == 0 && (early->header_size > 0 || end - at < RPC_FRAME_HEADER_BYTES)) {
            done = forward(session, from, at);
            if (done >= 0)
                done = read_cut_header(early, session, &at, end);
            from = at;
        } else if (early->left == 0) {
            look_at(early, at);
            if (early->is_kept)
                done = forward(session, from, at);
            at += RPC_FRAME_HEADER_BYTES;
        }
        if ((size_t)(end - at) < early->left) {
            early->left -= (uint32_t)(end - at);
            at = end;
        } else {
            at += early->left;
            early->left = 0;
        }
        if (early->is_kept)
            from = at;
        if (done >= 0 && early->left == 0 && early->is_opened) {
            done = forward(session, from, at);
            from = at;
            if (done >= 0)
                done = tell_reset(early, session);
        }
    }
    if (done >= 0)
        done = forward(session, from, end);
    return done < 0 ? done : (ssize_t)size;
}
