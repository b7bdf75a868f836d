/*
 * Work for the hook lanes. Which namespaces have hooks is learnt from answers and believed for a second; a scope of
 * one goes straight to its namespace's line here, and the namespaces take turns: one item, or one run of reaps, a turn.
 * A namespace whose hooks are slow never has the last hook lane; one whose hooks cost us the connection waits, ever
 * longer.
 */
#ifndef LH_LEASE_HOOKED_H
#define LH_LEASE_HOOKED_H

#include "lease/lane.h"
#include "lease/scope.h"

#define LH_HOOK_SPACES_MAX 1024
#define LH_HOOK_BELIEF_US (1 * LH_US_PER_S)
#define LH_HOOK_SLOW_US (50 * LH_US_PER_MS)
#define LH_HOOK_LOSSES_MAX 3 /* then whoever asks is told */

/* A namespace with hooks. */
struct lh_hook_space {
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

/* For the files of this directory. */
void lh_hooks_create(struct lh_coordinator *c);
void lh_hooks_destroy(struct lh_coordinator *c);
struct lh_hook_space *lh_hooks_space(struct lh_coordinator *c, const char *ns); /* found or made */
void lh_hooks_forget_some(struct lh_coordinator *c);

/* Is this kind of this scope for a hook lane? */
bool lh_hooks_wants(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind);
void lh_hooks_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind);
void lh_hooks_part(struct lh_coordinator *c, struct lh_scope *scope);
/* An item was answered HOOKED. False, on a hook lane: take it for busy. */
bool lh_hooks_learn(struct lh_lane *lane, struct lh_scope *scope, enum lh_kind kind, int64_t timeout_us);
/* Is the line full, and this for it? Counts it as refused then. */
bool lh_hooks_refuse(struct lh_coordinator *c, const char *ns, enum lh_kind kind);

bool lh_hooks_could_dispatch(const struct lh_coordinator *c);
void lh_hooks_dispatch(struct lh_coordinator *c);
/* A batch of one item is answered, or was refused; before anybody looks into it. */
void lh_hooks_on_done(struct lh_lane *lane, enum lh_status status);
void lh_hooks_on_rejected(struct lh_coordinator *c, enum lh_kind kind, const char *message);
void lh_hooks_on_timer(struct lh_coordinator *c);
/* Connections of this namespace's calls are lost: it waits. Or not any more. */
void lh_hooks_back_off(struct lh_coordinator *c, struct lh_hook_space *space);
void lh_hooks_on_call(struct lh_coordinator *c, struct lh_hook_space *space, unsigned event, int64_t took_us);
bool lh_hooks_is_slow(const struct lh_coordinator *c, const struct lh_hook_space *space);
/* A run of reaps is over. */
void lh_hooks_rest(struct lh_lane *lane);

/* The lane is the space's from now on; given up by lh_hooks_leave. */
void lh_hooks_occupy(struct lh_lane *lane, struct lh_hook_space *space);
void lh_hooks_leave(struct lh_lane *lane);

#endif
