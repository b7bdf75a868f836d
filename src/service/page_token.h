/*
 * Page tokens: the place where the page before ended, opaque to clients. A token carries its version, the kind of list,
 * and a checksum over these and the filters, so that one that was cut, edited or used with other filters is refused. It
 * is no secret and holds no authority: forging one only starts a page elsewhere.
 */
#ifndef LH_SERVICE_PAGE_TOKEN_H
#define LH_SERVICE_PAGE_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

enum lh_page_kind {
    LH_PAGE_LEASES = 1,
    LH_PAGE_POLICIES,
    LH_PAGE_RULES,
    LH_PAGE_TOKENS,
    LH_PAGE_VIEW = 16 /* plus the number of the view */
};

/* Returns a hash of the request's filters, chained through `seed` (0 to begin). It is the same in every daemon. */
uint64_t lh_page_filter(uint64_t seed, const char *text);

/* Make a token in the arena, and read one. The reader returns false for a token that is not valid for this kind and
   filter. */
char *lh_page_token_make(enum lh_page_kind kind, uint64_t filter, const char *ns, const char *key,
                         struct lh_arena *arena);
bool lh_page_token_parse(const char *token, enum lh_page_kind kind, uint64_t filter, struct lh_arena *arena,
                         const char **ns, const char **key);

#endif
