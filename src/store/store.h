/*
 * lease/store.h on PostgreSQL: the batch functions of the schema, over lane connections that carry one batch each at a
 * time, a control connection, and a listener.
 *
 *     store = lh_store_create(loop, &options);
 *     coordinator = lh_coordinator_create(store, ...);     which starts and stops it
 *     lh_store_destroy(store);                              after the coordinator has stopped
 *
 * The schema must be there already (pg/migrate.h). Each store is a coordinator of its own: its id is made here.
 */
#ifndef LH_STORE_STORE_H
#define LH_STORE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"
#include "lease/store.h"

struct lh_loop;

#define LH_STORE_LANES_MAX 16

struct lh_store_options {
    const char *conninfo; /* copied, as the other strings are */
    /* Name among several databases, for logs; default: "". */
    const char *name;
    unsigned lanes;      /* connections that carry batches; default 3, at most LH_STORE_LANES_MAX */
    unsigned hook_lanes; /* connections that run hooks; default 2, at most LH_STORE_LANES_MAX */
    /* The name of this coordinator for people; default: the machine's name. */
    const char *host;
    const char *version;          /* version of this daemon */
    int64_t statement_timeout_us; /* longest time for a batch; default 30 s */
    /* Batches and calls in flight longer than this after the stop are given up; default 10 s. */
    int64_t stop_timeout_us;
    int32_t named_namespaces; /* number of namespaces for lh_store_standings, at most 50; default 0 */
    size_t max_control;       /* control calls beyond it in flight are refused; default 1024 */
    /* Query for wrong owners and rights (pg/migrate.h), run if the functions of the schema have functions_checksum.
       Both stay in place; NULL: no check. */
    const char *privileges_sql;
    const char *functions_checksum;
};

void lh_store_options_init(struct lh_store_options *options);

struct lh_store *lh_store_create(struct lh_loop *loop, const struct lh_store_options *options);

/* Frees a store that was never started, or after on_done of stop. NULL does nothing. */
void lh_store_destroy(struct lh_store *store);

enum lh_store_role { LH_STORE_LANE, LH_STORE_CONTROL, LH_STORE_LISTENER, LH_STORE_HOOK_LANE, LH_STORE_ROLE_COUNT };

/* Measurements for metrics. Connections by enum lh_store_role. */
struct lh_store_stats {
    unsigned connections[LH_STORE_ROLE_COUNT];    /* connections that the store keeps */
    unsigned connections_up[LH_STORE_ROLE_COUNT]; /* connections that are up */
    uint64_t reconnects[LH_STORE_ROLE_COUNT];
    uint64_t listener_checks;
    uint64_t listener_checks_failed;
    uint64_t notifications;
    int64_t timeline; /* timeline of the primary; 0: none was seen yet */
    uint64_t failovers;
    bool has_core;          /* the extension leasehold_core takes the common path */
    bool keeping_fails;     /* partitions of history or audit cannot be maintained */
    bool privileges_differ; /* owners and rights in the schema differ from the migrations */
    size_t control_in_flight;
    size_t max_control;
    uint64_t control_refused;
};
void lh_store_stats(const struct lh_store *store, struct lh_store_stats *stats);

/* The standing of a namespace at the last look: leases and waits that need attention. */
struct lh_store_standing {
    char ns[LH_NAMESPACE_MAX_BYTES + 1]; /* "": all others together */
    uint64_t overdue;                    /* leases past their deadline, not expired */
    uint64_t silent;                     /* leases suspected dead */
    uint64_t held_too_long;              /* leases held for longer than max_hold */
    uint64_t expired;                    /* leases that expired and were not ended */
    int64_t oldest_hold_us;              /* 0: no lease is held */
    int64_t longest_wait_us;             /* 0: no waiter */
};
#define LH_STORE_STANDINGS_MAX 51

/* Ticks of a schedule at the last look. */
struct lh_store_ticks {
    char schedule[LH_NAMESPACE_MAX_BYTES + 1]; /* "": all others together */
    uint64_t missed;                           /* instants found missed in the last hour */
    uint64_t dead;                             /* ticks whose last attempt failed in the last hour */
    uint64_t running;
    uint64_t waiting; /* ticks that may be claimed */
};

/* Requests to hand a lease over, at the last look. */
struct lh_store_hand_overs {
    uint64_t open;
    uint64_t refused;
    uint64_t unanswered; /* hand_over_grace has passed, and the lease is still held */
};

/* Returns the worst named_namespaces, then all others together; valid until the loop turns. */
const struct lh_store_standing *lh_store_standings(const struct lh_store *store, size_t *count);
/* Returns the same of schedules. */
const struct lh_store_ticks *lh_store_ticks(const struct lh_store *store, size_t *count);
struct lh_store_hand_overs lh_store_hand_overs(const struct lh_store *store);

#endif
