/*
 * Releases without a waiting caller. Any thread puts leases into a set. The client's thread takes the whole set, sends
 * it piece by piece, one request at a time, and then takes the next set.
 *
 *     enqueue: inbox (mutex, a few instructions) ---> taken ---> in the batch ---> answered: the lease is GONE
 *                                                       ^            |
 *                                                       '-- RETRY, no answer, as long as the lease may still live;
 *                                                           then it is logged as left to expire
 */
#ifndef LH_CLIENT_RELEASES_H
#define LH_CLIENT_RELEASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/table.h"
#include "loop/loop.h"

struct lh_client;
struct lh_lease;
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

bool lh_releases_are_empty(struct releases *releases);

bool lh_releases_is_theirs(const struct releases *releases, const struct lh_request *request);

/* Lets every lease of the set expire, after the limit of the flush has passed. */
void lh_releases_give_up(struct releases *releases);

#endif
