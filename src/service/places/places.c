#include "service/places_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A namespace that places have, in order of names. */
struct placed {
    const char *ns;
    struct lh_place *place; /* of several the first by its name */
    bool is_spread;
    struct lh_spread_namespace *spread; /* NULL: it is not */
};

const char lh_places_nowhere[] = "lives in no database: add it to namespaces in a section [database NAME] of the "
                                 "daemon's configuration, or give one of them default = yes";

static int compare(const void *a, const void *b)
{
    const struct placed *one = a, *other = b;
    int order = strcmp(one->ns, other->ns);

    return order != 0 ? order : strcmp(one->place->name, other->place->name);
}

static int compare_names(const void *a, const void *b)
{
    const struct lh_place *const *one = a, *const *other = b;

    return strcmp((*one)->name, (*other)->name);
}

static void copy(struct lh_place *place, const struct lh_service_place *from)
{
    *place = (struct lh_place){.coordinator = from->coordinator,
                               .store = lh_coordinator_store(from->coordinator),
                               .namespace_count = from->namespace_count,
                               .spread_count = from->spread_count,
                               .is_default = from->is_default};
    place->name = lh_arena_strdup(&place->memory, from->name);
    place->namespaces = lh_arena_strdup_all(&place->memory, from->namespaces, from->namespace_count);
    place->spread = lh_arena_strdup_all(&place->memory, from->spread, from->spread_count);
}

static bool has_spread(const struct lh_place *place, const char *ns)
{
    for (size_t i = 0; i < place->spread_count; i++)
        if (strcmp(place->spread[i], ns) == 0)
            return true;
    return false;
}

/* Finds the places of a spread namespace. What is known of their slots is kept. */
static void spread_out(struct lh_places *places, struct placed *placed)
{
    struct lh_spread_namespace *spread = placed->spread;
    struct lh_spread *before = spread->slots;

    lh_arena_reset(&spread->memory);
    spread->count = 0;
    spread->names = lh_arena_alloc(&spread->memory, places->count * sizeof(*spread->names));
    spread->places = lh_arena_alloc(&spread->memory, places->count * sizeof(struct lh_place *));
    for (struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;)
        if (has_spread(place, spread->ns))
            spread->places[spread->count++] = place;
    qsort(spread->places, spread->count, sizeof(struct lh_place *), compare_names);
    for (size_t i = 0; i < spread->count; i++)
        spread->names[i] = spread->places[i]->name;
    spread->slots = lh_spread_create(spread->names, spread->count);
    if (before != NULL)
        lh_spread_adopt(spread->slots, before);
    lh_spread_destroy(before);
    placed->place = spread->places[0];
}

/* Those that the place has come, or have gone. */
static void spread_out_again(struct lh_places *places, const struct lh_place *place)
{
    for (size_t i = 0; i < places->placed_count; i++)
        if (places->placed[i].spread != NULL && has_spread(place, places->placed[i].ns))
            spread_out(places, &places->placed[i]);
}

static void put(struct lh_places *places, struct lh_place *place, const char *const *names, size_t count,
                bool is_spread)
{
    for (size_t i = 0; i < count; i++)
        places->placed[places->placed_count++] =
            (struct placed){.ns = lh_arena_strdup(&places->strings, names[i]), .place = place, .is_spread = is_spread};
}

/* Makes one of the entries of each namespace. They are in order. */
static void unite(struct lh_places *places)
{
    size_t kept = 0;

    for (size_t at = 0; at < places->placed_count; at++) {
        struct placed *placed = &places->placed[kept];
        if (kept > 0 && strcmp(places->placed[at].ns, placed[-1].ns) == 0)
            continue;
        *placed = places->placed[at];
        kept++;
        if (!placed->is_spread)
            continue;
        placed->spread = &places->spread[places->spread_count++];
        placed->spread->ns = placed->ns;
        spread_out(places, placed);
    }
    places->placed_count = kept;
}

struct lh_places *lh_places_create(const struct lh_service_place *list, size_t count)
{
    struct lh_places *places = lh_alloc_zero(1, sizeof(*places));
    size_t placed = 0;

    for (size_t i = 0; i < count; i++)
        placed += list[i].namespace_count + list[i].spread_count;
    places->count = count;
    places->list = lh_alloc_zero(LH_PLACES_MAX, sizeof(*places->list));
    places->placed = lh_alloc_zero(placed + 1, sizeof(*places->placed));
    places->spread = lh_alloc_zero(placed + 1, sizeof(*places->spread));
    for (size_t i = 0; i < count; i++) {
        copy(&places->list[i], &list[i]);
        put(places, &places->list[i], list[i].namespaces, list[i].namespace_count, false);
        put(places, &places->list[i], list[i].spread, list[i].spread_count, true);
        if (list[i].is_default)
            places->standard = &places->list[i];
    }
    qsort(places->placed, places->placed_count, sizeof(*places->placed), compare);
    unite(places);
    places->home = places->standard != NULL ? places->standard : places->list;
    return places;
}

static void forget(struct lh_place *place)
{
    lh_arena_finish(&place->rule_memory);
    lh_arena_finish(&place->memory);
    *place = (struct lh_place){0};
}

void lh_places_destroy(struct lh_places *places)
{
    for (size_t i = 0; i < places->count; i++)
        forget(&places->list[i]);
    for (size_t i = 0; i < places->spread_count; i++) {
        lh_spread_destroy(places->spread[i].slots);
        lh_arena_finish(&places->spread[i].memory);
    }
    lh_arena_finish(&places->strings);
    free(places->spread);
    free(places->placed);
    free(places->list);
    free(places);
}

/* --- a reload --- */

struct lh_place *lh_places_add(struct lh_places *places, const struct lh_service_place *from)
{
    struct lh_place *place = places->list;

    while (place->coordinator != NULL)
        place++;
    if (place == places->list + places->count)
        places->count++;
    copy(place, from);
    spread_out_again(places, place);
    return place;
}

static struct lh_place *find_of(const struct lh_places *places, const struct lh_coordinator *coordinator)
{
    struct lh_place *place = places->list;

    while (place->coordinator != coordinator)
        place++;
    return place;
}

void lh_places_remove(struct lh_places *places, const struct lh_coordinator *coordinator)
{
    struct lh_place *place = find_of(places, coordinator);

    place->is_removed = true;
    spread_out_again(places, place);
    place->spread_count = 0;
    place->rule_count = 0;
}

void lh_places_forget(struct lh_places *places, const struct lh_coordinator *coordinator)
{
    forget(find_of(places, coordinator));
}

/* The slots of a spread namespace that the place has, and those that no place, or several, have. */
static void count_slots(const struct lh_spread_namespace *spread, const struct lh_place *place, size_t *own,
                        size_t *unserved)
{
    *own = 0;
    for (size_t i = 0; i < spread->count; i++)
        if (spread->places[i] == place)
            *own = lh_spread_count(spread->slots, i);
    *unserved = lh_spread_count(spread->slots, spread->count);
}

bool lh_places_may_remove(const struct lh_places *places, const char *name, char why[LH_SERVICE_WORDS_BYTES])
{
    const struct lh_place *place = lh_places_named(places, name);

    for (size_t i = 0; i < place->spread_count; i++) {
        size_t own, unserved;
        count_slots(lh_places_spread(places, place->spread[i]), place, &own, &unserved);
        if (own > 0)
            snprintf(
                why, LH_SERVICE_WORDS_BYTES,
                "has %zu of %d slots of %s: move its keys to other sections first, with deploy/move-namespace keys",
                own, LH_SPREAD_SLOTS, place->spread[i]);
        else if (unserved > 0)
            snprintf(why, LH_SERVICE_WORDS_BYTES,
                     "may have keys of %s, because %zu of %d slots are in no database that is known, or in two: reload "
                     "again when all are served, as the log says",
                     place->spread[i], unserved, LH_SPREAD_SLOTS);
        if (own + unserved > 0)
            return false;
    }
    return true;
}

bool lh_places_is_without_keys(const struct lh_places *places, const struct lh_place *place)
{
    size_t own, unserved;

    if (place->is_removed)
        return true;
    if (place == places->home || place->namespace_count > 0)
        return false;
    for (size_t i = 0; i < place->spread_count; i++) {
        count_slots(lh_places_spread(places, place->spread[i]), place, &own, &unserved);
        if (own + unserved > 0)
            return false;
    }
    return true;
}

/* --- the places --- */

bool lh_places_is_live(const struct lh_place *place)
{
    return place->coordinator != NULL && !place->is_removed;
}

struct lh_place *lh_places_next(const struct lh_places *places, const struct lh_place *place)
{
    size_t at = place == NULL ? 0 : (size_t)(place - places->list) + 1;

    while (at < places->count && !lh_places_is_live(&places->list[at]))
        at++;
    return at < places->count ? &places->list[at] : NULL;
}

struct lh_place *lh_places_named(const struct lh_places *places, const char *name)
{
    struct lh_place *place = NULL;

    while ((place = lh_places_next(places, place)) != NULL && strcmp(place->name, name) != 0)
        continue;
    return place;
}

/* --- where --- */

static const struct placed *find_exactly(const struct lh_places *places, const char *ns, size_t size)
{
    size_t low = 0, high = places->placed_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const char *name = places->placed[middle].ns;
        int order = strncmp(name, ns, size);
        if (order == 0 && name[size] == '\0')
            return &places->placed[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* NULL: it is not placed, nor is what it is below. */
static const struct placed *find_placed(const struct lh_places *places, const char *ns)
{
    const struct placed *placed = NULL;

    for (size_t size = strcspn(ns, "."); placed == NULL && places->placed_count > 0; size += strcspn(ns + size, ".")) {
        placed = find_exactly(places, ns, size);
        if (ns[size++] == '\0')
            break;
    }
    return placed;
}

struct lh_place *lh_places_find(const struct lh_places *places, const char *ns)
{
    const struct placed *placed = find_placed(places, ns);

    return placed != NULL ? placed->place : places->standard;
}

struct lh_place *lh_places_of(const struct lh_places *places, const char *ns, const char *key)
{
    const struct placed *placed = find_placed(places, ns);

    if (placed == NULL)
        return places->standard;
    if (placed->spread == NULL)
        return placed->place;
    return placed->spread->places[lh_spread_find(placed->spread->slots, key).of];
}

struct lh_spread_namespace *lh_places_spread(const struct lh_places *places, const char *ns)
{
    const struct placed *placed = find_placed(places, ns);

    return placed == NULL ? NULL : placed->spread;
}

bool lh_places_is_spread(const struct lh_places *places, const char *ns)
{
    return lh_places_spread(places, ns) != NULL;
}

const struct lh_hand_over *lh_places_asked(const struct lh_places *places, const char *ns, const char *key,
                                           int64_t token)
{
    const struct lh_place *place = token == 0 ? NULL : lh_places_of(places, ns, key);

    return place == NULL ? NULL : lh_coordinator_asked(place->coordinator, ns, key, token);
}

struct lh_coordinator *lh_places_coordinator(const struct lh_places *places, const char *ns, const char *key)
{
    return lh_places_of(places, ns, key)->coordinator;
}

bool lh_places_is_below(const char *ns, const char *top)
{
    size_t size = strlen(top);

    return size == 0 || (strncmp(ns, top, size) == 0 && (ns[size] == '\0' || ns[size] == '.'));
}

/* Does it have `ns` itself, as one of several or alone? */
static bool has(const struct lh_places *places, const struct lh_place *place, const char *ns)
{
    const struct placed *placed = find_placed(places, ns);

    for (size_t i = 0; placed != NULL && placed->spread != NULL && i < placed->spread->count; i++)
        if (placed->spread->places[i] == place)
            return true;
    return place == (placed != NULL ? placed->place : places->standard);
}

static bool has_below(const char *const *namespaces, size_t count, const char *ns)
{
    for (size_t i = 0; i < count; i++)
        if (lh_places_is_below(namespaces[i], ns))
            return true;
    return false;
}

bool lh_places_has(const struct lh_places *places, const struct lh_place *place, const char *ns, bool include_children)
{
    return has(places, place, ns) || (include_children && (has_below(place->namespaces, place->namespace_count, ns) ||
                                                           has_below(place->spread, place->spread_count, ns)));
}

/* The first name behind `from` at which a placed namespace, or what is below it, begins or ends. */
static bool next_border(const struct lh_places *places, const char *from, char border[LH_ACCESS_NAME_BYTES])
{
    /* \001 is behind the name itself, and before all others; / is behind the dot. */
    static const char *const borders[] = {"", "\001", ".", "/"};
    bool is_found = false;

    for (size_t i = 0; i < places->placed_count; i++) {
        for (size_t j = 0; j < sizeof(borders) / sizeof(borders[0]); j++) {
            char name[LH_ACCESS_NAME_BYTES];
            snprintf(name, sizeof(name), "%s%s", places->placed[i].ns, borders[j]);
            if (strcmp(name, from) > 0 && (!is_found || strcmp(name, border) < 0)) {
                memcpy(border, name, sizeof(name));
                is_found = true;
            }
        }
    }
    return is_found;
}

bool lh_places_walk(const struct lh_places *places, const char *from, struct lh_place **place,
                    char end[LH_ACCESS_NAME_BYTES])
{
    const struct placed *placed = find_placed(places, from);
    bool is_spread = placed != NULL && placed->spread != NULL;
    char at[LH_ACCESS_NAME_BYTES];

    *place = lh_places_find(places, from);
    snprintf(at, sizeof(at), "%s", from);
    while (next_border(places, at, end)) {
        const struct placed *next = find_placed(places, end);
        bool goes_on = !is_spread && (next == NULL || next->spread == NULL);
        if (next != placed && (!goes_on || lh_places_find(places, end) != *place))
            return true;
        memcpy(at, end, sizeof(at));
    }
    return false;
}

/* --- of all --- */

static void add_histogram(struct lh_histogram *sum, const struct lh_histogram *one)
{
    for (size_t i = 0; i < sizeof(sum->counts) / sizeof(sum->counts[0]); i++)
        sum->counts[i] += one->counts[i];
    sum->sum += one->sum;
}

void lh_places_stats(const struct lh_places *places, struct lh_coordinator_stats *stats)
{
    lh_coordinator_stats(places->home->coordinator, stats);
    for (const struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;) {
        struct lh_coordinator_stats one;
        if (place == places->home)
            continue;
        lh_coordinator_stats(place->coordinator, &one);
        stats->waiters += one.waiters;
        stats->grants += one.grants;
        stats->renewals += one.renewals;
        stats->heartbeats += one.heartbeats;
        stats->held += one.held;
        add_histogram(&stats->batch_us[0], &one.batch_us[0]);
    }
}

static void add_words(struct lh_readiness *all, const struct lh_place *place, const struct lh_readiness *one)
{
    size_t size = strlen(all->words);

    snprintf(all->words + size, sizeof(all->words) - size, "; database %s is %sready%s%s", place->name,
             one->is_ready ? "" : "not ", one->words[0] != '\0' ? ": " : "", one->words);
    size = strlen(all->warning);
    if (one->warning[0] != '\0')
        snprintf(all->warning + size, sizeof(all->warning) - size, "%sdatabase %s: %s", size > 0 ? "; " : "",
                 place->name, one->warning);
}

void lh_places_readiness(const struct lh_places *places, struct lh_readiness *readiness)
{
    size_t ready = 0, count = 0;

    if (places->count == 1) {
        lh_coordinator_readiness(places->list->coordinator, readiness);
        return;
    }
    *readiness = (struct lh_readiness){0};
    for (const struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;) {
        struct lh_readiness one;
        lh_coordinator_readiness(place->coordinator, &one);
        ready += one.is_ready;
        count++;
    }
    snprintf(readiness->words, sizeof(readiness->words), "%zu of %zu databases", ready, count);
    /* Those first that are not: there may be no room for all. */
    for (int wanted = 0; wanted < 2; wanted++) {
        for (const struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;) {
            struct lh_readiness one;
            lh_coordinator_readiness(place->coordinator, &one);
            if (one.is_ready != (wanted == 1))
                continue;
            add_words(readiness, place, &one);
            if (readiness->cause[0] == '\0')
                memcpy(readiness->cause, one.cause, sizeof(one.cause));
        }
    }
    readiness->is_ready = ready > 0;
}

/* --- rules --- */

static void keep_rule(struct lh_place *place, const struct lh_access_rule *rule)
{
    struct lh_access_rule *kept = &place->rules[place->rule_count++];

    *kept = *rule;
    kept->principal = lh_arena_strdup(&place->rule_memory, rule->principal);
    kept->ns = lh_arena_strdup(&place->rule_memory, rule->ns);
}

static void keep_token(struct lh_place *place, const struct lh_access_token *token)
{
    struct lh_access_token *kept = &place->tokens[place->token_count++];

    *kept = *token;
    kept->id = lh_arena_strdup(&place->rule_memory, token->id);
    kept->name = lh_arena_strdup(&place->rule_memory, token->name);
}

void lh_places_keep_rules(const struct lh_places *places, struct lh_place *place, const struct lh_access_answer *answer)
{
    bool is_home = place == places->home;

    lh_arena_reset(&place->rule_memory);
    place->has_rules = true;
    place->rule_count = place->token_count = 0;
    place->rules = lh_arena_alloc(&place->rule_memory, (answer->rule_count + 1) * sizeof(*place->rules));
    place->tokens = lh_arena_alloc(&place->rule_memory, (answer->token_count + 1) * sizeof(*place->tokens));
    for (size_t i = 0; i < answer->rule_count; i++) {
        const char *ns = answer->rules[i].ns;
        if (has(places, place, ns) || (is_home && lh_places_find(places, ns) == NULL))
            keep_rule(place, &answer->rules[i]);
    }
    for (size_t i = 0; is_home && i < answer->token_count; i++)
        keep_token(place, &answer->tokens[i]);
}

bool lh_places_gather_rules(const struct lh_places *places, struct lh_access_answer *all, struct lh_arena *arena)
{
    struct lh_access_rule *rules;
    size_t count = 0;
    bool has_all = true;

    for (const struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;)
        count += place->rule_count;
    rules = lh_arena_alloc(arena, (count + 1) * sizeof(*rules));
    *all = (struct lh_access_answer){
        .rules = rules, .tokens = places->home->tokens, .token_count = places->home->token_count};
    for (const struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;) {
        has_all &= place->has_rules;
        if (place->rule_count > 0)
            memcpy(rules + all->rule_count, place->rules, place->rule_count * sizeof(*rules));
        all->rule_count += place->rule_count;
    }
    return has_all;
}
