/* A run of reaps on a hook lane. */
#ifndef LH_STORE_HOOK_RUN_H
#define LH_STORE_HOOK_RUN_H

#include "store/batch.h"

void lh_hook_run_create(struct lane *lane);
void lh_hook_run_destroy(struct lane *lane);
enum lh_status lh_hook_run_start(struct lane *lane, int64_t clock_us, struct lh_reap_item **items, size_t n,
                                 lh_store_cb *on_done, void *arg);

#endif
