/*
 * Work for the hook lanes. Answers tell which namespaces have hooks; that is believed for a second, and a scope of such
 * a namespace goes straight to the namespace's line here. A namespace whose hooks cost a connection waits, longer each
 * time.
 */
#ifndef LH_LEASE_HOOKS_HOOK_QUEUE_H
#define LH_LEASE_HOOKS_HOOK_QUEUE_H

#include "lease/lane.h"
#include "lease/queue/scope.h"

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

#endif
