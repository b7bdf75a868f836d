/* Rows, verbs, waiting and reaping: functions that the files of src/embed share. */
#ifndef LH_EMBED_EMBED_INTERNAL_H
#define LH_EMBED_EMBED_INTERNAL_H

#include "embed/query.h"
#include "embed/transaction.h"
#include "leasehold.h"

/* --- query.c: rows of leases as struct lh_embed_lease --- */

/* The columns to select of a row of leasehold.lease called l. An older schema has only the first of them. */
extern const char lh_embed_columns[], lh_embed_share_columns[];

/* `principal` and `labels` point into the result. */
void lh_lease_of_row(struct lh_embed_lease *lease, const PGresult *result, int row);

/* --- transaction.c --- */

/*
 * A verb as one transaction, repeated where that can help, or joined to the one that the caller has open.
 *
 *     struct lh_call call = {.conn = conn, .options = options, .work = heartbeat_work, .arg = &heartbeat};
 *     return lh_call_run(&call, error);
 */
struct lh_call {
    PGconn *conn;
    const struct lh_embed_options *options; /* NULL: defaults */
    void *arg;

    /*
     * Does the work inside of the transaction. LH_OK, and the outcomes LH_LOST and LH_LEASE_HELD, are committed; after
     * any other status all is rolled back, and the reason is in `error`. Called again at each repetition.
     */
    enum lh_status (*work)(struct lh_call *call, struct lh_error *error);
};

enum lh_status lh_call_run(struct lh_call *call, struct lh_error *error);

/* Ask a callback, which may be NULL; from inside of `work`. */
enum lh_status lh_call_ask(struct lh_call *call, lh_will_cb *will, const struct lh_embed_lease *lease,
                           const char *words, struct lh_error *error);

/* Returns true if the connection is between two transactions, as far as libpq can tell. One that broke is. */
bool lh_call_is_idle(const PGconn *conn);

/* --- wait.c: waiting for a scope over a caller's connection, in the one queue of all waiters --- */

struct lh_wait_scope {
    const char *ns;
    const char *key;
    const char *lease_key;
    int32_t units;       /* 0: exclusive */
    const char *numbers; /* arguments of join_queue: "", or ", name => number" for each that is not 0 */
};

/*
 * Repeat `acquire` (a call that answers LH_LEASE_HELD) when its turn may have come, for at most `wait_us`. The place in
 * the queue is kept meanwhile and given up at the end. LH_WAIT_TIMEOUT: the time has passed.
 */
enum lh_status lh_wait_for_turn(struct lh_call *acquire, const struct lh_wait_scope *scope, int64_t wait_us,
                                struct lh_error *error);

/* --- reap_transaction.c --- */

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
