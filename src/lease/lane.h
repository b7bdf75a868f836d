/*
 * Lanes and their batches. A lane that is free takes the kind whose oldest item is oldest, and everything of that kind
 * up to batch_max; whatever arrives while it is out makes the next batch. Of three lanes and more, renewals leave one
 * to everything else, and everything else leaves one to renewals.
 */
#ifndef LH_LEASE_LANE_H
#define LH_LEASE_LANE_H

#include "base/memory.h"
#include "lease/waiter.h"

struct lh_hook_space;

enum lh_lane_state { LH_LANE_DOWN, LH_LANE_IDLE, LH_LANE_BUSY };

/* One item of an acquire or leave batch, and what became of it. */
struct lh_entry {
    struct lh_waiter *waiter;
    struct lh_acquire_item *acquire; /* one of these two */
    struct lh_leave_item *leave;
    int64_t sent_us;
    bool is_renewal;
    bool is_grant; /* a lease came into being that somebody must take, or it is given back */
    bool is_taken;
};

struct lh_lane {
    struct lh_coordinator *coordinator;
    unsigned index;
    enum lh_lane_state state;
    enum lh_kind kind;
    struct lh_hook_space *space; /* of a hook lane that is at work: whose hooks run */
    bool is_slow;                /* and they were known to be slow */
    bool has_reaps;              /* its last turn was a run of reaps; kind is LH_KIND_COUNT then */
    int64_t rest_us;             /* no reaps before, for others have work */
    bool is_sent;                /* false: the store refused the batch, so its outcome is known */
    size_t n;
    int64_t sent_us;
    void **items;             /* what the store gets */
    struct lh_entry *entries; /* acquires, leaves */
    struct lh_acquire_item *acquires;
    struct lh_leave_item *leaves;
    struct lh_acquire_item **riders; /* of a batch of releases: for who is next, in `entries` and `acquires` */
    size_t rider_count;
    struct lh_arena strings; /* that are asked with: their requests may go before the answer comes */
};

void lh_lanes_create(struct lh_coordinator *c);
void lh_lanes_destroy(struct lh_coordinator *c);
void lh_lanes_dispatch(struct lh_coordinator *c);
bool lh_lanes_could_dispatch(const struct lh_coordinator *c);
void lh_lane_on_up(void *arg, unsigned index);
void lh_lane_on_down(void *arg, unsigned index);
/* Steps of sending: the items, from scopes that are ready, then off. False: refused, and all is back in its place. */
void lh_lane_begin(struct lh_lane *lane, enum lh_kind kind);
void lh_lane_take(struct lh_lane *lane, struct lh_scope *scope, size_t room);
bool lh_lane_send(struct lh_lane *lane);
void lh_lane_set_state(struct lh_lane *lane, enum lh_lane_state state);
/* After the answers were delivered: leases that nobody took are given back. The lane is free then. */
void lh_lane_settle(struct lh_coordinator *c, struct lh_lane *lane);

/* asking.c, leaving.c, direct.c: take what a scope has for a batch with room for `room`; handle the answers. */
void lh_asking_take(struct lh_lane *lane, struct lh_scope *scope, size_t room);
void lh_asking_on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
/* Its first waiter rides with the releases that were just taken of `scope`, where there is one that may. */
void lh_asking_ride(struct lh_lane *lane, struct lh_scope *scope);
void lh_asking_on_riders_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
void lh_leaving_take(struct lh_lane *lane, struct lh_scope *scope, size_t room);
void lh_leaving_on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
void lh_direct_take(struct lh_lane *lane, struct lh_scope *scope, size_t room);
void lh_heartbeats_on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
void lh_releases_on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);

/* Heartbeats and releases whose time to be tried has passed are answered RETRY. */
void lh_direct_expire(struct lh_coordinator *c, struct lh_scope *scope);
void lh_direct_drop(struct lh_coordinator *c, struct lh_scope *scope);
void lh_direct_deliver(struct lh_coordinator *c);
int64_t lh_direct_oldest_us(const struct lh_link *list, enum lh_kind kind); /* LH_NEVER when empty */

/* The contention that an answer tells of. */
void lh_contention_of_acquire(const struct lh_acquire_item *item, struct lh_contention *contention);

#endif
