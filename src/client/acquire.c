/*
 * Acquire. The lease key is chosen here, so that an answer that got lost can be asked for again. Three things may
 * happen to a request whose answer was lost:
 *
 *     it is repeated and answered: the lease is the one of the first attempt, or of this one; nobody can tell
 *     LEASE_ENDED: the server granted it, saw the connection break and took it back; a new lease key begins anew
 *     it fails for good: whatever the server may have granted is released, by the set of releases
 */
#include "base/bounds.h"
#include "client/acquire_message.h"

#include <stdlib.h>
#include <string.h>

#include "client/attempt.h"
#include "client/blocking.h"
#include "client/client.h"
#include "client/context.h"
#include "client/lease_message.h"
#include "client/request.h"

static struct acquire_op *op_of(struct lh_request *request)
{
    return LH_CONTAINER(struct acquire_op, request, request);
}

/* --- the answer --- */

/* A lease that nobody here wants, and that the server may have granted. */
static void give_back(struct acquire_op *op)
{
    struct lh_lease *lease;

    if (lh_leases_find(op->request.client, &op->key) != NULL)
        return;
    lease = lh_lease_create(op->declared, op->scope_key, &op->key);
    atomic_store(&lease->state, LEASE_RELEASING);
    atomic_store(&lease->deadline_us, lh_plus_us(lh_clock_us(), op->declared->options.duration_us));
    if (lh_releases_enqueue(op->request.client, lease) != LH_OK)
        lh_lease_unref(lease);
}

/* This process stood still meanwhile: nobody is to begin what has to end at once. */
static bool is_over(const struct acquire_op *op, int64_t waited_us, int64_t remaining_us)
{
    int64_t deadline_us = lh_plus_us(lh_plus_us(op->request.sent_us, waited_us), remaining_us);
    return lh_clock_us() >= deadline_us - op->declared->options.margin_us;
}

static void take_lease(struct acquire_op *op, const Leasehold__V1__Lease *granted,
                       const Google__Protobuf__Duration *waited)
{
    int64_t remaining_us = lh_unpack_duration_us(granted->remaining);
    int64_t waited_us = lh_unpack_duration_us(waited);
    struct lh_lease *lease = lh_leases_find(op->request.client, &op->key);

    if (lease != NULL) {
        lh_lease_ref(lease);
        lh_lease_renewed(lease, lh_plus_us(op->request.sent_us, waited_us), remaining_us);
    } else if (is_over(op, waited_us, remaining_us)) {
        give_back(op);
        op->request.status =
            lh_error_set(&op->request.error, LH_LOST,
                         "the lease was granted, and its time was over before this process heard of it");
        return;
    } else {
        lease = lh_lease_create(op->declared, op->scope_key, &op->key);
        lease->user = op->user;
        if (op->parent != NULL)
            atomic_store(&lease->context, lh_context_create_for_lease(op->parent, LH_FOREVER));
        lh_lease_begin(lease, lh_unpack_grant(granted), op->request.sent_us, waited_us, remaining_us);
        lh_renewals_add(&op->request.client->renewals, lease);
    }
    op->lease = lease;
}

static void forget_granted(struct acquire_op *op)
{
    leasehold__v1__acquire_event__free_unpacked(op->granted, NULL);
    op->granted = NULL;
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    const Leasehold__V1__AcquireResponse *response = (const void *)reply->message;
    struct acquire_op *op = op_of(request);
    unsigned reason;

    if (reply->code == LH_GRPC_OK && (response->lease != NULL || op->granted != NULL)) {
        request->status = LH_OK;
        if (op->granted != NULL)
            take_lease(op, op->granted->granted, op->granted->waited);
        else
            take_lease(op, response->lease, response->waited);
        return RETRY_NO_REASON;
    }
    forget_granted(op);
    if (reply->code == LH_GRPC_OK) {
        request->status = lh_error_set(&request->error, LH_INTERNAL, "the server answered without a lease");
        return RETRY_NO_REASON;
    }
    if (reply->has_reason && reply->reason == LH_LEASE_ENDED && request->is_in_doubt && !op->is_own_key) {
        request->is_in_doubt = false;
        op->key = lh_uuid_random();
        return REQUEST_AGAIN;
    }
    reason = lh_attempt_judge_error(request, reply);
    if (request->status == LH_LEASE_HELD && op->wait_us > 0 && request->wait_us == 0) {
        request->status = request->error.status = LH_WAIT_TIMEOUT;
        return RETRY_NO_REASON;
    }
    return reason;
}

static void undo(struct lh_request *request, const struct lh_reply *reply)
{
    give_back(op_of(request));
}

static void destroy(struct acquire_op *op)
{
    lh_context_destroy(op->parent);
    forget_granted(op);
    for (size_t i = 0; i < op->label_count; i++)
        free(op->labels[i]);
    free(op->owner);
    free(op->name);
    free(op);
}

static void finish(struct lh_request *request)
{
    struct acquire_op *op = op_of(request);

    if (request->status != LH_OK && request->is_in_doubt)
        give_back(op);
    op->on_done(op->arg, request->status, op->lease, &request->error);
    destroy(op);
}

static const struct request_verb acquire_verb = {
    .name = "Acquire",
    .path = "/leasehold.v1.LeaseService/Acquire",
    .output = &leasehold__v1__acquire_response__descriptor,
    .pack = lh_acquire_pack,
    .judge = judge,
    .undo = undo,
    .finish = finish,
};

/* --- who is told what it waits for: the answer is a stream --- */

static void on_event(struct lh_request *request, const void *data, size_t size)
{
    struct acquire_op *op = op_of(request);
    Leasehold__V1__AcquireEvent *event = leasehold__v1__acquire_event__unpack(NULL, size, data);

    if (event == NULL)
        return;
    if (event->event_case == LEASEHOLD__V1__ACQUIRE_EVENT__EVENT_QUEUED)
        lh_acquire_tell(op, event->queued);
    if (event->event_case != LEASEHOLD__V1__ACQUIRE_EVENT__EVENT_GRANTED) {
        leasehold__v1__acquire_event__free_unpacked(event, NULL);
        return;
    }
    forget_granted(op);
    op->granted = event; /* it counts once the stream has ended well */
}

static const struct request_verb acquire_stream_verb = {
    .name = "AcquireStream",
    .path = "/leasehold.v1.LeaseService/AcquireStream",
    .output = &leasehold__v1__acquire_response__descriptor, /* what no message at all is read as */
    .pack = lh_acquire_pack,
    .judge = judge,
    .on_message = on_event,
    .undo = undo,
    .finish = finish,
};

/* --- its turn --- */

static void on_start(struct lh_request *request)
{
    struct acquire_op *op = op_of(request);
    struct releases *releases = &request->client->releases;
    struct lh_lease *before = lh_releases_find(releases, op->declared->text, op->scope_key);

    if (before == NULL) {
        lh_request_go(request);
        return;
    }
    lh_list_append(&before->followers, &request->following);
    lh_releases_hurry(releases);
}

/* --- the call --- */

static enum lh_status check(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                            struct lh_uuid *lease_key, struct lh_error *error)
{
    size_t name_size, count = 0;

    if (declared == NULL)
        return lh_bounds_refuse(error, "declared", "not NULL", "declared is missing");
    if (lh_bounds_key(key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->owner != NULL && lh_bounds_owner(options->owner, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->wait_us < 0 || options->timeout_us < 0)
        return lh_bounds_refuse(error, options->wait_us < 0 ? "wait_us" : "timeout_us", "not negative",
                                "a time is negative");
    if (lh_bounds_mode(options->mode, options->units, options->at_least_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->lease_key != NULL && (!lh_uuid_parse(options->lease_key, lease_key) || lh_uuid_is_zero(lease_key)))
        return lh_bounds_refuse(error, "lease_key", "a UUID", "lease_key is no UUID");
    for (; options->labels != NULL && options->labels[count] != NULL; count++) {
        if (count == LH_LABELS_MAX)
            return lh_bounds_refuse(error, "labels", "at most 16", "there are more than 16 labels");
        if (lh_bounds_label(options->labels[count], &name_size, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    }
    return LH_OK;
}

static void take_options(struct acquire_op *op, const struct lh_acquire_options *options)
{
    size_t name_size;

    op->user = options->user;
    op->on_waiting = options->on_waiting;
    op->on_waiting_arg = options->on_waiting_arg;
    op->wait_us = options->wait_us;
    op->waits_while_alive = options->wait_while_alive;
    op->at_least_us = options->at_least_us;
    op->mode = options->mode;
    op->units = options->units;
    op->owner = options->owner != NULL ? lh_strdup(options->owner) : NULL;
    op->parent = options->context != NULL ? lh_context_ref(options->context) : NULL;
    for (; options->labels != NULL && options->labels[op->label_count] != NULL; op->label_count++) {
        op->labels[op->label_count] = lh_strdup(options->labels[op->label_count]);
        lh_bounds_label(options->labels[op->label_count], &name_size, NULL);
        op->labels[op->label_count][name_size] = '\0';
    }
}

enum lh_status lh_acquire_async(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                                lh_acquired_cb *on_done, void *arg, struct lh_request **request, struct lh_error *error)
{
    static const struct lh_acquire_options none;
    struct lh_uuid lease_key = {{0}};
    struct lh_call_options call;
    struct acquire_op *op;
    int64_t deadline_us;
    enum lh_status status;

    if (options == NULL)
        options = &none;
    if (on_done == NULL)
        return lh_bounds_refuse(error, "on_done", "not NULL", "on_done is missing");
    if (check(declared, key, options, &lease_key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    op = lh_alloc_zero(1, sizeof(*op));
    op->declared = declared;
    op->name = lh_format("%s/%s", declared->text, key);
    op->scope_key = op->name + strlen(declared->text) + 1;
    op->is_own_key = options->lease_key != NULL;
    op->key = op->is_own_key ? lease_key : lh_uuid_random();
    op->on_done = on_done;
    op->arg = arg;
    take_options(op, options);
    call = (struct lh_call_options){.timeout_us = options->timeout_us,
                                    .context = options->context,
                                    .strategy = options->strategy,
                                    .strategy_arg = options->strategy_arg};
    op->wait_until_us = lh_plus_us(lh_clock_us(), op->wait_us);
    deadline_us = op->waits_while_alive ? LH_FOREVER : op->wait_until_us;
    deadline_us = lh_plus_us(deadline_us, call.timeout_us > 0 ? call.timeout_us : declared->client->timeout_us);
    lh_request_init(&op->request, declared->client, op->on_waiting != NULL ? &acquire_stream_verb : &acquire_verb,
                    deadline_us, &call, declared->has_strategy ? &declared->strategy : NULL);
    op->request.name = op->name;
    if (request != NULL)
        *request = &op->request;
    status = lh_request_submit(&op->request, on_start, error);
    if (status != LH_OK) {
        lh_request_drop(&op->request);
        destroy(op);
    }
    return status;
}

static void on_blocking_done(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct blocked *blocked = arg;

    blocked->lease = lease;
    lh_blocked_wake(blocked, status, error);
}

enum lh_status lh_acquire(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                          struct lh_lease **lease, struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status;

    if (lease == NULL || declared == NULL)
        return lh_bounds_refuse(error, lease == NULL ? "lease" : "declared", "not NULL", "an argument is missing");
    *lease = NULL;
    status = lh_blocked_begin(&blocked, declared->client, error);
    if (status != LH_OK)
        return status;
    status = lh_acquire_async(declared, key, options, on_blocking_done, &blocked, NULL, error);
    status = lh_blocked_wait(&blocked, status);
    *lease = blocked.lease;
    return status;
}
