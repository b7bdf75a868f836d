/* Converts durations, times, scopes and namespaces between the words of the command line and the fields of messages. */
#ifndef LH_CLI_MESSAGE_H
#define LH_CLI_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* Return microseconds, clamped to int64_t. */
int64_t lh_duration_us(const Google__Protobuf__Duration *duration);
int64_t lh_timestamp_us(const Google__Protobuf__Timestamp *timestamp);

Google__Protobuf__Duration lh_duration_message(int64_t duration_us);

/* A dotted namespace, split into segments, and the message of it. Zero-initialised it is the root; the segments are
   its own. */
struct lh_segments {
    char *list[17];
    size_t count;
    Leasehold__V1__Namespace message; /* points into this struct: leave it in place */
    char *text;
};

/* Splits without checks: see cli/bounds.h. "" and "." are the root. */
void lh_segments_split(struct lh_segments *segments, const char *ns);
void lh_segments_finish(struct lh_segments *segments);

/* A scope. lh_scope_message_init checks both words and returns false, with nothing to finish, if one is wrong. `key`
   is borrowed. */
struct lh_scope_message {
    struct lh_segments segments;
    Leasehold__V1__Scope message;
};
bool lh_scope_message_init(struct lh_scope_message *scope, const char *ns, const char *key, struct lh_error *error);
void lh_scope_message_finish(struct lh_scope_message *scope);

#endif
