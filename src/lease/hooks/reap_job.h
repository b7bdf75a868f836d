/* Jobs for reaping.c: one for each expired lease with reap hooks. Hook lanes take them in runs. */
#ifndef LH_LEASE_HOOKS_REAP_JOB_H
#define LH_LEASE_HOOKS_REAP_JOB_H

#include "lease/hooks/hook_queue.h"
#include "lease/reaping.h"

struct lh_reap_job {
    struct lh_table_entry entry;
    struct lh_link link; /* in its hook_queue's line, or in its lane's batch */
    struct lh_hook_queue *hook_queue;
    struct lh_reap_request *request; /* the request that waits for it, or NULL */
    struct lh_reap_item item;
    struct lh_arena arena;
    struct lh_held_lease lease;
    bool is_tentative; /* done, but the connection was lost before that was durable */
    bool is_alone;     /* goes in a transaction of its own: it failed before, or was not done together with others */
};

void lh_reap_job_line_up(struct lh_coordinator *c, struct lh_reap_job *job, bool is_first);
/* Ends and frees the job. `reaped` goes to its request and to the scope's waiters; NULL: there is no result to
   report. */
void lh_reap_job_end(struct lh_coordinator *c, struct lh_reap_job *job, const struct lh_reaped *reaped);
/* Looks for more expired leases if there are more and the line is short. */
void lh_reaping_look_again(struct lh_coordinator *c);

#endif
