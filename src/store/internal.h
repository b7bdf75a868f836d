/* The state of a store, for its files. */
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
    STORE_FINISHING,     /* waits for the batches in flight: -> UNREGISTERING */
    STORE_UNREGISTERING, /* -> CLOSING */
    STORE_CLOSING,       /* closes the connections: -> STOPPED */
    STORE_STOPPED,
};

struct pg_store {
    struct lh_store base; /* first */
    struct lh_loop *loop;
    struct lh_store_options options;
    struct lh_pg_servers *servers; /* shared by all connections */
    char *name;                    /* name among several databases, or "" */
    char *host;
    char *version;
    const struct lh_store_events *events;
    void *arg;

    enum pg_store_state state;
    struct lane lanes[2 * LH_STORE_LANES_MAX]; /* the hook lanes behind the others */
    unsigned lane_count;                       /* with the hook lanes */
    struct lh_pg_conn *control;
    struct lh_pg_listener *listener;
    struct lh_pg_params params;       /* parameters of the control call that is being made */
    struct lh_arena arena;            /* strings of the control answer that is being read */
    struct lh_pg_server_facts server; /* as last reported */
    /* The server could not write a renewal or a reap, and no tick has reported it yet. */
    bool cannot_write;
    int64_t timeline;
    int32_t schema_version;
    bool has_core;         /* the extension leasehold_core takes the common path */
    char common_path[256]; /* `has_core` in words */
    /* Until then leasehold_core is not used, because a batch could not call it. */
    int64_t core_rests_until_us;
    char keeping[LH_STORE_FINDING_BYTES]; /* see struct lh_server_facts; "": no fault */
    char privileges[LH_STORE_FINDING_BYTES];
    struct lh_pg_statement look_at_privileges; /* privileges_sql of its options */
    unsigned privileges_rest;                  /* surveys until the next look */

    struct lh_store_standing standings[LH_STORE_STANDINGS_MAX];
    size_t standing_count;
    int64_t standings_asked_us;
    int64_t standings_due_us;
    bool is_looking_at_namespaces;

    struct lh_timer stop_timer;
    struct lh_deferred advance;  /* continues the stop */
    struct lh_store_stats stats; /* counters; complete once the connections are closed */
    unsigned open_count;         /* connections that are not closed */
    lh_store_cb *on_stopped;
    void *on_stopped_arg;
};

static inline struct pg_store *pg_store_of(struct lh_store *store)
{
    return (struct pg_store *)(void *)store;
}

#endif
