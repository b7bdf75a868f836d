#include "fake_coordinator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "rpc_peek.h"

static struct fake *fake_of(const struct lh_rpc_call *call)
{
    return lh_rpc_call_arg(call);
}

static Google__Protobuf__Duration duration_of(int64_t us)
{
    Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;
    duration.seconds = us / LH_US_PER_S;
    duration.nanos = (int32_t)(us % LH_US_PER_S * 1000);
    return duration;
}

static void send_message(struct lh_rpc_call *call, const ProtobufCMessage *message, bool is_last)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = lh_alloc(size + 1);

    protobuf_c_message_pack(message, packed);
    if (is_last)
        lh_rpc_call_reply(call, packed, size);
    else
        lh_rpc_call_send(call, packed, size);
    free(packed);
}

static void fail(struct lh_rpc_call *call, enum lh_status reason)
{
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *details = &any;
    uint8_t packed_info[256], packed[512];

    if (reason == LH_OK) {
        lh_rpc_call_finish(call, LH_GRPC_UNAVAILABLE, "no healthy upstream", NULL, 0);
        return;
    }
    info.reason = (char *)(void *)lh_status_name(reason);
    info.domain = (char *)(void *)"leasehold";
    any.type_url = (char *)(void *)"type.googleapis.com/google.rpc.ErrorInfo";
    any.value.data = packed_info;
    any.value.len = google__rpc__error_info__pack(&info, packed_info);
    status.code = lh_status_grpc(reason);
    status.message = (char *)(void *)"as planned";
    status.n_details = 1;
    status.details = &details;
    lh_rpc_call_finish(call, (enum lh_grpc_code)status.code, status.message, packed,
                       google__rpc__status__pack(&status, packed));
}

/* --- answers --- */

static void fill_lease(struct fake *fake, Leasehold__V1__Lease *lease)
{
    lease->lease_key = fake->other_key[0] != '\0' ? fake->other_key : fake->lease_key;
    lease->mode = fake->mode;
    lease->units = fake->units;
    lease->slots = fake->slots;
    lease->n_slots = fake->slot_count;
}

static void answer_acquire(struct lh_rpc_call *call)
{
    struct fake *fake = fake_of(call);
    Leasehold__V1__AcquireResponse response = LEASEHOLD__V1__ACQUIRE_RESPONSE__INIT;
    Leasehold__V1__Lease lease = LEASEHOLD__V1__LEASE__INIT;
    Google__Protobuf__Duration remaining = duration_of(fake->remaining_us), waited = duration_of(fake->waited_us);

    fill_lease(fake, &lease);
    lease.token = fake->calls[FAKE_ACQUIRE];
    lease.remaining = &remaining;
    response.lease = &lease;
    response.waited = &waited;
    send_message(call, &response.base, true);
}

static void answer_acquire_all(struct lh_rpc_call *call, size_t count)
{
    struct fake *fake = fake_of(call);
    Leasehold__V1__AcquireAllResponse response = LEASEHOLD__V1__ACQUIRE_ALL_RESPONSE__INIT;
    Leasehold__V1__Lease *leases = lh_alloc((count + 1) * sizeof(*leases)),
                         **list = lh_alloc((count + 1) * sizeof(*list));
    Google__Protobuf__Duration remaining = duration_of(fake->remaining_us), waited = duration_of(fake->waited_us);

    for (size_t i = 0; i < count; i++) {
        leasehold__v1__lease__init(&leases[i]);
        fill_lease(fake, &leases[i]);
        leases[i].token = (int64_t)(100 * fake->calls[FAKE_ACQUIRE_ALL] + i);
        leases[i].remaining = &remaining;
        list[i] = &leases[i];
    }
    response.leases = list;
    response.n_leases = count;
    response.waited = &waited;
    send_message(call, &response.base, true);
    free(list);
    free(leases);
}

static void answer_downgrade(struct lh_rpc_call *call)
{
    struct fake *fake = fake_of(call);
    Leasehold__V1__DowngradeResponse response = LEASEHOLD__V1__DOWNGRADE_RESPONSE__INIT;
    Leasehold__V1__Lease lease = LEASEHOLD__V1__LEASE__INIT;
    Google__Protobuf__Duration remaining = duration_of(fake->remaining_us), waited = duration_of(fake->waited_us);

    fill_lease(fake, &lease);
    lease.token = fake->downgraded_token;
    lease.remaining = &remaining;
    response.lease = &lease;
    response.waited = &waited;
    send_message(call, &response.base, true);
}

static void answer_heartbeat(struct lh_rpc_call *call, size_t count, bool is_last)
{
    struct fake *fake = fake_of(call);
    Leasehold__V1__HeartbeatResponse response = LEASEHOLD__V1__HEARTBEAT_RESPONSE__INIT;
    Leasehold__V1__HeartbeatResult result = LEASEHOLD__V1__HEARTBEAT_RESULT__INIT, lost = result, **results;
    Google__Protobuf__Duration remaining = duration_of(fake->remaining_us), answer_in = duration_of(20 * LH_US_PER_S);
    Google__Protobuf__Timestamp asked_at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Leasehold__V1__HandOver asked = LEASEHOLD__V1__HAND_OVER__INIT;

    asked_at.seconds = fake->hand_over_at_s;
    asked.asked_at = &asked_at;
    asked.asked_by = (char *)(void *)"worker-2";
    asked.principal = (char *)(void *)"dns:worker-2";
    asked.reason = (char *)(uintptr_t)fake->hand_over_reason;
    asked.answer_in = &answer_in;
    result.asked = fake->hand_over_at_s != 0 ? &asked : NULL;
    result.lease_key = fake->other_key;
    result.outcome = fake->heartbeat;
    result.end_reason = fake->end_reason;
    result.remaining = &remaining;
    result.token = fake->downgraded_token;
    result.units = fake->downgraded_token != 0 ? fake->units : 0;
    result.has_slots = fake->downgraded_token != 0 && fake->slot_count > 0;
    results = lh_alloc((count + 1) * sizeof(results[0]));
    lost.outcome = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    for (size_t i = 0; i < count; i++)
        results[i] = i == fake->lost_at ? &lost : &result;
    response.n_results = count;
    response.results = results;
    send_message(call, &response.base, is_last);
    free(results);
}

static void answer_refusal(struct lh_rpc_call *call)
{
    Leasehold__V1__RefuseHandOverResponse response = LEASEHOLD__V1__REFUSE_HAND_OVER_RESPONSE__INIT;

    send_message(call, &response.base, true);
}

static void answer_release(struct lh_rpc_call *call, size_t count)
{
    struct fake *fake = fake_of(call);
    Leasehold__V1__ReleaseResponse response = LEASEHOLD__V1__RELEASE_RESPONSE__INIT;
    Leasehold__V1__ReleaseResult result = LEASEHOLD__V1__RELEASE_RESULT__INIT, **results;

    result.lease_key = fake->other_key;
    result.outcome = fake->release;
    result.end_reason = fake->end_reason;
    results = lh_alloc((count + 1) * sizeof(results[0]));
    for (size_t i = 0; i < count; i++)
        results[i] = &result;
    response.n_results = count;
    response.results = results;
    fake->in_flight--;
    send_message(call, &response.base, true);
    free(results);
}

static enum fake_verb verb_of(const struct lh_rpc_call *call)
{
    return (enum fake_verb)(uintptr_t)lh_rpc_call_method(call)->arg;
}

static void answer(struct lh_rpc_call *call, size_t count)
{
    switch (verb_of(call)) {
    case FAKE_ACQUIRE:
        answer_acquire(call);
        break;
    case FAKE_ACQUIRE_ALL:
        answer_acquire_all(call, count);
        break;
    case FAKE_DOWNGRADE:
        answer_downgrade(call);
        break;
    case FAKE_REFUSE:
        answer_refusal(call);
        break;
    case FAKE_HEARTBEAT:
    case FAKE_KEEP_ALIVE:
        answer_heartbeat(call, count, verb_of(call) == FAKE_HEARTBEAT);
        break;
    default:
        answer_release(call, count);
    }
}

/* --- calls --- */

static void take_acquire(struct fake *fake, const void *data, size_t size)
{
    Leasehold__V1__AcquireRequest *request = leasehold__v1__acquire_request__unpack(NULL, size, data);

    snprintf(fake->lease_key, sizeof(fake->lease_key), "%s", request->lease_key);
    fake->has_ask_hand_over = request->ask_hand_over;
    fake->asked_mode = request->mode;
    fake->asked_units = request->units;
    fake->wait_us = request->wait == NULL ? 0 : request->wait->seconds * LH_US_PER_S + request->wait->nanos / 1000;
    leasehold__v1__acquire_request__free_unpacked(request, NULL);
}

static size_t take_acquire_all(struct fake *fake, const void *data, size_t size)
{
    Leasehold__V1__AcquireAllRequest *request = leasehold__v1__acquire_all_request__unpack(NULL, size, data);
    size_t count = request->n_items, used = 0;

    snprintf(fake->lease_key, sizeof(fake->lease_key), "%s", request->lease_key);
    fake->wait_us = request->wait == NULL ? 0 : request->wait->seconds * LH_US_PER_S + request->wait->nanos / 1000;
    for (size_t i = 0; i < count && used < sizeof(fake->asked_scopes); i++) {
        const Leasehold__V1__AcquireItem *item = request->items[i];
        used += (size_t)snprintf(fake->asked_scopes + used, sizeof(fake->asked_scopes) - used,
                                 item->units > 0 ? "%s%s*%d" : "%s%s", i > 0 ? "," : "", item->scope->key, item->units);
    }
    leasehold__v1__acquire_all_request__free_unpacked(request, NULL);
    return count;
}

static void take_downgrade(struct fake *fake, const void *data, size_t size)
{
    Leasehold__V1__DowngradeRequest *request = leasehold__v1__downgrade_request__unpack(NULL, size, data);

    snprintf(fake->lease_key, sizeof(fake->lease_key), "%s", request->lease->lease_key);
    fake->asked_units = request->units;
    leasehold__v1__downgrade_request__free_unpacked(request, NULL);
}

static void take_refusal(struct fake *fake, const void *data, size_t size)
{
    Leasehold__V1__RefuseHandOverRequest *request = leasehold__v1__refuse_hand_over_request__unpack(NULL, size, data);

    snprintf(fake->lease_key, sizeof(fake->lease_key), "%s", request->lease->lease_key);
    snprintf(fake->refusal, sizeof(fake->refusal), "%s", request->reason);
    leasehold__v1__refuse_hand_over_request__free_unpacked(request, NULL);
}

static size_t take(struct fake *fake, enum fake_verb verb, const void *data, size_t size)
{
    size_t count = 1;

    if (verb == FAKE_ACQUIRE) {
        take_acquire(fake, data, size);
    } else if (verb == FAKE_ACQUIRE_ALL) {
        count = take_acquire_all(fake, data, size);
    } else if (verb == FAKE_DOWNGRADE) {
        take_downgrade(fake, data, size);
    } else if (verb == FAKE_REFUSE) {
        take_refusal(fake, data, size);
    } else if (verb == FAKE_RELEASE) {
        Leasehold__V1__ReleaseRequest *request = leasehold__v1__release_request__unpack(NULL, size, data);
        count = request->n_items;
        leasehold__v1__release_request__free_unpacked(request, NULL);
        if (++fake->in_flight > fake->most_in_flight)
            fake->most_in_flight = fake->in_flight;
    } else {
        Leasehold__V1__HeartbeatRequest *request = leasehold__v1__heartbeat_request__unpack(NULL, size, data);
        count = request->n_leases;
        fake->is_locked = false;
        fake->lost_at = SIZE_MAX;
        for (size_t i = 0; i < count; i++) {
            fake->is_locked |= strcmp(request->leases[i]->scope->key, fake->locked) == 0;
            if (strcmp(request->leases[i]->scope->key, fake->lost) == 0)
                fake->lost_at = i;
        }
        leasehold__v1__heartbeat_request__free_unpacked(request, NULL);
    }
    if (size > fake->largest_bytes)
        fake->largest_bytes = size;
    fake->calls[verb]++;
    fake->items[verb] = count;
    return count;
}

struct later {
    struct lh_deferred deferred;
    struct fake *fake;
};

static void break_later(void *arg)
{
    struct later *later = arg;
    fake_break(later->fake);
    free(later);
}

static void on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct fake *fake = fake_of(call);
    enum fake_verb verb = verb_of(call);
    struct fake_plan *plan = &fake->plan[verb];
    size_t count = take(fake, verb, data, size);
    enum fake_deed deed = plan->times > 0 ? plan->deed : FAKE_ANSWER;
    int64_t deadline_us = call->deadline_us;
    struct later *later;

    if (fake->is_locked && deed == FAKE_ANSWER)
        deed = FAKE_KEEP;
    fake->is_locked = false;
    fake->timeout_us = deadline_us == LH_RPC_FOREVER ? INT64_MAX : deadline_us - lh_clock_us();
    plan->times -= plan->times > 0;
    lh_rpc_call_set_data(call, (void *)(uintptr_t)count);
    if ((verb == FAKE_ACQUIRE || verb == FAKE_ACQUIRE_ALL) && strcmp(fake->lease_key, fake->ended_key) == 0) {
        fail(call, LH_LEASE_ENDED);
    } else if (deed == FAKE_ANSWER) {
        answer(call, count);
    } else if (deed == FAKE_FAIL) {
        fake->in_flight -= verb == FAKE_RELEASE;
        fail(call, plan->status);
    } else if (deed == FAKE_KEEP) {
        if (fake->kept_count == sizeof(fake->kept) / sizeof(fake->kept[0]))
            abort();
        fake->kept[fake->kept_count++] = call;
    } else {
        fake->in_flight -= verb == FAKE_RELEASE;
        if (deed == FAKE_UNDO)
            memcpy(fake->ended_key, fake->lease_key, sizeof(fake->ended_key));
        later = lh_alloc_zero(1, sizeof(*later));
        later->fake = fake;
        lh_deferred_init(&later->deferred, break_later, later);
        lh_defer(fake->loop, &later->deferred);
    }
}

static void on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct fake *fake = fake_of(call);

    for (size_t i = fake->kept_count; i-- > 0;)
        if (fake->kept[i] == call) {
            fake->in_flight -= verb_of(call) == FAKE_RELEASE;
            fake->kept[i] = fake->kept[--fake->kept_count];
        }
}

static void on_half_close(struct lh_rpc_call *call)
{
    lh_rpc_call_finish(call, LH_GRPC_OK, NULL, NULL, 0);
}

void fake_let_go(struct fake *fake)
{
    while (fake->kept_count > 0) {
        struct lh_rpc_call *call = fake->kept[--fake->kept_count];
        answer(call, (size_t)(uintptr_t)lh_rpc_call_data(call));
    }
}

void fake_next(struct fake *fake, enum fake_verb verb, enum fake_deed deed, unsigned times, enum lh_status status)
{
    fake->plan[verb] = (struct fake_plan){.deed = deed, .times = times, .status = status};
}

#define SERVICE "/leasehold.v1.LeaseService/"

static void listen_at(struct fake *fake, const char *address)
{
    static const struct lh_rpc_method methods[] = {
        {SERVICE "Acquire", LH_RPC_UNARY, .on_message = on_message, .on_end = on_end, .arg = (void *)FAKE_ACQUIRE},
        {SERVICE "Heartbeat", LH_RPC_UNARY, .on_message = on_message, .on_end = on_end, .arg = (void *)FAKE_HEARTBEAT},
        {SERVICE "KeepAlive", LH_RPC_BIDI, .on_message = on_message, .on_end = on_end, .on_half_close = on_half_close,
         .arg = (void *)FAKE_KEEP_ALIVE},
        {SERVICE "Release", LH_RPC_UNARY, .on_message = on_message, .on_end = on_end, .arg = (void *)FAKE_RELEASE},
        {SERVICE "Downgrade", LH_RPC_UNARY, .on_message = on_message, .on_end = on_end, .arg = (void *)FAKE_DOWNGRADE},
        {SERVICE "AcquireAll", LH_RPC_UNARY, .on_message = on_message, .on_end = on_end,
         .arg = (void *)FAKE_ACQUIRE_ALL},
        {SERVICE "RefuseHandOver", LH_RPC_UNARY, .on_message = on_message, .on_end = on_end,
         .arg = (void *)FAKE_REFUSE},
    };
    struct lh_rpc_server_options options;
    struct lh_error error;

    lh_rpc_server_options_init(&options);
    fake->server = lh_rpc_server_create(fake->loop, &options, methods, FAKE_VERB_COUNT, fake);
    if (rpc_listen(fake->server, address, &error) != LH_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    snprintf(fake->target, sizeof(fake->target), "127.0.0.1:%d", rpc_port(fake->server));
}

void fake_listen_again(struct fake *fake)
{
    char target[sizeof(fake->target)];

    memcpy(target, fake->target, sizeof(target));
    listen_at(fake, target);
}

void fake_break(struct fake *fake)
{
    lh_rpc_server_destroy(fake->server);
    fake_listen_again(fake);
}

void fake_init(struct fake *fake, struct lh_loop *loop)
{
    *fake = (struct fake){
        .loop = loop,
        .remaining_us = 30 * LH_US_PER_S,
        .lost_at = SIZE_MAX,
        .heartbeat = LEASEHOLD__V1__OUTCOME__OUTCOME_OK,
        .release = LEASEHOLD__V1__OUTCOME__OUTCOME_OK,
    };
    listen_at(fake, "127.0.0.1:0");
}

void fake_finish(struct fake *fake)
{
    lh_rpc_server_destroy(fake->server);
}
