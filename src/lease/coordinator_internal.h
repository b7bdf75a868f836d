/*
 * The ground that every file of this directory stands on: the kinds of operations, the coordinator's state, the turn.
 * queue/, hooks/ and watch/ have state of their own; no file outside of them touches its fields.
 */
#ifndef LH_LEASE_COORDINATOR_INTERNAL_H
#define LH_LEASE_COORDINATOR_INTERNAL_H

#include "base/clock.h"
#include "lease/coordinator.h"
#include "lease/readiness.h"

/*
 * A kind of operation as a row of functions. The queue, the batch scheduler and the hook scheduler call operations
 * through their rows only (lh_coordinator.operations), so none of them knows what an operation means.
 */

struct lh_lane;
struct lh_scope;

/* Returns true for the kinds that ask for a lease. */
static inline bool lh_kind_asks(enum lh_kind kind)
{
    return kind == LH_KIND_ACQUIRE || kind == LH_KIND_ACQUIRE_ALL;
}

struct lh_operation {
    const char *name;
    /* Returns when the oldest item of the scope came; LH_NEVER without an item. */
    int64_t (*oldest_us)(const struct lh_scope *scope, enum lh_kind kind);
    /* Returns the client of the oldest item, so that clients take turns; 0: no client. NULL: items of this kind need
       no turns. */
    uint64_t (*client_of)(const struct lh_scope *scope);
    /* Puts at most `room` items of the scope into the lane's batch, or none if they may not go yet. A reap takes
       from the lane's hook queue instead. */
    void (*take)(struct lh_lane *lane, struct lh_scope *scope, size_t room);
    /* Applies the answer of the batch, or the refusal if it was never sent (lane->is_sent is false). */
    void (*on_done)(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
    /* Answers RETRY to the items of the scope that came until arrived_us. NULL: items of this kind wait without a
       limit. */
    void (*retry_until)(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t arrived_us);
    /* Returns true if no other item of the scope may begin now. NULL: never. */
    bool (*holds_back)(const struct lh_scope *scope);
    bool is_alone; /* a batch has the items of one `take` only */
};

enum lh_timer_kind {
    LH_TIMER_REQUEST,
    LH_TIMER_SCOPE,
    LH_TIMER_TOGETHER,
    LH_TIMER_TICK,
    LH_TIMER_REAP,
    LH_TIMER_STOP,
    LH_TIMER_PROGRESS,
    LH_TIMER_WATCH,
    LH_TIMER_HOOK,
    LH_TIMER_LANE
};

enum lh_core_state {
    LH_CORE_CREATED,
    LH_CORE_RUNNING,
    LH_CORE_STOPPING, /* accepts no call; answers the accepted ones */
    LH_CORE_CLOSING,  /* the store is stopping; no more batches */
    LH_CORE_STOPPED,
};

/* --- state of the files of this directory --- */

/* State of database.c. */
#define LH_PASSED_ON_MAX 64
enum lh_database_state { LH_DATABASE_DOWN, LH_DATABASE_UP, LH_DATABASE_REGISTERED };
struct lh_database {
    enum lh_database_state state;
    bool knows_clock;
    int64_t offset_us; /* the database's clock - ours */
    /* Round trip of the answer that offset_us comes from. It is aged, so that an old answer is replaced in time. */
    int64_t rtt_us;
    struct lh_passed_on { /* wake-ups passed on lately, by hash of the scope */
        uint64_t hash;
        int64_t at_us;
    } passed_on[LH_PASSED_ON_MAX];
};

/* State of registration.c. */
struct lh_registration {
    struct lh_heap_timer timer;
    bool is_enrolling;
    bool is_ticking;
    int64_t sent_us;         /* time when the enrolment or tick in flight was sent */
    unsigned unheard;        /* ticks that came due since the last answer */
    unsigned without_lane;   /* ticks in a row at which no lane was up */
    bool has_seen_lane;      /* a lane was up at a tick since the control connection came up */
    struct lh_error refusal; /* the error of the last enrolment or tick, if it failed */
    int64_t refusal_told_us;
};

/* State of readiness.c, before the start. */
struct lh_starting {
    const char *lack; /* NULL: it serves once it has started */
    const char *phase;
    char trouble[LH_READY_WORDS_BYTES];
    char cause[LH_READY_CAUSE_BYTES];
};

/* State of tick_looks.c: the survey of the database... */
struct lh_db_stats {
    bool is_out;
    int64_t next_us;   /* not before */
    int64_t warned_us; /* last warning about an old transaction; 0: never */
};

/* ...open guards... */
struct lh_guards {
    bool is_out;
    int64_t next_us;   /* not before */
    int64_t warned_us; /* last warning about a guard that cannot be ended; 0: never */
};

/* ...and access rules. */
struct lh_rule_loading {
    bool is_needed; /* no call is decided without rules */
    bool is_out;
    bool has_loaded;
    int64_t version; /* version of the loaded rules */
    int64_t asked;   /* version that the read in flight was sent for */
    int64_t warned_us;
    lh_rules_cb *on_rules;
    void *arg;
    void (*on_reloaded)(void *arg); /* callback of a reload, until it is over */
    void *reload_arg;
    bool is_reload; /* the read in flight was sent for it */
};

/* ...and rows of spread namespaces. */
struct lh_spread_loading {
    bool is_out;
    bool wants_more;      /* they have changed since the read in flight was sent */
    int64_t elsewhere_us; /* last read because of an outcome; 0: never */
    int64_t read_us;      /* the newest changed_at of the rows in force; 0: none */
    lh_spread_cb *on_spread;
    void *arg;
};

/* State of asked.c. */
struct lh_asked_book {
    bool is_out;
    bool is_asking;
    bool wants_more; /* they have changed since the read in flight was sent */
    int64_t fingerprint;
    struct lh_table requests; /* struct asked_entry, by scope and token */
    struct lh_table by_lease; /* the same, by scope and lease key */
    struct lh_link askers;    /* struct lh_acquire, own.asking */
    lh_asked_cb *on_asked;
    void *arg;
};

/* Trips to the database of the last batches, without the time for their items: see lane.c. */
struct lh_trips {
    int64_t usual_us;    /* mean of small batches; the newest count most */
    int64_t quickest_us; /* in the last full window; LH_NEVER: there was none */
    int64_t window_us;   /* in this window, so far */
    unsigned count;      /* batches in this window */
};

/* Experience: does it pay to expect what may come? */
struct lh_hope {
    unsigned in_vain;      /* occasions to be passed over after one more time for nothing, about half */
    unsigned passing_over; /* occasions */
};

/* Callers who were just answered, and may ask again at once: see lane.c. */
struct lh_gathering {
    size_t wanted; /* acquires and releases; 0: it gathers none */
    int64_t until_us;
    struct lh_hope hope;
};

/* News that is looked for without sleeping: see lane.c. */
struct lh_polling {
    struct lh_hope *expected; /* one of these; NULL: nothing is looked for */
    int64_t until_us;
    struct lh_hope callers;
    struct lh_hope answers;
};

/* State of lane.c. */
struct lh_lanes {
    struct lh_lane *all;
    unsigned count; /* ordinary lanes; hook lanes follow them in `all` */
    unsigned hook_count;
    unsigned up;
    unsigned hook_up;
    unsigned busy;
    uint64_t turn;                  /* number of the last batch */
    uint64_t turns[LH_SCOPE_KINDS]; /* number of the last batch of each kind */
    struct lh_lane *answered;       /* the lane whose batch was answered in this turn */
    struct lh_batch_record record;  /* record of that batch */
    struct lh_trips trips;
    struct lh_gathering gathering;
    struct lh_polling polling;
};

/* State of holder_op.c. */
struct lh_holder_ops {
    struct lh_link done; /* struct lh_holder_request, to be answered */
};

/* State of queue/: scopes, their waiters and requests, and the answers for callers. */

/* A lookup of a scope for its subscribers; see queue/wait_progress.h. */
#define LH_PROBES_MAX 8
struct lh_probe {
    struct lh_coordinator *coordinator;
    struct lh_wait_progress *progress; /* NULL: no subscriber is left */
    bool is_out;
};

/* State of queue/ready.c. */
struct lh_ready {
    struct lh_table clients;              /* struct lh_ready_client, by kind and id */
    struct lh_link turns[LH_SCOPE_KINDS]; /* clients in turn */
    size_t count[LH_SCOPE_KINDS];         /* number of clients */
    size_t scopes[LH_SCOPE_KINDS];        /* number of their scopes */
    bool is_urgent;                       /* one for which somebody waits has joined since the last batch */
};

struct lh_queue {
    struct lh_table scopes;
    struct lh_table waiters; /* by scope and lease key */
    struct lh_ready ready;
    struct lh_link answers; /* acquires to be answered */
    struct lh_link touched; /* struct lh_scope: scheduled at the end of the turn */
    struct lh_link gone;    /* struct lh_waiter: freed at the end of the turn */
    struct lh_link telling; /* struct lh_subscriber: gets its progress at the end of the turn */
    struct lh_link passing; /* wake-ups that are being passed on */
    struct lh_probe probes[LH_PROBES_MAX];
    struct lh_scope *spare_scopes;
    size_t spare_count;
    uint64_t next_seq;
    size_t waiting; /* acquires that wait */
    /* Waiters without a request of their own: it has gone and they leave, or it is at another place. */
    size_t orphans;
};

/* State of hooks/: namespaces with hooks, and the reaper. */

/* Work for the hook lanes; see hooks_internal.h. */
struct lh_hooks {
    struct lh_table queues; /* struct lh_hook_queue, by namespace */
    struct lh_link used;    /* all queues, the longest unused first */
    struct lh_link working; /* queues with scopes in line, in turn */
    struct lh_link reaping; /* queues with reaps in line, in turn */
    size_t waiting;         /* scopes in line */
    struct lh_heap_timer timer;
};

/* The reaper; see lease/reaping.h. */
struct lh_reaping {
    struct lh_table jobs; /* struct lh_reap_job, by scope */
    struct lh_link done;  /* struct lh_reap_request, to be delivered */
    struct lh_heap_timer timer;
    int64_t looked_us;
    bool is_looking;
    bool has_more; /* expired leases are left: look again when the line is short */
};

/* State of watch/. Times are the earliest ones for the next call. */

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

/* The two ends of a turn. */
struct lh_turn {
    void (*end_call)(struct lh_coordinator *c);
    void (*end_event)(struct lh_coordinator *c);
};

struct lh_coordinator {
    struct lh_store *store;
    struct lh_coordinator_port port;
    struct lh_coordinator_options options;
    const struct lh_operation *const *operations; /* by enum lh_kind */
    const struct lh_turn *turn;
    enum lh_core_state state;

    int64_t now_us; /* the time of this turn */
    int turn_depth;
    bool wants_turn; /* a call left work that only the end of an event does */
    struct lh_heap timers;
    int64_t armed_us; /* the time that the port's timer is set to */

    struct lh_starting starting;
    struct lh_database database;
    struct lh_registration registration;
    struct lh_db_stats db_stats;
    struct lh_guards guards;
    struct lh_rule_loading rule_loading;
    struct lh_spread_loading spread_loading;
    struct lh_asked_book asked;
    struct lh_lanes lanes;
    struct lh_queue queue;
    struct lh_hooks hooks;
    struct lh_reaping reaping;
    struct lh_watching watching;
    struct lh_holder_ops holder_ops;
    struct lh_heap_timer stop_timer;

    size_t pending; /* items accepted and not answered, without waiters */
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct lh_coordinator_stats stats;
};

/* --- the turn: coordinator.c does the work of its end and hands it down --- */

static inline void lh_turn_begin(struct lh_coordinator *c)
{
    c->turn_depth++;
    c->now_us = c->port.now_us(c->port.arg);
}

/* Ends a turn that a call of the API began. It delivers no answers. */
static inline void lh_turn_end_call(struct lh_coordinator *c)
{
    if (--c->turn_depth == 0)
        c->turn->end_call(c);
}

/* Ends a turn that a callback or a timer began. The coordinator may be freed in it. */
static inline void lh_turn_end_event(struct lh_coordinator *c)
{
    c->turn->end_event(c);
}

/* Returns true while disconnects wait to be read, as after a stall: read them before granting. */
static inline bool lh_turn_is_behind(const struct lh_coordinator *c)
{
    return c->port.is_behind != NULL && c->port.is_behind(c->port.arg);
}

/* Returns the value with up to `percent` more or less. */
static inline int64_t lh_turn_jitter(struct lh_coordinator *c, int64_t value_us, int percent)
{
    int64_t span_us = value_us / 100 * percent;
    if (span_us <= 0)
        return value_us;
    return value_us - span_us + (int64_t)(c->port.random(c->port.arg) % (uint64_t)(2 * span_us + 1));
}

/* Adds, and stops at LH_NEVER. */
static inline int64_t lh_time_add(int64_t a_us, int64_t b_us)
{
    int64_t sum_us;
    return __builtin_add_overflow(a_us, b_us, &sum_us) ? LH_NEVER : sum_us;
}

/* Doubles a delay within bounds. */
static inline int32_t lh_time_double(int32_t delay_us, int64_t first_us, int64_t last_us)
{
    int64_t doubled_us = (int64_t)delay_us * 2;
    if (doubled_us < first_us)
        doubled_us = first_us;
    return (int32_t)(doubled_us > last_us ? last_us : doubled_us);
}

/* --- database.c: the database as the coordinator knows it --- */

void lh_database_set_state(struct lh_coordinator *c, enum lh_database_state state);
bool lh_database_is_up(const struct lh_coordinator *c);
/* Acquires wait until this is true, so that no waiter is queued under an unknown coordinator. */
bool lh_database_is_registered(const struct lh_coordinator *c);

/* The database's clock now; 0: unknown. */
int64_t lh_database_us(const struct lh_coordinator *c);
void lh_database_learn_clock(struct lh_coordinator *c, int64_t database_us, int64_t sent_us, bool is_tick);

/* --- registration.c: registration of this coordinator in the database, and the tick each second --- */

void lh_registration_start(struct lh_coordinator *c);
void lh_registration_on_tick(struct lh_coordinator *c);
void lh_registration_on_up(void *arg);
void lh_registration_on_down(void *arg);

/* --- tick_looks.c: looks behind a tick, each if it is due and none of its kind is out --- */

void lh_db_stats_on_tick(struct lh_coordinator *c);
void lh_guards_on_tick(struct lh_coordinator *c);
void lh_rule_loading_on_tick(struct lh_coordinator *c, int64_t version);
void lh_spread_loading_on_elsewhere(struct lh_coordinator *c);
void lh_spread_on_news(void *arg); /* the store's on_spread */

/* --- asked.c: requests to hand a lease over --- */

void lh_asked_create(struct lh_coordinator *c);
void lh_asked_destroy(struct lh_coordinator *c);
void lh_asked_on_tick(struct lh_coordinator *c);
void lh_asked_on_news(void *arg); /* the store's on_asked */

#endif
