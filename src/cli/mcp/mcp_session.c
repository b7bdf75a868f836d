/*
 * The protocol: JSON-RPC 2.0, and the methods of the revisions up to 2025-11-25, which begin with initialize, and of
 * 2026-07-28, in which each request brings its revision along. A fault of the protocol is an error; the refusal of a tool
 * is a result, which the model reads.
 */
#include <string.h>

#include "cli/error.h"
#include "cli/mcp/mcp_internal.h"

#define PARSE_ERROR (-32700)
#define INVALID_REQUEST (-32600)
#define METHOD_NOT_FOUND (-32601)
#define INVALID_PARAMS (-32602)
#define UNSUPPORTED_VERSION (-32022)

#define MODERN "2026-07-28"
#define META "io.modelcontextprotocol/"

/* Those that begin with initialize, the newest first. */
static const char *const legacy[] = {"2025-11-25", "2025-06-18", NULL};

static const char instructions[] =
    "Leases are exclusive rights to names, shared by programs on many machines. Acquire a lease before work that only "
    "one "
    "may do at a time, and release it as soon as that is done. This server renews the leases that it has acquired, and "
    "releases them when the session ends. If a call answers LOST, another holder may have the lease: stop the work. "
    "Hand "
    "the token to whatever can refuse an older one.";

struct request {
    struct lh_mcp *mcp;
    json_t *id; /* NULL: a notification */
    const char *method;
    json_t *params, *meta; /* may be NULL */
    bool is_modern;
};

static void refuse(const struct request *request, int code, const char *words, const char *value)
{
    if (request->id != NULL)
        lh_mcp_wire_send(&request->mcp->wire, lh_mcp_error(request->id, code, "%s%.200s", words, value));
}

static void answer(const struct request *request, json_t *result)
{
    lh_mcp_answer(request->mcp, request->id, request->is_modern, result);
}

static json_t *server_info(void)
{
    return json_pack("{s:s, s:s, s:s}", "name", "leasehold", "title", "Leasehold", "version", LH_VERSION);
}

/* --- methods --- */

static void initialize(const struct request *request)
{
    const char *asked = json_string_value(json_object_get(request->params, "protocolVersion")), *version = legacy[0];

    if (asked == NULL) {
        refuse(request, INVALID_PARAMS, "initialize needs protocolVersion, a text", "");
        return;
    }
    if (request->mcp->is_initialized) {
        refuse(request, INVALID_REQUEST, "the session is initialized already", "");
        return;
    }
    for (size_t i = 0; legacy[i] != NULL; i++)
        if (strcmp(legacy[i], asked) == 0)
            version = legacy[i];
    request->mcp->is_initialized = true;
    answer(request, json_pack("{s:s, s:{s:{s:b}, s:{}}, s:o, s:s}", "protocolVersion", version, "capabilities", "tools",
                              "listChanged", 0, "logging", "serverInfo", server_info(), "instructions", instructions));
}

/* How long a client may keep an answer that never changes while this server lives. */
static json_t *cacheable(json_t *result, bool is_modern)
{
    if (is_modern) {
        json_object_set_new(result, "ttlMs", json_integer(3600000));
        json_object_set_new(result, "cacheScope", json_string("private"));
    }
    return result;
}

static void discover(const struct request *request)
{
    json_t *versions = json_pack("[s]", MODERN);

    for (size_t i = 0; legacy[i] != NULL; i++)
        json_array_append_new(versions, json_string(legacy[i]));
    answer(request, cacheable(json_pack("{s:o, s:{s:{s:b}}, s:s, s:{s:o}}", "supportedVersions", versions,
                                        "capabilities", "tools", "listChanged", 0, "instructions", instructions,
                                        "_meta", META "serverInfo", server_info()),
                              true));
}

static void ping(const struct request *request)
{
    answer(request, json_object());
}

static void set_level(const struct request *request)
{
    const char *level = json_string_value(json_object_get(request->params, "level"));

    for (size_t i = 0; level != NULL && lh_mcp_levels[i] != NULL; i++)
        if (strcmp(lh_mcp_levels[i], level) == 0) {
            request->mcp->log_level = i;
            answer(request, json_object());
            return;
        }
    refuse(request, INVALID_PARAMS, "level must be debug, info, notice, warning, error, critical, alert or emergency",
           "");
}

static void list_tools(const struct request *request)
{
    if (json_object_get(request->params, "cursor") != NULL)
        refuse(request, INVALID_PARAMS, "cursor: this server has one page, and gave none", "");
    else
        answer(request, cacheable(json_pack("{s:o}", "tools", lh_mcp_tools_list(request->mcp)), request->is_modern));
}

static void call_tool(const struct request *request)
{
    const char *name = json_string_value(json_object_get(request->params, "name"));
    json_t *arguments = json_object_get(request->params, "arguments"), *token;
    const struct lh_mcp_tool *tool = name != NULL ? lh_mcp_tool_find(request->mcp, name) : NULL;
    struct lh_mcp_call *call;

    if (tool == NULL) {
        refuse(request, INVALID_PARAMS, "unknown tool: ", name != NULL ? name : "(no name)");
        return;
    }
    if (arguments != NULL && !json_is_object(arguments)) {
        refuse(request, INVALID_PARAMS, "arguments must be an object", "");
        return;
    }
    call = lh_mcp_call_create(request->mcp, request->id, arguments);
    call->is_modern = request->is_modern;
    token = json_object_get(request->meta, "progressToken");
    if (json_is_string(token) || json_is_integer(token))
        call->progress_token = json_incref(token);
    lh_mcp_tool_call(tool, call);
}

static void on_cancelled(const struct request *request)
{
    const json_t *id = json_object_get(request->params, "requestId");
    struct lh_mcp_call *call = id != NULL ? lh_mcp_call_find(request->mcp, id) : NULL;

    if (call != NULL) /* else it was answered already */
        lh_mcp_call_cancel(call);
}

/* --- messages --- */

static const struct method {
    const char *name;
    void (*run)(const struct request *request);
    enum { ANY_TIME, AFTER_INITIALIZE, MODERN_ONLY } when;
} methods[] = {
    {"initialize", initialize, ANY_TIME},         {"ping", ping, ANY_TIME},
    {"server/discover", discover, MODERN_ONLY},   {"logging/setLevel", set_level, AFTER_INITIALIZE},
    {"tools/list", list_tools, AFTER_INITIALIZE}, {"tools/call", call_tool, AFTER_INITIALIZE},
};

/* A request that brings its revision along. Returns false if it was refused. */
static bool check_version(const struct request *request)
{
    const json_t *version = json_object_get(request->meta, META "protocolVersion");
    const char *text = json_string_value(version);
    json_t *error;

    if (text != NULL && strcmp(text, MODERN) == 0) {
        if (json_is_object(json_object_get(request->meta, META "clientCapabilities")))
            return true;
        refuse(request, INVALID_PARAMS, "_meta needs " META "clientCapabilities, an object", "");
        return false;
    }
    error = lh_mcp_error(request->id, UNSUPPORTED_VERSION, "this revision is not supported without initialize: %.64s",
                         text != NULL ? text : "(no text)");
    json_object_set_new(json_object_get(error, "error"), "data",
                        json_pack("{s:[s,s,s], s:s}", "supported", MODERN, legacy[0], legacy[1], "requested",
                                  text != NULL ? text : ""));
    lh_mcp_wire_send(&request->mcp->wire, error);
    return false;
}

static void dispatch(const struct request *request)
{
    const struct method *method = NULL;

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (strcmp(methods[i].name, request->method) == 0)
            method = &methods[i];
    if (request->is_modern && !check_version(request))
        return;
    if (method == NULL || (method->when == MODERN_ONLY && !request->is_modern))
        refuse(request, METHOD_NOT_FOUND, "unknown method: ", request->method);
    else if (method->when == AFTER_INITIALIZE && !request->is_modern && !request->mcp->is_initialized)
        refuse(request, INVALID_REQUEST, "initialize comes before ", request->method);
    else
        method->run(request);
}

static void take_request(struct lh_mcp *mcp, const json_t *message)
{
    struct request request = {.mcp = mcp,
                              .id = json_object_get(message, "id"),
                              .method = json_string_value(json_object_get(message, "method")),
                              .params = json_object_get(message, "params")};

    request.meta = json_object_get(request.params, "_meta");
    request.is_modern = json_object_get(request.meta, META "protocolVersion") != NULL;
    if (request.id == NULL) {
        if (strcmp(request.method, "notifications/cancelled") == 0)
            on_cancelled(&request);
        return; /* others say nothing that matters here */
    }
    if (!json_is_string(request.id) && !json_is_integer(request.id)) {
        lh_mcp_wire_send(&mcp->wire, lh_mcp_error(NULL, INVALID_REQUEST, "id must be a text or an integer"));
    } else if (lh_mcp_call_find(mcp, request.id) != NULL) {
        lh_mcp_wire_send(&mcp->wire,
                         lh_mcp_error(NULL, INVALID_REQUEST, "id: a call in flight has this id already; use another"));
    } else if (request.params != NULL && !json_is_object(request.params)) {
        refuse(&request, INVALID_PARAMS, "params must be an object", "");
    } else {
        dispatch(&request);
    }
}

void lh_mcp_take(void *arg, const char *line, size_t size)
{
    struct lh_mcp *mcp = arg;
    json_error_t fault;
    json_t *message, *reply = NULL;

    if (mcp->is_ending)
        return;
    if (line == NULL) {
        lh_mcp_wire_send(&mcp->wire, lh_mcp_error(NULL, INVALID_REQUEST, "line: must be at most %zu bytes, has more",
                                                  LH_MCP_LINE_MAX));
        return;
    }
    message = json_loadb(line, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &fault);
    if (message == NULL)
        reply = lh_mcp_error(NULL, PARSE_ERROR, "the line is no JSON: %s", fault.text);
    else if (json_is_array(message))
        reply = lh_mcp_error(NULL, INVALID_REQUEST, "a batch of messages is not supported; send one message a line");
    else if (!json_is_object(message) || json_string_value(json_object_get(message, "jsonrpc")) == NULL ||
             strcmp(json_string_value(json_object_get(message, "jsonrpc")), "2.0") != 0)
        reply = lh_mcp_error(NULL, INVALID_REQUEST, "the message must be an object with jsonrpc 2.0");
    else if (json_is_string(json_object_get(message, "method")))
        take_request(mcp, message);
    else if (json_object_get(message, "result") == NULL && json_object_get(message, "error") == NULL)
        reply = lh_mcp_error(NULL, INVALID_REQUEST, "the message must have a method, a text");
    if (reply != NULL)
        lh_mcp_wire_send(&mcp->wire, reply);
    json_decref(message);
}
