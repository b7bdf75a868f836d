/*
 * The statement that a hook lane sends to reap one lease, or several that are joined:
 *
 *     lh_hook_reap_send(lane, items, n, is_last, on_answer);      a statement, and a transaction, of its own
 *
 * The answer for one is a row as reap_columns has it, or none; for several the tokens of the reaped ones.
 */
#ifndef LH_STORE_HOOK_REAP_H
#define LH_STORE_HOOK_REAP_H

#include "pg/conn.h"
#include "store/batch.h"

/* Sends it. `is_last`: its commit is durable, and makes those before it so. */
enum lh_status lh_hook_reap_send(struct lane *lane, struct lh_reap_item *const *items, size_t n, bool is_last,
                                 lh_pg_query_cb *on_answer);

#endif
