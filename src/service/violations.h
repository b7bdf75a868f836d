/*
 * Which fields of a request were out of bounds, in words: what google.rpc.BadRequest carries, and what an item's
 * OUTCOME_INVALID says. Fixed size, so that no request can make an error grow; what does not fit is counted only.
 */
#ifndef LH_SERVICE_VIOLATIONS_H
#define LH_SERVICE_VIOLATIONS_H

#include <stdbool.h>
#include <stddef.h>

#define LH_VIOLATIONS_MAX 8
#define LH_VIOLATION_FIELD_BYTES 80
#define LH_VIOLATION_LIMIT_BYTES 144

/* Zero-initialised it is empty. */
struct lh_violations {
    size_t count;   /* kept */
    size_t omitted; /* found, but not kept */
    struct lh_violation {
        char field[LH_VIOLATION_FIELD_BYTES]; /* "scope.key", "labels[2].value" */
        char limit[LH_VIOLATION_LIMIT_BYTES]; /* what it must be, "must be 1 to 1024 bytes, has 1025" */
    } list[LH_VIOLATIONS_MAX];
};

/* Both are cut where they do not fit. A second violation of a field is not kept. Returns false, for a check to end with. */
bool lh_violations_add(struct lh_violations *violations, const char *field, const char *limit_format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * "field.member" and "field[index]", cut where they do not fit; returned is `path`. Without printf: every field of
 * every item is named before anybody knows whether there is something to say about it.
 */
const char *lh_field_member(char path[LH_VIOLATION_FIELD_BYTES], const char *field, const char *member);
const char *lh_field_nth(char path[LH_VIOLATION_FIELD_BYTES], const char *field, size_t index);

/* "scope.key must be 1 to 1024 bytes, has 1025; duration must be positive (and 2 more)". Never longer than `size`. */
void lh_violations_sentence(const struct lh_violations *violations, char *text, size_t size);

#endif
