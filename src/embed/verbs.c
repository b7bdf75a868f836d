/*
 * Acquire, heartbeat and release over a caller's connection: each the SQL function of the same name, then the callback,
 * in one transaction. A lease key is made before the first attempt, so that a repetition means the same acquisition.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/uuid.h"
#include "embed/call.h"
#include "embed/lease_row.h"
#include "embed/wait.h"

#define DURATION_US (30 * LH_US_PER_S)

int lh_embed_failed(PGconn *conn, const PGresult *result, struct lh_error *error)
{
    lh_query_error(conn, result, error);
    return 1;
}

/* --- acquire --- */

struct acquire {
    const char *ns;
    const char *key;
    const char *owner;
    const char *lease_key;
    char *labels;
    int64_t duration_us;
    int64_t at_least_us;
    bool is_shared;
    int32_t units;
    struct lh_embed_lease *lease;
};

/* Of a row of leasehold.lease called l. */
static const char lease_columns[] =
    " l.namespace, l.key, l.lease_key, l.token, l.owner, l.principal, l.labels, l.heartbeats,"
    " (extract(epoch from l.duration) * 1000000)::bigint as duration_us,"
    " (extract(epoch from l.grace) * 1000000)::bigint as grace_us,"
    " (extract(epoch from l.acquired_at) * 1000000)::bigint as acquired_at_us,"
    " (extract(epoch from l.heartbeat_at) * 1000000)::bigint as heartbeat_at_us,"
    " (extract(epoch from l.deadline) * 1000000)::bigint as deadline_at_us";
static const char share_columns[] = ", l.mode, l.units, l.slots[1] as slot";

static enum lh_status acquire_work(struct lh_call *call, struct lh_error *error)
{
    static const char from[] =
        "  from leasehold.acquire(namespace => $1, key => $2, duration => $3::bigint * interval '1 microsecond',"
        "                         owner => $4, lease_key => $5::uuid, labels => $6::jsonb";
    struct acquire *acquire = call->arg;
    struct lh_embed_lease *lease = acquire->lease;
    char duration[24], at_least[24], units[12];
    const char *const values[] = {acquire->ns,
                                  acquire->key,
                                  duration,
                                  acquire->owner,
                                  acquire->lease_key,
                                  acquire->labels,
                                  acquire->is_shared ? units : at_least};
    const char *more = ""; /* an older schema takes none of these; a shared lease has no minimum hold */
    int64_t sent_us = lh_clock_us();
    enum lh_status status = LH_OK;
    PGresult *result;
    char *sql;

    snprintf(duration, sizeof(duration), "%lld", (long long)acquire->duration_us);
    snprintf(at_least, sizeof(at_least), "%lld",
             (long long)(acquire->at_least_us == LH_NO_MINIMUM ? 0 : acquire->at_least_us));
    snprintf(units, sizeof(units), "%d", (int)acquire->units);
    if (acquire->is_shared)
        more = ", mode => 'shared', units => $7::integer";
    else if (acquire->at_least_us != 0)
        more = ", at_least => $7::bigint * interval '1 microsecond'";
    sql = lh_format("select %s%s%s%s) l", lease_columns, acquire->is_shared ? share_columns : "", from, more);
    result = lh_query(call->conn, sql, values, more[0] != '\0' ? 7 : 6, error);
    free(sql);
    if (result == NULL)
        return error->status;
    if (PQntuples(result) == 0) {
        status =
            lh_error_set(error, LH_LEASE_HELD, "the lease %s/%s is held by another, or it rests, or others wait for it",
                         acquire->ns, acquire->key);
    } else {
        lh_lease_of_row(lease, result, 0);
        lease->deadline_us = sent_us + lease->duration_us;
        if (call->options != NULL)
            status =
                lh_call_ask(call, lease->heartbeats == 0 ? call->options->will_insert : call->options->will_heartbeat,
                            lease, NULL, error);
        lease->principal = lease->labels = NULL;
    }
    PQclear(result);
    return status;
}

static void append_json_text(struct lh_buffer *json, const char *text, size_t size)
{
    lh_buffer_append(json, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        char escape[8];
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof(escape), "\\%c", c);
        else if (c < 0x20)
            snprintf(escape, sizeof(escape), "\\u%04x", c);
        else
            snprintf(escape, sizeof(escape), "%c", c);
        lh_buffer_append(json, escape, strlen(escape));
    }
    lh_buffer_append(json, "\"", 1);
}

/* {"name":"value"}; NULL where one has no '='. A new string. */
static char *labels_to_json(const char *const *labels)
{
    struct lh_buffer json = {0};

    lh_buffer_append(&json, "{", 1);
    for (size_t i = 0; labels != NULL && labels[i] != NULL; i++) {
        const char *equals = strchr(labels[i], '=');
        if (equals == NULL) {
            lh_buffer_finish(&json);
            return NULL;
        }
        if (i > 0)
            lh_buffer_append(&json, ",", 1);
        append_json_text(&json, labels[i], (size_t)(equals - labels[i]));
        lh_buffer_append(&json, ":", 1);
        append_json_text(&json, equals + 1, strlen(equals + 1));
    }
    lh_buffer_append(&json, "}", 2);
    return (char *)json.data;
}

static void default_owner(char *owner, size_t size)
{
    char host[64] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(owner, size, "%s/%s/%d", host, program_invocation_short_name, (int)getpid());
}

static enum lh_status refuse_field(struct lh_error *error, const char *field, const char *bound)
{
    lh_error_set(error, LH_INVALID_ARGUMENT, "%s must be %s", field, bound);
    if (error != NULL) {
        snprintf(error->field, sizeof(error->field), "%s", field);
        snprintf(error->bound, sizeof(error->bound), "%s", bound);
    }
    return LH_INVALID_ARGUMENT;
}

enum lh_status lh_embed_acquire(PGconn *conn, const char *namespace_text, const char *key,
                                const struct lh_embed_acquire_options *options, struct lh_embed_lease *lease,
                                struct lh_error *error)
{
    static const struct lh_embed_acquire_options none;
    char lease_key[LH_UUID_TEXT_BYTES], owner[256];
    struct lh_uuid uuid = lh_uuid_random();
    struct acquire acquire = {.ns = namespace_text, .key = key, .lease = lease};
    struct lh_call call = {.conn = conn, .work = acquire_work, .arg = &acquire};
    enum lh_status status;

    if (options == NULL)
        options = &none;
    if (namespace_text == NULL || key == NULL || lease == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "namespace, key and lease are needed");
    if (options->wait_us < 0)
        return refuse_field(error, "wait", "0 or more");
    if (options->wait_us > 0 && conn != NULL && !lh_call_is_idle(conn))
        return refuse_field(error, "wait", "0 in a transaction, for what others do is not told inside of one");
    if (lh_bounds_mode(options->embed.mode, options->embed.units, options->embed.at_least_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    acquire.labels = labels_to_json(options->labels);
    if (acquire.labels == NULL)
        return refuse_field(error, "labels", "of the form name=value");
    lh_uuid_format(&uuid, lease_key);
    default_owner(owner, sizeof(owner));
    acquire.lease_key = options->lease_key != NULL ? options->lease_key : lease_key;
    acquire.owner = options->owner != NULL ? options->owner : owner;
    acquire.duration_us = options->duration_us != 0 ? options->duration_us : DURATION_US;
    acquire.at_least_us = options->embed.at_least_us;
    acquire.is_shared = options->embed.mode == LH_SHARED;
    acquire.units = options->embed.units > 0 ? options->embed.units : 1;
    call.options = &options->embed;

    status = lh_call_run(&call, error);
    if (status == LH_LEASE_HELD && options->wait_us > 0)
        status = lh_wait_for_turn(&call,
                                  &(struct lh_wait_scope){.ns = namespace_text,
                                                          .key = key,
                                                          .lease_key = acquire.lease_key,
                                                          .units = acquire.is_shared ? acquire.units : 0},
                                  options->wait_us, error);
    free(acquire.labels);
    return status;
}

/* --- heartbeat --- */

struct heartbeat {
    const struct lh_embed_lease *lease; /* as it was, however often this is done */
    struct lh_embed_lease renewed;
};

static enum lh_status heartbeat_work(struct lh_call *call, struct lh_error *error)
{
    static const char sql[] = "select (extract(epoch from leasehold.heartbeat(namespace => $1, key => $2,"
                              " lease_key => $3::uuid)) * 1000000)::bigint as deadline_at_us";
    struct heartbeat *heartbeat = call->arg;
    const struct lh_embed_lease *lease = heartbeat->lease;
    const char *const values[] = {lease->namespace_text, lease->key, lease->lease_key};
    int64_t sent_us = lh_clock_us();
    PGresult *result = lh_query(call->conn, sql, values, 3, error);
    struct lh_embed_lease renewed = *lease;
    enum lh_status status = LH_OK;

    if (result == NULL)
        return error->status;
    renewed.deadline_at_us = lh_query_number(result, 0, "deadline_at_us", 0);
    PQclear(result);
    if (renewed.deadline_at_us == 0)
        return lh_error_set(error, LH_LOST, "the lease %s/%s is lost", lease->namespace_text, lease->key);
    renewed.heartbeats++;
    renewed.heartbeat_at_us = renewed.deadline_at_us - renewed.duration_us;
    renewed.deadline_us = sent_us + renewed.duration_us;
    if (call->options != NULL)
        status = lh_call_ask(call, call->options->will_heartbeat, &renewed, NULL, error);
    if (status == LH_OK)
        heartbeat->renewed = renewed;
    return status;
}

enum lh_status lh_embed_heartbeat(PGconn *conn, struct lh_embed_lease *lease, const struct lh_embed_options *options,
                                  struct lh_error *error)
{
    struct heartbeat heartbeat = {.lease = lease};
    struct lh_call call = {.conn = conn, .options = options, .work = heartbeat_work, .arg = &heartbeat};
    enum lh_status status;

    if (lease == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "a lease is needed");
    status = lh_call_run(&call, error);
    if (status == LH_OK)
        *lease = heartbeat.renewed;
    return status;
}

/* --- downgrade --- */

struct downgrade {
    const struct lh_embed_lease *lease; /* as it was, however often this is done */
    struct lh_embed_lease shared;
    int32_t units;
};

static enum lh_status downgrade_work(struct lh_call *call, struct lh_error *error)
{
    struct downgrade *downgrade = call->arg;
    const struct lh_embed_lease *lease = downgrade->lease;
    char units[12];
    const char *const values[] = {lease->namespace_text, lease->key, lease->lease_key, units};
    struct lh_embed_lease shared;
    int64_t sent_us = lh_clock_us();
    enum lh_status status = LH_OK;
    PGresult *result;
    char *sql = lh_format("select %s%s from leasehold.downgrade(namespace => $1, key => $2, lease_key => $3::uuid,"
                          " units => $4::integer) l",
                          lease_columns, share_columns);

    snprintf(units, sizeof(units), "%d", (int)downgrade->units);
    result = lh_query(call->conn, sql, values, 4, error);
    free(sql);
    if (result == NULL)
        return error->status;
    lh_lease_of_row(&shared, result, 0);
    shared.deadline_us = sent_us + shared.duration_us;
    if (call->options != NULL)
        status = lh_call_ask(call, call->options->will_heartbeat, &shared, NULL, error);
    shared.principal = shared.labels = NULL;
    downgrade->shared = shared;
    PQclear(result);
    return status;
}

enum lh_status lh_embed_downgrade(PGconn *conn, struct lh_embed_lease *lease, int32_t units,
                                  const struct lh_embed_options *options, struct lh_error *error)
{
    struct downgrade downgrade = {.lease = lease, .units = units > 0 ? units : 1};
    struct lh_call call = {.conn = conn, .options = options, .work = downgrade_work, .arg = &downgrade};
    enum lh_status status;

    if (lease == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "a lease is needed");
    if (lh_bounds_units(units, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    status = lh_call_run(&call, error);
    if (status == LH_OK)
        *lease = downgrade.shared;
    if (status == LH_NOT_HELD) /* the function raises an error, after which nothing is committed */
        status = lh_error_set(error, LH_LOST, "the lease %s/%s is lost", lease->namespace_text, lease->key);
    return status;
}

/* --- release --- */

struct release {
    const struct lh_embed_lease *lease;
    const char *sql;
    const char *words;
    bool is_failure;
};

static enum lh_status release_work(struct lh_call *call, struct lh_error *error)
{
    struct release *release = call->arg;
    const struct lh_embed_lease *lease = release->lease;
    const char *const values[] = {lease->namespace_text, lease->key, lease->lease_key, release->words};
    PGresult *result = lh_query(call->conn, release->sql, values, 4, error);
    bool was_held;

    if (result == NULL)
        return error->status;
    was_held = PQntuples(result) > 0 && PQgetvalue(result, 0, 0)[0] == 't';
    PQclear(result);
    if (!was_held)
        return lh_error_set(error, LH_LOST, "the lease %s/%s is not held any more under this lease key",
                            lease->namespace_text, lease->key);
    if (call->options == NULL)
        return LH_OK;
    return lh_call_ask(call, release->is_failure ? call->options->will_release_fail : call->options->will_release_ok,
                       lease, release->words, error);
}

enum lh_status lh_embed_release_ok(PGconn *conn, const struct lh_embed_lease *lease, const char *result,
                                   const struct lh_embed_options *options, struct lh_error *error)
{
    struct release release = {
        .lease = lease,
        .sql = "select leasehold.release_ok(namespace => $1, key => $2, lease_key => $3::uuid, result => $4::jsonb)",
        .words = result,
    };
    struct lh_call call = {.conn = conn, .options = options, .work = release_work, .arg = &release};

    if (lease == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "a lease is needed");
    return lh_call_run(&call, error);
}

enum lh_status lh_embed_release_fail(PGconn *conn, const struct lh_embed_lease *lease, const char *failure,
                                     const struct lh_embed_options *options, struct lh_error *error)
{
    struct release release = {
        .lease = lease,
        .sql = "select leasehold.release_fail(namespace => $1, key => $2, lease_key => $3::uuid, error => $4)",
        .words = failure,
        .is_failure = true,
    };
    struct lh_call call = {.conn = conn, .options = options, .work = release_work, .arg = &release};

    if (lease == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "a lease is needed");
    if (failure == NULL)
        return refuse_field(error, "error", "1 to 8192 bytes");
    return lh_call_run(&call, error);
}
