/*
 * A waiter: one lease key that wants a scope, for one request or more. And its requests: to which waiter each is
 * attached, how long it waits, and its answer.
 *
 * A request for several scopes has a waiter in each, its places; see together.h. The first has the requests. What happens
 * to one of them happens to all, in lh_waiter_set_state. Only leaving is each one's own: a place is tried again until it is
 * out of its queue. The first one waits until all others are out, and is asked for no sooner.
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

/* What is known of a lease that its lease key may have in this scope. */
enum lh_waiter_grant {
    LH_GRANT_NONE,
    LH_GRANT_TAKEN,    /* a caller has its grant: a later one with the same lease key must not release it */
    LH_GRANT_UNKNOWN,  /* a reply was lost: it may be queued or granted */
    LH_GRANT_RENEWING, /* taken, and a later reply was lost */
    LH_GRANT_UNTAKEN,  /* granted, and no caller took it */
};

/* How long those behind a request for several scopes let it hold them back, until its other scopes are idle too. */
#define LH_TOGETHER_PATIENCE_US (10 * LH_US_PER_MS)

/* The places of a request for several scopes. */
struct lh_together {
    size_t count;
    size_t there;               /* that stand in their queues, as far as known */
    struct lh_heap_timer timer; /* while it is to be asked for: of its patience, or of its rest */
    bool is_resting;            /* it is not asked for, and holds nobody back, until the timer */
    bool is_hooked;             /* it waits for a hook lane */
    bool is_full;               /* these three as in lh_scope */
    uint8_t fails;
    int32_t delay_us;
    int64_t hook_timeout_us;
    struct lh_place {
        struct lh_waiter *waiter; /* NULL: it is out, and not the first */
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
    struct lh_together *together; /* NULL: it is for this scope alone */
    struct lh_uuid lease_key;
    int64_t ticket; /* 0: none yet */
    int32_t units;  /* as asked for last; 0: exclusive */
    uint64_t seq;   /* order of arrival */
    int64_t since_us;
    uint8_t state;
    uint8_t leave_kind;
    uint8_t grant;    /* enum lh_waiter_grant */
    bool keeps_place; /* a caller was asked to come back */
    bool gone_wanted; /* the last one was cancelled while an AWAY was in flight */
};

struct lh_waiter *lh_waiter_find(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_uuid *lease_key);
struct lh_waiter *lh_waiter_create(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_uuid *lease_key);
void lh_waiter_free(struct lh_coordinator *c, struct lh_waiter *waiter); /* with its other places */
void lh_waiters_create(struct lh_coordinator *c);
void lh_waiters_free_gone(struct lh_coordinator *c);       /* at the end of a turn */
size_t lh_waiters_waiting(const struct lh_coordinator *c); /* acquires that wait */

bool lh_waiter_is_first_place(const struct lh_waiter *waiter); /* or the only one */
bool lh_waiter_is_in_flight(const struct lh_waiter *waiter);   /* or one of its other places */
/* Is it one of several places, and those behind it do not wait until it is asked for? */
bool lh_waiter_lets_pass(const struct lh_waiter *waiter);
void lh_waiter_set_ticket(struct lh_waiter *waiter, int64_t ticket);
uint64_t lh_waiter_client(const struct lh_waiter *waiter); /* of its first request; 0 where all have gone */

/* The only way from state to state; moves the waiter into the list of its new state. */
void lh_waiter_set_state(struct lh_coordinator *c, struct lh_waiter *waiter, enum lh_waiter_state state,
                         const char *reason);
void lh_waiter_set_grant(struct lh_waiter *waiter, enum lh_waiter_grant grant);
void lh_waiter_doubt_grant(struct lh_waiter *waiter);  /* a reply was lost */
void lh_waiter_settle_grant(struct lh_waiter *waiter); /* a reply came */
bool lh_waiter_is_grant_known(const struct lh_waiter *waiter);
void lh_waiter_leave(struct lh_coordinator *c, struct lh_waiter *waiter, const char *reason);
/* After its requests or their verdicts changed: leave, ask again, stay, or be freed. */
void lh_waiter_review(struct lh_coordinator *c, struct lh_waiter *waiter);
bool lh_waiter_wants(const struct lh_waiter *waiter); /* has it a request that goes on waiting? */
bool lh_waiter_may_be_in_database(const struct lh_waiter *waiter);
/* Of the requests that go on waiting: the longest, from now; LH_NEVER. */
int64_t lh_waiter_wait_us(const struct lh_coordinator *c, const struct lh_waiter *waiter);

void lh_request_attach(struct lh_coordinator *c, struct lh_waiter *waiter, struct lh_acquire *request);
void lh_request_arm(struct lh_coordinator *c, struct lh_acquire *request); /* its timer, after its limits changed */
/* As if max_block had passed; not where it does not bound the wait. */
void lh_request_hand_back(struct lh_coordinator *c, struct lh_acquire *request);
void lh_request_set_verdict(struct lh_coordinator *c, struct lh_acquire *request, enum lh_status verdict);
/* Answered at the end of the turn. */
void lh_request_answer(struct lh_coordinator *c, struct lh_acquire *request, enum lh_status status,
                       struct lh_entry *entry);
/* Answer all that are attached, also those that came late. */
void lh_request_answer_all(struct lh_coordinator *c, struct lh_waiter *waiter, enum lh_status status,
                           const char *message);
void lh_request_on_liveness(struct lh_coordinator *c, struct lh_acquire *request, bool is_dead);

/* Those that are not out, and the first. */
#define LH_PLACE_EACH(place, together)                                                                                 \
    for (__typeof__(&(together)->places[0]) place = (together)->places;                                                \
         place < (together)->places + (together)->count; place++)                                                      \
        if (place->waiter != NULL)

#define LH_REQUEST_EACH(request, waiter) LH_LIST_EACH(struct lh_acquire, request, &(waiter)->requests, own.link)

#endif
