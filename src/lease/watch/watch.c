/*
 * Watches and their watchers. Watchers of the same namespace share a watch, which is a row in the database:
 *
 *     WANTED --- added ---> ADDED --- barrier ---> SETTLING --- settled, or 5 s ---> ACTIVE
 *
 * One is added at a time. One round settles at a time, for all that were added by then; a look costs little, so they
 * come after 1 ms doubling to 50 ms. A transaction that changed a lease and stays open would hold up its round: after
 * 5 s the watchers begin all the same, in doubt, and end with WATCH_LAGGED once that transaction has ended. A watch
 * without a user for a second is removed.
 *
 * Events are taken by one call at a time: when the database notifies us, once a second in case a notification is lost,
 * and again while an answer is full. The content of a lost answer is unknown; so after each registration, and when the
 * database says that events are missing, everything begins anew: all watches are removed, all active watchers end with
 * WATCH_LAGGED. Answers to calls of the time before are ignored (enum lh_watch_call).
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lease/watch_internal.h"

#define TAKE_MAX 500
#define IDLE_US (1 * LH_US_PER_S)

/* --- adding and removing --- */

static void on_added(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = arg;
    struct lh_watching *w = &c->watching;

    lh_turn_begin(c);
    if (lh_watch_call_end(&w->adding)) {
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
            lh_watch_free(watch);
        }
        if (status == LH_SCOPE_BUSY)
            w->retry_us = c->now_us + LH_WATCH_RETRY_US;
    }
    c->watching.wants_pump = true;
    lh_turn_end_event(c);
}

static void on_row_gone(void *arg, enum lh_status status, const struct lh_error *error)
{
    /* A row that stays costs events that nobody wants, until everything begins anew. */
    if (status != LH_OK && status != LH_DATABASE_UNAVAILABLE && status != LH_CANCELED)
        lh_warn("watch not removed: %s", error != NULL ? error->message : lh_status_text(status));
}

/* The last one takes the events with it that nobody will ask for. */
static void remove_idle(struct lh_coordinator *c, struct lh_watched *watch)
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
        lh_watch_free(watch);
    else
        c->watching.retry_us = c->now_us + LH_WATCH_RETRY_US;
}

static void add_next(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;

    if (w->adding != LH_WATCH_CALL_NONE)
        return;
    LH_WATCH_EACH(watch)
    {
        if (watch->state != LH_WATCH_WANTED || lh_list_is_empty(&watch->watchers))
            continue;
        if (lh_watch_call_begin(c, &w->adding,
                                c->store->ops->watch_add(c->store, watch->ns, watch->include_children, on_added, c)))
            watch->state = LH_WATCH_ADDING;
        return;
    }
}

/* --- events: taken from the database, one call at a time, and sent to the watchers that they concern --- */

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

static void take(struct lh_coordinator *c)
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

/* --- what is next --- */

static void look_after(struct lh_coordinator *c, struct lh_watched *watch)
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
    return lh_database_is_registered(c) && (c->state == LH_CORE_RUNNING || c->state == LH_CORE_STOPPING);
}

static int64_t next_us(const struct lh_coordinator *c)
{
    const struct lh_watching *w = &c->watching;
    int64_t at_us = w->take_us > c->now_us ? w->take_us : c->now_us + LH_WATCH_TAKE_US;

    if (w->retry_us > c->now_us)
        return w->retry_us;
    if (w->horizon != 0 && w->asking == LH_WATCH_CALL_NONE && w->poll_us < at_us)
        at_us = w->poll_us;
    return at_us;
}

/* Do whatever can be done now. */
static void pump(struct lh_coordinator *c)
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
        take(c);
    }
    lh_heap_set(&c->timers, &w->timer, next_us(c));
}

void lh_watch_pump(struct lh_coordinator *c)
{
    if (!c->watching.wants_pump)
        return;
    c->watching.wants_pump = false;
    pump(c);
}

void lh_watch_on_timer(struct lh_coordinator *c)
{
    c->watching.wants_pump = true;
}

/* --- from the store and from the coordinator --- */

void lh_watch_on_news(void *arg)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->watching.has_news = true;
    c->watching.wants_pump = true;
    lh_turn_end_event(c);
}

void lh_watch_on_registered(struct lh_coordinator *c)
{
    lh_watch_begin_anew(c, "the coordinator was registered");
    c->watching.wants_pump = true;
}

/* The active ones wait for the reconnection: to begin again at once would be in vain. */
void lh_watch_on_down(struct lh_coordinator *c)
{
    lh_heap_remove(&c->timers, &c->watching.timer);
    lh_watch_hand_back(c);
}

void lh_watch_hand_back(struct lh_coordinator *c)
{
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

size_t lh_watchers_count(const struct lh_coordinator *c)
{
    return c->watching.watcher_count;
}

void lh_watch_create(struct lh_coordinator *c)
{
    lh_list_init(&c->watching.watches);
    c->watching.timer.kind = LH_TIMER_WATCH;
}

void lh_watch_destroy(struct lh_coordinator *c)
{
    LH_WATCH_EACH(watch)
    lh_watch_free(watch);
}

/* --- the calls --- */

enum lh_status lh_coordinator_watch(struct lh_coordinator *c, struct lh_watcher *watcher)
{
    if (c->store->ops->watch_add == NULL)
        return LH_UNIMPLEMENTED;
    if (lh_readiness_of_life(c) != LH_OK)
        return lh_readiness_of_life(c);
    /* Before the first registration, and while one is under way, they wait for it. */
    if ((!lh_database_is_up(c) && c->stats.last_tick_us != 0) || lh_readiness_is_given_up(c))
        return LH_DATABASE_UNAVAILABLE;
    if (c->watching.watcher_count >= c->options.max_watchers) {
        c->stats.refused_watchers++;
        return LH_OVERLOADED;
    }
    lh_turn_begin(c);
    memset(&watcher->own, 0, sizeof(watcher->own));
    lh_list_append(&lh_watch_get(c, watcher->ns, watcher->include_children)->watchers, &watcher->own.link);
    c->watching.watcher_count++;
    c->watching.is_used = true;
    lh_heap_set(&c->timers, &c->watching.timer, c->now_us);
    lh_turn_end_call(c);
    return LH_OK;
}

void lh_coordinator_unwatch(struct lh_coordinator *c, struct lh_watcher *watcher)
{
    if (lh_link_is_linked(&watcher->own.link))
        lh_watcher_take_away(c, watcher);
}

void lh_coordinator_catch_up(struct lh_coordinator *c, struct lh_watcher *watcher)
{
    lh_turn_begin(c);
    watcher->own.catch_up = LH_CATCH_UP_WANTED;
    c->watching.has_news = true;
    lh_heap_set(&c->timers, &c->watching.timer, c->now_us);
    lh_turn_end_call(c);
}
