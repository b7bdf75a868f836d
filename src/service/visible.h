/*
 * A walk over the leases that a caller may read, in order of namespace and key. The store is asked for whole pages;
 * leases that the caller may not read are left out of them, and if a page ends among those, the next one begins with
 * the next namespace that the caller may read.
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
    int64_t after_token; /* as in lh_list_request */
};

/* Begins a walk. The strings are copied. `after_ns` NULL: from the beginning. */
void lh_visible_begin(struct visible_walk *walk, const char *ns, bool include_children, const char *after_ns,
                      const char *after_key, int64_t after_token);
/* Returns true if the caller may read all that the walk goes through. */
bool lh_visible_is_whole(const struct visible_walk *walk, const struct lh_access_caller *who);
/* Fills `list` with the next page. Returns false at the end. The strings of `list` are the walk's; its page_size and
   owner are left alone. */
bool lh_visible_ask(struct visible_walk *walk, const struct lh_access_caller *who, struct lh_list_request *list);
bool lh_visible_may_show(const struct lh_access_caller *who, const struct lh_held_lease *lease);
/* Returns the after_token with which a page goes on behind this lease within its scope: other shared leases may
   follow. */
int64_t lh_visible_place(const struct lh_held_lease *lease);
/* Moves the walk behind the first `seen` leases of the answer. */
void lh_visible_advance(struct visible_walk *walk, const struct lh_list_answer *answer, size_t seen);

#endif
