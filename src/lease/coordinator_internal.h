/*
 * The coordinator's own state, for the files of this directory only. queue/, hooks/ and watch/ have state of their own;
 * no file outside of them touches its fields.
 */
#ifndef LH_LEASE_COORDINATOR_INTERNAL_H
#define LH_LEASE_COORDINATOR_INTERNAL_H

#include "lease/coordinator.h"
#include "lease/hooks/hooks.h"
#include "lease/queue/queue.h"
#include "lease/readiness.h"
#include "lease/watch/watching.h"

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

/* State of database.h. */
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

/* State of registration.h. */
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

/* State of readiness.h, before the start. */
struct lh_starting {
    const char *phase;
    char trouble[LH_READY_WORDS_BYTES];
    char cause[LH_READY_CAUSE_BYTES];
};

/* State of db_stats.h. */
struct lh_db_stats {
    bool is_out;
    int64_t next_us;   /* not before */
    int64_t warned_us; /* last warning about an old transaction; 0: never */
};

/* State of guards.h. */
struct lh_guards {
    bool is_out;
    int64_t next_us;   /* not before */
    int64_t warned_us; /* last warning about a guard that cannot be ended; 0: never */
};

/* State of rule_loading.h. */
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

/* The quickest trip to the database of the last batches, without the time for their items: see lane.c. */
struct lh_trips {
    int64_t quickest_us; /* in the last full window; LH_NEVER: there was none */
    int64_t window_us;   /* in this window, so far */
    unsigned count;      /* batches in this window */
};

/* State of lane.h. */
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
};

/* State of holder_op.h. */
struct lh_holder_ops {
    struct lh_link done; /* struct lh_holder_request, to be answered */
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

#endif
