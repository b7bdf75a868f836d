/*
 * The callbacks in the table of the service, each in the file of its verb, and what methods and streams have of each
 * other. Private to src/service.
 *
 * A method with one request has a struct lh_method as lh_rpc_method.arg: the message is checked, unpacked into scratch
 * memory and handed to `on_request`. If it is refused, the call is answered, and `on_request` is not called.
 */
#ifndef LH_SERVICE_METHODS_INTERNAL_H
#define LH_SERVICE_METHODS_INTERNAL_H

#include <protobuf-c/protobuf-c.h>

#include "access/access.h"
#include "base/list.h"
#include "base/table.h"
#include "lease/coordinator.h"
#include "lease/view.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "leasehold/v1/schedule.pb-c.h"
#include "rpc/server.h"
#include "service/service.h"

struct lh_asked;
struct lh_validator;
struct lh_violations;
typedef void lh_request_cb(struct lh_asked *asked, const void *request);

enum lh_look_of {
    /* A ListRequest; needs the right in some of its namespaces. */
    LH_LOOK_OF_NAMESPACES,
    LH_LOOK_OF_SCOPE,    /* a scope */
    LH_LOOK_OF_DATABASE, /* needs the right anywhere */
};

struct lh_method {
    const ProtobufCMessageDescriptor *request;
    /* Message that the store's rows become: repeated rows, then next_page_token; or one row's fields. */
    const ProtobufCMessageDescriptor *response;
    lh_request_cb *on_request;
    bool is_traced;
    /* ConsoleService and lists of schedules: the view of the store, and the right that it needs. */
    enum lh_view view;
    enum lh_look_of of;
    enum lh_right right;
};

/* The on_message of a method with a struct lh_method. */
lh_rpc_message_cb lh_asked_on_message;

lh_rpc_message_cb lh_heartbeat_on_message, lh_release_on_message, lh_keep_alive_on_message, lh_hold_on_message,
    lh_health_check_on_message, lh_health_watch_on_message, lh_reflection_on_message;
lh_request_cb lh_acquire_on_request, lh_acquire_all_on_request, lh_acquire_stream_on_request, lh_downgrade_on_request,
    lh_get_lease_on_request, lh_list_leases_on_request, lh_watch_leases_on_request, lh_reap_on_request,
    lh_force_release_on_request, lh_get_status_on_request, lh_set_policy_on_request, lh_get_policy_on_request,
    lh_list_policies_on_request, lh_grant_access_on_request, lh_revoke_access_on_request, lh_list_access_on_request,
    lh_create_token_on_request, lh_revoke_token_on_request, lh_list_tokens_on_request, lh_look_on_request,
    lh_explain_on_request, lh_get_session_on_request, lh_get_samples_on_request, lh_set_schedule_on_request,
    lh_get_schedule_on_request, lh_list_schedules_on_request, lh_pause_schedule_on_request,
    lh_remove_schedule_on_request, lh_run_schedule_now_on_request, lh_list_ticks_on_request, lh_claim_tick_on_request,
    lh_ask_hand_over_on_request, lh_refuse_hand_over_on_request;
lh_rpc_call_cb lh_keep_alive_on_start, lh_keep_alive_on_half_close, lh_keep_alive_on_writable, lh_hold_on_start,
    lh_hold_on_half_close, lh_hold_on_alarm, lh_hold_on_peer_alive, lh_reflection_on_writable,
    lh_reflection_on_half_close, lh_watch_leases_on_writable, lh_watch_leases_on_alarm;
lh_rpc_end_cb lh_acquire_on_end, lh_downgrade_on_end, lh_batch_on_end, lh_keep_alive_on_end, lh_hold_on_end,
    lh_health_watch_on_end, lh_watch_leases_on_end, lh_claim_tick_on_end;

/* Names of the services, in the order in which reflection lists them; ends in NULL. */
extern const char *const lh_service_names[];

/* --- a call that acquires: Acquire, AcquireAll, AcquireStream; Hold uses its failures --- */

struct acquire_call;
/* Sends the leases to the caller. */
typedef void acquire_granted_fn(struct acquire_call *acquire, const struct lh_acquire_result *result);

struct acquire_call {
    struct lh_acquire acquire;
    struct lh_service *service;
    struct lh_coordinator *coordinator; /* the coordinator that has it; its key may be elsewhere by now */
    struct lh_rpc_call *call;           /* NULL: the call is ABANDONED */
    acquire_granted_fn *tell_granted;
    struct lh_usage *caller;
    struct lh_access_caller who;
    uint64_t rights_round; /* last round of rights that looked at it */
    /* TOLD: the reply with a new lease is on its way. */
    bool is_told;
    bool is_refused;  /* REFUSED: the holders are looked up */
    uint64_t call_id; /* the call's number, which a late cancel names */
    int64_t told_us;
    /* Link in lh_service.told, once its call has ended. */
    struct lh_table_entry by_call;
    /* Link in lh_service.acquires, then in lh_service.told_in_order. */
    struct lh_link in_order;
    struct lh_wanted_scope also[]; /* the strings follow them */
};

/* Fills the caller's part of `acquire`, without on_done and arg. Makes a lease key if the request has none. */
bool lh_validate_acquire(struct lh_validator *v, const Leasehold__V1__AcquireRequest *request,
                         struct lh_acquire *acquire);

/* Does the same for a request with several scopes. */
bool lh_validate_acquire_all(struct lh_validator *v, const Leasehold__V1__AcquireAllRequest *request,
                             struct lh_acquire *acquire);

/* Does the same for the claim of a tick. Without a duration duration_us is 0. */
bool lh_validate_claim(struct lh_validator *v, const Leasehold__V1__ClaimTickRequest *request,
                       struct lh_acquire *acquire);

/* Checks the AcquireRequest and begins; if it is refused, the call is answered. With on_progress the call is a stream. */
void lh_acquire_begin(struct lh_asked *asked, const void *request, lh_progress_cb *on_progress,
                      acquire_granted_fn *tell);

/* The end of its request, and of the call. */
void lh_acquire_on_done(struct lh_acquire *request, const struct lh_acquire_result *result);
void lh_acquire_call_destroy(struct acquire_call *acquire);
/* Tell the lease of an Acquire, and the leases of an AcquireAll. */
void lh_acquire_tell_lease(struct acquire_call *acquire, const struct lh_acquire_result *result);
void lh_acquire_tell_leases(struct acquire_call *acquire, const struct lh_acquire_result *result);

/* Returns the lease of the request's nth scope as its holder gets it. */
Leasehold__V1__Lease *lh_acquire_lease(const struct acquire_call *acquire, const struct lh_acquire_result *result,
                                       size_t n);

static inline size_t lh_acquire_scope_count(const struct lh_acquire *request)
{
    return 1 + request->also_count;
}

static inline struct lh_wanted_scope lh_acquire_nth_scope(const struct lh_acquire *request, size_t i)
{
    if (i > 0)
        return request->also[i - 1];
    return (struct lh_wanted_scope){request->ns, request->key, request->units, request->at_least_us};
}

/* Returns the bound of its caller that the request counts against until it is done. */
static inline enum lh_usage_bound lh_acquire_bound(const struct lh_acquire *request)
{
    return request->wait == LH_WAIT_NONE ? LH_USAGE_PENDING : LH_USAGE_WAITERS;
}

/* Marks a priority that the policy's max_priority does not bind, for the caller has the right admin. */
void lh_acquire_set_rights(const struct lh_access_caller *who, struct lh_acquire *request);

/* Answers the call with the reason that the request was not granted. */
void lh_acquire_fail(struct lh_rpc_call *call, const struct lh_access_caller *who, const struct lh_acquire *request,
                     const struct lh_acquire_result *result);

typedef void lh_refusal_cb(void *arg, const struct lh_acquire_result *result);

/*
 * Looks up the holders before lh_acquire_fail, if several hold the scope. Calls `then` once, at once or later, with the
 * result to fail with; leave `request` in place until then.
 */
void lh_acquire_name_holders(struct lh_service *service, const struct lh_acquire *request,
                             const struct lh_acquire_result *result, lh_refusal_cb *then, void *arg);

/* Returns the coordinator of the database that may grant the request, or NULL: the databases have to agree first. */
struct lh_coordinator *lh_acquire_coordinator(const struct lh_service *service, const struct lh_acquire *request);
/* Answers the call with a refusal of lh_coordinator_acquire, or that its key is in another database than it was. */
void lh_acquire_refuse(struct lh_rpc_call *call, const struct lh_acquire *request, enum lh_status status);
void lh_acquire_refuse_moved(struct lh_rpc_call *call, const struct lh_acquire *request);

/* Hides the holder from a caller without the right to read; it learns only that the scope is held. */
void lh_acquire_hide_holder(const struct lh_access_caller *who, const char *ns, const char *key,
                            struct lh_contention *contention);

void lh_acquires_start(struct lh_service *service);
void lh_acquire_tick(struct lh_service *service);
void lh_acquire_finish(struct lh_service *service);
/* Looks at no more than `max` calls of this round, and ends those whose callers have lost their right or whose keys are in
   another database now. Returns true if more calls are left. */
bool lh_acquire_check_rights(struct lh_service *service, int max);

/* Ends look-ups of holders that take long. Call it once a second. */
void lh_refusals_tick(struct lh_service *service);

/* --- batches: Heartbeat, Release, and those of a KeepAlive stream --- */

/*
 * Starts one batch of a stream of heartbeats. LH_OK: `on_answer` gets the packed HeartbeatResponse once, later, even if
 * the stream has ended. LH_INVALID_ARGUMENT: see `violations`. Any other status: the coordinator refused it. `count` is
 * its number of items.
 */
typedef void lh_heartbeats_cb(void *arg, const void *data, size_t size);
enum lh_status lh_heartbeats_start(struct lh_rpc_call *call, const struct lh_access_caller *who, const void *data,
                                   size_t size, size_t *count, struct lh_violations *violations,
                                   lh_heartbeats_cb *on_answer, void *arg);

/* --- the settings that a SetPolicy asks for --- */

/*
 * Fills `change` from the fields of the update mask, in the validator's arena. Without a mask these are the fields that are
 * present; "*" is all of them. Returns false, with violations, if a value is out of bounds.
 */
bool lh_policy_from_request(struct lh_validator *v, const Leasehold__V1__SetPolicyRequest *request,
                            struct lh_policy_change *change);

/* --- the methods of ScheduleService that change or show one schedule --- */

#define LH_SCHEDULE_SETTINGS_MAX 16

/* Settings by name, for the store. */
struct lh_schedule_settings {
    const char *names[LH_SCHEDULE_SETTINGS_MAX];
    const char *values[LH_SCHEDULE_SETTINGS_MAX];
    struct lh_policy_change change; /* points into this struct: leave it in place */
};

/* Add a setting. The value is borrowed; a number becomes text in the arena. */
void lh_schedule_setting(struct lh_schedule_settings *settings, const char *name, const char *value);
void lh_schedule_number(struct lh_schedule_settings *settings, const char *name, int64_t value, struct lh_arena *arena);

/* Checks a schedule's name and settings and converts them; what the request leaves out gets its default. Returns false
   with violations. */
bool lh_schedule_from_request(struct lh_validator *v, const Leasehold__V1__Schedule *schedule,
                              struct lh_schedule_settings *settings);

/* Returns true if the store succeeded, and the call still waits. Otherwise it fails the call, if there still is one; the
   fields of the request are below `path`, "": in the request itself. */
bool lh_schedule_is_answered(struct lh_rpc_call *call, enum lh_status status, const struct lh_error *error,
                             const char *ns, const char *path);

#endif
