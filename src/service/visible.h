/*
 * A walk over the leases that a caller may read, in order of namespace and key. The store is asked for pages of all that
 * was asked for; what the caller may not read is left out of them, and where a page ends in that, the next one begins
 * where the caller may read again.
 *
 *     lh_visible_begin(&walk, ns, include_children, after_ns, after_key, after_token);
 *     while (lh_visible_ask(&walk, who, &list)) ... ask the store for `list`; of its answer:
 *         if (lh_visible_may_show(who, &answer->leases[i])) ...
 *         lh_visible_advance(&walk, answer, i);
 */
#ifndef LH_SERVICE_VISIBLE_H
#define LH_SERVICE_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "access/access.h"
#include "base/bounds.h"
#include "lease/store.h"

struct visible_walk {
    char ns[LH_NAMESPACE_MAX_BYTES + 1];
    bool include_children;
    bool is_over;
    bool has_after; /* not at the beginning */
    char after_ns[LH_ACCESS_NAME_BYTES];
    char after_key[LH_KEY_MAX_BYTES + 1];
    int64_t after_token; /* as of lh_list_request */
};

/* The strings are copied. `after_ns` NULL: from the beginning. */
void lh_visible_begin(struct visible_walk *walk, const char *ns, bool include_children, const char *after_ns,
                      const char *after_key, int64_t after_token);
/* May the caller read everything that was asked for? */
bool lh_visible_is_whole(const struct visible_walk *walk, const struct lh_access_caller *who);
/* False: there is nothing more. The strings of `list` are the walk's; its page_size and owner are left alone. */
bool lh_visible_ask(struct visible_walk *walk, const struct lh_access_caller *who, struct lh_list_request *list);
bool lh_visible_may_show(const struct lh_access_caller *who, const struct lh_held_lease *lease);
/* Where a page goes on within the scope of this lease, as after_token: other shared leases may follow it. */
int64_t lh_visible_place(const struct lh_held_lease *lease);
/* The first `seen` leases of the answer are done with. */
void lh_visible_advance(struct visible_walk *walk, const struct lh_list_answer *answer, size_t seen);

#endif
