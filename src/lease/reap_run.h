/* Reaps whose hooks are to run, one for each lease, and the runs in which hook lanes take them. For reaping.c. */
#ifndef LH_LEASE_REAP_RUN_H
#define LH_LEASE_REAP_RUN_H

#include "lease/hooked.h"
#include "lease/reaping.h"

struct lh_reap_job {
    struct lh_table_entry entry;
    struct lh_link link; /* in its space's line, or of its lane */
    struct lh_hook_space *space;
    struct lh_reap_request *request; /* who waits for it, or NULL */
    struct lh_reap_item item;
    struct lh_arena arena;
    struct lh_lease lease;
    bool is_tentative; /* it was done, and the connection was lost before that was durable */
    bool is_alone;     /* it goes by itself, for it was not done with others, or has failed before */
};

void lh_reap_job_line_up(struct lh_coordinator *c, struct lh_reap_job *job, bool is_first);
/* What became of it, or NULL: nothing that is to be told. The job is gone then. */
void lh_reap_job_end(struct lh_coordinator *c, struct lh_reap_job *job, const struct lh_reaped *reaped);
void lh_reaping_look_again(struct lh_coordinator *c); /* if there is more and the line is short */

#endif
