/*
 * A request on its way: the calls of its route go out over one connection, and when the last has its answer the request has
 * its own. The first that fails decides. A client that goes takes its connection with it, and so its calls.
 */
#include "console/console_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "json/print.h"

#define CALL_TIMEOUT_US (20 * LH_US_PER_S)

struct call;

struct part {
    struct call *call;
    const struct console_part *of;
    json_t *json; /* NULL: none yet, or it is missing */
};

struct call {
    struct lh_link link;
    struct lh_console *console;
    struct lh_http_request *request;
    struct lh_rpc_channel *channel;
    struct lh_deferred end; /* outside of the channel's callbacks */
    const struct console_route *route;
    struct part parts[ROUTE_PARTS_MAX];
    size_t waiting;
    json_t *failure;
    int failure_code;
    uint64_t session;    /* the number of its session; 0: it has none */
    char *authorization; /* that is being tried: of a sign-in */
};

static void destroy(void *arg)
{
    struct call *call = arg;

    call->request = NULL;
    lh_list_remove(&call->link);
    lh_deferred_cancel(&call->end);
    lh_rpc_channel_destroy(call->channel);
    for (size_t i = 0; i < ROUTE_PARTS_MAX; i++)
        json_decref(call->parts[i].json);
    json_decref(call->failure);
    if (call->authorization != NULL)
        explicit_bzero(call->authorization, strlen(call->authorization));
    free(call->authorization);
    free(call);
}

/* --- answers --- */

static void add_session(json_t *answer, const struct session *session)
{
    char text[LH_JSON_TIME_BYTES];
    int64_t left_us;

    json_object_set_new(answer, "signed_in", json_boolean(session != NULL));
    json_object_set_new(answer, "csrf_token", json_string(session != NULL ? session->csrf : ""));
    if (session == NULL)
        return;
    left_us = session->ends_at_us - lh_clock_us();
    json_object_set_new(answer, "expires_at",
                        json_string(lh_json_timestamp(time(NULL) + left_us / LH_US_PER_S, 0, text)));
}

static json_t *put_together(const struct call *call)
{
    json_t *answer = json_object();

    for (size_t i = 0; i < ROUTE_PARTS_MAX; i++) {
        const struct part *part = &call->parts[i];
        if (part->json != NULL && part->of->member != NULL)
            json_object_set(answer, part->of->member, part->json);
        else if (part->json != NULL)
            json_object_update(answer, part->json);
    }
    return answer;
}

/* A token that is not valid any more ends its session. */
static void answer_failure(struct call *call)
{
    struct session *session = lh_session_find_number(&call->console->sessions, call->session, lh_clock_us());

    if (call->failure_code == 401 && session != NULL) {
        lh_session_end(&call->console->sessions, session);
        lh_console_forget_cookie(call->request);
    }
    lh_console_answer_json(call->request, call->failure_code, json_incref(call->failure));
}

static void answer(struct call *call)
{
    struct session_table *sessions = &call->console->sessions;
    const char *path = call->route->path;
    json_t *json;

    if (call->failure != NULL) {
        answer_failure(call);
        return;
    }
    json = put_together(call);
    if (strcmp(path, "/sign-in") == 0) {
        struct session *session = lh_session_create(sessions, call->authorization, lh_clock_us());
        lh_console_set_cookie(call->request, session);
        add_session(json, session);
    } else if (strcmp(path, "/session") == 0) {
        add_session(json, lh_session_find_number(sessions, call->session, lh_clock_us()));
    }
    lh_console_answer_json(call->request, 200, json);
}

static void on_end(void *arg)
{
    struct call *call = arg;

    answer(call);
    destroy(call);
}

/* --- parts --- */

static void on_message(void *arg, const void *data, size_t size)
{
    struct part *part = arg;
    ProtobufCMessage *message = protobuf_c_message_unpack(part->of->response, NULL, size, data);

    if (message == NULL || part->json != NULL)
        return;
    part->json = lh_json_from_message(message, LH_JSON_ALL_FIELDS);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void on_done(void *arg, const struct lh_rpc_result *result)
{
    struct part *part = arg;
    struct call *call = part->call;
    bool is_missing = part->of->may_be_missing && result->code == LH_GRPC_NOT_FOUND;

    if (call->request == NULL)
        return;
    if (result->code != LH_GRPC_OK && !is_missing && call->failure == NULL) {
        call->failure = lh_console_error_of(result);
        call->failure_code = lh_console_code_of(result->code);
    }
    if (--call->waiting == 0)
        lh_defer(call->console->loop, &call->end);
}

static void start_part(struct call *call, struct part *part, const char *authorization, const ProtobufCMessage *message)
{
    static const struct lh_rpc_stream_callbacks callbacks = {.on_message = on_message, .on_done = on_done};
    const struct lh_rpc_metadata metadata = {"authorization", authorization};
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = lh_alloc(size + 1);
    struct lh_rpc_client_call *rpc;

    part->call = call;
    call->waiting++;
    protobuf_c_message_pack(message, packed);
    rpc = lh_rpc_client_call_start(call->channel, part->of->method, lh_clock_us() + CALL_TIMEOUT_US, &metadata,
                                   authorization == NULL ? 0 : 1, &callbacks, part);
    lh_rpc_client_call_send(rpc, packed, size);
    lh_rpc_client_call_half_close(rpc);
    explicit_bzero(packed, size);
    free(packed);
}

/* NULL: the request was refused. */
static const char *unknown_parameter(const struct console_route *route, const json_t *parameters)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)parameters, name, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < ROUTE_PARTS_MAX && route->parts[i].method != NULL; i++)
            is_known |= lh_request_takes(route->parts[i].request, name);
        if (!is_known)
            return name;
    }
    return NULL;
}

static bool refuse_field(struct lh_http_request *request, const char *field, const char *words)
{
    char text[256];

    snprintf(text, sizeof(text), "%.64s %s", field, words);
    return lh_console_refuse(request, 400, text);
}

static bool build(const struct console_route *route, const json_t *parameters, struct lh_arena *arena,
                  ProtobufCMessage *messages[ROUTE_PARTS_MAX], struct lh_http_request *request)
{
    const char *unknown = unknown_parameter(route, parameters);
    struct lh_json_problem problem;

    if (unknown != NULL)
        return refuse_field(request, unknown, "is not a parameter of this path");
    for (size_t i = 0; i < ROUTE_PARTS_MAX && route->parts[i].method != NULL; i++) {
        messages[i] =
            lh_request_message(route->parts[i].request, parameters, route->parts[i].is_whole, arena, &problem);
        if (messages[i] == NULL)
            return refuse_field(request, problem.field, problem.words);
    }
    return true;
}

/* NULL: the request was refused. */
static struct call *create(struct lh_console *console, struct lh_http_request *request,
                           const struct console_route *route)
{
    struct lh_rpc_channel *channel = lh_console_connect(console, request);
    struct call *call;

    if (channel == NULL)
        return NULL;
    call = lh_alloc_zero(1, sizeof(*call));
    call->console = console;
    call->request = request;
    call->channel = channel;
    call->route = route;
    lh_deferred_init(&call->end, on_end, call);
    lh_list_append(&console->calls, &call->link);
    request->on_gone = destroy;
    request->data = call;
    return call;
}

static void start(struct call *call, const char *authorization, ProtobufCMessage *messages[ROUTE_PARTS_MAX])
{
    for (size_t i = 0; i < ROUTE_PARTS_MAX && call->route->parts[i].method != NULL; i++) {
        call->parts[i].of = &call->route->parts[i];
        start_part(call, &call->parts[i], authorization, messages[i]);
    }
}

void lh_console_call(struct lh_console *console, struct lh_http_request *request, const struct console_route *route,
                     const json_t *parameters)
{
    ProtobufCMessage *messages[ROUTE_PARTS_MAX];
    struct lh_arena arena = {0};
    struct console_caller caller;
    struct call *call;

    if (lh_console_identify(console, request, &caller) && build(route, parameters, &arena, messages, request) &&
        (call = create(console, request, route)) != NULL) {
        call->session = caller.session != NULL ? caller.session->number : 0;
        start(call, caller.authorization, messages);
    }
    lh_arena_finish(&arena);
}

/* --- sessions --- */

void lh_console_sign_in(struct lh_console *console, struct lh_http_request *request, const json_t *parameters)
{
    const struct console_route *route = lh_route_find("/sign-in", NULL, NULL);
    const char *token = json_string_value(json_object_get(parameters, "token"));
    ProtobufCMessage *messages[ROUTE_PARTS_MAX];
    struct lh_json_problem problem;
    struct lh_arena arena = {0};
    struct call *call;
    json_t *nothing;

    if (!lh_session_may_sign_in(&console->sessions, request->peer, lh_clock_us())) {
        console->stats.refused_sign_ins++;
        lh_http_add_header(request, "Retry-After", "1");
        lh_console_refuse(request, 429, "too many attempts to sign in from this address: wait a second");
        return;
    }
    if (token == NULL || json_object_size(parameters) != 1 || strlen(token) > 256 ||
        strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != strlen(token)) {
        lh_console_refuse(request, 400, "the body must be {\"token\": TOKEN}");
        return;
    }
    call = create(console, request, route);
    if (call == NULL)
        return;
    nothing = json_object();
    call->authorization = lh_format("Bearer %s", token);
    messages[0] = lh_request_message(route->parts[0].request, nothing, false, &arena, &problem);
    start(call, call->authorization, messages);
    json_decref(nothing);
    lh_arena_finish(&arena);
}

void lh_console_sign_out(struct lh_console *console, struct lh_http_request *request)
{
    struct console_caller caller;

    if (!lh_console_identify(console, request, &caller))
        return;
    if (caller.session != NULL)
        lh_session_end(&console->sessions, caller.session);
    lh_console_forget_cookie(request);
    lh_console_answer_json(request, 200, json_object());
}

void lh_console_end_calls(struct lh_console *console)
{
    LH_LIST_EACH(struct call, call, &console->calls, link) {
        lh_console_refuse(call->request, 503, "the daemon is shutting down");
        destroy(call);
    }
}
