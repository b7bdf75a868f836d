/*
 * Lanes: each takes one batch at a time to the store. A lane is down until the store says that it is up; idle; busy
 * with one batch until the store answers it.
 */
#ifndef LH_LEASE_LANE_H
#define LH_LEASE_LANE_H

#include "base/memory.h"
#include "lease/coordinator_internal.h"

struct lh_hook_queue;

enum lh_lane_state { LH_LANE_DOWN, LH_LANE_IDLE, LH_LANE_BUSY };

/* One item of an acquire or leave batch, and its result. */
struct lh_entry {
    struct lh_waiter *waiter;          /* the answer goes to its requests */
    struct lh_scope *scope;            /* the scope that the answer is about */
    const struct lh_acquire_item *all; /* the items of all scopes, if the waiter is for several */
    struct lh_acquire_item *acquire;   /* one of these two is set */
    struct lh_leave_item *leave;
    int64_t sent_us;
    bool is_renewal;
    /* The item granted a lease: a request takes it, or it is released. */
    bool is_grant;
    bool is_taken;
};

struct lh_lane {
    struct lh_coordinator *coordinator;
    unsigned index;
    enum lh_lane_state state;
    enum lh_kind kind;                /* kind of its batch, or of its last one */
    struct lh_hook_queue *hook_queue; /* hook lane at work: the queue whose hooks run */
    bool is_slow;                     /* hook lane at work: its hooks were known to be slow */
    /* The batch was sent; otherwise the store refused it, so its outcome is known. */
    bool is_sent;
    int64_t hook_timeout_us; /* limit of a hook lane's call; 0: no limit */
    int64_t rest_us;         /* takes no reaps before this time, because other work waits */
    size_t n;
    int64_t sent_us;
    struct lh_heap_timer late_timer; /* fires when its batch is late (lane.c) */
    void **items;                    /* the items as the store gets them */
    struct lh_entry *entries;        /* results of acquires and leaves */
    struct lh_acquire_item *acquires;
    struct lh_leave_item *leaves;
    struct lh_acquire_item **riders; /* acquires behind a batch of releases, in `entries` and `acquires` */
    size_t rider_count;
    struct lh_arena strings; /* strings of its items: their requests may end before the answer comes */
};

void lh_lanes_create(struct lh_coordinator *c);
void lh_lanes_destroy(struct lh_coordinator *c);
void lh_lane_set_state(struct lh_lane *lane, enum lh_lane_state state);
/* Empties the lane for a batch of this kind. */
void lh_lane_begin(struct lh_lane *lane, enum lh_kind kind);

bool lh_lanes_are_up(const struct lh_coordinator *c); /* at least one lane is up */
bool lh_lanes_have_hook_lane(const struct lh_coordinator *c);
bool lh_lanes_are_quiet(const struct lh_coordinator *c); /* no batch is in flight */
struct lh_lane *lh_lanes_idle(const struct lh_coordinator *c);

/* Returns true for the kinds that may share a batch: acquires and releases. */
static inline bool lh_lane_is_for_both(enum lh_kind kind)
{
    return kind == LH_KIND_ACQUIRE || kind == LH_KIND_RELEASE;
}

/* Returns true if so many acquires and releases are quicker in one batch than on two lanes at once. */
bool lh_lane_is_worth(const struct lh_coordinator *c, size_t items);
void lh_lane_note_sent(struct lh_lane *lane);
void lh_lane_note_trip(const struct lh_lane *lane); /* learns the trip time from the answered batch */
/* Returns true if `ready` items of this kind should wait for a batch in flight instead of taking an idle lane. */
bool lh_lanes_keep(const struct lh_coordinator *c, enum lh_kind kind, size_t ready);

#endif
