/*
 * The reaper: its own tick, and reaps on request. Each look for expired leases ends those without a reap hook. The
 * others wait here, in their namespace's line, and go to a hook lane in runs of single transactions.
 *
 *     request->on_done = on_reaped;
 *     status = lh_coordinator_reap(coordinator, request);     refused: on_done never fires
 */
#ifndef LH_LEASE_REAPING_H
#define LH_LEASE_REAPING_H

#include "base/memory.h"
#include "lease/coordinator.h"

#define LH_REAPS_MAX 4000 /* leases in line; any more come back when their claim has passed */

struct lh_reap_request;
/* Gets the result: with LH_OK every lease in `answer` is reaped or failed. `answer` lives until the callback
   returns. */
typedef void lh_reaped_cb(struct lh_reap_request *request, enum lh_status status, const struct lh_error *error,
                          const struct lh_reap_answer *answer);

/* A reap on request. The caller owns it and leaves it in place until on_done; `namespaces` (NULL: all) and
   `requester` only until lh_coordinator_reap returns. */
struct lh_reap_request {
    const char *const *namespaces;
    size_t namespace_count;
    bool include_children;
    const char *key; /* NULL: every scope */
    int32_t max;
    enum lh_reap_kind kind; /* LH_REAP_DUE or LH_REAP_BY_NAME */
    struct lh_requester requester;
    lh_reaped_cb *on_done;
    void *arg;

    struct { /* the coordinator's */
        struct lh_link link;
        struct lh_coordinator *coordinator;
        struct lh_arena arena;
        struct lh_reaped *leases;
        size_t lease_count;
        size_t lease_capacity;
        size_t open; /* leases whose hooks have not run yet */
        bool has_more;
        enum lh_status status;
        struct lh_error error;
    } own;
};

/* Reaps expired leases. Refused: LH_SHUTTING_DOWN, LH_DATABASE_UNAVAILABLE, LH_OVERLOADED. */
enum lh_status lh_coordinator_reap(struct lh_coordinator *coordinator, struct lh_reap_request *request);

/* --- the other files of src/lease --- */
void lh_reaping_create(struct lh_coordinator *c);
void lh_reaping_destroy(struct lh_coordinator *c);
void lh_reaping_start(struct lh_coordinator *c);
void lh_reaping_on_timer(struct lh_coordinator *c);
/* Looks soon, because a caller waits for a lease that only a reaper ends. */
void lh_reaping_soon(struct lh_coordinator *c);
/* Ends every job that is not in flight. */
void lh_reaping_drop(struct lh_coordinator *c);
void lh_reaping_deliver(struct lh_coordinator *c);

#endif
