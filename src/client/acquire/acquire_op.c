/*
 * Acquire, of one scope or of several at once. The lease key is chosen here, so that the request can be repeated when
 * its answer was lost. Then three things may happen:
 *
 *     it is repeated and answered: the lease is the one of the first attempt, or of this one; nobody can tell
 *     LEASE_ENDED: the server granted it, saw the connection break and took it back; a new lease key begins anew, of
 *         several once what is left of them is released
 *     it fails for good: whatever the server may have granted is released, by the set of releases
 */
#include "client/acquire_internal.h"

#include <stdlib.h>

#include "client/client.h"
#include "client/context.h"
#include "client/lease_internal.h"
#include "client/request_internal.h"

#define DOUBT_FIRST_US LH_US_PER_S

static struct acquire_op *op_of(struct lh_request *request)
{
    return LH_CONTAINER(struct acquire_op, request, request);
}

/* --- the answer --- */

/*
 * Leases that nobody here wants, and that the server may have granted. Not those of a lease key of the caller's own: it may be
 * acquired with again, here or elsewhere, and a release that the network delivers late would end that lease.
 */
static void give_back(struct acquire_op *op)
{
    if (op->is_own_key)
        return;
    for (size_t i = 0; i < op->count; i++) {
        const struct lh_acquire_scope *wanted = &op->items[i].wanted;
        struct lh_lease *lease;

        if (lh_leases_find(wanted->declared, wanted->key, &op->key) != NULL)
            continue;
        lease = lh_lease_create(wanted->declared, wanted->key, &op->key);
        atomic_store(&lease->state, LEASE_RELEASING);
        lease->doubt_us = DOUBT_FIRST_US;
        atomic_store(&lease->deadline_us, lh_plus_us(lh_clock_us(), wanted->declared->options.duration_us));
        if (lh_releases_enqueue(op->request.client, lease) != LH_OK)
            lh_lease_unref(lease);
    }
}

/* What the server granted: a lease for each item. */
struct granted {
    Leasehold__V1__Lease *const *leases;
    size_t count;
    const Google__Protobuf__Duration *waited;
};

/* This process stood still meanwhile: nobody is to begin what has to end at once. */
static bool is_over(const struct acquire_op *op, const struct granted *granted)
{
    int64_t granted_us = lh_plus_us(op->request.sent_us, lh_unpack_waited_us(granted->waited, op->request.sent_us));
    int64_t now_us = lh_clock_us();

    for (size_t i = 0; i < op->count; i++) {
        const struct lh_declared *declared = op->items[i].wanted.declared;
        int64_t deadline_us = lh_plus_us(granted_us, lh_unpack_remaining_us(granted->leases[i]->remaining, declared));
        if (lh_leases_find(declared, op->items[i].wanted.key, &op->key) == NULL &&
            now_us >= deadline_us - declared->options.margin_us)
            return true;
    }
    return false;
}

static struct lh_lease *take_lease(struct acquire_op *op, const struct acquire_item *item,
                                   const Leasehold__V1__Lease *granted, int64_t waited_us)
{
    int64_t remaining_us = lh_unpack_remaining_us(granted->remaining, item->wanted.declared);
    struct lh_lease *lease = lh_leases_find(item->wanted.declared, item->wanted.key, &op->key);

    if (lease != NULL) {
        lh_lease_ref(lease);
        lh_lease_renewed(lease, lh_plus_us(op->request.sent_us, waited_us), remaining_us, granted->deadline_is_final);
        return lease;
    }
    lease = lh_lease_create(item->wanted.declared, item->wanted.key, &op->key);
    lease->user = item->wanted.user;
    if (op->options.context != NULL)
        atomic_store(&lease->context, lh_context_create_for_lease(op->options.context, LH_FOREVER));
    lh_lease_begin(lease, lh_unpack_grant(granted), op->request.sent_us, waited_us, remaining_us,
                   granted->deadline_is_final);
    lh_renewals_add(&op->request.client->renewals, lease);
    return lease;
}

static bool are_asked_for(const struct acquire_op *op, const struct granted *granted)
{
    for (size_t i = 0; i < granted->count; i++)
        if (!lh_is_answer_about(granted->leases[i]->lease_key, &op->key))
            return false;
    return true;
}

/* Something was granted, but nobody can tell that it is what was asked for. */
static void refuse_answer(struct acquire_op *op, const char *words)
{
    op->request.is_in_doubt = true;
    op->request.status = lh_error_set(&op->request.error, LH_INTERNAL, "%s", words);
}

static void take_leases(struct acquire_op *op, const struct granted *granted)
{
    op->request.status = LH_OK;
    if (granted->count != op->count) {
        refuse_answer(op, "the server answered more or fewer leases than were asked for");
    } else if (!are_asked_for(op, granted)) {
        refuse_answer(op, "the server answered with another lease key than was asked for");
    } else if (is_over(op, granted)) {
        give_back(op);
        op->request.status = lh_error_set(
            &op->request.error, LH_LOST, "%s granted, and %s time was over before this process heard of it",
            op->count > 1 ? "the leases were" : "the lease was", op->count > 1 ? "their" : "its");
    } else {
        for (size_t i = 0; i < op->count; i++)
            op->items[i].lease = take_lease(op, &op->items[i], granted->leases[i],
                                            lh_unpack_waited_us(granted->waited, op->request.sent_us));
    }
}

static void forget_granted(struct acquire_op *op)
{
    leasehold__v1__acquire_event__free_unpacked(op->granted, NULL);
    op->granted = NULL;
}

/* Of a unary call that succeeded, or of a stream that ended well. */
static struct granted granted_of(const struct acquire_op *op, const struct lh_reply *reply)
{
    const Leasehold__V1__AcquireAllResponse *all = (const void *)reply->message;
    const Leasehold__V1__AcquireResponse *one = (const void *)reply->message;

    if (op->granted != NULL)
        return (struct granted){&op->granted->granted, 1, op->granted->waited};
    if (op->on_all_done != NULL)
        return (struct granted){all->leases, all->n_leases, all->waited};
    return (struct granted){&one->lease, one->lease != NULL, one->waited};
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    struct acquire_op *op = op_of(request);
    unsigned reason;

    if (reply->code == LH_GRPC_OK) {
        struct granted granted = granted_of(op, reply);
        if (granted.count > 0) {
            take_leases(op, &granted);
            return RETRY_NO_REASON;
        }
    }
    forget_granted(op);
    if (reply->code == LH_GRPC_OK) {
        refuse_answer(op, "the server answered without a lease");
        return RETRY_NO_REASON;
    }
    if (reply->has_reason && reply->reason == LH_LEASE_ENDED && request->is_in_doubt && !op->is_own_key) {
        request->is_in_doubt = false;
        if (op->count > 1) /* the others may be held yet, by nobody who knows */
            give_back(op);
        op->key = lh_uuid_random();
        return REQUEST_AGAIN;
    }
    reason = lh_attempt_judge_error(request, reply);
    if (request->status == LH_LEASE_HELD && op->options.wait_us > 0 && request->wait_us == 0) {
        request->status = request->error.status = LH_WAIT_TIMEOUT;
        return RETRY_NO_REASON;
    }
    return reason;
}

static void undo(struct lh_request *request, const struct lh_reply *reply)
{
    give_back(op_of(request));
}

void lh_acquire_destroy(struct acquire_op *op)
{
    lh_context_destroy(op->options.context);
    forget_granted(op);
    lh_arena_finish(&op->strings);
    free(op);
}

static void finish(struct lh_request *request)
{
    struct acquire_op *op = op_of(request);

    /* A server takes back what a cancel crosses, but not for long. */
    if (request->status != LH_OK && (request->is_in_doubt || request->is_cut_off))
        give_back(op);
    if (op->on_all_done != NULL) {
        struct lh_lease *leases[LH_ACQUIRE_ALL_MAX];
        for (size_t i = 0; i < op->count; i++)
            leases[i] = op->items[i].lease;
        op->on_all_done(op->arg, request->status, request->status == LH_OK ? leases : NULL, &request->error);
    } else {
        op->on_done(op->arg, request->status, op->items[0].lease, &request->error);
    }
    lh_acquire_destroy(op);
}

const struct request_verb lh_acquire_verb = {
    .name = "Acquire",
    .path = "/leasehold.v1.LeaseService/Acquire",
    .output = &leasehold__v1__acquire_response__descriptor,
    .pack = lh_acquire_pack,
    .judge = judge,
    .undo = undo,
    .finish = finish,
};

const struct request_verb lh_acquire_all_verb = {
    .name = "AcquireAll",
    .path = "/leasehold.v1.LeaseService/AcquireAll",
    .output = &leasehold__v1__acquire_all_response__descriptor,
    .pack = lh_acquire_all_pack,
    .judge = judge,
    .undo = undo,
    .finish = finish,
};

/* --- who is told what it waits for: the answer is a stream --- */

/* A time that no database has is passed over. */
static int64_t timestamp_us(const Google__Protobuf__Timestamp *timestamp)
{
    Google__Protobuf__Duration since_1970 = GOOGLE__PROTOBUF__DURATION__INIT;

    if (timestamp == NULL)
        return 0;
    since_1970.seconds = timestamp->seconds;
    since_1970.nanos = timestamp->nanos;
    return lh_unpack_duration_us(&since_1970);
}

static int64_t minus_us(int64_t at_us, int64_t less_us)
{
    int64_t difference_us;
    return __builtin_sub_overflow(at_us, less_us, &difference_us) ? 0 : difference_us;
}

void lh_acquire_tell(struct acquire_op *op, const Leasehold__V1__Contention *contention)
{
    const Leasehold__V1__Lease *holder = contention->holder;
    struct lh_obstacle obstacle = {
        .owner = "",
        .principal = "",
        .liveness = (enum lh_holder_liveness)contention->liveness,
        .waiters_ahead = (uint32_t)contention->waiters_ahead,
        .rests_us = contention->rests == NULL ? 0 : lh_unpack_duration_us(contention->rests),
        .holder_count = (uint32_t)contention->holder_count,
        .units_free = contention->units_free == NULL ? -1 : contention->units_free->value,
    };

    if (holder != NULL) {
        /* The database's clock when it answered. */
        int64_t now_us = minus_us(timestamp_us(holder->deadline), lh_unpack_duration_us(holder->remaining));
        obstacle.owner = holder->owner;
        obstacle.principal = holder->principal;
        obstacle.token = holder->token;
        obstacle.mode = holder->mode == LEASEHOLD__V1__MODE__MODE_SHARED ? LH_SHARED : LH_EXCLUSIVE;
        obstacle.units = holder->units;
        obstacle.held_us = minus_us(now_us, timestamp_us(holder->acquired_at));
        obstacle.silent_us = minus_us(now_us, timestamp_us(holder->heartbeat_at));
    }
    op->options.on_waiting(op->options.on_waiting_arg, &obstacle);
}

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

const struct request_verb lh_acquire_stream_verb = {
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

void lh_acquire_start(struct lh_request *request)
{
    struct acquire_op *op = op_of(request);
    struct releases *releases = &request->client->releases;
    struct lh_lease *before = NULL;

    for (size_t i = 0; i < op->count && before == NULL; i++)
        before = lh_releases_find(releases, op->items[i].wanted.declared->text, op->items[i].wanted.key);
    if (before == NULL) {
        lh_request_go(request);
        return;
    }
    lh_list_append(&before->followers, &request->following);
    lh_releases_hurry(releases);
}
