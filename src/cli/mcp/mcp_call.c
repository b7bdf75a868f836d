/* Calls of tools, from the request to the answer, with progress and warnings. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/mcp/mcp_internal.h"
#include "cli/print.h"

/* The levels of syslog, as the protocol names them. */
const char *const lh_mcp_levels[] = {"debug",    "info",  "notice",    "warning", "error",
                                     "critical", "alert", "emergency", NULL};
#define WARNING 3

static json_t *text_va(const char *format, va_list arguments)
{
    char *text;
    json_t *json;

    if (vasprintf(&text, format, arguments) < 0)
        abort();
    json = json_string(text);
    if (json == NULL) {
        char *clean = lh_clean(text);
        json = json_string(clean);
        free(clean);
    }
    free(text);
    return json;
}

/* --- answers --- */

json_t *lh_mcp_error(json_t *id, int code, const char *format, ...)
{
    va_list arguments;
    json_t *message;

    va_start(arguments, format);
    message = text_va(format, arguments);
    va_end(arguments);
    return json_pack("{s:s, s:O?, s:{s:i, s:o}}", "jsonrpc", "2.0", "id", id != NULL ? id : json_null(), "error",
                     "code", code, "message", message);
}

void lh_mcp_answer(struct lh_mcp *mcp, json_t *id, bool is_modern, json_t *result)
{
    if (is_modern)
        json_object_set_new(result, "resultType", json_string("complete"));
    lh_mcp_wire_send(&mcp->wire, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

/* The text is the same object, for clients that know of no structured content. */
static void finish(struct lh_mcp_call *call, json_t *content, bool is_error)
{
    struct lh_mcp *mcp = call->mcp;
    char *text = json_dumps(content, JSON_COMPACT);

    if (!call->is_cancelled)
        lh_mcp_answer(mcp, call->id, call->is_modern,
                      json_pack("{s:[{s:s, s:s}], s:O, s:b}", "content", "type", "text", "text", text,
                                "structuredContent", content, "isError", (int)is_error));
    free(text);
    json_decref(content);
    lh_list_remove(&call->link);
    mcp->call_count--;
    json_decref(call->id);
    json_decref(call->arguments);
    json_decref(call->progress_token);
    free(call);
}

static json_t *with(json_t *content, json_t *more)
{
    json_object_update_missing(content, more);
    json_decref(more);
    return content;
}

void lh_mcp_call_done(struct lh_mcp_call *call, json_t *more, const char *format, ...)
{
    va_list arguments;
    json_t *message;

    va_start(arguments, format);
    message = text_va(format, arguments);
    va_end(arguments);
    finish(call, with(json_pack("{s:s, s:o}", "status", "OK", "message", message), more), false);
}

static json_t *text_of(const char *format, ...)
{
    va_list arguments;
    json_t *text;

    va_start(arguments, format);
    text = text_va(format, arguments);
    va_end(arguments);
    return text;
}

void lh_mcp_call_refused(struct lh_mcp_call *call, const char *status, const char *message, const char *next,
                         json_t *more)
{
    json_t *content = json_pack("{s:s, s:o, s:s}", "status", status, "message", text_of("%s", message), "next", next);

    finish(call, with(content, more), true);
}

static const char *next_of(enum lh_status status)
{
    switch (status) {
    case LH_LEASE_HELD:
        return "Call acquire with wait to queue for it, call explain to see who holds it, or do other work first.";
    case LH_WAIT_TIMEOUT:
        return "Call explain to see who holds it. Acquire again with a longer wait, or do other work first.";
    case LH_SCOPE_BUSY:
        return "A transaction is open on it. Try again.";
    case LH_ACCESS_DENIED:
        return "Do not repeat the call. An administrator can grant the right: leasehold access grant.";
    case LH_UNAUTHENTICATED:
        return "Do not repeat the call. The server's token or certificate is wrong: ask whoever set it up.";
    case LH_NAMESPACE_FROZEN:
        return "An administrator has frozen the namespace. Ask before you wait.";
    case LH_QUOTA_EXCEEDED:
        return "Release a lease that is not needed, or ask for a higher quota.";
    case LH_INVALID_ARGUMENT:
        return "Correct the argument and call again.";
    case LH_LOST:
        return "Stop the work that the lease protects: another holder may have it. Acquire again before you go on.";
    case LH_HOOK_REJECTED:
        return "A rule of the namespace refused it; the message says why.";
    case LH_CANCELED:
    case LH_CLOSED:
        return "The server is ending.";
    default:
        return "Try again later. Leases that are held are renewed meanwhile.";
    }
}

void lh_mcp_call_failed(struct lh_mcp_call *call, enum lh_status status, const struct lh_error *error)
{
    const char *words = error != NULL && error->message[0] != '\0' ? error->message : lh_status_text(status);
    json_t *more = json_object();

    if (error != NULL && error->field[0] != '\0')
        json_object_set_new(more, "field", json_string(error->field));
    if (error != NULL && error->bound[0] != '\0')
        json_object_set_new(more, "limit", json_string(error->bound));
    lh_mcp_call_refused(call, lh_status_name(status), words, next_of(status), more);
}

/* --- calls --- */

struct lh_mcp_call *lh_mcp_call_create(struct lh_mcp *mcp, json_t *id, json_t *arguments)
{
    struct lh_mcp_call *call = lh_alloc_zero(1, sizeof(*call));

    call->mcp = mcp;
    call->id = json_incref(id);
    call->arguments = arguments != NULL ? json_incref(arguments) : json_object();
    lh_list_append(&mcp->calls, &call->link);
    mcp->call_count++;
    return call;
}

struct lh_mcp_call *lh_mcp_call_find(const struct lh_mcp *mcp, const json_t *id)
{
    LH_LIST_EACH(struct lh_mcp_call, call, &((struct lh_mcp *)(uintptr_t)mcp)->calls, link)
        if (json_equal(call->id, id))
            return call;
    return NULL;
}

void lh_mcp_call_cancel(struct lh_mcp_call *call)
{
    if (call->is_cancelled)
        return;
    call->is_cancelled = true;
    if (call->on_cancel != NULL)
        call->on_cancel(call);
}

const char *lh_mcp_call_text(const struct lh_mcp_call *call, const char *name)
{
    return json_string_value(json_object_get(call->arguments, name));
}

/* --- progress and warnings --- */

static void notify(struct lh_mcp *mcp, const char *method, json_t *params)
{
    lh_mcp_wire_send(&mcp->wire, json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}

void lh_mcp_call_progress(struct lh_mcp_call *call, const char *words)
{
    if (call->progress_token == NULL || call->is_cancelled || lh_mcp_wire_is_clogged(&call->mcp->wire))
        return;
    notify(call->mcp, "notifications/progress",
           json_pack("{s:O, s:I, s:o}", "progressToken", call->progress_token, "progress", (json_int_t)++call->progress,
                     "message", text_of("%s", words)));
}

/* Later revisions have no messages outside of a call. */
void lh_mcp_warn(struct lh_mcp *mcp, const char *words)
{
    if (mcp->is_initialized && mcp->log_level <= WARNING && !mcp->is_ending)
        notify(mcp, "notifications/message",
               json_pack("{s:s, s:s, s:o}", "level", lh_mcp_levels[WARNING], "logger", "leasehold", "data",
                         text_of("%s", words)));
}
