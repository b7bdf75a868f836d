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
#include "lease/watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "lease/core.h"

#define TAKE_MAX 500
#define TAKE_US (1 * LH_US_PER_S)
#define RETRY_US (50 * LH_US_PER_MS)
#define SETTLE_LIMIT_US (5 * LH_US_PER_S)
#define SETTLE_FIRST_US (1 * LH_US_PER_MS)
#define SETTLE_LAST_US (50 * LH_US_PER_MS)
#define DOUBT_US (1 * LH_US_PER_S)
#define IDLE_US (1 * LH_US_PER_S)

enum watch_state { WATCH_WANTED, WATCH_ADDING, WATCH_ADDED, WATCH_SETTLING, WATCH_ACTIVE };

struct lh_watch {
    struct lh_link link;
    struct lh_link watchers;
    enum watch_state state;
    uint64_t horizon; /* SETTLING; ACTIVE: it has not settled yet. Else 0 */
    int64_t idle_us;  /* since when nobody uses it */
    bool include_children;
    char ns[];
};

#define WATCH_EACH(watch) LH_LIST_EACH(struct lh_watch, watch, &c->watching.watches, link)
#define WATCHER_EACH(watcher, watch) LH_LIST_EACH(struct lh_watcher, watcher, &(watch)->watchers, own.link)

static void pump(struct lh_coordinator *c);

static bool is_in_database(const struct lh_watch *watch)
{
    return watch->state >= WATCH_ADDED;
}

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

static void end(struct lh_coordinator *c, struct lh_watcher *watcher, enum lh_status status)
{
    take_away(c, watcher);
    c->stats.watch_lags += status == LH_WATCH_LAGGED;
    watcher->on_end(watcher, status);
}

/* Nothing is known any more. Those that were not active yet have missed nothing: they are added again. */
static void begin_anew(struct lh_coordinator *c, const char *why)
{
    struct lh_watching *w = &c->watching;

    if (!w->is_used)
        return;
    lh_info("watching begins anew, %s watchers=%zu", why, w->watcher_count);
    w->epoch++;
    w->needs_clear = true;
    w->has_round = false;
    WATCH_EACH(watch)
    {
        watch->state = WATCH_WANTED;
        watch->horizon = 0;
        WATCHER_EACH(watcher, watch)
        if (watcher->own.is_active)
            end(c, watcher, LH_WATCH_LAGGED);
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
        WATCH_EACH(watch)
        {
            if (watch->state != WATCH_ADDING)
                continue;
            watch->state = status == LH_OK ? WATCH_ADDED : WATCH_WANTED;
            if (status == LH_OK || status == LH_SCOPE_BUSY || status == LH_DATABASE_UNAVAILABLE)
                continue;
            lh_warn("watch failed namespace=%s: %s", watch->ns,
                    error != NULL ? error->message : lh_status_text(status));
            WATCHER_EACH(watcher, watch)
            end(c, watcher, status);
            free_watch(watch);
        }
        if (status == LH_SCOPE_BUSY)
            w->retry_us = c->now_us + RETRY_US;
    }
    pump(c);
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

    if (watch->state == WATCH_ACTIVE && is_last)
        status = ops->watch_clear(c->store, on_row_gone, c);
    else if (watch->state == WATCH_ACTIVE)
        status = ops->watch_remove(c->store, watch->ns, watch->include_children, on_row_gone, c);
    if (status == LH_OK)
        free_watch(watch);
    else
        c->watching.retry_us = c->now_us + RETRY_US;
}

static void add_next(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;

    if (w->is_adding)
        return;
    WATCH_EACH(watch)
    {
        if (watch->state != WATCH_WANTED || lh_list_is_empty(&watch->watchers))
            continue;
        w->is_adding = c->store->ops->watch_add(c->store, watch->ns, watch->include_children, on_added, c) == LH_OK;
        w->adding_epoch = w->epoch;
        if (w->is_adding)
            watch->state = WATCH_ADDING;
        else
            w->retry_us = c->now_us + RETRY_US;
        return;
    }
}

/* --- settling --- */

static void end_round(struct lh_coordinator *c, bool is_settled)
{
    c->watching.has_round = false;
    WATCH_EACH(watch)
    {
        if (watch->state != WATCH_SETTLING)
            continue;
        watch->state = WATCH_ACTIVE;
        watch->idle_us = c->now_us;
        if (is_settled)
            watch->horizon = 0;
    }
    if (is_settled)
        return;
    lh_warn(
        "a transaction that changed a lease is open for over 5 s: who begins to watch now will be told to begin again");
    c->watching.doubt_us = c->now_us + DOUBT_US;
}

/* The transaction has ended: what it did, they may not have been told. */
static void end_doubt(struct lh_coordinator *c, uint64_t horizon)
{
    WATCH_EACH(watch)
    {
        if (watch->state != WATCH_ACTIVE || watch->horizon == 0 || watch->horizon > horizon)
            continue;
        watch->horizon = 0;
        WATCHER_EACH(watcher, watch)
        if (watcher->own.is_doubtful)
            end(c, watcher, LH_WATCH_LAGGED);
    }
}

/* The oldest horizon of those in doubt, or 0. */
static uint64_t doubtful_horizon(const struct lh_coordinator *c)
{
    uint64_t horizon = 0;
    WATCH_EACH(watch)
    if (watch->state == WATCH_ACTIVE && watch->horizon != 0 && (horizon == 0 || watch->horizon < horizon))
        horizon = watch->horizon;
    return horizon;
}

static void on_settled(void *arg, enum lh_status status, const struct lh_error *error, bool is_settled)
{
    struct lh_coordinator *c = arg;
    struct lh_watching *w = &c->watching;

    lh_turn_begin(c);
    w->is_asking = false;
    if (status != LH_OK && status != LH_DATABASE_UNAVAILABLE && status != LH_CANCELED)
        lh_warn("watch cannot settle: %s", error != NULL ? error->message : lh_status_text(status));
    if (w->asking_epoch == w->epoch) {
        if (w->has_round && w->asked_horizon == w->horizon) {
            if (is_settled || c->now_us - w->round_us >= SETTLE_LIMIT_US)
                end_round(c, is_settled);
        }
        if (is_settled)
            end_doubt(c, w->asked_horizon);
    }
    pump(c);
    lh_turn_end_event(c);
}

static void on_barrier(void *arg, enum lh_status status, const struct lh_error *error, uint64_t horizon)
{
    struct lh_coordinator *c = arg;
    struct lh_watching *w = &c->watching;

    lh_turn_begin(c);
    w->is_asking = false;
    if (w->asking_epoch == w->epoch) {
        if (status == LH_OK && horizon == 0)
            begin_anew(c, "the database has forgotten who watches");
        WATCH_EACH(watch)
        {
            if (watch->state != WATCH_SETTLING)
                continue;
            watch->horizon = horizon;
            if (status != LH_OK)
                watch->state = WATCH_ADDED;
        }
        w->has_round = status == LH_OK && horizon != 0;
        w->horizon = horizon;
        w->round_us = c->now_us;
        w->poll_us = c->now_us;
        w->poll_pause_us = SETTLE_FIRST_US;
        if (status != LH_OK)
            w->retry_us = c->now_us + RETRY_US;
    }
    pump(c);
    lh_turn_end_event(c);
}

static void ask_settled(struct lh_coordinator *c, uint64_t horizon)
{
    struct lh_watching *w = &c->watching;

    w->asking_epoch = w->epoch;
    w->asked_horizon = horizon;
    w->is_asking = c->store->ops->watch_settled(c->store, horizon, on_settled, c) == LH_OK;
}

static void begin_round(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;
    bool is_wanted = false;

    WATCH_EACH(watch)
    is_wanted |= watch->state == WATCH_ADDED;
    if (!is_wanted)
        return;
    w->asking_epoch = w->epoch;
    w->is_asking = c->store->ops->watch_barrier(c->store, on_barrier, c) == LH_OK;
    if (!w->is_asking)
        w->retry_us = c->now_us + RETRY_US;
    WATCH_EACH(watch)
    if (w->is_asking && watch->state == WATCH_ADDED)
        watch->state = WATCH_SETTLING;
}

static void settle(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;
    uint64_t doubtful;

    if (w->is_asking)
        return;
    if (!w->has_round)
        begin_round(c);
    if (!w->is_asking && w->has_round && c->now_us >= w->poll_us) {
        w->poll_us = c->now_us + w->poll_pause_us;
        if (w->poll_pause_us < SETTLE_LAST_US)
            w->poll_pause_us *= 2;
        ask_settled(c, w->horizon);
    } else if (!w->is_asking && (doubtful = doubtful_horizon(c)) != 0 && c->now_us >= w->doubt_us) {
        w->doubt_us = c->now_us + DOUBT_US;
        ask_settled(c, doubtful);
    }
}

/* --- events --- */

static bool is_watched_by(const struct lh_watch *watch, const char *ns)
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
    WATCH_EACH(watch)
    {
        if (!is_watched_by(watch, event->lease.ns))
            continue;
        WATCHER_EACH(watcher, watch)
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
    WATCH_EACH(watch)
    WATCHER_EACH(watcher, watch)
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
    w->is_taking = false;
    w->is_in_run = false;
    if (w->taking_epoch != w->epoch) {
        /* Of watches that are no more. */
    } else if (status != LH_OK) {
        if (status != LH_DATABASE_UNAVAILABLE && status != LH_CANCELED)
            lh_warn("events not taken: %s", error != NULL ? error->message : lh_status_text(status));
        w->retry_us = c->now_us + RETRY_US;
    } else if (answer->is_lagged) {
        begin_anew(c, "events are missing");
    } else {
        for (size_t i = 0; i < answer->event_count; i++)
            tell(c, &answer->events[i]);
        w->is_in_run = answer->has_more;
        if (!w->is_in_run)
            tell_caught_up(c);
    }
    pump(c);
    lh_turn_end_event(c);
}

static void take(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;
    bool has_rows = false;

    WATCH_EACH(watch)
    has_rows |= is_in_database(watch);
    if (w->is_taking || !has_rows || !(w->is_in_run || w->has_news || c->now_us >= w->take_us))
        return;
    w->taking_epoch = w->epoch;
    w->is_taking = c->store->ops->take_events(c->store, TAKE_MAX, on_taken, c) == LH_OK;
    if (!w->is_taking) {
        w->retry_us = c->now_us + RETRY_US;
        return;
    }
    w->take_us = c->now_us + TAKE_US;
    if (w->is_in_run)
        return;
    w->has_news = false;
    WATCH_EACH(watch)
    WATCHER_EACH(watcher, watch)
    if (watcher->own.catch_up != LH_CATCH_UP_NO)
        watcher->own.catch_up = LH_CATCH_UP_TAKING;
}

/* --- what is next --- */

static void look_after(struct lh_coordinator *c, struct lh_watch *watch)
{
    bool is_moving = watch->state == WATCH_ADDING || watch->state == WATCH_ADDED || watch->state == WATCH_SETTLING;

    if (lh_list_is_empty(&watch->watchers)) {
        if (!is_moving && c->now_us - watch->idle_us >= IDLE_US)
            remove_idle(c, watch);
        return;
    }
    watch->idle_us = c->now_us;
    if (watch->state != WATCH_ACTIVE)
        return;
    WATCHER_EACH(watcher, watch)
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
    int64_t at_us = w->take_us > c->now_us ? w->take_us : c->now_us + TAKE_US;

    if (w->retry_us > c->now_us)
        return w->retry_us;
    if (w->has_round && !w->is_asking && w->poll_us < at_us)
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
        lh_heap_set(&c->timers, &w->timer, c->now_us + RETRY_US);
        return;
    }
    WATCH_EACH(watch)
    look_after(c, watch);
    if (lh_list_is_empty(&w->watches)) {
        lh_heap_remove(&c->timers, &w->timer);
        return;
    }
    if (c->now_us >= w->retry_us) {
        add_next(c);
        settle(c);
        take(c);
    }
    lh_heap_set(&c->timers, &w->timer, next_us(c));
}

void lh_watch_on_timer(struct lh_coordinator *c)
{
    pump(c);
}

/* --- from the store and from the coordinator --- */

void lh_watch_on_news(void *arg)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->watching.has_news = true;
    pump(c);
    lh_turn_end_event(c);
}

void lh_watch_on_enrolled(struct lh_coordinator *c)
{
    begin_anew(c, "the coordinator was registered");
    pump(c);
}

/* The active ones wait for the reconnection: to begin again at once would be in vain. */
void lh_watch_on_down(struct lh_coordinator *c)
{
    lh_heap_remove(&c->timers, &c->watching.timer);
    WATCH_EACH(watch)
    WATCHER_EACH(watcher, watch)
    if (!watcher->own.is_active)
        end(c, watcher, LH_DATABASE_UNAVAILABLE);
}

void lh_watch_stop(struct lh_coordinator *c)
{
    lh_heap_remove(&c->timers, &c->watching.timer);
    WATCH_EACH(watch)
    WATCHER_EACH(watcher, watch)
    end(c, watcher, LH_SHUTTING_DOWN);
}

void lh_watch_create(struct lh_coordinator *c)
{
    lh_list_init(&c->watching.watches);
    c->watching.timer.kind = LH_TIMER_WATCH;
}

void lh_watch_destroy(struct lh_coordinator *c)
{
    WATCH_EACH(watch)
    free_watch(watch);
}

/* --- the calls --- */

static struct lh_watch *find_or_create(struct lh_coordinator *c, const char *ns, bool include_children)
{
    size_t size = strlen(ns) + 1;
    struct lh_watch *found;

    WATCH_EACH(watch)
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
