#include "service/places_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "loop/loop.h"
#include "service/call_internal.h"

/* A database that has not answered so long after the first of them keeps the answer of the others no longer. */
#define OTHERS_WAIT_US (1 * LH_US_PER_S)

/* --- heartbeats and releases --- */

typedef enum lh_status send_cb(struct lh_coordinator *coordinator, struct lh_holder_request *request);

struct split;

/* What one database gets: copies of its items, in their order. */
struct part {
    struct lh_holder_request request;
    struct split *split;
    size_t *places; /* of each item in the whole */
};

struct split {
    struct lh_holder_request *whole; /* NULL: it is answered */
    struct lh_timer timer;
    struct lh_arena memory;
    size_t open; /* parts that are under way */
    struct part parts[];
};

static void free_split(struct split *split)
{
    lh_timer_finish(&split->timer);
    lh_arena_finish(&split->memory);
    free(split);
}

static void answer(struct split *split)
{
    struct lh_holder_request *whole = split->whole;

    split->whole = NULL;
    whole->on_done(whole);
}

/* The items of the others are RETRY. What their databases say later is dropped. */
static void on_others_late(void *arg)
{
    answer(arg);
}

static void take(const struct part *part)
{
    struct split *split = part->split;

    for (size_t i = 0; i < part->request.count; i++) {
        struct lh_holder_item *item = &split->whole->items[part->places[i]].item;
        const struct lh_holder_item *answered = &part->request.items[i].item;
        const char *ns = item->ns, *key = item->key, *value = item->value;

        *item = *answered;
        item->ns = ns;
        item->key = key;
        item->value = value;
        if (item->message != NULL)
            item->message = lh_arena_strdup(&split->memory, item->message);
    }
    split->whole->batch = part->request.batch;
}

static void on_part_done(struct lh_holder_request *request)
{
    const struct part *part = request->arg;
    struct split *split = part->split;

    if (split->whole != NULL)
        take(part);
    if (--split->open == 0) {
        if (split->whole != NULL)
            answer(split);
        free_split(split);
    } else if (split->whole != NULL) {
        lh_timer_arm_no_later_us(&split->timer, lh_clock_us() + OTHERS_WAIT_US);
    }
}

static enum lh_status send_parts(const struct lh_service *service, struct split *split, send_cb *send)
{
    enum lh_status first = LH_OK;

    for (size_t i = 0; i < lh_places_count(service->places); i++) {
        struct part *part = &split->parts[i];
        enum lh_status status = LH_OK;
        if (part->split == NULL)
            continue;
        status = send(lh_places_at(service->places, i)->coordinator, &part->request);
        if (status == LH_OK)
            split->open++;
        else
            first = status;
    }
    return split->open > 0 ? LH_OK : first;
}

/* The place of the first item, or the home where there is no item to send. One whose place is not known is RETRY, as if there
   were several. */
static const struct lh_place *find_only(const struct lh_places *places, const struct lh_holder_request *request,
                                        bool *are_several)
{
    const struct lh_place *only = NULL;

    *are_several = false;
    for (size_t i = 0; i < request->count && !*are_several; i++) {
        const struct lh_place *place;
        if (request->items[i].skip)
            continue;
        place = lh_places_holding(places, request->items[i].item.ns, request->items[i].item.key);
        *are_several = place == NULL || (only != NULL && place != only);
        only = only != NULL ? only : place;
    }
    return only != NULL ? only : lh_places_home(places);
}

static struct part *open_part(struct split *split, size_t place)
{
    struct part *part = &split->parts[place];

    if (part->split == NULL) {
        size_t most = split->whole->count;
        part->request.items = lh_arena_alloc(&split->memory, most * sizeof(*part->request.items));
        part->places = lh_arena_alloc(&split->memory, most * sizeof(*part->places));
        part->request.on_done = on_part_done;
        part->request.arg = part;
        part->split = split;
    }
    return part;
}

/* A database that is late may look at its items when the whole is gone. */
static void put(const struct lh_places *places, struct split *split, size_t index)
{
    struct lh_holder_entry *entry = &split->whole->items[index];
    const struct lh_place *place = lh_places_holding(places, entry->item.ns, entry->item.key);
    struct part *part;
    struct lh_holder_entry *own;

    entry->item.outcome = LH_OUTCOME_RETRY; /* until its database has answered */
    if (place == NULL)
        return;
    part = open_part(split, (size_t)(place - lh_places_at(places, 0)));
    own = &part->request.items[part->request.count];
    *own = *entry;
    own->item.ns = lh_arena_strdup(&split->memory, entry->item.ns);
    own->item.key = lh_arena_strdup(&split->memory, entry->item.key);
    if (entry->item.value != NULL)
        own->item.value = lh_arena_strdup(&split->memory, entry->item.value);
    part->places[part->request.count++] = index;
}

static struct split *split_up(const struct lh_service *service, struct lh_holder_request *request)
{
    const struct lh_places *places = service->places;
    struct split *split = lh_alloc_zero(1, sizeof(*split) + lh_places_count(places) * sizeof(split->parts[0]));
    bool has_part = false;

    split->whole = request;
    lh_timer_init(&split->timer, service->loop, on_others_late, split);
    for (size_t i = 0; i < request->count; i++)
        if (!request->items[i].skip)
            put(places, split, i);
    for (size_t i = 0; i < lh_places_count(places); i++)
        has_part |= split->parts[i].split != NULL;
    if (!has_part) /* no place is known: one without items, for the answer comes later */
        open_part(split, (size_t)(lh_places_home(places) - lh_places_at(places, 0)));
    return split;
}

static enum lh_status send_holder(const struct lh_service *service, struct lh_holder_request *request, send_cb *send)
{
    const struct lh_places *places = service->places;
    const struct lh_place *only;
    bool are_several;
    struct split *split;
    enum lh_status status;

    if (lh_places_count(places) == 1 && lh_places_spread_count(places) == 0)
        return send(lh_places_home(places)->coordinator, request);
    only = find_only(places, request, &are_several);
    if (!are_several)
        return send(only->coordinator, request);
    split = split_up(service, request);
    status = send_parts(service, split, send);
    if (status != LH_OK)
        free_split(split);
    return status;
}

enum lh_status lh_route_heartbeat(const struct lh_service *service, struct lh_holder_request *request)
{
    return send_holder(service, request, lh_coordinator_heartbeat);
}

enum lh_status lh_route_release(const struct lh_service *service, struct lh_holder_request *request)
{
    return send_holder(service, request, lh_coordinator_release);
}

/* --- watches --- */

struct watched_place {
    struct lh_watcher watcher;
    struct lh_routed_watch *watch;
    const struct lh_place *place;
    bool is_watched; /* by its coordinator */
};

struct lh_routed_watch {
    struct lh_watcher *whole;
    const struct lh_places *places;
    size_t inactive;
    size_t behind;
    size_t count;
    struct watched_place parts[];
};

static void on_active(struct lh_watcher *watcher)
{
    const struct watched_place *part = watcher->arg;

    if (--part->watch->inactive == 0)
        part->watch->whole->on_active(part->watch->whole);
}

/* A database may still have what lives elsewhere now. */
static void on_event(struct lh_watcher *watcher, const struct lh_lease_event *event)
{
    const struct watched_place *part = watcher->arg;
    struct lh_watcher *whole = part->watch->whole;

    if (lh_places_of(part->watch->places, event->lease.ns, event->lease.key) == part->place)
        whole->on_event(whole, event);
}

static void on_caught_up(struct lh_watcher *watcher)
{
    const struct watched_place *part = watcher->arg;

    if (--part->watch->behind == 0)
        part->watch->whole->on_caught_up(part->watch->whole);
}

void lh_route_unwatch(struct lh_routed_watch *watch)
{
    for (size_t i = 0; i < watch->count; i++) {
        struct watched_place *part = &watch->parts[i];
        if (part->is_watched)
            lh_coordinator_unwatch(part->place->coordinator, &part->watcher);
        part->is_watched = false;
    }
}

static void on_watch_end(struct lh_watcher *watcher, enum lh_status status)
{
    struct watched_place *part = watcher->arg;
    struct lh_watcher *whole = part->watch->whole;

    part->is_watched = false;
    lh_route_unwatch(part->watch);
    whole->on_end(whole, status);
}

static void add_part(struct lh_routed_watch *watch, const struct lh_place *place)
{
    struct watched_place *part = &watch->parts[watch->count++];

    part->watch = watch;
    part->place = place;
    part->watcher = (struct lh_watcher){.ns = watch->whole->ns,
                                        .include_children = watch->whole->include_children,
                                        .on_active = on_active,
                                        .on_event = on_event,
                                        .on_caught_up = on_caught_up,
                                        .on_end = on_watch_end,
                                        .arg = part};
}

struct lh_routed_watch *lh_route_watch(const struct lh_service *service, struct lh_watcher *watcher,
                                       enum lh_status *status)
{
    const struct lh_places *places = service->places;
    size_t count = lh_places_count(places);
    struct lh_routed_watch *watch = lh_alloc_zero(1, sizeof(*watch) + count * sizeof(watch->parts[0]));

    watch->whole = watcher;
    watch->places = places;
    for (size_t i = 0; i < count; i++)
        if (lh_places_has(places, lh_places_at(places, i), watcher->ns, watcher->include_children))
            add_part(watch, lh_places_at(places, i));
    watch->inactive = watch->count;
    *status = watch->count == 0 ? LH_INVALID_ARGUMENT : LH_OK;
    for (size_t i = 0; *status == LH_OK && i < watch->count; i++) {
        *status = lh_coordinator_watch(watch->parts[i].place->coordinator, &watch->parts[i].watcher);
        watch->parts[i].is_watched = *status == LH_OK;
    }
    if (*status == LH_OK)
        return watch;
    lh_route_unwatch(watch);
    lh_routed_watch_destroy(watch);
    return NULL;
}

void lh_routed_watch_destroy(struct lh_routed_watch *watch)
{
    free(watch);
}

void lh_route_catch_up(struct lh_routed_watch *watch)
{
    watch->behind = watch->count;
    for (size_t i = 0; i < watch->count; i++)
        lh_coordinator_catch_up(watch->parts[i].place->coordinator, &watch->parts[i].watcher);
}
