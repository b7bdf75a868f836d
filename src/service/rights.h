/* The rules and tokens that permit.h asks, loaded as they change; open calls lose what their callers may not do any more. */
#ifndef LH_SERVICE_RIGHTS_H
#define LH_SERVICE_RIGHTS_H

struct lh_loop;
struct lh_service;

/* With a loop, open calls are looked at in its turns; with NULL, all at once. */
void lh_rights_start(struct lh_service *service, struct lh_loop *loop);
void lh_rights_tick(struct lh_service *service);
void lh_rights_finish(struct lh_service *service);

#endif
