/*
 * Arguments of the command line, read and checked before any call by the bounds of base/bounds.h. All return LH_OK, or
 * LH_INVALID_ARGUMENT with sentence, field and bound in `error`.
 */
#ifndef LH_CLI_BOUNDS_H
#define LH_CLI_BOUNDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/status.h"
#include "base/uuid.h"

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

#endif
