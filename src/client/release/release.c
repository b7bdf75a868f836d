/* lh_release, which waits for the answer, and lh_try_release and lh_lease_destroy, which do not. */
#include <stdlib.h>

#include "base/bounds.h"
#include "base/text.h"
#include "client/batches_internal.h"
#include "client/client.h"
#include "client/lease_internal.h"
#include "client/request_internal.h"

/* --- options --- */

static enum lh_status check(const struct lh_release_options *options, struct lh_error *error)
{
    if (options == NULL)
        return LH_OK;
    if (options->result != NULL && options->failure != NULL)
        return lh_bounds_refuse(error, "failure", "not together with a result",
                                "a result and a failure exclude each other");
    if (lh_bounds_time("timeout_us", options->call.timeout_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->result != NULL)
        return lh_bounds_text("result", LH_TEXT_RESULT, options->result, error);
    if (options->failure != NULL)
        return lh_bounds_text("failure", LH_TEXT_RESULT, options->failure, error);
    return LH_OK;
}

static void take_result(struct lh_lease *lease, const struct lh_release_options *options)
{
    if (options == NULL || (options->result == NULL && options->failure == NULL))
        return;
    lease->is_failure = options->failure != NULL;
    lease->result = lh_strdup(lease->is_failure ? options->failure : options->result);
}

/* --- lh_release --- */

static void pack(struct lh_request *request, struct lh_buffer *message)
{
    lh_release_pack(&lh_lease_op_of(request)->lease, 1, message);
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    const Leasehold__V1__ReleaseResponse *response = (const void *)reply->message;
    const Leasehold__V1__ReleaseResult *result;
    struct lease_op *op = lh_lease_op_of(request);

    if (reply->code != LH_GRPC_OK) {
        op->was_sent |= reply->delivery != LH_RPC_NOT_SENT;
        return lh_attempt_judge_error(request, reply);
    }
    if (response->n_results != 1)
        return lh_lease_op_miscounted(request, response->n_results);
    result = response->results[0];
    if (!lh_is_answer_about(result->lease_key, &op->lease->key))
        return lh_lease_op_misdirected(request);
    enum lh_status status = lh_status_of_release(result, op->was_sent, op->lease->is_failure);
    op->was_sent |= status == LH_UNAVAILABLE; /* RETRY: the database's answer was lost on its way to the server, too */
    return lh_lease_op_answered(request, status, result->end_reason, result->message);
}

static void finish(struct lh_request *request)
{
    struct lease_op *op = lh_lease_op_of(request);

    atomic_store(&op->lease->state, (unsigned char)(LEASE_GONE | LEASE_REASON(atomic_load(&op->lease->state))));
    lh_lease_op_finish(request);
}

static const struct request_verb release_verb = {
    .name = "Release",
    .path = "/leasehold.v1.LeaseService/Release",
    .output = &leasehold__v1__release_response__descriptor,
    .pack = pack,
    .judge = judge,
    .finish = finish,
};

static void on_start(struct lh_request *request)
{
    lh_lease_leave(lh_lease_op_of(request)->lease);
    lh_request_go(request);
}

enum lh_status lh_release_async(struct lh_lease *lease, const struct lh_release_options *options, lh_done_cb *on_done,
                                void *arg, struct lh_request **request, struct lh_error *error)
{
    const struct lh_call_options *call = options != NULL ? &options->call : NULL;
    enum lh_status status;

    if (lease == NULL || on_done == NULL)
        return lh_bounds_refuse(error, lease == NULL ? "lease" : "on_done", "not NULL", "an argument is missing");
    if (check(options, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (!lh_client_is_open(lease->client))
        return lh_error_set(error, LH_CLOSED, "the client was closed");
    status = lh_lease_take_for_release(lease, error);
    if (status != LH_OK)
        return status;
    take_result(lease, options);
    /* Closed in this instant: the lease is left to expire, as all that were held. */
    return lh_lease_op_submit(lh_lease_op_create(lease, &release_verb, call, on_done, arg), on_start, request, error);
}

enum lh_status lh_release(struct lh_lease *lease, const struct lh_release_options *options, struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status = lh_blocked_begin(&blocked, lease != NULL ? lease->client : NULL, error);

    if (status == LH_OK)
        status = lh_release_async(lease, options, lh_blocked_on_done, &blocked, NULL, error);
    return lh_blocked_wait(&blocked, status);
}

/* --- lh_try_release --- */

/* It cannot be sent; the client's thread stops keeping it. */
struct leave_task {
    struct client_task task;
    struct lh_lease *lease;
};

static void run_leave(struct client_task *task)
{
    struct leave_task *leave = LH_CONTAINER(struct leave_task, task, task);

    lh_lease_leave(leave->lease);
    lh_lease_unref(leave->lease);
    free(leave);
}

static void leave_to_expire(struct lh_lease *lease, const char *words)
{
    struct leave_task *leave = lh_alloc_zero(1, sizeof(*leave));

    lh_warn("release not delivered, left to expire scope=%s token=%lld: %s",
            LH_SCOPE_NAME(lease->declared->text, lease->scope_key), (long long)lh_lease_token(lease), words);
    atomic_fetch_add(&lease->client->counts.left_to_expire, 1);
    atomic_store(&lease->state, (unsigned char)(LEASE_GONE | LEASE_REASON(atomic_load(&lease->state))));
    leave->task.run = run_leave;
    leave->lease = lease;
    if (lh_client_post(lease->client, &leave->task) == LH_OK)
        return;
    lh_lease_unref(lease); /* closed: its thread has left all leases already */
    free(leave);
}

enum lh_status lh_try_release(struct lh_lease *lease, const struct lh_release_options *options)
{
    enum lh_status status;

    if (lease == NULL || check(options, NULL) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (!lh_client_is_open(lease->client))
        return LH_CLOSED;
    status = lh_lease_take_for_release(lease, NULL);
    if (status != LH_OK)
        return status;
    take_result(lease, options);
    lh_lease_ref(lease);
    status = lh_releases_enqueue(lease->client, lease);
    if (status != LH_OK)
        leave_to_expire(lease, status == LH_CLOSED ? "the client was closed" : "too many releases wait already");
    return status;
}

void lh_lease_destroy(struct lh_lease *lease)
{
    if (lease == NULL)
        return;
    if (lh_lease_is_kept(lease))
        lh_try_release(lease, NULL);
    lh_lease_unref(lease);
}
