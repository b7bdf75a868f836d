/*
 * The settings of a policy, one by one, found by the message's own descriptor: their names, their values from words,
 * and words from their values. A new field of the protocol is a new setting here without a line of code.
 */
#ifndef LH_CLI_POLICY_FIELDS_H
#define LH_CLI_POLICY_FIELDS_H

#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"
#include "leasehold/v1/leasehold.pb-c.h"

#define LH_POLICY_FIELDS_MAX 32

/* Lists the fields but `namespace`, in their order; returns their number. */
size_t lh_policy_fields(const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX]);

/* Returns the field; NULL: there is none, and `error` names the nearest. */
const ProtobufCFieldDescriptor *lh_policy_field(const char *name, struct lh_error *error);

bool lh_policy_has(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);

/* Sets the field from words. LH_INVALID_ARGUMENT: `error` lists the values of the setting. */
enum lh_status lh_policy_parse(struct lh_arena *arena, Leasehold__V1__Policy *policy,
                               const ProtobufCFieldDescriptor *field, const char *text, struct lh_error *error);

/* Returns "1.5 s", "takeover", "true", "1000"; NULL if the field is not set. A new string. */
char *lh_policy_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);

/* Convert a field as SQL functions for programs take and return it, durations in microseconds. lh_policy_sql returns
   a new string; NULL if the field is not set. */
char *lh_policy_sql(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);
void lh_policy_set_sql(struct lh_arena *arena, Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field,
                       const char *value);

/* Returns the column's name, with durations in microseconds: "grace_us". A new string. */
char *lh_policy_column(const ProtobufCFieldDescriptor *field);

#endif
