/*
 * A random history: what its parts share. Callers acquire, holders renew and give back, fate strikes, and at every step
 * it is checked.
 */
#ifndef LH_TESTS_RANDOM_HISTORY_H
#define LH_TESTS_RANDOM_HISTORY_H

#include <stdlib.h>
#include <string.h>

#include "fake_rules.h"

#define CALLS_MAX 700
#define HOLDS_MAX 500
#define SCOPES 3

struct call {
    struct lh_acquire acquire;
    char *owner;
    struct fake_node *node;
    int scope; /* the first of its scopes */
    struct lh_wanted_scope also[SCOPES - 1];
    int64_t sent_us;
    int64_t placed_us; /* of one for several scopes: when it was first seen in the queue; 0: not yet */
    int answers;
    bool is_cancelled;
    bool is_repeat; /* its lease key was used before */
    bool is_split;  /* its lease key is out at two coordinators, so its place moves */
    bool is_lost;   /* its coordinator was killed */
};

struct hold {
    int scope;
    struct lh_uuid lease_key;
    int64_t token;
    int32_t units; /* 0: exclusive */
    int32_t slots[FAKE_UNITS_MAX];
    int32_t slot_count;
    int64_t until_us;
    int64_t duration_us;
    bool is_released;
    bool may_be_lost; /* a repeat of it was cancelled while replies got lost: its outcome was unknown */
    struct fake_node *node;
    struct lh_holder_request heartbeat;
    struct lh_holder_entry heartbeat_item;
    struct lh_holder_request release;
    struct lh_holder_entry release_item;
    struct lh_holder_request smaller;
    struct lh_holder_entry smaller_item;
    struct lh_downgrade downgrade;
    int64_t heartbeat_sent_us;
    bool is_beating;
    bool is_releasing;
    bool is_downgrading;
    bool was_exclusive; /* it asked to be made shared: a repeat of its acquire may be refused, or has another token */
    int heartbeats_left;
    bool dies;
};

struct history {
    struct fake_world world;
    uint64_t seed;
    struct call *calls;
    int call_count;
    struct hold *holds;
    int hold_count;
    int64_t last_token[SCOPES];           /* the highest that was told */
    int64_t last_exclusive_token[SCOPES]; /* of these the exclusive ones */
    int32_t capacity[SCOPES];             /* the largest that the scope had; 0: none at some time */
    int64_t rests_until_us[SCOPES];       /* as far as grants were heard of */
    bool has_faults;                      /* replies get lost, lanes go down, coordinators die */
    bool is_strict;                       /* no safety net: a lost wake-up stays lost */
    bool has_hooks;                       /* at some time */
    bool has_rests;                       /* leases have a minimum hold */
    bool has_modes;                       /* there are shared leases */
    bool has_together;                    /* some requests are for several scopes */
    bool is_healing;
    int64_t quiet_since_us; /* no failing batch since */
    int64_t rows_lost_us;   /* when places were lost last */
    int calling;
    int open;
    uint64_t next_key;
    struct lh_coordinator_options options;
};

extern struct history t;

struct fake_node *any_node(void);
struct call *any_open_call(void);
struct hold *find_hold(int scope, const struct lh_uuid *lease_key);

/* Callers: random_callers.c. A lease key of NULL: a new one. */
void begin_call(struct fake_node *node, int scope, const struct lh_uuid *lease_key, bool is_repeat);
void cancel(struct call *call);
int64_t at_least_of(const struct lh_uuid *lease_key);
int32_t units_of(const struct lh_uuid *lease_key);
int scope_count(const struct call *call);
int scope_of(const struct call *call, int i);
bool is_for(const struct call *call, int scope);
bool may_come_back(enum lh_status status);

/* Holders: random_holders.c. */
void hold_lease(const struct call *call, const struct lh_acquire_result *result);
void schedule_holder(struct hold *hold);

/* Fate: random_fate.c. */
void act(void);

/* Checks: random_checks.c. */
void check_stalls(void);
void check_now_and_then(void);
void note_health(void);

#endif
