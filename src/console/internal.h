/* What the files of the console share. */
#ifndef LH_CONSOLE_INTERNAL_H
#define LH_CONSOLE_INTERNAL_H

#include <jansson.h>

#include "admin/http.h"
#include "base/list.h"
#include "console/console.h"
#include "console/session.h"
#include "loop/loop.h"
#include "rpc/client.h"

#define CONSOLE_STREAMS_MAX 24

struct lh_console {
    struct lh_loop *loop;
    struct lh_rpc_server *server; /* NULL: none */
    const char *const *hosts;
    size_t host_count;
    struct session_table sessions;
    struct lh_link calls;
    struct lh_link streams;
    struct lh_console_stats stats;
};

/* Who a request comes from. */
struct console_caller {
    struct session *session;   /* of its cookie; NULL: it has none */
    const char *authorization; /* what goes with its calls; NULL: nothing */
};

/* answer.c: each ends the request */
void lh_console_answer_json(struct lh_http_request *request, int code, json_t *json); /* takes the reference */
void lh_console_refuse(struct lh_http_request *request, int code, const char *message);
json_t *lh_console_error_of(const struct lh_rpc_result *result);
int lh_console_code_of(enum lh_grpc_code code);
void lh_console_remove_lease_keys(json_t *json);
void lh_console_add_headers(struct lh_http_request *request);

/* origin.c: false: the request was refused */
bool lh_console_check_origin(struct lh_console *console, struct lh_http_request *request);

/* caller.c. False: the request was refused. */
bool lh_console_identify(struct lh_console *console, struct lh_http_request *request, struct console_caller *caller);
/* The caller's own connection to the server; NULL: the request was refused. */
struct lh_rpc_channel *lh_console_connect(struct lh_console *console, struct lh_http_request *request);
/* The session of a request's cookie has ended: says so in the answer's headers. */
void lh_console_forget_cookie(struct lh_http_request *request);
void lh_console_set_cookie(struct lh_http_request *request, const struct session *session);

/* call.c */
struct console_route;
void lh_console_call(struct lh_console *console, struct lh_http_request *request, const struct console_route *route,
                     const json_t *parameters);
void lh_console_sign_in(struct lh_console *console, struct lh_http_request *request, const json_t *parameters);
void lh_console_sign_out(struct lh_console *console, struct lh_http_request *request);
void lh_console_end_calls(struct lh_console *console);

/* events.c */
void lh_console_stream(struct lh_console *console, struct lh_http_request *request, const json_t *parameters);
void lh_console_end_streams(struct lh_console *console);

/* page.c: false: there is no such file */
bool lh_console_serve_file(struct lh_http_request *request);

#endif
