/* Acquires: the verb, and those that wait until a release of their scope is answered. */
#ifndef LH_CLIENT_ACQUIRE_H
#define LH_CLIENT_ACQUIRE_H

#include "client/lease.h"

/* The release that these waited for is over. */
void acquire_follow(struct lh_link *followers);

#endif
