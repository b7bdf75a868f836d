/*
 * Which database has which namespace. With one database there is one place, which has everything. With several, each has
 * some namespaces and all below them; the default, if there is one, has all others. No namespace of a place is below
 * one of another place.
 *
 *     place = lh_places_find(places, "payments.eu");     NULL: it lives in no database
 *     lh_coordinator_acquire(place->coordinator, ...)
 *
 * The home is the default, or the first where there is none: bearer tokens are there, and its access rules count in all
 * databases.
 */
#ifndef LH_SERVICE_PLACES_H
#define LH_SERVICE_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#include "access/access.h"
#include "base/memory.h"
#include "lease/coordinator.h"
#include "lease/readiness.h"
#include "service/service.h"

struct lh_place {
    const char *name; /* "": the only one */
    struct lh_coordinator *coordinator;
    struct lh_store *store;
    const char *const *namespaces;
    size_t namespace_count;
    bool is_default;

    struct lh_service *service; /* these where there are several */
    bool was_ready;
    bool has_rules;
    struct lh_arena rule_memory;
    struct lh_access_rule *rules; /* as far as they count */
    size_t rule_count;
    struct lh_access_token *tokens; /* of the home */
    size_t token_count;
};

struct lh_places;

struct lh_places *lh_places_create(const struct lh_service_place *list, size_t count); /* copied */
void lh_places_destroy(struct lh_places *places);

size_t lh_places_count(const struct lh_places *places);
struct lh_place *lh_places_at(const struct lh_places *places, size_t index);
struct lh_place *lh_places_home(const struct lh_places *places);
/* NULL: it lives in no database. "" is of the default. A name with a dot behind it is what is below the name. */
struct lh_place *lh_places_find(const struct lh_places *places, const char *ns);
/* Does some of `ns`, and with include_children of what is below it, live there? */
bool lh_places_has(const struct lh_places *places, const struct lh_place *place, const char *ns, bool include_children);

/*
 * For walks in the order of the bytes of names: which place has the names from `from` on; `end` becomes the first name
 * that another place has. False: there is none.
 */
bool lh_places_walk(const struct lh_places *places, const char *from, struct lh_place **place,
                    char end[LH_ACCESS_NAME_BYTES]);

/* The sums; of clocks and of the survey those of the home. */
void lh_places_stats(const struct lh_places *places, struct lh_coordinator_stats *stats);
/* Ready while one of them is; the words tell of each. */
void lh_places_readiness(const struct lh_places *places, struct lh_readiness *readiness);

/* What a database told of its rules. Only rules of namespaces that live there count; in the home also the rules of all
   namespaces, and those of namespaces that live nowhere. A rule counts below its namespace in all databases. */
void lh_places_keep_rules(const struct lh_places *places, struct lh_place *place,
                          const struct lh_access_answer *answer);
/* Those of all. False: one has not told any yet. */
bool lh_places_gather_rules(const struct lh_places *places, struct lh_access_answer *all, struct lh_arena *arena);

/* "lives in no database: ..." */
extern const char lh_places_nowhere[];

#endif
