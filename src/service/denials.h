/*
 * Denials, for the log and the audit: of each principal at most one line a second, with how many there were. The rest
 * of a line is of the last one.
 */
#ifndef LH_SERVICE_DENIALS_H
#define LH_SERVICE_DENIALS_H

#include <stdint.h>

#include "base/list.h"
#include "base/table.h"

struct lh_store;

#define LH_DENIALS_MAX 1000 /* principals at a time; denials of more are only counted in the metrics */

/* Strings are copied. */
struct lh_denial {
    const char *principal;
    const char *peer;
    const char *method;
    const char *ns;
    const char *what; /* the right, or the reason that a token is refused */
};

struct lh_denials {
    struct lh_store *store;
    struct lh_table by_principal;
    struct lh_link in_order;
};

void lh_denials_init(struct lh_denials *denials, struct lh_store *store);
void lh_denials_finish(struct lh_denials *denials);
void lh_denials_note(struct lh_denials *denials, const struct lh_denial *denial);
/* Writes the lines that are due. Call it several times a second. */
void lh_denials_tick(struct lh_denials *denials, int64_t now_us);

#endif
