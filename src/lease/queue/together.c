#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "lease/batch_internal.h"
#include "lease/queue/together.h"

#define OUTAGE_US (200 * LH_US_PER_MS) /* how often it looks whether anything can be asked again */
#define HOOK_LINE_US (1 * LH_US_PER_S)

/* --- whose turn it is --- */

/* May those behind it be asked for before it? Also where a row of it was busy last. */
static bool is_passed(const struct lh_waiter *waiter)
{
    return lh_waiter_lets_pass(waiter) || (waiter->together != NULL && waiter->together->delay_us > 0);
}

/* The first that is not passed over; `asker` never is. */
static struct lh_waiter *first_of(const struct lh_scope *scope, bool (*passes)(const struct lh_waiter *waiter),
                                  const struct lh_together *asker)
{
    const struct lh_link *lists[] = {&scope->again, &scope->line};

    for (int i = 0; i < 2; i++) {
        for (struct lh_link *link = lists[i]->next; link != lists[i]; link = link->next) {
            struct lh_waiter *waiter = LH_CONTAINER(struct lh_waiter, link, link);
            if (waiter->together == asker || !passes(waiter))
                return waiter;
        }
    }
    return NULL;
}

struct lh_waiter *lh_together_next_alone(const struct lh_scope *scope)
{
    struct lh_waiter *waiter = first_of(scope, is_passed, NULL);
    return waiter != NULL && waiter->together == NULL ? waiter : NULL;
}

static bool is_next_everywhere(const struct lh_together *together)
{
    LH_PLACE_EACH(place, together)
    {
        if (first_of(place->waiter->scope, is_passed, together) != place->waiter)
            return false;
    }
    return true;
}

static bool is_idle_everywhere(const struct lh_together *together)
{
    LH_PLACE_EACH(place, together)
    {
        if (place->waiter->scope->in_flight > 0)
            return false;
    }
    return true;
}

/* Of the places in this scope the first that may go, with those for a hook lane, that let others pass. */
struct lh_waiter *lh_together_next_place(const struct lh_scope *scope)
{
    const struct lh_link *lists[] = {&scope->again, &scope->line};

    for (int i = 0; i < 2; i++) {
        for (struct lh_link *link = lists[i]->next; link != lists[i]; link = link->next) {
            struct lh_waiter *waiter = LH_CONTAINER(struct lh_waiter, link, link);
            const struct lh_together *together = waiter->together;
            if (together == NULL)
                return NULL;
            if (together->is_resting)
                continue;
            if (is_idle_everywhere(together) && is_next_everywhere(together))
                return waiter;
            if (!is_passed(waiter))
                return NULL;
        }
    }
    return NULL;
}

bool lh_together_holds_back(const struct lh_scope *scope)
{
    const struct lh_waiter *waiter = first_of(scope, lh_waiter_lets_pass, NULL);

    return waiter != NULL && waiter->together != NULL && is_next_everywhere(waiter->together) &&
           !is_idle_everywhere(waiter->together);
}

static void schedule_places(struct lh_coordinator *c, struct lh_together *together)
{
    LH_PLACE_EACH(place, together)
    lh_scope_touch(c, place->waiter->scope);
}

static bool is_in_hook_line(const struct lh_together *together)
{
    LH_PLACE_EACH(place, together)
    {
        const struct lh_scope *scope = place->waiter->scope;
        if (scope->hook_queue != NULL && scope->hook_kind == LH_KIND_ACQUIRE_ALL)
            return true;
    }
    return false;
}

/* Its patience is over, or its rest. */
void lh_together_on_timer(struct lh_coordinator *c, struct lh_together *together)
{
    bool was_resting = together->is_resting;
    int64_t in_us = LH_TOGETHER_PATIENCE_US;

    if (!lh_scope_can_send(c, LH_KIND_ACQUIRE_ALL) || !lh_lanes_are_up(c)) {
        together->is_resting = true;
        in_us = OUTAGE_US;
    } else if (was_resting) {
        together->is_resting = false;
    } else if (together->is_hooked || is_in_hook_line(together)) {
        together->is_hooked = true;
        in_us = HOOK_LINE_US;
    } else {
        together->is_resting = true;
        in_us = lh_turn_jitter(c, LH_BUSY_LAST_US, 20);
    }
    lh_heap_set(&c->timers, &together->timer, c->now_us + in_us);
    if (together->is_resting != was_resting || together->is_hooked)
        schedule_places(c, together);
}

/* --- its places --- */

static bool is_same_scope(const struct lh_place *place, const char *ns, const char *key)
{
    return strcmp(place->key, key) == 0 && strcmp(place->ns, ns) == 0;
}

bool lh_together_is_same(const struct lh_waiter *waiter, const struct lh_acquire *request)
{
    const struct lh_together *together = waiter->together;

    if (together == NULL)
        return request->also_count == 0;
    if (request->also_count + 1 != together->count || !lh_waiter_is_first_place(waiter) ||
        request->units != together->places[0].units)
        return false;
    for (size_t i = 0; i < request->also_count; i++) {
        const struct lh_wanted_scope *also = &request->also[i];
        const struct lh_place *place = &together->places[i + 1];
        if (place->units != also->units || !is_same_scope(place, also->ns, also->key))
            return false;
    }
    return true;
}

bool lh_together_is_there(const struct lh_waiter *waiter)
{
    return waiter->together == NULL || waiter->together->there == waiter->together->count;
}

bool lh_together_is_whole(const struct lh_waiter *waiter)
{
    if (waiter->together == NULL)
        return true;
    LH_PLACE_EACH(place, waiter->together)
    {
        if (place->waiter->state == LH_WAITER_LEFT)
            return false;
    }
    return lh_together_is_there(waiter);
}

bool lh_together_is_taken(struct lh_coordinator *c, const struct lh_acquire *request)
{
    for (size_t i = 0; i < request->also_count; i++) {
        struct lh_scope *scope = lh_scope_find(c, request->also[i].ns, request->also[i].key);
        if (scope != NULL && lh_waiter_find(c, scope, &request->lease_key) != NULL)
            return true;
    }
    return false;
}

static struct lh_place *place_of(const struct lh_waiter *waiter)
{
    struct lh_place *place = waiter->together->places;

    while (place->waiter != waiter)
        place++;
    return place;
}

static struct lh_waiter *make_place(struct lh_coordinator *c, const struct lh_place *place,
                                    const struct lh_waiter *first)
{
    struct lh_scope *scope = lh_scope_get(c, place->ns, place->key);
    struct lh_waiter *waiter = NULL;

    if (lh_waiter_find(c, scope, &first->lease_key) == NULL) {
        waiter = lh_waiter_create(c, scope, &first->lease_key);
        waiter->together = first->together;
        waiter->units = place->units;
        waiter->ticket = first->ticket;
        waiter->seq = first->seq;
    }
    lh_scope_touch(c, scope);
    return waiter;
}

void lh_together_reform(struct lh_coordinator *c, struct lh_waiter *first)
{
    struct lh_together *together = first->together;

    if (together == NULL)
        return;
    together->there = 0;
    together->waits_for = NULL;
    for (size_t i = 0; i < together->count; i++) {
        struct lh_place *place = &together->places[i];
        if (place->waiter == NULL)
            place->waiter = make_place(c, place, first);
        together->there += place->waiter != NULL;
    }
}

static char *name_place(struct lh_place *place, const char *ns, const char *key, int32_t units, char *at)
{
    place->ns = at;
    place->key = at = stpcpy(at, ns) + 1;
    place->units = units;
    return stpcpy(at, key) + 1;
}

void lh_together_form(struct lh_coordinator *c, struct lh_waiter *first, const struct lh_wanted_scope *also,
                      size_t count)
{
    struct lh_together *together;
    size_t size = sizeof(*together) + (count + 1) * sizeof(together->places[0]);
    size_t at = size;

    size += strlen(first->scope->ns) + strlen(first->scope->key) + 2;
    for (size_t i = 0; i < count; i++)
        size += strlen(also[i].ns) + strlen(also[i].key) + 2;
    together = lh_alloc_zero(1, size);
    together->count = count + 1;
    together->timer.kind = LH_TIMER_TOGETHER;
    together->places[0].waiter = first;
    char *names =
        name_place(&together->places[0], first->scope->ns, first->scope->key, first->units, (char *)together + at);
    for (size_t i = 0; i < count; i++)
        names = name_place(&together->places[i + 1], also[i].ns, also[i].key, also[i].units, names);
    first->together = together;
    lh_together_reform(c, first);
}

struct lh_waiter *lh_together_left(struct lh_coordinator *c, struct lh_waiter *waiter)
{
    struct lh_together *together = waiter->together;

    if (together == NULL)
        return waiter;
    struct lh_waiter *first = together->places[0].waiter;
    if (waiter == first) {
        lh_waiter_set_state(c, waiter, LH_WAITER_OUT, "it waits until its other places are out");
    } else {
        place_of(waiter)->waiter = NULL;
        waiter->together = NULL;
        lh_waiter_free(c, waiter);
    }
    if (--together->there > 0)
        return NULL;
    lh_scope_touch(c, first->scope);
    return first;
}

void lh_together_dissolve(struct lh_waiter *first)
{
    struct lh_together *together = first->together;

    if (together == NULL)
        return;
    LH_PLACE_EACH(place, together)
    place->waiter->together = NULL;
    free(together);
}

/* --- what its answer says --- */

bool lh_together_waits_for(struct lh_waiter *waiter, const struct lh_scope *scope)
{
    struct lh_together *together = waiter->together;
    bool was_so = together == NULL || together->waits_for == scope;

    if (together != NULL)
        together->waits_for = scope;
    return was_so;
}

void lh_together_done(struct lh_together *together)
{
    together->is_hooked = together->is_full = false;
    together->fails = 0;
    together->delay_us = 0;
}

static void rest(struct lh_coordinator *c, struct lh_together *together, int64_t first_us, int64_t last_us)
{
    together->delay_us = lh_time_double(together->delay_us, first_us, last_us);
    together->is_resting = true;
    lh_heap_set(&c->timers, &together->timer, c->now_us + lh_turn_jitter(c, together->delay_us, 20));
}

void lh_together_busy(struct lh_coordinator *c, struct lh_together *together)
{
    rest(c, together, LH_BUSY_FIRST_US, LH_BUSY_LAST_US);
}

void lh_together_failed(struct lh_coordinator *c, struct lh_waiter *first, bool is_full)
{
    struct lh_together *together = first->together;

    together->is_full = is_full;
    together->fails = is_full ? 0 : together->fails + 1;
    rest(c, together, LH_FAIL_FIRST_US, is_full ? LH_FULL_LAST_US : LH_FAIL_LAST_US);
    if (together->fails < LH_FAILS_MAX)
        return;
    together->fails = 0;
    lh_warn("acquires of several scopes fail repeatedly scope=%s", LH_SCOPE_NAME(first->scope->ns, first->scope->key));
    lh_request_answer_all(c, first, LH_INTERNAL, "the database refuses this request repeatedly");
}

void lh_together_hooked(struct lh_together *together, int64_t timeout_us)
{
    together->is_hooked = true;
    together->hook_timeout_us = timeout_us;
    LH_PLACE_EACH(place, together)
    place->waiter->scope->hooked |= 1u << LH_KIND_ACQUIRE_ALL;
}

void lh_together_wake(struct lh_coordinator *c, struct lh_waiter *waiter)
{
    if (waiter->together == NULL) {
        lh_scope_wake(c, waiter->scope);
        return;
    }
    LH_PLACE_EACH(place, waiter->together)
    lh_scope_wake(c, place->waiter->scope);
}
