/*
 * The bounds of arguments, checked before any call. The server checks again; these errors come sooner and in the
 * words of the command line. All return LH_OK, or LH_INVALID_ARGUMENT with sentence, field and bound in `error`.
 */
#ifndef LH_CLI_BOUNDS_H
#define LH_CLI_BOUNDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/status.h"
#include "base/uuid.h"

#define LH_BOUND_DURATION_MIN_US INT64_C(100000)

/* Check a dotted name. "" and "." are the root, which only some commands take. */
enum lh_status lh_check_namespace(const char *text, struct lh_error *error);
enum lh_status lh_check_namespace_or_root(const char *text, struct lh_error *error);
enum lh_status lh_check_key(const char *text, struct lh_error *error);
enum lh_status lh_check_owner(const char *text, struct lh_error *error);
enum lh_status lh_check_lease_key(const char *text, struct lh_uuid *uuid, struct lh_error *error);

/* Checks a namespace in which the command acquires. '/' is legal in it, but a/b for a.b is a slip, so it is refused. */
enum lh_status lh_check_new_namespace(const char *text, struct lh_error *error);

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

/* Checks "NAME=VALUE"; *name_size is the length of the name. */
enum lh_status lh_check_label(const char *text, size_t *name_size, struct lh_error *error);

/* Checks JSON of any kind, at most 8 KiB. */
enum lh_status lh_check_result(const char *text, struct lh_error *error);

/* Checks words for people: an error, a reason. 1 byte to 8 KiB. */
enum lh_status lh_check_words(const char *option, const char *text, struct lh_error *error);

#endif
