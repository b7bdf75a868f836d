/* The messages of a Hold stream to its client. A client that does not read gets only the verdicts, and no more news
   that age. */
#include "service/streams_internal.h"

#include "base/clock.h"
#include "service/words_internal.h"

static void init(Leasehold__V1__HoldEvent *event, Leasehold__V1__HoldEvent__EventCase what)
{
    leasehold__v1__hold_event__init(event);
    event->event_case = what;
}

static void send_event(struct hold *hold, const Leasehold__V1__HoldEvent *event)
{
    const void *data;
    size_t size = lh_message_pack(&event->base, &hold->service->scratch, &data);
    lh_rpc_call_send(hold->call, data, size);
    hold->told_us = lh_clock_us();
    lh_arena_reset(&hold->service->scratch);
}

void lh_hold_tell_queued(struct hold *hold, const struct lh_contention *contention)
{
    Leasehold__V1__HoldEvent event;

    if (lh_rpc_call_is_over_mark(hold->call))
        return;
    init(&event, LEASEHOLD__V1__HOLD_EVENT__EVENT_QUEUED);
    event.queued = lh_message_contention(contention, &hold->service->scratch);
    send_event(hold, &event);
}

void lh_hold_tell_granted(struct hold *hold, int64_t waited_us)
{
    Leasehold__V1__HoldEvent event;

    init(&event, LEASEHOLD__V1__HOLD_EVENT__EVENT_GRANTED);
    event.granted = lh_message_lease(&hold->lease, LH_LEASE_WITH_KEY, &hold->service->scratch);
    event.waited = lh_message_duration(waited_us, &hold->service->scratch);
    send_event(hold, &event);
}

void lh_hold_tell_renewed(struct hold *hold)
{
    Leasehold__V1__HoldEvent event;
    struct lh_held_lease lease = hold->lease;
    const struct lh_hand_over *asked =
        lh_places_asked(hold->service->places, hold->acquire.ns, hold->acquire.key, lease.token);

    if (lh_rpc_call_is_over_mark(hold->call))
        return;
    lease.asked = asked != NULL && asked->refusal == NULL ? asked : NULL;
    init(&event, LEASEHOLD__V1__HOLD_EVENT__EVENT_RENEWED);
    event.renewed = lh_message_lease(&lease, LH_LEASE_WITH_KEY, &hold->service->scratch);
    event.alive_sequence = hold->beat_alive;
    send_event(hold, &event);
}

void lh_hold_tell_asked(struct hold *hold, const struct lh_hand_over *asked)
{
    Leasehold__V1__HoldEvent event;

    init(&event, LEASEHOLD__V1__HOLD_EVENT__EVENT_ASKED);
    event.asked = lh_message_hand_over(asked, &hold->service->scratch);
    send_event(hold, &event);
}

void lh_hold_tell_alive(struct hold *hold)
{
    Leasehold__V1__Alive alive = LEASEHOLD__V1__ALIVE__INIT;
    Leasehold__V1__HoldEvent event;

    hold->told_us = lh_clock_us(); /* also what is not read yet keeps the stream busy */
    if (lh_rpc_call_is_over_mark(hold->call))
        return;
    alive.sequence = hold->alive_sequence;
    init(&event, LEASEHOLD__V1__HOLD_EVENT__EVENT_ALIVE);
    event.alive = &alive;
    send_event(hold, &event);
}

void lh_hold_tell_lost(struct hold *hold, enum lh_end_reason reason, const char *message)
{
    struct lh_arena *arena = &hold->service->scratch;
    Leasehold__V1__HeartbeatResult lost = LEASEHOLD__V1__HEARTBEAT_RESULT__INIT;
    Leasehold__V1__HoldEvent event;

    lost.lease_key = LH_UUID_TEXT(&hold->acquire.lease_key);
    lost.outcome = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    lost.end_reason = (Leasehold__V1__EndReason)reason;
    if (message != NULL)
        lost.message = lh_message_cut(message, arena);
    init(&event, LEASEHOLD__V1__HOLD_EVENT__EVENT_LOST);
    event.lost = &lost;
    send_event(hold, &event);
}

void lh_hold_tell_released(struct hold *hold, enum lh_outcome outcome, enum lh_end_reason reason, const char *message)
{
    struct lh_arena *arena = &hold->service->scratch;
    Leasehold__V1__ReleaseResult released = LEASEHOLD__V1__RELEASE_RESULT__INIT;
    Leasehold__V1__HoldEvent event;

    released.lease_key = LH_UUID_TEXT(&hold->acquire.lease_key);
    released.outcome = (Leasehold__V1__Outcome)outcome;
    if (outcome == LH_OUTCOME_LOST)
        released.end_reason = (Leasehold__V1__EndReason)reason;
    if (outcome != LH_OUTCOME_OK && message != NULL)
        released.message = lh_message_cut(message, arena);
    init(&event, LEASEHOLD__V1__HOLD_EVENT__EVENT_RELEASED);
    event.released = &released;
    send_event(hold, &event);
}
