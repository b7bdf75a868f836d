#include "client/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/attempt.h"
#include "client/context.h"

static struct lh_request *request_of(struct retry *retry)
{
    return LH_CONTAINER(struct lh_request, retry, retry);
}

/* --- over --- */

void request_set_status(struct lh_request *request, enum lh_status status, const char *words)
{
    request->status = status;
    lh_error_set(&request->error, status, "%s", words);
}

static void finish(void *arg)
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
    client->request_count--;
    atomic_fetch_sub(&client->counts.requests, 1);
    request->verb->finish(request);
    client_settle(client);
    client_unref(client);
}

/* The status is set. */
void request_become_over(struct lh_request *request)
{
    if (request->state == REQUEST_OVER)
        return;
    request->state = REQUEST_OVER;
    retry_stop(&request->retry);
    lh_timer_cancel(&request->timer);
    if (request->context != NULL) {
        lh_context_remove(request->context, &request->on_context);
        lh_context_destroy(request->context);
        request->context = NULL;
    }
    lh_defer(request->client->loop, &request->finishing);
}

void request_end(struct lh_request *request, enum lh_status status, const char *format, ...)
{
    va_list arguments;

    if (request->state == REQUEST_OVER)
        return;
    lh_error_set(&request->error, status, "%s", "");
    request->status = status;
    va_start(arguments, format);
    vsnprintf(request->error.message, sizeof(request->error.message), format, arguments);
    va_end(arguments);
    request_become_over(request);
}

/* What went wrong last stays in the words. */
void request_time_out(struct lh_request *request)
{
    char last[256];

    snprintf(last, sizeof(last), "%.*s", (int)sizeof(last) - 1, request->error.message);
    if (last[0] == '\0')
        request_end(request, LH_TIMED_OUT, "the request's time has passed");
    else
        request_end(request, LH_TIMED_OUT, "the request's time has passed, after %u attempts; the last one: %s",
                    (unsigned)request->retry.attempts, last);
}

/* --- retries --- */

static void on_verdict(struct retry *retry, enum retry_verdict verdict)
{
    struct lh_request *request = request_of(retry);

    client_look_at_clock(request->client);
    if (request->state != REQUEST_RETRYING)
        return;
    if (verdict == RETRY_AGAIN)
        attempt_begin(request);
    else if (verdict == RETRY_TIMED_OUT)
        request_time_out(request);
    else
        request_become_over(request);
}

/* Of a retry's delay, or of the request's time while it waits for its turn. */
static void on_timer(void *arg)
{
    struct lh_request *request = arg;

    if (request->state == REQUEST_RETRYING)
        retry_on_due(&request->retry);
    else if (request->state == REQUEST_WAITING)
        request_time_out(request);
}

/* --- cancelling --- */

void request_cancel(struct lh_request *request, enum lh_status status, const char *words)
{
    struct lh_rpc_client_call *call = request->call;

    if (request->state == REQUEST_OVER || request->is_cancelled)
        return;
    request->is_cancelled = true;
    if (request->state == REQUEST_NEW)
        return;
    if (call == NULL) {
        request_end(request, status, "%s", words);
        return;
    }
    request_set_status(request, status, words);
    lh_rpc_client_call_cancel(call); /* on_attempt_done follows */
}

static void run_cancel(struct client_task *task)
{
    struct lh_request *request = LH_CONTAINER(struct lh_request, cancel, task);
    struct lh_client *client = request->client;
    bool was_held_back;

    pthread_mutex_lock(&client->mutex);
    request->is_cancel_posted = false;
    was_held_back = request->is_held_back;
    pthread_mutex_unlock(&client->mutex);
    if (was_held_back)
        lh_defer(client->loop, &request->finishing);
    else
        request_cancel(request, LH_CANCELED, "the request was cancelled");
}

void lh_cancel(struct lh_request *request)
{
    struct lh_client *client;
    bool is_first;

    if (request == NULL)
        return;
    client = request->client;
    pthread_mutex_lock(&client->mutex);
    is_first = !request->is_cancel_posted;
    request->is_cancel_posted = true;
    pthread_mutex_unlock(&client->mutex);
    if (!is_first)
        return;
    request->cancel.run = run_cancel;
    if (client_post(client, &request->cancel) != LH_OK) {
        pthread_mutex_lock(&client->mutex);
        request->is_cancel_posted = false;
        pthread_mutex_unlock(&client->mutex);
    }
}

static void on_context_cancelled(void *arg, struct lh_context *context)
{
    lh_cancel(arg);
}

/* --- its beginning --- */

void request_init(struct lh_request *request, struct lh_client *client, const struct request_verb *verb,
                  int64_t deadline_us, const struct lh_call_options *options, const struct lh_strategy *strategy)
{
    static const struct lh_call_options none;

    if (options == NULL)
        options = &none;
    if (options->strategy != NULL)
        strategy = options->strategy;
    if (strategy != NULL)
        request->strategy = *strategy;
    request->strategy_arg = options->strategy_arg;
    request->client = client;
    request->verb = verb;
    request->deadline_us = deadline_us;
    request->own_us = options->timeout_us > 0 ? options->timeout_us : client->timeout_us;
    request->state = REQUEST_NEW;
    if (options->context != NULL)
        request->context = context_ref(options->context);
    lh_timer_init(&request->timer, client->loop, on_timer, request);
    lh_deferred_init(&request->finishing, finish, request);
}

void request_drop(struct lh_request *request)
{
    lh_context_destroy(request->context);
    request->context = NULL;
}

static void begin(struct lh_request *request)
{
    struct lh_client *client = request->client;

    retry_init(&request->retry, &client->retrier, true, request->deadline_us, on_verdict);
    request->retry.strategy = request->strategy;
    request->retry.arg = request->strategy_arg;
    request->retry.verb = request->verb->name;
    request->retry.name = request->name;
    lh_list_append(&client->requests, &request->link);
    client->request_count++;
    atomic_fetch_add(&client->counts.requests, 1);
    request->state = REQUEST_WAITING;
    request->wanted = client->endpoints.current;
}

void request_begin_internal(struct lh_request *request)
{
    client_ref(request->client);
    request->is_internal = true;
    begin(request);
}

static void start(void *arg)
{
    struct lh_request *request = arg;
    struct lh_client *client = request->client;

    client_look_at_clock(client);
    begin(request);
    if (request->is_cancelled) {
        request_end(request, LH_CANCELED, "the request was cancelled");
    } else if (!client_is_open(client)) {
        request_end(request, LH_CANCELED, "the client was closed");
    } else if (client->request_count > client->max_requests) {
        request_end(request, LH_OVERLOADED, "%u requests of this client go on already", client->max_requests);
    } else if (request->context != NULL && !attempt_is_context_over(request)) {
        request->on_context.on_cancel = on_context_cancelled;
        request->on_context.arg = request;
        lh_context_add(request->context, &request->on_context);
    }
    if (request->state != REQUEST_WAITING)
        return;
    if (request->deadline_us != LH_FOREVER)
        lh_timer_arm_at_us(&request->timer, request->deadline_us);
    request->on_start(request);
}

static void run_start(struct client_task *task)
{
    start(LH_CONTAINER(struct lh_request, start, task));
}

enum lh_status request_submit(struct lh_request *request, void (*on_start)(struct lh_request *request),
                              struct lh_error *error)
{
    struct lh_client *client = request->client;

    if (!client_is_open(client))
        return lh_error_set(error, LH_CLOSED, "the client was closed");
    client_ref(client);
    request->start.run = run_start;
    request->on_start = on_start;
    if (client_is_here(client)) { /* not from inside of the caller: it may have to tell of leases that were lost */
        lh_deferred_init(&request->starting, start, request);
        lh_defer(client->loop, &request->starting);
    } else if (client_post(client, &request->start) != LH_OK) {
        client_unref(client);
        return lh_error_set(error, LH_CLOSED, "the client was closed");
    }
    return LH_OK;
}

void request_go(struct lh_request *request)
{
    if (request->state != REQUEST_WAITING)
        return;
    lh_timer_cancel(&request->timer);
    attempt_begin(request);
}
