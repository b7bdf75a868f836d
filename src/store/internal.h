/* A store: what its files know of it. */
#ifndef LH_STORE_INTERNAL_H
#define LH_STORE_INTERNAL_H

#include <libpq-fe.h>

#include "base/memory.h"
#include "loop/loop.h"
#include "pg/conn.h"
#include "pg/listener.h"
#include "pg/servers.h"
#include "store/batch.h"
#include "store/store.h"

#define LH_STORE_FINDING_BYTES 512

enum pg_store_state {
    STORE_NEW,           /* -> RUNNING */
    STORE_RUNNING,       /* -> FINISHING */
    STORE_FINISHING,     /* batches in flight are waited for: -> UNREGISTERING */
    STORE_UNREGISTERING, /* -> CLOSING */
    STORE_CLOSING,       /* connections are closed: -> STOPPED */
    STORE_STOPPED,
};

struct pg_store {
    struct lh_store base; /* first */
    struct lh_loop *loop;
    struct lh_store_options options;
    struct lh_pg_servers *servers; /* for all connections */
    char *name;                    /* which of several databases, or "" */
    char *host;
    char *version;
    const struct lh_store_events *events;
    void *arg;

    enum pg_store_state state;
    struct lane lanes[2 * LH_STORE_LANES_MAX]; /* the hook lanes behind the others */
    unsigned lane_count;                       /* all of them */
    struct lh_pg_conn *control;
    struct lh_pg_listener *listener;
    struct lh_pg_params params;       /* of the control call that is being made */
    struct lh_arena arena;            /* of the control answer that is being read */
    struct lh_pg_server_facts server; /* as last reported */
    bool cannot_write;                /* a renewal or a reap failed for that since the last tick that told it */
    int64_t timeline;
    int32_t schema_version;
    bool has_core;                        /* the extension leasehold_core takes the common path */
    char common_path[256];                /* the same in words */
    int64_t core_rests_until_us;          /* whatever the control connection says of it: a batch found otherwise */
    char keeping[LH_STORE_FINDING_BYTES]; /* see struct lh_server_facts; "": nothing is wrong */
    char privileges[LH_STORE_FINDING_BYTES];
    struct lh_pg_statement look_at_privileges; /* its options */
    unsigned privileges_rest;                  /* surveys until it looks again */

    struct lh_store_standing standings[LH_STORE_STANDINGS_MAX];
    size_t standing_count;
    int64_t standings_asked_us;
    int64_t standings_due_us;
    bool is_looking_at_namespaces;

    struct lh_timer stop_timer;
    struct lh_deferred advance;  /* look how far the stop has come */
    struct lh_store_stats stats; /* what is counted here; all of it once the connections are closed */
    unsigned open_count;         /* connections that are not closed */
    lh_store_cb *on_stopped;
    void *on_stopped_arg;
};

static inline struct pg_store *pg_store_of(struct lh_store *store)
{
    return (struct pg_store *)(void *)store;
}

#endif
