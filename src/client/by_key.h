/*
 * Acquires, renews, downgrades and releases a lease for a process that knows its lease key and does not look after it,
 * such as a command: blocking calls, each repeated until it has an answer or its time has passed.
 *
 *     struct lh_by_key lease = {.caller = caller, .scope = &scope, .lease_key = key, .deadline_us = deadline_us};
 *     result = lh_by_key_heartbeat(&lease, &reply, &status);
 *     if (status == LH_OK)
 *         print(result);
 *     lh_reply_finish(&reply);
 */
#ifndef LH_CLIENT_BY_KEY_H
#define LH_CLIENT_BY_KEY_H

#include "client/caller.h"
#include "leasehold.h"
#include "leasehold/v1/leasehold.pb-c.h"

struct lh_by_key {
    struct lh_caller *caller;
    Leasehold__V1__Scope *scope;
    char *lease_key;
    int64_t deadline_us; /* on lh_clock_us(); LH_RPC_FOREVER: none */
};

/*
 * Renew and release. Return the lease's own answer, which `reply` owns, with its status: LH_UNAVAILABLE if it was not
 * done until the deadline. NULL: `reply` is an error, or no answer of a leaseholdd. `reply` is to be finished. A release
 * that finds its own first attempt is LH_OK. Of `options` result and failure count; NULL: neither.
 */
const Leasehold__V1__HeartbeatResult *lh_by_key_heartbeat(const struct lh_by_key *lease, struct lh_reply *reply,
                                                          enum lh_status *status);
const Leasehold__V1__ReleaseResult *lh_by_key_release(const struct lh_by_key *lease,
                                                      const struct lh_release_options *options, struct lh_reply *reply,
                                                      enum lh_status *status);

/* Makes the lease shared. `reply` is a DowngradeResponse or an error. */
void lh_by_key_downgrade(const struct lh_by_key *lease, int32_t units, struct lh_reply *reply);

/* An acquire with a lease key. The same key asks again for what is left of the wait. */
struct lh_by_key_acquire {
    const struct lh_acquire_options *options; /* lease_key and timeout_us do not count, nor callbacks */
    int64_t duration_us;
    int64_t timeout_us;                                        /* beyond the wait; deadline_us does not count */
    void (*on_again)(void *arg, const struct lh_reply *reply); /* a failure that does not end the wait */
    void *arg;
    bool may_be_granted; /* set: an attempt went out and had no verdict */
};

/*
 * Acquires the lease. `reply` is an AcquireResponse or an error; CANCELLED after a signal, if the caller catches them.
 * Without a wait a server that cannot be reached is an error at once; a request that waits goes on.
 */
void lh_by_key_acquire(const struct lh_by_key *lease, struct lh_by_key_acquire *acquire, struct lh_reply *reply);

#endif
