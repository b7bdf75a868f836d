/* The tools: their words and schemas for the client, and the check of their arguments. */
#include <stdio.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/mcp/mcp_internal.h"

enum needs { NEEDS_NOTHING, NEEDS_WRITING, NEEDS_RUNNING };

struct lh_mcp_tool {
    const char *name, *title, *description;
    const char *input;  /* the properties of its arguments, in JSON */
    const char *output; /* the properties of its answer, besides status, message and next */
    const char *required[4];
    enum needs needs;
    bool is_destructive, is_idempotent;
    void (*work)(struct lh_mcp_call *call);
};

#define TEXT(name, description) "\"" name "\":{\"type\":\"string\",\"description\":\"" description "\"}"
#define SCOPE                                                                                                          \
    TEXT("namespace", "Dotted name, such as deploy.eu: the kind of thing that the lease protects.")                    \
    "," TEXT("key", "The thing itself, such as production: any text of up to 1024 bytes.")
#define WAIT                                                                                                           \
    TEXT("wait", "How long to queue, such as 30s, 10m or forever. Without it a lease that is held is refused at "      \
                 "once.")
/* clang-format off */
#define LEASE                                                                                                          \
    TEXT("namespace", "") "," TEXT("key", "")                                                                          \
    "," TEXT("token", "The fencing token: pass it to whatever must refuse an older holder.")                           \
    "," TEXT("mode", "exclusive or shared")                                                                            \
    ",\"units\":{\"type\":\"integer\"},\"remaining_seconds\":{\"type\":\"number\"},"                                     \
    "\"slots\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},"                                                  \
    TEXT("reason", "Why it was lost.")
/* What each answer has. */
#define ANSWER                                                                                                         \
    TEXT("status", "OK, or the reason of a refusal, such as LEASE_HELD, WAIT_TIMEOUT, LOST or ACCESS_DENIED.")         \
    "," TEXT("message", "What has happened.") "," TEXT("next", "What to do about a refusal.")                          \
    "," TEXT("field", "The argument that is wrong.") "," TEXT("limit", "What the argument must be.")
/* clang-format on */

static const struct lh_mcp_tool tools[] = {
    {.name = "acquire",
     .title = "Acquire a lease",
     .description = "Acquires a lease: the exclusive right to a name, before work that only one may do at a time. This "
                    "server renews it until release, or the end of the session. Refused with LEASE_HELD when another "
                    "holder has it. One lease of a key at a time.",
     .input = "{" SCOPE "," WAIT ",\"shared\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000000,\"description\":"
              "\"Units of a shared lease, beside other shared ones. Without it the lease is exclusive.\"}}",
     .output = "{" LEASE "}",
     .required = {"namespace", "key"},
     .needs = NEEDS_WRITING,
     .work = lh_mcp_acquire},
    {.name = "renew",
     .title = "Make sure that a lease is held",
     .description =
         "Asks the server whether a lease of this session is still held, and renews it. The leases are renewed "
         "without that: call it before a step that cannot be undone. LOST: stop the work.",
     .input = "{" SCOPE "}",
     .output = "{" LEASE "}",
     .required = {"namespace", "key"},
     .needs = NEEDS_WRITING,
     .is_idempotent = true,
     .work = lh_mcp_renew},
    {.name = "release",
     .title = "Release a lease",
     .description =
         "Releases a lease of this session; the first waiter gets it at once. LOST: it had ended before, and "
         "the work may have overlapped with another holder's.",
     .input = "{" SCOPE ",\"result\":{\"description\":\"Any JSON of up to 8 KiB, stored as the result.\"}," TEXT(
         "failure", "Release it as failed, with this error, of up to 8 KiB. Not together with result.") "}",
     .output = "{" LEASE "}",
     .required = {"namespace", "key"},
     .needs = NEEDS_WRITING,
     .is_destructive = true,
     .work = lh_mcp_release},
    {.name = "explain",
     .title = "Explain a lease",
     .description = "Tells the state of a lease, its holder and waiters, and what to do about it.",
     .input = "{" SCOPE "}",
     .output = "{" TEXT("reason", "Why it is so.") "}",
     .required = {"namespace", "key"},
     .is_idempotent = true,
     .work = lh_mcp_explain},
    {.name = "list",
     .title = "List leases",
     .description = "Lists the leases that are held, by all holders, in a namespace or in all.",
     .input = "{" TEXT("namespace",
                       "Dotted name; without it all namespaces.") ",\"children\":{\"type\":\"boolean\","
                                                                  "\"description\":\"Include the namespaces below.\"}}",
     .output = "{\"leases\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}}}",
     .is_idempotent = true,
     .work = lh_mcp_list},
    {.name = "run",
     .title = "Run a command under a lease",
     .description =
         "Acquires a lease, runs a command on this machine while it is held, and releases it. No shell reads the "
         "words. When the lease is lost, the command and all that it started are ended. Of stdout and stderr "
         "64 KiB each are returned; is_cut tells that there was more.",
     .input = "{" SCOPE "," WAIT ",\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1,"
              "\"maxItems\":1000,\"description\":\"The program and its arguments.\"}}",
     .output = "{\"exit_status\":{\"type\":\"integer\"}," TEXT("token", "") "," TEXT("stdout", "") "," TEXT(
         "stderr", "") ",\"stdout_bytes\":{\"type\":\"integer\"},\"stderr_bytes\":{\"type\":\"integer\"},"
                       "\"is_cut\":{\"type\":\"boolean\"}}",
     .required = {"namespace", "key", "command"},
     .needs = NEEDS_RUNNING,
     .is_destructive = true,
     .work = lh_mcp_run},
};
#define TOOL_COUNT (sizeof(tools) / sizeof(tools[0]))

static bool is_offered(const struct lh_mcp *mcp, const struct lh_mcp_tool *tool)
{
    return tool->needs == NEEDS_NOTHING || (!mcp->is_read_only && (tool->needs == NEEDS_WRITING || mcp->allows_run));
}

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    return json != NULL ? json : json_object();
}

static json_t *schema_of(const char *properties, const char *const *required)
{
    json_t *schema = json_pack("{s:s, s:o, s:[]}", "type", "object", "properties", parse(properties), "required");

    for (size_t i = 0; required[i] != NULL; i++)
        json_array_append_new(json_object_get(schema, "required"), json_string(required[i]));
    return schema;
}

static json_t *input_of(const struct lh_mcp_tool *tool)
{
    json_t *schema = schema_of(tool->input, tool->required);

    json_object_set_new(schema, "additionalProperties", json_false());
    return schema;
}

/* One shape for success and refusal: clients check both. */
static json_t *output_of(const struct lh_mcp_tool *tool)
{
    static const char *const required[] = {"status", "message", NULL};
    json_t *schema = schema_of("{" ANSWER "}", required), *own = parse(tool->output);

    json_object_update(json_object_get(schema, "properties"), own);
    json_decref(own);
    return schema;
}

json_t *lh_mcp_tools_list(const struct lh_mcp *mcp)
{
    json_t *list = json_array();

    for (const struct lh_mcp_tool *tool = tools; tool < tools + TOOL_COUNT; tool++)
        if (is_offered(mcp, tool))
            json_array_append_new(
                list, json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:s, s:b, s:b, s:b, s:b}}", "name", tool->name, "title",
                                tool->title, "description", tool->description, "inputSchema", input_of(tool),
                                "outputSchema", output_of(tool), "annotations", "title", tool->title, "readOnlyHint",
                                (int)(tool->needs == NEEDS_NOTHING), "destructiveHint", (int)tool->is_destructive,
                                "idempotentHint", (int)tool->is_idempotent, "openWorldHint", 1));
    return list;
}

const struct lh_mcp_tool *lh_mcp_tool_find(const struct lh_mcp *mcp, const char *name)
{
    for (const struct lh_mcp_tool *tool = tools; tool < tools + TOOL_COUNT; tool++)
        if (strcmp(tool->name, name) == 0 && is_offered(mcp, tool))
            return tool;
    return NULL;
}

/* --- arguments --- */

static bool has_type(const json_t *value, const char *type)
{
    if (type == NULL)
        return true;
    if (strcmp(type, "string") == 0)
        return json_is_string(value);
    if (strcmp(type, "integer") == 0)
        return json_is_integer(value);
    if (strcmp(type, "boolean") == 0)
        return json_is_boolean(value);
    return json_is_array(value);
}

static enum lh_status check_number(const char *name, const json_t *value, const json_t *property,
                                   struct lh_error *error)
{
    json_int_t number = json_integer_value(value), least = json_integer_value(json_object_get(property, "minimum")),
               most = json_integer_value(json_object_get(property, "maximum"));
    char bound[64];

    if (!json_is_integer(value) || (number >= least && number <= most))
        return LH_OK;
    snprintf(bound, sizeof(bound), "%lld to %lld", (long long)least, (long long)most);
    return lh_bounds_refuse(error, name, bound, "%s %lld must be %s", name, (long long)number, bound);
}

/* The schema decides, as it stands in tools/list. */
static enum lh_status check_schema(const struct lh_mcp_tool *tool, json_t *arguments, struct lh_error *error)
{
    json_t *properties = parse(tool->input), *value;
    const char *name;

    json_object_foreach(arguments, name, value)
    {
        const json_t *property = json_object_get(properties, name);
        const char *type = json_string_value(json_object_get(property, "type"));
        if (property == NULL)
            lh_bounds_refuse(error, name, "an argument of the tool", "%s has no argument '%.64s'", tool->name, name);
        else if (!has_type(value, type))
            lh_bounds_refuse(error, name, type, "%s must be of type %s", name, type);
        else
            (void)check_number(name, value, property, error);
        if (error->status != LH_OK)
            break;
    }
    for (size_t i = 0; tool->required[i] != NULL && error->status == LH_OK; i++)
        if (json_object_get(arguments, tool->required[i]) == NULL)
            lh_bounds_refuse(error, tool->required[i], "present", "missing argument: %s", tool->required[i]);
    json_decref(properties);
    return error->status;
}

/* Is `ns` one of those that the server was started for, or below one? */
static bool is_allowed(const struct lh_args *args, const char *ns)
{
    const char *allowed;
    size_t at = 0;

    while ((allowed = lh_args_next_value(args, "namespace", &at)) != NULL) {
        size_t size = strlen(allowed);
        if (strncmp(ns, allowed, size) == 0 && (ns[size] == '\0' || ns[size] == '.'))
            return true;
    }
    return !lh_args_has(args, "namespace");
}

static enum lh_status check_scope(const struct lh_mcp_call *call, struct lh_error *error)
{
    const struct lh_args *args = &call->mcp->cli->args;
    const char *ns = lh_mcp_call_text(call, "namespace"), *key = lh_mcp_call_text(call, "key");
    const char *first;
    size_t at = 0;

    if (ns != NULL && lh_check_namespace(ns, error) != LH_OK)
        return error->status;
    if (key != NULL && lh_bounds_key(key, error) != LH_OK)
        return error->status;
    if (is_allowed(args, ns != NULL ? ns : ""))
        return LH_OK;
    first = lh_args_next_value(args, "namespace", &at);
    return lh_bounds_refuse(error, "namespace", "one that the server was started with, or below one",
                            "namespace '%.64s' is not one of this server, which was started for %.64s%s",
                            ns != NULL ? ns : "", first,
                            lh_args_next_value(args, "namespace", &at) != NULL ? " and others" : "");
}

void lh_mcp_tool_call(const struct lh_mcp_tool *tool, struct lh_mcp_call *call)
{
    struct lh_error error = {0};

    if (check_schema(tool, call->arguments, &error) != LH_OK || check_scope(call, &error) != LH_OK)
        lh_mcp_call_failed(call, error.status, &error);
    else if (call->mcp->call_count > LH_MCP_CALLS_MAX)
        lh_mcp_call_refused(call, "OVERLOADED", "calls: too many are in flight; the limit is 64",
                            "Wait for an answer, or cancel a call.", NULL);
    else
        tool->work(call);
}
