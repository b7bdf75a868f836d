/*
 * Heartbeat, downgrade and release over a caller's connection: each the SQL function of the same name, then the callback,
 * in one transaction.
 */
#include "embed/embed_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

int lh_embed_failed(PGconn *conn, const PGresult *result, struct lh_error *error)
{
    lh_query_error(conn, result, error);
    return 1;
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
        return lh_error_set(error, LH_LOST, "the lease %s is lost", LH_SCOPE_NAME(lease->namespace_text, lease->key));
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
                          lh_embed_columns, lh_embed_share_columns);

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
        status = lh_error_set(error, LH_LOST, "the lease %s is lost", LH_SCOPE_NAME(lease->namespace_text, lease->key));
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
        return lh_error_set(error, LH_LOST, "the lease %s is not held any more under this lease key",
                            LH_SCOPE_NAME(lease->namespace_text, lease->key));
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
    if (lh_bounds_text("error", LH_TEXT_REASON, failure != NULL ? failure : "", error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return lh_call_run(&call, error);
}
