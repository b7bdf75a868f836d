/* Watching as the coordinator sees it; lease/watch.h has the calls. */
#ifndef LH_LEASE_WATCH_WATCH_H
#define LH_LEASE_WATCH_WATCH_H

#include "lease/turn.h"

void lh_watch_create(struct lh_coordinator *c);
void lh_watch_destroy(struct lh_coordinator *c);
size_t lh_watchers_count(const struct lh_coordinator *c);
void lh_watch_pump(struct lh_coordinator *c); /* do what can be done, at the end of a turn that changed something */
void lh_watch_on_timer(struct lh_coordinator *c);
void lh_watch_on_news(void *arg);
void lh_watch_on_registered(struct lh_coordinator *c);
void lh_watch_on_down(struct lh_coordinator *c);
void lh_watch_stop(struct lh_coordinator *c); /* watchers end with SHUTTING_DOWN */

#endif
