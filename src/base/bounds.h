/*
 * The bounds of the API, once, and checks of text against them, for clients. The server checks again. All checks return
 * LH_OK, or LH_INVALID_ARGUMENT with words, field and bound.
 */
#ifndef LH_BASE_BOUNDS_H
#define LH_BASE_BOUNDS_H

#include <stdint.h>

#include "base/status.h"

#define LH_NAMESPACE_MAX_BYTES 255
#define LH_NAMESPACE_MAX_SEGMENTS 16
#define LH_SEGMENT_MAX_BYTES 63
#define LH_KEY_MAX_BYTES 1024
#define LH_OWNER_MAX_BYTES 255
#define LH_LABELS_MAX 16
#define LH_LABEL_NAME_MAX_BYTES 63
#define LH_LABEL_VALUE_MAX_BYTES 255
#define LH_RESULT_MAX_BYTES 8192
#define LH_ALL_ITEMS_MAX 100 /* scopes of one AcquireAll */
#define LH_UNITS_MAX 1000000 /* units of a shared lease, and of a capacity */
#define LH_AT_LEAST_MAX_US (INT64_C(86400) * 1000000)

enum lh_status lh_bounds_key(const char *key, struct lh_error *error);
enum lh_status lh_bounds_owner(const char *owner, struct lh_error *error);

/* Dotted. Cuts `text` into segments at its dots, in place. */
enum lh_status lh_bounds_namespace(char *text, char *segments[LH_NAMESPACE_MAX_SEGMENTS], size_t *count,
                                   struct lh_error *error);

/* "name=value"; *name_size is where the name ends. */
enum lh_status lh_bounds_label(const char *label, size_t *name_size, struct lh_error *error);

/* Checks options of the library. `mode` is an enum lh_mode; 0 units are the default. */
enum lh_status lh_bounds_mode(int mode, int32_t units, int64_t at_least_us, struct lh_error *error);
enum lh_status lh_bounds_units(int32_t units, struct lh_error *error);

/* A result or failure. */
enum lh_status lh_bounds_result(const char *field, const char *text, struct lh_error *error);

enum lh_status lh_bounds_refuse(struct lh_error *error, const char *field, const char *bound, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
