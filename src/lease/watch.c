/*
 * Who watches what. Watchers of the same namespace share a watch, which is a row in the database:
 *
 *     WANTED --- added ---> ADDED --- barrier ---> SETTLING --- settled, or 5 s ---> ACTIVE
 *
 * One is added at a time. One round settles at a time, for all that were added by then; a look costs little, so they
 * come after 1 ms doubling to 50 ms. A transaction that changed a lease and stays open would hold up its round: after
 * 5 s the watchers begin all the same, in doubt, and when it has ended at last they are told that they lagged. A watch
 * that nobody uses for a second is removed.
 *
 * Events are taken by one call at a time: when the database says that there are some, once a second beneath that, and
 * again while as many came as were asked for. What an answer holds that got lost, nobody knows; so after each
 * registration, and when the database says that events are missing, everything begins anew: nothing is watched, all
 * active watchers end with WATCH_LAGGED. Answers of the time before are known by their epoch, and ignored.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "lease/watch_hub.h"

#define IDLE_US (1 * LH_US_PER_S)

static void free_watch(struct lh_watch *watch)
{
    lh_list_remove(&watch->link);
    free(watch);
}

static void take_away(struct lh_coordinator *c, struct lh_watcher *watcher)
{
    lh_list_remove(&watcher->own.link);
    c->watching.watcher_count--;
}

void lh_watcher_end(struct lh_coordinator *c, struct lh_watcher *watcher, enum lh_status status)
{
    take_away(c, watcher);
    c->stats.watch_lags += status == LH_WATCH_LAGGED;
    watcher->on_end(watcher, status);
}

/* Nothing is known any more. Those that were not active yet have missed nothing: they are added again. */
void lh_watch_begin_anew(struct lh_coordinator *c, const char *why)
{
    struct lh_watching *w = &c->watching;

    if (!w->is_used)
        return;
    lh_info("watching begins anew, %s watchers=%zu", why, w->watcher_count);
    w->epoch++;
    w->needs_clear = true;
    w->has_round = false;
    LH_WATCH_EACH(watch)
    {
        watch->state = LH_WATCH_WANTED;
        watch->horizon = 0;
        LH_WATCHER_EACH(watcher, watch)
        if (watcher->own.is_active)
            lh_watcher_end(c, watcher, LH_WATCH_LAGGED);
        if (lh_list_is_empty(&watch->watchers))
            free_watch(watch);
    }
}

/* --- adding and removing --- */

static void on_added(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = arg;
    struct lh_watching *w = &c->watching;

    lh_turn_begin(c);
    w->is_adding = false;
    if (w->adding_epoch == w->epoch) {
        LH_WATCH_EACH(watch)
        {
            if (watch->state != LH_WATCH_ADDING)
                continue;
            watch->state = status == LH_OK ? LH_WATCH_ADDED : LH_WATCH_WANTED;
            if (status == LH_OK || status == LH_SCOPE_BUSY || status == LH_DATABASE_UNAVAILABLE)
                continue;
            lh_warn("watch failed namespace=%s: %s", watch->ns,
                    error != NULL ? error->message : lh_status_text(status));
            LH_WATCHER_EACH(watcher, watch)
            lh_watcher_end(c, watcher, status);
            free_watch(watch);
        }
        if (status == LH_SCOPE_BUSY)
            w->retry_us = c->now_us + LH_WATCH_RETRY_US;
    }
    lh_watch_pump(c);
    lh_turn_end_event(c);
}

static void on_row_gone(void *arg, enum lh_status status, const struct lh_error *error)
{
    /* A row that stays costs events that nobody wants, until everything begins anew. */
    if (status != LH_OK && status != LH_DATABASE_UNAVAILABLE && status != LH_CANCELED)
        lh_warn("watch not removed: %s", error != NULL ? error->message : lh_status_text(status));
}

/* The last one takes the events with it that nobody will ask for. */
static void remove_idle(struct lh_coordinator *c, struct lh_watch *watch)
{
    const struct lh_store_ops *ops = c->store->ops;
    struct lh_link *all = &c->watching.watches;
    bool is_last = all->next == all->prev;
    enum lh_status status = LH_OK;

    if (watch->state == LH_WATCH_ACTIVE && is_last)
        status = ops->watch_clear(c->store, on_row_gone, c);
    else if (watch->state == LH_WATCH_ACTIVE)
        status = ops->watch_remove(c->store, watch->ns, watch->include_children, on_row_gone, c);
    if (status == LH_OK)
        free_watch(watch);
    else
        c->watching.retry_us = c->now_us + LH_WATCH_RETRY_US;
}

static void add_next(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;

    if (w->is_adding)
        return;
    LH_WATCH_EACH(watch)
    {
        if (watch->state != LH_WATCH_WANTED || lh_list_is_empty(&watch->watchers))
            continue;
        w->is_adding = c->store->ops->watch_add(c->store, watch->ns, watch->include_children, on_added, c) == LH_OK;
        w->adding_epoch = w->epoch;
        if (w->is_adding)
            watch->state = LH_WATCH_ADDING;
        else
            w->retry_us = c->now_us + LH_WATCH_RETRY_US;
        return;
    }
}

/* --- what is next --- */

static void look_after(struct lh_coordinator *c, struct lh_watch *watch)
{
    bool is_moving =
        watch->state == LH_WATCH_ADDING || watch->state == LH_WATCH_ADDED || watch->state == LH_WATCH_SETTLING;

    if (lh_list_is_empty(&watch->watchers)) {
        if (!is_moving && c->now_us - watch->idle_us >= IDLE_US)
            remove_idle(c, watch);
        return;
    }
    watch->idle_us = c->now_us;
    if (watch->state != LH_WATCH_ACTIVE)
        return;
    LH_WATCHER_EACH(watcher, watch)
    {
        if (watcher->own.is_active)
            continue;
        watcher->own.is_active = true;
        watcher->own.is_doubtful = watch->horizon != 0;
        watcher->on_active(watcher);
    }
}

static bool may_ask(const struct lh_coordinator *c)
{
    return c->control.is_enrolled && (c->state == LH_CORE_RUNNING || c->state == LH_CORE_STOPPING);
}

static int64_t next_us(const struct lh_coordinator *c)
{
    const struct lh_watching *w = &c->watching;
    int64_t at_us = w->take_us > c->now_us ? w->take_us : c->now_us + LH_WATCH_TAKE_US;

    if (w->retry_us > c->now_us)
        return w->retry_us;
    if (w->has_round && !w->is_asking && w->poll_us < at_us)
        at_us = w->poll_us;
    return at_us;
}

/* Do whatever can be done now. */
void lh_watch_pump(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;

    if (!may_ask(c))
        return;
    if (w->needs_clear)
        w->needs_clear = c->store->ops->watch_clear(c->store, on_row_gone, c) != LH_OK;
    if (w->needs_clear) {
        lh_heap_set(&c->timers, &w->timer, c->now_us + LH_WATCH_RETRY_US);
        return;
    }
    LH_WATCH_EACH(watch)
    look_after(c, watch);
    if (lh_list_is_empty(&w->watches)) {
        lh_heap_remove(&c->timers, &w->timer);
        return;
    }
    if (c->now_us >= w->retry_us) {
        add_next(c);
        lh_watch_settle(c);
        lh_watch_take(c);
    }
    lh_heap_set(&c->timers, &w->timer, next_us(c));
}

void lh_watch_on_timer(struct lh_coordinator *c)
{
    lh_watch_pump(c);
}

/* --- from the store and from the coordinator --- */

void lh_watch_on_news(void *arg)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->watching.has_news = true;
    lh_watch_pump(c);
    lh_turn_end_event(c);
}

void lh_watch_on_enrolled(struct lh_coordinator *c)
{
    lh_watch_begin_anew(c, "the coordinator was registered");
    lh_watch_pump(c);
}

/* The active ones wait for the reconnection: to begin again at once would be in vain. */
void lh_watch_on_down(struct lh_coordinator *c)
{
    lh_heap_remove(&c->timers, &c->watching.timer);
    LH_WATCH_EACH(watch)
    LH_WATCHER_EACH(watcher, watch)
    if (!watcher->own.is_active)
        lh_watcher_end(c, watcher, LH_DATABASE_UNAVAILABLE);
}

void lh_watch_stop(struct lh_coordinator *c)
{
    lh_heap_remove(&c->timers, &c->watching.timer);
    LH_WATCH_EACH(watch)
    LH_WATCHER_EACH(watcher, watch)
    lh_watcher_end(c, watcher, LH_SHUTTING_DOWN);
}

void lh_watch_create(struct lh_coordinator *c)
{
    lh_list_init(&c->watching.watches);
    c->watching.timer.kind = LH_TIMER_WATCH;
}

void lh_watch_destroy(struct lh_coordinator *c)
{
    LH_WATCH_EACH(watch)
    free_watch(watch);
}

/* --- the calls --- */

static struct lh_watch *find_or_create(struct lh_coordinator *c, const char *ns, bool include_children)
{
    size_t size = strlen(ns) + 1;
    struct lh_watch *found;

    LH_WATCH_EACH(watch)
    if (watch->include_children == include_children && strcmp(watch->ns, ns) == 0)
        return watch;
    found = lh_alloc_zero(1, sizeof(*found) + size);
    memcpy(found->ns, ns, size);
    found->include_children = include_children;
    lh_list_init(&found->watchers);
    lh_list_append(&c->watching.watches, &found->link);
    return found;
}

enum lh_status lh_coordinator_watch(struct lh_coordinator *c, struct lh_watcher *watcher)
{
    if (c->store->ops->watch_add == NULL)
        return LH_UNIMPLEMENTED;
    if (c->state != LH_CORE_RUNNING)
        return LH_SHUTTING_DOWN;
    /* Before the first registration, and while one is under way, they wait for it. */
    if (!c->control.is_up && c->stats.last_tick_us != 0)
        return LH_DATABASE_UNAVAILABLE;
    if (c->watching.watcher_count >= c->options.max_watchers) {
        c->stats.refused_watchers++;
        return LH_OVERLOADED;
    }
    lh_turn_begin(c);
    memset(&watcher->own, 0, sizeof(watcher->own));
    lh_list_append(&find_or_create(c, watcher->ns, watcher->include_children)->watchers, &watcher->own.link);
    c->watching.watcher_count++;
    c->watching.is_used = true;
    lh_heap_set(&c->timers, &c->watching.timer, c->now_us);
    lh_turn_end_call(c);
    return LH_OK;
}

void lh_coordinator_unwatch(struct lh_coordinator *c, struct lh_watcher *watcher)
{
    if (lh_link_is_linked(&watcher->own.link))
        take_away(c, watcher);
}

void lh_coordinator_catch_up(struct lh_coordinator *c, struct lh_watcher *watcher)
{
    lh_turn_begin(c);
    watcher->own.catch_up = LH_CATCH_UP_WANTED;
    c->watching.has_news = true;
    lh_heap_set(&c->timers, &c->watching.timer, c->now_us);
    lh_turn_end_call(c);
}
