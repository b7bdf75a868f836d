/*
 * A scope with work: acquires not asked yet, waiters, heartbeats, releases, leaves. It has at most one batch in flight,
 * so two operations on one scope or lease key never meet in the database. lh_scope_schedule_or_free ends every change
 * to a scope: it joins a ready list, arms its timer, or is freed.
 */
#ifndef LH_LEASE_QUEUE_SCOPE_H
#define LH_LEASE_QUEUE_SCOPE_H

#include "lease/turn.h"

#define LH_BUSY_FIRST_US (1 * LH_US_PER_MS)
#define LH_BUSY_LAST_US (50 * LH_US_PER_MS)
#define LH_FAIL_FIRST_US (100 * LH_US_PER_MS)
#define LH_FAIL_LAST_US (10 * LH_US_PER_S)
#define LH_FULL_LAST_US (1 * LH_US_PER_S) /* room may come at any time, and newcomers do not wait for it */
#define LH_FAILS_MAX 10

struct lh_scope {
    struct lh_table_entry entry;
    struct lh_link ready;      /* link in its client's list; see ready.h */
    struct lh_link touched;    /* link in lh_queue.touched */
    struct lh_link hook_ready; /* link in its namespace's list for the hook lanes */
    struct lh_hook_queue *hook_queue;
    struct lh_heap_timer timer;
    const char *ns;
    const char *key;

    struct lh_link again; /* waiters to be asked for again, by ticket; they go before the line */
    struct lh_link line;  /* waiters to be asked for the first time, in order of arrival */
    struct lh_link queue; /* waiters that sleep in the database's queue, by ticket */
    struct lh_link leaves;
    struct lh_link out; /* waiters that have left while their other places have not */
    struct lh_link heartbeats;
    struct lh_link releases;
    struct lh_link downgrades;
    struct lh_wait_progress *progress; /* progress of its subscribers, or NULL */

    int64_t retry_us[LH_SCOPE_KINDS]; /* not before this */
    /* The backoff; 0: none. During a backoff only the first item goes. */
    int32_t delay_us[LH_SCOPE_KINDS];
    int64_t ready_us;      /* arrival of the first item of ready_kind */
    int64_t expires_us;    /* time to ask again: the holder's expiry as known, or LH_NEVER */
    int64_t suspect_us;    /* time when a silent holder stops being alive, or LH_NEVER */
    int32_t dead_after_us; /* the holder's; 0: unknown */
    int32_t overdue_us;    /* backoff while an expired lease is not taken over */
    int64_t grace_us;
    /* As the last answer said; LH_UNITS_UNBOUNDED before the first too. */
    int32_t units_free;

    uint32_t in_flight;      /* items of the one batch */
    uint32_t alive_requests; /* requests that wait while the holder is alive */
    uint16_t name_capacity;
    uint8_t ready_kind;
    uint8_t flight_kind;  /* kind of the batch in flight */
    uint8_t fails;        /* batches in a row that ended in an error */
    uint8_t hook_kind;    /* kind of the item that waits in the list for hook lanes */
    uint8_t hooked;       /* kinds (bits) with an item that was answered HOOKED and not sent again yet */
    uint8_t hook_losses;  /* connections lost in a row while a hook may have run */
    bool is_on_hook_lane; /* the batch in flight is on a hook lane */
    bool is_dead;         /* the holder, or one of the shared ones, is not alive, as far as known */
    bool is_shared;       /* held by shared holders, as far as known */
    bool has_room;        /* a shared lease was granted: there may be room for more */
    bool wake_when_answered;
    bool ask_all_when_answered;
    bool has_rider; /* an acquire for its first waiter follows the release in flight */
    bool is_full;   /* the server had no room (on its disk, say) for the last acquires */
    /* Status of the batch in flight: OK, SCOPE_BUSY, OVERLOADED (no room) or another error. */
    enum lh_status trouble;
    char name[];
};

struct lh_scope *lh_scope_find(struct lh_coordinator *c, const char *ns, const char *key);
struct lh_scope *lh_scope_get(struct lh_coordinator *c, const char *ns, const char *key); /* finds or makes it */
void lh_scope_schedule_or_free(struct lh_coordinator *c, struct lh_scope *scope);         /* may free the scope */
void lh_scopes_create(struct lh_coordinator *c);
void lh_scopes_destroy(struct lh_coordinator *c);
/* Marks a changed scope other than the one at hand: the end of the turn schedules it. */
void lh_scope_touch(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scopes_schedule_touched(struct lh_coordinator *c);
size_t lh_scopes_count(const struct lh_coordinator *c);

/* Starts a batch with items of this kind of the scope. */
void lh_scope_send_begins(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind);
/* Notes that one item of the scope's batch was answered; the last one schedules or frees the scope. */
void lh_scope_item_done(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind);
bool lh_scope_can_send(const struct lh_coordinator *c, enum lh_kind kind);

/* Handles news that the scope may be free: asks for its first waiters, or passes the wake-up on to another
   coordinator's waiter. */
void lh_scope_wake(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scope_wake_named(struct lh_coordinator *c, const char *ns, const char *key);
/* Asks for the first waiter, and behind a shared one for the next shared ones that fit, as far as known. `freed`:
   free units that the last answer did not count. */
void lh_scope_ask_first(struct lh_coordinator *c, struct lh_scope *scope, int64_t freed);
void lh_scope_ask_all(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scope_on_timer(struct lh_coordinator *c, struct lh_scope *scope);

#endif
