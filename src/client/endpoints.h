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

/* Reads TLS and token options from the environment. LH_INVALID_ARGUMENT: a variable has no valid value. */
enum lh_status lh_tls_from_environment(struct lh_client_tls *tls, struct lh_error *error);
/* Copies the path of the key file to LEASEHOLD_TLS_KEY, which is read first. Call it before LEASEHOLD_KEY is set to
   the key of a lease. */
void lh_tls_move_key_file(void);

/* Creates the channels for the options' endpoints, or the environment's. LH_INVALID_ARGUMENT: there is nothing to
   finish. */
enum lh_status lh_endpoints_init(struct endpoints *endpoints, struct lh_loop *loop,
                                 const struct lh_client_options *options, struct lh_error *error);
void lh_endpoints_finish(struct endpoints *endpoints); /* answers open calls with CANCELLED */

/*
 * Returns the first endpoint from `wanted` on whose circuit lets a call pass, with the ticket to settle it with. NULL:
 * no circuit does.
 */
struct endpoint *lh_endpoints_admit(struct endpoints *endpoints, size_t wanted, int64_t now_us, uint64_t *ticket);

/* Sends calls to another endpoint from now on. */
void lh_endpoints_leave(struct endpoints *endpoints, const struct endpoint *endpoint);
size_t lh_endpoints_index(const struct endpoints *endpoints, const struct endpoint *endpoint);

#endif
