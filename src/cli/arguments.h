/*
 * Arguments of the command line, read and checked before any call by the bounds of base/bounds.h, and as fields of
 * messages. The checks return LH_OK, or LH_INVALID_ARGUMENT with sentence, field and bound in `error`.
 */
#ifndef LH_CLI_ARGUMENTS_H
#define LH_CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/uuid.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* --- checks --- */

/* Check a dotted name. "" and "." are the root, which only some commands take. */
enum lh_status lh_check_namespace(const char *text, struct lh_error *error);
enum lh_status lh_check_namespace_or_root(const char *text, struct lh_error *error);

/*
 * Takes the lease key of heartbeat and release: `word`, a line of stdin for "-", LEASEHOLD_LEASE_KEY for NULL. The last
 * two keep it out of ps(1).
 */
enum lh_status lh_take_lease_key(const char *word, char text[LH_UUID_TEXT_BYTES], struct lh_error *error);

/* Check an option's value: a duration of at least `min_us`, and a number. The option's name is the field of the
   error. */
enum lh_status lh_check_duration(const char *option, const char *text, int64_t min_us, int64_t *duration_us,
                                 struct lh_error *error);
enum lh_status lh_check_number(const char *option, const char *text, int64_t min, int64_t max, int64_t *number,
                               struct lh_error *error);

/* Checks JSON of any kind, at most 8 KiB. */
enum lh_status lh_check_result(const char *text, struct lh_error *error);

/* --- fields of messages --- */

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

/* Splits without checks: "" and "." are the root. */
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
