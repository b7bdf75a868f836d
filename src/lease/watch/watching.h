/* The state of this folder. Times: not before. */
#ifndef LH_LEASE_WATCH_WATCHING_H
#define LH_LEASE_WATCH_WATCHING_H

#include "base/heap.h"
#include "base/list.h"

struct lh_watching {
    struct lh_link watches;
    size_t watcher_count;
    struct lh_heap_timer timer;
    bool is_used;     /* there was a watch at some time */
    bool wants_pump;  /* an answer came: see what is next at the end of this turn */
    unsigned epoch;   /* a number for each time that everything began anew */
    bool needs_clear; /* in the database, before every other call */
    int64_t retry_us; /* after a refusal */

    bool is_adding;
    unsigned adding_epoch;

    bool is_asking; /* for the barrier, or whether a horizon has settled */
    unsigned asking_epoch;
    uint64_t asked_horizon;
    bool has_round;
    uint64_t horizon; /* of the round */
    int64_t round_us; /* when it began */
    int64_t poll_us;
    int64_t poll_pause_us;
    int64_t doubt_us;

    bool is_taking;
    unsigned taking_epoch;
    bool is_in_run; /* more is to be taken */
    bool has_news;
    int64_t take_us;
};

#endif
