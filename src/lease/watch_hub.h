/*
 * What the files of the watching share: watches, their watchers, and who does what next. watch.c has the story.
 */
#ifndef LH_LEASE_WATCH_HUB_H
#define LH_LEASE_WATCH_HUB_H

#include "lease/core.h"
#include "lease/watch.h"

#define LH_WATCH_RETRY_US (50 * LH_US_PER_MS)
#define LH_WATCH_TAKE_US (1 * LH_US_PER_S) /* beneath the notifications */

enum lh_watch_state { LH_WATCH_WANTED, LH_WATCH_ADDING, LH_WATCH_ADDED, LH_WATCH_SETTLING, LH_WATCH_ACTIVE };

struct lh_watch {
    struct lh_link link;
    struct lh_link watchers;
    enum lh_watch_state state;
    uint64_t horizon; /* SETTLING; ACTIVE: it has not settled yet. Else 0 */
    int64_t idle_us;  /* since when nobody uses it */
    bool include_children;
    char ns[];
};

#define LH_WATCH_EACH(watch) LH_LIST_EACH(struct lh_watch, watch, &c->watching.watches, link)
#define LH_WATCHER_EACH(watcher, watch) LH_LIST_EACH(struct lh_watcher, watcher, &(watch)->watchers, own.link)

/* watch.c */
void lh_watch_pump(struct lh_coordinator *c); /* do whatever can be done now */
void lh_watch_begin_anew(struct lh_coordinator *c, const char *why);
void lh_watcher_end(struct lh_coordinator *c, struct lh_watcher *watcher, enum lh_status status);

/* watch_settle.c, watch_events.c: ask for what is due. */
void lh_watch_settle(struct lh_coordinator *c);
void lh_watch_take(struct lh_coordinator *c);

#endif
