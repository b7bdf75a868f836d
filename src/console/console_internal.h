/* The fields of the console, and what its files have of each other. */
#ifndef LH_CONSOLE_CONSOLE_INTERNAL_H
#define LH_CONSOLE_CONSOLE_INTERNAL_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admin/http.h"
#include "base/list.h"
#include "console/console.h"
#include "loop/loop.h"
#include "rpc/client.h"
#include "json/parse.h"

/* --- console_session.c --- */

/*
 * Sessions of browsers: a cookie that stands for a bearer token. They live in memory, at most SESSION_LIFE_US, and
 * end with the token, because each call carries it. At SESSIONS_MAX the oldest gives way.
 */
#define SESSION_COOKIE "leasehold_session"
#define SESSIONS_MAX 256
#define SESSION_LIFE_US (INT64_C(12) * 3600 * 1000000)
#define SESSION_SECRET_BYTES 44 /* 256 bits in base64url, and NUL */

/* Attempts to sign in from one address: as many at once, then one a second. */
#define SIGN_IN_BURST 10
#define SIGN_IN_SOURCES 64

struct session {
    char id[SESSION_SECRET_BYTES]; /* "": none */
    char csrf[SESSION_SECRET_BYTES];
    char *authorization; /* "Bearer TOKEN" */
    uint64_t number;     /* never used again */
    int64_t ends_at_us;
};

struct session_table {
    struct session sessions[SESSIONS_MAX];
    size_t count;
    uint64_t made;
    struct sign_in_source {
        char address[64];
        int64_t full_at_us; /* time when all of the burst is there again */
    } sources[SIGN_IN_SOURCES];
};

/* NULL: there is none with that cookie (any more). */
struct session *lh_session_find(struct session_table *table, const char *id, int64_t now_us);
struct session *lh_session_find_number(struct session_table *table, uint64_t number, int64_t now_us);
struct session *lh_session_create(struct session_table *table, const char *authorization, int64_t now_us);
void lh_session_end(struct session_table *table, struct session *session);
void lh_session_finish(struct session_table *table);

/* In the time that both take whatever is in them. */
bool lh_session_is_csrf(const struct session *session, const char *text);

/* The value of a cookie in a Cookie header, into `value`; false: there is none, or it does not fit. */
bool lh_session_cookie(const char *header, const char *name, char *value, size_t room);

/* Returns false after too many attempts from `peer`, "ADDRESS:PORT"; of IPv6 the first 64 bits count. */
bool lh_session_may_sign_in(struct session_table *table, const char *peer, int64_t now_us);

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

/* --- console_route.c --- */

/* The table of the paths of /api/v1: the methods of gRPC that a path calls, and the places of their answers. */
#define ROUTE_PARTS_MAX 4

struct console_part {
    const char *method; /* NULL: there is none */
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *response;
    const char *member;  /* member of the answer; NULL: its fields are the answer's */
    bool may_be_missing; /* NOT_FOUND leaves it out */
    bool is_whole;       /* without pages: page_size and page_token do not apply */
};

struct console_route {
    const char *path; /* behind /api/v1 */
    bool is_post;
    const char *needs; /* a parameter that it is for; NULL: the route without it */
    struct console_part parts[ROUTE_PARTS_MAX];
};

/* By path and by which parameters there are; NULL: none is there. */
typedef bool route_has_parameter(const void *arg, const char *name);
const struct console_route *lh_route_find(const char *path, route_has_parameter *has, const void *arg);

/* --- parameters.c --- */

/*
 * Parameters as the messages of gRPC: flat, from a query or a JSON body, to what the message's descriptor says.
 *
 *     namespace=a.b   the message's scope, its namespace or namespaces, or those of its policy; dotted
 *     key=k           the message's scope, or its key
 *     others          the field of that name, or the policy's; then the policy's update_mask names it
 */
/* "a=1&b=c%20d" as an object of strings; NULL: it is malformed, or has a parameter twice. */
json_t *lh_request_query(const char *query);
/* The body, an object; NULL: it is none. */
json_t *lh_request_body(const char *body, size_t size);

/* Returns true if the message has this parameter. */
bool lh_request_takes(const ProtobufCMessageDescriptor *type, const char *parameter);
/* In the arena; without parameters of another message, and without those of a page if wanted. NULL: `problem` says why. */
ProtobufCMessage *lh_request_message(const ProtobufCMessageDescriptor *type, const json_t *parameters,
                                     bool without_page, struct lh_arena *arena, struct lh_json_problem *problem);

/* --- answer.c: answers in JSON, and the files of the page --- */

/* Each of these two ends the request. A refusal is false, so that a check can end with it. */
void lh_console_answer_json(struct lh_http_request *request, int code, json_t *json); /* takes the reference */
bool lh_console_refuse(struct lh_http_request *request, int code, const char *message);
json_t *lh_console_error_of(const struct lh_rpc_result *result);
int lh_console_code_of(enum lh_grpc_code code);
void lh_console_remove_lease_keys(json_t *json);
void lh_console_add_headers(struct lh_http_request *request);

/* The files of the page, as embed.py writes them. */
struct console_file {
    const char *name; /* "index.html" */
    const char *type;
    const char *tag; /* an ETag, with its quotes: of the bytes */
    const unsigned char *bytes;
    size_t size;
};

/* NULL for a name ends them. */
extern const struct console_file lh_console_files[];

/* Serves a file. Returns false if there is no such file. */
bool lh_console_serve_file(struct lh_http_request *request);

/* --- caller.c: its origin, its session, and its connection to the server --- */

struct console_caller {
    struct session *session; /* session of its cookie; NULL: it has none */
    /* Value of `authorization` of its calls; NULL: none. */
    const char *authorization;
};

/* Returns false if the request was refused. A page of another site may send none. */
bool lh_console_check_origin(struct lh_console *console, struct lh_http_request *request);
/* The session of its cookie, or what goes with its calls. False: the request was refused. */
bool lh_console_identify(struct lh_console *console, struct lh_http_request *request, struct console_caller *caller);
/* The caller's own connection to the server; NULL: the request was refused. */
struct lh_rpc_channel *lh_console_connect(struct lh_console *console, struct lh_http_request *request);
/* The session of a request's cookie has ended: says so in the answer's headers. */
void lh_console_forget_cookie(struct lh_http_request *request);
void lh_console_set_cookie(struct lh_http_request *request, const struct session *session);

/* --- console_call.c: the methods of gRPC as the routes of the console --- */

void lh_console_call(struct lh_console *console, struct lh_http_request *request, const struct console_route *route,
                     const json_t *parameters);
void lh_console_sign_in(struct lh_console *console, struct lh_http_request *request, const json_t *parameters);
void lh_console_sign_out(struct lh_console *console, struct lh_http_request *request);
void lh_console_end_calls(struct lh_console *console);

/* --- events.c --- */

#define CONSOLE_STREAMS_MAX 24

void lh_console_stream(struct lh_console *console, struct lh_http_request *request, const json_t *parameters);
void lh_console_end_streams(struct lh_console *console);

#endif
