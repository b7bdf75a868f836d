#include "embed/embed_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

#define LOSSES_MAX 5 /* of the connection in a row, with no lease to blame */
/* The session may be idle for so long beyond the callback's limit; then the server ends it and others may go on. */
#define IDLE_EXTRA_US (10 * LH_US_PER_S)

/* How the visit of a lease ended. */
enum visit {
    VISIT_DONE,  /* its outcome is pending, or it was passed over */
    VISIT_LOST,  /* the transaction is gone, in the middle of this lease: `words` say how */
    VISIT_NEVER, /* there is no transaction, and that is not this lease's doing */
};

bool lh_reaper_wants_more(const struct lh_reaper *reaper)
{
    int64_t done = reaper->counts->reaped + reaper->counts->failed + (int64_t)reaper->pending_count;
    return reaper->options.max == 0 || done < reaper->options.max;
}

void lh_reaper_tell(struct lh_reaper *reaper, const PGresult *list, const struct lh_reaped *reaped)
{
    struct lh_embed_lease lease;
    struct lh_reap_outcome outcome = {
        .lease = &lease,
        .is_reaped = reaped->is_reaped,
        .error = reaped->is_reaped       ? NULL
                 : reaped->error != NULL ? reaped->error
                                         : "",
        .reap_failures = reaped->reap_failures,
        .next_try_at_us = reaped->next_try_at_us,
    };

    if (reaped->is_reaped)
        reaper->counts->reaped++;
    else
        reaper->counts->failed++;
    if (reaper->options.on_outcome == NULL)
        return;
    lh_lease_of_row(&lease, list, reaped->row);
    reaper->options.on_outcome(reaper->options.arg, &outcome);
}

/* --- one lease --- */

static int to_ms(int64_t us)
{
    int64_t ms = (us + LH_US_PER_MS - 1) / LH_US_PER_MS;
    return us <= 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms;
}

static enum lh_status begin(struct lh_reaper *reaper, struct lh_error *error)
{
    char sql[80];
    enum lh_status status = lh_transaction_begin(&reaper->transaction, reaper->conn, error);

    if (status != LH_OK)
        return status;
    reaper->opened_us = lh_clock_us();
    reaper->is_open = true;
    if (reaper->options.statement_timeout_us == 0)
        return LH_OK;
    snprintf(sql, sizeof(sql), "set local statement_timeout = %d", to_ms(reaper->options.statement_timeout_us));
    return lh_query_run(reaper->conn, sql, error);
}

static enum lh_status open_savepoint(struct lh_reaper *reaper, int64_t limit_us, struct lh_error *error)
{
    char sql[200];
    int limit_ms = to_ms(limit_us);
    int idle_ms = limit_us > 0 ? to_ms(limit_us + IDLE_EXTRA_US) : 0;

    snprintf(sql, sizeof(sql),
             "savepoint leasehold_reap; set local statement_timeout = %d;"
             "set local idle_in_transaction_session_timeout = %d",
             limit_ms, idle_ms);
    return lh_query_run(reaper->conn, sql, error);
}

static void add_pending(struct lh_reaper *reaper, struct lh_reaped reaped)
{
    reaper->pending[reaper->pending_count++] = reaped;
}

/* Ask the database to count and record it. False: the statement failed. */
static bool record_failure(struct lh_reaper *reaper, const PGresult *list, int row, const char *words, bool *is_there,
                           struct lh_reaped *reaped, struct lh_error *error)
{
    static const char sql[] = "select f.reap_failures,"
                              " (extract(epoch from f.next_try_at) * 1000000)::bigint as next_try_at_us"
                              "  from leasehold_internal.reap_failed(null, $1, $2, $3, $4) f";
    const char *const values[] = {lh_query_text(list, row, "namespace"), lh_query_text(list, row, "key"),
                                  lh_query_text(list, row, "token"), words};
    PGresult *result = lh_query(reaper->conn, sql, values, 4, error);
    bool is_done = result != NULL;

    *is_there = is_done && PQntuples(result) > 0;
    if (*is_there)
        *reaped = (struct lh_reaped){
            .row = row,
            .error = lh_strdup(words),
            .reap_failures = (int32_t)lh_query_number(result, 0, "reap_failures", 0),
            .next_try_at_us = lh_query_number(result, 0, "next_try_at_us", 0),
        };
    PQclear(result);
    return is_done;
}

/* The lease as it was, and its failure written down. */
static enum visit take_back(struct lh_reaper *reaper, const PGresult *list, int row, const char *words)
{
    struct lh_reaped reaped;
    bool is_there;

    if (lh_query_run(reaper->conn, "rollback to savepoint leasehold_reap; release savepoint leasehold_reap", NULL) !=
            LH_OK ||
        !record_failure(reaper, list, row, words, &is_there, &reaped, NULL))
        return VISIT_LOST;
    if (is_there)
        add_pending(reaper, reaped);
    return VISIT_DONE;
}

static void limit_words(char *words, size_t size, const char *what, int64_t limit_us)
{
    snprintf(words, size, "the %s ran over its limit of %s", what, LH_DURATION_TEXT(limit_us));
}

/* Run the callback. LH_OK: what it did may be kept. LH_DATABASE_UNAVAILABLE: the transaction is not ours any more. */
static enum lh_status ask_callback(struct lh_reaper *reaper, const PGresult *list, int row, int64_t limit_us,
                                   struct lh_error *error)
{
    int64_t begun_us = lh_clock_us();
    struct lh_embed_lease lease;
    PGTransactionStatusType state;
    bool is_late;
    int answer;

    lh_lease_of_row(&lease, list, row);
    lease.limit_us = limit_us;
    answer = reaper->options.on_lease(reaper->options.arg, reaper->conn, &lease, error);
    state = PQtransactionStatus(reaper->conn);
    is_late = limit_us > 0 && lh_clock_us() - begun_us >= limit_us;
    error->message[sizeof(error->message) - 1] = '\0';
    if (PQstatus(reaper->conn) != CONNECTION_OK)
        return lh_error_set(error, LH_DATABASE_UNAVAILABLE, "the connection was lost while the callback ran");
    if (state == PQTRANS_IDLE)
        return lh_error_set(error, LH_DATABASE_UNAVAILABLE, "the callback ended the transaction that it was called in");
    if (state == PQTRANS_ACTIVE || PQpipelineStatus(reaper->conn) != PQ_PIPELINE_OFF)
        return lh_error_set(error, LH_DATABASE_UNAVAILABLE,
                            "the callback left the connection in the middle of a command");
    if (is_late && (answer == 0 || state == PQTRANS_INERROR)) {
        limit_words(error->message, sizeof(error->message), "callback", limit_us);
        return LH_HOOK_REJECTED;
    }
    if (answer == 0 && state == PQTRANS_INTRANS)
        return LH_OK;
    if (error->message[0] == '\0' && state == PQTRANS_INERROR)
        lh_query_words(error->message, sizeof(error->message), PQerrorMessage(reaper->conn));
    if (error->message[0] == '\0')
        snprintf(error->message, sizeof(error->message), "the callback failed (%d), and said nothing", answer);
    return LH_HOOK_REJECTED;
}

/* Constraints that are deferred are tried now, so that a commit does not fail for one lease's sake; then it is kept. */
static enum lh_status keep(struct lh_reaper *reaper, struct lh_error *error)
{
    if (reaper->options.on_lease == NULL)
        return lh_query_run(reaper->conn, "release savepoint leasehold_reap", error);
    return lh_query_run(reaper->conn,
                        "savepoint leasehold_check; set constraints all immediate;"
                        "rollback to savepoint leasehold_check; release savepoint leasehold_reap",
                        error);
}

static enum visit finish(struct lh_reaper *reaper, const PGresult *list, int row, int64_t limit_us,
                         struct lh_error *error)
{
    enum lh_status status = LH_OK;

    if (reaper->options.on_lease != NULL)
        status = ask_callback(reaper, list, row, limit_us, error);
    if (status == LH_DATABASE_UNAVAILABLE)
        return VISIT_LOST;
    if (status == LH_OK)
        status = keep(reaper, error);
    if (status != LH_OK)
        return take_back(reaper, list, row, error->message);
    add_pending(reaper, (struct lh_reaped){.row = row, .is_reaped = true});
    return VISIT_DONE;
}

/* A hook in SQL refused, and that is recorded already. */
static enum visit keep_failure(struct lh_reaper *reaper, const PGresult *answer, int row, struct lh_error *error)
{
    const char *words = lh_query_text(answer, 0, "error");

    if (lh_query_run(reaper->conn, "release savepoint leasehold_reap", error) != LH_OK)
        return VISIT_LOST;
    add_pending(reaper, (struct lh_reaped){
                            .row = row,
                            .error = lh_strdup(words != NULL ? words : ""),
                            .reap_failures = (int32_t)lh_query_number(answer, 0, "reap_failures", 0),
                            .next_try_at_us = lh_query_number(answer, 0, "next_try_at_us", 0),
                        });
    return VISIT_DONE;
}

static enum visit visit(struct lh_reaper *reaper, const PGresult *list, int row, struct lh_error *error)
{
    static const char sql[] = "select h.kind, h.error, h.reap_failures,"
                              " (extract(epoch from h.next_try_at) * 1000000)::bigint as next_try_at_us"
                              "  from leasehold_internal.reap_hooked(null, null, $1, $2, $3) h";
    const char *const values[] = {lh_query_text(list, row, "namespace"), lh_query_text(list, row, "key"),
                                  lh_query_text(list, row, "token")};
    int64_t policy_us = lh_query_number(list, row, "limit_us", 0);
    int64_t limit_us = reaper->options.limit_us > 0 ? reaper->options.limit_us : policy_us;
    enum visit end = VISIT_DONE;
    PGresult *answer;

    if (!reaper->is_open && begin(reaper, error) != LH_OK)
        return VISIT_NEVER;
    if (open_savepoint(reaper, limit_us, error) != LH_OK)
        return VISIT_NEVER;
    answer = lh_query(reaper->conn, sql, values, 3, error);
    if (answer == NULL && error->status == LH_CANCELED)
        limit_words(error->message, sizeof(error->message), "hook", limit_us);
    if (answer == NULL && PQstatus(reaper->conn) != CONNECTION_OK) {
        lh_error_set(error, LH_DATABASE_UNAVAILABLE, "the connection was lost while the hook ran");
        end = VISIT_LOST;
    } else if (answer == NULL)
        end = take_back(reaper, list, row, error->message);
    else if (PQntuples(answer) == 0)
        end = lh_query_run(reaper->conn, "release savepoint leasehold_reap", error) == LH_OK ? VISIT_DONE : VISIT_NEVER;
    else if (strcmp(lh_query_text(answer, 0, "kind"), "reaped") == 0)
        end = finish(reaper, list, row, limit_us, error);
    else
        end = keep_failure(reaper, answer, row, error);
    PQclear(answer);
    return end;
}

/* --- the transaction --- */

static void drop_pending(struct lh_reaper *reaper)
{
    for (size_t i = 0; i < reaper->pending_count; i++)
        free(reaper->pending[i].error);
    reaper->pending_count = 0;
    reaper->is_open = false;
}

static void tell_pending(struct lh_reaper *reaper, const PGresult *list)
{
    size_t count = reaper->pending_count;

    reaper->pending_count = 0; /* in the counts now */
    for (size_t i = 0; i < count; i++) {
        lh_reaper_tell(reaper, list, &reaper->pending[i]);
        free(reaper->pending[i].error);
    }
    reaper->is_open = false;
}

/* Where a list of leases stands. */
struct progress {
    const PGresult *list;
    int row;   /* to visit next */
    int first; /* of the open transaction */
    char *is_over;
    int losses;
};

/* Record the failure that `error` tells, in a transaction of its own. */
static enum lh_status blame(struct lh_reaper *reaper, struct progress *progress, int row, struct lh_error *error)
{
    char words[sizeof(error->message)];

    snprintf(words, sizeof(words), "%s", error->message);
    progress->is_over[row] = 1;
    for (int attempt = 0; attempt < LOSSES_MAX; attempt++) {
        struct lh_reaped reaped;
        bool is_there;

        if (lh_connection_mend(reaper->conn, error) != LH_OK)
            return error->status;
        if (!record_failure(reaper, progress->list, row, words, &is_there, &reaped, error)) {
            if (error->status != LH_DATABASE_UNAVAILABLE)
                return error->status;
            continue;
        }
        if (is_there) {
            lh_reaper_tell(reaper, progress->list, &reaped);
            free(reaped.error);
        }
        return LH_OK;
    }
    return lh_error_set(error, LH_DATABASE_UNAVAILABLE, "the connection breaks again and again");
}

/* The transaction is gone. Go on behind it where it was committed all the same, else do it again, without `blamed`. */
static enum lh_status recover(struct lh_reaper *reaper, struct progress *progress, int blamed, struct lh_error *error)
{
    char words[sizeof(error->message)];
    bool is_done;

    snprintf(words, sizeof(words), "%s", error->message);
    if (blamed < 0 && ++progress->losses > LOSSES_MAX)
        return error->status;
    if (lh_connection_mend(reaper->conn, error) != LH_OK)
        return error->status;
    is_done = reaper->is_open && lh_transaction_fate(&reaper->transaction) == LH_FATE_COMMITTED;
    if (is_done && blamed >= 0 && reaper->pending_count < reaper->options.transaction_max)
        add_pending(reaper, (struct lh_reaped){.row = blamed, .is_reaped = true});
    if (is_done) {
        tell_pending(reaper, progress->list);
        progress->row = progress->first = blamed >= 0 ? blamed + 1 : progress->row;
        return LH_OK;
    }
    drop_pending(reaper);
    progress->row = progress->first;
    reaper->size = reaper->size / 4 + 1; /* what was done in vain is to be less the next time */
    if (blamed < 0)
        return LH_OK;
    snprintf(error->message, sizeof(error->message), "%s", words);
    return blame(reaper, progress, blamed, error);
}

/* Without a callback reap_batch() writes it down, as for a daemon. */
static enum lh_status write_audit(struct lh_reaper *reaper, const PGresult *list, struct lh_error *error)
{
    const char **namespaces = lh_alloc(reaper->pending_count * sizeof(*namespaces) + 1);
    size_t count = 0;
    enum lh_status status = LH_OK;

    for (size_t i = 0; i < reaper->pending_count; i++)
        if (reaper->pending[i].is_reaped)
            namespaces[count++] = lh_query_text(list, reaper->pending[i].row, "namespace");
    if (count > 0) {
        char *array = lh_query_array(namespaces, count);
        PGresult *result = lh_query(reaper->conn, "select leasehold_internal.audit_reaped($1::text[])",
                                    (const char *const[]){array}, 1, error);
        status = result != NULL ? LH_OK : error->status;
        PQclear(result);
        free(array);
    }
    free(namespaces);
    return status;
}

static enum lh_status end(struct lh_reaper *reaper, const PGresult *list, struct lh_error *error)
{
    bool is_by_name = reaper->options.namespace_count > 0 && reaper->options.on_lease != NULL;
    enum lh_status status = is_by_name ? write_audit(reaper, list, error) : LH_OK;

    if (status == LH_OK)
        return lh_transaction_commit(&reaper->transaction, error);
    lh_transaction_abandon(&reaper->transaction);
    return status;
}

/* A commit that fails for another reason than the connection is some lease's fault: find out whose, one by one. */
static enum lh_status commit(struct lh_reaper *reaper, struct progress *progress, struct lh_error *error)
{
    int blamed = reaper->pending_count == 1 ? reaper->pending[0].row : -1;

    if (!reaper->is_open)
        return LH_OK;
    if (end(reaper, progress->list, error) == LH_OK) {
        tell_pending(reaper, progress->list);
        progress->first = progress->row;
        progress->losses = 0;
        reaper->size =
            reaper->size < reaper->options.transaction_max / 2 ? reaper->size * 2 : reaper->options.transaction_max;
        return LH_OK;
    }
    if (error->status == LH_DATABASE_UNAVAILABLE)
        return recover(reaper, progress, -1, error);
    drop_pending(reaper);
    progress->row = progress->first;
    reaper->size = 1;
    if (blamed < 0)
        return ++progress->losses > LOSSES_MAX ? error->status : LH_OK;
    return blame(reaper, progress, blamed, error);
}

static bool is_full(const struct lh_reaper *reaper)
{
    return reaper->pending_count >= reaper->size ||
           (reaper->is_open && lh_clock_us() - reaper->opened_us >= reaper->options.transaction_us);
}

static bool is_true(const PGresult *list, int row, const char *column)
{
    const char *text = lh_query_text(list, row, column);
    return text != NULL && text[0] == 't';
}

enum lh_status lh_reap_rows(struct lh_reaper *reaper, const PGresult *list, struct lh_error *error)
{
    int count = PQntuples(list);
    struct progress progress = {.list = list, .is_over = lh_alloc_zero((size_t)count + 1, 1)};
    enum lh_status status = LH_OK;

    while (status == LH_OK && (progress.row < count || reaper->is_open)) {
        enum visit end;

        if (progress.row == count || is_full(reaper) || !lh_reaper_wants_more(reaper)) {
            status = commit(reaper, &progress, error);
            if (!lh_reaper_wants_more(reaper))
                break;
            continue;
        }
        if (progress.is_over[progress.row] || !is_true(list, progress.row, "is_stale") ||
            (reaper->options.keep_backoff && is_true(list, progress.row, "is_put_off"))) {
            progress.row++;
            continue;
        }
        *error = (struct lh_error){0};
        end = visit(reaper, list, progress.row, error);
        if (end == VISIT_DONE)
            progress.row++;
        else
            status = recover(reaper, &progress, end == VISIT_LOST ? progress.row : -1, error);
    }
    if (reaper->is_open)
        lh_transaction_abandon(&reaper->transaction);
    drop_pending(reaper);
    free(progress.is_over);
    return status;
}
