/* The coordinator's side of watching; lease/watch.h has the calls. */
#ifndef LH_LEASE_WATCH_WATCH_H
#define LH_LEASE_WATCH_WATCH_H

#include "lease/turn.h"

void lh_watch_create(struct lh_coordinator *c);
void lh_watch_destroy(struct lh_coordinator *c);
size_t lh_watchers_count(const struct lh_coordinator *c);
/* Does the work that has become possible; call it at the end of a turn. */
void lh_watch_pump(struct lh_coordinator *c);
void lh_watch_on_timer(struct lh_coordinator *c);
void lh_watch_on_news(void *arg);
void lh_watch_on_registered(struct lh_coordinator *c);
void lh_watch_on_down(struct lh_coordinator *c);
/* Ends the watchers with SHUTTING_DOWN. */
void lh_watch_stop(struct lh_coordinator *c);

#endif
