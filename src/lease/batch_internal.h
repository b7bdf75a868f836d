/* Lanes, the scheduler of their batches, and the operations whose items the batches have. */
#ifndef LH_LEASE_BATCH_INTERNAL_H
#define LH_LEASE_BATCH_INTERNAL_H

#include "base/memory.h"
#include "lease/coordinator_internal.h"

struct lh_hook_queue;

/*
 * --- lane.c ---
 *
 * Lanes: each takes one batch at a time to the store. A lane is down until the store says that it is up; idle; busy
 * with one batch until the store answers it.
 */

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
    bool is_waited_for;      /* somebody waits for one of its scopes */
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
void lh_lane_note_answered(struct lh_lane *lane); /* learns the trip time, and who may ask again at once */
/* Returns true if `ready` items of this kind should wait instead of taking an idle lane: for a batch in flight, or for
   those who may ask again at once. */
bool lh_lanes_keep(const struct lh_coordinator *c, enum lh_kind kind, size_t ready);

/*
 * --- batch_scheduler.c ---
 *
 * The kinds take turns: an idle lane takes the kind whose last batch was sent longest ago, and all
 * ready items of that kind up to batch_max, of different clients in turn. Items that arrive while the batch is out make
 * the next one. If enough releases and acquires are ready at once, the acquires ride: they go behind the releases, in
 * one transaction with them. Acquires and releases share a lane as long as that is quicker (lane.c). With three lanes
 * or more, renewals leave one lane to the other kinds, and the other kinds leave one to renewals.
 */

void lh_batches_dispatch(struct lh_coordinator *c);
bool lh_batches_could_dispatch(const struct lh_coordinator *c);
void lh_batch_on_lane_up(void *arg, unsigned index);
void lh_batch_on_lane_down(void *arg, unsigned index);

/* Steps of a batch, for both schedulers, after lh_lane_begin. lh_batch_take adds items of the scope; it returns
   false if no item of it may go now. lh_batch_send returns false if the store refused the batch; its items are back
   in their scopes then. */
bool lh_batch_take(struct lh_lane *lane, enum lh_kind kind, struct lh_scope *scope, size_t room);
bool lh_batch_send(struct lh_lane *lane, lh_store_cb *on_done);
/* Hands the answer to the batch's operation. The lane stays busy until lh_batch_finish. */
void lh_batch_answer(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
/* Releases the grants of the answered batch that no caller took, and frees its lane. Call it after callers were
   answered. */
void lh_batch_finish(struct lh_coordinator *c);

/* --- acquire_batch.c: acquires, and riders, which are acquires in the transaction of releases --- */

extern const struct lh_operation lh_acquire_operation;

/* Puts an acquire for the first waiter of `scope` behind the releases of the scope in the lane's batch. Does nothing
   if no waiter may be asked for now. */
void lh_acquire_ride(struct lh_lane *lane, struct lh_scope *scope);
void lh_acquire_on_riders_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);

/* Parts for acquire_all. lh_acquire_write fills item `place` of the lane's batch for the requests of `waiter`;
   lh_acquire_on_answer and lh_acquire_on_error apply the answer of an item to these requests. */
void lh_acquire_write(struct lh_lane *lane, size_t place, struct lh_waiter *waiter, struct lh_scope *scope,
                      int32_t units, int64_t at_least_us);
const struct lh_acquire *lh_acquire_newest(const struct lh_waiter *waiter);
void lh_acquire_on_answer(struct lh_lane *lane, struct lh_entry *entry);
void lh_acquire_on_error(struct lh_lane *lane, struct lh_entry *entry, enum lh_status status,
                         const struct lh_error *error);

/* --- acquire_all.c: several scopes for one request, in one call; see queue/together.h --- */

extern const struct lh_operation lh_acquire_all_operation;

/* --- dequeue.c: leaving, which takes a waiter out of the queue in the database --- */

extern const struct lh_operation lh_dequeue_operation;

/* --- holder_op.c: heartbeat, release and downgrade --- */

extern const struct lh_operation lh_heartbeat_operation, lh_release_operation, lh_downgrade_operation;

void lh_holder_op_deliver(struct lh_coordinator *c);

#endif
