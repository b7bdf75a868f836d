/* What the suites of test_store share: a store with its events counted, and batches that are waited for. */
#ifndef LH_TEST_STORE_H
#define LH_TEST_STORE_H

#include <check.h>

#include "lease/store.h"
#include "pg_fixture.h"
#include "store/store.h"

struct test_store {
    struct lh_store *store;
    unsigned lanes_up, lanes_down, control_up, control_down, listener_up, wakes;
    char wake_ns[256]; /* of the last wake; "*" for everything */
    char wake_key[1025];
    bool is_stopped;
};

extern struct lh_loop *test_loop;

/* A new database with the schema: its conninfo. */
const char *test_store_database(const char *name);
/* Started, and everything up. */
void test_store_start(struct test_store *test, const char *conninfo, unsigned lanes);
/* With hook lanes behind them; the others have none. */
void test_store_start_hooked(struct test_store *test, const char *conninfo, unsigned lanes, unsigned hook_lanes);
void test_store_start_with(struct test_store *test, const char *conninfo, unsigned lanes, int64_t stop_timeout_us);
void test_store_stop(struct test_store *test); /* and destroy */

/* What a call of lh_store_cb said. */
struct test_answer {
    unsigned count;
    enum lh_status status;
    struct lh_error error;
};

void test_on_answer(void *arg, enum lh_status status, const struct lh_error *error);
void test_wait_for(struct test_answer *answer); /* until count is 1, and clears that */
void test_wait_for_ok(struct test_answer *answer);

TCase *test_store_batches(void);
TCase *test_store_leases(void);
TCase *test_store_hand_over(void);
TCase *test_store_control(void);
TCase *test_store_hooks(void);
TCase *test_store_watch(void);

#endif
