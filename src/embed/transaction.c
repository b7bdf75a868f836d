#include "embed/embed_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define MEND_ATTEMPTS 6
#define FATE_LIMIT_US (5 * LH_US_PER_S)
#define BACKOFF_FIRST_US (10 * LH_US_PER_MS)
#define BACKOFF_MOST_US LH_US_PER_S

int64_t lh_backoff_of_attempt_us(unsigned attempt)
{
    return attempt >= 7 ? BACKOFF_MOST_US : BACKOFF_FIRST_US << attempt;
}

void lh_pause(int64_t pause_us)
{
    struct timespec pause = {.tv_sec = pause_us / LH_US_PER_S, .tv_nsec = pause_us % LH_US_PER_S * 1000};
    nanosleep(&pause, NULL);
}

enum lh_status lh_transaction_begin(struct lh_transaction *transaction, PGconn *conn, struct lh_error *error)
{
    PGresult *result = PQexec(conn, "begin isolation level read committed read write;"
                                    "select pg_catalog.pg_current_xact_id()::text");
    enum lh_status status = LH_OK;

    *transaction = (struct lh_transaction){.conn = conn};
    if (PQresultStatus(result) == PGRES_TUPLES_OK)
        snprintf(transaction->number, sizeof(transaction->number), "%s", PQgetvalue(result, 0, 0));
    else
        status = lh_query_error(conn, result, error);
    PQclear(result);
    if (status != LH_OK)
        lh_transaction_abandon(transaction);
    return status;
}

enum lh_fate lh_transaction_fate(const struct lh_transaction *transaction)
{
    const char *const values[] = {transaction->number};
    int64_t until_us = lh_clock_us() + FATE_LIMIT_US;
    enum lh_fate fate = LH_FATE_UNKNOWN;

    if (transaction->number[0] == '\0')
        return LH_FATE_ABORTED;
    for (unsigned attempt = 0; fate == LH_FATE_UNKNOWN; attempt++) {
        /* Refused for a number that this server has not given yet: another server, after a failover. */
        PGresult *result =
            lh_query(transaction->conn, "select pg_catalog.pg_xact_status($1::text::xid8)", values, 1, NULL);
        const char *word = result != NULL && !PQgetisnull(result, 0, 0) ? PQgetvalue(result, 0, 0) : "";
        bool is_going_on = strcmp(word, "in progress") == 0;
        if (strcmp(word, "committed") == 0)
            fate = LH_FATE_COMMITTED;
        else if (strcmp(word, "aborted") == 0)
            fate = LH_FATE_ABORTED;
        PQclear(result);
        if (!is_going_on || lh_clock_us() > until_us)
            break;
        lh_pause(lh_backoff_of_attempt_us(attempt));
    }
    return fate;
}

enum lh_status lh_transaction_commit(struct lh_transaction *transaction, struct lh_error *error)
{
    PGresult *result = PQexec(transaction->conn, "commit");
    bool is_done = PQresultStatus(result) == PGRES_COMMAND_OK && strcmp(PQcmdStatus(result), "COMMIT") == 0;
    struct lh_error words = {0};

    if (is_done) {
        PQclear(result);
        return LH_OK;
    }
    /* A transaction that had failed answers ROLLBACK. */
    if (PQresultStatus(result) == PGRES_COMMAND_OK)
        lh_error_set(&words, LH_INTERNAL, "the transaction was rolled back, for a statement in it had failed");
    else
        lh_query_error(transaction->conn, result, &words);
    PQclear(result);
    if (words.status == LH_DATABASE_UNAVAILABLE && lh_connection_mend(transaction->conn, NULL) == LH_OK &&
        lh_transaction_fate(transaction) == LH_FATE_COMMITTED)
        return LH_OK;
    if (error != NULL)
        *error = words;
    return words.status;
}

void lh_transaction_abandon(struct lh_transaction *transaction)
{
    PGTransactionStatusType state = PQtransactionStatus(transaction->conn);
    if (state == PQTRANS_INTRANS || state == PQTRANS_INERROR)
        lh_query_run(transaction->conn, "rollback", NULL);
}

enum lh_status lh_connection_mend(PGconn *conn, struct lh_error *error)
{
    PGTransactionStatusType state = PQtransactionStatus(conn);

    if (PQstatus(conn) == CONNECTION_OK && PQpipelineStatus(conn) == PQ_PIPELINE_OFF) {
        if (state == PQTRANS_INTRANS || state == PQTRANS_INERROR)
            lh_query_run(conn, "rollback", NULL);
        if (PQstatus(conn) == CONNECTION_OK && PQtransactionStatus(conn) == PQTRANS_IDLE)
            return LH_OK;
    }
    for (unsigned attempt = 0; attempt < MEND_ATTEMPTS; attempt++) {
        if (attempt > 0)
            lh_pause(lh_backoff_of_attempt_us(attempt + 2));
        PQreset(conn);
        if (PQstatus(conn) == CONNECTION_OK)
            return LH_OK;
    }
    return lh_query_error_of_conn(conn, error);
}

/* --- a verb --- */

#define MAX_ATTEMPTS 8

bool lh_call_is_idle(const PGconn *conn)
{
    PGTransactionStatusType state = PQtransactionStatus(conn);
    return PQstatus(conn) != CONNECTION_OK || state == PQTRANS_IDLE || state == PQTRANS_UNKNOWN;
}

/* May the same transaction succeed when it is done once more? */
static bool is_passing(const struct lh_error *error)
{
    return error->status == LH_DATABASE_UNAVAILABLE || strcmp(error->sqlstate, "40001") == 0 ||
           strcmp(error->sqlstate, "40P01") == 0;
}

static bool is_for_commit(enum lh_status status)
{
    return status == LH_OK || status == LH_LOST || status == LH_LEASE_HELD;
}

enum lh_status lh_call_ask(struct lh_call *call, lh_will_cb *will, const struct lh_embed_lease *lease,
                           const char *words, struct lh_error *error)
{
    PGTransactionStatusType state;
    int answer;

    if (will == NULL)
        return LH_OK;
    *error = (struct lh_error){0};
    answer = will(call->options->arg, call->conn, lease, words, error);
    state = PQtransactionStatus(call->conn);
    if (PQstatus(call->conn) != CONNECTION_OK)
        return lh_query_error_of_conn(call->conn, error);
    if (state == PQTRANS_IDLE || state == PQTRANS_ACTIVE)
        return lh_error_set(error, LH_INTERNAL, "the callback %s",
                            state == PQTRANS_IDLE ? "ended the transaction that it was called in"
                                                  : "left the connection in the middle of a command");
    if (answer == 0 && state == PQTRANS_INTRANS)
        return LH_OK;
    error->message[sizeof(error->message) - 1] = '\0';
    if (error->message[0] == '\0' && state == PQTRANS_INERROR)
        lh_query_words(error->message, sizeof(error->message), PQerrorMessage(call->conn));
    if (error->message[0] == '\0')
        strcpy(error->message, "the callback refused, and said nothing");
    return error->status = LH_HOOK_REJECTED;
}

/* Behind a savepoint of the caller's transaction. */
static enum lh_status join(struct lh_call *call, struct lh_error *error)
{
    enum lh_status status = lh_query_run(call->conn, "savepoint leasehold_verb", error);

    if (status != LH_OK)
        return status;
    status = call->work(call, error);
    if (is_for_commit(status)) {
        struct lh_error words;
        return lh_query_run(call->conn, "release savepoint leasehold_verb", &words) == LH_OK ? status
                                                                                             : (*error = words).status;
    }
    lh_query_run(call->conn, "rollback to savepoint leasehold_verb; release savepoint leasehold_verb", NULL);
    return status;
}

static enum lh_status attempt(struct lh_call *call, struct lh_error *error)
{
    struct lh_transaction transaction;
    struct lh_error words = {0};
    enum lh_status status = lh_transaction_begin(&transaction, call->conn, error);

    if (status != LH_OK)
        return status;
    status = call->work(call, error);
    if (!is_for_commit(status)) {
        lh_transaction_abandon(&transaction);
        return status;
    }
    if (lh_transaction_commit(&transaction, &words) != LH_OK) {
        *error = words;
        return words.status;
    }
    return status;
}

static enum lh_status repeat(struct lh_call *call, struct lh_error *error)
{
    uint32_t limit =
        call->options != NULL && call->options->max_attempts > 0 ? call->options->max_attempts : MAX_ATTEMPTS;
    enum lh_status status = LH_OK;

    for (uint32_t done = 0; done < limit; done++) {
        if (done > 0)
            lh_pause(lh_backoff_of_attempt_us(done - 1));
        *error = (struct lh_error){0};
        status = lh_connection_mend(call->conn, error);
        if (status == LH_OK)
            status = attempt(call, error);
        if (is_for_commit(status) || !is_passing(error))
            break;
    }
    if (!lh_call_is_idle(call->conn))
        lh_connection_mend(call->conn, NULL); /* a callback left something half done */
    return status;
}

enum lh_status lh_call_run(struct lh_call *call, struct lh_error *error)
{
    struct lh_error words = {0};
    enum lh_status status;

    if (call->conn == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "there is no connection");
    if (PQpipelineStatus(call->conn) != PQ_PIPELINE_OFF)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "the connection is in pipeline mode");
    if (lh_call_is_idle(call->conn))
        status = repeat(call, &words);
    else if (PQtransactionStatus(call->conn) == PQTRANS_INTRANS)
        status = join(call, &words);
    else
        status = lh_error_set(&words, LH_INVALID_ARGUMENT, "the connection is in %s",
                              PQtransactionStatus(call->conn) == PQTRANS_INERROR
                                  ? "a transaction that has failed: roll it back first"
                                  : "the middle of a command");
    if (error != NULL)
        *error = words;
    return status;
}
