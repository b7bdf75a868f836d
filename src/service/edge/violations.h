/*
 * The fields of a request that were out of bounds, in words, for google.rpc.BadRequest and an item's OUTCOME_INVALID.
 * The size is fixed, so that no request can make an error grow; violations beyond it are only counted.
 */
#ifndef LH_SERVICE_EDGE_VIOLATIONS_H
#define LH_SERVICE_EDGE_VIOLATIONS_H

#include <stdbool.h>
#include <stddef.h>

#define LH_VIOLATIONS_MAX 8
#define LH_VIOLATION_FIELD_BYTES 80
#define LH_VIOLATION_LIMIT_BYTES 144

/* Zero-initialised it is empty. */
struct lh_violations {
    size_t count;   /* violations in `list` */
    size_t omitted; /* violations found, but not kept */
    struct lh_violation {
        char field[LH_VIOLATION_FIELD_BYTES]; /* "scope.key", "labels[2].value" */
        char limit[LH_VIOLATION_LIMIT_BYTES]; /* the bound, as "must be 1 to 1024 bytes, has 1025" */
    } list[LH_VIOLATIONS_MAX];
};

/* Adds a violation; its texts are cut to fit. A second violation of a field is not kept. Always returns false, so
   that a check can end with it. */
bool lh_violations_add(struct lh_violations *violations, const char *field, const char *limit_format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Write "field.member" and "field[index]", cut to fit, and return `path`. They do without printf, because every field
 * of every item is named before its check.
 */
const char *lh_field_member(char path[LH_VIOLATION_FIELD_BYTES], const char *field, const char *member);
const char *lh_field_nth(char path[LH_VIOLATION_FIELD_BYTES], const char *field, size_t index);

/* Writes all violations: "scope.key must be 1 to 1024 bytes, has 1025; duration must be positive (and 2 more)".
   Never longer than `size`. */
void lh_violations_sentence(const struct lh_violations *violations, char *text, size_t size);

#endif
