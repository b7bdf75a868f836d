/* lh_release, which waits for the answer, and lh_try_release and lh_lease_destroy, which do not. */
#include "client/release.h"

#include <stdlib.h>
#include <string.h>

#include "client/blocking.h"
#include "client/check.h"
#include "client/request.h"

struct release_op {
    struct lh_request request;
    struct lh_lease *lease;
    bool was_sent; /* an attempt may have released it */
    lh_done_cb *on_done;
    void *arg;
};

static struct release_op *op_of(struct lh_request *request)
{
    return LH_CONTAINER(struct release_op, request, request);
}

/* --- the message --- */

static void put_item(Leasehold__V1__ReleaseItem *item, const struct lh_lease *lease, struct lh_arena *arena)
{
    leasehold__v1__release_item__init(item);
    item->lease = lease_ref_message(lease, arena);
    if (lease->result == NULL)
        return;
    if (lease->is_failure) {
        item->result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_FAILURE;
        item->failure = lease->result;
    } else {
        item->result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_SUCCESS;
        item->success = lease->result;
    }
}

void release_pack(struct lh_lease *const *leases, size_t count, struct lh_buffer *message)
{
    Leasehold__V1__ReleaseRequest release = LEASEHOLD__V1__RELEASE_REQUEST__INIT;
    struct lh_arena arena = {0};
    size_t size;

    release.n_items = count;
    release.items = lh_arena_alloc(&arena, (count + 1) * sizeof(release.items[0]));
    for (size_t i = 0; i < count; i++) {
        release.items[i] = lh_arena_alloc(&arena, sizeof(*release.items[i]));
        put_item(release.items[i], leases[i], &arena);
    }
    size = leasehold__v1__release_request__get_packed_size(&release);
    leasehold__v1__release_request__pack(&release, lh_buffer_reserve(message, size + 1));
    message->size += size;
    lh_arena_finish(&arena);
}

enum lh_status release_check(const struct lh_release_options *options, struct lh_error *error)
{
    if (options == NULL)
        return LH_OK;
    if (options->result != NULL && options->failure != NULL)
        return check_refuse(error, "failure", "not together with a result",
                            "a result and a failure exclude each other");
    if (options->call.timeout_us < 0)
        return check_refuse(error, "timeout_us", "not negative", "a time is negative");
    if (options->result != NULL)
        return check_result("result", options->result, error);
    if (options->failure != NULL)
        return check_result("failure", options->failure, error);
    return LH_OK;
}

void release_take_result(struct lh_lease *lease, const struct lh_release_options *options)
{
    if (options == NULL || (options->result == NULL && options->failure == NULL))
        return;
    lease->is_failure = options->failure != NULL;
    lease->result = lh_strdup(lease->is_failure ? options->failure : options->result);
}

/* --- lh_release --- */

static void pack(struct lh_request *request, struct lh_buffer *message)
{
    release_pack(&op_of(request)->lease, 1, message);
}

/* A release that is repeated finds its own work done. */
static enum lh_status lost_status(const struct release_op *op, const Leasehold__V1__ReleaseResult *result)
{
    bool is_released = result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_RELEASED ||
                       result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_FAILED;
    return is_released && op->was_sent ? LH_OK : LH_LOST;
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    const Leasehold__V1__ReleaseResponse *response = (const void *)reply->message;
    const Leasehold__V1__ReleaseResult *result;
    struct release_op *op = op_of(request);

    if (reply->code != LH_GRPC_OK) {
        op->was_sent |= reply->delivery != LH_RPC_NOT_SENT;
        return request_judge_error(request, reply);
    }
    if (response->n_results != 1) {
        request->status =
            lh_error_set(&request->error, LH_INTERNAL, "an answer for %zu releases, not for one", response->n_results);
        return RETRY_NO_REASON;
    }
    result = response->results[0];
    request->status = status_of_outcome(result->outcome);
    if (request->status == LH_LOST)
        request->status = lost_status(op, result);
    lh_error_set(&request->error, request->status, "%s", result->message);
    return request->status == LH_UNAVAILABLE ? LH_RETRY_OUTCOME_RETRY : RETRY_NO_REASON;
}

static void finish(struct lh_request *request)
{
    struct release_op *op = op_of(request);

    atomic_store(&op->lease->state, (unsigned char)(LEASE_GONE | LEASE_REASON(atomic_load(&op->lease->state))));
    op->on_done(op->arg, request->status, &request->error);
    lease_unref(op->lease);
    free(op);
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
    lease_leave(op_of(request)->lease);
    request_go(request);
}

enum lh_status lh_release_async(struct lh_lease *lease, const struct lh_release_options *options, lh_done_cb *on_done,
                                void *arg, struct lh_request **request, struct lh_error *error)
{
    const struct lh_call_options *call = options != NULL ? &options->call : NULL;
    struct lh_client *client;
    struct release_op *op;
    int64_t timeout_us;
    enum lh_status status;

    if (lease == NULL || on_done == NULL)
        return check_refuse(error, lease == NULL ? "lease" : "on_done", "not NULL", "an argument is missing");
    if (release_check(options, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    client = lease->client;
    if (!client_is_open(client))
        return lh_error_set(error, LH_CLOSED, "the client was closed");
    status = lease_take_for_release(lease, error);
    if (status != LH_OK)
        return status;
    release_take_result(lease, options);
    op = lh_alloc_zero(1, sizeof(*op));
    op->lease = lease;
    op->on_done = on_done;
    op->arg = arg;
    lease_ref(lease);
    timeout_us = call != NULL && call->timeout_us > 0 ? call->timeout_us : client->timeout_us;
    request_init(&op->request, client, &release_verb, lh_clock_us() + timeout_us, call,
                 lease->declared->has_strategy ? &lease->declared->strategy : NULL);
    op->request.name = lease->scope_key;
    if (request != NULL)
        *request = &op->request;
    status = request_submit(&op->request, on_start, error);
    if (status != LH_OK) { /* closed in this instant: it is left to expire, as all that were held */
        request_drop(&op->request);
        lease_unref(lease);
        free(op);
    }
    return status;
}

enum lh_status lh_release(struct lh_lease *lease, const struct lh_release_options *options, struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status;

    if (lease == NULL)
        return check_refuse(error, "lease", "not NULL", "lease is missing");
    status = blocked_begin(&blocked, lease->client, error);
    if (status != LH_OK)
        return status;
    status = lh_release_async(lease, options, blocked_on_done, &blocked, NULL, error);
    return blocked_wait(&blocked, status);
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

    lease_leave(leave->lease);
    lease_unref(leave->lease);
    free(leave);
}

static void leave_to_expire(struct lh_lease *lease, const char *words)
{
    struct leave_task *leave = lh_alloc_zero(1, sizeof(*leave));

    lh_warn("release not delivered, left to expire scope=%s/%s token=%lld: %s", lease->declared->text, lease->scope_key,
            (long long)lease->token, words);
    atomic_fetch_add(&lease->client->counts.left_to_expire, 1);
    atomic_store(&lease->state, (unsigned char)(LEASE_GONE | LEASE_REASON(atomic_load(&lease->state))));
    leave->task.run = run_leave;
    leave->lease = lease;
    if (client_post(lease->client, &leave->task) == LH_OK)
        return;
    lease_unref(lease); /* closed: its thread has left all leases already */
    free(leave);
}

enum lh_status lh_try_release(struct lh_lease *lease, const struct lh_release_options *options)
{
    enum lh_status status;

    if (lease == NULL || release_check(options, NULL) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (!client_is_open(lease->client))
        return LH_CLOSED;
    status = lease_take_for_release(lease, NULL);
    if (status != LH_OK)
        return status;
    release_take_result(lease, options);
    lease_ref(lease);
    status = releases_enqueue(lease->client, lease);
    if (status != LH_OK)
        leave_to_expire(lease, status == LH_CLOSED ? "the client was closed" : "too many releases wait already");
    return status;
}

void lh_lease_destroy(struct lh_lease *lease)
{
    if (lease == NULL)
        return;
    if (lease_is_held(lease))
        lh_try_release(lease, NULL);
    lease_unref(lease);
}
