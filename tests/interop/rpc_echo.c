/*
 * A server with one method of each kind and no other purpose than to be called by foreign clients (rpc_echo_test.py).
 * It prints the port it got, and on SIGTERM drains and exits with 0.
 *
 * Unary echoes; request headers tell it to do otherwise: x-fail (a code), x-details (bytes of google.rpc.Status),
 * x-message, x-echo (comes back as the reply). Never answers nothing. Stream answers "COUNT SIZE" with so many
 * messages. Bidi echoes each message. Counts tells how calls ended, as "name=value" lines.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "loop/loop.h"
#include "rpc_peek.h"

struct echo {
    struct lh_loop *loop;
    struct lh_rpc_server *server;
    struct lh_signal term;
    size_t never_open;
    size_t never_ended[6];
};

/* What is left to send of a Stream call. */
struct stream {
    size_t left;
    size_t size;
    char *bytes;
};

static void on_unary(struct lh_rpc_call *call, const void *data, size_t size)
{
    const char *fail = lh_rpc_call_metadata(call, "x-fail");
    const char *details = lh_rpc_call_metadata(call, "x-details");
    const char *echo = lh_rpc_call_metadata(call, "x-echo");
    const char *message = lh_rpc_call_metadata(call, "x-message");

    if (fail != NULL)
        lh_rpc_call_finish(call, (enum lh_grpc_code)atoi(fail), message == NULL ? "100% größer\n" : message, details,
                           details == NULL ? 0 : strlen(details));
    else if (echo != NULL)
        lh_rpc_call_reply(call, echo, strlen(echo));
    else
        lh_rpc_call_reply(call, data, size);
}

static void on_never(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct echo *echo = lh_rpc_call_arg(call);
    echo->never_open++;
}

static void on_never_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct echo *echo = lh_rpc_call_arg(call);
    echo->never_open--;
    echo->never_ended[reason]++;
}

static void send_stream(struct lh_rpc_call *call)
{
    struct stream *stream = lh_rpc_call_data(call);

    while (stream->left > 0 && lh_rpc_call_unsent(call) < 64 * 1024) {
        stream->left--;
        if (lh_rpc_call_send(call, stream->bytes, stream->size) != LH_OK)
            return;
    }
    if (stream->left == 0)
        lh_rpc_call_finish(call, LH_GRPC_OK, NULL, NULL, 0);
}

static void on_stream(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct stream *stream = lh_alloc_zero(1, sizeof(*stream));
    char text[64] = "";

    lh_rpc_call_set_data(call, stream);
    memcpy(text, data, size < sizeof(text) ? size : sizeof(text) - 1);
    if (sscanf(text, "%zu %zu", &stream->left, &stream->size) != 2 || stream->size > 1 << 20) {
        lh_rpc_call_finish(call, LH_GRPC_INVALID_ARGUMENT, "COUNT SIZE", NULL, 0);
        return;
    }
    stream->bytes = lh_alloc_zero(stream->size + 1, 1);
    send_stream(call);
}

static void on_stream_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct stream *stream = lh_rpc_call_data(call);
    free(stream->bytes);
    free(stream);
}

static void on_bidi(struct lh_rpc_call *call, const void *data, size_t size)
{
    lh_rpc_call_send(call, data, size);
    if (lh_rpc_call_unsent(call) > 64 * 1024)
        lh_rpc_call_pause(call);
}

static void on_bidi_writable(struct lh_rpc_call *call)
{
    lh_rpc_call_resume(call);
}

static void on_bidi_half_close(struct lh_rpc_call *call)
{
    lh_rpc_call_finish(call, LH_GRPC_OK, NULL, NULL, 0);
}

static void on_counts(struct lh_rpc_call *call, const void *data, size_t size)
{
    static const char *const names[] = {"finished", "canceled", "disconnected", "deadline", "refused", "shutdown"};
    struct echo *echo = lh_rpc_call_arg(call);
    struct lh_rpc_server_stats stats;
    char text[1024];
    int used;

    lh_rpc_server_stats(echo->server, &stats);
    used = snprintf(text, sizeof(text), "never_open=%zu\ncalls=%zu\nconnections=%zu\nbuffered=%zu\n", echo->never_open,
                    stats.calls, stats.connections, stats.buffered_bytes);
    for (int i = 0; i < 6; i++)
        used += snprintf(text + used, sizeof(text) - (size_t)used, "never_%s=%zu\n%s=%llu\n", names[i],
                         echo->never_ended[i], names[i], (unsigned long long)stats.calls_ended[i]);
    lh_rpc_call_reply(call, text, (size_t)used);
}

static const struct lh_rpc_method methods[] = {
    {.path = "/echo.Echo/Unary", .kind = LH_RPC_UNARY, .on_message = on_unary},
    {.path = "/echo.Echo/Never", .kind = LH_RPC_UNARY, .on_message = on_never, .on_end = on_never_end},
    {.path = "/echo.Echo/Stream",
     .kind = LH_RPC_SERVER_STREAM,
     .on_message = on_stream,
     .on_writable = send_stream,
     .on_end = on_stream_end},
    {.path = "/echo.Echo/Bidi",
     .kind = LH_RPC_BIDI,
     .on_message = on_bidi,
     .on_half_close = on_bidi_half_close,
     .on_writable = on_bidi_writable},
    {.path = "/echo.Echo/Counts", .kind = LH_RPC_UNARY, .on_message = on_counts},
};

static void encode_error(void *arg, enum lh_status status, const char *message, struct lh_buffer *details)
{
    const char *name = lh_status_name(status);
    lh_buffer_append(details, name, strlen(name));
}

static void on_drained(void *arg)
{
    struct echo *echo = arg;
    lh_loop_stop(echo->loop);
}

static void on_term(void *arg, int number)
{
    struct echo *echo = arg;
    lh_rpc_server_drain(echo->server, NULL, on_drained, echo);
}

int main(int argc, char **argv)
{
    struct echo echo = {.loop = lh_loop_create()};
    struct lh_rpc_server_options options;
    struct lh_error error;

    if (echo.loop == NULL)
        return 1;
    lh_rpc_server_options_init(&options);
    options.encode_error = encode_error;
    if (getenv("RPC_ECHO_PREFACE_MS") != NULL)
        options.handshake_timeout_us = atoi(getenv("RPC_ECHO_PREFACE_MS")) * LH_US_PER_MS;
    echo.server = lh_rpc_server_create(echo.loop, &options, methods, sizeof(methods) / sizeof(methods[0]), &echo);
    for (int i = 1; i < argc; i++) {
        if (rpc_listen(echo.server, argv[i], &error) != LH_OK) {
            lh_err("%s", error.message);
            return 1;
        }
    }
    lh_signal_init(&echo.term, echo.loop, SIGTERM, on_term, &echo);
    printf("%d\n", rpc_port(echo.server));
    fflush(stdout);
    lh_loop_run(echo.loop);
    lh_signal_finish(&echo.term);
    lh_rpc_server_destroy(echo.server);
    lh_loop_destroy(echo.loop);
    return 0;
}
