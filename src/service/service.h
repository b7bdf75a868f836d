/*
 * The gRPC services on top of a coordinator: leasehold.v1.LeaseService and AdminService, grpc.health.v1.Health, and
 * grpc.reflection.v1 and v1alpha. Wiring them up is the daemon's:
 *
 *     service = lh_service_create(coordinator, &options);
 *     methods = lh_service_methods(&count);
 *     lh_rpc_server_options_init(&rpc);
 *     rpc.encode_error = lh_service_encode_error;
 *     rpc.on_enter = lh_service_on_enter;
 *     rpc.on_left = lh_service_on_left;
 *     rpc.on_late_cancel = lh_service_on_late_cancel;
 *     rpc.on_client_gone = lh_service_on_client_gone;
 *     server = lh_rpc_server_create(loop, &rpc, methods, count, service);      the service is the server's arg
 *     a timer, every 250 ms or so: lh_service_tick(service);                   health, and calls that are over
 *
 * To shut down: lh_service_drain (health says NOT_SERVING, calls that would wait are answered SHUTTING_DOWN),
 * lh_rpc_server_drain, and when its on_final has fired lh_coordinator_stop (waiters are answered SHUTTING_DOWN); when
 * both are done lh_rpc_server_destroy, lh_service_destroy, lh_coordinator_destroy.
 *
 * The story of a call: its bytes are checked on the wire, unpacked, checked against every bound, and handed to the
 * coordinator or the store as an object that outlives the call if it must. If the call ends first (canceled, reset, too
 * late, connection closed), the object forgets the call; a waiter is canceled in the coordinator, and a lease whose
 * grant did not reach the client is released again.
 */
#ifndef LH_SERVICE_SERVICE_H
#define LH_SERVICE_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

struct lh_coordinator;
struct lh_loop;
struct lh_readiness;
struct lh_rpc_call;
struct lh_rpc_method;
struct lh_service;
struct lh_tracer;

/* The common bounds: each caller may use a share of them. */
enum lh_usage_bound {
    LH_USAGE_WAITERS,  /* acquires that wait, until they have left the database's queue */
    LH_USAGE_PENDING,  /* items of other requests */
    LH_USAGE_WATCHERS, /* watches of leases and of health */
    LH_USAGE_CONTROL,  /* calls of the store: lists, policies and the like */
    LH_USAGE_BOUNDS,
};

/* One of several databases; see places.h. */
struct lh_service_place {
    const char *name;
    struct lh_coordinator *coordinator;
    const char *const *namespaces; /* dotted; each with all below it */
    size_t namespace_count;
    const char *const *spread; /* the same; their keys are spread over all places that have them here */
    size_t spread_count;
    bool is_default; /* has all other namespaces too */
};

struct lh_service_options {
    /* NULL only with one database: after a change of rules all open calls are looked at at once. */
    struct lh_loop *loop;
    const char *version;                   /* version of this program; default LH_VERSION */
    int64_t max_block_us;                  /* the coordinator's max_block_us, for GetStatus and messages */
    size_t max_health_watchers;            /* default 1000 */
    size_t watch_buffer;                   /* bytes that may wait for the client of a watch; default 1 MiB */
    bool hold_by_ping;                     /* as if every HoldRequest had by_ping; default no */
    size_t caller_limits[LH_USAGE_BOUNDS]; /* limits for one caller; default 20,000, 20,000, 100 and 102 */
};

void lh_service_options_init(struct lh_service_options *options);

/* Creates the service of one coordinator, which has all namespaces. Options are copied; the coordinator is borrowed. */
struct lh_service *lh_service_create(struct lh_coordinator *coordinator, const struct lh_service_options *options);
/* Creates the service of several coordinators. No two places may have the same namespace or one below another's; at
   most one is the default. */
struct lh_service *lh_service_create_placed(const struct lh_service_place *places, size_t count,
                                            const struct lh_service_options *options);
/*
 * Add one more database of a spread namespace, or remove one that has no keys. Calls under way go on with the others. Stop
 * the coordinator after lh_service_remove, and call lh_service_forget when it has stopped.
 */
#define LH_PLACES_MAX 64 /* with those that are not forgotten */
#define LH_SERVICE_WORDS_BYTES 320
void lh_service_add(struct lh_service *service, const struct lh_service_place *place);
/* Returns false, and says why, while it has keys, or it is not known which keys it has. */
bool lh_service_may_remove(const struct lh_service *service, const char *name, char why[LH_SERVICE_WORDS_BYTES]);
void lh_service_remove(struct lh_service *service, const struct lh_coordinator *coordinator);
void lh_service_forget(struct lh_service *service, const struct lh_coordinator *coordinator);

/* Frees the service. Call it after the RPC server was destroyed and the coordinator has stopped: both may call it
   before. */
void lh_service_destroy(struct lh_service *service);

/* Returns the method table for lh_rpc_server_create, whose `arg` must be the service. */
const struct lh_rpc_method *lh_service_methods(size_t *count);

/* Encodes an error, as lh_rpc_server_options.encode_error. */
void lh_service_encode_error(void *arg, enum lh_status status, const char *message, struct lh_buffer *details);

/* Let calls with a token that is not known yet wait until tokens are read again: on_enter and on_left of
   lh_rpc_server_options. */
bool lh_service_on_enter(struct lh_rpc_call *call);
void lh_service_on_left(struct lh_rpc_call *call);

/* Releases a lease whose reply crossed the client's cancel, as lh_rpc_server_options.on_late_cancel. */
void lh_service_on_late_cancel(void *arg, uint64_t call_id);

/* Forgets a client, as lh_rpc_server_options.on_client_gone. */
void lh_service_on_client_gone(void *arg, void *client);

/* The bounds of one caller, and how often each was the reason for a refusal. */
struct lh_service_caller_stats {
    size_t limits[LH_USAGE_BOUNDS];
    uint64_t refusals[LH_USAGE_BOUNDS];
    size_t watch_buffer;
};
void lh_service_caller_stats(const struct lh_service *service, struct lh_service_caller_stats *stats);

/*
 * Turns access rules on or off. Off (as at first), every caller may do everything; on, a call that no rule allows is
 * denied, and the admins have the right admin everywhere. Strings are copied.
 */
void lh_service_set_access(struct lh_service *service, bool is_on, const char *const *admins, size_t admin_count);

struct lh_service_access_stats {
    bool is_on;
    size_t rules;
    size_t tokens;
    uint64_t loads;
    uint64_t denials[3]; /* by missing right: read, lease, admin */
    uint64_t unauthenticated;
};
void lh_service_access_stats(const struct lh_service *service, struct lh_service_access_stats *stats);

/* The slots of a spread namespace that one of its databases has. Behind the last database is one without a name: it has those
   that none or several say they have. */
struct lh_service_slots {
    const char *ns;
    const char *database;
    size_t count;
};
/* Counts them, by namespace and database. Returns false behind the last. */
bool lh_service_slots(const struct lh_service *service, size_t index, struct lh_service_slots *slots);

/* Judges readiness: ready while one of its databases is, with words about each. */
void lh_service_readiness(const struct lh_service *service, struct lh_readiness *readiness);

/* Looks whether this daemon is ready, and notifies the health watchers. */
void lh_service_tick(struct lh_service *service);
/* Answers health NOT_SERVING from now on. Calls that do not wait are still served. */
void lh_service_drain(struct lh_service *service);
/* Traces calls from now on; the tracer is borrowed until the last call has ended. NULL: no traces. */
void lh_service_set_tracer(struct lh_service *service, struct lh_tracer *tracer);
/* Sets the limit for GetStatus and messages. Call it after lh_coordinator_set_max_block. */
void lh_service_set_max_block(struct lh_service *service, int64_t max_block_us);

#endif
