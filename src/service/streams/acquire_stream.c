/*
 * AcquireStream: an Acquire that reports how the wait stands. `queued` comes when the coordinator reports progress (at
 * once, when the place or the holder changed, and so often that no proxy takes the stream for idle), then `granted`,
 * then OK. It ends, fails and is given up as Acquire does.
 *
 * A client that does not read gets no more `queued` while one mark's worth waits for it: an old place is of no use.
 */
#include "service/call_internal.h"
#include "service/words_internal.h"

static void send_event(struct acquire_call *acquire, const Leasehold__V1__AcquireEvent *event)
{
    const void *data;
    size_t size = lh_message_pack(&event->base, &acquire->service->scratch, &data);
    lh_rpc_call_send(acquire->call, data, size);
    lh_arena_reset(&acquire->service->scratch);
}

static void on_progress(struct lh_acquire *request, const struct lh_contention *contention)
{
    struct acquire_call *acquire = request->arg;
    struct lh_contention shown = *contention;
    Leasehold__V1__AcquireEvent event = LEASEHOLD__V1__ACQUIRE_EVENT__INIT;

    if (acquire->call == NULL || lh_rpc_call_is_over_mark(acquire->call))
        return;
    event.event_case = LEASEHOLD__V1__ACQUIRE_EVENT__EVENT_QUEUED;
    shown.holder.asked = lh_places_asked(acquire->service->places, request->ns, request->key, shown.holder.token);
    lh_acquire_hide_holder(&acquire->who, request->ns, request->key, &shown);
    event.queued = lh_message_contention(&shown, &acquire->service->scratch);
    send_event(acquire, &event);
}

static void tell_granted(struct acquire_call *acquire, const struct lh_acquire_result *result)
{
    Leasehold__V1__AcquireEvent event = LEASEHOLD__V1__ACQUIRE_EVENT__INIT;

    event.event_case = LEASEHOLD__V1__ACQUIRE_EVENT__EVENT_GRANTED;
    event.granted = lh_acquire_lease(acquire, result, 0);
    event.waited = lh_message_duration(result->waited_us, &acquire->service->scratch);
    send_event(acquire, &event);
    lh_rpc_call_finish(acquire->call, LH_GRPC_OK, NULL, NULL, 0);
}

void lh_acquire_stream_on_request(struct lh_asked *asked, const void *request)
{
    lh_acquire_begin(asked, request, on_progress, tell_granted);
}
