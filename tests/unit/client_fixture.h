/* A fake coordinator and a client, both on one loop that the test turns, and a clock that knows no waiting. */
#ifndef LH_TEST_CLIENT_FIXTURE_H
#define LH_TEST_CLIENT_FIXTURE_H

#include <check.h>
#include <string.h>

#include "base/clock.h"
#include "client/client.h"
#include "client/lease_internal.h"
#include "fake_coordinator.h"
#include "test_client.h"
#include "virtual_clock.h"

struct answer {
    unsigned done;
    enum lh_status status;
    struct lh_lease *lease;
    struct lh_request *request;
    struct lh_error error;
};

struct loss {
    unsigned count;
    enum lh_lost_reason reason;
    int64_t remaining_us;
    bool was_cancelled;
    char words[128];
};

extern struct lh_loop *loop;
extern struct fake fake;
extern struct lh_client *client;
extern struct lh_declared *declared;
extern struct loss loss;

void client_setup(void);
void client_teardown(void);
/* Another client than that of the setup. */
void client_again(const struct lh_client_options *options);
void client_declare(int64_t duration_us, int64_t margin_us);

void acquire(const char *key, const struct lh_acquire_options *options, struct answer *answer);
struct lh_lease *held(const char *key); /* acquired; the test's to destroy */
void release(struct lh_lease *lease, struct answer *answer);
struct lh_client_stats stats(void);
lh_done_cb on_done; /* `arg` is a struct answer */

#define WAIT_FOR(condition)                                                                                            \
    do {                                                                                                               \
        int64_t end_us = lh_clock_us() + 60 * LH_US_PER_S;                                                             \
        while (!(condition)) {                                                                                         \
            ck_assert_msg(lh_clock_us() < end_us, "never: %s", #condition);                                            \
            virtual_clock_turn(loop);                                                                                  \
        }                                                                                                              \
    } while (0)

#endif
