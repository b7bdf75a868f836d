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

/* The fields but `namespace`, in their order; returns how many. */
size_t lh_policy_fields(const ProtobufCFieldDescriptor *fields[LH_POLICY_FIELDS_MAX]);

/* NULL: there is none; `error` names the nearest. */
const ProtobufCFieldDescriptor *lh_policy_field(const char *name, struct lh_error *error);

bool lh_policy_has(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);

/* LH_INVALID_ARGUMENT: `error` says what the setting takes. */
enum lh_status lh_policy_parse(struct lh_arena *arena, Leasehold__V1__Policy *policy,
                               const ProtobufCFieldDescriptor *field, const char *text, struct lh_error *error);

/* "1.5 s", "takeover", "true", "1000"; NULL where it is not set. A new string. */
char *lh_policy_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);

/* As the functions for programs take and return it, durations in microseconds; NULL where it is not set. A new string.
 */
char *lh_policy_sql(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);
void lh_policy_set_sql(struct lh_arena *arena, Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field,
                       const char *value);

/* The column's name where SQL has durations in microseconds: "grace_us". A new string. */
char *lh_policy_column(const ProtobufCFieldDescriptor *field);

#endif
