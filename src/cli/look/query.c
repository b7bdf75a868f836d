/* Commands that print rows which the database, or a daemon, has of them: queue, explain, history and daemons. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/arguments.h"
#include "cli/columns.h"
#include "cli/database.h"
#include "cli/error.h"
#include "leasehold/v1/console.pb-c.h"
#include "json/row_message.h"

#define ROWS_DEFAULT 50
#define ROWS_MAX 10000

/* --- the queries --- */

/* A table of columns makes the statement for a database, and prints the rows; those of a daemon are the same. */
struct query {
    const char *rows; /* a query of these columns, and of namespace and key; $1 and $2 are the two, or null */
    const char *order;
    const char *method; /* a method of ConsoleService; its request is a ListRequest, without `list` an ExplainRequest */
    const struct lh_column *columns;
    const char *list;  /* the name of the rows in JSON; NULL: there is one row, printed as a card */
    const char *empty; /* the sentence for a list without rows */
};

static const struct lh_column queue_columns[] = {
    {"NAMESPACE", "namespace", LH_COLUMN_NAMESPACE},
    {"KEY", "key", LH_COLUMN_TEXT},
    {"POSITION", "position", LH_COLUMN_PLACE},
    {"OWNER", "owner", LH_COLUMN_TEXT},
    {"PRINCIPAL", "principal", LH_COLUMN_TEXT},
    {"WAITING", "waiting", LH_COLUMN_DURATION},
    {"AWAY", "away", LH_COLUMN_BOOL},
    {"MODE", "mode", LH_COLUMN_TEXT},
    {"UNITS", "units", LH_COLUMN_UNITS},
    {"SCOPES", "scopes", LH_COLUMN_COUNT},
    {NULL, "enqueued_at", LH_COLUMN_TIME},
    {NULL, "wait_until", LH_COLUMN_TIME},
    {NULL, "rests_until", LH_COLUMN_TIME},
    {NULL, "duration", LH_COLUMN_DURATION},
    {NULL, "coordinator", LH_COLUMN_TEXT},
    {NULL, "ticket", LH_COLUMN_INT64},
    {0},
};

static const struct query queue_query = {
    .rows = "select * from leasehold.queue",
    .method = "ListQueue",
    .columns = queue_columns,
    .order = "r.namespace, r.key, r.ticket",
    .list = "queue",
    .empty = "no waiters",
};

static const struct lh_column history_columns[] = {
    {"NAMESPACE", "namespace", LH_COLUMN_NAMESPACE},
    {"KEY", "key", LH_COLUMN_TEXT},
    {"ENDED", "ended_at", LH_COLUMN_TIME},
    {"HELD", "held", LH_COLUMN_HELD},
    {"OUTCOME", "outcome", LH_COLUMN_TEXT},
    {"TOKEN", "token", LH_COLUMN_INT64},
    {"OWNER", "owner", LH_COLUMN_TEXT},
    {"PRINCIPAL", "principal", LH_COLUMN_TEXT},
    {"ERROR", "error", LH_COLUMN_TEXT},
    {"ENDED BY", "ended_by", LH_COLUMN_TEXT},
    {"MODE", "mode", LH_COLUMN_TEXT},
    {"UNITS", "units", LH_COLUMN_UNITS},
    {"SLOTS", "slots", LH_COLUMN_LIST},
    {NULL, "acquired_at", LH_COLUMN_TIME},
    {NULL, "result", LH_COLUMN_JSON},
    {0},
};

static const struct query history_query = {
    .rows = "select * from leasehold.history",
    .method = "ListHistory",
    .columns = history_columns,
    /* As the daemon does: the holds of one scope in the order of their tokens, others in that of their ends. */
    .order = "case when $2::text is not null then r.token end desc, r.ended_at desc, r.namespace, r.key, r.token desc",
    .list = "history",
    .empty = "no history: it is kept where the policy says history=true",
};

static const struct lh_column daemon_columns[] = {
    {"HOST", "host", LH_COLUMN_TEXT},
    {"PID", "pid", LH_COLUMN_COUNT},
    {"VERSION", "version", LH_COLUMN_TEXT},
    {"LIVE", "live", LH_COLUMN_BOOL},
    {"SEEN", "seen", LH_COLUMN_DURATION},
    {"STARTED", "started_at", LH_COLUMN_TIME},
    {"WAITERS", "waiters", LH_COLUMN_COUNT},
    {"ID", "id", LH_COLUMN_TEXT},
    {0},
};

static const struct query daemon_query = {
    .rows = "select c.*, n.now - c.seen_at as seen, c.seen_at > n.now - interval '5 s' as live,"
            " (select count(*) from leasehold.queue q where q.coordinator = c.id) as waiters,"
            " null::text as namespace, null::text as key"
            " from leasehold.coordinator c cross join (select clock_timestamp() as now) n",
    .method = "ListDaemons",
    .columns = daemon_columns,
    .order = "r.id",
    .list = "daemons",
    .empty = "no daemon is registered in this database",
};

static const struct lh_column explain_columns[] = {
    {"state", "state", LH_COLUMN_TEXT},
    {"mode", "mode", LH_COLUMN_TEXT},
    {"units taken", "units", LH_COLUMN_UNITS},
    {"holders", "holders", LH_COLUMN_COUNT},
    {"holder", "holder", LH_COLUMN_TEXT},
    {"principal", "principal", LH_COLUMN_TEXT},
    {"liveness", "liveness", LH_COLUMN_TEXT},
    {"token", "token", LH_COLUMN_INT64},
    {"since", "since", LH_COLUMN_TIME},
    {"heartbeats", "heartbeats", LH_COLUMN_COUNT_OF_HOLD},
    {"last heartbeat", "last_heartbeat_at", LH_COLUMN_TIME},
    {"expires", "expires_at", LH_COLUMN_TIME},
    {"rests until", "rests_until", LH_COLUMN_TIME},
    {"waiters", "waiters", LH_COLUMN_COUNT},
    {"first waiter", "first_waiter", LH_COLUMN_TEXT},
    {"advice", "advice", LH_COLUMN_TEXT},
    {NULL, "policy", LH_COLUMN_JSON},
    {0},
};

static const struct query explain_query = {
    .rows = "select e.*, $1 as namespace, $2 as key from leasehold.explain($1, $2) e",
    .method = "Explain",
    .columns = explain_columns,
    .order = "1",
};

/* --- running --- */

/* $1 namespace or null, $2 key or null, $3 with children, $4 rows at most. */
static const char *statement_of(const struct query *query, struct lh_arena *arena)
{
    const char *columns = "";

    for (const struct lh_column *column = query->columns; column->name != NULL; column++) {
        bool is_time = column->kind == LH_COLUMN_DURATION || column->kind == LH_COLUMN_TIME;
        const char *form = is_time                          ? "%s%s(extract(epoch from r.%s) * 1000000)::bigint as %s"
                           : column->kind == LH_COLUMN_LIST ? "%s%sarray_to_string(r.%s, ',') as %s"
                                                            : "%s%sr.%s as %s";
        if (column->kind != LH_COLUMN_HELD) /* made of two others */
            columns = lh_arena_format(arena, form, columns, columns[0] != '\0' ? ", " : "", column->name, column->name);
    }
    return lh_arena_format(arena,
                           "select %s from (%s) r where ($2::text is null or r.key = $2) and ($1::text is null"
                           " or r.namespace = $1 or ($3::boolean and starts_with(r.namespace, $1 || '.')))"
                           " order by %s limit $4::bigint",
                           columns, query->rows, query->order);
}

/* `ns` NULL: all of them; `key` NULL: any. */
static const void *ask(struct lh_cli *cli, const struct query *query, const char *ns, const char *key, int64_t max)
{
    Leasehold__V1__ListRequest request = LEASEHOLD__V1__LIST_REQUEST__INIT;
    Leasehold__V1__ExplainRequest of_scope = LEASEHOLD__V1__EXPLAIN_REQUEST__INIT;
    const Leasehold__V1__Namespace *in = lh_take_namespace(ns != NULL ? ns : "", &cli->arena);
    bool with_children = lh_args_has(&cli->args, "children");
    const char *const values[] = {ns, key, with_children ? "true" : "false",
                                  lh_arena_format(&cli->arena, "%lld", (long long)max)};

    request.namespace_ = in->segments;
    request.n_namespace_ = in->n_segments;
    if (key != NULL)
        request.key = (char *)(uintptr_t)key;
    request.include_children = with_children && key == NULL;
    if (query->list == NULL)
        of_scope.scope = lh_message_scope(ns != NULL ? ns : "", key, &cli->arena);
    return lh_ask(cli, query->list != NULL ? &request.base : &of_scope.base,
                  &(struct lh_ask){.method = query->method,
                                   .max = (size_t)max,
                                   .sql = statement_of(query, &cli->arena),
                                   .values = values,
                                   .value_count = 4});
}

static enum lh_exit run(struct lh_cli *cli)
{
    const struct query *query = cli->command->arg;
    const struct lh_args *args = &cli->args;
    const char *ns = args->word_count > 0 ? args->words[0] : NULL;
    const char *key = args->word_count > 1 ? args->words[1] : NULL;
    const char *max = lh_args_value(args, "max");
    bool is_json = cli->output == LH_OUTPUT_JSON;
    int64_t count = query == &history_query ? ROWS_DEFAULT : ROWS_MAX;
    struct lh_error error = {0};
    const void *answer;

    if ((ns != NULL && lh_check_namespace_or_root(ns, &error) != LH_OK) ||
        (key != NULL && lh_bounds_key(key, &error) != LH_OK) ||
        (max != NULL && lh_check_number("max", max, 1, ROWS_MAX, &count, &error) != LH_OK))
        return lh_error_value(cli, &error);
    answer = ask(cli, query, ns == NULL || ns[0] == '\0' || strcmp(ns, ".") == 0 ? NULL : ns, key, count);
    if (answer == NULL)
        return cli->status;
    if (query->list == NULL && is_json)
        lh_columns_print_object(query->columns, answer);
    else if (query->list == NULL)
        lh_columns_print_card(query->columns, answer);
    else if (is_json)
        lh_columns_print_json(query->columns, query->list, answer, (size_t)count);
    else
        lh_columns_print_table(query->columns, answer, (size_t)count, query->empty);
    return cli->status;
}

static const struct lh_option options[] = {
    {"children", 'r', NULL, "Include the namespaces below."},
    {"max", 0, "N", "Rows at most, 1 to 10000. Default: 50 of the history, 10000 of the queue."},
    {0},
};

const struct lh_command lh_command_queue = {
    .name = "queue",
    .summary = "print the waiters, in order",
    .usage = (const char *const[]){"queue [NAMESPACE [KEY]] [--children]", NULL},
    .description = "Prints the waiters of a lease, of a namespace or of all namespaces, in the\n"
                   "order in which they will be granted. POSITION 1 is next; a waiter without a\n"
                   "position is skipped. AWAY: its call has ended, and its place is kept for 10 s.\n",
    .options = options,
    .examples = "  leasehold queue payments invoice-42\n"
                "  leasehold queue -o json | jq -r '.queue[] | .owner'\n",
    .words_min = 0,
    .words_max = 2,
    .reach = LH_REACH_EITHER,
    .run = run,
    .arg = &queue_query,
};

const struct lh_command lh_command_explain = {
    .name = "explain",
    .summary = "explain the state of a lease, and what to do",
    .usage = (const char *const[]){"explain NAMESPACE KEY", NULL},
    .description = "Prints the state of a lease, its holder and waiters, and advice: why it is not\n"
                   "granted, or when it will be. With -o json also the policy in force.\n",
    .examples = "  leasehold explain payments invoice-42\n",
    .words_min = 2,
    .words_max = 2,
    .reach = LH_REACH_EITHER,
    .run = run,
    .arg = &explain_query,
};

const struct lh_command lh_command_history = {
    .name = "history",
    .summary = "print the holds that have ended",
    .usage = (const char *const[]){"history [NAMESPACE [KEY]] [--children] [--max N]", NULL},
    .description = "Prints the holds that have ended, the newest first. They are kept where the\n"
                   "policy says history=true, for its history_retention. OUTCOME is ok, failed,\n"
                   "expired, forced, max_hold (the policy ended it) or downgraded (its holder\n"
                   "kept it as a shared lease). With -o json also the result of each.\n",
    .options = options,
    .examples = "  leasehold policy set payments history=true\n"
                "  leasehold history payments --children --database postgresql:///leasehold\n",
    .words_min = 0,
    .words_max = 2,
    .reach = LH_REACH_EITHER,
    .run = run,
    .arg = &history_query,
};

const struct lh_command lh_command_daemons = {
    .name = "daemons",
    .summary = "print the daemons of a database",
    .usage = (const char *const[]){"daemons", NULL},
    .description = "Prints the daemons that work on a database. A daemon is live if it was seen in\n"
                   "the last 5 s. A daemon that stopped cleanly is not printed.\n",
    .examples = "  leasehold daemons\n",
    .words_min = 0,
    .words_max = 0,
    .reach = LH_REACH_EITHER,
    .run = run,
    .arg = &daemon_query,
};
