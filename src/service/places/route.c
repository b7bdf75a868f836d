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

    for (size_t i = 0; i < service->places->count; i++) {
        struct part *part = &split->parts[i];
        enum lh_status status = LH_OK;
        if (part->split == NULL)
            continue;
        status = send(service->places->list[i].coordinator, &part->request);
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
    return only != NULL ? only : places->home;
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
    part = open_part(split, (size_t)(place - places->list));
    own = &part->request.items[part->request.count];
    *own = *entry;
    own->item.ns = lh_arena_strdup(&split->memory, entry->item.ns);
    own->item.key = lh_arena_strdup(&split->memory, entry->item.key);
    own->item.value = lh_arena_strdup(&split->memory, entry->item.value);
    part->places[part->request.count++] = index;
}

static struct split *split_up(const struct lh_service *service, struct lh_holder_request *request)
{
    const struct lh_places *places = service->places;
    struct split *split = lh_alloc_zero(1, sizeof(*split) + places->count * sizeof(split->parts[0]));
    bool has_part = false;

    split->whole = request;
    lh_timer_init(&split->timer, service->loop, on_others_late, split);
    for (size_t i = 0; i < request->count; i++)
        if (!request->items[i].skip)
            put(places, split, i);
    for (size_t i = 0; i < places->count; i++)
        has_part |= split->parts[i].split != NULL;
    if (!has_part) /* no place is known: one without items, for the answer comes later */
        open_part(split, (size_t)(places->home - places->list));
    return split;
}

static enum lh_status send_holder(const struct lh_service *service, struct lh_holder_request *request, send_cb *send)
{
    const struct lh_places *places = service->places;
    const struct lh_place *only;
    bool are_several;
    struct split *split;
    enum lh_status status;

    if (places->count == 1 && places->spread_count == 0)
        return send(places->home->coordinator, request);
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
    struct lh_link link; /* in lh_routed_watch.parts, while its coordinator has it */
    bool is_active;
    bool is_behind;
};

struct lh_routed_watch {
    struct lh_watcher *whole;
    const struct lh_places *places;
    struct lh_link link; /* in lh_service.routed_watches, until its end */
    struct lh_link parts;
    bool is_active;
    bool is_behind;
};

static void drop(struct watched_place *part)
{
    lh_list_remove(&part->link);
    free(part);
}

void lh_route_unwatch(struct lh_routed_watch *watch)
{
    LH_LIST_EACH(struct watched_place, part, &watch->parts, link) {
        lh_coordinator_unwatch(part->place->coordinator, &part->watcher);
        drop(part);
    }
    if (lh_link_is_linked(&watch->link))
        lh_list_remove(&watch->link);
}

static void end(struct lh_routed_watch *watch, enum lh_status status)
{
    lh_route_unwatch(watch);
    watch->whole->on_end(watch->whole, status);
}

/* Tells what has become true of all parts. */
static void look(struct lh_routed_watch *watch)
{
    bool is_active = true, is_behind = false, was_active = watch->is_active, was_behind = watch->is_behind;

    LH_LIST_EACH(struct watched_place, part, &watch->parts, link) {
        is_active &= part->is_active;
        is_behind |= part->is_behind;
    }
    watch->is_active |= is_active;
    watch->is_behind &= is_behind;
    if (watch->is_active && !was_active)
        watch->whole->on_active(watch->whole);
    else if (was_behind && !watch->is_behind)
        watch->whole->on_caught_up(watch->whole);
}

/* One that joins late may have missed what became of keys that its database got meanwhile. */
static void on_active(struct lh_watcher *watcher)
{
    struct watched_place *part = watcher->arg;
    struct lh_routed_watch *watch = part->watch;

    part->is_active = true;
    if (watch->is_active && !lh_places_is_without_keys(watch->places, part->place))
        end(watch, LH_WATCH_LAGGED);
    else
        look(watch);
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
    struct watched_place *part = watcher->arg;

    part->is_behind = false;
    look(part->watch);
}

static void on_watch_end(struct lh_watcher *watcher, enum lh_status status)
{
    struct watched_place *part = watcher->arg;
    struct lh_routed_watch *watch = part->watch;
    bool goes_on = lh_places_is_without_keys(watch->places, part->place);

    drop(part);
    if (goes_on)
        look(watch);
    else
        end(watch, status);
}

static enum lh_status add_part(struct lh_routed_watch *watch, const struct lh_place *place)
{
    struct watched_place *part = lh_alloc_zero(1, sizeof(*part));
    enum lh_status status;

    part->watch = watch;
    part->place = place;
    part->watcher = (struct lh_watcher){.ns = watch->whole->ns,
                                        .include_children = watch->whole->include_children,
                                        .on_active = on_active,
                                        .on_event = on_event,
                                        .on_caught_up = on_caught_up,
                                        .on_end = on_watch_end,
                                        .arg = part};
    lh_list_append(&watch->parts, &part->link);
    status = lh_coordinator_watch(place->coordinator, &part->watcher);
    if (status != LH_OK)
        drop(part);
    return status;
}

static bool wants(const struct lh_routed_watch *watch, const struct lh_place *place)
{
    return lh_places_has(watch->places, place, watch->whole->ns, watch->whole->include_children);
}

struct lh_routed_watch *lh_route_watch(struct lh_service *service, struct lh_watcher *watcher, enum lh_status *status)
{
    const struct lh_places *places = service->places;
    struct lh_routed_watch *watch = lh_alloc_zero(1, sizeof(*watch));

    watch->whole = watcher;
    watch->places = places;
    lh_list_init(&watch->parts);
    lh_list_append(&service->routed_watches, &watch->link);
    *status = LH_INVALID_ARGUMENT;
    for (struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;) {
        if (!wants(watch, place))
            continue;
        *status = add_part(watch, place);
        if (*status != LH_OK && lh_places_is_without_keys(places, place))
            *status = LH_OK; /* it joins in lh_route_join */
        if (*status != LH_OK)
            break;
    }
    if (*status == LH_OK)
        return watch;
    lh_route_unwatch(watch);
    lh_routed_watch_destroy(watch);
    return NULL;
}

void lh_route_join(struct lh_service *service, const struct lh_place *place)
{
    LH_LIST_EACH(struct lh_routed_watch, watch, &service->routed_watches, link) {
        enum lh_status status;
        bool has_part = !lh_places_is_live(place) || !wants(watch, place);
        LH_LIST_EACH(struct watched_place, part, &watch->parts, link)
            has_part |= part->place == place;
        status = has_part ? LH_OK : add_part(watch, place);
        if (status != LH_OK && !lh_places_is_without_keys(service->places, place))
            end(watch, status);
    }
}

void lh_routed_watch_destroy(struct lh_routed_watch *watch)
{
    free(watch);
}

void lh_route_catch_up(struct lh_routed_watch *watch)
{
    LH_LIST_EACH(struct watched_place, part, &watch->parts, link) {
        if (!part->is_active)
            continue;
        part->is_behind = watch->is_behind = true;
        lh_coordinator_catch_up(part->place->coordinator, &part->watcher);
    }
}
