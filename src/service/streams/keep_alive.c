/*
 * KeepAlive: batches of heartbeats over one stream, each answered as Heartbeat would, in the order in which they came.
 *
 * A batch that is answered before an earlier one keeps its answer until that one has gone. While many batches or items
 * are unanswered, or the client does not read, the server reads no more from it, and flow control stops it. The stream
 * ends in one way: its state has the reason, reading stops, the answers that are owed go out, then the status.
 *
 *     OPEN --- half-closed, bad message, overload, shutdown ---> ENDING --- nothing is owed ---> finished
 *       `----- the client is gone -------------------------------> each batch goes with its answer
 */
#include "service/streams_internal.h"

#include <stdlib.h>

#include "service/call_internal.h"

#define BATCHES_MAX 16
#define ITEMS_MAX 10000

struct keep_alive {
    struct lh_rpc_call *call; /* NULL: the client is gone */
    struct lh_service *service;
    struct lh_access_caller who;
    struct lh_link link;    /* in lh_service.keep_alives, while it has a call */
    struct lh_link batches; /* not answered to the client, oldest first */
    size_t batch_count;
    size_t item_count;
    bool is_ending;
    enum lh_status status; /* what it ends with */
    struct lh_violations *violations;
};

struct kept_batch {
    struct lh_link link;
    struct keep_alive *stream;
    size_t item_count;
    bool is_answered;
    struct lh_buffer answer; /* while an earlier one is owed */
};

static void free_batch(struct kept_batch *batch)
{
    batch->stream->batch_count--;
    batch->stream->item_count -= batch->item_count;
    lh_list_remove(&batch->link);
    lh_buffer_finish(&batch->answer);
    free(batch);
}

static void free_when_over(struct keep_alive *stream)
{
    if (stream->call != NULL || stream->batch_count > 0)
        return;
    lh_access_leave(&stream->who);
    free(stream->violations);
    free(stream);
}

/* --- ending --- */

static void finish_when_told(struct keep_alive *stream)
{
    if (stream->call == NULL || !stream->is_ending || stream->batch_count > 0)
        return;
    if (stream->status == LH_OK)
        lh_rpc_call_finish(stream->call, LH_GRPC_OK, NULL, NULL, 0);
    else if (stream->status == LH_INVALID_ARGUMENT && stream->violations != NULL)
        lh_call_refuse(stream->call, stream->violations);
    else
        lh_call_fail(stream->call, stream->status, NULL, NULL, NULL);
}

/* The first reason holds. */
static void end(struct keep_alive *stream, enum lh_status status)
{
    if (stream->is_ending)
        return;
    stream->is_ending = true;
    stream->status = status;
    lh_rpc_call_pause(stream->call);
    finish_when_told(stream);
}

/* --- flow --- */

static bool is_full(const struct keep_alive *stream)
{
    return stream->batch_count >= BATCHES_MAX || stream->item_count >= ITEMS_MAX ||
           lh_rpc_call_is_over_mark(stream->call);
}

static void read_on(struct keep_alive *stream)
{
    if (stream->call != NULL && !stream->is_ending && !is_full(stream))
        lh_rpc_call_resume(stream->call);
}

static void send_answer(struct keep_alive *stream, const void *data, size_t size)
{
    if (stream->call != NULL && lh_rpc_call_send(stream->call, data, size) == LH_OVERLOADED)
        end(stream, LH_OVERLOADED);
}

static void on_answer(void *arg, const void *data, size_t size)
{
    struct kept_batch *batch = arg;
    struct keep_alive *stream = batch->stream;

    if (batch != LH_LIST_FIRST(struct kept_batch, &stream->batches, link)) {
        batch->is_answered = true;
        lh_buffer_append(&batch->answer, data, size);
        return;
    }
    send_answer(stream, data, size);
    free_batch(batch);
    while ((batch = LH_LIST_FIRST(struct kept_batch, &stream->batches, link)) != NULL && batch->is_answered) {
        send_answer(stream, batch->answer.data, batch->answer.size);
        free_batch(batch);
    }
    read_on(stream);
    finish_when_told(stream);
    free_when_over(stream);
}

/* --- the call --- */

void lh_keep_alive_on_start(struct lh_rpc_call *call)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_access_caller who;
    struct keep_alive *stream;

    if (service->is_draining) {
        lh_call_fail(call, LH_SHUTTING_DOWN, NULL, NULL, NULL);
        return;
    }
    if (!lh_permit_enter(call, &who))
        return;
    stream = lh_alloc_zero(1, sizeof(*stream));
    stream->who = who;
    stream->call = call;
    stream->service = service;
    lh_list_init(&stream->batches);
    lh_list_append(&service->keep_alives, &stream->link);
    lh_rpc_call_set_data(call, stream);
}

void lh_keep_alive_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct keep_alive *stream = lh_rpc_call_data(call);
    struct lh_violations violations = {0};
    struct kept_batch *batch;
    enum lh_status status;

    if (stream == NULL || stream->is_ending)
        return;
    batch = lh_alloc_zero(1, sizeof(*batch));
    batch->stream = stream;
    lh_list_append(&stream->batches, &batch->link);
    status = lh_heartbeats_start(call, &stream->who, data, size, &batch->item_count, &violations, on_answer, batch);
    stream->batch_count++;
    stream->item_count += batch->item_count;
    if (status != LH_OK) {
        free_batch(batch);
        if (status == LH_INVALID_ARGUMENT) {
            stream->violations = lh_alloc(sizeof(violations));
            *stream->violations = violations;
        }
        end(stream, status);
    } else if (is_full(stream)) {
        lh_rpc_call_pause(call);
    }
}

void lh_keep_alive_on_half_close(struct lh_rpc_call *call)
{
    struct keep_alive *stream = lh_rpc_call_data(call);
    if (stream != NULL)
        end(stream, LH_OK);
}

void lh_keep_alive_on_writable(struct lh_rpc_call *call)
{
    struct keep_alive *stream = lh_rpc_call_data(call);
    if (stream != NULL)
        read_on(stream);
}

void lh_keep_alive_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct keep_alive *stream = lh_rpc_call_data(call);

    if (stream == NULL)
        return;
    stream->call = NULL;
    lh_list_remove(&stream->link);
    free_when_over(stream);
}

/* Before the coordinator stops: what is in flight is still answered. */
void lh_keep_alive_drain(struct lh_service *service)
{
    LH_LIST_EACH(struct keep_alive, stream, &service->keep_alives, link)
        end(stream, LH_SHUTTING_DOWN);
}
