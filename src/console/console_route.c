#include "console/console_internal.h"

#include <string.h>

#include "leasehold/v1/console.pb-c.h"
#include "leasehold/v1/schedule.pb-c.h"

#define DESCRIPTOR(name) &leasehold__v1__##name##__descriptor
#define LEASE "/leasehold.v1.LeaseService/"
#define ADMIN "/leasehold.v1.AdminService/"
#define CONSOLE "/leasehold.v1.ConsoleService/"
#define SCHEDULE "/leasehold.v1.ScheduleService/"

/* clang-format off */
static const struct console_route routes[] = {
    {"/session", false, NULL, {
        {CONSOLE "GetSession", DESCRIPTOR(get_session_request), DESCRIPTOR(get_session_response), NULL, false, false}}},
    {"/namespaces", false, NULL, {
        {CONSOLE "ListNamespaces", DESCRIPTOR(list_request), DESCRIPTOR(list_namespaces_response), NULL, false, false}}},
    {"/leases", false, NULL, {
        {LEASE "ListLeases", DESCRIPTOR(list_leases_request), DESCRIPTOR(list_leases_response), NULL, false, false}}},
    {"/scope", false, NULL, {
        {LEASE "GetLease", DESCRIPTOR(get_lease_request), DESCRIPTOR(get_lease_response), NULL, true, false},
        {CONSOLE "Explain", DESCRIPTOR(explain_request), DESCRIPTOR(explain_response), "explain", false, false}}},
    {"/queue", false, NULL, {
        {CONSOLE "ListWaits", DESCRIPTOR(list_request), DESCRIPTOR(list_waits_response), NULL, false, true},
        {CONSOLE "ListQueue", DESCRIPTOR(list_request), DESCRIPTOR(list_queue_response), NULL, false, false}}},
    {"/history", false, NULL, {
        {CONSOLE "ListHistory", DESCRIPTOR(list_request), DESCRIPTOR(list_history_response), NULL, false, false}}},
    {"/failures", false, NULL, {
        {CONSOLE "ListFailures", DESCRIPTOR(list_request), DESCRIPTOR(list_failures_response), NULL, false, false}}},
    {"/schedules", false, NULL, {
        {SCHEDULE "ListSchedules", DESCRIPTOR(list_schedules_request), DESCRIPTOR(list_schedules_response), NULL, false, false}}},
    {"/schedule-days", false, NULL, {
        {CONSOLE "ListScheduleDays", DESCRIPTOR(list_request), DESCRIPTOR(list_schedule_days_response), NULL, false, false}}},
    {"/schedule", false, NULL, {
        {SCHEDULE "GetSchedule", DESCRIPTOR(get_schedule_request), DESCRIPTOR(get_schedule_response), NULL, false, false}}},
    {"/ticks", false, NULL, {
        {SCHEDULE "ListTicks", DESCRIPTOR(list_ticks_request), DESCRIPTOR(list_ticks_response), NULL, false, false}}},
    {"/policies", false, "namespace", {
        {ADMIN "GetPolicy", DESCRIPTOR(get_policy_request), DESCRIPTOR(get_policy_response), NULL, false, false}}},
    {"/policies", false, NULL, {
        {ADMIN "ListPolicies", DESCRIPTOR(list_policies_request), DESCRIPTOR(list_policies_response), NULL, false, false}}},
    {"/daemons", false, NULL, {
        {CONSOLE "ListDaemons", DESCRIPTOR(list_request), DESCRIPTOR(list_daemons_response), NULL, false, false},
        {CONSOLE "GetDatabase", DESCRIPTOR(get_database_request), DESCRIPTOR(get_database_response), "database", false, false},
        {ADMIN "GetStatus", DESCRIPTOR(get_status_request), DESCRIPTOR(get_status_response), "status", false, false},
        {CONSOLE "GetSamples", DESCRIPTOR(get_samples_request), DESCRIPTOR(get_samples_response), "samples", false, false}}},
    {"/audit", false, NULL, {
        {CONSOLE "ListAudit", DESCRIPTOR(list_request), DESCRIPTOR(list_audit_response), NULL, false, false}}},
    {"/events", false, NULL, {
        {LEASE "WatchLeases", DESCRIPTOR(watch_leases_request), DESCRIPTOR(lease_event), NULL, false, false}}},
    {"/sign-in", true, NULL, {
        {CONSOLE "GetSession", DESCRIPTOR(get_session_request), DESCRIPTOR(get_session_response), NULL, false, false}}},
    {"/sign-out", true, NULL, {{0}}},
    {"/force-release", true, NULL, {
        {ADMIN "ForceRelease", DESCRIPTOR(force_release_request), DESCRIPTOR(force_release_response), NULL, false, false}}},
    {"/ask-hand-over", true, NULL, {
        {LEASE "AskHandOver", DESCRIPTOR(ask_hand_over_request), DESCRIPTOR(ask_hand_over_response), NULL, false, false}}},
    {"/reap", true, NULL, {
        {ADMIN "Reap", DESCRIPTOR(reap_request), DESCRIPTOR(reap_response), NULL, false, false}}},
    {"/schedule-pause", true, NULL, {
        {SCHEDULE "PauseSchedule", DESCRIPTOR(pause_schedule_request), DESCRIPTOR(pause_schedule_response), NULL, false, false}}},
    {"/schedule-run", true, NULL, {
        {SCHEDULE "RunScheduleNow", DESCRIPTOR(run_schedule_now_request), DESCRIPTOR(run_schedule_now_response), NULL, false, false}}},
    {"/policy", true, NULL, {
        {ADMIN "SetPolicy", DESCRIPTOR(set_policy_request), DESCRIPTOR(set_policy_response), NULL, false, false}}},
};
/* clang-format on */

const struct console_route *lh_route_find(const char *path, route_has_parameter *has, const void *arg)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (strcmp(routes[i].path, path) == 0 && (routes[i].needs == NULL || has(arg, routes[i].needs)))
            return &routes[i];
    return NULL;
}
