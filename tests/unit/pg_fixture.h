/*
 * A private PostgreSQL cluster for tests: made at the first call, in a directory of its own under /tmp, reached over a
 * unix socket alone, gone at exit; the server goes with the test even if that is killed. As root it runs as the user
 * postgres. Without PostgreSQL the test fails loudly.
 *
 * For tests that run in one process (CK_NOFORK).
 */
#ifndef LH_TEST_PG_FIXTURE_H
#define LH_TEST_PG_FIXTURE_H

#include <check.h>
#include <stdbool.h>

#include "base/clock.h"
#include "loop/loop.h"

/* Turn the loop until the condition holds; fails after 60 s. */
#define WAIT_FOR(loop, condition)                                                                                      \
    do {                                                                                                               \
        int64_t wait_until_us = lh_clock_us() + 60 * LH_US_PER_S;                                                      \
        while (!(condition)) {                                                                                         \
            ck_assert_msg(lh_clock_us() < wait_until_us, "waited in vain for: %s", #condition);                        \
            lh_loop_run_once(loop, 20 * LH_US_PER_MS);                                                                 \
        }                                                                                                              \
    } while (0)

/* Of the superuser, to the database `postgres`. Starts the cluster. */
const char *pg_fixture_conninfo(void);

/* A fresh, empty database of that name; returns its conninfo, which lives until exit. */
const char *pg_fixture_create_database(const char *name);

/* Fast shutdown (sessions are told 57P01) and start again. */
void pg_fixture_stop(void);
void pg_fixture_start(void);

/* kill -9, as a crash of that backend: the whole server recovers. */
void pg_fixture_crash(int backend_pid);

/* Blocking, on a connection of its own; fails the test on an error. */
void pg_fixture_execute(const char *conninfo, const char *sql);

/* The first value of the answer, in a static buffer; "" for NULL or no row. */
const char *pg_fixture_value(const char *conninfo, const char *sql);

#endif
