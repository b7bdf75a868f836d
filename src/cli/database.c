#include "cli/database.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/server.h"
#include "leasehold/v1/console.pb-c.h"
#include "leasehold/v1/schedule.pb-c.h"
#include "pg/values.h"
#include "json/row_message.h"

static void on_notice(void *arg, const char *line)
{
    const struct lh_cli *cli = arg;
    if (lh_args_has(&cli->args, "verbose"))
        lh_error_print("the database says: %s", line);
}

enum lh_exit lh_database_open(struct lh_session **session, const struct lh_cli *cli, enum lh_database_use use)
{
    struct lh_error error = {0};

    *session = NULL;
    if (cli->database == NULL)
        return lh_error_usage(cli->command, "%s works on a database: --database URL, or LEASEHOLD_DATABASE",
                              cli->command->name);
    *session = lh_session_open(cli->database, use == LH_DATABASE_WRITE, cli->timeout_us, &error);
    if (*session == NULL && error.status == LH_INVALID_ARGUMENT)
        return lh_error_usage(cli->command, "--database: %s", error.message);
    if (*session == NULL)
        return lh_error_database(cli, &error);
    lh_session_on_notice(*session, on_notice, (void *)(uintptr_t)cli);
    if (lh_session_set_timeout(*session, cli->timeout_us, &error) != LH_OK) {
        lh_session_close(*session);
        *session = NULL;
        return lh_error_database(cli, &error);
    }
    return LH_EXIT_DONE;
}

PGresult *lh_database_query(struct lh_session *session, const struct lh_cli *cli, const char *sql,
                            const char *const *values, size_t value_count, enum lh_exit *status)
{
    struct lh_error error = {0};
    PGresult *result = lh_session_query(session, sql, values, value_count, &error);

    *status = result != NULL ? LH_EXIT_DONE : lh_error_database(cli, &error);
    return result;
}

/* What is read from a standby may be old. */
static void tell_of_standby(struct lh_session *session)
{
    static const char sql[] = "select round(extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())"
                              "::numeric, 1)::text as age where pg_is_in_recovery()";
    struct lh_error error = {0};
    PGresult *result = lh_session_query(session, sql, NULL, 0, &error);
    const char *age = result != NULL && PQntuples(result) == 1 ? lh_query_text(result, 0, "age") : NULL;

    if (age != NULL)
        lh_error_print("this server is a standby: the last transaction that it has replayed is %s s old", age);
    else if (result != NULL && PQntuples(result) == 1)
        lh_error_print("this server is a standby");
    PQclear(result);
}

PGresult *lh_ask_database(struct lh_cli *cli, const struct lh_ask *ask)
{
    struct lh_session *session;
    PGresult *result = NULL;

    cli->status = lh_database_open(&session, cli, ask->kind == LH_ASK_READ ? LH_DATABASE_READ : LH_DATABASE_WRITE);
    if (cli->status == LH_EXIT_DONE)
        result = lh_database_query(session, cli, ask->sql, ask->values, ask->value_count, &cli->status);
    if (result != NULL && ask->then != NULL) {
        PQclear(result);
        result = lh_database_query(session, cli, ask->then, ask->values, ask->then_count, &cli->status);
    }
    if (result != NULL && ask->kind == LH_ASK_READ)
        tell_of_standby(session);
    lh_session_close(session);
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
        Leasehold__V1__Lease__LabelsEntry *entry = lh_arena_alloc(arena, sizeof(*entry));
        leasehold__v1__lease__labels_entry__init(entry);
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
