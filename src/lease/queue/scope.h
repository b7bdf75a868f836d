/*
 * A scope that something is to be done for: acquires not asked yet, waiters, heartbeats, releases, leaves. It has at
 * most one batch in flight, so two operations on one scope or lease key never meet in the database.
 * lh_scope_schedule_or_free ends every change to it: the scope joins a ready list, arms its timer, or is gone.
 */
#ifndef LH_LEASE_QUEUE_SCOPE_H
#define LH_LEASE_QUEUE_SCOPE_H

#include "lease/turn.h"

#define LH_BUSY_FIRST_US (1 * LH_US_PER_MS)
#define LH_BUSY_LAST_US (50 * LH_US_PER_MS)
#define LH_FAIL_FIRST_US (100 * LH_US_PER_MS)
#define LH_FAIL_LAST_US (10 * LH_US_PER_S)
#define LH_FULL_LAST_US (1 * LH_US_PER_S) /* room may come at any time, and newcomers do not wait for that */
#define LH_FAILS_MAX 10

struct lh_scope {
    struct lh_table_entry entry;
    struct lh_link ready;      /* of its client; see ready.h */
    struct lh_link touched;    /* in lh_queue.touched */
    struct lh_link hook_ready; /* in its namespace's list for the hook lanes */
    struct lh_hook_queue *hook_queue;
    struct lh_heap_timer timer;
    const char *ns;
    const char *key;

    struct lh_link again; /* waiters to be asked for again, in the order of their tickets: before the line */
    struct lh_link line;  /* waiters to be asked for the first time, in order of arrival */
    struct lh_link queue; /* waiters that sleep in the database's queue, in the order of their tickets */
    struct lh_link leaves;
    struct lh_link out; /* waiters that have left, and whose other places have not */
    struct lh_link heartbeats;
    struct lh_link releases;
    struct lh_link downgrades;
    struct lh_wait_progress *progress; /* of its subscribers, or NULL */

    int64_t retry_us[LH_SCOPE_KINDS]; /* not before this */
    int32_t delay_us[LH_SCOPE_KINDS]; /* the backoff; 0: none. While there is one, only the first item goes */
    int64_t ready_us;                 /* since when the first item of ready_kind waits */
    int64_t expires_us;               /* when to ask again: the holder's expiry as known, LH_NEVER */
    int64_t suspect_us;               /* when a silent holder stops being alive, LH_NEVER */
    int32_t dead_after_us;            /* of the holder; 0: unknown */
    int32_t overdue_us;               /* backoff while an expired lease is not taken over */
    int64_t grace_us;
    int32_t units_free; /* as last heard; LH_UNITS_UNBOUNDED too where nothing was heard */

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
    bool is_dead;         /* the holder is not alive, as far as known; of shared ones, one of them */
    bool is_shared;       /* its holders are shared ones, as far as known */
    bool has_room;        /* a shared lease was granted: there may be room for more */
    bool wake_when_answered;
    bool ask_all_when_answered;
    bool has_rider;         /* an acquire for its first waiter follows the release in flight */
    bool is_full;           /* the server had no room for the last acquires, on its disk, say */
    enum lh_status trouble; /* of the batch in flight: OK, SCOPE_BUSY, OVERLOADED (no room) or another error */
    char name[];
};

struct lh_scope *lh_scope_find(struct lh_coordinator *c, const char *ns, const char *key);
struct lh_scope *lh_scope_get(struct lh_coordinator *c, const char *ns, const char *key); /* found or made */
void lh_scope_schedule_or_free(struct lh_coordinator *c, struct lh_scope *scope);         /* it may be gone then */
void lh_scopes_create(struct lh_coordinator *c);
void lh_scopes_destroy(struct lh_coordinator *c);
/* A change to another scope than the one at hand: the end of the turn schedules it. */
void lh_scope_touch(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scopes_schedule_touched(struct lh_coordinator *c);
size_t lh_scopes_count(const struct lh_coordinator *c);

/* Its items of this kind go into a batch now. */
void lh_scope_send_begins(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind);
/* One item of the scope's batch was answered; the last one schedules or frees the scope. */
void lh_scope_item_done(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind);
bool lh_scope_can_send(const struct lh_coordinator *c, enum lh_kind kind);

/* The scope may be free: asks for its first waiters, or passes the wake-up on to another coordinator's waiter. */
void lh_scope_wake(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scope_wake_named(struct lh_coordinator *c, const char *ns, const char *key);
/* For the first waiter, and behind a shared one for the shared ones that follow it and fit too, as far as known:
   `freed` units are free that the last answer did not count. */
void lh_scope_ask_first(struct lh_coordinator *c, struct lh_scope *scope, int64_t freed);
void lh_scope_ask_all(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scope_on_timer(struct lh_coordinator *c, struct lh_scope *scope);

#endif
