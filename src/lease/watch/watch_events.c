#include "lease/watch/watch_events.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lease/watch/watch_hub.h"

#define TAKE_MAX 500

static bool is_in_database(const struct lh_watched *watch)
{
    return watch->state >= LH_WATCH_ADDED;
}

static bool is_watched_by(const struct lh_watched *watch, const char *ns)
{
    size_t size = strlen(watch->ns);

    if (size == 0)
        return true;
    if (strncmp(watch->ns, ns, size) != 0)
        return false;
    return ns[size] == '\0' || (watch->include_children && ns[size] == '.');
}

static void tell(struct lh_coordinator *c, const struct lh_lease_event *event)
{
    LH_WATCH_EACH(watch)
    {
        if (!is_watched_by(watch, event->lease.ns))
            continue;
        LH_WATCHER_EACH(watcher, watch)
        {
            if (!watcher->own.is_active)
                continue;
            c->stats.watch_events++;
            watcher->on_event(watcher, event);
        }
    }
}

/* A run of takes has come to its end: who asked before it began has everything. */
static void tell_caught_up(struct lh_coordinator *c)
{
    LH_WATCH_EACH(watch)
    LH_WATCHER_EACH(watcher, watch)
    {
        if (watcher->own.catch_up != LH_CATCH_UP_TAKING)
            continue;
        watcher->own.catch_up = LH_CATCH_UP_NO;
        watcher->on_caught_up(watcher);
    }
}

static void on_taken(void *arg, enum lh_status status, const struct lh_error *error,
                     const struct lh_events_answer *answer)
{
    struct lh_coordinator *c = arg;
    struct lh_watching *w = &c->watching;

    lh_turn_begin(c);
    w->is_in_run = false;
    if (!lh_watch_call_end(&w->taking)) {
        /* Of watches that are no more. */
    } else if (status != LH_OK) {
        if (status != LH_DATABASE_UNAVAILABLE && status != LH_CANCELED)
            lh_warn("events not taken: %s", error != NULL ? error->message : lh_status_text(status));
        w->retry_us = c->now_us + LH_WATCH_RETRY_US;
    } else if (answer->is_lagged) {
        lh_watch_begin_anew(c, "events are missing");
    } else {
        for (size_t i = 0; i < answer->event_count; i++)
            tell(c, &answer->events[i]);
        w->is_in_run = answer->has_more;
        if (!w->is_in_run)
            tell_caught_up(c);
    }
    c->watching.wants_pump = true;
    lh_turn_end_event(c);
}

void lh_watch_take(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;
    bool has_rows = false;

    LH_WATCH_EACH(watch)
    has_rows |= is_in_database(watch);
    if (w->taking != LH_WATCH_CALL_NONE || !has_rows || !(w->is_in_run || w->has_news || c->now_us >= w->take_us))
        return;
    if (!lh_watch_call_begin(c, &w->taking, c->store->ops->take_events(c->store, TAKE_MAX, on_taken, c)))
        return;
    w->take_us = c->now_us + LH_WATCH_TAKE_US;
    if (w->is_in_run)
        return;
    w->has_news = false;
    LH_WATCH_EACH(watch)
    LH_WATCHER_EACH(watcher, watch)
    if (watcher->own.catch_up != LH_CATCH_UP_NO)
        watcher->own.catch_up = LH_CATCH_UP_TAKING;
}
