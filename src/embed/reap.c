/*
 * lh_reap_stale: sweep after sweep over what is expired, each in an order that never comes back to what it has seen, so
 * that a lease which fails or is busy is met once; until a sweep ends nothing.
 *
 * Without a callback there is nothing to do between two leases but for the hooks in SQL: what has none is ended in
 * sets.
 */
#include "embed/embed_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/uuid.h"

#define LIST_MAX "1000"
#define TRANSACTION_MAX 100
#define TRANSACTION_MOST 10000
#define TIDY_ROUNDS 10
#define ROUND_ATTEMPTS 5

struct sweep {
    struct lh_reaper *reaper;
    char *namespaces; /* an array, or NULL: all */
    const char *include_children;
    char coordinator[LH_UUID_TEXT_BYTES];
    char until_us[24]; /* "": it begins now */
    char after_at_us[24];
    char after_namespace[256];
    char after_key[1025];
    char after_token[24];
};

static PGresult *list(struct sweep *sweep, struct lh_error *error)
{
    static const char sql[] =
        "select * from leasehold_internal.reap_stale_list($1, $2, " LIST_MAX ", $3, $4, $5, $6, $7)";
    bool has_begun = sweep->after_key[0] != '\0';
    const char *const values[] = {sweep->namespaces,
                                  sweep->include_children,
                                  sweep->until_us[0] != '\0' ? sweep->until_us : NULL,
                                  has_begun ? sweep->after_at_us : NULL,
                                  has_begun ? sweep->after_namespace : NULL,
                                  has_begun ? sweep->after_key : NULL,
                                  has_begun ? sweep->after_token : NULL};
    PGresult *result = lh_query(sweep->reaper->conn, sql, values, 7, error);
    int last = PQntuples(result) - 1;

    if (last < 0)
        return result;
    snprintf(sweep->until_us, sizeof(sweep->until_us), "%s", lh_query_text(result, last, "until_us"));
    snprintf(sweep->after_at_us, sizeof(sweep->after_at_us), "%lld",
             (long long)lh_query_number(result, last, "check_at_us", 0));
    snprintf(sweep->after_namespace, sizeof(sweep->after_namespace), "%s", lh_query_text(result, last, "namespace"));
    snprintf(sweep->after_key, sizeof(sweep->after_key), "%s", lh_query_text(result, last, "key"));
    snprintf(sweep->after_token, sizeof(sweep->after_token), "%s", lh_query_text(result, last, "token"));
    return result;
}

/* Everything once. A sweep by name passes over what has failed since the first one began. */
static enum lh_status run_sweep(struct sweep *sweep, struct lh_error *error)
{
    enum lh_status status = LH_OK;
    bool has_more = true;

    if (sweep->namespaces == NULL)
        sweep->until_us[0] = '\0';
    sweep->after_key[0] = '\0';
    while (status == LH_OK && has_more && lh_reaper_wants_more(sweep->reaper)) {
        PGresult *rows = list(sweep, error);
        if (rows == NULL)
            return error->status;
        has_more = PQntuples(rows) >= atoi(LIST_MAX);
        status = lh_reap_rows(sweep->reaper, rows, error);
        PQclear(rows);
    }
    return status;
}

/* --- sets of leases without hooks --- */

static void tell_round(struct lh_reaper *reaper, const PGresult *rows)
{
    for (int row = 0; row < PQntuples(rows); row++) {
        const char *kind = lh_query_text(rows, row, "kind");
        struct lh_reaped reaped = {.row = row, .is_reaped = strcmp(kind, "reaped") == 0};
        const char *words = lh_query_text(rows, row, "error");

        if (!reaped.is_reaped && strcmp(kind, "failed") != 0)
            continue;
        reaped.error = (char *)(uintptr_t)words; /* only read */
        reaped.reap_failures = (int32_t)lh_query_number(rows, row, "reap_failures", 0);
        reaped.next_try_at_us = lh_query_number(rows, row, "next_try_at_us", 0);
        lh_reaper_tell(reaper, rows, &reaped);
    }
}

/* One transaction of what a coordinator does; the hooked ones come back unended. */
static PGresult *end_round(struct sweep *sweep, struct lh_error *error)
{
    static const char sql[] =
        "select b.kind = 'hooked' as is_stale, b.kind, b.namespace, b.key, b.lease_key, b.token, b.owner, b.principal, "
        "b.labels,"
        " b.duration_us, b.grace_us, b.heartbeats, b.reap_failures, b.error,"
        " case when b.kind = 'hooked' then b.error end as limit_us,"
        " (extract(epoch from b.acquired_at) * 1000000)::bigint as acquired_at_us,"
        " (extract(epoch from b.heartbeat_at) * 1000000)::bigint as heartbeat_at_us,"
        " (extract(epoch from b.deadline) * 1000000)::bigint as deadline_at_us,"
        " (extract(epoch from b.next_try_at) * 1000000)::bigint as next_try_at_us"
        "  from leasehold_internal.reap_batch($1::uuid, null, $2::text[], $3::boolean, $4::integer, false) b"
        " where b.kind <> 'wake'";
    struct lh_reaper *reaper = sweep->reaper;
    int64_t left = reaper->options.max - reaper->counts->reaped - reaper->counts->failed;
    int64_t max = reaper->options.transaction_max;
    char max_text[24];
    const char *const values[] = {sweep->coordinator, sweep->namespaces, sweep->include_children, max_text};
    PGresult *rows = NULL;

    if (reaper->options.max > 0 && left < max)
        max = left;
    snprintf(max_text, sizeof(max_text), "%lld", (long long)max);
    for (unsigned attempt = 0; rows == NULL && attempt < ROUND_ATTEMPTS; attempt++) {
        struct lh_transaction transaction;
        if (lh_connection_mend(reaper->conn, error) != LH_OK)
            return NULL;
        if (lh_transaction_begin(&transaction, reaper->conn, error) == LH_OK)
            rows = lh_query(reaper->conn, sql, values, 4, error);
        if (rows != NULL && lh_transaction_commit(&transaction, error) == LH_OK)
            break;
        PQclear(rows);
        rows = NULL;
        lh_transaction_abandon(&transaction);
        if (error->status != LH_DATABASE_UNAVAILABLE)
            break;
    }
    return rows;
}

static enum lh_status end_sets(struct sweep *sweep, struct lh_error *error)
{
    struct lh_reaper *reaper = sweep->reaper;
    enum lh_status status = LH_OK;
    bool has_more = true;

    while (status == LH_OK && has_more && lh_reaper_wants_more(reaper)) {
        int64_t before = reaper->counts->reaped;
        PGresult *rows = end_round(sweep, error);
        if (rows == NULL)
            return error->status;
        tell_round(reaper, rows);
        if (sweep->namespaces == NULL)
            status = lh_reap_rows(reaper, rows, error); /* by name, a sweep is to follow */
        has_more = PQntuples(rows) > 0 && strcmp(lh_query_text(rows, PQntuples(rows) - 1, "kind"), "more") == 0 &&
                   reaper->counts->reaped > before;
        PQclear(rows);
    }
    return status;
}

/* --- the whole --- */

static enum lh_status run(struct sweep *sweep, struct lh_error *error)
{
    struct lh_reaper *reaper = sweep->reaper;
    enum lh_status status = LH_OK;
    bool is_full = true;
    int64_t before;

    if (reaper->options.on_lease == NULL)
        status = end_sets(sweep, error);
    do {
        before = reaper->counts->reaped;
        if (status == LH_OK && (reaper->options.on_lease != NULL || sweep->namespaces != NULL))
            status = run_sweep(sweep, error);
    } while (status == LH_OK && reaper->counts->reaped > before && lh_reaper_wants_more(reaper));
    for (int i = 0; status == LH_OK && is_full && sweep->namespaces == NULL && i < TIDY_ROUNDS; i++) {
        PGresult *result = lh_query(reaper->conn, "select leasehold_internal.reap_stale_tidy(1000)", NULL, 0, error);
        if (result == NULL)
            return error->status;
        is_full = atoi(PQgetvalue(result, 0, 0)) >= 1000;
        PQclear(result);
    }
    return status;
}

static enum lh_status check(PGconn *conn, const struct lh_reap_options *options, struct lh_error *error)
{
    if (conn == NULL || options == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "a connection and options are needed");
    if (PQpipelineStatus(conn) != PQ_PIPELINE_OFF || !lh_call_is_idle(conn))
        return lh_error_set(error, LH_INVALID_ARGUMENT, "reaping makes transactions of its own: none may be open");
    if (options->namespace_count > 0 && options->namespaces == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "there are no namespaces where some should be");
    for (size_t i = 0; i < options->namespace_count; i++)
        if (options->namespaces[i] == NULL)
            return lh_error_set(error, LH_INVALID_ARGUMENT, "a namespace is NULL");
    if (options->max < 0 || options->transaction_us < 0 || options->limit_us < 0 || options->statement_timeout_us < 0)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "limits are 0 or more");
    if (options->transaction_max > TRANSACTION_MOST)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "a transaction has at most %d leases", TRANSACTION_MOST);
    return LH_OK;
}

enum lh_status lh_reap_stale_with(PGconn *conn, const struct lh_reap_options *options, struct lh_reap_counts *counts,
                                  struct lh_error *error)
{
    struct lh_reap_counts own_counts;
    struct lh_uuid coordinator = lh_uuid_random();
    struct lh_reaper reaper = {.conn = conn, .counts = counts != NULL ? counts : &own_counts};
    struct sweep sweep = {.reaper = &reaper};
    struct lh_error words = {0};
    enum lh_status status;

    *reaper.counts = (struct lh_reap_counts){0};
    status = check(conn, options, error);
    if (status != LH_OK)
        return status;
    reaper.options = *options;
    if (reaper.options.transaction_max == 0)
        reaper.options.transaction_max = TRANSACTION_MAX;
    if (reaper.options.transaction_us == 0)
        reaper.options.transaction_us = LH_US_PER_S;
    reaper.size = reaper.options.transaction_max;
    reaper.pending = lh_alloc_zero(reaper.options.transaction_max, sizeof(*reaper.pending));
    if (options->namespace_count > 0)
        sweep.namespaces = lh_query_array(options->namespaces, options->namespace_count);
    sweep.include_children = options->include_children ? "true" : "false";
    lh_uuid_format(&coordinator, sweep.coordinator);
    if (options->skip_failed_since_us > 0)
        snprintf(sweep.until_us, sizeof(sweep.until_us), "%lld", (long long)options->skip_failed_since_us);

    status = lh_connection_mend(conn, &words);
    if (status == LH_OK)
        status = run(&sweep, &words);
    if (error != NULL)
        *error = words;
    free(sweep.namespaces);
    free(reaper.pending);
    return status;
}

enum lh_status lh_reap_stale(PGconn *conn, const char *const *namespaces, size_t n, bool include_children,
                             lh_reap_cb *callback, void *arg)
{
    struct lh_reap_options options = {
        .namespaces = namespaces,
        .namespace_count = n,
        .include_children = include_children,
        .on_lease = callback,
        .arg = arg,
    };
    struct lh_reap_counts counts;
    enum lh_status status = lh_reap_stale_with(conn, &options, &counts, NULL);

    return status == LH_OK && counts.failed > 0 ? LH_HOOK_REJECTED : status;
}
