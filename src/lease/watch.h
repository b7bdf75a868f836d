/*
 * Watching the leases under a namespace: a watcher gets every grant and every end once, in order for a scope, whichever
 * coordinator or SQL session made it.
 *
 *     struct lh_watcher watcher = {.ns = "payments", .on_active = ..., .on_event = ..., .on_end = ...};
 *     status = lh_coordinator_watch(coordinator, &watcher);       refused: no callback ever fires
 *
 * on_active: the watcher misses no event from now on. on_event: after that, any number of times. on_end: once, unless
 * lh_coordinator_unwatch came before; the watcher is the caller's again then. LH_WATCH_LAGGED: events are missing,
 * begin again. All of them come later, never inside a call, and may unwatch their watcher.
 */
#ifndef LH_LEASE_WATCH_H
#define LH_LEASE_WATCH_H

#include "lease/coordinator.h"

struct lh_watcher {
    const char *ns; /* "" is everything; stays in place as long as the watcher */
    bool include_children;
    void (*on_active)(struct lh_watcher *watcher);
    /* `event` lives until it returns. */
    void (*on_event)(struct lh_watcher *watcher, const struct lh_lease_event *event);
    void (*on_caught_up)(struct lh_watcher *watcher);
    void (*on_end)(struct lh_watcher *watcher, enum lh_status status);
    void *arg;

    struct { /* the coordinator's */
        struct lh_link link;
        bool is_active;
        bool is_doubtful; /* active, although the horizon it waited for has not settled */
        enum { LH_CATCH_UP_NO, LH_CATCH_UP_WANTED, LH_CATCH_UP_TAKING } catch_up;
    } own;
};

/* Starts a watch. Refused: LH_OVERLOADED, LH_DATABASE_UNAVAILABLE, LH_SHUTTING_DOWN; LH_UNIMPLEMENTED if the store
   has no watches. */
enum lh_status lh_coordinator_watch(struct lh_coordinator *coordinator, struct lh_watcher *watcher);
void lh_coordinator_unwatch(struct lh_coordinator *coordinator, struct lh_watcher *watcher);

/* Calls on_caught_up of an active watcher once, after every event that was committed before this call. */
void lh_coordinator_catch_up(struct lh_coordinator *coordinator, struct lh_watcher *watcher);

#endif
