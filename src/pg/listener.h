/*
 * A connection that listens to one channel and has no other work. It never has a transaction open, so it delays no
 * other session. Twice a second it asks whether it still listens, and whether the server is still the primary: silence
 * alone cannot tell a quiet channel from a dead one. No other query delays its answers, so it is the pulse of the
 * server: when it gets no answer, all connections with the same `servers` end and look for the primary elsewhere.
 *
 * Notifications are hints. Those sent while it was not listening are lost, so after on_up look everything up.
 */
#ifndef LH_PG_LISTENER_H
#define LH_PG_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct lh_loop;
struct lh_pg_listener;
struct lh_pg_servers;

struct lh_pg_listener_options {
    struct lh_pg_servers *servers; /* shared with the other connections, or NULL */
    const char *conninfo;          /* used if `servers` is NULL; copied */
    const char *name;              /* name in logs; default "listener"; copied */
    const char *channel;           /* copied */
    int64_t check_interval_us;     /* default 500 ms */
    /* Without an answer to LISTEN or a check within it, the server is silent. Default 3 s, or
       connect_timeout of the conninfo. */
    int64_t answer_timeout_us;
};

void lh_pg_listener_options_init(struct lh_pg_listener_options *options);

/* Events of a listener; each may be NULL. None comes from within a call to the listener. */
struct lh_pg_listener_events {
    void (*on_up)(void *arg); /* comes after each LISTEN */
    void (*on_down)(void *arg, const struct lh_error *error);
    void (*on_notify)(void *arg, const char *payload);
};

struct lh_pg_listener *lh_pg_listener_create(struct lh_loop *loop, const struct lh_pg_listener_options *options,
                                             const struct lh_pg_listener_events *events, void *arg);
void lh_pg_listener_start(struct lh_pg_listener *listener);

/* Closes and frees the listener; on_closed (may be NULL) comes later. */
void lh_pg_listener_close(struct lh_pg_listener *listener, void (*on_closed)(void *arg), void *arg);

struct lh_pg_listener_stats {
    uint64_t connects;
    uint64_t checks; /* checks sent */
    /* Checks without an answer, or answered by a session that did not listen. */
    uint64_t checks_failed;
    uint64_t notifications;
};
void lh_pg_listener_stats(const struct lh_pg_listener *listener, struct lh_pg_listener_stats *stats);

bool lh_pg_listener_is_up(const struct lh_pg_listener *listener);

#endif
