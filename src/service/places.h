/*
 * The databases of namespaces. With one database there is one place, which has everything. With several, each has some
 * namespaces and all below them; the default, if there is one, has all others. No namespace of a place is below one of
 * another place.
 *
 *     place = lh_places_find(places, "payments.eu");     NULL: it lives in no database
 *     lh_coordinator_acquire(place->coordinator, ...)
 *
 * The home is the default, or the first without a default: bearer tokens are there, and its access rules count in all
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
    const char *name; /* "": the only place */
    struct lh_coordinator *coordinator;
    struct lh_store *store;
    const char *const *namespaces;
    size_t namespace_count;
    bool is_default;

    struct lh_service *service; /* this and the members below: only with several places */
    bool was_ready;
    bool has_rules;
    struct lh_arena rule_memory;
    struct lh_access_rule *rules; /* the rules that count */
    size_t rule_count;
    struct lh_access_token *tokens; /* only the home's */
    size_t token_count;
};

struct lh_places;

struct lh_places *lh_places_create(const struct lh_service_place *list, size_t count); /* copies `list` */
void lh_places_destroy(struct lh_places *places);

size_t lh_places_count(const struct lh_places *places);
struct lh_place *lh_places_at(const struct lh_places *places, size_t index);
struct lh_place *lh_places_home(const struct lh_places *places);
/* Returns the place of a namespace; NULL: it lives in no database. "" is the default's. A name with a dot behind it
   means the namespaces below the name. */
struct lh_place *lh_places_find(const struct lh_places *places, const char *ns);
/* Returns true if `ns`, or with include_children some namespace below it, lives in the place. */
bool lh_places_has(const struct lh_places *places, const struct lh_place *place, const char *ns, bool include_children);

/*
 * Walks in the order of the bytes of names: `place` has the names from `from` on; `end` is the first name that another
 * place has. Returns false, with `end` unset, if no other place follows.
 */
bool lh_places_walk(const struct lh_places *places, const char *from, struct lh_place **place,
                    char end[LH_ACCESS_NAME_BYTES]);

/* Sums up the counts of all places; clocks and survey are the home's. */
void lh_places_stats(const struct lh_places *places, struct lh_coordinator_stats *stats);
/* Judges readiness: ready while one of the places is. The words are about each. */
void lh_places_readiness(const struct lh_places *places, struct lh_readiness *readiness);

/* Keeps the rules that a database answered. Only rules of namespaces that live there count; in the home also the
   rules of all namespaces, and those of namespaces that live in no database. A rule counts below its namespace in
   all databases. */
void lh_places_keep_rules(const struct lh_places *places, struct lh_place *place,
                          const struct lh_access_answer *answer);
/* Gathers the rules of all places. Returns false if one of them has not loaded its rules yet. */
bool lh_places_gather_rules(const struct lh_places *places, struct lh_access_answer *all, struct lh_arena *arena);

/* The words "lives in no database: ...". */
extern const char lh_places_nowhere[];

#endif
