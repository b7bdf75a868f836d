/* What the methods share. For src/service alone. */
#ifndef LH_SERVICE_CALL_H
#define LH_SERVICE_CALL_H

#include "base/list.h"
#include "base/table.h"
#include "lease/coordinator.h"
#include "loop/backlog.h"
#include "rpc/server.h"
#include "service/denials.h"
#include "service/failure.h"
#include "service/permit.h"
#include "service/places.h"
#include "service/route.h"
#include "service/samples.h"
#include "service/service.h"
#include "service/tracing.h"
#include "service/usage.h"
#include "service/validate.h"
#include "service/wire.h"

/* A reply stays well below the 4 MiB that clients take by default: lists end their page there. */
#define LH_REPLY_MAX_BYTES ((size_t)3 * 1024 * 1024)
/* Words of the database or a hook within an item of a batch. */
#define LH_ITEM_MESSAGE_MAX_BYTES 256

#define LH_OUTAGE_WORDS_BYTES 512

struct lh_reflection;

struct lh_service {
    struct lh_loop *loop; /* NULL: there is none, and one place */
    struct lh_places *places;
    struct lh_store *store;        /* of all places */
    struct lh_store *placed_store; /* the same where there are several, else NULL */
    struct lh_tracer *tracer;      /* NULL: no traces */
    char *version;
    int64_t max_block_us;
    size_t max_health_watchers;
    size_t watch_buffer;
    size_t caller_limits[LH_USAGE_BOUNDS];
    uint64_t caller_refusals[LH_USAGE_BOUNDS];
    struct lh_table usages;  /* those of principals */
    struct lh_arena scratch; /* of the callback that runs now */

    struct lh_access *access;
    size_t admin_count; /* of the configuration */
    struct lh_denials denials;
    struct lh_service_access_stats access_stats; /* what is counted here */
    int64_t used_told_us;
    uint64_t rights_round;   /* grows when what callers may do has changed */
    bool looks_in_turns;     /* else at all open calls at once */
    struct lh_backlog looks; /* for those that were not looked at in this round */
    struct lh_backlog_item look;

    bool is_draining;
    bool was_serving; /* what the watchers were told last */
    struct lh_link health_watchers;
    size_t health_watcher_count;

    struct lh_link refusals; /* whose holders are looked up */
    size_t refusal_count;

    struct lh_link acquires; /* calls that are not answered yet; those that this round has looked at last */
    /* Grants whose replies went out lately, by call: a cancel may have crossed them on the wire. */
    struct lh_table told;
    struct lh_link told_in_order;

    struct lh_link keep_alives;
    struct lh_link watches;
    struct lh_link hold_list; /* likewise */
    struct lh_table holds;    /* those that hold, by scope and lease key */

    struct lh_reflection *reflection;
    struct lh_samples samples;
};

struct lh_service *lh_call_service(const struct lh_rpc_call *call);
/* For the history and the audit; its strings are the call's. */
struct lh_requester lh_call_requester(const struct lh_rpc_call *call);

/* The checked and unpacked request, or NULL: then the call was answered. */
void *lh_call_unpack(struct lh_rpc_call *call, const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                     struct lh_arena *arena);

/* The same for a call that is not to be answered yet: NULL, and `violations` say why. */
void *lh_call_unpack_into(const ProtobufCMessageDescriptor *type, const void *data, size_t size, struct lh_arena *arena,
                          struct lh_violations *violations);

void lh_call_reply(struct lh_rpc_call *call, const ProtobufCMessage *message, struct lh_arena *arena);

/*
 * A request that is checked in one go:
 *
 *     request = lh_asked_begin(&asked, call, type, data, size);       NULL: the call was answered
 *     if (request != NULL && lh_asked_check(&asked, lh_validate_...(&asked.v, request, &wanted)))
 *         ...                                                         else: the call was answered, if there was a request
 *     lh_asked_end(&asked);
 */
struct lh_asked {
    struct lh_rpc_call *call;
    struct lh_service *service;
    struct lh_violations violations;
    struct lh_validator v;
};
void *lh_asked_begin(struct lh_asked *asked, struct lh_rpc_call *call, const ProtobufCMessageDescriptor *type,
                     const void *data, size_t size);
/* What it was given; false: the call was answered with the violations. */
bool lh_asked_check(const struct lh_asked *asked, bool is_valid);
void lh_asked_end(const struct lh_asked *asked);

/* INVALID_ARGUMENT with these. */
void lh_call_refuse(struct lh_rpc_call *call, const struct lh_violations *violations);

/* What coordinator or store said; `ns` and `key` may be NULL, `error` too. */
void lh_call_fail(struct lh_rpc_call *call, enum lh_status status, const struct lh_error *error, const char *ns,
                  const char *key);

/* The message of DATABASE_UNAVAILABLE: why, as far as clients may know, and `what_next`. `ns` NULL: of several. */
const char *lh_call_words_of_outage(const struct lh_service *service, const char *ns, const char *what_next,
                                    char words[LH_OUTAGE_WORDS_BYTES]);

/* A field of the database's functions as the request's path: "key" -> "scope.key", "grace" -> "policy.grace". */
const char *lh_call_field(const char *field, char path[LH_VIOLATION_FIELD_BYTES]);

/*
 * A call of the store, which answers later; its RPC call may have ended by then.
 *
 *     store_call = lh_store_call_create(call, ns, key);
 *     if (store_call == NULL) return;      its caller asks for too much at once, and was refused
 *     lh_store_call_check(store_call, store->ops->get(store, store_call->ns, store_call->key, on_scope, store_call));
 *
 *     on_scope: if (lh_store_call_is_answered(store_call, status, error)) reply to store_call->call ...;
 *               lh_store_call_destroy(store_call);
 */
struct lh_store_call {
    struct lh_rpc_call *call; /* NULL once it has ended */
    struct lh_service *service;
    struct lh_usage *caller;
    const char *ns;
    const char *key;
    uint64_t filter;
    int64_t token;
};

/* Copies the strings, which may be NULL. */
struct lh_store_call *lh_store_call_create(struct lh_rpc_call *call, const char *ns, const char *key);
void lh_store_call_destroy(struct lh_store_call *store_call);
/* The store refused to take it: answers and destroys. */
void lh_store_call_check(struct lh_store_call *store_call, enum lh_status status);
/* True: it succeeded, and the RPC call is still there to answer. Else it fails the RPC call, if that is still there. */
bool lh_store_call_is_answered(struct lh_store_call *store_call, enum lh_status status, const struct lh_error *error);
/* Then the scratch is empty again. */
void lh_store_call_reply(const struct lh_store_call *store_call, const ProtobufCMessage *message);
void lh_store_call_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason);

/*
 * One batch of a stream of heartbeats. LH_OK: `on_answer` gets the packed HeartbeatResponse once, later, whatever
 * becomes of the stream. LH_INVALID_ARGUMENT: `violations` say why; else the coordinator does not take it. `count` is
 * how many items it has.
 */
typedef void lh_heartbeats_cb(void *arg, const void *data, size_t size);
enum lh_status lh_heartbeats_start(struct lh_rpc_call *call, const struct lh_access_caller *who, const void *data,
                                   size_t size, size_t *count, struct lh_violations *violations,
                                   lh_heartbeats_cb *on_answer, void *arg);

/* The methods. */
lh_rpc_message_cb lh_acquire_on_message, lh_acquire_all_on_message, lh_acquire_stream_on_message,
    lh_heartbeat_on_message, lh_release_on_message, lh_downgrade_on_message, lh_keep_alive_on_message,
    lh_hold_on_message, lh_get_lease_on_message, lh_list_leases_on_message, lh_reap_on_message,
    lh_force_release_on_message, lh_get_status_on_message, lh_set_policy_on_message, lh_get_policy_on_message,
    lh_list_policies_on_message, lh_grant_access_on_message, lh_revoke_access_on_message, lh_list_access_on_message,
    lh_create_token_on_message, lh_revoke_token_on_message, lh_list_tokens_on_message, lh_health_check_on_message,
    lh_health_watch_on_message, lh_reflection_on_message;
lh_rpc_call_cb lh_keep_alive_on_start, lh_keep_alive_on_half_close, lh_keep_alive_on_writable, lh_hold_on_start,
    lh_hold_on_half_close, lh_hold_on_alarm, lh_hold_on_peer_alive, lh_reflection_on_writable,
    lh_reflection_on_half_close;
lh_rpc_end_cb lh_acquire_on_end, lh_downgrade_on_end, lh_batch_on_end, lh_keep_alive_on_end, lh_hold_on_end,
    lh_health_watch_on_end;

/* What they do besides: at the service's start and end, with its tick, when it drains. */
void lh_acquire_start(struct lh_service *service);
void lh_acquire_tick(struct lh_service *service);
void lh_acquire_finish(struct lh_service *service);
void lh_keep_alive_drain(struct lh_service *service);
void lh_hold_start(struct lh_service *service);
void lh_hold_drain(struct lh_service *service);
void lh_hold_finish(struct lh_service *service);
/* Of this round, `max` at most: ends what its caller may not do any more. True: there are more. */
bool lh_acquire_check_rights(struct lh_service *service, int max);
bool lh_hold_check_rights(struct lh_service *service, int max);
/* A downgrade of this lease was answered: a Hold stream that holds it here tells its client. */
void lh_hold_downgraded(struct lh_service *service, const struct lh_held_lease *lease);

/* The services there are, in the order in which reflection lists them; NULL ends them. */
extern const char *const lh_service_names[];

struct lh_reflection *lh_reflection_create(void);
void lh_reflection_destroy(struct lh_reflection *reflection);

#endif
