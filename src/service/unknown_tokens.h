/*
 * Tokens that this daemon does not know yet: another daemon, or SQL, may have made them a moment ago. A call with one
 * waits until the tokens have been read once more, and its method hears of it then. All such calls share one read, a
 * few reads may be sent in a second, and the number of calls is bounded: a call beyond it is refused at once.
 */
#ifndef LH_SERVICE_UNKNOWN_TOKENS_H
#define LH_SERVICE_UNKNOWN_TOKENS_H

#include "base/list.h"
#include "loop/loop.h"

struct lh_rpc_call;
struct lh_service;

struct lh_unknown_tokens {
    struct lh_link asked;   /* calls that came before the read in flight was sent */
    struct lh_link waiting; /* calls for the next read */
    size_t count;
    struct lh_timer timer;
    int64_t sent_us; /* time of the last read */
    bool is_out;
};

/* Without a loop no call waits. */
void lh_unknown_tokens_start(struct lh_service *service, struct lh_loop *loop);
void lh_unknown_tokens_finish(struct lh_service *service);

#endif
