/*
 * Hold: a lease that the server keeps alive for its client. The client's first message acquires, the server renews, and
 * the end of the stream releases the lease: at once, because a client that is gone cannot do it.
 *
 * The end as the next holder sees it: `release` says success or failure; a half-close is a success without a result; a
 * reset, a closed connection, a deadline or an invalid message is a failure. If we cannot know whether the client
 * learnt of the end (we gave up a silent connection, or a message that came in part only, or shut down, or there is a
 * proxy, which may have ended the stream) the lease is left to its deadline, and the same lease key finds it again. A
 * second Hold with the lease key of a first one takes it over.
 */
#include "service/streams_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "service/words_internal.h"

/* Give back what its client will not: nobody is told. */
static void give_back(struct hold *hold, const char *why)
{
    free(hold->release_value);
    hold->release_value = lh_strdup(why);
    lh_hold_release(hold, true);
}

/* OVER, with a reason for the client; what it has is given back. */
static void refuse(struct hold *hold, const struct lh_violations *violations)
{
    enum hold_state before = hold->state;

    lh_hold_set_state(hold, HOLD_OVER);
    lh_call_refuse(hold->call, violations);
    if (before == HOLD_WAITING)
        lh_coordinator_cancel(hold->coordinator, &hold->acquire);
    else if (before == HOLD_HELD)
        give_back(hold, "its holder sent a message that was refused");
}

/* --- acquiring --- */

static void take_over(struct hold *hold)
{
    struct hold *older = lh_hold_find(hold->service, hold->acquire.ns, hold->acquire.key, hold->acquire.lease_key);

    if (older != NULL) {
        struct lh_failure failure = {.status = LH_CANCELED,
                                     .ns = older->acquire.ns,
                                     .key = older->acquire.key,
                                     .message = "another Hold with the same lease key has taken over"};
        lh_hold_set_state(older, HOLD_OVER);
        lh_failure_send(older->call, &failure);
    }
}

static void on_refused(void *arg, const struct lh_acquire_result *result)
{
    struct hold *hold = arg;

    if (hold->call != NULL)
        lh_acquire_fail(hold->call, &hold->who, &hold->acquire, result);
    lh_hold_leave(hold);
}

static void on_acquired(struct lh_acquire *request, const struct lh_acquire_result *result)
{
    struct hold *hold = request->arg;

    lh_usage_give(hold->caller, lh_acquire_bound(request), 1);
    if (hold->state == HOLD_WAITING)
        lh_tracing_acquired(hold->call, result);
    if (hold->state == HOLD_WAITING && result->status == LH_OK) {
        take_over(hold);
        lh_hold_set_state(hold, HOLD_HELD);
        lh_hold_take(hold, result->lease);
        lh_hold_tell_granted(hold, result->waited_us);
        lh_hold_look_asked(hold);
    } else if (hold->state == HOLD_WAITING && result->status == LH_DATABASE_UNAVAILABLE &&
               lh_acquire_coordinator(hold->service, request) != hold->coordinator) {
        lh_hold_set_state(hold, HOLD_OVER);
        lh_acquire_refuse_moved(hold->call, request);
    } else if (hold->state == HOLD_WAITING) {
        lh_hold_set_state(hold, HOLD_OVER);
        hold->users++;
        lh_acquire_name_holders(hold->service, request, result, on_refused, hold);
    } else if (result->status == LH_OK && !result->is_renewal) {
        give_back(hold, "its holder was gone when it was granted");
    }
    lh_hold_leave(hold);
}

static void on_progress(struct lh_acquire *request, const struct lh_contention *contention)
{
    struct hold *hold = request->arg;
    struct lh_contention shown = *contention;

    shown.holder.asked = lh_places_asked(hold->service->places, request->ns, request->key, shown.holder.token);
    lh_acquire_hide_holder(&hold->who, request->ns, request->key, &shown);
    if (hold->state == HOLD_WAITING)
        lh_hold_tell_queued(hold, &shown);
}

static void keep(struct hold *hold, const struct lh_acquire *acquire)
{
    const char *const sources[] = {acquire->ns, acquire->key, acquire->terms.owner, acquire->terms.labels,
                                   lh_rpc_call_principal(hold->call)};
    const char **const kept[] = {&hold->acquire.ns, &hold->acquire.key, &hold->acquire.terms.owner,
                                 &hold->acquire.terms.labels, &hold->acquire.terms.principal};
    size_t size = 0;
    char *at;

    for (int i = 0; i < 5; i++)
        size += strlen(sources[i]) + 1;
    hold->acquire = *acquire;
    hold->strings = at = lh_alloc(size);
    for (int i = 0; i < 5; i++) {
        *kept[i] = at;
        at = stpcpy(at, sources[i]) + 1;
    }
    hold->acquire.on_done = on_acquired;
    hold->acquire.on_progress = on_progress;
    hold->acquire.arg = hold;
}

static void begin(struct hold *hold, const struct lh_acquire *acquire)
{
    enum lh_status status;

    keep(hold, acquire);
    hold->coordinator = lh_acquire_coordinator(hold->service, acquire);
    if (hold->coordinator == NULL) {
        lh_hold_set_state(hold, HOLD_OVER);
        lh_acquire_refuse_moved(hold->call, &hold->acquire);
        return;
    }
    if (!lh_usage_take(hold->call, lh_acquire_bound(acquire), 1, &hold->caller)) {
        lh_hold_set_state(hold, HOLD_OVER);
        return;
    }
    status = lh_coordinator_acquire(hold->coordinator, &hold->acquire);
    if (status != LH_OK) {
        lh_hold_set_state(hold, HOLD_OVER);
        lh_acquire_refuse(hold->call, &hold->acquire, status);
        lh_usage_give(hold->caller, lh_acquire_bound(acquire), 1);
        return;
    }
    hold->users++;
    lh_hold_set_state(hold, HOLD_WAITING);
}

/* --- what the client says --- */

/* The fields of a part, as paths of the whole. */
static void prefix(struct lh_violations *violations, const char *name)
{
    for (size_t i = 0; i < violations->count; i++) {
        char field[LH_VIOLATION_FIELD_BYTES];
        snprintf(field, sizeof(field), "%s.%.60s", name, violations->list[i].field);
        memcpy(violations->list[i].field, field, sizeof(field));
    }
}

static bool take_acquire(struct hold *hold, const Leasehold__V1__AcquireRequest *request,
                         struct lh_violations *violations)
{
    struct lh_validator v = {
        .arena = &hold->service->scratch, .violations = violations, .places = hold->service->places};
    struct lh_acquire acquire = {0};

    if (hold->state != HOLD_NEW)
        return lh_violations_add(violations, "acquire", "must come once, first");
    if (!lh_validate_acquire(&v, request, &acquire)) {
        prefix(violations, "acquire");
        return false;
    }
    lh_tracing_scope(hold->call, acquire.ns, acquire.key);
    if (lh_access_may(&hold->who, LH_RIGHT_LEASE, acquire.ns)) {
        lh_acquire_set_rights(&hold->who, &acquire);
        begin(hold, &acquire);
    } else {
        lh_hold_set_state(hold, HOLD_OVER);
        lh_permit_refuse(hold->call, &hold->who, LH_RIGHT_LEASE, acquire.ns);
    }
    return true;
}

/* Its lease, where the client did not name it. */
static Leasehold__V1__LeaseRef *own_ref(struct hold *hold)
{
    struct lh_arena *arena = &hold->service->scratch;
    Leasehold__V1__LeaseRef *ref = lh_message_new(&leasehold__v1__lease_ref__descriptor, arena);

    ref->scope = lh_message_scope(hold->acquire.ns, hold->acquire.key, arena);
    ref->lease_key = lh_arena_alloc(arena, LH_UUID_TEXT_BYTES);
    lh_uuid_format(&hold->acquire.lease_key, ref->lease_key);
    return ref;
}

static void release(struct hold *hold, bool is_failure, const char *value)
{
    if (hold->state == HOLD_HELD) {
        hold->release_value = lh_strdup(value);
        lh_hold_set_state(hold, HOLD_RELEASING);
        lh_hold_release(hold, is_failure);
    } else if (hold->state == HOLD_WAITING) {
        lh_hold_set_state(hold, HOLD_OVER);
        lh_hold_tell_released(hold, LH_OUTCOME_LOST, LH_END_UNKNOWN, "it was not granted yet; the wait is over");
        lh_rpc_call_finish(hold->call, LH_GRPC_OK, NULL, NULL, 0);
        lh_coordinator_cancel(hold->coordinator, &hold->acquire);
    }
}

static bool take_release(struct hold *hold, Leasehold__V1__ReleaseItem *request, struct lh_violations *violations,
                         struct lh_holder_item *item)
{
    struct lh_validator v = {
        .arena = &hold->service->scratch, .violations = violations, .places = hold->service->places};
    const Leasehold__V1__LeaseRef *ref = request->lease;

    if (hold->state == HOLD_NEW || hold->state == HOLD_RELEASING)
        return lh_violations_add(violations, "release",
                                 hold->state == HOLD_NEW ? "must come after acquire" : "must come once");
    if (ref == NULL || (ref->scope == NULL && ref->lease_key[0] == '\0'))
        request->lease = own_ref(hold);
    if (!lh_validate_release_item(&v, request, "release", item))
        return false;
    if (strcmp(item->ns, hold->acquire.ns) != 0 || strcmp(item->key, hold->acquire.key) != 0 ||
        !lh_uuid_equal(&item->lease_key, &hold->acquire.lease_key))
        return lh_violations_add(violations, "release.lease", "must be the lease of this stream, or absent");
    return true;
}

static bool take_alive(struct hold *hold, const Leasehold__V1__Alive *alive, struct lh_violations *violations)
{
    if (hold->state == HOLD_NEW)
        return lh_violations_add(violations, "alive", "must come after acquire");
    lh_hold_note_alive(hold, alive->sequence);
    if (hold->state == HOLD_HELD)
        lh_hold_look(hold);
    return true;
}

void lh_hold_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct hold *hold = lh_rpc_call_data(call);
    struct lh_violations violations = {0};
    struct lh_holder_item item = {0};
    bool is_release = false, is_good = false;
    Leasehold__V1__HoldRequest *request;

    if (hold == NULL || hold->state == HOLD_OVER)
        return;
    request =
        lh_call_unpack_into(&leasehold__v1__hold_request__descriptor, data, size, &hold->service->scratch, &violations);
    if (request != NULL && request->request_case == LEASEHOLD__V1__HOLD_REQUEST__REQUEST_ACQUIRE) {
        hold->by_ping = hold->service->hold_by_ping || request->by_ping;
        is_good = take_acquire(hold, request->acquire, &violations);
    } else if (request != NULL && request->request_case == LEASEHOLD__V1__HOLD_REQUEST__REQUEST_RELEASE) {
        is_release = is_good = take_release(hold, request->release, &violations, &item);
    } else if (request != NULL && request->request_case == LEASEHOLD__V1__HOLD_REQUEST__REQUEST_ALIVE) {
        is_good = take_alive(hold, request->alive, &violations);
    } else if (request != NULL && request->request_case == LEASEHOLD__V1__HOLD_REQUEST__REQUEST_REFUSE) {
        is_good = lh_hold_refuse(hold, request->refuse, &violations);
    } else if (request != NULL) {
        lh_violations_add(&violations, "request", "must be acquire, release, alive or refuse");
    }
    if (is_release) {
        char *value = lh_strdup(item.value);
        lh_arena_reset(&hold->service->scratch);
        release(hold, item.is_failure, value);
        free(value);
        return;
    }
    lh_arena_reset(&hold->service->scratch);
    if (!is_good)
        refuse(hold, &violations);
}

static void end(struct hold *hold, const char *why)
{
    struct lh_failure failure = {
        .status = LH_CANCELED, .ns = hold->acquire.ns, .key = hold->acquire.key, .message = why};
    bool is_waiting = hold->state == HOLD_WAITING;

    lh_hold_set_state(hold, HOLD_OVER);
    lh_failure_send(hold->call, &failure);
    if (is_waiting)
        lh_coordinator_cancel(hold->coordinator, &hold->acquire);
}

void lh_hold_on_half_close(struct lh_rpc_call *call)
{
    struct hold *hold = lh_rpc_call_data(call);
    struct lh_violations violations = {0};

    if (hold == NULL)
        return;
    if (hold->state == HOLD_NEW) {
        lh_violations_add(&violations, "acquire", "must be given");
        refuse(hold, &violations);
    } else if (hold->state == HOLD_WAITING) {
        end(hold, "the client ended the stream before the lease was granted");
    } else if (hold->state == HOLD_HELD && lh_hold_has_proxy(hold)) {
        /* HAProxy does that for a client whose connection broke, or that was quiet. */
        end(hold, "through a proxy only `release` gives the lease back: it goes on until its deadline; call again with "
                  "the same lease key");
    } else {
        release(hold, false, NULL);
    }
}

/* --- the stream --- */

void lh_hold_on_start(struct lh_rpc_call *call)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_access_caller who;
    struct hold *hold;

    lh_tracing_begin(call);
    if (service->is_draining) {
        lh_call_fail(call, LH_SHUTTING_DOWN, NULL, NULL, NULL);
        return;
    }
    if (!lh_permit_enter(call, &who))
        return;
    hold = lh_alloc_zero(1, sizeof(*hold));
    hold->who = who;
    hold->service = service;
    hold->call = call;
    hold->users = 1;
    lh_list_append(&service->hold_list, &hold->link);
    hold->rights_round = service->rights_round;
    hold->told_us = lh_clock_us();
    hold->look_us = INT64_MAX;
    lh_rpc_call_set_data(call, hold);
}

void lh_hold_on_alarm(struct lh_rpc_call *call)
{
    struct hold *hold = lh_rpc_call_data(call);

    if (hold == NULL)
        return;
    if (lh_hold_is_silent(hold)) {
        end(hold, "its client was silent for too long while it waited: it must say `alive` at least every 15 s");
        return;
    }
    lh_hold_ring(hold);
    lh_hold_look(hold);
}

void lh_hold_on_peer_alive(struct lh_rpc_call *call)
{
    struct hold *hold = lh_rpc_call_data(call);
    if (hold != NULL)
        lh_hold_answered(hold);
}

static const char *last_words(enum lh_rpc_end reason)
{
    switch (reason) {
    case LH_RPC_END_CANCELED:
        return "its holder reset the stream";
    case LH_RPC_END_DISCONNECTED:
        return "the connection of its holder was closed";
    default:
        return "the deadline of its holder's call has passed";
    }
}

void lh_hold_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct hold *hold = lh_rpc_call_data(call);
    enum hold_state before;
    bool may_live_on;

    lh_tracing_end(call);
    if (hold == NULL)
        return;
    before = hold->state;
    may_live_on = reason == LH_RPC_END_SHUTDOWN || reason == LH_RPC_END_REFUSED || lh_hold_has_proxy(hold) ||
                  (reason == LH_RPC_END_DISCONNECTED && lh_rpc_call_is_peer_lost(call));
    hold->call = NULL;
    lh_list_remove(&hold->link);
    lh_hold_set_state(hold, HOLD_OVER);
    if (before == HOLD_WAITING)
        lh_coordinator_cancel(hold->coordinator, &hold->acquire);
    else if (before == HOLD_HELD && !may_live_on)
        give_back(hold, last_words(reason));
    else if (before == HOLD_RELEASING && hold->release.arg == NULL)
        lh_hold_release(hold, hold->release_item.item.is_failure); /* it was to be tried again */
    lh_hold_leave(hold);
}

void lh_hold_downgraded(struct lh_service *service, const struct lh_held_lease *lease)
{
    struct hold *hold = lh_hold_find(service, lease->ns, lease->key, lease->lease_key);

    if (hold == NULL || lease->token < hold->lease.token)
        return;
    lh_hold_take(hold, lease);
    lh_hold_tell_renewed(hold);
    lh_hold_look_asked(hold);
}

/* The leases go on: whoever is told calls again with the same lease key. Waiters hear it from the coordinator. */
void lh_hold_drain(struct lh_service *service)
{
    LH_LIST_EACH(struct hold, hold, &service->hold_list, link) {
        if (hold->state == HOLD_NEW || hold->state == HOLD_HELD) {
            struct lh_failure failure = {
                .status = LH_SHUTTING_DOWN,
                .ns = hold->acquire.ns,
                .key = hold->acquire.key,
                .message = "the server is shutting down: the lease goes on until its deadline; call another, or "
                           "again, with the same lease key"};
            lh_hold_set_state(hold, HOLD_OVER);
            lh_failure_send(hold->call, &failure);
        }
    }
}

/* A lease that is held is left to its expiry: its holder may still work under it. */
bool lh_hold_check_rights(struct lh_service *service, int max)
{
    struct hold *hold;

    while ((hold = LH_LIST_FIRST(struct hold, &service->hold_list, link)) != NULL &&
           hold->rights_round != service->rights_round) {
        bool is_waiting = hold->state == HOLD_WAITING;
        if (max-- == 0)
            return true;
        hold->rights_round = service->rights_round;
        lh_list_remove(&hold->link);
        lh_list_append(&service->hold_list, &hold->link);
        bool may = lh_access_may(&hold->who, LH_RIGHT_LEASE, hold->acquire.ns);
        bool is_moved = is_waiting && lh_acquire_coordinator(service, &hold->acquire) != hold->coordinator;
        if ((!is_waiting && hold->state != HOLD_HELD) || (may && !is_moved))
            continue;
        if (may) {
            lh_coordinator_send_back(hold->coordinator, &hold->acquire);
            continue;
        }
        lh_hold_set_state(hold, HOLD_OVER);
        lh_permit_refuse(hold->call, &hold->who, LH_RIGHT_LEASE, hold->acquire.ns);
        if (is_waiting)
            lh_coordinator_cancel(hold->coordinator, &hold->acquire);
    }
    return false;
}
