/* The state of this folder. Times are the earliest ones for the next call. */
#ifndef LH_LEASE_WATCH_WATCHING_H
#define LH_LEASE_WATCH_WATCHING_H

#include "base/heap.h"
#include "base/list.h"

/* A call to the database. A call that was sent before everything began anew is stale: its answer is ignored. */
enum lh_watch_call { LH_WATCH_CALL_NONE, LH_WATCH_CALL_SENT, LH_WATCH_CALL_STALE };

struct lh_watching {
    struct lh_link watches;
    size_t watcher_count;
    struct lh_heap_timer timer;
    bool is_used;     /* there was a watch at some time */
    bool wants_pump;  /* an answer came: lh_watch_pump at the end of this turn */
    bool needs_clear; /* the database's watches must be cleared before any other call */
    int64_t retry_us; /* next try after a refusal */

    enum lh_watch_call adding;

    enum lh_watch_call asking; /* the call for the barrier, or for whether a horizon has settled */
    uint64_t asked_horizon;
    uint64_t horizon; /* horizon of the round; 0: no round */
    int64_t round_us; /* start of the round */
    int64_t poll_us;
    int64_t poll_pause_us;
    int64_t doubt_us;

    enum lh_watch_call taking;
    bool is_in_run; /* more events wait to be taken */
    bool has_news;
    int64_t take_us;
};

#endif
