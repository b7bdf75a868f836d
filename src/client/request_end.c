#include "client/request_end.h"

#include <stdarg.h>
#include <stdio.h>

#include "client/client.h"

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
