/* The fields of a service. */
#ifndef LH_SERVICE_SERVICE_INTERNAL_H
#define LH_SERVICE_SERVICE_INTERNAL_H

#include "base/list.h"
#include "base/table.h"
#include "lease/coordinator.h"
#include "loop/backlog.h"
#include "rpc/server.h"
#include "service/edge/failure.h"
#include "service/edge/wire.h"
#include "service/edge_internal.h"
#include "service/methods/samples.h"
#include "service/places_internal.h"
#include "service/service.h"

/* The longest time between two messages of ours on a stream: proxies end those that are quiet for 50 or 60 s. */
#define LH_QUIET_US (15 * LH_US_PER_S)

struct lh_service {
    struct lh_loop *loop; /* NULL: no loop, and one place */
    struct lh_places *places;
    struct lh_store *store; /* the store of all places */
    /* The same as `store` with several places or a spread namespace, else NULL. */
    struct lh_store *placed_store;
    struct lh_tracer *tracer; /* NULL: no traces */
    char *version;
    int64_t max_block_us;
    size_t max_health_watchers;
    size_t watch_buffer;
    bool hold_by_ping;
    size_t caller_limits[LH_USAGE_BOUNDS];
    uint64_t caller_refusals[LH_USAGE_BOUNDS];
    struct lh_table usages;  /* callers that are principals */
    struct lh_arena scratch; /* memory of the callback that runs now */

    struct lh_access *access;
    uint64_t loaded_rules; /* fingerprint of the rules and tokens in force */
    size_t admin_count;    /* admins of the configuration */
    struct lh_denials denials;
    struct lh_unknown_tokens unknown_tokens;
    struct lh_service_access_stats access_stats; /* counters */
    int64_t used_told_us;
    uint64_t rights_round;   /* grows when the rights of callers have changed */
    bool looks_in_turns;     /* if not: it looks at all open calls at once */
    struct lh_backlog looks; /* open calls that this round has not looked at yet */
    struct lh_backlog_item look;

    bool is_draining;
    bool was_serving; /* the last state that the watchers got */
    struct lh_link health_watchers;
    size_t health_watcher_count;

    struct lh_link claims;   /* ClaimTick calls, in the order in which they came */
    struct lh_link refusals; /* refusals whose holders are looked up */
    size_t refusal_count;

    /* Calls that are not answered yet; those that this round has looked at come last. */
    struct lh_link acquires;
    /* Grants whose replies went out lately, by call: a cancel may have crossed them on the wire. */
    struct lh_table told;
    struct lh_link told_in_order;

    struct lh_link keep_alives;
    struct lh_link watches;
    struct lh_link routed_watches;
    /* Hold streams; those that this round has looked at come last. */
    struct lh_link hold_list;
    /* Hold streams that hold a lease, by scope and lease key. */
    struct lh_table holds;

    struct lh_reflection *reflection;
    struct lh_samples samples;
};

/* Ends the ClaimTick calls that wait. */
void lh_claims_drain(struct lh_service *service);

/* The descriptors of all services, which clients may list. */
struct lh_reflection;
struct lh_reflection *lh_reflection_create(void);
void lh_reflection_destroy(struct lh_reflection *reflection);

#endif
