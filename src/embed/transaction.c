#include "embed/transaction.h"

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
