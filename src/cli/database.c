#include "cli/database.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bounds.h"
#include "cli/error.h"
#include "cli/message.h"

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

PGresult *lh_database_ask(const struct lh_cli *cli, enum lh_database_use use, const char *sql,
                          const char *const *values, size_t value_count, enum lh_exit *status)
{
    struct lh_session *session;
    PGresult *result = NULL;

    *status = lh_database_open(&session, cli, use);
    if (*status == LH_EXIT_DONE)
        result = lh_database_query(session, cli, sql, values, value_count, status);
    if (result != NULL && use == LH_DATABASE_READ)
        tell_of_standby(session);
    lh_session_close(session);
    return result;
}

static Google__Protobuf__Duration *row_duration(struct lh_arena *arena, const PGresult *result, int row,
                                                const char *column_us)
{
    if (lh_query_text(result, row, column_us) == NULL)
        return NULL;
    return lh_duration_new(arena, lh_query_number(result, row, column_us, 0));
}

Google__Protobuf__Timestamp *lh_row_timestamp(struct lh_arena *arena, const PGresult *result, int row,
                                              const char *column_us)
{
    if (lh_query_text(result, row, column_us) == NULL)
        return NULL;
    return lh_timestamp_new(arena, lh_query_number(result, row, column_us, 0));
}

char **lh_segments_in_arena(struct lh_arena *arena, const char *ns, size_t *count)
{
    char **list = lh_arena_alloc(arena, (LH_NAMESPACE_MAX_SEGMENTS + 1) * sizeof(*list));
    char *rest = NULL;

    *count = 0;
    for (char *segment = strtok_r(lh_arena_strdup(arena, ns), ".", &rest);
         segment != NULL && *count < LH_NAMESPACE_MAX_SEGMENTS; segment = strtok_r(NULL, ".", &rest))
        list[(*count)++] = segment;
    return list;
}

const char lh_lease_columns[] =
    " l.namespace, l.key, l.token, l.owner, l.principal, l.labels, l.heartbeats, l.liveness,"
    " (extract(epoch from l.duration) * 1000000)::bigint as duration_us,"
    " (extract(epoch from l.grace) * 1000000)::bigint as grace_us,"
    " (extract(epoch from l.remaining) * 1000000)::bigint as remaining_us,"
    " (extract(epoch from l.deadline) * 1000000)::bigint as deadline_us,"
    " (extract(epoch from l.acquired_at) * 1000000)::bigint as acquired_at_us,"
    " (extract(epoch from l.heartbeat_at) * 1000000)::bigint as heartbeat_at_us, l.mode, l.units, l.slots ";

static Leasehold__V1__Liveness liveness_from_text(const char *text)
{
    static const char *const names[] = {"", "alive", "suspected_dead", "overdue", "expired"};
    for (int i = 1; text != NULL && i <= 4; i++)
        if (strcmp(text, names[i]) == 0)
            return (Leasehold__V1__Liveness)i;
    return LEASEHOLD__V1__LIVENESS__LIVENESS_UNSPECIFIED;
}

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

/* "{1,2}", an array as PostgreSQL writes it. */
static void add_slots(struct lh_arena *arena, Leasehold__V1__Lease *lease, const char *text)
{
    size_t commas = 0;

    for (const char *c = text; c != NULL && *c != '\0'; c++)
        commas += *c == ',';
    if (text == NULL || strcmp(text, "{}") == 0)
        return;
    lease->slots = lh_arena_alloc(arena, (commas + 1) * sizeof(*lease->slots));
    for (const char *at = text; at != NULL; at = strchr(at + 1, ','))
        lease->slots[lease->n_slots++] = (int32_t)strtol(at + 1, NULL, 10);
}

Leasehold__V1__Lease *lh_lease_from_row(struct lh_arena *arena, const PGresult *result, int row)
{
    Leasehold__V1__Lease *lease = lh_arena_alloc(arena, sizeof(*lease));
    const char *ns = lh_query_text(result, row, "namespace");
    const char *key = lh_query_text(result, row, "key");
    const char *owner = lh_query_text(result, row, "owner");
    const char *principal = lh_query_text(result, row, "principal");
    const char *mode = lh_query_text(result, row, "mode");

    leasehold__v1__lease__init(lease);
    if (mode != NULL)
        lease->mode =
            strcmp(mode, "shared") == 0 ? LEASEHOLD__V1__MODE__MODE_SHARED : LEASEHOLD__V1__MODE__MODE_EXCLUSIVE;
    lease->units = (int32_t)lh_query_number(result, row, "units", 0);
    add_slots(arena, lease, lh_query_text(result, row, "slots"));
    lease->scope = lh_arena_alloc(arena, sizeof(*lease->scope));
    leasehold__v1__scope__init(lease->scope);
    lease->scope->namespace_ = lh_segments_in_arena(arena, ns != NULL ? ns : "", &lease->scope->n_namespace_);
    if (key != NULL)
        lease->scope->key = lh_arena_strdup(arena, key);
    if (owner != NULL)
        lease->owner = lh_arena_strdup(arena, owner);
    if (principal != NULL)
        lease->principal = lh_arena_strdup(arena, principal);
    lease->token = lh_query_number(result, row, "token", 0);
    lease->heartbeats = lh_query_number(result, row, "heartbeats", 0);
    lease->liveness = liveness_from_text(lh_query_text(result, row, "liveness"));
    lease->duration = row_duration(arena, result, row, "duration_us");
    lease->grace = row_duration(arena, result, row, "grace_us");
    lease->remaining = row_duration(arena, result, row, "remaining_us");
    lease->deadline = lh_row_timestamp(arena, result, row, "deadline_us");
    lease->acquired_at = lh_row_timestamp(arena, result, row, "acquired_at_us");
    lease->heartbeat_at = lh_row_timestamp(arena, result, row, "heartbeat_at_us");
    lh_lease_add_labels(arena, lease, lh_query_text(result, row, "labels"));
    return lease;
}
