/*
 * etcd over its gRPC API v3. Acquire: a lease is granted, then one transaction puts the key with it if there is none.
 * Release: the lease is revoked, and the key goes with it. With --kept each name keeps one lease for the whole run: an
 * acquire is the transaction alone, a release deletes the key. Waiting: the server's own lock service.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "drive.h"
#include "etcd.pb-c.h"
#include "rpc/client.h"

#define MESSAGE_BYTES 512

struct channel {
    struct lh_rpc_channel *rpc;
    struct lh_rpc_client_call *stream;
    /* Keep-alives are answered in order: a ring of the batches that wait, grown as need be. */
    struct batch **streamed;
    size_t first, count, capacity;
};

struct state {
    struct channel *channels;
    size_t granted;
    bool is_there, is_refused;
};

static struct channel *channel_of(const struct slot *slot)
{
    struct state *state = slot->drive->state;
    return &state->channels[slot->number % slot->drive->channels];
}

/* A lease's number, ours to choose: of the run, the name, and (unless it is kept) the acquisition. */
static int64_t lease_of(const struct slot *slot)
{
    uint64_t generation = slot->drive->is_kept || slot->drive->is_hot ? 1 : slot->generation & 0xffffff;
    return (int64_t)((uint64_t)(slot->drive->run & 0x3fff) << 48 | (uint64_t)(slot->number & 0xffffff) << 24 |
                     generation) +
           1;
}

static ProtobufCBinaryData binary(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

static void call(struct slot *slot, const char *path, const ProtobufCMessage *message, lh_rpc_done_cb *on_done)
{
    uint8_t bytes[MESSAGE_BYTES];
    size_t size = protobuf_c_message_get_packed_size(message);

    if (size > sizeof(bytes))
        drive_die("etcd: a message of %zu bytes", size);
    protobuf_c_message_pack(message, bytes);
    lh_rpc_client_call_unary(channel_of(slot)->rpc, path, bytes, size, LH_RPC_FOREVER, on_done, slot);
}

static void check(const struct lh_rpc_result *result, const char *what)
{
    if (result->code != LH_GRPC_OK)
        drive_die("etcd: %s: %s (code %d)", what, result->message, (int)result->code);
}

static void on_put(void *arg, const struct lh_rpc_result *result)
{
    struct slot *slot = arg;
    Etcd__TxnResponse *response;

    check(result, "the transaction");
    response = etcd__txn_response__unpack(NULL, result->reply_size, result->reply);
    if (response == NULL || !response->succeeded)
        drive_die("etcd: a key that should be free is not");
    etcd__txn_response__free_unpacked(response, NULL);
    slot->drive->on_acquired(slot);
}

static void put_if_absent(struct slot *slot)
{
    Etcd__TxnRequest request = ETCD__TXN_REQUEST__INIT;
    Etcd__Compare compare = ETCD__COMPARE__INIT, *compares[1] = {&compare};
    Etcd__RequestOp op = ETCD__REQUEST_OP__INIT, *ops[1] = {&op};
    Etcd__PutRequest put = ETCD__PUT_REQUEST__INIT;
    char key[DRIVE_KEY_BYTES], value[DRIVE_CREDENTIAL_BYTES];

    drive_key(slot, key);
    drive_credential(slot, value);
    compare.target = ETCD__COMPARE__TARGET__CREATE;
    compare.key = binary(key);
    compare.target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
    put.key = binary(key);
    put.value = binary(value);
    put.lease = lease_of(slot);
    op.request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
    op.request_put = &put;
    request.n_compare = request.n_success = 1;
    request.compare = compares;
    request.success = ops;
    call(slot, "/etcdserverpb.KV/Txn", &request.base, on_put);
}

static void check_granted(struct slot *slot, const struct lh_rpc_result *result)
{
    Etcd__LeaseGrantResponse *response;

    check(result, "the grant of a lease");
    response = etcd__lease_grant_response__unpack(NULL, result->reply_size, result->reply);
    if (response == NULL || response->id != lease_of(slot) || response->ttl < slot->drive->duration_s)
        drive_die("etcd: the lease is not the one that was asked for");
    etcd__lease_grant_response__free_unpacked(response, NULL);
}

static void on_granted(void *arg, const struct lh_rpc_result *result)
{
    check_granted(arg, result);
    put_if_absent(arg);
}

static void grant(struct slot *slot, lh_rpc_done_cb *on_done)
{
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    request.id = lease_of(slot);
    request.ttl = slot->drive->duration_s;
    call(slot, "/etcdserverpb.Lease/LeaseGrant", &request.base, on_done);
}

static void on_locked(void *arg, const struct lh_rpc_result *result)
{
    struct slot *slot = arg;
    Etcd__LockResponse *response;

    check(result, "the lock");
    response = etcd__lock_response__unpack(NULL, result->reply_size, result->reply);
    if (response == NULL || response->key.len == 0 || response->key.len > MESSAGE_BYTES / 2)
        drive_die("etcd: a lock without a key");
    free(slot->credential);
    slot->credential = lh_format("%.*s", (int)response->key.len, (const char *)response->key.data);
    etcd__lock_response__free_unpacked(response, NULL);
    slot->drive->on_acquired(slot);
}

static void acquire(struct slot *slot, bool wait)
{
    Etcd__LockRequest request = ETCD__LOCK_REQUEST__INIT;
    char name[DRIVE_KEY_BYTES];

    slot->generation++;
    if (slot->drive->is_hot) {
        drive_key(slot, name);
        request.name = binary(name);
        request.lease = lease_of(slot);
        call(slot, "/v3lockpb.Lock/Lock", &request.base, on_locked);
    } else if (slot->drive->is_kept) {
        put_if_absent(slot);
    } else {
        grant(slot, on_granted);
    }
}

static void on_released(void *arg, const struct lh_rpc_result *result)
{
    struct slot *slot = arg;
    check(result, "the release");
    slot->drive->on_released(slot);
}

static void on_deleted(void *arg, const struct lh_rpc_result *result)
{
    struct slot *slot = arg;
    Etcd__DeleteRangeResponse *response;

    check(result, "the deletion");
    response = etcd__delete_range_response__unpack(NULL, result->reply_size, result->reply);
    if (response == NULL || response->deleted != 1)
        drive_die("etcd: the key was not there to be deleted");
    etcd__delete_range_response__free_unpacked(response, NULL);
    slot->drive->on_released(slot);
}

static void release(struct slot *slot)
{
    Etcd__UnlockRequest unlock = ETCD__UNLOCK_REQUEST__INIT;
    Etcd__DeleteRangeRequest deletion = ETCD__DELETE_RANGE_REQUEST__INIT;
    Etcd__LeaseRevokeRequest revocation = ETCD__LEASE_REVOKE_REQUEST__INIT;
    char key[DRIVE_KEY_BYTES];

    if (slot->drive->is_hot) {
        unlock.key = binary(slot->credential);
        call(slot, "/v3lockpb.Lock/Unlock", &unlock.base, on_released);
    } else if (slot->drive->is_kept) {
        drive_key(slot, key);
        deletion.key = binary(key);
        call(slot, "/etcdserverpb.KV/DeleteRange", &deletion.base, on_deleted);
    } else {
        revocation.id = lease_of(slot);
        call(slot, "/etcdserverpb.Lease/LeaseRevoke", &revocation.base, on_released);
    }
}

static void on_kept_alive(void *arg, const void *data, size_t size)
{
    struct channel *channel = arg;
    struct batch *batch = channel->streamed[channel->first];
    Etcd__LeaseKeepAliveResponse *response = etcd__lease_keep_alive_response__unpack(NULL, size, data);

    if (channel->count == 0 || response == NULL || response->ttl <= 0 ||
        response->id != lease_of(&batch->drive->slots[batch->first + batch->answered]))
        drive_die("etcd: a lease was not kept alive");
    etcd__lease_keep_alive_response__free_unpacked(response, NULL);
    if (++batch->answered < batch->count)
        return;
    channel->first = (channel->first + 1) % channel->capacity;
    channel->count--;
    batch->drive->on_renewed(batch);
}

static void on_stream_done(void *arg, const struct lh_rpc_result *result)
{
    drive_die("etcd: a stream has ended: %s", result->message);
}

static void renew(struct batch *batch)
{
    static const struct lh_rpc_stream_callbacks callbacks = {on_kept_alive, NULL, on_stream_done};
    struct state *state = batch->drive->state;
    struct channel *channel = &state->channels[batch->lane % batch->drive->channels];

    if (channel->stream == NULL) {
        channel->stream = lh_rpc_client_call_start(channel->rpc, "/etcdserverpb.Lease/LeaseKeepAlive", LH_RPC_FOREVER,
                                                   NULL, 0, &callbacks, channel);
        channel->capacity = batch->drive->clients + 1;
        channel->streamed = lh_alloc_zero(channel->capacity, sizeof(*channel->streamed));
    }
    if (channel->count == channel->capacity)
        drive_die("more batches in flight than clients");
    channel->streamed[(channel->first + channel->count++) % channel->capacity] = batch;
    for (size_t i = 0; i < batch->count; i++) {
        Etcd__LeaseKeepAliveRequest request = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
        uint8_t bytes[32];
        request.id = lease_of(&batch->drive->slots[batch->first + i]);
        if (lh_rpc_client_call_send(channel->stream, bytes, etcd__lease_keep_alive_request__pack(&request, bytes)) !=
            LH_OK)
            drive_die("etcd: a stream takes no more");
    }
}

static void on_kept_granted(void *arg, const struct lh_rpc_result *result)
{
    struct slot *slot = arg;
    struct state *state = slot->drive->state;

    check_granted(slot, result);
    state->granted++;
    state->is_there = state->granted == slot->drive->slot_count;
}

static void on_first(void *arg, const struct lh_rpc_result *result)
{
    struct drive *drive = arg;
    struct state *state = drive->state;

    state->is_there = true;
    state->is_refused = result->code != LH_GRPC_OK;
    if (state->is_refused && !drive->is_patient)
        check(result, "the first call");
}

static void open_channels(struct drive *drive)
{
    struct state *state = lh_alloc_zero(1, sizeof(*state));
    struct lh_rpc_channel_options options;
    struct lh_error error;

    drive->state = state;
    state->channels = lh_alloc_zero(drive->channels, sizeof(*state->channels));
    lh_rpc_channel_options_init(&options);
    options.max_calls = 1000000;
    options.keepalive_us = 0;
    for (size_t i = 0; i < drive->channels; i++) {
        state->channels[i].rpc = lh_rpc_channel_create(drive->loop, drive->target, &options, &error);
        if (state->channels[i].rpc == NULL)
            drive_die("etcd: %s", error.message);
    }
    do {
        if (state->is_refused)
            drive_run_for(drive, LH_US_PER_MS);
        state->is_there = false;
        lh_rpc_client_call_unary(state->channels[0].rpc, "/etcdserverpb.Lease/LeaseLeases", "", 0, LH_RPC_FOREVER,
                                 on_first, drive);
        drive_run_until(drive, &state->is_there, 60 * LH_US_PER_S, "etcd");
    } while (state->is_refused);
    if (!drive->is_kept && !drive->is_hot)
        return;
    state->is_there = false;
    for (size_t i = 0; i < drive->slot_count; i++)
        grant(&drive->slots[i], on_kept_granted);
    drive_run_until(drive, &state->is_there, 120 * LH_US_PER_S, "the leases that are kept");
}

const struct peer peer_etcd = {
    .name = "etcd", .open = open_channels, .acquire = acquire, .release = release, .renew = renew};
