/*
 * The coordinator decides which caller waits for which scope, when to ask the store again, and what to answer. It makes
 * no system call; store, clock and timer are handed in, so a test can run it on a virtual clock.
 *
 *     request->on_done = on_acquired;
 *     status = lh_coordinator_acquire(coordinator, request);   refused: on_done never fires
 *
 * The story of an acquire: it joins its scope's line in order of arrival (queue/request.c, waiter.c), and the scope is
 * ready (scope.c, ready.c). At the end of a turn (coordinator.c) the next free lane takes it along in a batch
 * (batch_scheduler.c, acquire_batch.c). Granted, it is answered (request.c). Queued, it sleeps without timer, connection
 * or write of its own, until a wake-up, the holder's expiry (holder_liveness.c) or the slow poll (registration.c) asks
 * for the first of its scope again. Busy, the first of the scope is retried after 1 ms doubling to 50 ms (scope.c) and
 * the rest ride along. When a wait has passed, or on a cancel or shutdown, the waiter leaves the queue in the database
 * first (dequeue.c); its request is answered then. Each request gets exactly one answer.
 */
#ifndef LH_LEASE_COORDINATOR_H
#define LH_LEASE_COORDINATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/histogram.h"
#include "base/list.h"
#include "base/status.h"
#include "base/table.h"
#include "lease/store.h"
#include "lease/types.h"

struct lh_coordinator;

/* The clock, the timer and the random numbers that the coordinator uses. */
struct lh_coordinator_port {
    int64_t (*now_us)(void *arg); /* a clock that never steps; CLOCK_BOOTTIME */
    /* Calls lh_coordinator_on_timer at `at_us` or soon after; replaces the timer before. LH_NEVER: no timer. */
    void (*set_timer)(void *arg, int64_t at_us);
    uint32_t (*random)(void *arg); /* jitter */
    /* Returns true while disconnects of callers were not read yet. No waiter is asked for then; the next turn calls
       it again. NULL: never behind. */
    bool (*is_behind)(void *arg);
    /* News is expected before `at_us`, and worth some CPU to be noticed at once; 0: no more. NULL: never. */
    void (*poll_until)(void *arg, int64_t at_us);
    void *arg;
};

struct lh_coordinator_options {
    int64_t max_block_us;  /* longer waits are answered BLOCKING_TIMEOUT; 0: no limit. Default 20 s */
    int64_t busy_limit_us; /* longest retry of a busy row; default 1 s */
    /* A session that guards a lease for longer is ended; 0: no limit. Default 60 s. */
    int64_t max_guard_us;
    int64_t reap_interval_us; /* default 1 s; 0: no reaper tick */
    size_t max_waiters;       /* acquires beyond it are refused OVERLOADED; default 200,000 */
    /* Bound of items accepted and not answered, without waiters; default 200,000. A quarter of them is for
       heartbeats and releases alone. */
    size_t max_pending;
    size_t max_watchers; /* watchers beyond it are refused OVERLOADED (watch.h); default 1000 */
    /* Bound of scopes that wait for a hook lane; requests beyond it are refused OVERLOADED; default 10,000. */
    size_t max_hooked;
    size_t batch_max; /* default LH_BATCH_MAX */
};

void lh_coordinator_options_init(struct lh_coordinator_options *options);

struct lh_coordinator *lh_coordinator_create(struct lh_store *store, const struct lh_coordinator_port *port,
                                             const struct lh_coordinator_options *options);
void lh_coordinator_start(struct lh_coordinator *coordinator); /* starts the store too */
/* Answers waiters SHUTTING_DOWN (their places are kept for 10 s), lets batches in flight finish, stops the store;
   then calls on_done. */
void lh_coordinator_stop(struct lh_coordinator *coordinator, void (*on_done)(void *arg), void *arg);
/* Frees the coordinator. Call it after, or inside of, the on_done of stop. Without a stop (after a crash in a test)
   no request is answered. */
void lh_coordinator_destroy(struct lh_coordinator *coordinator);
void lh_coordinator_on_timer(struct lh_coordinator *coordinator);
/* Set a limit for the calls from now on. */
void lh_coordinator_set_max_block(struct lh_coordinator *coordinator, int64_t max_block_us);
void lh_coordinator_set_max_guard(struct lh_coordinator *coordinator, int64_t max_guard_us);

enum lh_wait {
    LH_WAIT_NONE,
    LH_WAIT_TIME,          /* at most wait_us */
    LH_WAIT_UNTIL_GRANTED, /* until granted, canceled, or max_block */
    LH_WAIT_WHILE_ALIVE,   /* as long as the holder is ALIVE; wait_us counts from when it is not */
};

/* The batch that brought an answer. */
struct lh_batch_record {
    int64_t sent_us; /* on the port's clock; 0: answered without a batch */
    int64_t answered_us;
    size_t items;
    bool is_hooked; /* on a hook lane */
};

/* The answer to an acquire. Its strings live until on_done returns. */
struct lh_acquire_result {
    /* LH_OK: see `lease`. LEASE_HELD, WAIT_TIMEOUT, BLOCKING_TIMEOUT: see `contention`, if known. */
    enum lh_status status;
    const struct lh_held_lease *lease;
    bool is_renewal;
    int64_t waited_us; /* from arrival to just before the granting statement was sent */
    /* LH_OK, request with `also`: the lease of each scope, in the request's order. */
    const struct lh_acquire_item *all;
    size_t about; /* not granted: index of the scope that the answer is about */
    struct lh_batch_record batch;
    const struct lh_contention *contention;
    const char *message; /* the database's or a hook's words, or NULL */
    const char *field;   /* INVALID_ARGUMENT: the field, and its limit in words */
    const char *bound;
};

struct lh_acquire;
/* Callbacks come later, never inside a call, and may make every call but lh_coordinator_destroy and
   lh_coordinator_on_timer. In on_done the request may be freed. */
typedef void lh_acquire_cb(struct lh_acquire *acquire, const struct lh_acquire_result *result);
/* Tells how the wait stands: when the request is queued, when its place or the holder changed (at most once a
   second), and at least every 5 s; any number of times, before on_done. `contention` lives until the callback
   returns. */
typedef void lh_progress_cb(struct lh_acquire *acquire, const struct lh_contention *contention);

/* A scope that is acquired together with others. */
struct lh_wanted_scope {
    const char *ns;
    const char *key;
    int32_t units; /* units and at_least_us as in lh_acquire */
    int64_t at_least_us;
};

/* A request for a lease. The caller owns it, and leaves it and everything it points to in place until on_done is
   called. */
struct lh_acquire {
    const char *ns;
    const char *key;
    struct lh_uuid lease_key;
    struct lh_acquire_terms terms;
    int32_t units;       /* units of a shared lease; 0: exclusive */
    int64_t at_least_us; /* the minimum hold; LH_AT_LEAST_POLICY: the policy's */
    /* More scopes: all are granted in one transaction, under this lease key, or none. At most LH_ALL_ITEMS_MAX with
       the one above, none of them twice. Not with LH_WAIT_WHILE_ALIVE nor on_progress. */
    const struct lh_wanted_scope *also;
    size_t also_count;
    enum lh_wait wait;
    int64_t wait_us;
    bool asks;       /* while it waits, each holder is asked once to hand over; not with `also` */
    uint64_t client; /* acquires of different clients are taken in turn; 0: no client */
    lh_acquire_cb *on_done;
    /* NULL, or the callback. A request that has one is exempt from max_block: its connection has traffic. */
    lh_progress_cb *on_progress;
    void *arg;

    struct { /* the coordinator's */
        struct lh_link link;
        struct lh_heap_timer timer;
        struct lh_waiter *waiter;
        struct lh_link asking;            /* link of those that have `asks` */
        struct lh_subscriber *subscriber; /* NULL without on_progress */
        struct lh_entry *entry;           /* the item of the batch that answers the request, or NULL */
        const char *message;
        int64_t arrived_us;
        int64_t wait_until_us;
        int64_t block_until_us;
        bool looks_again; /* then it is asked for again, and not answered */
        /* The answer unless it is granted; LH_OK: the request goes on waiting. */
        enum lh_status verdict;
        bool is_answering;
        bool is_fresh; /* came while its waiter was leaving: asked for after the leave */
    } own;
};

/* Asks for a lease: on_done gets the answer. Refused (on_done never fires): OVERLOADED, SHUTTING_DOWN,
   DATABASE_UNAVAILABLE; INVALID_ARGUMENT while another request with this lease key asks for another mode, other
   units or other scopes. */
enum lh_status lh_coordinator_acquire(struct lh_coordinator *coordinator, struct lh_acquire *acquire);

/* Cancels a request whose caller is gone. on_done fires later with LH_CANCELED, or with the answer that is on its
   way already; a lease granted meanwhile is released again. */
void lh_coordinator_cancel(struct lh_coordinator *coordinator, struct lh_acquire *acquire);

/* Answers a request whose key is leaving this database: on_done fires later with LH_DATABASE_UNAVAILABLE, or with the answer
   that is on its way already. Its caller comes back with the same lease key, so a lease granted meanwhile stays. */
void lh_coordinator_send_back(struct lh_coordinator *coordinator, struct lh_acquire *acquire);

/* One item of a heartbeat, release or downgrade. A request is answered when all its items are; an item of a busy row
   or a lost batch ends as RETRY. */
struct lh_holder_entry {
    /* In: ns, key, lease_key and a release's value; out: outcome and the fields behind it. item.message lives until
       on_done returns, or is NULL. */
    struct lh_holder_item item;
    bool skip; /* the caller has set the outcome (INVALID): the item is left alone */
    struct {   /* the coordinator's */
        struct lh_link link;
        struct lh_scope *scope;
        struct lh_holder_request *request;
        int64_t arrived_us;
        bool is_unknown; /* an earlier reply was lost */
    } own;
};

/* A request of heartbeats, of releases, or of one downgrade. */
struct lh_holder_request {
    struct lh_holder_entry *items;
    size_t count;
    void (*on_done)(struct lh_holder_request *request);
    void *arg;
    struct lh_batch_record batch; /* out: the batch of the item that was answered last */
    struct {                      /* the coordinator's */
        struct lh_link link;
        size_t open;                        /* items not answered yet */
        struct lh_holder_message *messages; /* messages of its items */
    } own;
};

/* Send the items of a request; on_done fires later, with no open item too. The caller leaves the request in place
   until then. Refused: OVERLOADED, SHUTTING_DOWN; DATABASE_UNAVAILABLE before the start. */
enum lh_status lh_coordinator_heartbeat(struct lh_coordinator *coordinator, struct lh_holder_request *request);
enum lh_status lh_coordinator_release(struct lh_coordinator *coordinator, struct lh_holder_request *request);
/* Sends a downgrade: one item, with item.downgrade. The strings of the lease in it live until on_done returns.
   Outcome LOST: the lease is not held. */
enum lh_status lh_coordinator_downgrade(struct lh_coordinator *coordinator, struct lh_holder_request *request);

/*
 * Access rules: the coordinator calls on_rules with all rules within a second of each change, never from inside of a
 * call. With needs_rules it is not ready before the first time. Call both before the start.
 */
typedef void lh_rules_cb(void *arg, const struct lh_access_answer *answer);
void lh_coordinator_on_rules(struct lh_coordinator *coordinator, lh_rules_cb *on_rules, void *arg);
void lh_coordinator_need_rules(struct lh_coordinator *coordinator, bool needs_rules);
/* Reads the rules again, by a statement that is sent after this; one such call at a time. on_done fires after on_rules,
   or if they could not be read. Refused: DATABASE_UNAVAILABLE. */
enum lh_status lh_coordinator_reload_rules(struct lh_coordinator *coordinator, void (*on_done)(void *arg), void *arg);

/*
 * Rows of spread namespaces: read each second, when the database says that they have changed, and when it answers that a
 * key is in another database. The coordinator calls on_spread after each read, never from inside of a call. Call it before
 * the start; without it nothing is read.
 */
typedef void lh_spread_cb(void *arg, const struct lh_spread_answer *answer);
void lh_coordinator_on_spread(struct lh_coordinator *coordinator, lh_spread_cb *on_spread, void *arg);
/* Reads them again now, or when the read under way has ended. */
void lh_coordinator_read_spread(struct lh_coordinator *coordinator);

/*
 * Requests to hand a lease over, from memory: read again each second and when the database says that there are new ones. The
 * coordinator calls on_asked for each of them after each change, never from inside of a call; set it before the start.
 */
typedef void lh_asked_cb(void *arg, const struct lh_hand_over *asked);
void lh_coordinator_on_asked(struct lh_coordinator *coordinator, lh_asked_cb *on_asked, void *arg);
/* Returns the request to the holder with this token, or NULL. It is valid until the next turn of the loop. */
const struct lh_hand_over *lh_coordinator_asked(struct lh_coordinator *coordinator, const char *ns, const char *key,
                                                int64_t token);
/* The same to the holder with this lease key, whatever its token. */
const struct lh_hand_over *lh_coordinator_asked_under(struct lh_coordinator *coordinator, const char *ns,
                                                      const char *key, const struct lh_uuid *lease_key);

/* Looks for waiters of a scope whose lease this daemon ended outside of the coordinator (an administrator's reap). */
void lh_coordinator_wake(struct lh_coordinator *coordinator, const char *ns, const char *key);

/* Counts for GetStatus, health and metrics. */
struct lh_coordinator_stats {
    size_t waiters;
    size_t pending;
    uint64_t grants;
    uint64_t shared_grants; /* included in grants */
    uint64_t renewals;
    uint64_t heartbeats;
    uint64_t losses[LH_END_REASONS]; /* by enum lh_end_reason */
    uint64_t releases;
    uint64_t downgrades;
    uint64_t reaped;
    uint64_t reap_failures;
    uint64_t batches[6]; /* acquire, heartbeat, release, leave, downgrade, acquire_all */
    uint64_t busy;
    uint64_t wakes;
    uint64_t refused;         /* calls refused at a bound */
    uint64_t refused_waiters; /* included in refused: at max_waiters; the others are at max_pending */
    uint64_t refused_watchers;
    size_t watchers;
    size_t max_watchers;
    size_t hooked; /* scopes that wait for a hook lane */
    size_t max_hooked;
    uint64_t refused_hooked;
    size_t reaps; /* leases whose reap hooks are to run */
    size_t max_reaps;
    uint64_t refused_reaps;
    /* Calls on hook lanes: acquire, heartbeat, release, leave, downgrade, acquire_all, reap; hook_us is in
       lh_latency_bounds. */
    uint64_t hook_calls[7];
    uint64_t hook_rejections[7]; /* timeouts too */
    uint64_t hook_timeouts[7];
    struct lh_histogram hook_us[7];
    uint64_t hook_losses;  /* connections that were lost while hooks ran */
    uint64_t watch_events; /* events sent to watchers */
    uint64_t watch_lags;   /* watchers that were ended with WATCH_LAGGED */
    size_t scopes;         /* in memory */
    size_t max_waiters;
    size_t max_pending;
    struct lh_histogram batch_sizes[6]; /* in lh_size_bounds */
    struct lh_histogram batch_us[6];    /* in lh_latency_bounds */
    int64_t survey_us;                  /* our clock when the database was last surveyed; 0: never */
    int64_t held;                       /* leases held at that time */
    /* Age at that time of the transaction that holds back vacuum; 0: no such transaction, -1: unknown. */
    int64_t oldest_us;
    uint64_t guards_ended;   /* sessions ended because they guarded a lease for longer than max_guard */
    size_t guards_overdue;   /* sessions that guard for longer and could not be ended, at the last look */
    int64_t clock_offset_us; /* database clock - our clock, at the last tick */
    int64_t last_tick_us;    /* our clock at the last answered tick; 0: never */
};
void lh_coordinator_stats(const struct lh_coordinator *coordinator, struct lh_coordinator_stats *stats);
struct lh_store *lh_coordinator_store(struct lh_coordinator *coordinator);

#endif
