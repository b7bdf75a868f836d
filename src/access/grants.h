/* The namespaces in which one principal has rights, compiled for looking up. */
#ifndef LH_ACCESS_GRANTS_H
#define LH_ACCESS_GRANTS_H

#include "access/access.h"

struct lh_grant {
    const char *ns; /* borrowed */
    unsigned rights;
};

/* Zero-initialised it is empty. */
struct lh_grants {
    struct lh_grant *items; /* by the bytes of ns */
    size_t count;
    size_t room;
};

/* Add all, then compile, then look up. */
void lh_grants_add(struct lh_grants *grants, const char *ns, unsigned rights);
void lh_grants_compile(struct lh_grants *grants);

/* Returns the rights in `ns`: those there and in each namespace above it. */
unsigned lh_grants_rights(const struct lh_grants *grants, const char *ns);

bool lh_grants_is_below(const char *ns, const char *above);

/* See lh_access_next, of all names. */
bool lh_grants_next(const struct lh_grants *grants, enum lh_right right, const char *from,
                    char next[LH_ACCESS_NAME_BYTES]);
/* See lh_access_tops, of what is below `ns`. */
size_t lh_grants_tops(const struct lh_grants *grants, enum lh_right right, const char *ns, const char **names);

#endif
