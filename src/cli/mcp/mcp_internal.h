/*
 * `leasehold mcp`: leases as tools of the Model Context Protocol, over stdin and stdout. mcp.c tells how it goes.
 *
 * mcp_wire has lines, mcp_call the requests that are being answered, mcp_hold the leases, mcp_child the programs that
 * list, explain and run start, mcp_tools the table of tools, mcp_session the protocol.
 * https://modelcontextprotocol.io/specification
 */
#ifndef LH_CLI_MCP_INTERNAL_H
#define LH_CLI_MCP_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "leasehold.h"

#define LH_MCP_LINE_MAX ((size_t)1024 * 1024) /* bytes of a message */
/* Unread bytes of answers, above which no message is read, and no progress is sent. */
#define LH_MCP_UNREAD_MAX ((size_t)1024 * 1024)
#define LH_MCP_CALLS_MAX 64                     /* calls in flight */
#define LH_MCP_HOLDS_MAX 100                    /* leases that are held, waited for, or lost and not yet reported */
#define LH_MCP_NAMESPACES_MAX 1000              /* namespaces in which a server acquires, in its life */
#define LH_MCP_COMMAND_MAX 1000                 /* words of a command of run */
#define LH_MCP_OUTPUT_MAX ((size_t)64 * 1024)   /* bytes of each stream of a command of run */
#define LH_MCP_ANSWER_MAX ((size_t)1024 * 1024) /* bytes of an answer of list and explain */

struct event;
struct event_base;
struct lh_mcp_call;
struct lh_mcp_tool;

/* Lines of stdin and stdout. */
struct lh_mcp_wire {
    struct event_base *base;
    struct event *readable, *writable;
    struct lh_buffer in, out;
    bool is_skipping; /* the rest of a line that is too long */
    bool is_over;     /* stdin has ended, or stdout has no reader */
    /* Called with a line without its newline; NULL: it was longer than LH_MCP_LINE_MAX. */
    void (*on_line)(void *arg, const char *line, size_t size);
    void (*on_over)(void *arg); /* once */
    void *arg;
};

bool lh_mcp_wire_open(struct lh_mcp_wire *wire, struct event_base *base);
void lh_mcp_wire_close(struct lh_mcp_wire *wire);
/* Sends a message; takes the reference. */
void lh_mcp_wire_send(struct lh_mcp_wire *wire, json_t *message);
bool lh_mcp_wire_is_clogged(const struct lh_mcp_wire *wire);
bool lh_mcp_wire_is_flushed(const struct lh_mcp_wire *wire);

/* One server: the leases and calls of one client. */
struct lh_mcp {
    struct lh_cli *cli;
    struct event_base *base;
    struct event *term, *interrupt, *child_ended, *too_late;
    struct lh_client *client;
    struct lh_mcp_wire wire;
    int64_t duration_us;
    bool is_read_only, allows_run;
    bool is_initialized; /* by initialize, which revisions up to 2025-11-25 have */
    bool is_ending, is_client_closed;
    size_t log_level; /* a place in the list of levels: the lowest that is sent */
    struct lh_link calls;
    size_t call_count;
    struct lh_link holds;
    size_t hold_count;
    struct lh_mcp_namespace {
        char *text;
        struct lh_declared *declared;
    } * namespaces;
    size_t namespace_count;
};

/* --- mcp_call: requests that are being answered --- */

struct lh_mcp_call {
    struct lh_link link; /* in lh_mcp.calls */
    struct lh_mcp *mcp;
    json_t *id;
    json_t *arguments;      /* an object: the tool gets it */
    json_t *progress_token; /* NULL: none */
    int64_t progress;
    bool is_modern;    /* revision 2026-07-28 or later */
    bool is_cancelled; /* no answer follows */
    /* Ends the work. The tool finishes the call later. */
    void (*on_cancel)(struct lh_mcp_call *call);
    struct lh_request *request; /* an acquire that waits */
    struct lh_mcp_hold *hold;
    struct lh_mcp_child *child;
};

json_t *lh_mcp_error(json_t *id, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Answers with a result; takes the reference. */
void lh_mcp_answer(struct lh_mcp *mcp, json_t *id, bool is_modern, json_t *result);

struct lh_mcp_call *lh_mcp_call_create(struct lh_mcp *mcp, json_t *id, json_t *arguments);
struct lh_mcp_call *lh_mcp_call_find(const struct lh_mcp *mcp, const json_t *id);
void lh_mcp_call_cancel(struct lh_mcp_call *call);
/* Returns a text argument, or NULL. */
const char *lh_mcp_call_text(const struct lh_mcp_call *call, const char *name);

/* End the call with the tool's answer, unless it was cancelled. `more` is an object with further members, whose reference
   is taken, or NULL. The second is for an outcome other than success; `next` says what to do about it. */
void lh_mcp_call_done(struct lh_mcp_call *call, json_t *more, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void lh_mcp_call_refused(struct lh_mcp_call *call, const char *status, const char *message, const char *next,
                         json_t *more);
/* The same, for a status of the library. */
void lh_mcp_call_failed(struct lh_mcp_call *call, enum lh_status status, const struct lh_error *error);

/* Tells how a call waits, if its caller wants to know. */
void lh_mcp_call_progress(struct lh_mcp_call *call, const char *words);
/* Sends notifications/message with a warning. */
void lh_mcp_warn(struct lh_mcp *mcp, const char *words);

extern const char *const lh_mcp_levels[];

/* --- mcp_hold: the leases --- */

/* A lease of this server, or one that it waits for. */
struct lh_mcp_hold {
    struct lh_link link; /* in lh_mcp.holds */
    struct lh_mcp *mcp;
    char *ns, *key;
    struct lh_lease *lease;   /* NULL: it is waited for */
    struct lh_mcp_call *call; /* works at it; NULL: none */
    enum lh_lost_reason lost; /* 0: it was not lost, as far as is known */
    char lost_words[256];
};

/* The work of tools: each ends the call in the end. */
void lh_mcp_acquire(struct lh_mcp_call *call);
void lh_mcp_renew(struct lh_mcp_call *call);
void lh_mcp_release(struct lh_mcp_call *call);
/* Ends the call, and returns true, if this server holds the scope already, or has lost it and the client was not told. */
bool lh_mcp_hold_is_in_the_way(struct lh_mcp_call *call);
/* Releases all leases, in the background. */
void lh_mcp_hold_release_all(struct lh_mcp *mcp);

/* --- mcp_child: the command line itself, as a child --- */

void lh_mcp_list(struct lh_mcp_call *call);
void lh_mcp_explain(struct lh_mcp_call *call);
void lh_mcp_run(struct lh_mcp_call *call);
/* Looks which children have ended. */
void lh_mcp_child_look(struct lh_mcp *mcp);

/* --- mcp_tools: the table --- */

/* Returns the tools that this server offers, for tools/list. */
json_t *lh_mcp_tools_list(const struct lh_mcp *mcp);
/* Returns the tool of this name, if it is offered. */
const struct lh_mcp_tool *lh_mcp_tool_find(const struct lh_mcp *mcp, const char *name);
/* Checks the arguments, and works. */
void lh_mcp_tool_call(const struct lh_mcp_tool *tool, struct lh_mcp_call *call);

/* --- mcp_session: the protocol --- */

/* Takes a line: lh_mcp_wire.on_line. */
void lh_mcp_take(void *arg, const char *line, size_t size);

#endif
