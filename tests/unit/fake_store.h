/*
 * A world for the coordinator core without a clock, a network or a PostgreSQL: virtual time, one database that keeps
 * the rules of the real one (rows that are busy, a queue with tickets, coordinators that live while they tick, ended
 * lease keys), and any number of nodes: a coordinator on a store of its own. Replies take time, are lost, come out of
 * order between lanes.
 *
 *     struct fake_world world;
 *     fake_world_init(&world, seed);
 *     struct fake_node *node = fake_node_start(&world, &options);
 *     lh_coordinator_acquire(node->coordinator, &request);
 *     fake_run(&world, 10 * LH_US_PER_MS);
 */
#ifndef LH_TESTS_FAKE_STORE_H
#define LH_TESTS_FAKE_STORE_H

#include "base/clock.h"
#include "base/memory.h"
#include "lease/coordinator.h"

#define FAKE_SCOPES 40
#define FAKE_NODES 64
#define FAKE_LANES 3
#define FAKE_HOOK_LANES 2
#define FAKE_ALL_LANES (FAKE_LANES + FAKE_HOOK_LANES)
#define FAKE_GRACE_US (200 * LH_US_PER_MS)
#define FAKE_LIVE_US (5 * LH_US_PER_S)
#define FAKE_CONTROL_MAX 32

#define FAKE_UNITS_MAX 8

struct fake_row {
    struct lh_uuid lease_key;
    int32_t units; /* 0: exclusive */
    int64_t ticket;
    int node;
    int64_t away_until_us;
    int64_t wait_until_us;
    uint64_t together; /* its scopes, a bit for each, where there are several; 0: this one alone */
    int64_t enqueued_at_us;
    bool is_late; /* written by a batch whose connection had been given up: its node may not know it */
};

struct fake_end {
    struct lh_uuid lease_key;
    enum lh_end_reason reason;
};

/* A scope with its exclusive lease; and each shared lease of it, with the same fields. */
struct fake_scope {
    const char *ns;
    char key[16];
    bool is_held;
    bool is_manual;
    struct lh_uuid lease_key;
    int32_t units; /* of a shared lease */
    int32_t slots[FAKE_UNITS_MAX];
    int32_t slot_count;
    struct fake_scope *shares; /* by token */
    size_t share_count;
    int32_t capacity; /* 0: none */
    int granted_by;   /* the node */
    bool has_moved;   /* two have granted or renewed it: neither may take it back */
    int64_t token;
    char owner[32];
    char principal[32];
    int64_t duration_us;
    int64_t acquired_at_us;
    int64_t rests_until_us; /* granted to nobody before */
    int64_t heartbeat_at_us;
    int64_t heartbeats;
    int64_t busy_until_us;
    struct fake_row *rows; /* by ticket */
    size_t row_count;
    struct fake_end *ends;
    size_t end_count;
    int64_t stalled_since_us; /* free, with a live first waiter that could be asked; -1: not so */
    bool stalled_while_held;
    bool stalled_while_late; /* its first waiter's row is */
    bool is_frozen;
    bool is_elsewhere;
    int64_t claimed_until_us; /* by a reaper, for its hook */
    int reap_failures;
    bool is_left_to_hooks; /* in the batch that is being executed */
    int reap_hooks;        /* that were committed */
    int acquires;          /* items that were executed */
    int tried;             /* the same, since somebody set it to 0 */
};

struct fake_batch {
    int kind; /* 0 acquire, 1 heartbeat, 2 release, 3 leave, 4 a run of reaps, 5 downgrade, 6 acquire_all; -1: none */
    bool is_on_hook_lane;
    void **items;
    size_t n;
    void **riders; /* acquires behind releases */
    size_t rider_count;
    int64_t clock_us;
    bool is_executed;
    enum lh_status status;
    lh_store_cb *on_done;
    void *arg;
    struct lh_arena strings;
    uint64_t serial;
};

struct fake_lane {
    bool is_up;
    bool is_broken; /* by the hook that runs there: the connection is lost instead of an answer */
    struct fake_batch batch;
};

struct fake_control {
    int kind; /* 0 enroll, 1 tick, 2 pass_on, 3 reap, 4 holders, 5 get */
    union {
        lh_tick_cb *tick;
        lh_store_cb *store;
        lh_reap_pass_cb *reap;
        lh_list_cb *list;
        lh_scope_cb *get;
    } on_done;
    void *arg;
    char ns[32];
    char key[32];
    int64_t first_ticket; /* of pass_on */
};

struct fake_node {
    struct lh_store store;
    struct fake_world *world;
    int index;
    struct lh_coordinator *coordinator;
    struct lh_coordinator_port port;
    const struct lh_store_events *events;
    void *events_arg;
    uint64_t timer_serial;
    int behind; /* so often its loop still has to read what came */
    struct lh_loop *loop;
    bool (*is_loop_behind)(struct lh_loop *loop); /* or NULL */
    int64_t polls_until_us;                       /* 0: it does not */
    struct fake_lane lanes[FAKE_ALL_LANES];
    bool control_is_up;
    bool listener_is_up;
    struct fake_control controls[FAKE_CONTROL_MAX];
    size_t control_count;
    bool control_is_moving;
    uint64_t control_serial;
    bool is_stopping;
    bool stop_is_due;
    bool is_gone;    /* stopped or killed */
    bool is_leaving; /* the test has told it to stop */
    bool has_stopped;
    lh_store_cb *on_stopped;
    void *on_stopped_arg;

    /* in the database */
    bool is_registered;
    int64_t seen_at_us;
    int64_t cleaned_at_us; /* when it was last taken for dead */
    int64_t last_clock_us; /* what it believed */
    int64_t well_since_us; /* the test's: connected and registered; -1: not so */
};

typedef void fake_event_fn(struct fake_world *world, void *arg, uint64_t n);

struct fake_event {
    int64_t at_us;
    uint64_t seq;
    fake_event_fn *fn;
    void *arg;
    uint64_t n;
};

struct fake_world {
    int64_t now_us;
    /* Until when the node that an event is for does nothing, or 0; NULL: all do. */
    int64_t (*held_until_us)(const void *arg);
    uint64_t random_state;
    uint64_t next_seq;
    struct fake_event *events;
    size_t event_count;
    size_t event_capacity;

    struct fake_scope scopes[FAKE_SCOPES];
    int64_t next_token;
    int64_t next_ticket;
    int64_t access_version;  /* that ticks tell */
    int64_t clock_offset_us; /* the database's clock - ours */

    struct fake_node *nodes[FAKE_NODES];
    int node_count;

    /* knobs */
    int64_t min_delay_us; /* of each half of a round trip */
    int64_t max_delay_us;
    size_t worth_a_batch; /* 3 */
    int notify_loss_percent;
    int notify_twice_percent;
    int late_commit_percent; /* of batches of acquires: their connection is lost, and seconds later they are executed */
    bool is_late;            /* the batch that is being executed */
    int reply_loss_percent;  /* of batches but on hook lanes: executed, and the connection is lost with the answer */
    bool refuses_coordinators; /* an enrolment fails */
    bool refuses_ticks;
    unsigned looks_elsewhere;  /* how often it was told to look at other servers */
    bool is_trouble_permanent; /* what the store says of its server */
    bool slow_poll_helps;      /* false: ticks name no scope, so a lost wake-up stays lost */
    enum lh_status fail_with;  /* every batch fails with this while it is not LH_OK */
    bool refuse_batches;       /* the lanes are down, and have not said so */
    size_t largest_batch;      /* seen */
    size_t riders;             /* seen behind releases */
    int batches[7];            /* seen */
    int hook_batches[7];       /* seen on hook lanes, of these */
    size_t largest_run;        /* seen */
    size_t largest_group;      /* seen, of reaps in one transaction */
    int lost_groups;           /* seen, for one of them was refused */
    /* Hooks, of all scopes and events. */
    bool is_hooked;
    bool is_release_plain; /* ...but for releases */
    int hook_reject_percent;
    int hook_break_percent; /* of the connection, before anything is committed */
    int64_t hook_us;        /* how long they take at most */
    int64_t at_least_us;    /* the policy's */
    int64_t reap_us;        /* how long each reap of a run has taken; 0: 100 us */
    const char *slow_ns;    /* only in this namespace; NULL: everywhere */
    int64_t hook_timeout_us;
    bool (*on_hook)(struct fake_world *world, const char *key, const char **message); /* or NULL; true: it refuses */
    int passed_on;                                                                    /* seen */
    void (*on_release)(struct fake_world *world, int scope);                          /* may be NULL */
};

void fake_world_init(struct fake_world *world, uint64_t seed);
void fake_world_finish(struct fake_world *world); /* destroys the coordinators too */
uint32_t fake_random(struct fake_world *world);
int fake_below(struct fake_world *world, int n);
int64_t fake_delay_us(struct fake_world *world); /* of half a round trip */
void fake_at(struct fake_world *world, int64_t at_us, fake_event_fn *fn, void *arg, uint64_t n);
bool fake_step(struct fake_world *world, int64_t until_us); /* false: nothing to do before then; it is then */
void fake_run(struct fake_world *world, int64_t duration_us);

struct fake_node *fake_node_start(struct fake_world *world, const struct lh_coordinator_options *options);
void fake_node_stop(struct fake_node *node);   /* gently; has_stopped when done */
void fake_node_kill(struct fake_node *node);   /* as kill -9 does */
void fake_node_vanish(struct fake_node *node); /* the same, and its coordinator is the caller's to destroy */

/* Breaking and mending. Nothing comes back by itself. */
void fake_lane_drop(struct fake_node *node, unsigned lane,
                    bool commits); /* a batch in flight is lost after or before */
void fake_lane_raise(struct fake_node *node, unsigned lane);
void fake_control_drop(struct fake_node *node);
void fake_control_raise(struct fake_node *node);
void fake_listener_drop(struct fake_node *node);
void fake_listener_raise(struct fake_node *node);
void fake_database_drop(struct fake_world *world);
void fake_database_raise(struct fake_world *world);
void fake_row_add(struct fake_world *world, int scope, struct lh_uuid lease_key, int node);
void fake_rows_lose(struct fake_world *world, int percent); /* as a failover does that lost commits */

struct fake_scope *fake_scope(struct fake_world *world, const char *ns, const char *key);
int64_t fake_deadline_us(const struct fake_scope *scope);
const struct fake_row *fake_row(const struct fake_scope *scope, const struct lh_uuid *lease_key);
bool fake_is_ended(const struct fake_world *world, const struct fake_scope *scope); /* nobody holds it; or expired */
/* Could a lease of so many units (0: exclusive) be granted by now, or be refused because it never fits? At rest or not. */
bool fake_has_room(const struct fake_world *world, const struct fake_scope *scope, int32_t units);
bool fake_is_free(const struct fake_world *world, const struct fake_scope *scope); /* ended, and it does not rest */
/* The lease with this key, exclusive or shared; NULL. */
struct fake_scope *fake_lease(struct fake_scope *scope, const struct lh_uuid *lease_key);
void fake_set_capacity(struct fake_world *world, struct fake_scope *scope, int32_t capacity); /* 0: none */
const struct fake_row *fake_head(const struct fake_world *world, const struct fake_scope *scope);
bool fake_node_is_healthy(const struct fake_node *node);
/* Fails where a scope is free, or has room, for long, and the coordinator of its first waiter is well. `strict_us`: there is no
 * poll, and what ends is known after that time; 0: there is one. */
void fake_check_stalls(struct fake_world *world, int scopes, int64_t strict_us,
                       bool (*is_well)(const struct fake_node *node));
/* `lease` is the scope itself, or one of its shares. */
void fake_end(struct fake_world *world, struct fake_scope *scope, struct fake_scope *lease, enum lh_end_reason reason);
void fake_end_lease(struct fake_world *world, struct fake_scope *scope, enum lh_end_reason reason); /* exclusive */
void fake_notify(struct fake_world *world, int node, const struct fake_scope *scope);

#endif
