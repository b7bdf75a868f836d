/*
 * Progress for the requests that subscribe to it (lh_acquire.on_progress): when they are queued, when their place or
 * the holder changed, and at least every 5 s.
 *
 * The work is bounded, because a hand-off changes the place of every waiter. It sends nothing by itself. At most once a
 * second a sweep visits the subscribers of a scope in the order of their arrival, so many in one loop turn, and sends
 * what changed. It sends what this coordinator knows: the holder of the last answer of the database, looked up again
 * once for all subscribers of a scope when it is old; and the place of the last answer, less the waiters ahead that
 * have gone since.
 */
#ifndef LH_LEASE_QUEUE_WAIT_PROGRESS_H
#define LH_LEASE_QUEUE_WAIT_PROGRESS_H

#include "lease/queue/scope.h"

/* Of a request; there while it is attached to its waiter. */
struct lh_subscriber {
    struct lh_link link;    /* in lh_wait_progress.subscribers */
    struct lh_link telling; /* in lh_coordinator.telling */
    struct lh_acquire *request;
    int64_t told_us; /* 0: never */
    int64_t told_token;
    int32_t told_place;
    int32_t ahead;       /* when it was queued last */
    uint32_t heads_then; /* lh_wait_progress.heads_gone then */
    bool is_queued;
};

/* Of a scope; there while it has subscribers. */
struct lh_wait_progress {
    struct lh_scope *scope;
    struct lh_heap_timer timer;
    struct lh_link subscribers; /* in order of arrival */
    size_t count;
    struct lh_subscriber *next; /* where the sweep goes on; NULL: none is going on */
    int32_t rank;               /* of `next` among the subscribers */
    int64_t swept_us;           /* when the last sweep began */
    int64_t due_us;             /* when the next one should, as found by the one going on */
    uint32_t heads_gone;        /* first waiters that were granted or left, counted through */
    bool has_changed;           /* something to tell since the last sweep began */

    struct lh_probe *probe; /* out for us, or NULL */
    bool has_probed;        /* for the sweep that comes next */
    size_t probed_with;     /* subscribers when the probe went out */
    int64_t known_us;       /* when the holder was last looked up; 0: not known yet */
    int64_t rests_until_us; /* on our clock */
    bool has_holder;
    struct lh_held_lease holder;
    int32_t holder_count;
    int32_t units_free;
    char *owner;
    char *principal;
    bool knows_others;
    int32_t others; /* waiters of the scope that are no subscribers of ours, at most */
};

void lh_wait_progress_attach(struct lh_acquire *request);
void lh_wait_progress_detach(struct lh_coordinator *c, struct lh_acquire *request);
void lh_wait_progress_destroy(struct lh_coordinator *c, struct lh_scope *scope); /* without touching the requests */
void lh_wait_progress_on_timer(struct lh_coordinator *c, struct lh_wait_progress *progress);
bool lh_wait_progress_is_due(const struct lh_coordinator *c);
void lh_wait_progress_deliver(struct lh_coordinator *c);

/* What is heard of a scope; all do nothing for one without subscribers. */
void lh_wait_progress_queued(struct lh_coordinator *c, struct lh_acquire *request, int32_t ahead);
void lh_wait_progress_departed(struct lh_coordinator *c, struct lh_scope *scope, int64_t ticket);
void lh_wait_progress_learn(struct lh_coordinator *c, struct lh_scope *scope,
                            const struct lh_held_lease *holder /* or NULL */, int32_t holder_count, int32_t units_free,
                            int64_t rests_in_us);
void lh_wait_progress_renewed(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us);

#endif
