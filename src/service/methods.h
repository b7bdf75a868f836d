/*
 * The callbacks in the tables of the service; each is in the file of its verb.
 *
 * A method with one request has a struct lh_method as lh_rpc_method.arg: the message is checked, unpacked into scratch
 * memory and handed to `on_request`. If it is refused, the call is answered, and `on_request` is not called.
 */
#ifndef LH_SERVICE_METHODS_H
#define LH_SERVICE_METHODS_H

#include <protobuf-c/protobuf-c.h>

#include "access/access.h"
#include "lease/view.h"
#include "rpc/server.h"

struct lh_asked;
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

#endif
