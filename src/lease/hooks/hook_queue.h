/*
 * Work for the hook lanes. Which namespaces have hooks is learnt from answers and believed for a second; a scope of
 * one goes straight to its namespace's line here. A namespace whose hooks cost us the connection waits, ever longer.
 */
#ifndef LH_LEASE_HOOKS_HOOK_QUEUE_H
#define LH_LEASE_HOOKS_HOOK_QUEUE_H

#include "lease/lane.h"
#include "lease/queue/scope.h"

#define LH_HOOK_QUEUES_MAX 1024
#define LH_HOOK_BELIEF_US (1 * LH_US_PER_S)
#define LH_HOOK_SLOW_US (50 * LH_US_PER_MS)
#define LH_HOOK_LOSSES_MAX 3 /* then requests are refused */

/* A namespace with hooks. */
struct lh_hook_queue {
    struct lh_table_entry entry;
    struct lh_link used;    /* the longest unused first */
    struct lh_link working; /* it has scopes in line */
    struct lh_link reaping; /* it has reaps in line */
    struct lh_link scopes;  /* by hook_ready */
    struct lh_link reaps;   /* struct lh_reap_job */
    int64_t known_until_us[LH_KIND_COUNT];
    int64_t timeout_us; /* of one call; 0: no limit */
    int64_t took_us;    /* of one call, on average lately; 0: not known */
    int64_t retry_us;   /* not before */
    int64_t delay_us;   /* the backoff after a lost connection; 0: none */
    unsigned running;   /* lanes that it has */
    unsigned jobs;      /* reaps, in line or in flight */
    unsigned together;  /* how many of them may share a transaction now: twice as many after all went well; 0 is 1 */
    char ns[];
};

void lh_hook_queues_create(struct lh_coordinator *c);
void lh_hook_queues_destroy(struct lh_coordinator *c);
struct lh_hook_queue *lh_hook_queue_get(struct lh_coordinator *c, const char *ns); /* found or made */
void lh_hook_queues_forget_some(struct lh_coordinator *c);
void lh_hook_queues_wake_at(struct lh_coordinator *c, int64_t at_us);

/* Is this kind of this scope for a hook lane? */
bool lh_hook_queue_wants(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind);
void lh_hook_queue_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind);
void lh_hook_queue_part(struct lh_coordinator *c, struct lh_scope *scope);
/* An item was answered HOOKED. False, on a hook lane: take it for busy. */
bool lh_hook_queue_learn(struct lh_lane *lane, struct lh_scope *scope, enum lh_kind kind, int64_t timeout_us);
/* Does this request need the line, and is it full? Then it counts as refused. */
bool lh_hook_queue_refuse(struct lh_coordinator *c, const char *ns, enum lh_kind kind);

/* Returns in words what keeps the items of this namespace that are for a hook lane; NULL: nothing but other hooks. */
const char *lh_hook_queue_trouble(const struct lh_coordinator *c, const char *ns);
bool lh_hook_queue_is_losing(const struct lh_coordinator *c, const char *ns); /* it waits after a lost connection */

/* The lane is the queue's from now on, until it leaves. */
void lh_hook_queue_occupy(struct lh_lane *lane, struct lh_hook_queue *hook_queue);
void lh_hook_queue_leave(struct lh_lane *lane); /* does nothing to a lane that is no queue's */
/* Connections of this namespace's calls are lost: it waits. Or not any more. */
void lh_hook_queue_back_off(struct lh_coordinator *c, struct lh_hook_queue *hook_queue);
void lh_hook_queue_on_call(struct lh_coordinator *c, struct lh_hook_queue *hook_queue, enum lh_kind kind,
                           int64_t took_us);
void lh_hook_queue_on_rejected(struct lh_coordinator *c, enum lh_kind kind, const char *message);
bool lh_hook_queue_is_slow_lane(const struct lh_coordinator *c, const struct lh_lane *lane);
bool lh_hook_queue_is_slow(const struct lh_coordinator *c, const struct lh_hook_queue *hook_queue);

#endif
