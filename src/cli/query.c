/*
 * Commands that print rows of the database's views and functions: queue, explain, history and daemons. Each is a query
 * and a table of its columns, from which the statement, the text and the JSON are made.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/bounds.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/print.h"
#include "json/print.h"

#define ROWS_DEFAULT 50
#define ROWS_MAX 10000

enum kind {
    KIND_TEXT,
    KIND_NAMESPACE,
    KIND_COUNT,
    KIND_INT64,    /* a string in JSON, as in the protocol's messages */
    KIND_DURATION, /* microseconds, see statement_of */
    KIND_TIME,     /* likewise */
    KIND_BOOL,
    KIND_UNITS, /* a count; not in the text where it is 0 */
    KIND_SLOTS, /* an array of numbers */
    KIND_JSON,  /* not in the text */
};

struct column {
    const char *heading; /* of the text; NULL: only in JSON */
    const char *name;    /* in the result, and in JSON */
    enum kind kind;
};

struct query {
    const char
        *rows; /* a query of these columns, and of namespace and key; $1 and $2 are the two to look for, or null */
    const struct column *columns;
    const char *order;
    const char *list;  /* the name of the rows in JSON; NULL: there is one row, printed as a card */
    const char *empty; /* what is said when there are none */
};

/* --- the queries --- */

static const struct column queue_columns[] = {
    {"NAMESPACE", "namespace", KIND_NAMESPACE},
    {"KEY", "key", KIND_TEXT},
    {"POSITION", "position", KIND_COUNT},
    {"OWNER", "owner", KIND_TEXT},
    {"PRINCIPAL", "principal", KIND_TEXT},
    {"WAITING", "waiting", KIND_DURATION},
    {"AWAY", "away", KIND_BOOL},
    {"MODE", "mode", KIND_TEXT},
    {"UNITS", "units", KIND_UNITS},
    {"SCOPES", "scopes", KIND_COUNT},
    {NULL, "enqueued_at", KIND_TIME},
    {NULL, "wait_until", KIND_TIME},
    {NULL, "rests_until", KIND_TIME},
    {NULL, "duration", KIND_DURATION},
    {NULL, "coordinator", KIND_TEXT},
    {NULL, "ticket", KIND_INT64},
    {0},
};

static const struct query queue_query = {
    .rows = "select * from leasehold.queue",
    .columns = queue_columns,
    .order = "r.namespace, r.key, r.ticket",
    .list = "queue",
    .empty = "no waiters",
};

static const struct column history_columns[] = {
    {"NAMESPACE", "namespace", KIND_NAMESPACE},
    {"KEY", "key", KIND_TEXT},
    {"ENDED", "ended_at", KIND_TIME},
    {"HELD", "held", KIND_DURATION},
    {"OUTCOME", "outcome", KIND_TEXT},
    {"TOKEN", "token", KIND_INT64},
    {"OWNER", "owner", KIND_TEXT},
    {"PRINCIPAL", "principal", KIND_TEXT},
    {"ERROR", "error", KIND_TEXT},
    {"ENDED BY", "ended_by", KIND_TEXT},
    {"MODE", "mode", KIND_TEXT},
    {"UNITS", "units", KIND_UNITS},
    {"SLOTS", "slots", KIND_SLOTS},
    {NULL, "acquired_at", KIND_TIME},
    {NULL, "result", KIND_JSON},
    {0},
};

static const struct query history_query = {
    .rows = "select h.*, h.ended_at - h.acquired_at as held from leasehold.history h",
    .columns = history_columns,
    .order = "r.ended_at desc",
    .list = "history",
    .empty = "no history: it is kept where the policy says history=true",
};

static const struct column daemon_columns[] = {
    {"HOST", "host", KIND_TEXT},        {"PID", "pid", KIND_COUNT},      {"VERSION", "version", KIND_TEXT},
    {"LIVE", "live", KIND_BOOL},        {"SEEN", "seen", KIND_DURATION}, {"STARTED", "started_at", KIND_TIME},
    {"WAITERS", "waiters", KIND_COUNT}, {"ID", "id", KIND_TEXT},         {0},
};

static const struct query daemon_query = {
    .rows = "select c.*, n.now - c.seen_at as seen, c.seen_at > n.now - interval '5 s' as live,"
            " (select count(*) from leasehold.queue q where q.coordinator = c.id) as waiters,"
            " null::text as namespace, null::text as key"
            " from leasehold.coordinator c cross join (select clock_timestamp() as now) n",
    .columns = daemon_columns,
    .order = "r.host, r.started_at",
    .list = "daemons",
    .empty = "no daemon is registered in this database",
};

static const struct column explain_columns[] = {
    {"state", "state", KIND_TEXT},
    {"mode", "mode", KIND_TEXT},
    {"units taken", "units", KIND_UNITS},
    {"holders", "holders", KIND_COUNT},
    {"holder", "holder", KIND_TEXT},
    {"principal", "principal", KIND_TEXT},
    {"liveness", "liveness", KIND_TEXT},
    {"token", "token", KIND_INT64},
    {"since", "since", KIND_TIME},
    {"heartbeats", "heartbeats", KIND_COUNT},
    {"last heartbeat", "last_heartbeat_at", KIND_TIME},
    {"expires", "expires_at", KIND_TIME},
    {"rests until", "rests_until", KIND_TIME},
    {"waiters", "waiters", KIND_COUNT},
    {"first waiter", "first_waiter", KIND_TEXT},
    {"advice", "advice", KIND_TEXT},
    {NULL, "policy", KIND_JSON},
    {0},
};

static const struct query explain_query = {
    .rows = "select e.*, $1 as namespace, $2 as key from leasehold.explain($1, $2) e",
    .columns = explain_columns,
    .order = "1",
};

/* --- printing --- */

/* NULL: there is no value. A new string. */
static char *cell_text(const struct column *column, const PGresult *rows, int row)
{
    const char *text = lh_query_text(rows, row, column->name);
    int64_t number = lh_query_number(rows, row, column->name, 0);
    char formatted[LH_TIME_TEXT_BYTES > LH_DURATION_TEXT_BYTES ? LH_TIME_TEXT_BYTES : LH_DURATION_TEXT_BYTES];

    if (text == NULL)
        return NULL;
    switch (column->kind) {
    case KIND_NAMESPACE:
        return text[0] == '\0' ? lh_strdup("(root)") : lh_format(strchr(text, '/') != NULL ? "\"%s\"" : "%s", text);
    case KIND_DURATION:
        lh_duration_format(number, formatted);
        return lh_strdup(formatted);
    case KIND_TIME:
        lh_time_format(number / LH_US_PER_S, formatted);
        return lh_strdup(formatted);
    case KIND_BOOL:
        return lh_strdup(text[0] == 't' ? "yes" : "no");
    case KIND_UNITS:
        return number > 0 ? lh_strdup(text) : NULL;
    case KIND_SLOTS: /* "{1,2}" */
        return lh_format("%.*s", (int)strcspn(text + 1, "}"), text + 1);
    default:
        return lh_strdup(text);
    }
}

static json_t *slots_json(const char *text)
{
    json_t *slots = json_array();

    for (const char *at = text; at != NULL && at[1] != '}'; at = strchr(at + 1, ','))
        json_array_append_new(slots, json_integer(strtoll(at + 1, NULL, 10)));
    return slots;
}

static json_t *cell_json(const struct column *column, const PGresult *rows, int row)
{
    const char *text = lh_query_text(rows, row, column->name);
    int64_t us = lh_query_number(rows, row, column->name, 0);
    int64_t fraction_us = (us % LH_US_PER_S + LH_US_PER_S) % LH_US_PER_S;
    char formatted[LH_JSON_TIME_BYTES];

    if (text == NULL)
        return json_null();
    switch (column->kind) {
    case KIND_COUNT:
    case KIND_UNITS:
        return json_integer(us);
    case KIND_DURATION:
        lh_json_duration(us / LH_US_PER_S, (int32_t)(us % LH_US_PER_S) * 1000, formatted);
        return json_string(formatted);
    case KIND_TIME:
        lh_json_timestamp((us - fraction_us) / LH_US_PER_S, (int32_t)fraction_us * 1000, formatted);
        return json_string(formatted);
    case KIND_BOOL:
        return json_boolean(text[0] == 't');
    case KIND_SLOTS:
        return slots_json(text);
    case KIND_JSON:
        return json_loads(text, JSON_DECODE_ANY, NULL);
    default:
        return json_string(text);
    }
}

static void print_json(const struct query *query, const PGresult *rows)
{
    json_t *list = json_array(), *all;

    for (int row = 0; row < PQntuples(rows); row++) {
        json_t *object = json_object();
        for (const struct column *column = query->columns; column->name != NULL; column++)
            json_object_set_new(object, column->name, cell_json(column, rows, row));
        json_array_append_new(list, object);
    }
    all = query->list != NULL ? json_pack("{s:o}", query->list, list) : json_incref(json_array_get(list, 0));
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
    if (query->list == NULL)
        json_decref(list);
}

static void print_table(const struct query *query, const PGresult *rows)
{
    struct lh_grid table = {0};

    for (const struct column *column = query->columns; column->name != NULL && column->heading != NULL; column++) {
        if (column->kind == KIND_COUNT || column->kind == KIND_UNITS || column->kind == KIND_INT64)
            table.right |= 1u << table.columns;
        lh_grid_add(&table, "%s", column->heading);
        table.columns++;
    }
    for (int row = 0; row < PQntuples(rows); row++)
        for (size_t i = 0; i < table.columns; i++) {
            char *text = cell_text(&query->columns[i], rows, row);
            lh_grid_add(&table, "%s", text != NULL ? text : "");
            free(text);
        }
    lh_grid_print(&table, stdout);
}

static void print_card(const struct query *query, const PGresult *rows)
{
    struct lh_grid card = {.columns = 2};

    for (const struct column *column = query->columns; column->name != NULL && column->heading != NULL; column++) {
        char *text = cell_text(column, rows, 0);
        if (text != NULL)
            lh_grid_row(&card, column->heading, "%s", text);
        free(text);
    }
    lh_grid_print(&card, stdout);
}

/* --- running --- */

/* $1 namespace or null, $2 key or null, $3 with children, $4 rows at most. A new string. */
static char *statement_of(const struct query *query)
{
    char *columns = lh_strdup(""), *statement;

    for (const struct column *column = query->columns; column->name != NULL; column++) {
        bool is_time = column->kind == KIND_DURATION || column->kind == KIND_TIME;
        char *more = lh_format(is_time ? "%s%s(extract(epoch from r.%s) * 1000000)::bigint as %s" : "%s%sr.%s as %s",
                               columns, columns[0] != '\0' ? ", " : "", column->name, column->name);
        free(columns);
        columns = more;
    }
    statement = lh_format("select %s from (%s) r where ($2::text is null or r.key = $2) and ($1::text is null"
                          " or r.namespace = $1 or ($3::boolean and starts_with(r.namespace, $1 || '.')))"
                          " order by %s limit $4::bigint",
                          columns, query->rows, query->order);
    free(columns);
    return statement;
}

static enum lh_exit print_query(const struct lh_cli *cli, const struct query *query, const char *const *values)
{
    char *statement = statement_of(query);
    enum lh_exit status;
    PGresult *rows = lh_database_ask(cli, LH_DATABASE_READ, statement, values, 4, &status);

    if (rows != NULL && cli->output == LH_OUTPUT_JSON)
        print_json(query, rows);
    else if (rows != NULL && PQntuples(rows) == 0)
        fprintf(stderr, "%s\n", query->empty);
    else if (rows != NULL && query->list == NULL)
        print_card(query, rows);
    else if (rows != NULL)
        print_table(query, rows);
    PQclear(rows);
    free(statement);
    return status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    const struct query *query = cli->command->arg;
    const struct lh_args *args = &cli->args;
    const char *ns = args->word_count > 0 ? args->words[0] : NULL;
    const char *key = args->word_count > 1 ? args->words[1] : NULL;
    const char *max = lh_args_value(args, "max");
    struct lh_error error = {0};
    char rows[24];
    int64_t count = ROWS_DEFAULT;

    if ((ns != NULL && lh_check_namespace_or_root(ns, &error) != LH_OK) ||
        (key != NULL && lh_check_key(key, &error) != LH_OK) ||
        (max != NULL && lh_check_number("max", max, 1, ROWS_MAX, &count, &error) != LH_OK))
        return lh_error_value(cli, &error);
    if (max == NULL && query != &history_query)
        count = ROWS_MAX;
    snprintf(rows, sizeof(rows), "%" PRId64, count);
    if (ns != NULL && (ns[0] == '\0' || strcmp(ns, ".") == 0))
        ns = NULL;
    return print_query(cli, query,
                       (const char *const[]){ns, key, lh_args_has(args, "children") ? "true" : "false", rows});
}

static const struct lh_option options[] = {
    {"children", 'r', NULL, "Include the namespaces below."},
    {"max", 0, "N", "Rows at most, 1 to 10000. Default: 50 of the history, 10000 of the queue."},
    {0},
};

const struct lh_command lh_command_queue = {
    .name = "queue",
    .summary = "print the waiters, in order",
    .usage = (const char *const[]){"queue [NAMESPACE [KEY]] [--children] --database URL", NULL},
    .description = "Prints the waiters of a lease, of a namespace or of all namespaces, in the\n"
                   "order in which they will be granted. POSITION 1 is next; a waiter without a\n"
                   "position is skipped. AWAY: its call has ended, and its place is kept for 10 s.\n",
    .options = options,
    .examples = "  leasehold queue payments invoice-42 --database postgresql:///leasehold\n"
                "  leasehold queue -o json | jq -r '.queue[] | .owner'\n",
    .words_min = 0,
    .words_max = 2,
    .reach = LH_REACH_DATABASE,
    .run = run,
    .arg = &queue_query,
};

const struct lh_command lh_command_explain = {
    .name = "explain",
    .summary = "explain the state of a lease, and what to do",
    .usage = (const char *const[]){"explain NAMESPACE KEY --database URL", NULL},
    .description = "Prints the state of a lease, its holder and waiters, and advice: why it is not\n"
                   "granted, or when it will be. With -o json also the policy in force.\n",
    .examples = "  leasehold explain payments invoice-42 --database postgresql:///leasehold\n",
    .words_min = 2,
    .words_max = 2,
    .reach = LH_REACH_DATABASE,
    .run = run,
    .arg = &explain_query,
};

const struct lh_command lh_command_history = {
    .name = "history",
    .summary = "print the holds that have ended",
    .usage = (const char *const[]){"history [NAMESPACE [KEY]] [--children] [--max N] --database URL", NULL},
    .description = "Prints the holds that have ended, the newest first. They are kept where the\n"
                   "policy says history=true, for its history_retention. OUTCOME is ok, failed,\n"
                   "expired, forced or downgraded (its holder kept it as a shared lease). With\n"
                   "-o json also the result of each.\n",
    .options = options,
    .examples = "  leasehold policy set payments history=true\n"
                "  leasehold history payments --children --database postgresql:///leasehold\n",
    .words_min = 0,
    .words_max = 2,
    .reach = LH_REACH_DATABASE,
    .run = run,
    .arg = &history_query,
};

const struct lh_command lh_command_daemons = {
    .name = "daemons",
    .summary = "print the daemons of a database",
    .usage = (const char *const[]){"daemons --database URL", NULL},
    .description = "Prints the daemons that work on a database. A daemon is live if it was seen in\n"
                   "the last 5 s. A daemon that stopped cleanly is not printed.\n",
    .examples = "  leasehold daemons --database postgresql:///leasehold\n",
    .words_min = 0,
    .words_max = 0,
    .reach = LH_REACH_DATABASE,
    .run = run,
    .arg = &daemon_query,
};
