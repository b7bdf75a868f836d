/*
 * A transaction on the caller's connection. Its end is known even when the connection broke during the commit: it has
 * its number from the beginning, and the server remembers its outcome.
 *
 *     if (lh_transaction_begin(&transaction, conn, &error) == LH_OK && work(conn))
 *         status = lh_transaction_commit(&transaction, &error);
 *     else
 *         lh_transaction_abandon(&transaction);
 */
#ifndef LH_EMBED_TRANSACTION_H
#define LH_EMBED_TRANSACTION_H

#include "embed/query.h"

struct lh_transaction {
    PGconn *conn;
    char number[24]; /* "": it never began */
};

enum lh_fate {
    LH_FATE_UNKNOWN,
    LH_FATE_COMMITTED,
    LH_FATE_ABORTED,
};

/* READ COMMITTED, whatever the session's default is. */
enum lh_status lh_transaction_begin(struct lh_transaction *transaction, PGconn *conn, struct lh_error *error);

/*
 * LH_OK: it is committed. After a lost answer it connects again and looks up the outcome. LH_DATABASE_UNAVAILABLE: it
 * was not committed, or the outcome is unknown.
 */
enum lh_status lh_transaction_commit(struct lh_transaction *transaction, struct lh_error *error);

/* Roll back; harmless on a connection that broke or has no transaction any more. */
void lh_transaction_abandon(struct lh_transaction *transaction);

/* Returns the fate of a transaction that this connection has lost. Waits up to 5 s for the old session to end. */
enum lh_fate lh_transaction_fate(const struct lh_transaction *transaction);

/* Makes the connection ready for a transaction: rolls back the rest of one. If it is broken: PQreset, several times
   in a few seconds. */
enum lh_status lh_connection_mend(PGconn *conn, struct lh_error *error);

/* 10 ms doubling to 1 s; `attempt` counts from 0. */
int64_t lh_backoff_of_attempt_us(unsigned attempt);
void lh_pause(int64_t pause_us);

#endif
