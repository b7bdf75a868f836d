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

/* Dotted. "" and "." are the root, which only some commands take. */
enum lh_status lh_check_namespace(const char *text, struct lh_error *error);
enum lh_status lh_check_namespace_or_root(const char *text, struct lh_error *error);
enum lh_status lh_check_key(const char *text, struct lh_error *error);
enum lh_status lh_check_owner(const char *text, struct lh_error *error);
enum lh_status lh_check_lease_key(const char *text, struct lh_uuid *uuid, struct lh_error *error);

/* A namespace in which something is to be acquired. '/' is legal in it, but a/b for a.b is a slip, so it is refused. */
enum lh_status lh_check_new_namespace(const char *text, struct lh_error *error);

/*
 * The lease key that heartbeat and release were given: `word`, a line of stdin for "-", LEASEHOLD_LEASE_KEY for NULL.
 * The last two keep it out of ps(1).
 */
enum lh_status lh_take_lease_key(const char *word, char text[LH_UUID_TEXT_BYTES], struct lh_error *error);

/* The option's name is the field of the error. `min_us` and longer. */
enum lh_status lh_check_duration(const char *option, const char *text, int64_t min_us, int64_t *duration_us,
                                 struct lh_error *error);
enum lh_status lh_check_number(const char *option, const char *text, int64_t min, int64_t max, int64_t *number,
                               struct lh_error *error);

/* "NAME=VALUE"; *name_size is where the name ends. */
enum lh_status lh_check_label(const char *text, size_t *name_size, struct lh_error *error);

/* JSON of any kind, at most 8 KiB. */
enum lh_status lh_check_result(const char *text, struct lh_error *error);

/* Words for people: an error, a reason. 1 byte to 8 KiB. */
enum lh_status lh_check_words(const char *option, const char *text, struct lh_error *error);

#endif
