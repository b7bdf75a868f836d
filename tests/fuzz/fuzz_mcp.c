/*
 * leasehold mcp: what a client writes to its stdin, cut into pieces as a pipe cuts it. The tools themselves do nothing here.
 * Cut in another way the same bytes have the same answers, and each answer is a line of JSON.
 *
 * The first byte is how the server was started, the second the size of the pieces. A byte 0xff stands for more than half of
 * the longest line.
 */
#include <event2/event.h>
#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/mcp/mcp_internal.h"
#include "fuzz.h"

#define LONG_BYTES (LH_MCP_LINE_MAX * 5 / 8)
#define LONGS_MAX 4
#define TAKEN_BYTES 65536

static struct event_base *base;
static int client_in, client_out;

/* --- the tools --- */

void __wrap_lh_mcp_acquire(struct lh_mcp_call *call);
void __wrap_lh_mcp_renew(struct lh_mcp_call *call);
void __wrap_lh_mcp_release(struct lh_mcp_call *call);
void __wrap_lh_mcp_list(struct lh_mcp_call *call);
void __wrap_lh_mcp_explain(struct lh_mcp_call *call);
void __wrap_lh_mcp_run(struct lh_mcp_call *call);

/* In flight until it is cancelled, or the input ends. */
void __wrap_lh_mcp_acquire(struct lh_mcp_call *call)
{
    lh_mcp_call_progress(call, lh_mcp_call_text(call, "key"));
}

void __wrap_lh_mcp_run(struct lh_mcp_call *call)
{
}

void __wrap_lh_mcp_renew(struct lh_mcp_call *call)
{
    lh_mcp_call_done(call, json_object(), "renewed %.16s", lh_mcp_call_text(call, "key"));
}

void __wrap_lh_mcp_list(struct lh_mcp_call *call)
{
    lh_mcp_call_done(call, json_pack("{s:[]}", "leases"), "listed");
}

void __wrap_lh_mcp_release(struct lh_mcp_call *call)
{
    lh_mcp_call_failed(call, LH_LOST, NULL);
}

void __wrap_lh_mcp_explain(struct lh_mcp_call *call)
{
    lh_mcp_warn(call->mcp, lh_mcp_call_text(call, "key"));
    lh_mcp_call_refused(call, "REFUSED", "no", "Wait.", json_object());
}

/* --- a session --- */

static void on_over(void *arg)
{
    FUZZ_CHECK(!"stdin and stdout are open");
}

static void finish_calls(struct lh_mcp *mcp, bool is_end)
{
    LH_LIST_EACH(struct lh_mcp_call, call, &mcp->calls, link)
        if (is_end || call->is_cancelled)
            lh_mcp_call_refused(call, "CANCELED", "over", "Nothing.", json_object());
}

/* A cancelled call has ended before the next line, however they were cut. */
static void take_line(void *arg, const char *line, size_t size)
{
    finish_calls(arg, false);
    lh_mcp_take(arg, line, size);
}

static void check_line(const char *line, size_t size)
{
    json_t *message = json_loadb(line, size, 0, NULL), *id = json_object_get(message, "id");
    const json_t *said = json_object_get(message, "result");

    FUZZ_CHECK(message != NULL && strcmp(json_string_value(json_object_get(message, "jsonrpc")), "2.0") == 0);
    if (json_object_get(message, "method") != NULL)
        FUZZ_CHECK(id == NULL);
    else
        FUZZ_CHECK(id != NULL && (said != NULL) != (json_object_get(message, "error") != NULL));
    json_decref(message);
}

static void take_answers(struct lh_mcp *mcp, struct lh_buffer *answers)
{
    ssize_t size;

    do {
        event_base_loop(base, EVLOOP_NONBLOCK);
        size = recv(client_out, lh_buffer_reserve(answers, TAKEN_BYTES), TAKEN_BYTES, MSG_DONTWAIT);
        if (size > 0)
            answers->size += (size_t)size;
    } while (size > 0 || !lh_mcp_wire_is_flushed(&mcp->wire));
}

/* Feeds the text in pieces. */
static void converse(uint8_t how, const struct lh_buffer *text, size_t piece, struct lh_buffer *answers)
{
    struct lh_cli cli = {0};
    struct lh_mcp mcp = {
        .cli = &cli, .base = base, .is_read_only = how & 1, .allows_run = how & 2, .is_initialized = how & 4};

    lh_list_init(&mcp.calls);
    lh_list_init(&mcp.holds);
    mcp.wire.on_line = take_line;
    mcp.wire.on_over = on_over;
    mcp.wire.arg = &mcp;
    FUZZ_CHECK(lh_mcp_wire_open(&mcp.wire, base));
    for (size_t at = 0; at < text->size;) {
        size_t left = text->size - at;
        ssize_t sent = send(client_in, text->data + at, left < piece ? left : piece, MSG_DONTWAIT);
        if (sent > 0)
            at += (size_t)sent;
        take_answers(&mcp, answers);
        FUZZ_CHECK(mcp.wire.in.size <= LH_MCP_LINE_MAX && mcp.call_count <= LH_MCP_CALLS_MAX);
    }
    take_answers(&mcp, answers);
    finish_calls(&mcp, true);
    take_answers(&mcp, answers);
    FUZZ_CHECK(mcp.call_count == 0);
    lh_mcp_wire_close(&mcp.wire);
}

/* The input with its long lines, and a newline at the end. */
static void expand(struct fuzz_input *input, struct lh_buffer *text)
{
    size_t longs = 0;

    for (; input->left > 0; input->left--, input->at++)
        if (*input->at != 0xff) {
            lh_buffer_append(text, input->at, 1);
        } else if (longs++ < LONGS_MAX) {
            memset(lh_buffer_reserve(text, LONG_BYTES), 'x', LONG_BYTES);
            text->size += LONG_BYTES;
        }
    lh_buffer_append(text, "\n", 1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    int in[2], out[2];

    fuzz_quiet();
    base = event_base_new();
    FUZZ_CHECK(base != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, in) == 0 &&
               socketpair(AF_UNIX, SOCK_STREAM, 0, out) == 0);
    FUZZ_CHECK(dup2(in[0], STDIN_FILENO) >= 0 && dup2(out[0], STDOUT_FILENO) >= 0);
    client_in = in[1];
    client_out = out[1];
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct lh_buffer text = {0}, answers = {0}, others = {0};
    uint8_t how = fuzz_byte(&input);
    size_t piece = 1 + (size_t)fuzz_byte(&input), at = 0;

    expand(&input, &text);
    if (text.size > LONG_BYTES)
        piece *= 1024;
    converse(how, &text, TAKEN_BYTES, &answers);
    converse(how, &text, piece, &others);
    FUZZ_CHECK(answers.size == others.size &&
               (answers.size == 0 || memcmp(answers.data, others.data, answers.size) == 0));
    while (at < answers.size) {
        const char *line = (const char *)answers.data + at, *end = memchr(line, '\n', answers.size - at);
        FUZZ_CHECK(end != NULL);
        check_line(line, (size_t)(end - line));
        at += (size_t)(end - line) + 1;
    }
    lh_buffer_finish(&text);
    lh_buffer_finish(&answers);
    lh_buffer_finish(&others);
    return 0;
}
