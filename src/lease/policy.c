#include <stddef.h>

#include "lease/store.h"

const char *lh_policy_field_name(enum lh_policy_field field)
{
    static const char *const names[LH_POLICY_FIELD_COUNT] = {
        [LH_POLICY_MIN_DURATION] = "min_duration",
        [LH_POLICY_MAX_DURATION] = "max_duration",
        [LH_POLICY_GRACE] = "grace",
        [LH_POLICY_MAX_HOLD] = "max_hold",
        [LH_POLICY_DEAD_AFTER] = "dead_after",
        [LH_POLICY_EXPIRY] = "expiry",
        [LH_POLICY_REAPER] = "reaper",
        [LH_POLICY_FROZEN] = "frozen",
        [LH_POLICY_MAX_LEASES] = "max_leases",
        [LH_POLICY_MAX_WAITERS] = "max_waiters",
        [LH_POLICY_HISTORY] = "history",
        [LH_POLICY_MAX_REAP_FAILURES] = "max_reap_failures",
        [LH_POLICY_HOOK_TIMEOUT] = "hook_timeout",
        [LH_POLICY_FREE_RETENTION] = "free_retention",
        [LH_POLICY_HISTORY_RETENTION] = "history_retention",
        [LH_POLICY_AT_LEAST] = "at_least",
        [LH_POLICY_CAPACITY] = "capacity",
        [LH_POLICY_END_AT_MAX_HOLD] = "end_at_max_hold",
    };
    return (size_t)field < LH_POLICY_FIELD_COUNT ? names[field] : "";
}
