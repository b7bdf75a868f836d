/*
 * A call: pack the request, start it on the channel, run the loop until its answer is there. A caught signal cancels
 * the call and the answer is CANCELLED; the loop then stays as it is, for the reset that takes a waiter out of its
 * queue leaves with the next turns, at the latest when the connection closes.
 */
#include "client/caller.h"

#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/endpoints.h"
#include "loop/loop.h"

#define BACKOFF_FIRST_US (50 * LH_US_PER_MS)
#define BACKOFF_MAX_US LH_US_PER_S
#define RETRY_AFTER_MAX_US (10 * LH_US_PER_S)

struct lh_caller {
    struct lh_loop *loop;
    struct endpoints endpoints;
    struct lh_timer nap;

    struct lh_rpc_client_call *call; /* the one going on, or NULL */
    const ProtobufCMessageDescriptor *output;
    struct lh_reply *reply;
    lh_caller_message_cb *on_message; /* of a stream */
    void *on_message_arg;

    bool catches_signals;
    struct lh_signal interrupt;
    struct lh_signal terminate;
    int signal; /* caught and not taken yet */
};

static void on_nap_over(void *arg)
{
    struct lh_caller *caller = arg;
    lh_loop_stop(caller->loop);
}

struct lh_caller *lh_caller_create(const char *targets, const struct lh_client_tls *tls, struct lh_error *error)
{
    const struct lh_client_options options = {.endpoints = targets, .tls = tls};
    struct lh_caller *caller = lh_alloc_zero(1, sizeof(*caller));

    caller->loop = lh_loop_create();
    if (caller->loop == NULL) {
        lh_error_set(error, LH_INTERNAL, "no event loop: too many files are open");
        free(caller);
        return NULL;
    }
    lh_timer_init(&caller->nap, caller->loop, on_nap_over, caller);
    if (lh_endpoints_init(&caller->endpoints, caller->loop, &options, error) != LH_OK) {
        lh_caller_destroy(caller);
        return NULL;
    }
    return caller;
}

void lh_caller_destroy(struct lh_caller *caller)
{
    if (caller == NULL)
        return;
    lh_endpoints_finish(&caller->endpoints);
    if (caller->catches_signals) {
        lh_signal_finish(&caller->interrupt);
        lh_signal_finish(&caller->terminate);
    }
    lh_timer_finish(&caller->nap);
    lh_loop_destroy(caller->loop);
    free(caller);
}

static void on_signal(void *arg, int number)
{
    struct lh_caller *caller = arg;

    caller->signal = number;
    if (caller->call != NULL)
        lh_rpc_client_call_cancel(caller->call);
    else
        lh_loop_stop(caller->loop);
}

void lh_caller_catch_signals(struct lh_caller *caller)
{
    if (caller->catches_signals)
        return;
    caller->catches_signals = true;
    lh_signal_init(&caller->interrupt, caller->loop, SIGINT, on_signal, caller);
    lh_signal_init(&caller->terminate, caller->loop, SIGTERM, on_signal, caller);
}

int lh_caller_take_signal(struct lh_caller *caller)
{
    int number = caller->signal;
    caller->signal = 0;
    return number;
}

static void on_done(void *arg, const struct lh_rpc_result *result)
{
    struct lh_caller *caller = arg;

    caller->call = NULL;
    lh_reply_fill(caller->reply, result, caller->output);
    lh_loop_stop(caller->loop);
}

static struct endpoint *current(struct lh_caller *caller)
{
    return &caller->endpoints.items[caller->endpoints.current];
}

/* Does the same call go to the next server now? That is certain to do no harm only where this one never got it. */
static bool goes_on(struct lh_caller *caller, const struct lh_reply *reply, size_t *tries)
{
    struct retry_evidence evidence = {.stage = reply->delivery,
                                      .code = reply->code,
                                      .info = reply->has_reason ? (int)reply->reason : RETRY_NO_INFO,
                                      .has_retry_info = reply->retry_after_us > 0};
    bool is_silent = reply->code == LH_GRPC_DEADLINE_EXCEEDED && reply->delivery != LH_RPC_ANSWERED;

    if (is_silent || !lh_retry_reason_keeps_endpoint(lh_retry_reason_of(&evidence)))
        lh_endpoints_leave(&caller->endpoints, current(caller));
    return reply->delivery == LH_RPC_NOT_SENT && reply->code == LH_GRPC_UNAVAILABLE && caller->signal == 0 &&
           ++*tries < caller->endpoints.count;
}

static bool refuse_after_signal(struct lh_caller *caller, struct lh_reply *reply,
                                const ProtobufCMethodDescriptor *described)
{
    static const struct lh_rpc_result cancelled = {
        .code = LH_GRPC_CANCELLED, .message = "interrupted", .delivery = LH_RPC_NOT_SENT};

    *reply = (struct lh_reply){0};
    caller->output = described->output;
    caller->reply = reply;
    if (caller->signal != 0)
        lh_reply_fill(reply, &cancelled, described->output);
    return caller->signal != 0;
}

static void on_stream_message(void *arg, const void *data, size_t size)
{
    struct lh_caller *caller = arg;
    ProtobufCMessage *message = protobuf_c_message_unpack(caller->output, NULL, size, data);

    if ((message == NULL || !caller->on_message(caller->on_message_arg, message)) && caller->call != NULL)
        lh_rpc_client_call_cancel(caller->call);
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
}

/* With on_message it is a stream. */
static void start(struct lh_caller *caller, const char *path, const ProtobufCMessage *request, int64_t deadline_us)
{
    static const struct lh_rpc_stream_callbacks callbacks = {.on_message = on_stream_message, .on_done = on_done};
    struct lh_rpc_channel *channel = current(caller)->channel;
    size_t size = protobuf_c_message_get_packed_size(request);
    uint8_t *packed = lh_alloc(size + 1);

    protobuf_c_message_pack(request, packed);
    if (caller->on_message == NULL) {
        caller->call = lh_rpc_client_call_unary(channel, path, packed, size, deadline_us, on_done, caller);
    } else {
        caller->call = lh_rpc_client_call_start(channel, path, deadline_us, NULL, 0, &callbacks, caller);
        lh_rpc_client_call_send(caller->call, packed, size);
        lh_rpc_client_call_half_close(caller->call);
    }
    free(packed);
}

static void run(struct lh_caller *caller, const ProtobufCServiceDescriptor *service, const char *method,
                const ProtobufCMessage *request, int64_t deadline_us, struct lh_reply *reply)
{
    char *path = lh_format("/%s/%s", service->name, method);
    size_t tries = 0;

    if (!refuse_after_signal(caller, reply, protobuf_c_service_descriptor_get_method_by_name(service, method))) {
        do {
            lh_reply_finish(reply);
            start(caller, path, request, deadline_us);
            while (caller->call != NULL)
                lh_loop_run(caller->loop);
        } while (goes_on(caller, reply, &tries));
    }
    free(path);
}

void lh_caller_call(struct lh_caller *caller, const ProtobufCServiceDescriptor *service, const char *method,
                    const ProtobufCMessage *request, int64_t deadline_us, struct lh_reply *reply)
{
    caller->on_message = NULL;
    run(caller, service, method, request, deadline_us, reply);
}

void lh_caller_read(struct lh_caller *caller, const ProtobufCServiceDescriptor *service, const char *method,
                    const ProtobufCMessage *request, lh_caller_message_cb *on_message, void *arg,
                    struct lh_reply *reply)
{
    caller->on_message = on_message;
    caller->on_message_arg = arg;
    run(caller, service, method, request, LH_RPC_FOREVER, reply);
}

void lh_caller_sleep(struct lh_caller *caller, int64_t duration_us)
{
    if (caller->signal != 0 || duration_us <= 0)
        return;
    lh_timer_arm_at_us(&caller->nap, lh_clock_us() + duration_us);
    while (caller->signal == 0 && lh_timer_is_armed(&caller->nap))
        lh_loop_run(caller->loop);
    lh_timer_cancel(&caller->nap);
}

/* --- repeating --- */

bool lh_reply_is_passing(const struct lh_reply *reply)
{
    if (reply->has_reason)
        return reply->reason == LH_DATABASE_UNAVAILABLE || reply->reason == LH_SHUTTING_DOWN ||
               reply->reason == LH_OVERLOADED;
    return reply->code == LH_GRPC_UNAVAILABLE && reply->delivery != LH_RPC_NOT_SENT;
}

int64_t lh_caller_backoff_us(unsigned failures, const struct lh_reply *reply)
{
    int64_t delay_us = BACKOFF_FIRST_US << (failures < 5 ? failures : 5);

    if (delay_us > BACKOFF_MAX_US)
        delay_us = BACKOFF_MAX_US;
    if (reply->retry_after_us > delay_us)
        delay_us = reply->retry_after_us < RETRY_AFTER_MAX_US ? reply->retry_after_us : RETRY_AFTER_MAX_US;
    return delay_us;
}

int64_t lh_caller_again_in_us(void *arg, const struct lh_reply *reply, unsigned failures)
{
    return lh_reply_is_passing(reply) ? lh_caller_backoff_us(failures, reply) : -1;
}

void lh_caller_repeat(struct lh_caller *caller, const ProtobufCServiceDescriptor *service, const char *method,
                      const ProtobufCMessage *request, int64_t deadline_us, const struct lh_caller_repetition *how,
                      struct lh_reply *reply)
{
    static const struct lh_caller_repetition plain = {0};
    unsigned failures = 0;

    if (how == NULL)
        how = &plain;
    for (;;) {
        int64_t pause_us;

        if (how->before_attempt != NULL)
            how->before_attempt(how->arg);
        lh_caller_call(caller, service, method, request, deadline_us, reply);
        pause_us = how->again_in_us != NULL ? how->again_in_us(how->arg, reply, failures)
                                            : lh_caller_again_in_us(NULL, reply, failures);
        if (pause_us < 0 || lh_clock_us() >= deadline_us - pause_us)
            return;
        failures = pause_us == 0 ? 0 : failures + 1;
        if (how->before_again != NULL)
            how->before_again(how->arg, reply);
        lh_reply_finish(reply);
        lh_caller_sleep(caller, pause_us);
    }
}
