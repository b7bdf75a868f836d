#include "access/grants.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void lh_grants_add(struct lh_grants *grants, const char *ns, unsigned rights)
{
    if (grants->count == grants->room) {
        grants->room = grants->room == 0 ? 4 : 2 * grants->room;
        grants->items = lh_realloc(grants->items, grants->room, sizeof(grants->items[0]));
    }
    if ((rights & LH_RIGHT_ADMIN) != 0)
        rights |= LH_RIGHT_READ | LH_RIGHT_LEASE;
    grants->items[grants->count++] = (struct lh_grant){ns, rights};
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct lh_grant *)a)->ns, ((const struct lh_grant *)b)->ns);
}

/* The first grant whose name is not before these bytes; `count` where there is none. */
static size_t find_from(const struct lh_grants *grants, const char *ns, size_t size)
{
    size_t low = 0, high = grants->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strncmp(grants->items[middle].ns, ns, size) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The grant of exactly these bytes. */
static const struct lh_grant *find(const struct lh_grants *grants, const char *ns, size_t size)
{
    size_t i = find_from(grants, ns, size);
    return i < grants->count && strncmp(grants->items[i].ns, ns, size) == 0 && grants->items[i].ns[size] == '\0'
               ? &grants->items[i]
               : NULL;
}

/* Of the first `size` bytes of a namespace: 0 is the root. Those above are compiled, so the nearest has all. */
static unsigned rights_of(const struct lh_grants *grants, const char *ns, size_t size)
{
    for (;;) {
        const struct lh_grant *grant = find(grants, ns, size);
        if (grant != NULL)
            return grant->rights;
        if (size == 0)
            return 0;
        while (size > 0 && ns[size - 1] != '.')
            size--;
        size -= size > 0;
    }
}

/* What it inherits. */
static unsigned rights_above(const struct lh_grants *grants, const char *ns)
{
    const char *dot = strrchr(ns, '.');

    return *ns == '\0' ? 0 : rights_of(grants, ns, dot == NULL ? 0 : (size_t)(dot - ns));
}

void lh_grants_compile(struct lh_grants *grants)
{
    size_t kept = 0;

    if (grants->count > 0)
        qsort(grants->items, grants->count, sizeof(grants->items[0]), compare);
    for (size_t i = 0; i < grants->count; i++) {
        if (kept > 0 && strcmp(grants->items[kept - 1].ns, grants->items[i].ns) == 0)
            grants->items[kept - 1].rights |= grants->items[i].rights;
        else
            grants->items[kept++] = grants->items[i];
    }
    grants->count = kept;
    /* A namespace comes before those below it. */
    for (size_t i = 0; i < grants->count; i++)
        grants->items[i].rights |= rights_above(grants, grants->items[i].ns);
}

unsigned lh_grants_rights(const struct lh_grants *grants, const char *ns)
{
    return grants->count == 0 ? 0 : rights_of(grants, ns, strlen(ns));
}

/* --- where a caller has a right --- */

bool lh_grants_is_below(const char *ns, const char *above)
{
    size_t size = strlen(above);
    return *ns != '\0' && (size == 0 || (strncmp(ns, above, size) == 0 && ns[size] == '.'));
}

/*
 * All that is below "a" comes behind "a-b", which is not below it: where `from` begins with a name that has the right,
 * and is before what is below that name, that is next. Of several such names the longest comes first.
 */
static bool find_passed(const struct lh_grants *grants, enum lh_right right, const char *from,
                        char next[LH_ACCESS_NAME_BYTES])
{
    for (size_t size = strlen(from); size-- > 1;) {
        const struct lh_grant *grant = from[size] < '.' ? find(grants, from, size) : NULL;
        if (grant != NULL && (grant->rights & right) != 0) {
            strcpy(stpcpy(next, grant->ns), ".");
            return true;
        }
    }
    return false;
}

bool lh_grants_next(const struct lh_grants *grants, enum lh_right right, const char *from,
                    char next[LH_ACCESS_NAME_BYTES])
{
    bool has_passed;
    size_t i;

    if ((lh_grants_rights(grants, from) & right) != 0) {
        strcpy(next, from);
        return true;
    }
    has_passed = find_passed(grants, right, from, next);
    for (i = find_from(grants, from, strlen(from)); i < grants->count && (grants->items[i].rights & right) == 0; i++)
        ;
    if (i < grants->count && (!has_passed || strcmp(grants->items[i].ns, next) < 0)) {
        strcpy(next, grants->items[i].ns);
        return true;
    }
    return has_passed;
}

size_t lh_grants_tops(const struct lh_grants *grants, enum lh_right right, const char *ns, const char **names)
{
    size_t count = 0;

    for (size_t i = 0; i < grants->count; i++) {
        const struct lh_grant *grant = &grants->items[i];
        if ((grant->rights & right) == 0 || !lh_grants_is_below(grant->ns, ns) ||
            (rights_above(grants, grant->ns) & right) != 0)
            continue;
        if (names != NULL)
            names[count] = grant->ns;
        count++;
    }
    return count;
}
