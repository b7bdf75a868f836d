/*
 * A waiter: one lease key that wants a scope, for one request or more. Also its requests: to which waiter each is
 * attached, how long it waits, and its answer.
 *
 * A request for several scopes has a waiter in each, its places; see together.h. The first place has the requests.
 * lh_waiter_set_state applies a change of one place to all. Only leaving is separate: each place is tried again until
 * it is out of its queue. The first one waits until all others are out, and is not asked for before.
 */
#ifndef LH_LEASE_QUEUE_WAITER_H
#define LH_LEASE_QUEUE_WAITER_H

#include "base/clock.h"
#include "lease/queue/scope.h"

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
    int64_t ticket; /* 0: none yet */
    int32_t units;  /* as asked for last; 0: exclusive */
    uint64_t seq;   /* order of arrival */
    int64_t since_us;
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
uint64_t lh_waiter_client(const struct lh_waiter *waiter); /* client of its first request; 0 without a request */

/* Moves the waiter to the state and into its list. No other function changes the state. */
void lh_waiter_set_state(struct lh_coordinator *c, struct lh_waiter *waiter, enum lh_waiter_state state,
                         const char *reason);
void lh_waiter_set_grant(struct lh_waiter *waiter, enum lh_waiter_grant grant);
void lh_waiter_doubt_grant(struct lh_waiter *waiter);  /* a reply was lost */
void lh_waiter_settle_grant(struct lh_waiter *waiter); /* a reply came */
bool lh_waiter_is_grant_known(const struct lh_waiter *waiter);
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

#endif
