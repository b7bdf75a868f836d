/*
 * The rows of leasehold.spread as a daemon follows them. A database sends its rows when it has registered this daemon, and
 * after each change. Claims go out one at a time, each when the answers before it are known: to a claim the daemon reads
 * that database again, and so learns of another daemon that was quicker.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "lease/readiness.h"
#include "service/places_internal.h"

#define NAMES_BYTES 128
#define SUMMARY_BYTES 2048
#define GOES_ON "deploy/move-namespace keys %s FROM TO goes on with a move that was interrupted"

static const char unread[] = "its part of the spread namespaces was not read yet";
static const char unclaimed[] = "the keys of a spread namespace are being divided between its databases";

static struct lh_spread_place find(const struct lh_spread_namespace *spread, const char *key)
{
    return lh_spread_find(spread->slots, key);
}

/* --- claims --- */

static void on_claimed(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_spread_namespace *spread = arg;
    struct lh_place *place = spread->claimed;

    spread->claimed = NULL;
    if (status != LH_OK && status != LH_CANCELED && status != LH_DATABASE_UNAVAILABLE && !spread->is_refused)
        lh_warn("the keys of %s cannot be divided: database %s: %s", spread->ns, place->name, error->message);
    spread->is_refused = status != LH_OK;
    if (status == LH_OK)
        lh_coordinator_read_spread(place->coordinator); /* and goes on */
}

static void claim_next(struct lh_spread_namespace *spread)
{
    struct lh_spread_claim claim = {.ns = spread->ns, .sections = spread->names, .section_count = spread->count};
    size_t next = lh_spread_next_claim(spread->slots, &claim.settles);
    struct lh_place *place;

    if (next == spread->count || spread->claimed != NULL)
        return;
    place = spread->places[next];
    claim.section = place->name;
    if (place->store->ops->claim_spread(place->store, &claim, on_claimed, spread) == LH_OK)
        spread->claimed = place;
}

/* --- rows --- */

static void tell(const struct lh_spread_namespace *spread)
{
    char summary[SUMMARY_BYTES] = "";
    size_t size = 0, unserved = lh_spread_count(spread->slots, spread->count);

    for (size_t i = 0; i < spread->count && size < sizeof(summary); i++)
        size += (size_t)snprintf(summary + size, sizeof(summary) - size, " %s=%zu", spread->names[i],
                                 lh_spread_count(spread->slots, i));
    lh_info("slots of spread namespace %s:%s unserved=%zu", spread->ns, summary, unserved);
}

static const struct lh_spread_row *find_row(const struct lh_spread_answer *answer, const char *ns)
{
    for (size_t i = 0; i < answer->count; i++)
        if (strcmp(answer->rows[i].ns, ns) == 0)
            return &answer->rows[i];
    return NULL;
}

static bool has_part(const struct lh_spread_namespace *spread, const struct lh_place *place, size_t *index)
{
    for (*index = 0; *index < spread->count; (*index)++)
        if (spread->places[*index] == place)
            return true;
    return false;
}

static bool is_claimable(const struct lh_spread_namespace *spread)
{
    bool settles;

    return lh_spread_next_claim(spread->slots, &settles) < spread->count && !spread->is_refused;
}

/* A database is ready when its keys are: a client that comes then is not sent away. */
static void set_lacks(const struct lh_places *places)
{
    size_t index;

    for (struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;) {
        const char *lack = NULL;
        for (size_t j = 0; j < places->spread_count; j++) {
            struct lh_spread_namespace *spread = &places->spread[j];
            if (!has_part(spread, place, &index))
                continue;
            if (!lh_spread_is_read(spread->slots, index))
                lack = unread;
            else if (lack == NULL && is_claimable(spread))
                lack = unclaimed;
        }
        lh_coordinator_set_lack(place->coordinator, lack);
    }
}

bool lh_places_keep_spread(const struct lh_places *places, struct lh_place *place,
                           const struct lh_spread_answer *answer)
{
    bool has_changed = false;
    size_t index;

    for (size_t i = 0; i < places->spread_count; i++) {
        struct lh_spread_namespace *spread = &places->spread[i];
        if (!has_part(spread, place, &index))
            continue;
        if (lh_spread_set_row(spread->slots, index, find_row(answer, spread->ns))) {
            has_changed = true;
            tell(spread);
        }
        claim_next(spread);
    }
    set_lacks(places);
    return has_changed;
}

void lh_places_lack_spread(const struct lh_places *places)
{
    set_lacks(places);
}

/* --- one key --- */

struct lh_place *lh_places_granting(const struct lh_places *places, const char *ns, const char *key)
{
    const struct lh_spread_namespace *spread = lh_places_spread(places, ns);
    struct lh_spread_place at;

    if (spread == NULL)
        return lh_places_find(places, ns);
    at = find(spread, key);
    return at.state == LH_SPREAD_SERVED ? spread->places[at.of] : NULL;
}

static bool is_known(const struct lh_spread_namespace *spread, const struct lh_spread_place *at)
{
    switch (at->state) {
    case LH_SPREAD_UNREAD:
        return at->of != at->other;
    case LH_SPREAD_UNCLAIMED:
        return at->other == spread->count;
    case LH_SPREAD_MOVING: /* it may have left its database already */
    case LH_SPREAD_MISSING:
        return false;
    default:
        return true;
    }
}

struct lh_place *lh_places_holding(const struct lh_places *places, const char *ns, const char *key)
{
    const struct lh_spread_namespace *spread = lh_places_spread(places, ns);
    struct lh_spread_place at;

    if (spread == NULL)
        return lh_places_find(places, ns);
    at = find(spread, key);
    return is_known(spread, &at) ? spread->places[at.of] : NULL;
}

/* "a, b, c", or as many as there is room for. */
static const char *join(const char *const *names, size_t count, char words[NAMES_BYTES])
{
    size_t size = 0;

    words[0] = '\0';
    for (size_t i = 0; i < count && size < NAMES_BYTES; i++)
        size += (size_t)snprintf(words + size, NAMES_BYTES - size, "%s%s", i > 0 ? ", " : "", names[i]);
    return words;
}

static const char *own_names(const struct lh_spread_namespace *spread, char words[NAMES_BYTES])
{
    return join((const char *const *)spread->names, spread->count, words);
}

static bool has_section(const struct lh_spread_namespace *spread, const char *name)
{
    for (size_t i = 0; i < spread->count; i++)
        if (strcmp(spread->names[i], name) == 0)
            return true;
    return false;
}

/* The first row that names a section which this daemon lacks, or NULL. */
static const struct lh_spread_row *find_foreign(const struct lh_spread_namespace *spread)
{
    for (size_t i = 0; i < spread->count; i++) {
        const struct lh_spread_row *row = lh_spread_row(spread->slots, i);
        for (size_t j = 0; row != NULL && j < row->section_count; j++)
            if (!has_section(spread, row->sections[j]))
                return row;
    }
    return NULL;
}

/* Where the daemon has all sections, its databases agree that the keys are in none: it was started during a move. */
static void say_missing(const struct lh_spread_namespace *spread, const char *what, char words[LH_SPREAD_WORDS_BYTES])
{
    const struct lh_spread_row *row = find_foreign(spread);
    char own[NAMES_BYTES], other[NAMES_BYTES];

    if (row != NULL)
        snprintf(words, LH_SPREAD_WORDS_BYTES,
                 "no database of this daemon has %s of %s: its keys are in the sections %s, this daemon has %s", what,
                 spread->ns, join(row->sections, row->section_count, other), own_names(spread, own));
    else
        snprintf(words, LH_SPREAD_WORDS_BYTES, "no database has %s of %s: a move of keys is under way; " GOES_ON, what,
                 spread->ns, spread->ns);
}

bool lh_places_why_not(const struct lh_places *places, const char *ns, const char *key,
                       char words[LH_SPREAD_WORDS_BYTES])
{
    const struct lh_spread_namespace *spread = lh_places_spread(places, ns);
    char own[NAMES_BYTES], other[NAMES_BYTES];
    struct lh_spread_place at;

    if (spread == NULL)
        return false;
    at = find(spread, key);
    switch (at.state) {
    case LH_SPREAD_SERVED:
    case LH_SPREAD_UNREAD: /* the database is away, or not ready */
        return false;
    case LH_SPREAD_UNCLAIMED:
        if (at.other < spread->count) {
            const struct lh_spread_row *row = lh_spread_row(spread->slots, at.other);
            snprintf(words, LH_SPREAD_WORDS_BYTES,
                     "database %s has keys of %s for the sections %s, and this daemon has the sections %s",
                     spread->names[at.other], spread->ns, join(row->sections, row->section_count, other),
                     own_names(spread, own));
        } else {
            snprintf(words, LH_SPREAD_WORDS_BYTES, "the keys of %s are not divided between the databases %s yet",
                     spread->ns, own_names(spread, own));
        }
        return true;
    case LH_SPREAD_SEVERAL:
        snprintf(words, LH_SPREAD_WORDS_BYTES, "the databases %s and %s both say that they have this key of %s",
                 spread->names[at.of], spread->names[at.other], spread->ns);
        return true;
    case LH_SPREAD_MOVING:
        snprintf(words, LH_SPREAD_WORDS_BYTES, "this key of %s is on its way from database %s to another; " GOES_ON,
                 spread->ns, spread->names[at.of], spread->ns);
        return true;
    case LH_SPREAD_MISSING:
        break;
    }
    say_missing(spread, "this key", words);
    return true;
}

/* --- all keys --- */

/* Is it the namespace, above it or below it? */
static bool concerns(const struct lh_spread_namespace *spread, const char *ns)
{
    size_t size = strlen(ns), top = strlen(spread->ns), common = size < top ? size : top;

    return size == 0 || (strncmp(spread->ns, ns, common) == 0 &&
                         (size == top || (size < top ? spread->ns[common] : ns[common]) == '.'));
}

bool lh_places_lack_leases(const struct lh_places *places, const char *ns, char words[LH_SPREAD_WORDS_BYTES])
{
    for (size_t i = 0; i < places->spread_count; i++) {
        const struct lh_spread_namespace *spread = &places->spread[i];
        if (!lh_spread_lacks_leases(spread->slots) || !concerns(spread, ns))
            continue;
        if (lh_spread_has(spread->slots, LH_SPREAD_MISSING))
            say_missing(spread, "some keys", words);
        else
            snprintf(words, LH_SPREAD_WORDS_BYTES, "keys of %s are on their way between databases; " GOES_ON,
                     spread->ns, spread->ns);
        return true;
    }
    return false;
}

bool lh_places_slots(const struct lh_places *places, size_t index, struct lh_service_slots *slots)
{
    for (size_t i = 0; i < places->spread_count; i++) {
        const struct lh_spread_namespace *spread = &places->spread[i];
        if (index <= spread->count) {
            slots->ns = spread->ns;
            slots->database = index < spread->count ? spread->names[index] : "";
            slots->count = lh_spread_count(spread->slots, index);
            return true;
        }
        index -= spread->count + 1;
    }
    return false;
}
