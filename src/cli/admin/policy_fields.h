/* The settings of a policy in words: json/policy_setting.h has their names and values. */
#ifndef LH_CLI_POLICY_FIELDS_H
#define LH_CLI_POLICY_FIELDS_H

#include "base/status.h"
#include "json/policy_setting.h"

/* Returns the field; NULL: there is none, and `error` names the nearest. */
const ProtobufCFieldDescriptor *lh_policy_field(const char *name, struct lh_error *error);

/* Sets the field from words. LH_INVALID_ARGUMENT: `error` lists the values of the setting. */
enum lh_status lh_policy_parse(struct lh_arena *arena, Leasehold__V1__Policy *policy,
                               const ProtobufCFieldDescriptor *field, const char *text, struct lh_error *error);

/* Returns "1.5 s", "takeover", "true", "1000"; NULL if the field is not set. A new string. */
char *lh_policy_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);

#endif
