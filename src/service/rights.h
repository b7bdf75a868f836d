/* The rules and tokens behind permit.h, loaded as they change. Open calls end when their callers have lost the
   right. */
#ifndef LH_SERVICE_RIGHTS_H
#define LH_SERVICE_RIGHTS_H

struct lh_loop;
struct lh_service;

/* Starts. With a loop it looks at open calls in the loop's turns, with NULL at all at once. */
void lh_rights_start(struct lh_service *service, struct lh_loop *loop);
void lh_rights_tick(struct lh_service *service);
void lh_rights_finish(struct lh_service *service);

#endif
