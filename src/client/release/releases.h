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
#define RELEASE_RESULT_BYTES_MAX (64u * 1024 * 1024) /* of results and failures in the set */

struct lease_queue {
    struct lh_lease *first;
    struct lh_lease **end;
};

/* Guarded by the client's mutex. */
struct release_inbox {
    struct lease_queue queue;
    size_t count; /* of everything that was enqueued and is not answered yet */
    size_t max;
    size_t result_bytes; /* likewise */
};

struct releases {
    struct lh_client *client;
    struct lease_queue taken;
    struct lh_table by_scope; /* taken or in the batch */
    struct release_batch *batch;
    struct lh_timer pause;
    uint32_t failures; /* batches in a row */
    bool is_given_up;
};

void lh_releases_init(struct releases *releases, struct lh_client *client);
void lh_releases_finish(struct releases *releases);

/*
 * Any thread. A lease that was taken for release, with its result; the reference is the set's from now on.
 * LH_OVERLOADED or LH_CLOSED: it is not in the set, the reference is still the caller's. While the client closes only
 * its own thread may.
 */
enum lh_status lh_releases_enqueue(struct lh_client *client, struct lh_lease *lease);

/* The client's thread: go on with what is there. */
void lh_releases_drain(struct releases *releases);

/* The lease of this scope whose release is not answered yet, or NULL. */
struct lh_lease *lh_releases_find(struct releases *releases, const char *namespace_text, const char *key);

/* Ends the pause: a caller waits for them. */
void lh_releases_hurry(struct releases *releases);

bool lh_releases_are_empty(struct releases *releases);

bool lh_releases_is_theirs(const struct releases *releases, const struct lh_request *request);

/* The limit of the flush has passed: everything is left to expire. */
void lh_releases_give_up(struct releases *releases);

#endif
