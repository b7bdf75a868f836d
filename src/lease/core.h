/*
 * The coordinator's own state, for the files of this directory only.
 *
 * Every entry from outside is a turn. A call of the API (acquire, cancel, heartbeat, release) only changes state and
 * sets the timer to now; a call from the store or of the timer then, at its end, delivers answers, gives back grants
 * that nobody took, and fills the free lanes. So no callback runs inside a call, and no lane is refilled while answers
 * still point into its batch.
 */
#ifndef LH_LEASE_CORE_H
#define LH_LEASE_CORE_H

#include "lease/coordinator.h"

enum lh_kind { LH_KIND_ACQUIRE, LH_KIND_HEARTBEAT, LH_KIND_RELEASE, LH_KIND_LEAVE, LH_KIND_COUNT };

enum lh_timer_kind {
    LH_TIMER_REQUEST,
    LH_TIMER_SCOPE,
    LH_TIMER_TICK,
    LH_TIMER_REAP,
    LH_TIMER_STOP,
    LH_TIMER_PROGRESS,
    LH_TIMER_WATCH,
    LH_TIMER_HOOK
};

enum lh_core_state {
    LH_CORE_CREATED,
    LH_CORE_RUNNING,
    LH_CORE_STOPPING, /* nothing new; what is accepted is answered */
    LH_CORE_CLOSING,  /* the store is stopping; no more batches */
    LH_CORE_STOPPED,
};

/* What is believed of the database's clock. */
struct lh_belief {
    bool is_known;
    int64_t offset_us; /* database - ours */
    int64_t rtt_us;    /* of the answer it comes from, aged: an old one is replaced in time */
};

#define LH_PASSED_ON_MAX 64

/* A scope that is being looked up for its tellers; see progress.h. */
#define LH_LOOKS_MAX 8
struct lh_look {
    struct lh_coordinator *coordinator;
    struct lh_progress *progress; /* NULL: nobody waits for it any more */
    bool is_out;
};

/* Who watches what; see watch.c. Times: not before. */
struct lh_watching {
    struct lh_link watches;
    size_t watcher_count;
    struct lh_heap_timer timer;
    bool is_used;     /* there was a watch at some time */
    unsigned epoch;   /* a number for each time that everything began anew */
    bool needs_clear; /* in the database, before anything else is asked */
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

/* Work for the hook lanes; see hooked.h. */
struct lh_hooks {
    struct lh_table spaces; /* struct lh_hook_space, by namespace */
    struct lh_link used;    /* all of them, the longest unused first */
    struct lh_link working; /* those with scopes in line, in turn */
    struct lh_link reaping; /* those with reaps in line, in turn */
    size_t waiting;         /* scopes in line */
    struct lh_heap_timer timer;
};

/* The reaper; see reaping.h. */
struct lh_reaping {
    struct lh_table jobs; /* struct lh_reap_job, by scope */
    struct lh_link done;  /* struct lh_reap_request, to be delivered */
    struct lh_heap_timer timer;
    int64_t looked_us;
    bool is_looking;
    bool has_more; /* look again when the line is short */
};

struct lh_control {
    bool is_up;
    bool is_enrolling;
    bool is_enrolled; /* acquires wait for this, so that nobody is queued for an unknown coordinator */
    bool is_ticking;
    int64_t sent_us; /* of the enrolment or tick that is out */
    bool is_surveying;
    int64_t survey_at_us; /* not before */
    int64_t warned_us;    /* of an old transaction; 0: never */
    struct lh_passed_on { /* lately, by hash of the scope */
        uint64_t hash;
        int64_t at_us;
    } passed_on[LH_PASSED_ON_MAX];
};

struct lh_coordinator {
    struct lh_store *store;
    struct lh_coordinator_port port;
    struct lh_coordinator_options options;
    enum lh_core_state state;

    int64_t now_us; /* of this turn */
    int turn_depth;
    bool wants_turn; /* a call did what only a turn of an event can end */
    struct lh_heap timers;
    int64_t armed_us; /* what the port's timer is set to */

    struct lh_table scopes;
    struct lh_table waiters;             /* by scope and lease key */
    struct lh_link ready[LH_KIND_COUNT]; /* scopes with something for a lane, longest ready first */
    struct lh_link answers;              /* acquires to be delivered */
    struct lh_link telling;              /* struct lh_teller: to be told how their wait stands */
    struct lh_look looks[LH_LOOKS_MAX];
    struct lh_link heartbeats_done; /* requests to be delivered */
    struct lh_link releases_done;
    struct lh_scope *spare_scopes;
    size_t spare_count;
    uint64_t next_seq;

    struct lh_lane *lanes;
    unsigned lane_count; /* hook lanes follow these */
    unsigned hook_lane_count;
    unsigned lanes_up;
    unsigned hook_lanes_up;
    unsigned lanes_busy;
    struct lh_lane *answered_lane; /* its batch is being delivered in this turn */

    struct lh_control control;
    struct lh_watching watching;
    struct lh_hooks hooks;
    struct lh_reaping reaping;
    struct lh_belief belief;
    struct lh_heap_timer tick_timer;
    struct lh_heap_timer stop_timer;

    size_t waiting; /* acquires that wait */
    size_t orphans; /* waiters whose requests have gone, until they are out of the queue */
    size_t pending; /* everything else that is accepted and not answered */
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct lh_coordinator_stats stats;
};

/* coordinator.c */
void lh_core_set_state(struct lh_coordinator *c, enum lh_core_state state);
void lh_turn_begin(struct lh_coordinator *c);
void lh_turn_end_call(struct lh_coordinator *c);  /* of an API call: nothing is delivered */
void lh_turn_end_event(struct lh_coordinator *c); /* the coordinator may be gone afterwards */
bool lh_core_can_ask(const struct lh_coordinator *c);
bool lh_core_can_send(const struct lh_coordinator *c, enum lh_kind kind);
int64_t lh_core_jitter(struct lh_coordinator *c, int64_t value_us, int percent);
void lh_core_reschedule(struct lh_coordinator *c); /* every scope, after lanes or control came or went */
void lh_core_ask_all(struct lh_coordinator *c);    /* for every waiter again */
void lh_core_drop_all(struct lh_coordinator *c);   /* answer whatever is not in flight: SHUTTING_DOWN, RETRY */
int64_t lh_time_add(int64_t a_us, int64_t b_us);   /* stops at LH_NEVER */

/* control.c */
void lh_control_start(struct lh_coordinator *c);
void lh_control_stop(struct lh_coordinator *c);
void lh_control_on_tick(struct lh_coordinator *c);
void lh_control_on_up(void *arg);
void lh_control_on_down(void *arg);
void lh_control_pass_on(struct lh_coordinator *c, const char *ns, const char *key, int64_t first_ticket);
void lh_survey_on_tick(struct lh_coordinator *c);               /* survey.c */
int64_t lh_control_database_us(const struct lh_coordinator *c); /* 0: no belief */
void lh_control_wake(struct lh_coordinator *c, const struct lh_wake *wake);

/* watch.c */
void lh_watch_create(struct lh_coordinator *c);
void lh_watch_on_timer(struct lh_coordinator *c);
void lh_watch_on_news(void *arg);
void lh_watch_on_enrolled(struct lh_coordinator *c);
void lh_watch_on_down(struct lh_coordinator *c);
void lh_watch_stop(struct lh_coordinator *c); /* watchers end with SHUTTING_DOWN */
void lh_watch_destroy(struct lh_coordinator *c);

#endif
