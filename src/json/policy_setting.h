/*
 * The settings of a policy, by the message's own descriptor: a new field of leasehold.v1.Policy is a new setting without a
 * line of code here.
 */
#ifndef LH_JSON_POLICY_SETTING_H
#define LH_JSON_POLICY_SETTING_H

#include <stdbool.h>

#include "base/memory.h"
#include "base/rows.h"
#include "leasehold/v1/leasehold.pb-c.h"

#define LH_POLICY_SETTINGS_MAX 32

enum lh_setting_kind {
    LH_SETTING_DURATION,
    LH_SETTING_BOOL,
    LH_SETTING_INT32,
    LH_SETTING_INT64,
    LH_SETTING_ENUM,
};

/* Lists the fields but `namespace`, in their order; returns their number. */
size_t lh_policy_settings(const ProtobufCFieldDescriptor *settings[LH_POLICY_SETTINGS_MAX]);
/* Returns the setting of this name, or NULL. */
const ProtobufCFieldDescriptor *lh_policy_setting(const char *name);
enum lh_setting_kind lh_policy_setting_kind(const ProtobufCFieldDescriptor *setting);

bool lh_policy_has(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *setting);
/* Returns the number of a setting that `policy` has: microseconds, 0 or 1, a count, the enum's. Durations are clamped. */
int64_t lh_policy_number(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *setting);

/* Returns the value as SQL functions for programs take it, durations in microseconds: "1500000", "takeover", "true". NULL
   if it is not set, or an enum's that this program does not know. */
const char *lh_policy_value(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *setting,
                            struct lh_arena *arena);

/* Fills the answer of rows of policy_get(): the policy's own, the one in force and where each setting comes from. */
void lh_policy_from_rows(Leasehold__V1__GetPolicyResponse *response, const struct lh_rows *rows,
                         struct lh_arena *arena);

#endif
