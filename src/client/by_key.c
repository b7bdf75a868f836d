/*
 * An acquire may come back before its wait has passed: the server waits for max_block at most (BLOCKING_TIMEOUT), it may
 * be stopping, its database may be away, the connection may break. Each time the same lease key asks again, and finds
 * its place in the queue or the lease that it was granted meanwhile.
 */
#include "client/by_key.h"

#include "base/clock.h"
#include "base/memory.h"
#include "client/acquire_internal.h"
#include "client/lease_internal.h"

#define SERVICE (&leasehold__v1__lease_service__descriptor)
#define BLOCKED_US LH_US_PER_S /* a server that blocked for so long may be asked again at once */

static void init_ref(Leasehold__V1__LeaseRef *ref, const struct lh_by_key *lease)
{
    leasehold__v1__lease_ref__init(ref);
    ref->scope = lease->scope;
    ref->lease_key = lease->lease_key;
}

/* --- heartbeat --- */

static const Leasehold__V1__HeartbeatResult *renewed(const struct lh_reply *reply)
{
    const Leasehold__V1__HeartbeatResponse *response = (const void *)reply->message;
    return response != NULL && response->n_results == 1 ? response->results[0] : NULL;
}

/* RETRY says that nothing was done. */
static int64_t renew_again_in_us(void *arg, const struct lh_reply *reply, unsigned failures)
{
    const Leasehold__V1__HeartbeatResult *result = renewed(reply);

    if (result != NULL && lh_status_of_outcome(result->outcome) == LH_UNAVAILABLE)
        return lh_caller_backoff_us(failures, reply);
    return lh_caller_again_in_us(arg, reply, failures);
}

const Leasehold__V1__HeartbeatResult *lh_by_key_heartbeat(const struct lh_by_key *lease, struct lh_reply *reply,
                                                          enum lh_status *status)
{
    Leasehold__V1__HeartbeatRequest request = LEASEHOLD__V1__HEARTBEAT_REQUEST__INIT;
    const Leasehold__V1__HeartbeatResult *result;
    Leasehold__V1__LeaseRef ref, *refs[] = {&ref};

    init_ref(&ref, lease);
    request.leases = refs;
    request.n_leases = 1;
    lh_caller_repeat(lease->caller, SERVICE, "Heartbeat", &request.base, lease->deadline_us,
                     &(struct lh_caller_repetition){.again_in_us = renew_again_in_us}, reply);
    result = renewed(reply);
    *status = result != NULL ? lh_status_of_outcome(result->outcome) : LH_INTERNAL;
    return result;
}

/* --- release --- */

static const Leasehold__V1__ReleaseResult *released(const struct lh_reply *reply)
{
    const Leasehold__V1__ReleaseResponse *response = (const void *)reply->message;
    return response != NULL && response->n_results == 1 ? response->results[0] : NULL;
}

struct release {
    bool may_be_done; /* an attempt that had no verdict may have released it */
};

static int64_t release_again_in_us(void *arg, const struct lh_reply *reply, unsigned failures)
{
    const Leasehold__V1__ReleaseResult *result = released(reply);
    struct release *release = arg;

    bool is_retry = result != NULL && lh_status_of_outcome(result->outcome) == LH_UNAVAILABLE;

    release->may_be_done |= is_retry || (reply->message == NULL && reply->delivery != LH_RPC_NOT_SENT);
    if (is_retry)
        return lh_caller_backoff_us(failures, reply);
    return lh_caller_again_in_us(NULL, reply, failures);
}

const Leasehold__V1__ReleaseResult *lh_by_key_release(const struct lh_by_key *lease,
                                                      const struct lh_release_options *options, struct lh_reply *reply,
                                                      enum lh_status *status)
{
    Leasehold__V1__ReleaseRequest request = LEASEHOLD__V1__RELEASE_REQUEST__INIT;
    Leasehold__V1__ReleaseItem item = LEASEHOLD__V1__RELEASE_ITEM__INIT, *items[] = {&item};
    const char *failure = options != NULL ? options->failure : NULL;
    const Leasehold__V1__ReleaseResult *result;
    struct release release = {0};
    Leasehold__V1__LeaseRef ref;

    init_ref(&ref, lease);
    item.lease = &ref;
    if (failure != NULL) {
        item.result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_FAILURE;
        item.failure = (char *)(uintptr_t)failure;
    } else if (options != NULL && options->result != NULL) {
        item.result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_SUCCESS;
        item.success = (char *)(uintptr_t)options->result;
    }
    request.items = items;
    request.n_items = 1;
    lh_caller_repeat(lease->caller, SERVICE, "Release", &request.base, lease->deadline_us,
                     &(struct lh_caller_repetition){.again_in_us = release_again_in_us, .arg = &release}, reply);
    result = released(reply);
    *status = result != NULL ? lh_status_of_release(result, release.may_be_done, failure != NULL) : LH_INTERNAL;
    return result;
}

/* --- downgrade --- */

/* A repeat finds its own work done, and gets the same answer. */
void lh_by_key_downgrade(const struct lh_by_key *lease, int32_t units, struct lh_reply *reply)
{
    Leasehold__V1__DowngradeRequest request = LEASEHOLD__V1__DOWNGRADE_REQUEST__INIT;
    Leasehold__V1__LeaseRef ref;

    init_ref(&ref, lease);
    request.lease = &ref;
    request.units = units;
    lh_caller_repeat(lease->caller, SERVICE, "Downgrade", &request.base, lease->deadline_us, NULL, reply);
}

/* --- acquire --- */

struct asking {
    struct lh_by_key_acquire *acquire;
    Leasehold__V1__AcquireRequest *request;
    struct lh_arena arena; /* memory of the request */
    int64_t wait_until_us;
    int64_t sent_at_us; /* the last attempt; 0: none yet */
};

static bool is_waiting(const struct asking *asking)
{
    return asking->acquire->options->wait_us > 0 || asking->acquire->options->wait_while_alive;
}

/* What is left of the wait. */
static void before_attempt(void *arg)
{
    struct asking *asking = arg;
    int64_t now_us = lh_clock_us();

    if (asking->sent_at_us != 0 && asking->request->wait != NULL) {
        int64_t left_us = asking->wait_until_us - now_us;
        asking->request->wait = left_us > 0 ? lh_pack_duration(left_us, &asking->arena) : NULL;
    }
    asking->sent_at_us = now_us;
}

/* Sent, and no verdict came back: the lease may have been granted all the same. */
static bool leaves_it_open(const struct lh_reply *reply)
{
    if (reply->code == LH_GRPC_OK || reply->delivery == LH_RPC_NOT_SENT)
        return false;
    return !reply->has_reason || reply->reason == LH_DATABASE_UNAVAILABLE;
}

static int64_t acquire_again_in_us(void *arg, const struct lh_reply *reply, unsigned failures)
{
    const struct asking *asking = arg;

    asking->acquire->may_be_granted |= leaves_it_open(reply);
    if (reply->has_reason && reply->reason == LH_BLOCKING_TIMEOUT && is_waiting(asking))
        return lh_clock_us() - asking->sent_at_us >= BLOCKED_US ? 0 : lh_caller_backoff_us(failures, reply);
    if (!reply->has_reason && reply->code == LH_GRPC_UNAVAILABLE && is_waiting(asking))
        return lh_caller_backoff_us(failures, reply);
    return lh_caller_again_in_us(NULL, reply, failures);
}

static void before_again(void *arg, const struct lh_reply *reply)
{
    const struct lh_by_key_acquire *acquire = ((struct asking *)arg)->acquire;

    if (is_waiting(arg) && acquire->on_again != NULL && !(reply->has_reason && reply->reason == LH_BLOCKING_TIMEOUT))
        acquire->on_again(acquire->arg, reply);
}

void lh_by_key_acquire(const struct lh_by_key *lease, struct lh_by_key_acquire *acquire, struct lh_reply *reply)
{
    const struct lh_acquire_options *options = acquire->options;
    struct asking asking = {.acquire = acquire, .wait_until_us = lh_plus_us(lh_clock_us(), options->wait_us)};
    const struct lh_caller_repetition repetition = {.before_attempt = before_attempt,
                                                    .again_in_us = acquire_again_in_us,
                                                    .before_again = before_again,
                                                    .arg = &asking};
    int64_t deadline_us =
        options->wait_while_alive ? LH_RPC_FOREVER : lh_plus_us(asking.wait_until_us, acquire->timeout_us);

    acquire->may_be_granted = false;
    asking.request = lh_acquire_message(lease->scope, lease->lease_key, acquire->duration_us, options, options->wait_us,
                                        &asking.arena);
    lh_caller_repeat(lease->caller, SERVICE, "Acquire", &asking.request->base, deadline_us, &repetition, reply);
    lh_arena_finish(&asking.arena);
}
