#include "client/request_internal.h"

#include <stdarg.h>
#include <stdio.h>

#include "client/client.h"
#include "client/context.h"

/* With another endpoint to ask, no attempt gets more than this part of the request's own time. */
#define ATTEMPT_PARTS 2

static void on_attempt_done(void *arg, const struct lh_rpc_result *result);

/* How long the server may take for this attempt. */
static int64_t attempt_cut_us(const struct lh_request *request, int64_t now_us)
{
    int64_t cut_us = request->deadline_us;
    int64_t own_us = request->own_us;

    if (request->client->endpoints.count > 1 && request->wait_us < LH_FOREVER - own_us - now_us) {
        int64_t part_us = now_us + request->wait_us + own_us / ATTEMPT_PARTS;
        if (part_us < cut_us)
            cut_us = part_us;
    }
    /* A wait may be longer than a lease whose renewals move the time on: it ends when that is lost. */
    if (request->context != NULL && !(request->wait_us > 0 && lh_context_moves(request->context))) {
        int64_t left_us = lh_context_remaining_us(request->context);
        if (left_us < LH_FOREVER - now_us && now_us + left_us < cut_us)
            cut_us = now_us + left_us;
    }
    return cut_us;
}

static void consider(struct lh_request *request, const struct retry_failure *failure)
{
    request->state = REQUEST_RETRYING;
    switch (lh_retry_consider(&request->retry, failure)) {
    case RETRY_LATER:
        break;
    case RETRY_REFUSED:
        lh_request_become_over(request);
        break;
    case RETRY_LIMITED:
        lh_request_end(request, LH_OVERLOADED, "too many requests of this client are in retry already");
        break;
    case RETRY_EXPIRED:
        lh_request_time_out(request);
        break;
    }
    atomic_store_explicit(&request->client->counts.retries, request->client->retrier.retries, memory_order_relaxed);
    atomic_store_explicit(&request->client->counts.refusals, request->client->retrier.refusals, memory_order_relaxed);
}

static void fail_unsent(struct lh_request *request, enum lh_retry_reason reason, const char *words)
{
    struct retry_failure failure = {.reason = reason, .message = words};

    lh_request_set_status(request, LH_UNAVAILABLE, words);
    consider(request, &failure);
}

bool lh_attempt_is_context_over(struct lh_request *request)
{
    if (request->context == NULL || lh_context_remaining_us(request->context) > 0)
        return false;
    lh_request_end(request, LH_CANCELED, "its context has ended: %s", lh_context_words(request->context));
    return true;
}

static void on_stream_message(void *arg, const void *data, size_t size)
{
    struct lh_request *request = arg;

    lh_leases_look_at_clock(request->client);
    if (request->state == REQUEST_CALLING && !request->is_cancelled)
        request->verb->on_message(request, data, size);
}

static void start_call(struct lh_request *request, const struct lh_buffer *message)
{
    static const struct lh_rpc_stream_callbacks callbacks = {.on_message = on_stream_message,
                                                             .on_done = on_attempt_done};
    struct lh_rpc_channel *channel = request->endpoint->channel;

    if (request->verb->on_message == NULL) {
        request->call = lh_rpc_client_call_unary(channel, request->verb->path, message->data, message->size,
                                                 request->cut_us, on_attempt_done, request);
        return;
    }
    request->call =
        lh_rpc_client_call_start(channel, request->verb->path, request->cut_us, NULL, 0, &callbacks, request);
    if (request->call == NULL)
        return;
    lh_rpc_client_call_send(request->call, message->data, message->size);
    lh_rpc_client_call_half_close(request->call);
}

void lh_attempt_wait_for_turn(struct lh_request *request)
{
    request->state = REQUEST_WAITING;
    if (request->deadline_us != LH_FOREVER)
        lh_timer_arm_at_us(&request->timer, request->deadline_us);
    request->on_start(request);
}

void lh_attempt_begin(struct lh_request *request)
{
    struct lh_client *client = request->client;
    struct lh_buffer message = {0};
    int64_t now_us = lh_clock_us();

    if (lh_attempt_is_context_over(request))
        return;
    if (now_us >= request->deadline_us) {
        lh_request_time_out(request);
        return;
    }
    request->state = REQUEST_CALLING;
    request->sent_us = now_us;
    request->endpoint = lh_endpoints_admit(&client->endpoints, request->wanted, now_us, &request->ticket);
    if (request->endpoint == NULL) {
        fail_unsent(request, LH_RETRY_CIRCUIT_BREAKER_OPEN, "no endpoint has answered lately");
        return;
    }
    request->wait_us = 0;
    request->verb->pack(request, &message);
    request->cut_us = attempt_cut_us(request, now_us);
    start_call(request, &message);
    lh_buffer_finish(&message);
    if (request->call == NULL) {
        lh_breaker_settle(&request->endpoint->breaker, request->ticket, BREAKER_SAID_NOTHING, now_us);
        lh_request_end(request, LH_OVERLOADED, "too many calls of this client go to %s at once",
                       request->endpoint->target);
        return;
    }
    atomic_fetch_add_explicit(&client->counts.rpcs, 1, memory_order_relaxed);
}

static void move_on(struct lh_request *request, unsigned reason)
{
    struct endpoints *endpoints = &request->client->endpoints;
    size_t index = lh_endpoints_index(endpoints, request->endpoint);

    if (lh_retry_reason_keeps_endpoint(reason)) {
        request->wanted = index;
        return;
    }
    lh_endpoints_leave(endpoints, request->endpoint);
    request->wanted = (index + 1) % endpoints->count;
}

/* Our own timer, while the server kept silent: whoever comes next asks another one. */
static bool is_unanswered(const struct lh_reply *reply)
{
    return reply->code == LH_GRPC_DEADLINE_EXCEEDED && reply->delivery != LH_RPC_ANSWERED;
}

/* The server may have done it: the answer was lost, or comes from something in between that lost the server's. */
static bool is_doubtful(const struct lh_reply *reply)
{
    if (reply->delivery == LH_RPC_IN_FLIGHT)
        return reply->code != LH_GRPC_OK && reply->code != LH_GRPC_CANCELLED;
    return reply->delivery == LH_RPC_ANSWERED && !reply->has_reason &&
           (reply->code == LH_GRPC_UNAVAILABLE || reply->code == LH_GRPC_UNKNOWN ||
            reply->code == LH_GRPC_DEADLINE_EXCEEDED);
}

static void on_attempt_done(void *arg, const struct lh_rpc_result *result)
{
    struct lh_request *request = arg;
    struct lh_client *client = request->client;
    struct retry_failure failure = {0};
    struct lh_reply reply;
    int64_t now_us = lh_clock_us();

    request->call = NULL;
    lh_leases_look_at_clock(client);
    lh_breaker_settle(&request->endpoint->breaker, request->ticket,
                      lh_breaker_result_of(result->delivery, result->code), now_us);
    lh_reply_fill(&reply, result, request->verb->output);
    if (is_doubtful(&reply))
        request->is_in_doubt = true;
    if (request->is_cancelled) {
        request->is_cut_off = reply.delivery == LH_RPC_IN_FLIGHT;
        if (request->verb->undo != NULL && reply.code == LH_GRPC_OK)
            request->verb->undo(request, &reply);
        lh_request_become_over(request);
        lh_reply_finish(&reply);
        return;
    }
    if (is_unanswered(&reply) && client->endpoints.count > 1)
        lh_endpoints_leave(&client->endpoints, request->endpoint);
    failure.reason = request->verb->judge(request, &reply);
    if (request->state != REQUEST_CALLING) {
        lh_reply_finish(&reply);
        return;
    }
    if (failure.reason == RETRY_NO_REASON) {
        lh_request_become_over(request);
    } else if (failure.reason == REQUEST_AGAIN) {
        lh_attempt_wait_for_turn(request);
    } else {
        move_on(request, failure.reason);
        failure.blocked_us = now_us - request->sent_us;
        failure.retry_after_us = reply.retry_after_us;
        failure.message = request->error.message;
        consider(request, &failure);
    }
    lh_reply_finish(&reply);
}

/* Our own timer, and not for the last time: the attempt was cut short to ask another endpoint, or by its context. */
static bool is_cut_short(const struct lh_request *request, const struct lh_reply *reply)
{
    return reply->code == LH_GRPC_DEADLINE_EXCEEDED && !reply->has_reason && request->cut_us < request->deadline_us;
}

unsigned lh_attempt_judge_error(struct lh_request *request, const struct lh_reply *reply)
{
    struct retry_evidence evidence = {
        .stage = reply->delivery,
        .code = reply->code,
        .info = reply->has_reason ? (int)reply->reason : RETRY_NO_INFO,
        .has_retry_info = reply->retry_after_us > 0,
    };

    if (is_cut_short(request, reply)) {
        lh_request_set_status(request, LH_UNAVAILABLE, "no answer in time");
        return reply->delivery == LH_RPC_NOT_SENT ? LH_RETRY_SOCKET_NOT_AVAILABLE
                                                  : LH_RETRY_SOCKET_CLOSED_WHILE_IN_FLIGHT;
    }
    request->status = lh_retry_status_of(&evidence);
    lh_error_set(&request->error, request->status, "%s", reply->words);
    if (reply->field != NULL)
        snprintf(request->error.field, sizeof(request->error.field), "%s", reply->field);
    if (reply->limit != NULL)
        snprintf(request->error.bound, sizeof(request->error.bound), "%s", reply->limit);
    return lh_retry_reason_of(&evidence);
}

/* --- the end of a request --- */

void lh_request_set_status(struct lh_request *request, enum lh_status status, const char *words)
{
    request->status = status;
    lh_error_set(&request->error, status, "%s", words);
}

void lh_request_finish(void *arg)
{
    struct lh_request *request = arg;
    struct lh_client *client = request->client;
    bool is_held_back;

    pthread_mutex_lock(&client->mutex);
    request->is_held_back = is_held_back = request->is_cancel_posted;
    pthread_mutex_unlock(&client->mutex);
    if (is_held_back)
        return;
    lh_timer_finish(&request->timer);
    lh_list_remove(&request->link);
    lh_list_remove(&request->following);
    client->request_count--;
    atomic_fetch_sub(&client->counts.requests, 1);
    request->verb->finish(request);
    lh_client_settle(client);
    lh_client_unref(client);
}

/* The status is set. */
void lh_request_become_over(struct lh_request *request)
{
    if (request->state == REQUEST_OVER)
        return;
    request->state = REQUEST_OVER;
    lh_retry_stop(&request->retry);
    lh_timer_cancel(&request->timer);
    if (request->context != NULL) {
        lh_context_remove(request->context, &request->on_context);
        lh_context_destroy(request->context);
        request->context = NULL;
    }
    lh_defer(request->client->loop, &request->finishing);
}

void lh_request_end(struct lh_request *request, enum lh_status status, const char *format, ...)
{
    va_list arguments;

    if (request->state == REQUEST_OVER)
        return;
    lh_error_set(&request->error, status, "%s", "");
    request->status = status;
    va_start(arguments, format);
    vsnprintf(request->error.message, sizeof(request->error.message), format, arguments);
    va_end(arguments);
    lh_request_become_over(request);
}

/* What went wrong last stays in the words. */
void lh_request_time_out(struct lh_request *request)
{
    char last[256];

    snprintf(last, sizeof(last), "%.*s", (int)sizeof(last) - 1, request->error.message);
    if (last[0] == '\0')
        lh_request_end(request, LH_TIMED_OUT, "the request's time has passed");
    else
        lh_request_end(request, LH_TIMED_OUT, "the request's time has passed, after %u attempts; the last one: %s",
                       (unsigned)request->retry.attempts, last);
}
