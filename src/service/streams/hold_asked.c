/* Requests to hand over the lease of a Hold stream: its client is told of each once, and refuses on the stream. */
#include "service/call_internal.h"
#include "service/streams_internal.h"

static void note(struct hold *hold, const struct lh_hand_over *asked)
{
    if (hold->state != HOLD_HELD || asked == NULL || asked->refusal != NULL || asked->token != hold->lease.token ||
        (asked->asked_at_us == hold->told_asked_us && asked->token == hold->told_asked_token) ||
        lh_rpc_call_is_over_mark(hold->call))
        return;
    hold->told_asked_us = asked->asked_at_us;
    hold->told_asked_token = asked->token;
    lh_hold_tell_asked(hold, asked);
}

void lh_hold_look_asked(struct hold *hold)
{
    note(hold, lh_places_asked(hold->service->places, hold->acquire.ns, hold->acquire.key, hold->lease.token));
}

static void on_news(void *arg, const struct lh_hand_over *asked)
{
    struct lh_service *service = arg;
    struct hold *hold = lh_hold_find(service, asked->ns, asked->key, asked->lease_key);

    if (hold != NULL)
        note(hold, asked);
}

void lh_hold_asked_start_place(struct lh_service *service, const struct lh_place *place)
{
    lh_coordinator_on_asked(place->coordinator, on_news, service);
}

static void on_refused(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
}

bool lh_hold_refuse(struct hold *hold, const Leasehold__V1__RefuseHandOver *refuse, struct lh_violations *violations)
{
    struct lh_validator v = {.arena = &hold->service->scratch, .violations = violations};
    struct lh_schedule_settings settings = {.change = {.ns = hold->acquire.ns}};
    struct lh_requester by = lh_call_requester(hold->call);
    struct lh_admin_request wanted = {
        .verb = LH_ADMIN_REFUSE_HAND_OVER, .by = &by, .ns = hold->acquire.ns, .change = &settings.change};

    if (hold->state == HOLD_NEW)
        return lh_violations_add(violations, "refuse", "must come after acquire");
    if (!lh_validate_words(&v, refuse->reason, "refuse.reason", 1))
        return false;
    lh_schedule_setting(&settings, "key", hold->acquire.key);
    lh_schedule_setting(&settings, "lease_key", LH_UUID_TEXT(&hold->acquire.lease_key));
    lh_schedule_setting(&settings, "reason", refuse->reason);
    if (hold->state == HOLD_HELD) /* where it is not done, the request stays open, and the client may refuse again */
        hold->service->store->ops->administer(hold->service->store, &wanted, on_refused, NULL);
    return true;
}
