/* What the directed tests of the core share: one world, requests that note what they were answered. */
#ifndef LH_TESTS_LEASE_FIXTURE_H
#define LH_TESTS_LEASE_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "fake_rules.h"

#define MS(n) ((int64_t)(n)*LH_US_PER_MS)

struct ask {
    struct lh_acquire acquire;
    int answers;
    enum lh_status status;
    int64_t answered_us;
    int64_t token;
    bool is_renewal;
    bool has_all; /* a lease for each scope */
    int64_t waited_us;
    bool has_contention;
    bool has_holder;
    int32_t waiters_ahead;
    int64_t rests_us;
    char message[128];
    void (*then)(struct ask *ask);
};

struct beat {
    struct lh_holder_request request;
    struct lh_holder_entry items[4];
    int answers;
    enum lh_outcome outcome;
    int64_t answered_us;
    char message[128];
};

struct give {
    struct lh_holder_request request;
    struct lh_holder_entry items[4];
    int answers;
    enum lh_outcome outcome;
    int64_t answered_us;
};

extern struct fake_world world;
extern struct lh_coordinator_options options;

void fixture_setup(void); /* a world with a round trip of 1 ms, and the default options */
void fixture_teardown(void);
struct fake_node *start_node(void); /* and let it connect */
/* The same in a world where every scope has hooks, which may take a second. */
struct fake_node *start_hooked_node(void);
struct lh_coordinator_stats stats_of(const struct fake_node *node);
/* All lanes of a node at once, and with them what is under way. */
void drop_lanes(struct fake_node *node);
/* What was sent just now is committed, and the lanes are lost before anybody hears so. */
void lose_replies(struct fake_node *node);
void raise_lanes(struct fake_node *node);

void ask_init(struct ask *ask, int scope, int lease_key, enum lh_wait wait, int64_t wait_us);
void ask_send(struct fake_node *node, struct ask *ask);
/* Both, with a duration of 10 s. */
void ask_for(struct fake_node *node, struct ask *ask, int scope, int lease_key, enum lh_wait wait, int64_t wait_us);
/* Takes the scope with this lease key and waits for it. */
void hold_now(struct fake_node *node, struct ask *ask, int scope, int lease_key);
/* Lease key 1 takes scope 0, and 2 gets in its queue for 9 s. */
void hold_and_queue(struct fake_node *node, struct ask *holder, struct ask *waiter);
void beat_send(struct fake_node *node, struct beat *beat, int scope, int lease_key);
void give_send(struct fake_node *node, struct give *give, int scope, int lease_key);
struct lh_uuid key_of(int lease_key);
const struct fake_row *row_of(int scope, int lease_key);

int run_suite(const char *name, void (*add)(TCase *tcase));

#endif
