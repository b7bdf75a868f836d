/* Scopes, their waiters and requests; queue/together.h and queue/wait_progress.h have more of them. */
#ifndef LH_LEASE_QUEUE_INTERNAL_H
#define LH_LEASE_QUEUE_INTERNAL_H

#include "lease/coordinator_internal.h"

/*
 * --- queue/scope.c ---
 *
 * A scope with work: acquires not asked yet, waiters, heartbeats, releases, leaves. It has at most one batch in flight,
 * so two operations on one scope or lease key never meet in the database. lh_scope_schedule_or_free ends every change
 * to a scope: it joins a ready list, arms its timer, or is freed.
 */

#define LH_BUSY_FIRST_US (1 * LH_US_PER_MS)
#define LH_BUSY_LAST_US (50 * LH_US_PER_MS)
#define LH_FAIL_FIRST_US (100 * LH_US_PER_MS)
#define LH_FAIL_LAST_US (10 * LH_US_PER_S)
#define LH_FULL_LAST_US (1 * LH_US_PER_S) /* room may come at any time, and newcomers do not wait for it */
#define LH_FAILS_MAX 10
/* Newcomers wait so long for the hand-over that follows one: a holder that needs it for a moment releases it within this time. */
#define LH_JOIN_US (1 * LH_US_PER_MS)
#define LH_JOIN_BEHIND                                                                                                 \
    3 /* ... where so many wait: with fewer the place makes a hand-over slower than its own transaction does */

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
    struct lh_link *back; /* the one in the queue behind the last that came back to it; or the queue's head */
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
    int64_t asks_below; /* its waiters with lower tickets are asked for again; 0: none */
    int64_t look_us;    /* time to ask sleeping waiters for their places; 0: not set */
    int64_t looked;     /* highest ticket that was asked for in this round */
    int64_t ahead_us;   /* a wake-up is passed on not before this, while our first waiter cannot be asked for */
    /* As the last answer said; LH_UNITS_UNBOUNDED before the first too. */
    int32_t units_free;

    uint32_t in_flight;      /* items of the one batch */
    uint32_t alive_requests; /* requests that wait while the holder is alive */
    uint32_t prioritized;    /* waiters with a priority */
    uint32_t joins_us;       /* the low bits of when newcomers do not wait for a next hand-over any more */
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
    bool looks_ahead;   /* an answer said that it is free, and not for the waiter that was asked for */
    bool has_rider;     /* an acquire for its first waiter follows the release in flight */
    bool has_taken_all; /* all newcomers that there were follow that acquire */
    bool is_full;       /* the server had no room (on its disk, say) for the last acquires */
    uint8_t trouble;    /* status of the batch in flight: OK, SCOPE_BUSY, OVERLOADED (no room) or another error */
    char name[];
};

/* Somebody here has a place in its queue. */
static inline bool lh_scope_is_waited_for(const struct lh_scope *scope)
{
    return !lh_list_is_empty(&scope->queue) || !lh_list_is_empty(&scope->again);
}

struct lh_scope *lh_scope_find(struct lh_coordinator *c, const char *ns, const char *key);
struct lh_scope *lh_scope_get(struct lh_coordinator *c, const char *ns, const char *key); /* finds or makes it */
void lh_scope_schedule_or_free(struct lh_coordinator *c, struct lh_scope *scope);         /* may free the scope */
void lh_scopes_create(struct lh_coordinator *c);
void lh_scopes_destroy(struct lh_coordinator *c);
/* Marks a changed scope other than the one at hand: the end of the turn schedules it. */
static inline void lh_scope_touch(struct lh_coordinator *c, struct lh_scope *scope)
{
    if (!lh_link_is_linked(&scope->touched))
        lh_list_append(&c->queue.touched, &scope->touched);
}
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
   free units that the last answer did not count. Where any has a priority, for the first of each: the database knows
   which of them is next. */
void lh_scope_ask_first(struct lh_coordinator *c, struct lh_scope *scope, int64_t freed);
void lh_scope_ask_all(struct lh_coordinator *c, struct lh_scope *scope);
void lh_scope_on_timer(struct lh_coordinator *c, struct lh_scope *scope);

/* --- queue/looking.c: whether those that sleep have their places --- */

/* Returns when they are asked for, or LH_NEVER. */
int64_t lh_looking_us(struct lh_coordinator *c, struct lh_scope *scope);
/* Asks for the next part of them if it is time. */
void lh_looking_on_timer(struct lh_coordinator *c, struct lh_scope *scope);

/* --- queue/pass_on.c: wake-ups that are for the waiters of others --- */

/* Our rows with lower tickets than `below` may be gone. */
typedef void lh_passed_fn(struct lh_coordinator *c, const char *ns, const char *key, int64_t below);
/* `first_ticket`: of our first waiter there; 0: we have none. on_passed may come later, and not at all. */
void lh_pass_on(struct lh_coordinator *c, const char *ns, const char *key, int64_t first_ticket,
                lh_passed_fn *on_passed);
void lh_passing_free_all(struct lh_coordinator *c);

/*
 * --- queue/ready.c: scopes with items for a lane, by kind ---
 *
 * Scopes of different clients are taken in turn, one scope a turn; scopes of one
 * client in the order in which they became ready. So a client with a long line delays another by about one batch.
 */

void lh_ready_create(struct lh_coordinator *c);
void lh_ready_destroy(struct lh_coordinator *c);
void lh_ready_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t since_us);
void lh_ready_part(struct lh_coordinator *c, struct lh_scope *scope); /* does nothing to a scope that is not ready */

size_t lh_ready_scopes(const struct lh_coordinator *c, enum lh_kind kind);
/* Returns since when the scope whose turn it is waits; LH_NEVER if no scope is ready. */
int64_t lh_ready_since_us(const struct lh_coordinator *c, enum lh_kind kind);
/* Returns the scope whose turn it is and ends that turn; NULL if no scope is ready. `share`: how many of its items
   may go into a batch with `room`. */
struct lh_scope *lh_ready_next(struct lh_coordinator *c, enum lh_kind kind, size_t room, size_t *share);
bool lh_ready_has_long_queue(const struct lh_scope *scope); /* LH_JOIN_BEHIND waiters or more sleep */
/* Returns how long the scope's newcomers still wait for its next hand-over, to queue in that transaction; 0: they do not. */
uint32_t lh_ready_rides_in_us(const struct lh_coordinator *c, const struct lh_scope *scope);

/*
 * --- queue/waiter.c ---
 *
 * A waiter: one lease key that wants a scope, for one request or more. Also its requests: to which waiter each is
 * attached, how long it waits, and its answer.
 *
 * A request for several scopes has a waiter in each, its places; see together.h. The first place has the requests.
 * lh_waiter_set_state applies a change of one place to all. Only leaving is separate: each place is tried again until
 * it is out of its queue. The first one waits until all others are out, and is not asked for before.
 */

enum lh_waiter_state {
    LH_WAITER_NEW,
    LH_WAITER_LINED,   /* to be asked for by the next batch: in scope->again with a ticket, else in scope->line */
    LH_WAITER_ASKED,   /* in flight */
    LH_WAITER_QUEUED,  /* asleep in the database's queue; in scope->queue */
    LH_WAITER_LEAVING, /* to be taken out of the queue; in scope->leaves */
    LH_WAITER_LEFT,    /* the leave is in flight */
    LH_WAITER_OUT,     /* the first of several places: out of its queue, others not yet; in scope->out */
    LH_WAITER_DONE,
};

/* Knowledge of a lease that the lease key may have in this scope. */
enum lh_waiter_grant {
    LH_GRANT_NONE,
    LH_GRANT_TAKEN,    /* a caller has its grant: a later one with the same lease key must not release it */
    LH_GRANT_UNKNOWN,  /* a reply was lost: it may be queued or granted */
    LH_GRANT_RENEWING, /* taken, and a later reply was lost */
    LH_GRANT_UNTAKEN,  /* granted, and no caller took it */
};

/* The time for which a request for several scopes may hold back those behind it, until its other scopes are idle
   too. */
#define LH_TOGETHER_PATIENCE_US (10 * LH_US_PER_MS)

/* The places of a request for several scopes. */
struct lh_together {
    size_t count;
    size_t there; /* places that stand in their queues, as far as known */
    /* End of its patience or of its rest, while it is to be asked for. */
    struct lh_heap_timer timer;
    bool is_resting; /* not asked for, and holds no waiter back, until the timer */
    bool is_hooked;  /* waits for a hook lane */
    bool is_full;    /* is_full, fails and delay_us as in lh_scope */
    uint8_t fails;
    int32_t delay_us;
    int64_t hook_timeout_us;
    const struct lh_scope *waits_for; /* the one that is in its way, as its last answer says */
    struct lh_place {
        struct lh_waiter *waiter; /* NULL: out of its queue (never the first) */
        const char *ns;
        const char *key;
        int32_t units;
    } places[];
};

struct lh_waiter {
    struct lh_table_entry entry;
    struct lh_link link;
    struct lh_link requests; /* struct lh_acquire, own.link */
    struct lh_scope *scope;
    struct lh_together *together; /* NULL: the waiter is for this scope alone */
    struct lh_uuid lease_key;
    int64_t ticket;   /* 0: none yet */
    int32_t units;    /* as asked for last; 0: exclusive */
    int32_t priority; /* as asked for last, and so that of its place; change it by lh_waiter_set_priority */
    uint64_t seq;     /* order of arrival */
    int64_t since_us;
    int64_t unheard_since_us; /* an earlier request may have been told of an older lease; 0: none was */
    uint8_t state;
    uint8_t leave_kind;
    uint8_t grant;    /* enum lh_waiter_grant */
    bool keeps_place; /* a caller was answered to come back */
    bool gone_wanted; /* the last request was canceled while an AWAY was in flight */
};

struct lh_waiter *lh_waiter_find(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_uuid *lease_key);
struct lh_waiter *lh_waiter_create(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_uuid *lease_key);
/* Frees its other places too. */
void lh_waiter_free(struct lh_coordinator *c, struct lh_waiter *waiter);
void lh_waiters_create(struct lh_coordinator *c);
void lh_waiters_free_gone(struct lh_coordinator *c);       /* call it at the end of a turn */
size_t lh_waiters_waiting(const struct lh_coordinator *c); /* acquires that wait */

bool lh_waiter_is_first_place(const struct lh_waiter *waiter); /* the only place too */
bool lh_waiter_is_in_flight(const struct lh_waiter *waiter);   /* any of its places */
/* Returns true for a place of several while those behind it need not wait for it: it rests or waits for a hook lane. */
bool lh_waiter_lets_pass(const struct lh_waiter *waiter);
void lh_waiter_set_ticket(struct lh_waiter *waiter, int64_t ticket);
void lh_waiter_set_priority(struct lh_waiter *waiter, const struct lh_acquire *request);
/* Returns the link of the first that sleeps with this ticket or a later one, or &scope->queue. */
struct lh_link *lh_waiter_queued_from(struct lh_scope *scope, int64_t ticket);
uint64_t lh_waiter_client(const struct lh_waiter *waiter); /* client of its first request; 0 without a request */

/* Moves the waiter to the state and into its list. No other function changes the state. */
void lh_waiter_set_state(struct lh_coordinator *c, struct lh_waiter *waiter, enum lh_waiter_state state,
                         const char *reason);
void lh_waiter_set_grant(struct lh_waiter *waiter, enum lh_waiter_grant grant);
void lh_waiter_doubt_grant(struct lh_waiter *waiter);  /* a reply was lost */
void lh_waiter_settle_grant(struct lh_waiter *waiter); /* a reply came */
bool lh_waiter_is_grant_known(const struct lh_waiter *waiter);
/* Returns the database's time from which on a lease was granted to this waiter, and to no earlier request with its lease
   key; 0: any lease was. */
int64_t lh_waiter_unheard_since_us(const struct lh_coordinator *c, const struct lh_waiter *waiter);
void lh_waiter_leave(struct lh_coordinator *c, struct lh_waiter *waiter, const char *reason);
/* Decides after a change of its requests or their verdicts: the waiter leaves, is asked for again, stays, or is
   freed. */
void lh_waiter_review(struct lh_coordinator *c, struct lh_waiter *waiter);
bool lh_waiter_wants(const struct lh_waiter *waiter); /* a request goes on waiting */
bool lh_waiter_may_be_in_database(const struct lh_waiter *waiter);
/* Returns the longest wait from now of the requests that go on waiting; LH_NEVER: no limit. */
int64_t lh_waiter_wait_us(const struct lh_coordinator *c, const struct lh_waiter *waiter);

void lh_request_attach(struct lh_coordinator *c, struct lh_waiter *waiter, struct lh_acquire *request);
/* Sets its timer after a limit changed. */
void lh_request_arm(struct lh_coordinator *c, struct lh_acquire *request);
/* Ends the wait as if max_block had passed; does nothing if max_block does not bound it. */
void lh_request_hand_back(struct lh_coordinator *c, struct lh_acquire *request);
void lh_request_set_verdict(struct lh_coordinator *c, struct lh_acquire *request, enum lh_status verdict);
/* Puts the request in the line of answers, delivered at the end of the turn. */
void lh_request_answer(struct lh_coordinator *c, struct lh_acquire *request, enum lh_status status,
                       struct lh_entry *entry);
/* Answers all attached requests, also those that came late. */
void lh_request_answer_all(struct lh_coordinator *c, struct lh_waiter *waiter, enum lh_status status,
                           const char *message);
void lh_request_on_liveness(struct lh_coordinator *c, struct lh_acquire *request, bool is_dead);

/* Loops over the places that have a waiter. */
#define LH_PLACE_EACH(place, together)                                                                                 \
    for (__typeof__(&(together)->places[0]) place = (together)->places;                                                \
         place < (together)->places + (together)->count; place++)                                                      \
        if (place->waiter != NULL)

#define LH_REQUEST_EACH(request, waiter) LH_LIST_EACH(struct lh_acquire, request, &(waiter)->requests, own.link)

/* --- queue/holder_liveness.c: facts about a scope's holder, learnt from answers --- */

void lh_scope_learn_queued(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_waiter *waiter,
                           const struct lh_acquire_item *item);
/* `rests_in_us` as in lh_acquire_item. */
void lh_scope_learn_grant(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *lease,
                          int64_t rests_in_us);
/* Learns the scope's holder. `lease` NULL: the scope is free or at rest, or its holder is not known yet. */
void lh_scope_learn_holder(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *lease,
                           int64_t rests_in_us);
void lh_scope_learn_heartbeat(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us);

/* --- queue/all_scopes.c: changes to every scope and every waiter --- */

void lh_scopes_schedule_all(struct lh_coordinator *c); /* after lanes or the database came or went */
void lh_scopes_ask_all(struct lh_coordinator *c);      /* asks for every waiter again */
void lh_scopes_wake_all(struct lh_coordinator *c);
void lh_scopes_hand_back_all(struct lh_coordinator *c); /* ends waits that max_block bounds, as if it had passed */
void lh_scopes_stop_all(struct lh_coordinator *c);      /* makes waiters leave; they are answered SHUTTING_DOWN */
/* Answers all requests that are not in flight: SHUTTING_DOWN or RETRY. */
void lh_scopes_drop_all(struct lh_coordinator *c);
/* Frees the scopes; does not touch the requests, which may be gone. */
void lh_scopes_free_all(struct lh_coordinator *c);

/* --- queue/request.c: the calls lh_coordinator_acquire and lh_coordinator_cancel, the timer of a request, and answers,
   given at the end of the turn, while the batch that they point into is still there --- */

void lh_request_on_timer(struct lh_coordinator *c, struct lh_acquire *request);
void lh_reply_deliver(struct lh_coordinator *c);

#endif
