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
#include "cli/args.h"
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

/*
 * An option that is a field of a request, as the field's type says: a text, a number, a word of an enum, a duration, a time or
 * a switch.
 */
struct lh_taken {
    const char *option;
    const char *field;         /* NULL: it has the option's name, with _ for - */
    enum lh_bounded_text text; /* LH_TEXT_SEGMENT: any */
    int64_t least, most;       /* bounds of a number; `least` also of a duration, in microseconds */
};

/* Sets the fields of the options that were given, in the order of `taken`, which ends in a row without option. */
enum lh_status lh_take_options(const struct lh_args *args, const struct lh_taken *taken, ProtobufCMessage *request,
                               struct lh_arena *arena, struct lh_error *error);

/* Return microseconds, clamped to int64_t. */
int64_t lh_duration_us(const Google__Protobuf__Duration *duration);
int64_t lh_timestamp_us(const Google__Protobuf__Timestamp *timestamp);

Google__Protobuf__Duration lh_duration_message(int64_t duration_us);

/* Returns the message of a dotted namespace, in the arena; "" and "." are the root. */
Leasehold__V1__Namespace *lh_take_namespace(const char *ns, struct lh_arena *arena);
/* Returns a scope, in the arena, which borrows `key`; NULL, with `error`, if one of the words is wrong. */
Leasehold__V1__Scope *lh_take_scope(const char *ns, const char *key, struct lh_arena *arena, struct lh_error *error);

#endif
