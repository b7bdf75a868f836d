/* Reaps whose hooks are to run, one for each lease, and the runs in which hook lanes take them. For reaping.c. */
#ifndef LH_LEASE_HOOKS_REAP_JOB_H
#define LH_LEASE_HOOKS_REAP_JOB_H

#include "lease/hooks/hook_queue.h"
#include "lease/reaping.h"

struct lh_reap_job {
    struct lh_table_entry entry;
    struct lh_link link; /* in its hook_queue's line, or of its lane */
    struct lh_hook_queue *hook_queue;
    struct lh_reap_request *request; /* that waits for it, or NULL */
    struct lh_reap_item item;
    struct lh_arena arena;
    struct lh_held_lease lease;
    bool is_tentative; /* it was done, and the connection was lost before that was durable */
    bool is_alone;     /* in a transaction of its own: it failed before, or was not done together with others */
};

void lh_reap_job_line_up(struct lh_coordinator *c, struct lh_reap_job *job, bool is_first);
/* What became of it, or NULL: nothing that is to be told. The job is gone then. */
void lh_reap_job_end(struct lh_coordinator *c, struct lh_reap_job *job, const struct lh_reaped *reaped);
void lh_reaping_look_again(struct lh_coordinator *c); /* if there is more and the line is short */

#endif
