/*
 * The servers of a client: one channel and one circuit breaker each. Calls go to the current one until it fails for a
 * reason that the next one may not have; then that is the current one.
 */
#ifndef LH_CLIENT_ENDPOINTS_H
#define LH_CLIENT_ENDPOINTS_H

#include <stddef.h>
#include <stdint.h>

#include "client/breaker.h"
#include "leasehold.h"
#include "rpc/client.h"

struct endpoint {
    char *target;
    struct lh_rpc_channel *channel;
    struct breaker breaker;
};

struct endpoints {
    struct endpoint items[LH_ENDPOINTS_MAX];
    size_t count;
    size_t current;
};

/* Of the options' endpoints, or of the environment. LH_INVALID_ARGUMENT: nothing is left to finish. */
enum lh_status endpoints_init(struct endpoints *endpoints, struct lh_loop *loop,
                              const struct lh_client_options *options, struct lh_error *error);
void endpoints_finish(struct endpoints *endpoints); /* answers what is still open with CANCELLED */

/*
 * The first from `wanted` on whose circuit lets a call pass, and the ticket to settle it with. NULL: none does. *
 */
struct endpoint *endpoints_admit(struct endpoints *endpoints, size_t wanted, int64_t now_us, uint64_t *ticket);

/* Calls go to another one than this from now on. */
void endpoints_leave(struct endpoints *endpoints, const struct endpoint *endpoint);
size_t endpoints_index(const struct endpoints *endpoints, const struct endpoint *endpoint);

#endif
