/* The callbacks in the tables of the service; each is in the file of its verb. */
#ifndef LH_SERVICE_METHODS_H
#define LH_SERVICE_METHODS_H

#include "rpc/server.h"

lh_rpc_message_cb lh_acquire_on_message, lh_acquire_all_on_message, lh_acquire_stream_on_message,
    lh_heartbeat_on_message, lh_release_on_message, lh_downgrade_on_message, lh_keep_alive_on_message,
    lh_hold_on_message, lh_get_lease_on_message, lh_list_leases_on_message, lh_reap_on_message,
    lh_force_release_on_message, lh_get_status_on_message, lh_set_policy_on_message, lh_get_policy_on_message,
    lh_list_policies_on_message, lh_grant_access_on_message, lh_revoke_access_on_message, lh_list_access_on_message,
    lh_create_token_on_message, lh_revoke_token_on_message, lh_list_tokens_on_message, lh_health_check_on_message,
    lh_health_watch_on_message, lh_reflection_on_message, lh_watch_leases_on_message, lh_look_on_message,
    lh_explain_on_message, lh_get_session_on_message, lh_get_samples_on_message;
lh_rpc_call_cb lh_keep_alive_on_start, lh_keep_alive_on_half_close, lh_keep_alive_on_writable, lh_hold_on_start,
    lh_hold_on_half_close, lh_hold_on_alarm, lh_hold_on_peer_alive, lh_reflection_on_writable,
    lh_reflection_on_half_close, lh_watch_leases_on_writable, lh_watch_leases_on_alarm;
lh_rpc_end_cb lh_acquire_on_end, lh_downgrade_on_end, lh_batch_on_end, lh_keep_alive_on_end, lh_hold_on_end,
    lh_health_watch_on_end, lh_watch_leases_on_end;

/* Names of the services, in the order in which reflection lists them; ends in NULL. */
extern const char *const lh_service_names[];

#endif
