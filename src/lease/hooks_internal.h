/* Namespaces with hooks, their turns on the hook lanes, and leases whose reap hooks are to run. */
#ifndef LH_LEASE_HOOKS_INTERNAL_H
#define LH_LEASE_HOOKS_INTERNAL_H

#include "lease/batch_internal.h"
#include "lease/queue_internal.h"
#include "lease/reaping.h"

/*
 * --- hooks/hook_queue.c: work for the hook lanes ---
 *
 * Answers tell which namespaces have hooks; that is believed for a second, and a scope of such
 * a namespace goes straight to the namespace's line here. A namespace whose hooks cost a connection waits, longer each
 * time.
 */

#define LH_HOOK_QUEUES_MAX 1024
#define LH_HOOK_BELIEF_US (1 * LH_US_PER_S)
#define LH_HOOK_SLOW_US (50 * LH_US_PER_MS)
#define LH_HOOK_LOSSES_MAX 3 /* connections lost in a row, then requests are refused */

/* A namespace with hooks. */
struct lh_hook_queue {
    struct lh_table_entry entry;
    struct lh_link used;    /* link in lh_hooks.used, the longest unused first */
    struct lh_link working; /* link in lh_hooks.working while it has scopes in line */
    struct lh_link reaping; /* link in lh_hooks.reaping while it has reaps in line */
    struct lh_link scopes;  /* struct lh_scope, by hook_ready */
    struct lh_link reaps;   /* struct lh_reap_job */
    int64_t known_until_us[LH_KIND_COUNT];
    int64_t timeout_us; /* limit of one call; 0: no limit */
    int64_t took_us;    /* average time of one call lately; 0: unknown */
    int64_t retry_us;   /* not before */
    int64_t delay_us;   /* the backoff after a lost connection; 0: none */
    unsigned running;   /* hook lanes that it occupies */
    unsigned jobs;      /* reaps, in line or in flight */
    /* Number of reaps that may share a transaction now; doubles after all went well; 0 counts as 1. */
    unsigned together;
    char ns[];
};

void lh_hook_queues_create(struct lh_coordinator *c);
void lh_hook_queues_destroy(struct lh_coordinator *c);
struct lh_hook_queue *lh_hook_queue_get(struct lh_coordinator *c, const char *ns); /* finds or makes it */
void lh_hook_queues_forget_some(struct lh_coordinator *c);
void lh_hook_queues_wake_at(struct lh_coordinator *c, int64_t at_us);

/* Returns true if items of this kind of the scope go to a hook lane. */
bool lh_hook_queue_wants(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind);
void lh_hook_queue_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind);
void lh_hook_queue_part(struct lh_coordinator *c, struct lh_scope *scope);
/* Learns from the answer HOOKED that the namespace has hooks for this kind. Returns false on a hook lane: treat the
   item as busy. */
bool lh_hook_queue_learn(struct lh_lane *lane, struct lh_scope *scope, enum lh_kind kind, int64_t timeout_us);
/* Returns true, and counts a refusal, if a request of this kind needs the line and the line is full. */
bool lh_hook_queue_refuse(struct lh_coordinator *c, const char *ns, enum lh_kind kind);

/* Returns in words why this kind of the scope waits for a hook lane; NULL: it does not. */
const char *lh_hook_queue_trouble(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind);

/* Gives the lane to the queue, until lh_hook_queue_leave. */
void lh_hook_queue_occupy(struct lh_lane *lane, struct lh_hook_queue *hook_queue);
void lh_hook_queue_leave(struct lh_lane *lane); /* does nothing to a lane without a queue */
/* Makes the namespace wait after one of its calls lost the connection, twice as long each time. */
void lh_hook_queue_back_off(struct lh_coordinator *c, struct lh_hook_queue *hook_queue);
void lh_hook_queue_on_call(struct lh_coordinator *c, struct lh_hook_queue *hook_queue, enum lh_kind kind,
                           int64_t took_us);
void lh_hook_queue_on_rejected(struct lh_coordinator *c, enum lh_kind kind, const char *message);
bool lh_hook_queue_is_slow_lane(const struct lh_coordinator *c, const struct lh_lane *lane);
bool lh_hook_queue_is_slow(const struct lh_coordinator *c, const struct lh_hook_queue *hook_queue);

/*
 * --- hooks/hook_scheduler.c ---
 *
 * One item, or one run of reaps, of a namespace a turn. A namespace whose hooks are slow never gets
 * the last hook lane.
 */

bool lh_hooks_could_dispatch(const struct lh_coordinator *c);
void lh_hooks_dispatch(struct lh_coordinator *c);
void lh_hooks_on_timer(struct lh_coordinator *c);

/* --- hooks/reaping.c: a job for each expired lease with reap hooks; hook lanes take them in runs --- */

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

/* --- hooks/reap.c: runs of expired leases that have reap hooks --- */

extern const struct lh_operation lh_reap_operation;

#endif
