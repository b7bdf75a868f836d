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
    LH_CORE_STOPPING, /* nothing new; what is accepted is answered */
    LH_CORE_CLOSING,  /* the store is stopping; no more batches */
    LH_CORE_STOPPED,
};

/* See database.h. */
#define LH_PASSED_ON_MAX 64
enum lh_database_state { LH_DATABASE_DOWN, LH_DATABASE_UP, LH_DATABASE_REGISTERED };
struct lh_database {
    enum lh_database_state state;
    bool knows_clock;
    int64_t offset_us;    /* its clock - ours */
    int64_t rtt_us;       /* of the answer that told the offset, aged: an old one is replaced in time */
    struct lh_passed_on { /* lately, by hash of the scope */
        uint64_t hash;
        int64_t at_us;
    } passed_on[LH_PASSED_ON_MAX];
};

/* See registration.h. */
struct lh_registration {
    struct lh_heap_timer timer;
    bool is_enrolling;
    bool is_ticking;
    int64_t sent_us;         /* of the enrolment or tick that is out */
    unsigned unheard;        /* ticks that were due since the last answer */
    unsigned without_lane;   /* ticks in a row at which no lane was up */
    bool has_seen_lane;      /* at a tick, since control came up */
    struct lh_error refusal; /* what the database answered to the last enrolment or tick, if it failed */
    int64_t refusal_told_us;
};

/* See readiness.h: before the start. */
struct lh_starting {
    const char *phase;
    char trouble[LH_READY_WORDS_BYTES];
    char cause[LH_READY_CAUSE_BYTES];
};

/* See db_stats.h. */
struct lh_db_stats {
    bool is_out;
    int64_t next_us;   /* not before */
    int64_t warned_us; /* of an old transaction; 0: never */
};

/* See guards.h. */
struct lh_guards {
    bool is_out;
    int64_t next_us;   /* not before */
    int64_t warned_us; /* of one that cannot be ended; 0: never */
};

/* See rule_loading.h. */
struct lh_rule_loading {
    bool is_needed; /* nothing is decided without rules */
    bool is_out;
    bool has_loaded;
    int64_t version; /* of what was loaded */
    int64_t asked;   /* of what is out */
    int64_t warned_us;
    lh_rules_cb *on_rules;
    void *arg;
};

/* The quickest trip to the database of the last batches, without the work on their items: see lane.c. */
struct lh_trips {
    int64_t quickest_us; /* of the window before; LH_NEVER: there was none */
    int64_t window_us;   /* of this one, so far */
    unsigned count;      /* of its batches */
};

/* See lane.h. */
struct lh_lanes {
    struct lh_lane *all;
    unsigned count; /* hook lanes follow these */
    unsigned hook_count;
    unsigned up;
    unsigned hook_up;
    unsigned busy;
    uint64_t turn;                  /* a number for each batch */
    uint64_t turns[LH_SCOPE_KINDS]; /* of the last batch of the kind */
    struct lh_lane *answered;       /* its batch was answered in this turn */
    struct lh_batch_record record;  /* of that batch */
    struct lh_trips trips;
};

/* See holder_op.h. */
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

    int64_t now_us; /* of this turn */
    int turn_depth;
    bool wants_turn; /* a call did what only a turn of an event can end */
    struct lh_heap timers;
    int64_t armed_us; /* what the port's timer is set to */

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

    size_t pending; /* what is accepted and not answered, without waiters */
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct lh_coordinator_stats stats;
};

#endif
