/*
 * The stream of renewals to the current endpoint: batches go out one after the other, answers come back in that order.
 *
 * It is a faster way, never the only one: a batch that it does not take, or that it was not answered in time, goes out
 * as a call of its own. So it neither retries nor waits.
 *
 *     CLOSED ---- the first batch of a round ----> OPEN ---- no lease is left, another endpoint ----> ends by itself
 *                                                   '------- no answer in time, an error: what is owed goes another way
 */
#ifndef LH_CLIENT_KEEP_ALIVE_H
#define LH_CLIENT_KEEP_ALIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "loop/loop.h"

struct endpoint;
struct lease_batch;
struct lh_client;
struct keep_alive_stream;

struct keep_alive {
    struct lh_client *client;
    struct keep_alive_stream *stream; /* stream that takes batches, or NULL */
    struct lh_link streams;           /* all streams, with those that only owe answers */
    const struct endpoint *refused;   /* an endpoint that does not speak KeepAlive */
    int64_t not_before_us;            /* no new stream before this time, after a failed one */
};

void lh_keep_alive_init(struct keep_alive *keep_alive, struct lh_client *client);

/*
 * Takes the leases of `batch` over and renews them until `until_us`, by the stream or by calls. Returns false, with the
 * leases still the caller's, if it cannot now.
 */
bool lh_keep_alive_send(struct keep_alive *keep_alive, struct lease_batch *batch, int64_t until_us);

void lh_keep_alive_rest(struct keep_alive *keep_alive); /* ends the stream, because no lease is held any more */
/* Stops for good; owed answers are dropped. */
void lh_keep_alive_stop(struct keep_alive *keep_alive);

#endif
