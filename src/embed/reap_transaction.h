/*
 * Ending expired leases one by one, several in a transaction and each in a savepoint of its own.
 *
 * The happy path of a lease: SAVEPOINT; leasehold_internal.reap_hooked (locks the row or passes it over, runs the hooks in
 * SQL, ends the lease); the callback; deferred constraints are checked; RELEASE. A failure goes back to the savepoint
 * and is recorded in the same transaction. Outcomes are reported after the commit.
 *
 * The failure path: the connection breaks, or the callback ends the transaction. Then the connection is restored, the
 * outcome of the transaction is looked up, the failure is recorded for its lease, and the other leases of the
 * transaction are done again.
 */
#ifndef LH_EMBED_REAP_TRANSACTION_H
#define LH_EMBED_REAP_TRANSACTION_H

#include "embed/lease_row.h"
#include "embed/transaction.h"

struct lh_reaped {
    int row;
    bool is_reaped;
    char *error;
    int32_t reap_failures;
    int64_t next_try_at_us;
};

struct lh_reaper {
    PGconn *conn;
    struct lh_reap_options options; /* with the defaults filled in */
    struct lh_reap_counts *counts;

    struct lh_transaction transaction;
    bool is_open;
    uint32_t size; /* leases in a transaction now: smaller after a loss, larger again after commits */
    int64_t opened_us;
    struct lh_reaped *pending; /* in the open transaction; room for transaction_max */
    size_t pending_count;
};

/* May there be more, by options.max? */
bool lh_reaper_wants_more(const struct lh_reaper *reaper);

/* Every row of `list` with is_stale; commits at the end. LH_OK also where leases failed: see the counts. */
enum lh_status lh_reap_rows(struct lh_reaper *reaper, const PGresult *list, struct lh_error *error);

/* Tell an outcome that was committed elsewhere. */
void lh_reaper_tell(struct lh_reaper *reaper, const PGresult *list, const struct lh_reaped *reaped);

#endif
