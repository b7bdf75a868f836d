#include "service/edge_internal.h"

#include <stdio.h>
#include <string.h>

static void go_to(struct visible_walk *walk, const char *ns, const char *key, int64_t token)
{
    snprintf(walk->after_ns, sizeof(walk->after_ns), "%s", ns);
    snprintf(walk->after_key, sizeof(walk->after_key), "%s", key);
    walk->after_token = token;
    walk->has_after = true;
}

void lh_visible_begin(struct visible_walk *walk, const char *ns, bool include_children, const char *after_ns,
                      const char *after_key, int64_t after_token)
{
    *walk = (struct visible_walk){.include_children = include_children};
    snprintf(walk->ns, sizeof(walk->ns), "%s", ns);
    if (after_ns != NULL)
        go_to(walk, after_ns, after_key, after_token);
}

bool lh_visible_is_whole(const struct visible_walk *walk, const struct lh_access_caller *who)
{
    return lh_access_may(who, LH_RIGHT_READ, walk->ns);
}

/* Over what the caller may not read. The rules may have changed since the page before. */
static bool pass_on(struct visible_walk *walk, const struct lh_access_caller *who)
{
    char next[LH_ACCESS_NAME_BYTES];

    if (!walk->include_children ||
        !lh_access_next(who, LH_RIGHT_READ, walk->ns, walk->has_after ? walk->after_ns : NULL, next))
        return false;
    if (!walk->has_after || strcmp(next, walk->after_ns) != 0)
        go_to(walk, next, "", 0); /* before the first key there */
    return true;
}

bool lh_visible_ask(struct visible_walk *walk, const struct lh_access_caller *who, struct lh_list_request *list)
{
    if (walk->is_over || (!lh_visible_is_whole(walk, who) && !pass_on(walk, who)))
        return false;
    list->ns = walk->ns;
    list->include_children = walk->include_children;
    list->after_ns = walk->has_after ? walk->after_ns : NULL;
    list->after_key = walk->has_after ? walk->after_key : NULL;
    list->after_token = walk->has_after ? walk->after_token : 0;
    return true;
}

bool lh_visible_may_show(const struct lh_access_caller *who, const struct lh_held_lease *lease)
{
    return lh_access_may(who, LH_RIGHT_READ, lease->ns);
}

int64_t lh_visible_place(const struct lh_held_lease *lease)
{
    return lease->units > 0 ? lease->token : 0;
}

void lh_visible_advance(struct visible_walk *walk, const struct lh_list_answer *answer, size_t seen)
{
    if (seen == answer->lease_count && answer->stop_ns != NULL)
        go_to(walk, answer->stop_ns, answer->stop_key, 0);
    else if (seen > 0)
        go_to(walk, answer->leases[seen - 1].ns, answer->leases[seen - 1].key,
              lh_visible_place(&answer->leases[seen - 1]));
    walk->is_over = seen == answer->lease_count && !answer->has_more;
}
