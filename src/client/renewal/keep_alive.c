#include "client/batches_internal.h"

#include <stdlib.h>

#include "client/client.h"

#define PATH "/leasehold.v1.LeaseService/KeepAlive"
#define TIME_PARTS 4 /* of a batch's time: after one of them it goes another way too */
#define FAILED_PAUSE_US LH_US_PER_S
#define ROUNDS_OWED_MAX 64

struct owed {
    struct lh_link link;
    struct lease_batch batch;
    int64_t sent_us;
    int64_t hedge_us; /* not answered then, it goes another way too */
    int64_t until_us; /* not answered then, the stream is given up */
    bool is_hedged;
};

struct keep_alive_stream {
    struct lh_link link;
    struct keep_alive *keep_alive;
    struct endpoint *endpoint;
    uint64_t ticket; /* BREAKER_OPEN: settled */
    struct lh_rpc_client_call *call;
    struct lh_link owed; /* the oldest first */
    size_t owed_count;
    struct lh_timer timer;
    bool is_late; /* cancelled because an answer did not come */
};

static struct owed *oldest(const struct keep_alive_stream *stream)
{
    return LH_LIST_FIRST(struct owed, &stream->owed, link);
}

static void forget(struct keep_alive_stream *stream, struct owed *owed)
{
    lh_list_remove(&owed->link);
    stream->owed_count--;
    lh_lease_batch_finish(&owed->batch);
    free(owed);
}

static void settle(struct keep_alive_stream *stream, enum breaker_result result)
{
    if (stream->ticket != BREAKER_OPEN)
        lh_breaker_settle(&stream->endpoint->breaker, stream->ticket, result, lh_clock_us());
    stream->ticket = BREAKER_OPEN;
}

static void watch(struct keep_alive_stream *stream)
{
    const struct owed *owed = oldest(stream);

    if (owed != NULL)
        lh_timer_arm_at_us(&stream->timer, owed->is_hedged ? owed->until_us : owed->hedge_us);
    else
        lh_timer_cancel(&stream->timer);
}

/* Takes no more batches. */
static void retire(struct keep_alive_stream *stream)
{
    if (stream->keep_alive->stream == stream)
        stream->keep_alive->stream = NULL;
}

static void give_up(struct keep_alive_stream *stream)
{
    struct keep_alive *keep_alive = stream->keep_alive;

    retire(stream);
    stream->is_late = true;
    keep_alive->not_before_us = lh_clock_us() + FAILED_PAUSE_US;
    if (stream->call != NULL)
        lh_rpc_client_call_cancel(stream->call);
}

/*
 * One lease whose row is locked by somebody keeps the answer of its whole batch back, and those behind it. So a late
 * batch goes out again in pieces, each a call of its own; the answer still counts when it comes.
 */
static void hedge(struct keep_alive_stream *stream)
{
    struct lh_client *client = stream->keep_alive->client;

    if (client->endpoints.count > 1)
        lh_endpoints_leave(&client->endpoints, stream->endpoint);
    LH_LIST_EACH(struct owed, owed, &stream->owed, link) {
        if (owed->is_hedged)
            continue;
        owed->is_hedged = true;
        lh_renewals_hedge(&client->renewals, &owed->batch, owed->sent_us, owed->until_us);
    }
}

static void on_late(void *arg)
{
    struct keep_alive_stream *stream = arg;

    lh_leases_look_at_clock(stream->keep_alive->client);
    if (oldest(stream) == NULL)
        return;
    if (!oldest(stream)->is_hedged) {
        hedge(stream);
        watch(stream);
        return;
    }
    lh_info("renewals are not answered any more endpoint=%s", stream->endpoint->target);
    give_up(stream);
}

static void on_message(void *arg, const void *data, size_t size)
{
    struct keep_alive_stream *stream = arg;
    struct lh_client *client = stream->keep_alive->client;
    struct owed *owed = oldest(stream);
    Leasehold__V1__HeartbeatResponse *response;

    lh_leases_look_at_clock(client);
    settle(stream, BREAKER_SUCCEEDED);
    if (owed == NULL || stream->is_late) { /* an answer to nothing: whose the next ones are nobody knows */
        give_up(stream);
        return;
    }
    response = leasehold__v1__heartbeat_response__unpack(NULL, size, data);
    if (response == NULL || !lh_renewals_answer(&client->renewals, &owed->batch, owed->sent_us, response))
        give_up(stream);
    else
        forget(stream, owed);
    leasehold__v1__heartbeat_response__free_unpacked(response, NULL);
    watch(stream);
}

/* It failed, or was ended by the server: what tells whether another endpoint may do better. */
static void note_end(struct keep_alive_stream *stream, const struct lh_rpc_result *result)
{
    struct keep_alive *keep_alive = stream->keep_alive;

    settle(stream, lh_breaker_result_of(result->delivery, result->code));
    if (result->code == LH_GRPC_OK || stream->is_late)
        return;
    lh_debug("stream of renewals ended endpoint=%s: %s", stream->endpoint->target, result->message);
    if (result->code == LH_GRPC_UNIMPLEMENTED)
        keep_alive->refused = stream->endpoint;
    else if (keep_alive->client->endpoints.count > 1)
        lh_endpoints_leave(&keep_alive->client->endpoints, stream->endpoint);
}

static void on_done(void *arg, const struct lh_rpc_result *result)
{
    struct keep_alive_stream *stream = arg;
    struct lh_client *client = stream->keep_alive->client;
    struct owed *owed;

    stream->call = NULL;
    lh_leases_look_at_clock(client);
    retire(stream);
    note_end(stream, result);
    while ((owed = oldest(stream)) != NULL) {
        if (!owed->is_hedged)
            lh_renewals_call(&client->renewals, &owed->batch, owed->until_us);
        forget(stream, owed);
    }
    lh_timer_finish(&stream->timer);
    lh_list_remove(&stream->link);
    free(stream);
    lh_client_settle(client);
}

static void open_stream(struct keep_alive *keep_alive)
{
    static const struct lh_rpc_stream_callbacks callbacks = {.on_message = on_message, .on_done = on_done};
    struct lh_client *client = keep_alive->client;
    int64_t now_us = lh_clock_us();
    struct keep_alive_stream *stream;
    struct endpoint *endpoint;
    uint64_t ticket;

    if (now_us < keep_alive->not_before_us)
        return;
    endpoint = lh_endpoints_admit(&client->endpoints, client->endpoints.current, now_us, &ticket);
    if (endpoint == NULL)
        return;
    stream = lh_alloc_zero(1, sizeof(*stream));
    stream->keep_alive = keep_alive;
    stream->endpoint = endpoint;
    stream->ticket = ticket;
    lh_list_init(&stream->owed);
    lh_timer_init(&stream->timer, client->loop, on_late, stream);
    if (endpoint != keep_alive->refused)
        stream->call = lh_rpc_client_call_start(endpoint->channel, PATH, LH_RPC_FOREVER, NULL, 0, &callbacks, stream);
    if (stream->call == NULL) {
        settle(stream, BREAKER_SAID_NOTHING);
        free(stream);
        return;
    }
    lh_list_append(&keep_alive->streams, &stream->link);
    keep_alive->stream = stream;
}

/* The stream to the endpoint that is current now, or NULL. */
static struct keep_alive_stream *current_stream(struct keep_alive *keep_alive)
{
    struct endpoints *endpoints = &keep_alive->client->endpoints;
    struct keep_alive_stream *stream = keep_alive->stream;

    if (stream != NULL && lh_endpoints_index(endpoints, stream->endpoint) != endpoints->current)
        lh_keep_alive_rest(keep_alive);
    if (keep_alive->stream == NULL)
        open_stream(keep_alive);
    stream = keep_alive->stream;
    if (stream == NULL || stream->owed_count >= ROUNDS_OWED_MAX)
        return NULL;
    return oldest(stream) != NULL && oldest(stream)->is_hedged ? NULL : stream;
}

bool lh_keep_alive_send(struct keep_alive *keep_alive, struct lease_batch *batch, int64_t until_us)
{
    struct keep_alive_stream *stream = current_stream(keep_alive);
    int64_t sent_us = lh_clock_us(); /* before it goes out: what is renewed counts from no later than that */
    struct lh_buffer message = {0};
    struct owed *owed;
    enum lh_status status;

    if (stream == NULL)
        return false;
    lh_renewals_pack(keep_alive->client, batch, &message);
    if (batch->count == 0) { /* all were released in this instant */
        lh_buffer_finish(&message);
        return true;
    }
    status = lh_rpc_client_call_send(stream->call, message.data, message.size);
    lh_buffer_finish(&message);
    if (status != LH_OK)
        return false;
    atomic_fetch_add_explicit(&keep_alive->client->counts.rpcs, 1, memory_order_relaxed);
    owed = lh_alloc_zero(1, sizeof(*owed));
    owed->batch = *batch;
    *batch = (struct lease_batch){0};
    owed->sent_us = sent_us;
    owed->until_us = until_us;
    owed->hedge_us = owed->sent_us + (until_us - owed->sent_us) / TIME_PARTS;
    if (owed->hedge_us > owed->sent_us + keep_alive->client->timeout_us)
        owed->hedge_us = owed->sent_us + keep_alive->client->timeout_us;
    lh_list_append(&stream->owed, &owed->link);
    stream->owed_count++;
    watch(stream);
    return true;
}

void lh_keep_alive_rest(struct keep_alive *keep_alive)
{
    struct keep_alive_stream *stream = keep_alive->stream;

    if (stream == NULL)
        return;
    retire(stream);
    lh_rpc_client_call_half_close(stream->call);
}

void lh_keep_alive_stop(struct keep_alive *keep_alive)
{
    LH_LIST_EACH(struct keep_alive_stream, stream, &keep_alive->streams, link) {
        retire(stream);
        while (oldest(stream) != NULL)
            forget(stream, oldest(stream));
        lh_timer_cancel(&stream->timer);
        lh_rpc_client_call_cancel(stream->call);
    }
}
