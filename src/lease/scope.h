/*
 * A scope that something is to be done for: acquires not asked yet, waiters, heartbeats, releases, leaves. It has at
 * most one batch in flight, so two operations on one scope or lease key never meet in the database. lh_scope_settle
 * ends every change to it: the scope joins a ready list, arms its timer, or is gone.
 */
#ifndef LH_LEASE_SCOPE_H
#define LH_LEASE_SCOPE_H

#include "lease/core.h"

#define LH_BUSY_FIRST_US (1 * LH_US_PER_MS)
#define LH_BUSY_LAST_US (50 * LH_US_PER_MS)
#define LH_FAIL_FIRST_US (100 * LH_US_PER_MS)
#define LH_FAIL_LAST_US (10 * LH_US_PER_S)
#define LH_FAILS_MAX 10

struct lh_scope {
    struct lh_table_entry entry;
    struct lh_link ready;
    struct lh_link hook_ready; /* in its namespace's list for the hook lanes */
    struct lh_hook_space *space;
    struct lh_heap_timer timer;
    const char *ns;
    const char *key;

    struct lh_link again; /* waiters to be asked for again, in the order of their tickets: before the line */
    struct lh_link line;  /* waiters to be asked for the first time, in order of arrival */
    struct lh_link queue; /* waiters that sleep in the database's queue, in the order of their tickets */
    struct lh_link leaves;
    struct lh_link heartbeats;
    struct lh_link releases;
    struct lh_progress *progress; /* of those who want to be told; else NULL */

    int64_t retry_us[LH_KIND_COUNT]; /* not before this */
    int32_t delay_us[LH_KIND_COUNT]; /* the backoff; 0: none. While there is one, only the first item goes */
    int64_t ready_us;                /* since when the first item of ready_kind waits */
    int64_t expires_us;              /* when to ask again: the holder's expiry as known, LH_NEVER */
    int64_t suspect_us;              /* when a silent holder stops being alive, LH_NEVER */
    int32_t dead_after_us;           /* of the holder; 0: unknown */
    int32_t overdue_us;              /* backoff while an expired lease is not taken over */
    int64_t grace_us;

    uint32_t in_flight;      /* items of the one batch */
    uint32_t alive_requests; /* that wait while the holder is alive */
    uint16_t name_capacity;
    uint8_t ready_kind;
    uint8_t flight_kind;  /* of the batch in flight */
    uint8_t fails;        /* batches in a row that ended in an error */
    uint8_t hook_kind;    /* what it is in the list for hook lanes for */
    uint8_t hooked;       /* kinds (bits) of which an item was answered HOOKED and not sent since */
    uint8_t hook_losses;  /* in a row: connections that were lost while a hook may have run */
    bool is_on_hook_lane; /* the batch in flight */
    bool is_dead;         /* the holder is not alive, as far as known */
    bool wake_again;
    bool ask_all_again;
    bool has_rider; /* its first waiter is asked for behind the release that is in flight */
    bool saw_busy;
    bool saw_error;
    char name[];
};

struct lh_scope *lh_scope_find(struct lh_coordinator *c, const char *ns, const char *key);
struct lh_scope *lh_scope_get(struct lh_coordinator *c, const char *ns, const char *key); /* settle it afterwards */
void lh_scope_settle(struct lh_coordinator *c, struct lh_scope *scope);                   /* it may be gone then */
void lh_scope_free(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scope_table_init(struct lh_coordinator *c);
void lh_scope_table_finish(struct lh_coordinator *c);

/* One item of the scope's batch was answered; the last one settles the scope. `scope` may be gone then. */
void lh_scope_item_done(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind);

/* Somebody says that the scope may be free: ask for its first waiter. */
void lh_scope_wake(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scope_ask_first(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scope_ask_all(struct lh_coordinator *c, struct lh_scope *scope);
/* Does this kind of it not go on for now, so that heartbeats and releases are to be told RETRY after their time? */
bool lh_scope_is_stuck(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind);
void lh_scope_on_timer(struct lh_coordinator *c, struct lh_scope *scope);

/* What answers tell about the holder. */
void lh_scope_learn_queued(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_acquire_item *item);
void lh_scope_learn_grant(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_lease *lease);
/* `lease` NULL: free, or held by somebody who is not known yet. */
void lh_scope_learn_holder(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_lease *lease);
void lh_scope_learn_heartbeat(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us);

#endif
