/* Watches and their watchers. watch/watch.c has the story. */
#ifndef LH_LEASE_WATCH_INTERNAL_H
#define LH_LEASE_WATCH_INTERNAL_H

#include "lease/coordinator_internal.h"
#include "lease/watch.h"

/* --- watch/watch.c: the coordinator's side; lease/watch.h has the calls --- */

void lh_watch_create(struct lh_coordinator *c);
void lh_watch_destroy(struct lh_coordinator *c);
size_t lh_watchers_count(const struct lh_coordinator *c);
/* Does the work that has become possible; call it at the end of a turn. */
void lh_watch_pump(struct lh_coordinator *c);
void lh_watch_on_timer(struct lh_coordinator *c);
void lh_watch_on_news(void *arg);
void lh_watch_on_registered(struct lh_coordinator *c);
void lh_watch_on_down(struct lh_coordinator *c);
/* Ends the watchers that are not active yet with DATABASE_UNAVAILABLE. */
void lh_watch_hand_back(struct lh_coordinator *c);
/* Ends the watchers with SHUTTING_DOWN. */
void lh_watch_stop(struct lh_coordinator *c);

/* --- watch/watch_hub.c --- */

#define LH_WATCH_RETRY_US (50 * LH_US_PER_MS)
#define LH_WATCH_TAKE_US (1 * LH_US_PER_S) /* poll in case notifications are lost */

enum lh_watch_state { LH_WATCH_WANTED, LH_WATCH_ADDING, LH_WATCH_ADDED, LH_WATCH_SETTLING, LH_WATCH_ACTIVE };

struct lh_watched {
    struct lh_link link;
    struct lh_link watchers;
    enum lh_watch_state state;
    uint64_t horizon; /* SETTLING: the horizon to wait for. ACTIVE: it has not settled yet. Else 0 */
    int64_t idle_us;  /* time when its last user went */
    bool include_children;
    char ns[];
};

#define LH_WATCH_EACH(watch) LH_LIST_EACH(struct lh_watched, watch, &c->watching.watches, link)
#define LH_WATCHER_EACH(watcher, watch) LH_LIST_EACH(struct lh_watcher, watcher, &(watch)->watchers, own.link)

/* Finds or makes it. */
struct lh_watched *lh_watch_get(struct lh_coordinator *c, const char *ns, bool include_children);
void lh_watch_free(struct lh_watched *watch);
/* Begins every watch anew: active watchers end with WATCH_LAGGED, the others are added again. */
void lh_watch_begin_anew(struct lh_coordinator *c, const char *why);
void lh_watcher_take_away(struct lh_coordinator *c, struct lh_watcher *watcher);
void lh_watcher_end(struct lh_coordinator *c, struct lh_watcher *watcher, enum lh_status status);

/* Notes the store's return from a call. Returns false if the store refused it; the call is repeated later. */
bool lh_watch_call_begin(struct lh_coordinator *c, enum lh_watch_call *call, enum lh_status status);
/* Notes the answer of a call; returns false if it is stale. */
bool lh_watch_call_end(enum lh_watch_call *call);

/* --- watch/watch_settle.c: the wait until a watch may begin --- */

/* Makes the store calls that are due. */
void lh_watch_settle(struct lh_coordinator *c);

#endif
