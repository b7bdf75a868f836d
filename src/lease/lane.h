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

/* One item of an acquire or leave batch, and what became of it. */
struct lh_entry {
    struct lh_waiter *waiter;          /* whose requests it answers */
    struct lh_scope *scope;            /* that the answer is about */
    const struct lh_acquire_item *all; /* of several scopes: the items of them all */
    struct lh_acquire_item *acquire;   /* one of these two */
    struct lh_leave_item *leave;
    int64_t sent_us;
    bool is_renewal;
    bool is_grant; /* it granted a lease: a request takes it, or it is released */
    bool is_taken;
};

struct lh_lane {
    struct lh_coordinator *coordinator;
    unsigned index;
    enum lh_lane_state state;
    enum lh_kind kind;                /* of its batch, or of its last one */
    struct lh_hook_queue *hook_queue; /* of a hook lane that is at work: whose hooks run */
    bool is_slow;                     /* and they were known to be slow */
    bool is_sent;                     /* false: the store refused the batch, so its outcome is known */
    int64_t hook_timeout_us;          /* of a hook lane; 0: no limit */
    int64_t rest_us;                  /* no reaps before, for others have work */
    size_t n;
    int64_t sent_us;
    struct lh_heap_timer late_timer; /* when its batch is late (lane.c) */
    void **items;                    /* what the store gets */
    struct lh_entry *entries;        /* acquires, leaves */
    struct lh_acquire_item *acquires;
    struct lh_leave_item *leaves;
    struct lh_acquire_item **riders; /* acquires behind a batch of releases, in `entries` and `acquires` */
    size_t rider_count;
    struct lh_arena strings; /* of its items: their requests may end before the answer comes */
};

void lh_lanes_create(struct lh_coordinator *c);
void lh_lanes_destroy(struct lh_coordinator *c);
void lh_lane_set_state(struct lh_lane *lane, enum lh_lane_state state);
/* Empties it for a batch of this kind. */
void lh_lane_begin(struct lh_lane *lane, enum lh_kind kind);

bool lh_lanes_are_up(const struct lh_coordinator *c); /* one at least */
bool lh_lanes_have_hook_lane(const struct lh_coordinator *c);
bool lh_lanes_are_quiet(const struct lh_coordinator *c); /* nothing is in flight */
struct lh_lane *lh_lanes_idle(const struct lh_coordinator *c);

/* Acquires and releases are items of one batch, where enough of both is ready. */
static inline bool lh_lane_is_for_both(enum lh_kind kind)
{
    return kind == LH_KIND_ACQUIRE || kind == LH_KIND_RELEASE;
}

/* Are so many of them enough, so that they do not rather go on two lanes at once? */
bool lh_lane_is_worth(const struct lh_coordinator *c, size_t items);
void lh_lane_note_sent(struct lh_lane *lane);
void lh_lane_note_trip(const struct lh_lane *lane); /* its batch was answered */
/* Do so many that are ready wait for a batch that is out? */
bool lh_lanes_keep(const struct lh_coordinator *c, enum lh_kind kind, size_t ready);

#endif
