/*
 * Telling those who asked for it (lh_acquire.on_progress) how their wait stands: once when they are queued, when their
 * place or the holder changed, and in any case before 5 s have passed.
 *
 * The work is bounded, for a hand-off changes the place of everybody: nothing is sent because of it but a sweep, at
 * most one a second for a scope, goes over its tellers in the order of their arrival, so many in one loop turn, and
 * tells those for whom something changed. What is told is what this coordinator knows: the holder as an answer of the
 * database told it, looked up again once for all tellers of a scope before a sweep when that is old; the place as the
 * last answer told it, less those ahead that are known to have gone.
 */
#ifndef LH_LEASE_PROGRESS_H
#define LH_LEASE_PROGRESS_H

#include "lease/scope.h"

/* Of a request; there while it is attached to its waiter. */
struct lh_teller {
    struct lh_link link;    /* in lh_progress.tellers */
    struct lh_link telling; /* in lh_coordinator.telling */
    struct lh_acquire *request;
    int64_t told_us; /* 0: never */
    int64_t told_token;
    int32_t told_place;
    int32_t ahead;       /* when it was queued last */
    uint32_t heads_then; /* lh_progress.heads_gone then */
    bool is_queued;
};

/* Of a scope; there while it has tellers. */
struct lh_progress {
    struct lh_scope *scope;
    struct lh_heap_timer timer;
    struct lh_link tellers; /* in order of arrival */
    size_t count;
    struct lh_teller *next; /* where the sweep goes on; NULL: none is going on */
    int32_t rank;           /* of `next` among the tellers */
    int64_t swept_us;       /* when the last sweep began */
    int64_t due_us;         /* when the next one should, as found by the one going on */
    uint32_t heads_gone;    /* first waiters that were granted or left, counted through */
    bool has_changed;       /* something to tell since the last sweep began */

    struct lh_look *look; /* out for us, or NULL */
    bool has_looked;      /* for the sweep that comes next */
    size_t looked_with;   /* tellers when the look went out */
    int64_t known_us;     /* when the holder was told last; 0: not known yet */
    bool has_holder;
    struct lh_lease holder;
    char *owner;
    bool knows_others;
    int32_t others; /* waiters of the scope that are no tellers of ours, at most */
};

void lh_progress_attach(struct lh_coordinator *c, struct lh_acquire *request);
void lh_progress_detach(struct lh_coordinator *c, struct lh_acquire *request);
void lh_progress_destroy(struct lh_coordinator *c, struct lh_scope *scope); /* without touching the requests */
void lh_progress_on_timer(struct lh_coordinator *c, struct lh_progress *progress);
void lh_progress_deliver(struct lh_coordinator *c);

/* What is heard of a scope; all do nothing for one without tellers. */
void lh_progress_queued(struct lh_coordinator *c, struct lh_acquire *request, int32_t ahead);
void lh_progress_departed(struct lh_coordinator *c, struct lh_scope *scope, int64_t ticket);
void lh_progress_learn(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_lease *holder); /* or NULL */
void lh_progress_renewed(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us);

#endif
