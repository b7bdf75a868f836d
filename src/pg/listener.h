/*
 * A connection that listens to one channel and does nothing else. It never has a transaction open, so it delays no
 * other session. Twice a second it asks whether it still listens, and whether the server is still the primary: silence
 * alone cannot tell a quiet channel from a dead one. As it waits for nothing else it is the pulse of the server: when
 * it gets no answer, all connections with the same `servers` end and look for the primary elsewhere.
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
    struct lh_pg_servers *servers; /* shared with the other connections... */
    const char *conninfo;          /* ...or NULL, and this; copied */
    const char *name;              /* for logs; default "listener"; copied */
    const char *channel;           /* copied */
    int64_t check_interval_us;     /* default 500 ms */
    int64_t answer_timeout_us;     /* no answer to LISTEN or a check within that: the server is silent. Default 3 s */
};

void lh_pg_listener_options_init(struct lh_pg_listener_options *options);

/* Never called from within a call to the listener. Any may be NULL. */
struct lh_pg_listener_events {
    void (*on_up)(void *arg); /* after each LISTEN */
    void (*on_down)(void *arg, const struct lh_error *error);
    void (*on_notify)(void *arg, const char *payload);
};

struct lh_pg_listener *lh_pg_listener_create(struct lh_loop *loop, const struct lh_pg_listener_options *options,
                                             const struct lh_pg_listener_events *events, void *arg);
void lh_pg_listener_start(struct lh_pg_listener *listener);

/* on_closed (may be NULL) comes later; the listener is freed. */
void lh_pg_listener_close(struct lh_pg_listener *listener, void (*on_closed)(void *arg), void *arg);

struct lh_pg_listener_stats {
    uint64_t connects;
    uint64_t checks;        /* asked */
    uint64_t checks_failed; /* not answered, or by a session that did not listen */
    uint64_t notifications;
};
void lh_pg_listener_stats(const struct lh_pg_listener *listener, struct lh_pg_listener_stats *stats);

bool lh_pg_listener_is_up(const struct lh_pg_listener *listener);

#endif
