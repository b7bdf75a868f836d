/*
 * The bounds of the API, once: the rule and its words, for the server and for clients, which check before they ask. The
 * words follow the name of a field: "must be 1 to 1024 bytes, has 0". SQL has the same bounds; tests/lib/bounds.json
 * has the cases of both.
 */
#ifndef LH_BASE_BOUNDS_H
#define LH_BASE_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct lh_uuid;

#define LH_NAMESPACE_MAX_BYTES 255
#define LH_NAMESPACE_MAX_SEGMENTS 16
#define LH_SEGMENT_MAX_BYTES 63
#define LH_KEY_MAX_BYTES 1024
#define LH_HAND_OVER_WORDS_MAX_BYTES 1024
#define LH_OWNER_MAX_BYTES 255
#define LH_LABELS_MAX 16
#define LH_LABEL_NAME_MAX_BYTES 63
#define LH_LABEL_VALUE_MAX_BYTES 255
#define LH_RESULT_MAX_BYTES 8192
#define LH_PRINCIPAL_MAX_BYTES 1024
#define LH_ALL_ITEMS_MAX 100 /* scopes of one AcquireAll */
#define LH_UNITS_MAX 1000000 /* units of a shared lease, and of a capacity */
#define LH_PRIORITY_MAX 1000
#define LH_AT_LEAST_MAX_US (INT64_C(86400) * 1000000)
/* The lowest bound that a policy may set for durations. */
#define LH_DURATION_MIN_US INT64_C(100000)
/* The longest duration, wait or setting of a policy. */
#define LH_DURATION_MAX_US (INT64_C(100) * 365 * 86400 * 1000000)

/*
 * The numbers that a request to acquire has besides its scopes, 0 by default: X(name, option, most, ...). The name is
 * that of the member of AcquireRequest, struct lh_acquire_options and struct lh_embed_options, and of the argument in
 * SQL; `option` is that of the command line. A row here is checked and passed on by the service, both libraries and the
 * command line.
 */
#define LH_ACQUIRE_NUMBERS(X, ...) X(priority, "priority", LH_PRIORITY_MAX, __VA_ARGS__)

/* The members, and their values or addresses in `of`, in the order of lh_acquire_numbers. */
#define LH_NUMBER_MEMBER(name, ...) int32_t name;
#define LH_NUMBER_VALUE(name, option, most, of) (of)->name,
#define LH_NUMBER_ADDRESS(name, option, most, of) &(of)->name,
#define LH_NUMBER_COPY(name, option, most, to, from) (to)->name = (from)->name;

#define LH_BOUND_WORDS_BYTES 144

enum lh_bounded_text {
    LH_TEXT_SEGMENT, /* one part of a namespace */
    LH_TEXT_KEY,
    LH_TEXT_OWNER,
    LH_TEXT_LABEL_NAME,
    LH_TEXT_LABEL_VALUE,
    LH_TEXT_RESULT,
    LH_TEXT_REASON, /* words that must be there; an error too */
    LH_TEXT_PRINCIPAL,
    LH_TEXT_HAND_OVER, /* words of a request to hand over, or of its refusal, that must be there */
};

/* Return true if a value is within its bounds; else `words` say what it must be. Text must be UTF-8. */
bool lh_bound_text(enum lh_bounded_text kind, const char *text, size_t size, char words[LH_BOUND_WORDS_BYTES]);
/* `bytes` is the size of a dotted namespace of `segments`. */
bool lh_bound_namespace(size_t segments, size_t bytes, char words[LH_BOUND_WORDS_BYTES]);
bool lh_bound_lease_key(const char *text, struct lh_uuid *lease_key, char words[LH_BOUND_WORDS_BYTES]);
bool lh_bound_duration(int64_t duration_us, int64_t least_us, int64_t most_us, char words[LH_BOUND_WORDS_BYTES]);
/* Checks a number of which 0 means another. */
bool lh_bound_count(int64_t number, int64_t if_zero, int64_t most, char words[LH_BOUND_WORDS_BYTES]);

extern const struct lh_acquire_number {
    const char *name;
    const char *option;
    int32_t most;
} lh_acquire_numbers[];

enum {
#define LH_NUMBER_INDEX(name, ...) LH_ACQUIRE_NUMBER_##name,
    LH_ACQUIRE_NUMBERS(LH_NUMBER_INDEX, ) LH_ACQUIRE_NUMBER_COUNT
#undef LH_NUMBER_INDEX
};

bool lh_bound_number(int64_t number, int64_t most, char words[LH_BOUND_WORDS_BYTES]);

/* Checks what is asked of one scope, but for the minimum hold itself. Returns the field that is out of bounds, or NULL.
   `shared` is the name of the mode where the caller wrote it. */
const char *lh_bound_mode(bool is_shared, const char *shared, int32_t units, bool has_at_least,
                          char words[LH_BOUND_WORDS_BYTES]);

/* Return LH_OK, or LH_INVALID_ARGUMENT with sentence, field and bound in `error`, which may be NULL. */
enum lh_status lh_bounds_text(const char *field, enum lh_bounded_text kind, const char *text, struct lh_error *error);
enum lh_status lh_bounds_key(const char *key, struct lh_error *error);
enum lh_status lh_bounds_lease_key(const char *text, struct lh_uuid *lease_key, struct lh_error *error);
enum lh_status lh_bounds_duration(const char *field, int64_t duration_us, int64_t least_us, int64_t most_us,
                                  struct lh_error *error);
/* Checks a time that has no upper bound. */
enum lh_status lh_bounds_time(const char *field, int64_t time_us, struct lh_error *error);

/* Checks a dotted name. Cuts `text` into segments at its dots, in place. */
enum lh_status lh_bounds_namespace(char *text, char *segments[LH_NAMESPACE_MAX_SEGMENTS], size_t *count,
                                   struct lh_error *error);

/* Checks "name=value"; *name_size is where the name ends. */
enum lh_status lh_bounds_label(const char *label, size_t *name_size, struct lh_error *error);

/* Check options of the library. `mode` is an enum lh_mode; 0 units are the default. */
enum lh_status lh_bounds_mode(int mode, int32_t units, int64_t at_least_us, struct lh_error *error);
enum lh_status lh_bounds_units(int32_t units, struct lh_error *error);
enum lh_status lh_bounds_number(const char *field, int64_t number, int64_t most, struct lh_error *error);
enum lh_status lh_bounds_acquire_numbers(const int32_t numbers[LH_ACQUIRE_NUMBER_COUNT], struct lh_error *error);

enum lh_status lh_bounds_refuse(struct lh_error *error, const char *field, const char *bound, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
