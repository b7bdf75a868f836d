#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "lease/watch_internal.h"

void lh_watch_free(struct lh_watched *watch)
{
    lh_list_remove(&watch->link);
    free(watch);
}

struct lh_watched *lh_watch_get(struct lh_coordinator *c, const char *ns, bool include_children)
{
    size_t size = strlen(ns) + 1;
    struct lh_watched *found;

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

void lh_watcher_take_away(struct lh_coordinator *c, struct lh_watcher *watcher)
{
    lh_list_remove(&watcher->own.link);
    c->watching.watcher_count--;
}

void lh_watcher_end(struct lh_coordinator *c, struct lh_watcher *watcher, enum lh_status status)
{
    lh_watcher_take_away(c, watcher);
    c->stats.watch_lags += status == LH_WATCH_LAGGED;
    watcher->on_end(watcher, status);
}

bool lh_watch_call_begin(struct lh_coordinator *c, enum lh_watch_call *call, enum lh_status status)
{
    assert(*call == LH_WATCH_CALL_NONE);
    if (status == LH_OK)
        *call = LH_WATCH_CALL_SENT;
    else
        c->watching.retry_us = c->now_us + LH_WATCH_RETRY_US;
    return status == LH_OK;
}

bool lh_watch_call_end(enum lh_watch_call *call)
{
    enum lh_watch_call before = *call;

    assert(before != LH_WATCH_CALL_NONE);
    *call = LH_WATCH_CALL_NONE;
    return before == LH_WATCH_CALL_SENT;
}

static void outdate(enum lh_watch_call *call)
{
    if (*call == LH_WATCH_CALL_SENT)
        *call = LH_WATCH_CALL_STALE;
}

/* Nothing is known any more. Those that were not active yet have missed nothing: they are added again. */
void lh_watch_begin_anew(struct lh_coordinator *c, const char *why)
{
    struct lh_watching *w = &c->watching;

    if (!w->is_used)
        return;
    lh_info("watching begins anew, %s watchers=%zu", why, w->watcher_count);
    outdate(&w->adding);
    outdate(&w->asking);
    outdate(&w->taking);
    w->needs_clear = true;
    w->horizon = 0;
    LH_WATCH_EACH(watch)
    {
        watch->state = LH_WATCH_WANTED;
        watch->horizon = 0;
        LH_WATCHER_EACH(watcher, watch)
        if (watcher->own.is_active)
            lh_watcher_end(c, watcher, LH_WATCH_LAGGED);
        if (lh_list_is_empty(&watch->watchers))
            lh_watch_free(watch);
    }
}
