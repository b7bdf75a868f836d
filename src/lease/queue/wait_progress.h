/*
 * Progress for the requests that subscribe to it (lh_acquire.on_progress): when they are queued, when their place or
 * the holder changed, and at least every 5 s.
 *
 * The work is bounded, because a hand-off changes the place of every waiter. An event sends no progress by itself. At
 * most once a second a sweep visits the subscribers of a scope in the order of their arrival, a bounded number in one
 * loop turn, and sends changes. It sends the facts that this coordinator knows: the holder of the last answer of the
 * database, looked up again once for all subscribers of a scope when it is old; and the place of the last answer, less
 * the waiters ahead that have gone since.
 */
#ifndef LH_LEASE_QUEUE_WAIT_PROGRESS_H
#define LH_LEASE_QUEUE_WAIT_PROGRESS_H

#include "lease/queue_internal.h"

/* One request that subscribes; exists while the request is attached to its waiter. */
struct lh_subscriber {
    struct lh_link link;    /* in lh_wait_progress.subscribers */
    struct lh_link telling; /* in lh_coordinator.telling */
    struct lh_acquire *request;
    int64_t told_us; /* last progress; 0: never */
    int64_t told_token;
    int32_t told_place;
    int32_t ahead;       /* waiters ahead when it was queued last */
    uint32_t heads_then; /* lh_wait_progress.heads_gone at that time */
    bool is_queued;
};

/* The subscribers of one scope; exists while there are some. */
struct lh_wait_progress {
    struct lh_scope *scope;
    struct lh_heap_timer timer;
    struct lh_link subscribers; /* in order of arrival */
    size_t count;
    struct lh_subscriber *next; /* next one of the sweep; NULL: no sweep is going on */
    int32_t rank;               /* index of `next` among the subscribers */
    int64_t swept_us;           /* start of the last sweep */
    int64_t due_us;             /* start of the next sweep, as the one going on has found */
    uint32_t heads_gone;        /* first waiters that were granted or left, counted through */
    bool has_changed;           /* news since the last sweep began */

    struct lh_probe *probe; /* the lookup in flight, or NULL */
    bool has_probed;        /* a lookup was made for the next sweep */
    size_t probed_with;     /* subscribers when the lookup was sent */
    int64_t known_us;       /* last lookup of the holder; 0: never */
    int64_t rests_until_us; /* on our clock */
    bool has_holder;
    struct lh_held_lease holder;
    int32_t holder_count;
    int32_t units_free;
    char *owner;
    char *principal;
    bool knows_others;
    /* Upper bound of the scope's waiters that are not our subscribers. */
    int32_t others;
};

void lh_wait_progress_attach(struct lh_acquire *request);
void lh_wait_progress_detach(struct lh_coordinator *c, struct lh_acquire *request);
/* Touches neither the requests nor the timers, which may be theirs. */
void lh_wait_progress_destroy(struct lh_scope *scope);
void lh_wait_progress_on_timer(struct lh_coordinator *c, struct lh_wait_progress *progress);
void lh_wait_progress_deliver(struct lh_coordinator *c);

/* News of a scope. These do nothing for a scope without subscribers. */
void lh_wait_progress_queued(struct lh_coordinator *c, struct lh_acquire *request, int32_t ahead);
void lh_wait_progress_departed(struct lh_coordinator *c, struct lh_scope *scope, int64_t ticket);
void lh_wait_progress_learn(struct lh_coordinator *c, struct lh_scope *scope,
                            const struct lh_held_lease *holder /* may be NULL */, int32_t holder_count,
                            int32_t units_free, int64_t rests_in_us);
void lh_wait_progress_renewed(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us);

#endif
