/*
 * A verb as one transaction, repeated where that can help, or joined to the one that the caller has open.
 *
 *     struct lh_call call = {.conn = conn, .options = options, .work = heartbeat_work, .arg = &heartbeat};
 *     return lh_call_run(&call, error);
 */
#ifndef LH_EMBED_CALL_H
#define LH_EMBED_CALL_H

#include "embed/query.h"
#include "leasehold.h"

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

#endif
