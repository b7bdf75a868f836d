/*
 * Leasehold over gRPC, as any client speaks it: each acquire is a unary call with a lease key that the client chose; a
 * release is a unary call, or (--batched) one call at a time carries all that became due meanwhile, as libleasehold
 * does. Renewals: Heartbeat, or (--stream) KeepAlive with a stream for each connection.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "drive.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "rpc/client/client_internal.h"

#define SERVICE "/leasehold.v1.LeaseService/"
/* What the server takes of a stream before it has answered: 16 batches. */
#define STREAM_BATCHES 16

struct channel {
    struct lh_rpc_channel *rpc;
    struct lh_rpc_client_call *stream;
    struct batch *streamed[STREAM_BATCHES]; /* a ring: their answers come in this order */
    size_t streamed_first, streamed_count;
    struct slot **due, **going; /* releases */
    size_t due_count, due_capacity, going_count, going_capacity;
    bool is_sending;
    struct lh_deferred send;
};

struct state {
    struct channel *channels;
    struct lh_buffer scratch;
    bool is_told;
    size_t waiters;
};

/* A reference to a lease, with the memory that it points into. */
struct reference {
    Leasehold__V1__LeaseRef lease;
    Leasehold__V1__Scope scope;
    char *segments[1];
    char key[DRIVE_KEY_BYTES];
    char lease_key[DRIVE_CREDENTIAL_BYTES];
};

static struct channel *channel_of(struct slot *slot)
{
    struct state *state = slot->drive->state;
    return &state->channels[slot->number % slot->drive->channels];
}

static void refer(struct reference *reference, const struct slot *slot)
{
    leasehold__v1__scope__init(&reference->scope);
    leasehold__v1__lease_ref__init(&reference->lease);
    reference->segments[0] = slot->drive->ns;
    reference->scope.n_namespace_ = 1;
    reference->scope.namespace_ = reference->segments;
    drive_key(slot, reference->key);
    drive_credential(slot, reference->lease_key);
    reference->scope.key = reference->key;
    reference->lease.scope = &reference->scope;
    reference->lease.lease_key = reference->lease_key;
}

static const void *pack(struct state *state, const ProtobufCMessage *message, size_t *size)
{
    state->scratch.size = 0;
    *size = protobuf_c_message_pack(message,
                                    lh_buffer_reserve(&state->scratch, protobuf_c_message_get_packed_size(message)));
    return state->scratch.data;
}

static void check(const struct lh_rpc_result *result, const char *what)
{
    if (result->code != LH_GRPC_OK)
        drive_die("leasehold: %s: %s (code %d)", what, result->message, (int)result->code);
}

static void on_acquire(void *arg, const struct lh_rpc_result *result)
{
    struct slot *slot = arg;
    Leasehold__V1__AcquireResponse *response;
    char lease_key[DRIVE_CREDENTIAL_BYTES];

    check(result, "acquire");
    response = leasehold__v1__acquire_response__unpack(NULL, result->reply_size, result->reply);
    drive_credential(slot, lease_key);
    if (response == NULL || response->lease == NULL || response->lease->token <= slot->token ||
        strcmp(response->lease->lease_key, lease_key) != 0)
        drive_die("leasehold: the answer of an acquire is not the lease that was asked for, with a larger token");
    slot->token = response->lease->token;
    leasehold__v1__acquire_response__free_unpacked(response, NULL);
    slot->drive->on_acquired(slot);
}

static void acquire(struct slot *slot, bool wait)
{
    Leasehold__V1__AcquireRequest request = LEASEHOLD__V1__ACQUIRE_REQUEST__INIT;
    Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;
    struct reference reference;
    const void *bytes;
    size_t size;

    slot->generation++;
    refer(&reference, slot);
    duration.seconds = slot->drive->duration_s;
    request.scope = &reference.scope;
    request.lease_key = reference.lease_key;
    request.duration = &duration;
    request.wait_forever = wait;
    request.owner = (char *)"bench";
    if (slot->drive->units > 0) {
        request.mode = LEASEHOLD__V1__MODE__MODE_SHARED;
        request.units = (int32_t)slot->drive->units;
    }
    bytes = pack(slot->drive->state, &request.base, &size);
    lh_rpc_client_call_unary(channel_of(slot)->rpc, SERVICE "Acquire", bytes, size, LH_RPC_FOREVER, on_acquire, slot);
}

static Leasehold__V1__ReleaseResponse *released(const struct lh_rpc_result *result, size_t count)
{
    Leasehold__V1__ReleaseResponse *response;

    check(result, "release");
    response = leasehold__v1__release_response__unpack(NULL, result->reply_size, result->reply);
    if (response == NULL || response->n_results != count)
        drive_die("leasehold: a release was not answered");
    for (size_t i = 0; i < count; i++)
        if (response->results[i]->outcome != LEASEHOLD__V1__OUTCOME__OUTCOME_OK)
            drive_die("leasehold: a release was not OK: %d %s", (int)response->results[i]->outcome,
                      response->results[i]->message);
    return response;
}

static void on_release(void *arg, const struct lh_rpc_result *result)
{
    struct slot *slot = arg;
    leasehold__v1__release_response__free_unpacked(released(result, 1), NULL);
    slot->drive->on_released(slot);
}

static void send_releases(struct slot **slots, size_t count, lh_rpc_done_cb *on_done, void *arg)
{
    Leasehold__V1__ReleaseRequest request = LEASEHOLD__V1__RELEASE_REQUEST__INIT;
    Leasehold__V1__ReleaseItem *items = lh_alloc(count * sizeof(*items));
    Leasehold__V1__ReleaseItem **list = lh_alloc(count * sizeof(struct reference *));
    struct reference *references = lh_alloc(count * sizeof(*references));
    const void *bytes;
    size_t size;

    for (size_t i = 0; i < count; i++) {
        refer(&references[i], slots[i]);
        leasehold__v1__release_item__init(&items[i]);
        items[i].lease = &references[i].lease;
        list[i] = &items[i];
    }
    request.n_items = count;
    request.items = list;
    bytes = pack(slots[0]->drive->state, &request.base, &size);
    lh_rpc_client_call_unary(channel_of(slots[0])->rpc, SERVICE "Release", bytes, size, LH_RPC_FOREVER, on_done, arg);
    free(items);
    free(list);
    free(references);
}

static void on_set_released(void *arg, const struct lh_rpc_result *result)
{
    struct channel *channel = arg;
    struct drive *drive = channel->going[0]->drive;

    leasehold__v1__release_response__free_unpacked(released(result, channel->going_count), NULL);
    channel->is_sending = false;
    lh_defer(drive->loop, &channel->send);
    for (size_t i = 0; i < channel->going_count; i++)
        drive->on_released(channel->going[i]);
}

static void send_due(void *arg)
{
    struct channel *channel = arg;
    struct slot **going = channel->due;
    size_t capacity = channel->due_capacity;

    if (channel->is_sending || channel->due_count == 0)
        return;
    channel->due = channel->going;
    channel->due_capacity = channel->going_capacity;
    channel->going = going;
    channel->going_capacity = capacity;
    channel->going_count = channel->due_count;
    channel->due_count = 0;
    channel->is_sending = true;
    send_releases(channel->going, channel->going_count, on_set_released, channel);
}

static void release(struct slot *slot)
{
    struct channel *channel = channel_of(slot);

    if (!slot->drive->is_batched) {
        send_releases(&slot, 1, on_release, slot);
        return;
    }
    if (channel->due_count == channel->due_capacity) {
        channel->due_capacity = channel->due_capacity == 0 ? 256 : channel->due_capacity * 2;
        channel->due = lh_realloc(channel->due, channel->due_capacity, sizeof(struct slot *));
    }
    channel->due[channel->due_count++] = slot;
    lh_defer(slot->drive->loop, &channel->send);
}

static void check_renewed(const struct batch *batch, const void *reply, size_t size)
{
    Leasehold__V1__HeartbeatResponse *response = leasehold__v1__heartbeat_response__unpack(NULL, size, reply);

    if (response == NULL || response->n_results != batch->count)
        drive_die("leasehold: a heartbeat was not answered");
    for (size_t i = 0; i < batch->count; i++)
        if (response->results[i]->outcome != LEASEHOLD__V1__OUTCOME__OUTCOME_OK)
            drive_die("leasehold: a heartbeat was not OK: %d %s", (int)response->results[i]->outcome,
                      response->results[i]->message);
    leasehold__v1__heartbeat_response__free_unpacked(response, NULL);
}

static void on_heartbeat(void *arg, const struct lh_rpc_result *result)
{
    struct batch *batch = arg;
    check(result, "heartbeat");
    check_renewed(batch, result->reply, result->reply_size);
    batch->drive->on_renewed(batch);
}

static void on_streamed(void *arg, const void *data, size_t size)
{
    struct channel *channel = arg;
    struct batch *batch = channel->streamed[channel->streamed_first];

    if (channel->streamed_count-- == 0)
        drive_die("leasehold: an answer too many on a stream");
    channel->streamed_first = (channel->streamed_first + 1) % STREAM_BATCHES;
    check_renewed(batch, data, size);
    batch->drive->on_renewed(batch);
}

static void on_stream_done(void *arg, const struct lh_rpc_result *result)
{
    drive_die("leasehold: a stream has ended: %s", result->message);
}

static void send_heartbeats(struct batch *batch, struct channel *channel, const void *bytes, size_t size)
{
    static const struct lh_rpc_stream_callbacks callbacks = {on_streamed, NULL, on_stream_done};

    if (!batch->drive->is_stream) {
        lh_rpc_client_call_unary(channel->rpc, SERVICE "Heartbeat", bytes, size, LH_RPC_FOREVER, on_heartbeat, batch);
        return;
    }
    if (channel->stream == NULL)
        channel->stream =
            lh_rpc_client_call_start(channel->rpc, SERVICE "KeepAlive", LH_RPC_FOREVER, NULL, 0, &callbacks, channel);
    if (channel->streamed_count == STREAM_BATCHES)
        drive_die("more batches in flight than a stream takes: use more connections");
    channel->streamed[(channel->streamed_first + channel->streamed_count++) % STREAM_BATCHES] = batch;
    if (lh_rpc_client_call_send(channel->stream, bytes, size) != LH_OK)
        drive_die("leasehold: a stream takes no more");
}

static void renew(struct batch *batch)
{
    struct state *state = batch->drive->state;
    Leasehold__V1__HeartbeatRequest request = LEASEHOLD__V1__HEARTBEAT_REQUEST__INIT;
    Leasehold__V1__LeaseRef **list = lh_alloc(batch->count * sizeof(struct reference *));
    struct reference *references = lh_alloc(batch->count * sizeof(*references));
    const void *bytes;
    size_t size;

    for (size_t i = 0; i < batch->count; i++) {
        refer(&references[i], &batch->drive->slots[batch->first + i]);
        list[i] = &references[i].lease;
    }
    request.n_leases = batch->count;
    request.leases = list;
    bytes = pack(state, &request.base, &size);
    send_heartbeats(batch, &state->channels[batch->lane % batch->drive->channels], bytes, size);
    free(list);
    free(references);
}

static void on_status(void *arg, const struct lh_rpc_result *result)
{
    struct state *state = arg;
    Leasehold__V1__GetStatusResponse *response;

    state->is_told = true;
    state->waiters = SIZE_MAX;
    if (result->code != LH_GRPC_OK)
        return;
    response = leasehold__v1__get_status_response__unpack(NULL, result->reply_size, result->reply);
    if (response == NULL)
        drive_die("leasehold: no status");
    if (response->trouble[0] == '\0') /* it serves */
        state->waiters = (size_t)response->waiters;
    leasehold__v1__get_status_response__free_unpacked(response, NULL);
}

static void ask_status(struct drive *drive, size_t channel)
{
    struct state *state = drive->state;
    state->is_told = false;
    lh_rpc_client_call_unary(state->channels[channel].rpc, "/leasehold.v1.AdminService/GetStatus", "", 0,
                             LH_RPC_FOREVER, on_status, state);
    drive_run_until(drive, &state->is_told, 300 * LH_US_PER_S, "the daemon's status");
}

/* The number is of those the daemon knows; those last come are in the database when a moment has passed. */
static void await_waiters(struct drive *drive, size_t waiters)
{
    struct state *state = drive->state;
    int64_t end_us = lh_clock_us() + 600 * LH_US_PER_S;

    do {
        drive_run_for(drive, 100 * LH_US_PER_MS);
        ask_status(drive, 0);
        if (lh_clock_us() > end_us)
            drive_die("leasehold: %zu waiters of %zu came", state->waiters, waiters);
    } while (state->waiters != waiters);
    drive_run_for(drive, LH_US_PER_S + (int64_t)waiters * 50);
}

static void open_channels(struct drive *drive)
{
    struct state *state = lh_alloc_zero(1, sizeof(*state));
    /* As the library reads it. */
    const struct lh_rpc_tls tls = {
        .ca_file = getenv("LEASEHOLD_CA"), .cert_file = getenv("LEASEHOLD_CERT"), .key_file = getenv("LEASEHOLD_KEY")};
    struct lh_rpc_channel_options options;
    struct lh_error error;

    drive->state = state;
    state->channels = lh_alloc_zero(drive->channels, sizeof(*state->channels));
    lh_rpc_channel_options_init(&options);
    options.max_calls = 1000000;
    options.keepalive_us = 0;
    options.tls = tls.ca_file != NULL ? &tls : NULL;
    for (size_t i = 0; i < drive->channels; i++) {
        struct channel *channel = &state->channels[i];
        channel->rpc = lh_rpc_channel_create(drive->loop, drive->target, &options, &error);
        if (channel->rpc == NULL)
            drive_die("leasehold: %s", error.message);
        lh_deferred_init(&channel->send, send_due, channel);
        if (drive->channels <= 1000)
            lh_rpc_channel_want_connection(channel->rpc);
        if (i % 32 == 31 && drive->channels <= 1000)
            ask_status(drive, i); /* of one address the daemon takes 64 whose handshake is not finished */
    }
    do {
        if (state->waiters == SIZE_MAX)
            drive_run_for(drive, LH_US_PER_MS);
        ask_status(drive, 0);
    } while (drive->is_patient && state->waiters == SIZE_MAX);
    if (state->waiters == SIZE_MAX)
        drive_die("leasehold: no daemon serves at %s", drive->target);
}

const struct peer peer_leasehold = {.name = "leasehold",
                                    .open = open_channels,
                                    .acquire = acquire,
                                    .release = release,
                                    .renew = renew,
                                    .await_waiters = await_waiters};
