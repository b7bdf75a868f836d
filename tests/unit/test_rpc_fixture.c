#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "certificates.h"
#include "test_rpc.h"
#include "tls/context.h"

struct lh_loop *loop;
struct lh_rpc_server *server;
struct lh_rpc_server_options server_options;
struct heard heard;
struct lh_tls_context *server_tls;

void rpc_secure(bool needs_client_cert)
{
    struct lh_tls_server_options options = {.needs_client_cert = needs_client_cert, .protocol = "h2"};
    struct lh_error error;

    certificates_setup();
    make_certificate(&(struct certificate){.name = "server", .issuer = "ca", .san = "IP:127.0.0.1"});
    options.cert_file = path_of("server.pem");
    options.key_file = path_of("server.key");
    options.client_ca_file = path_of("ca.pem");
    server_tls = lh_tls_server_context_create(&options, &error);
    ck_assert_msg(server_tls != NULL, "%s", error.message);
}

void rpc_plain(void)
{
    lh_tls_context_release(server_tls);
    server_tls = NULL;
    certificates_teardown();
}

static void on_start(struct lh_rpc_call *call)
{
    heard.starts++;
    heard.last = call;
}

static void on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    heard.ends[reason]++;
    heard.lost += lh_rpc_call_is_peer_lost(call);
    if (heard.last == call)
        heard.last = NULL;
}

static void hear_authorization(struct lh_rpc_call *call)
{
    const char *authorization = lh_rpc_call_metadata(call, "authorization");

    snprintf(heard.authorization, sizeof(heard.authorization), "%s", authorization != NULL ? authorization : "");
}

static void on_echo(struct lh_rpc_call *call, const void *data, size_t size)
{
    const char *fail = lh_rpc_call_metadata(call, "x-fail");
    const char *words = lh_rpc_call_metadata(call, "x-words");

    hear_authorization(call);
    heard.messages++;
    heard.message_bytes += size;
    if (fail != NULL) {
        size_t length = words == NULL ? 5 : (size_t)atoi(words);
        char *message = lh_alloc_zero(length + 1, 1);
        for (size_t i = 0; i + 1 < length; i += 2)
            memcpy(message + i, "ö", 2);
        lh_rpc_call_finish(call, (enum lh_grpc_code)atoi(fail), message, "details", 7);
        lh_rpc_call_finish(call, LH_GRPC_OK, NULL, NULL, 0);
        ck_assert_int_eq(lh_rpc_call_send(call, "x", 1), LH_CANCELED);
        free(message);
        return;
    }
    lh_rpc_call_reply(call, data, size);
}

static void on_never(struct lh_rpc_call *call, const void *data, size_t size)
{
    heard.messages++;
    heard.last = call;
}

static void on_answer(struct lh_rpc_call *call, const void *data, size_t size)
{
    heard.messages++;
    lh_rpc_call_reply(heard.last, "answered", 8);
    lh_rpc_call_reply(call, data, size);
}

static void fill_stream(struct lh_rpc_call *call)
{
    char bytes[1000] = {0};
    enum lh_status status = LH_OK;

    heard.writables++;
    while (status == LH_OK && lh_rpc_call_unsent(call) <= server_options.stream_mark_bytes)
        status = lh_rpc_call_send(call, bytes, sizeof(bytes));
}

static void on_stream(struct lh_rpc_call *call, const void *data, size_t size)
{
    heard.messages++;
    heard.last = call;
    fill_stream(call);
}

static void on_bidi(struct lh_rpc_call *call, const void *data, size_t size)
{
    hear_authorization(call);
    heard.messages++;
    heard.message_bytes += size;
    heard.last = call;
    ck_assert_int_eq(lh_rpc_call_send(call, data, size), LH_OK);
    if (heard.is_pausing)
        lh_rpc_call_pause(call);
}

static void on_peer_alive(struct lh_rpc_call *call)
{
    heard.alive++;
}

static void on_alarm(struct lh_rpc_call *call)
{
    heard.alarms++;
}

static void on_half_close(struct lh_rpc_call *call)
{
    heard.half_closes++;
    lh_rpc_call_finish(call, LH_GRPC_OK, "done", NULL, 0);
}

static void on_early(struct lh_rpc_call *call)
{
    on_start(call);
    lh_rpc_call_finish(call, LH_GRPC_NOT_FOUND, "early", NULL, 0);
}

static const struct lh_rpc_method methods[] = {
    {.path = "/t.T/Echo", .kind = LH_RPC_UNARY, .on_message = on_echo, .on_end = on_end},
    {.path = "/t.T/First", .kind = LH_RPC_UNARY, .on_message = on_echo, .on_end = on_end, .comes_first = true},
    {.path = "/t.T/Never", .kind = LH_RPC_UNARY, .on_message = on_never, .on_end = on_end},
    {.path = "/t.T/Answer", .kind = LH_RPC_UNARY, .on_message = on_answer, .on_end = on_end},
    {.path = "/t.T/Stream",
     .kind = LH_RPC_SERVER_STREAM,
     .on_message = on_stream,
     .on_writable = fill_stream,
     .on_end = on_end},
    {.path = "/t.T/Bidi",
     .kind = LH_RPC_BIDI,
     .on_start = on_start,
     .on_message = on_bidi,
     .on_half_close = on_half_close,
     .on_alarm = on_alarm,
     .on_peer_alive = on_peer_alive,
     .on_end = on_end},
    {.path = "/t.T/Early", .kind = LH_RPC_BIDI, .on_start = on_early, .on_end = on_end},
};
const struct lh_rpc_method *const test_methods = methods;

static void encode_error(void *arg, enum lh_status status, const char *message, struct lh_buffer *details)
{
    lh_buffer_append(details, lh_status_name(status), strlen(lh_status_name(status)));
}

void server_start(void)
{
    struct lh_error error;

    server_options.encode_error = encode_error;
    server = lh_rpc_server_create(loop, &server_options, methods, sizeof(methods) / sizeof(methods[0]), NULL);
    if (server_tls != NULL)
        lh_rpc_server_set_tls(server, server_tls);
    ck_assert_msg(rpc_listen(server, "127.0.0.1:0", &error) == LH_OK, "%s", error.message);
    ck_assert_int_gt(rpc_port(server), 0);
}

void rpc_setup(void)
{
    memset(&heard, 0, sizeof(heard));
    loop = lh_loop_create();
    lh_rpc_server_options_init(&server_options);
    /* A test that is about neither may be kept from running for longer than the defaults. */
    server_options.handshake_timeout_us = server_options.request_timeout_us = 300 * LH_US_PER_S;
    server_start();
}

void rpc_teardown(void)
{
    lh_rpc_server_destroy(server);
    server = NULL;
    lh_loop_destroy(loop);
    virtual_clock_end();
}

int ends_total(void)
{
    int total = 0;
    for (size_t i = 0; i < 6; i++)
        total += heard.ends[i];
    return total;
}

struct raw_answer *raw_answer(struct raw *raw, int32_t stream_id)
{
    return &raw->answers[stream_id / 2 % RAW_STREAMS_MAX];
}

static void copy_text(char *to, size_t room, const uint8_t *from, size_t size)
{
    ck_assert_uint_lt(size, room);
    memcpy(to, from, size);
    to[size] = '\0';
}

static int on_raw_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                         const uint8_t *value, size_t value_size, uint8_t flags, void *arg)
{
    struct raw_answer *answer = raw_answer(arg, frame->hd.stream_id);
    const char *text = (const char *)name;

    if (frame->headers.cat != NGHTTP2_HCAT_RESPONSE || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        answer->trailer_bytes += name_size + value_size + 32;
    if (strcmp(text, ":status") == 0)
        answer->http_status = atoi((const char *)value);
    else if (strcmp(text, "grpc-status") == 0)
        answer->grpc_status = atoi((const char *)value);
    else if (strcmp(text, "grpc-message") == 0)
        copy_text(answer->message, sizeof(answer->message), value, value_size);
    else if (strcmp(text, "grpc-status-details-bin") == 0)
        copy_text(answer->details, sizeof(answer->details), value, value_size);
    else if (strcmp(text, "grpc-accept-encoding") == 0)
        copy_text(answer->encodings, sizeof(answer->encodings), value, value_size);
    return 0;
}

static int on_raw_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t size,
                       void *arg)
{
    lh_buffer_append(&raw_answer(arg, stream_id)->data, data, size);
    return 0;
}

static int on_raw_close(nghttp2_session *session, int32_t stream_id, uint32_t error, void *arg)
{
    raw_answer(arg, stream_id)->is_closed = true;
    raw_answer(arg, stream_id)->error = error;
    return 0;
}

static int on_raw_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct raw *raw = arg;
    /* The session did not send our half's end (raw_data), so it does not see the stream close by itself. */
    if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        raw_answer(raw, frame->hd.stream_id)->is_closed = true;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        raw->goaways++;
        raw->goaway_error = frame->goaway.error_code;
    }
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
        raw->pongs++;
    if (frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK))
        raw->pings++;
    return 0;
}

int raw_connect(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)rpc_port(server))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)); /* each piece is a packet */
    return fd;
}

void raw_open(struct raw *raw)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;

    memset(raw, 0, sizeof(*raw));
    for (size_t i = 0; i < RAW_STREAMS_MAX; i++)
        raw->answers[i].grpc_status = -1;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_raw_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_raw_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_raw_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_raw_frame);
    nghttp2_option_new(&option);
    nghttp2_option_set_max_send_header_block_length(option, RAW_HEADERS_MAX_BYTES);
    nghttp2_session_client_new2(&raw->session, callbacks, raw, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(raw->session, NGHTTP2_FLAG_NONE, NULL, 0);
    raw->fd = raw_connect();
    raw_collect(raw);
}

void raw_close(struct raw *raw)
{
    if (raw->fd >= 0)
        close(raw->fd);
    raw->fd = -1;
    nghttp2_session_del(raw->session);
    raw->session = NULL;
    lh_buffer_finish(&raw->out);
    for (size_t i = 0; i < RAW_STREAMS_MAX; i++)
        lh_buffer_finish(&raw->answers[i].data);
}

static nghttp2_nv field(const char *name, const char *value)
{
    nghttp2_nv nv = {(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value), 0};
    return nv;
}

void raw_forget(struct raw *raw, int32_t stream_id)
{
    struct raw_answer *answer = raw_answer(raw, stream_id);

    lh_buffer_finish(&answer->data);
    memset(answer, 0, sizeof(*answer));
    answer->grpc_status = -1;
}

int32_t raw_request(struct raw *raw, const char *method, const char *path, const char *content_type,
                    const char *const *extra)
{
    nghttp2_nv fields[64];
    size_t count = 0;
    int32_t stream_id;

    fields[count++] = field(":method", method);
    fields[count++] = field(":scheme", "http");
    fields[count++] = field(":path", path);
    fields[count++] = field(":authority", "localhost");
    fields[count++] = field("te", "trailers");
    if (content_type != NULL)
        fields[count++] = field("content-type", content_type);
    for (; extra != NULL && *extra != NULL; extra += 2)
        fields[count++] = field(extra[0], extra[1]);
    stream_id = nghttp2_submit_headers(raw->session, NGHTTP2_FLAG_NONE, -1, NULL, fields, count, NULL);
    ck_assert_int_gt(stream_id, 0);
    raw_forget(raw, stream_id);
    raw_collect(raw);
    return stream_id;
}

int32_t raw_call(struct raw *raw, const char *path, const char *const *extra)
{
    return raw_request(raw, "POST", path, "application/grpc", extra);
}

/* The frame is written here, past the session's flow control and opinion. */
void raw_data(struct raw *raw, int32_t stream_id, const void *data, size_t size, bool is_last)
{
    unsigned char head[9] = {(unsigned char)(size >> 16), (unsigned char)(size >> 8), (unsigned char)size, 0, is_last};

    head[5] = (unsigned char)(stream_id >> 24);
    head[6] = (unsigned char)(stream_id >> 16);
    head[7] = (unsigned char)(stream_id >> 8);
    head[8] = (unsigned char)stream_id;
    raw_collect(raw);
    lh_buffer_append(&raw->out, head, sizeof(head));
    lh_buffer_append(&raw->out, data, size);
}

void raw_message(struct raw *raw, int32_t stream_id, const char *text, bool is_last)
{
    struct lh_buffer bytes = {0};
    size_t size = strlen(text);
    unsigned char prefix[5] = {0, (unsigned char)(size >> 24), (unsigned char)(size >> 16), (unsigned char)(size >> 8),
                               (unsigned char)size};

    lh_buffer_append(&bytes, prefix, sizeof(prefix));
    lh_buffer_append(&bytes, text, size);
    for (size_t at = 0, step; at < bytes.size; at += step) {
        step = bytes.size - at < RAW_FRAME_BYTES ? bytes.size - at : RAW_FRAME_BYTES;
        raw_data(raw, stream_id, bytes.data + at, step, is_last && at + step == bytes.size);
    }
    lh_buffer_finish(&bytes);
}

void raw_reset(struct raw *raw, int32_t stream_id)
{
    nghttp2_submit_rst_stream(raw->session, NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_CANCEL);
    raw_collect(raw);
}

void raw_collect(struct raw *raw)
{
    const uint8_t *data;
    ssize_t size;
    while ((size = nghttp2_session_mem_send(raw->session, &data)) > 0)
        lh_buffer_append(&raw->out, data, (size_t)size);
}

void raw_write(struct raw *raw, size_t size)
{
    size_t at = 0;
    while (at < size && !raw->is_gone) {
        ssize_t written = send(raw->fd, raw->out.data + at, size - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (written > 0)
            at += (size_t)written;
        else if (errno == EAGAIN)
            raw_pump(raw);
        else
            raw->is_gone = true;
    }
    if (at > 0)
        memmove(raw->out.data, raw->out.data + at, raw->out.size - at);
    raw->out.size -= at;
}

void raw_flush(struct raw *raw)
{
    raw_collect(raw);
    raw_write(raw, raw->out.size);
}

void raw_pump(struct raw *raw)
{
    unsigned char bytes[65536];
    ssize_t size;

    virtual_clock_turn(loop);
    while (!raw->reads_not && !raw->is_gone) {
        size = recv(raw->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (size < 0 && errno == EAGAIN)
            break;
        if (size <= 0)
            raw->is_gone = true;
        else
            ck_assert_int_ge(nghttp2_session_mem_recv(raw->session, bytes, (size_t)size), 0);
    }
    /* Window updates and acknowledgements; not while the test holds bytes back. */
    if (raw->out.size == 0 && !raw->is_gone && !raw->reads_not && nghttp2_session_want_write(raw->session))
        raw_flush(raw);
}

void raw_wait_closed(struct raw *raw, int32_t stream_id)
{
    RAW_WAIT(raw, raw_answer(raw, stream_id)->is_closed);
}

void raw_expect_echo(struct raw *raw, int32_t stream_id, const char *text)
{
    struct raw_answer *answer = raw_answer(raw, stream_id);

    raw_wait_closed(raw, stream_id);
    ck_assert_int_eq(answer->http_status, 200);
    ck_assert_int_eq(answer->grpc_status, 0);
    ck_assert_uint_eq(answer->data.size, 5 + strlen(text));
    ck_assert_mem_eq(answer->data.data + 5, text, strlen(text));
}
