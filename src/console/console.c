#include "console/console_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define API "/api/v1"

static bool has_parameter(const void *arg, const char *name)
{
    return json_object_get(arg, name) != NULL;
}

/* "application/json; charset=utf-8" */
static bool is_json(const struct lh_http_request *request)
{
    static const char type[] = "application/json";
    const char *value = lh_http_head_find(&request->head, "content-type");
    size_t size = sizeof(type) - 1;

    return value != NULL && strncasecmp(value, type, size) == 0 && strchr("; \t", value[size]) != NULL;
}

/* NULL: the request was refused. */
static json_t *read_parameters(struct lh_http_request *request, const struct console_route *any)
{
    bool is_post = strcmp(request->head.method, "POST") == 0;
    json_t *parameters = NULL;

    if (is_post != any->is_post) {
        lh_http_add_header(request, "Allow", any->is_post ? "POST" : "GET, HEAD");
        lh_console_refuse(request, 405, any->is_post ? "this path takes POST" : "this path takes GET and HEAD");
    } else if (is_post && !is_json(request)) {
        lh_console_refuse(request, 415, "the header Content-Type must be application/json");
    } else {
        parameters =
            is_post ? lh_request_body(request->body, request->body_size) : lh_request_query(request->head.query);
        if (parameters == NULL)
            lh_console_refuse(request, 400,
                              is_post ? "the body must be a JSON object"
                                      : "the query is malformed, or has a parameter twice");
    }
    return parameters;
}

static void serve_api(struct lh_console *console, struct lh_http_request *request, const char *path)
{
    json_t *empty = json_object();
    const struct console_route *any = lh_route_find(path, has_parameter, empty);
    json_t *parameters = NULL;

    json_decref(empty);
    if (any == NULL)
        lh_console_refuse(request, 404, "there is no such path");
    else
        parameters = read_parameters(request, any);
    if (parameters == NULL)
        return;
    if (strcmp(path, "/events") == 0)
        lh_console_stream(console, request, parameters);
    else if (strcmp(path, "/sign-in") == 0)
        lh_console_sign_in(console, request, parameters);
    else if (strcmp(path, "/sign-out") == 0)
        lh_console_sign_out(console, request);
    else
        lh_console_call(console, request, lh_route_find(path, has_parameter, parameters), parameters);
    json_decref(parameters);
}

void lh_console_on_request(void *arg, struct lh_http_request *request)
{
    struct lh_console *console = arg;
    size_t size = strlen(API);

    console->stats.requests++;
    if (!lh_console_check_origin(console, request))
        return;
    if (strncmp(request->head.path, API "/", size + 1) == 0)
        serve_api(console, request, request->head.path + size);
    else if (strcmp(request->head.method, "POST") == 0 || !lh_console_serve_file(request))
        lh_console_refuse(request, 404, "there is nothing here; try /, /metrics, /healthz or /readyz");
}

struct lh_console *lh_console_create(struct lh_loop *loop)
{
    struct lh_console *console = lh_alloc_zero(1, sizeof(*console));

    console->loop = loop;
    lh_list_init(&console->calls);
    lh_list_init(&console->streams);
    return console;
}

void lh_console_destroy(struct lh_console *console)
{
    if (console == NULL)
        return;
    lh_console_set_server(console, NULL);
    lh_session_finish(&console->sessions);
    free(console);
}

void lh_console_set_hosts(struct lh_console *console, const char *const *hosts, size_t count)
{
    console->hosts = hosts;
    console->host_count = count;
}

void lh_console_set_server(struct lh_console *console, struct lh_rpc_server *server)
{
    if (console == NULL)
        return;
    console->server = server;
    if (server != NULL)
        return;
    lh_console_end_calls(console);
    lh_console_end_streams(console);
}

void lh_console_stats(const struct lh_console *console, struct lh_console_stats *stats)
{
    *stats = console->stats;
    stats->sessions = console->sessions.count;
}
