/* Renewals and releases, which go to the server many at a time. */
#ifndef LH_CLIENT_BATCHES_INTERNAL_H
#define LH_CLIENT_BATCHES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/table.h"
#include "client/lease_internal.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "loop/loop.h"

/* Leases on their way in one message, for renewals and releases. */

#define BATCH_ITEMS_MAX 10000
#define BATCH_BYTES_MAX (3 * 1024 * 1024 + 512 * 1024) /* below the server's 4 MiB */

struct lease_batch {
    struct lh_lease **leases;
    size_t count;
    size_t capacity;
    size_t bytes; /* upper bound of the message's size so far */
};

/* Takes over a reference. Returns false, without taking it, if the batch is full. */
bool lh_lease_batch_add(struct lease_batch *batch, struct lh_lease *lease);
void lh_lease_batch_finish(struct lease_batch *batch); /* gives the references up */

/* One batch of renewals: its message, its answer, and its call if the stream does not take it. */

struct renewals;

/* Moves the next round to `at_us` if that is earlier. */
void lh_renewals_arm(struct renewals *renewals, int64_t at_us);

/* Packs the batch. Leases that were released meanwhile are dropped from it. */
void lh_renewals_pack(struct lh_client *client, struct lease_batch *batch, struct lh_buffer *message);
/* Applies an answer. Returns false if it does not fit this batch. */
bool lh_renewals_answer(struct renewals *renewals, struct lease_batch *batch, int64_t sent_us,
                        const Leasehold__V1__HeartbeatResponse *response);
/* Renews again, in pieces, the leases that were not renewed since sent_us; the batch stays the caller's. */
void lh_renewals_hedge(struct renewals *renewals, const struct lease_batch *batch, int64_t sent_us, int64_t until_us);
/* Takes the leases over and renews them by a call, and in pieces if that is not answered soon. */
void lh_renewals_call(struct renewals *renewals, struct lease_batch *batch, int64_t until_us);

/*
 * The stream of renewals to the current endpoint: batches go out one after the other, answers come back in that order.
 *
 * It is a faster way, never the only one: a batch that it does not take, or that it was not answered in time, goes out
 * as a call of its own. So it neither retries nor waits.
 *
 *     CLOSED ---- the first batch of a round ----> OPEN ---- no lease is left, another endpoint ----> ends by itself
 *                                                   '------- no answer in time, an error: what is owed goes another way
 */

struct endpoint;
struct lh_client;
struct keep_alive_stream;

struct keep_alive {
    struct lh_client *client;
    struct keep_alive_stream *stream; /* stream that takes batches, or NULL */
    struct lh_link streams;           /* all streams, with those that only owe answers */
    const struct endpoint *refused;   /* an endpoint that does not speak KeepAlive */
    int64_t not_before_us;            /* no new stream before this time, after a failed one */
};

/*
 * Takes the leases of `batch` over and renews them until `until_us`, by the stream or by calls. Returns false, with the
 * leases still the caller's, if it cannot now.
 */
bool lh_keep_alive_send(struct keep_alive *keep_alive, struct lease_batch *batch, int64_t until_us);

void lh_keep_alive_rest(struct keep_alive *keep_alive); /* ends the stream, because no lease is held any more */
/* Stops for good; owed answers are dropped. */
void lh_keep_alive_stop(struct keep_alive *keep_alive);

/*
 * The renewal of all leases of a client: in one batch, at a third of the shortest duration. A lease goes with a batch
 * if its own third would be over before the next one.
 *
 * A batch goes over the stream of keep_alive.h when there is one, else as a call. A call that fails is repeated as any
 * request, until the next one is due; leases answered RETRY go again soon. Only LOST and the deadline end a lease.
 */

struct lh_lease;

struct renewals {
    struct lh_client *client;
    struct lh_timer tick;
    struct keep_alive keep_alive;
    uint32_t hurried; /* rounds in a row with an answer RETRY */
    bool is_stopped;
};

void lh_renewals_init(struct renewals *renewals, struct lh_client *client);
void lh_renewals_stop(struct renewals *renewals); /* stops for good */

/* Renews the lease from now on, as long as it is held. */
void lh_renewals_add(struct renewals *renewals, const struct lh_lease *lease);

/*
 * Releases without a waiting caller. Any thread puts leases into a set. The client's thread takes the whole set, sends
 * it piece by piece, one request at a time, and then takes the next set.
 *
 *     enqueue: inbox (mutex, a few instructions) ---> taken ---> in the batch ---> answered: the lease is GONE
 *                                                       ^            |
 *                                                       '-- RETRY, no answer, as long as the lease may still live;
 *                                                           then it is logged as left to expire
 */

struct lh_request;
struct release_batch;

#define RELEASES_MAX_DEFAULT 2097152
#define RELEASE_RESULT_BYTES_MAX (64u * 1024 * 1024) /* bound of results and failures in the set */

struct lease_queue {
    struct lh_lease *first;
    struct lh_lease **end;
};

/* Guarded by the client's mutex. */
struct release_inbox {
    struct lease_queue queue;
    size_t count; /* leases that were enqueued and are not answered yet */
    size_t max;
    size_t result_bytes; /* bytes of their results */
};

struct releases {
    struct lh_client *client;
    struct lease_queue taken;
    struct lh_table by_scope; /* taken or in the batch */
    struct release_batch *batch;
    struct lh_timer pause;
    uint32_t failures; /* failed batches in a row */
    bool is_given_up;
    /* Leases that the server did not know, of acquires whose answers were lost: one may be on its way yet. */
    struct lh_heap doubted;
    struct lh_timer doubt;
    bool is_closing; /* the client ends: there are no more of them */
};

void lh_releases_init(struct releases *releases, struct lh_client *client);
void lh_releases_finish(struct releases *releases);

/*
 * Puts a lease that was taken for release into the set, with its result; any thread. The set takes over the reference.
 * LH_OVERLOADED or LH_CLOSED: refused, the reference stays the caller's. While the client closes only its own thread
 * may call it.
 */
enum lh_status lh_releases_enqueue(struct lh_client *client, struct lh_lease *lease);

/* Sends the next leases, on the client's thread. */
void lh_releases_drain(struct releases *releases);

/* Returns the lease of this scope whose release is not answered yet, or NULL. */
struct lh_lease *lh_releases_find(struct releases *releases, const char *namespace_text, const char *key);

/* Ends the pause, because a caller waits for a release. */
void lh_releases_hurry(struct releases *releases);
void lh_releases_close(struct releases *releases); /* the same, and what is only in doubt is forgotten */

bool lh_releases_are_empty(struct releases *releases);

bool lh_releases_is_theirs(const struct releases *releases, const struct lh_request *request);

/* Lets every lease of the set expire, after the limit of the flush has passed. */
void lh_releases_give_up(struct releases *releases);

#endif
