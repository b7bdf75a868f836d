#include "cli/database.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/server.h"
#include "leasehold/v1/console.pb-c.h"
#include "leasehold/v1/schedule.pb-c.h"
#include "pg/values.h"
#include "json/row_message.h"

const char *lh_database_notice(const PGresult *notice, char line[LH_NOTICE_BYTES])
{
    const char *primary = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);

    lh_query_words(line, LH_NOTICE_BYTES, primary != NULL ? primary : "");
    return line;
}

static void on_notice(void *arg, const PGresult *notice)
{
    const struct lh_cli *cli = arg;
    char line[LH_NOTICE_BYTES];

    if (lh_args_has(&cli->args, "verbose"))
        lh_error_print("the database says: %s", lh_database_notice(notice, line));
}

/* libpq's complaints quote what they complain about, which may be the second half of a password, but for those that name
 * an option. */
static bool is_secret(const char *conninfo, const char *complaint)
{
    return (strchr(conninfo, '@') != NULL || strstr(conninfo, "password") != NULL) &&
           strncmp(complaint, "invalid connection option", 25) != 0 &&
           strncmp(complaint, "invalid URI query parameter", 27) != 0;
}

static enum lh_exit check_conninfo(const struct lh_cli *cli)
{
    char *complaint = NULL, words[LH_NOTICE_BYTES];
    PQconninfoOption *parsed = PQconninfoParse(cli->database, &complaint);

    if (parsed != NULL) {
        PQconninfoFree(parsed);
        return LH_EXIT_DONE;
    }
    lh_query_words(words, sizeof(words), complaint != NULL ? complaint : "");
    if (words[0] == '\0' || is_secret(cli->database, words))
        snprintf(words, sizeof(words), "it is neither a URL nor name=value pairs");
    PQfreemem(complaint);
    return lh_error_usage(cli->command, "--database: not the address of a database: %s", words);
}

static enum lh_exit set_timeout(PGconn *conn, const struct lh_cli *cli)
{
    char timeout_ms[24];
    const char *const values[] = {timeout_ms};
    enum lh_exit status;

    snprintf(timeout_ms, sizeof(timeout_ms), "%lld", (long long)((cli->timeout_us + LH_US_PER_MS - 1) / LH_US_PER_MS));
    PQclear(lh_database_query(conn, cli, "select set_config('statement_timeout', $1, false)", values, 1, &status));
    return status;
}

enum lh_exit lh_database_open(PGconn **conn, const struct lh_cli *cli, enum lh_database_use use)
{
    /* What stands before dbname is a default for it, what stands after it overrules it. */
    static const char *const names[] = {"connect_timeout", "target_session_attrs",      "dbname",
                                        "client_encoding", "fallback_application_name", NULL};
    char timeout_s[24];
    const char *const values[] = {
        timeout_s, use == LH_DATABASE_WRITE ? "read-write" : NULL, cli->database, "UTF8", "leasehold", NULL};
    struct lh_error error = {0};
    enum lh_exit status;

    *conn = NULL;
    if (cli->database == NULL)
        return lh_error_usage(cli->command, "%s works on a database: --database URL, or LEASEHOLD_DATABASE",
                              cli->command->name);
    status = check_conninfo(cli);
    if (status != LH_EXIT_DONE)
        return status;
    snprintf(timeout_s, sizeof(timeout_s), "%lld", (long long)((cli->timeout_us + LH_US_PER_S - 1) / LH_US_PER_S));
    *conn = PQconnectdbParams(names, values, 1);
    if (PQstatus(*conn) == CONNECTION_OK) {
        PQsetNoticeReceiver(*conn, on_notice, (void *)(uintptr_t)cli);
        status = set_timeout(*conn, cli);
    } else {
        lh_query_error_of_conn(*conn, &error);
        status = lh_error_database(cli, &error);
    }
    if (status == LH_EXIT_DONE)
        return LH_EXIT_DONE;
    PQfinish(*conn);
    *conn = NULL;
    return status;
}

PGresult *lh_database_query(PGconn *conn, const struct lh_cli *cli, const char *sql, const char *const *values,
                            size_t value_count, enum lh_exit *status)
{
    struct lh_error error = {0};
    PGresult *result = lh_query(conn, sql, values, value_count, &error);

    *status = result != NULL ? LH_EXIT_DONE : lh_error_database(cli, &error);
    return result;
}

/* What is read from a standby may be old. */
static void tell_of_standby(PGconn *conn)
{
    static const char sql[] = "select round(extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())"
                              "::numeric, 1)::text as age where pg_is_in_recovery()";
    struct lh_error error = {0};
    PGresult *result = lh_query(conn, sql, NULL, 0, &error);
    const char *age = result != NULL && PQntuples(result) == 1 ? lh_query_text(result, 0, "age") : NULL;

    if (age != NULL)
        lh_error_print("this server is a standby: the last transaction that it has replayed is %s s old", age);
    else if (result != NULL && PQntuples(result) == 1)
        lh_error_print("this server is a standby");
    PQclear(result);
}

PGresult *lh_ask_database(struct lh_cli *cli, const struct lh_ask *ask)
{
    PGconn *conn;
    PGresult *result = NULL;

    cli->status = lh_database_open(&conn, cli, ask->kind == LH_ASK_READ ? LH_DATABASE_READ : LH_DATABASE_WRITE);
    if (cli->status == LH_EXIT_DONE)
        result = lh_database_query(conn, cli, ask->sql, ask->values, ask->value_count, &cli->status);
    if (result != NULL && ask->then != NULL) {
        PQclear(result);
        result = lh_database_query(conn, cli, ask->then, ask->values, ask->then_count, &cli->status);
    }
    if (result != NULL && ask->kind == LH_ASK_READ)
        tell_of_standby(conn);
    PQfinish(conn);
    return result;
}

bool lh_ask_rows(struct lh_cli *cli, const struct lh_ask *ask, struct lh_rows *rows)
{
    PGresult *result = lh_ask_database(cli, ask);

    if (result != NULL)
        *rows = lh_pg_rows(result, 0, &cli->arena);
    PQclear(result);
    return result != NULL;
}

static const ProtobufCMethodDescriptor *find_method(const ProtobufCMessageDescriptor *request, const char *name,
                                                    const ProtobufCServiceDescriptor **service)
{
    static const ProtobufCServiceDescriptor *const services[] = {
        &leasehold__v1__lease_service__descriptor, &leasehold__v1__admin_service__descriptor,
        &leasehold__v1__schedule_service__descriptor, &leasehold__v1__console_service__descriptor};

    for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++)
        for (unsigned j = 0; j < services[i]->n_methods; j++) {
            const ProtobufCMethodDescriptor *method = &services[i]->methods[j];
            *service = services[i];
            if (name != NULL ? strcmp(name, method->name) == 0 : method->input == request)
                return method;
        }
    abort();
}

const void *lh_ask(struct lh_cli *cli, ProtobufCMessage *request, const struct lh_ask *ask)
{
    const ProtobufCServiceDescriptor *service;
    const ProtobufCMethodDescriptor *method = find_method(request->descriptor, ask->method, &service);
    struct lh_rows rows;

    if (cli->uses_database)
        return lh_ask_rows(cli, ask, &rows) ? lh_rows_message(method->output, &rows, &cli->arena) : NULL;
    lh_reply_finish(&cli->reply);
    cli->status = lh_server_ask(cli, service, method->name, request,
                                ask->kind == LH_ASK_ONCE ? LH_NO_REPEAT : LH_REPEAT, ask->max, &cli->reply);
    return cli->status == LH_EXIT_DONE ? cli->reply.message : NULL;
}

enum lh_exit lh_ask_and_print(struct lh_cli *cli, ProtobufCMessage *request, const struct lh_ask *ask,
                              void (*print)(struct lh_cli *cli, const void *answer))
{
    const void *answer = lh_ask(cli, request, ask);

    if (answer != NULL && !lh_print_json(cli, answer))
        print(cli, answer);
    return cli->status;
}

const char lh_lease_columns[] =
    " l.namespace, l.key, l.token, l.owner, l.principal, l.labels, l.heartbeats, l.liveness,"
    " (extract(epoch from l.duration) * 1000000)::bigint as duration_us,"
    " (extract(epoch from l.grace) * 1000000)::bigint as grace_us,"
    " (extract(epoch from l.remaining) * 1000000)::bigint as remaining_us,"
    " (extract(epoch from l.deadline) * 1000000)::bigint as deadline_us,"
    " (extract(epoch from l.acquired_at) * 1000000)::bigint as acquired_at_us,"
    " (extract(epoch from l.heartbeat_at) * 1000000)::bigint as heartbeat_at_us, l.mode, l.units,"
    " array_to_string(l.slots, ',') as slots ";

void lh_lease_add_labels(struct lh_arena *arena, Leasehold__V1__Lease *lease, const char *text)
{
    json_t *labels = text != NULL ? json_loads(text, 0, NULL) : NULL;
    const char *name;
    json_t *value;

    if (json_object_size(labels) > 0)
        lease->labels = lh_arena_alloc(arena, json_object_size(labels) * sizeof(*lease->labels));
    json_object_foreach(labels, name, value)
    {
        Leasehold__V1__Lease__LabelsEntry *entry =
            lh_message_new(&leasehold__v1__lease__labels_entry__descriptor, arena);
        entry->key = lh_arena_strdup(arena, name);
        entry->value = lh_arena_strdup(arena, json_is_string(value) ? json_string_value(value) : "");
        lease->labels[lease->n_labels++] = entry;
    }
    json_decref(labels);
}

Leasehold__V1__Lease **lh_leases_from_rows(struct lh_arena *arena, const struct lh_rows *rows)
{
    Leasehold__V1__Lease **leases = lh_arena_alloc(arena, (rows->row_count + 1) * sizeof(*leases));

    for (size_t row = 0; row < rows->row_count; row++) {
        leases[row] = lh_row_message(&leasehold__v1__lease__descriptor, rows, row, arena);
        lh_lease_add_labels(arena, leases[row], lh_rows_cell(rows, row, "labels"));
    }
    return leases;
}
