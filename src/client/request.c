#include "client/request_internal.h"

#include "client/client.h"
#include "client/context.h"
#include "client/lease_internal.h"

static struct lh_request *request_of(struct retry *retry)
{
    return LH_CONTAINER(struct lh_request, retry, retry);
}

/* --- retries --- */

static void on_verdict(struct retry *retry, enum retry_verdict verdict)
{
    struct lh_request *request = request_of(retry);

    lh_leases_look_at_clock(request->client);
    if (request->state != REQUEST_RETRYING)
        return;
    if (verdict == RETRY_AGAIN)
        lh_attempt_begin(request);
    else if (verdict == RETRY_TIMED_OUT)
        lh_request_time_out(request);
    else
        lh_request_become_over(request);
}

/* Of a retry's delay, or of the request's time while it waits for its turn. */
static void on_timer(void *arg)
{
    struct lh_request *request = arg;

    if (request->state == REQUEST_RETRYING)
        lh_retry_on_due(&request->retry);
    else if (request->state == REQUEST_WAITING)
        lh_request_time_out(request);
}

/* --- cancelling --- */

void lh_request_cancel(struct lh_request *request, enum lh_status status, const char *words)
{
    struct lh_rpc_client_call *call = request->call;

    if (request->state == REQUEST_OVER || request->is_cancelled)
        return;
    request->is_cancelled = true;
    if (request->state == REQUEST_NEW)
        return;
    if (call == NULL) {
        lh_request_end(request, status, "%s", words);
        return;
    }
    lh_request_set_status(request, status, words);
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
        lh_request_cancel(request, LH_CANCELED, "the request was cancelled");
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
    if (lh_client_post(client, &request->cancel) != LH_OK) {
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

void lh_request_init(struct lh_request *request, struct lh_client *client, const struct request_verb *verb,
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
        request->context = lh_context_ref(options->context);
    lh_timer_init(&request->timer, client->loop, on_timer, request);
    lh_deferred_init(&request->finishing, lh_request_finish, request);
}

void lh_request_drop(struct lh_request *request)
{
    lh_context_destroy(request->context);
    request->context = NULL;
}

static void begin(struct lh_request *request)
{
    struct lh_client *client = request->client;

    lh_retry_init(&request->retry, &client->retrier, true, request->deadline_us, on_verdict);
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

void lh_request_begin_internal(struct lh_request *request)
{
    lh_client_ref(request->client);
    begin(request);
}

static void start(void *arg)
{
    struct lh_request *request = arg;
    struct lh_client *client = request->client;

    lh_leases_look_at_clock(client);
    begin(request);
    if (request->is_cancelled) {
        lh_request_end(request, LH_CANCELED, "the request was cancelled");
    } else if (!lh_client_is_open(client)) {
        lh_request_end(request, LH_CANCELED, "the client was closed");
    } else if (client->request_count > client->max_requests) {
        lh_request_end(request, LH_OVERLOADED, "%u requests of this client go on already", client->max_requests);
    } else if (request->context != NULL && !lh_attempt_is_context_over(request)) {
        request->on_context.on_cancel = on_context_cancelled;
        request->on_context.arg = request;
        lh_context_add(request->context, &request->on_context);
    }
    if (request->state == REQUEST_WAITING)
        lh_attempt_wait_for_turn(request);
}

static void run_start(struct client_task *task)
{
    start(LH_CONTAINER(struct lh_request, start, task));
}

enum lh_status lh_request_submit(struct lh_request *request, void (*on_start)(struct lh_request *request),
                                 struct lh_error *error)
{
    struct lh_client *client = request->client;

    if (!lh_client_is_open(client))
        return lh_error_set(error, LH_CLOSED, "%s", lh_client_closed_words(client));
    lh_client_ref(client);
    request->start.run = run_start;
    request->on_start = on_start;
    if (lh_client_is_here(client)) { /* not from inside of the caller: it may have to tell of leases that were lost */
        lh_deferred_init(&request->starting, start, request);
        lh_defer(client->loop, &request->starting);
    } else if (lh_client_post(client, &request->start) != LH_OK) {
        lh_client_unref(client);
        return lh_error_set(error, LH_CLOSED, "the client was closed");
    }
    return LH_OK;
}

void lh_request_go(struct lh_request *request)
{
    if (request->state != REQUEST_WAITING)
        return;
    lh_timer_cancel(&request->timer);
    lh_attempt_begin(request);
}

void lh_requests_resume(struct lh_link *waiting)
{
    struct lh_request *request;

    while ((request = LH_LIST_FIRST(struct lh_request, waiting, following)) != NULL) {
        lh_list_remove(&request->following);
        if (request->state == REQUEST_WAITING)
            request->on_start(request);
    }
}
