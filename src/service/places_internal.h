/* Places of namespaces and of keys: which database has one, and the store of several. Private to src/service. */
#ifndef LH_SERVICE_PLACES_INTERNAL_H
#define LH_SERVICE_PLACES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "access/access.h"
#include "base/memory.h"
#include "lease/coordinator.h"
#include "lease/readiness.h"
#include "lease/store.h"
#include "lease/watch.h"
#include "service/places/spread.h"
#include "service/service.h"

/* --- places --- */

/*
 * The databases of namespaces. With one database there is one place, which has everything. With several, each has some
 * namespaces and all below them; the default, if there is one, has all others. No namespace of a place is below one of
 * another place. A namespace may be spread: each of its keys has a place among those of the namespace, see
 * places/spread.h. Its policies and rules are in all of them.
 *
 *     place = lh_places_of(places, "payments.eu", "invoice-42");     NULL: it lives in no database
 *     lh_coordinator_acquire(place->coordinator, ...)
 *
 * The home is the default, or the first without a default: bearer tokens are there, and its access rules count in all
 * databases.
 */

struct lh_place {
    const char *name; /* "": the only place */
    struct lh_coordinator *coordinator;
    struct lh_store *store;
    const char *const *namespaces;
    size_t namespace_count;
    const char *const *spread;
    size_t spread_count;
    bool is_default;
    bool is_removed;
    struct lh_arena memory; /* keeps its names */

    struct lh_service *service; /* this and the members below: only with several places */
    bool was_ready;
    bool has_rules;
    struct lh_arena rule_memory;
    struct lh_access_rule *rules; /* the rules that count */
    size_t rule_count;
    struct lh_access_token *tokens; /* only the home's */
    size_t token_count;
};

struct lh_places {
    struct lh_place *list; /* places, the removed ones as well */
    size_t count;
    struct lh_place *home;
    struct lh_place *standard; /* has what is not placed, or NULL */
    struct placed *placed;     /* namespaces, in order of names */
    size_t placed_count;
    struct lh_spread_namespace *spread; /* as many as `placed`, at most */
    size_t spread_count;
    struct lh_arena strings;
};

struct lh_places *lh_places_create(const struct lh_service_place *list, size_t count); /* copies `list` */
void lh_places_destroy(struct lh_places *places);

/* See service.h. A place that was removed has no namespace; its index is another's only when it was forgotten. */
struct lh_place *lh_places_add(struct lh_places *places, const struct lh_service_place *from);
bool lh_places_may_remove(const struct lh_places *places, const char *name, char why[LH_SERVICE_WORDS_BYTES]);
void lh_places_remove(struct lh_places *places, const struct lh_coordinator *coordinator);
void lh_places_forget(struct lh_places *places, const struct lh_coordinator *coordinator);
/* Returns true if the place has no key: it may come and go without a break in a watch. */
bool lh_places_is_without_keys(const struct lh_places *places, const struct lh_place *place);

bool lh_places_is_live(const struct lh_place *place); /* returns false for a place that was removed */
/* Returns the first place, that after another, or NULL behind the last; only those that are live. */
struct lh_place *lh_places_next(const struct lh_places *places, const struct lh_place *place);
struct lh_place *lh_places_named(const struct lh_places *places, const char *name); /* a live one, or NULL */
/* Returns the place of a namespace; NULL: it lives in no database. "" is the default's. A name with a dot behind it
   means the namespaces below the name. Of a spread namespace it is the first by its name. */
struct lh_place *lh_places_find(const struct lh_places *places, const char *ns);
/* Returns the place of a scope, or NULL. */
struct lh_place *lh_places_of(const struct lh_places *places, const char *ns, const char *key);
/* The same for a request that was validated: its scopes live in one database. */
struct lh_coordinator *lh_places_coordinator(const struct lh_places *places, const char *ns, const char *key);
bool lh_places_is_spread(const struct lh_places *places, const char *ns);
/* Returns the spread namespace that `ns` is or is below, or NULL; and each of them. */
struct lh_spread_namespace *lh_places_spread(const struct lh_places *places, const char *ns);
/* Returns what the holder of the lease was asked, or NULL; valid until the next turn of the loop. */
const struct lh_hand_over *lh_places_asked(const struct lh_places *places, const char *ns, const char *key,
                                           int64_t token);
/* Returns true if `ns` is `top` or below it. "" is above all. */
bool lh_places_is_below(const char *ns, const char *top);
/* Returns true if `ns` or some of its keys, or with include_children some namespace below it, lives in the place. */
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

/* --- keys of spread namespaces --- */

/*
 * Each database says which slots of a spread namespace it has, and a daemon believes only that; see places/spread.h. Where a
 * key's slot is in no database, or in two, the daemon gives no new lease. Where it does not know which database had the
 * slot, it makes no call about an old lease either: the wrong database would say that the lease is lost.
 */
struct lh_spread_namespace {
    const char *ns;
    const char **names;
    struct lh_place **places; /* in the order of their names, which are in `names` */
    size_t count;
    struct lh_arena memory; /* keeps both lists */
    struct lh_spread *slots;
    struct lh_place *claimed; /* the database of a claim that is under way, or NULL */
    bool is_refused;          /* the last claim was refused */
};

#define LH_SPREAD_WORDS_BYTES 768

/* Takes the rows that a database answered, and claims what no daemon has claimed. Returns true if keys have other places
   now. */
bool lh_places_keep_spread(const struct lh_places *places, struct lh_place *place,
                           const struct lh_spread_answer *answer);
/* Until a database has said which keys it has, it is not ready. */
void lh_places_lack_spread(const struct lh_places *places);
/* Returns the place that may grant leases of the key, or NULL. */
struct lh_place *lh_places_granting(const struct lh_places *places, const char *ns, const char *key);
/* Returns the place of a lease of the key that may exist already, or NULL: it is not known, or the namespace lives in no
   database. */
struct lh_place *lh_places_holding(const struct lh_places *places, const char *ns, const char *key);
/* Says why no lease of the key is granted. Returns false if there is no reason but that a database is away. */
bool lh_places_why_not(const struct lh_places *places, const char *ns, const char *key,
                       char words[LH_SPREAD_WORDS_BYTES]);
/* Says of which spread namespace leases may be in no database: lists of `ns` and what is below it would lack them. "" is
   all. Returns false if there is none. */
bool lh_places_lack_leases(const struct lh_places *places, const char *ns, char words[LH_SPREAD_WORDS_BYTES]);

/* Counts slots; see lh_service_slots. */
bool lh_places_slots(const struct lh_places *places, size_t index, struct lh_service_slots *slots);

/* --- route --- */

/*
 * The coordinator's calls that may be for several databases; see lease/coordinator.h and lease/watch.h. A request for several databases is split, and answered when all have answered;
 * heartbeats and releases at the latest a second after the first answer, with RETRY for the other items. Requests were
 * validated: their namespaces live in a database.
 */

struct lh_service;
struct lh_routed_watch;

/* Send items to several databases. Items of a database that does not take them are answered RETRY; the call is
   refused if no database takes its items. */
enum lh_status lh_route_heartbeat(const struct lh_service *service, struct lh_holder_request *request);
enum lh_status lh_route_release(const struct lh_service *service, struct lh_holder_request *request);

/* Starts one watcher for all databases that have some of its namespaces: active when it is in each, caught up when
   it has in each, ended with the first that has keys. The callbacks are those of `watcher`. NULL: refused, see `status`. */
struct lh_routed_watch *lh_route_watch(struct lh_service *service, struct lh_watcher *watcher, enum lh_status *status);
void lh_route_unwatch(struct lh_routed_watch *watch); /* allowed after its end too */
/* Call it after lh_route_unwatch, and not inside of a callback of the watch. */
void lh_routed_watch_destroy(struct lh_routed_watch *watch);
void lh_route_catch_up(struct lh_routed_watch *watch);
/* Watches join a database that is up, and that they lack. */
void lh_route_join(struct lh_service *service, const struct lh_place *place);

/* --- placed store --- */

/*
 * The control calls of several stores as one: a call about a namespace goes to the store of its database, lists go
 * through all of them, tokens are the home's. It has no batches and is never started.
 */

/* Borrows `places`. */
struct lh_store *lh_placed_store_create(const struct lh_places *places);
/* Call it after the last answer of its stores; NULL does nothing. */
void lh_placed_store_destroy(struct lh_store *store);

/* --- what needs several databases --- */

/* Each works as in struct lh_store_ops: placed_store.c calls them. */

/* Lists leases of a spread namespace that has `ns`, from all of its databases, in the order of one. */
enum lh_status lh_placed_leases(const struct lh_places *places, const char *ns, const struct lh_list_request *request,
                                lh_list_cb *on_done, void *arg);
/* Changes the policy or the rules of a spread namespace in one of its databases after the other, and answers with what the
   last one says; reads from the first that is connected. */
enum lh_status lh_placed_administer(const struct lh_places *places, const struct lh_admin_request *request,
                                    lh_rows_cb *on_done, void *arg);

/* Lists policies or rules of all databases. */
enum lh_status lh_placed_list(const struct lh_places *places, const struct lh_list_page *page, lh_rows_cb *on_done,
                              void *arg);
/* Counts what all databases have of each namespace. */
enum lh_status lh_placed_counts(const struct lh_places *places, const struct lh_view_request *request,
                                lh_rows_cb *on_done, void *arg);
/* Returns the database in which a page of a view goes on, by the `after` of its last row, or NULL: there is none of that
   name. `rest` is the `after` of that database. */
struct lh_place *lh_placed_view_first(const struct lh_places *places, const char *after, const char **rest);
/* Reads one database after the other. */
enum lh_status lh_placed_view(const struct lh_places *places, const struct lh_view_request *request,
                              lh_rows_cb *on_done, void *arg);

#endif
