/*
 * Downgrade. It has one item, which goes to the coordinator as a heartbeat does: a busy row is tried again there for a
 * second, and the database's answer may come after the call has ended. A client that lost the reply asks again, and
 * gets the same.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "service/streams_internal.h"
#include "service/words_internal.h"

struct downgrade_call {
    struct lh_holder_request request;
    struct lh_holder_entry entry;
    struct lh_downgrade downgrade;
    struct lh_service *service;
    struct lh_rpc_call *call; /* NULL: its client is gone */
    struct lh_usage *caller;
    struct lh_arena strings;
};

static void destroy(struct downgrade_call *downgrade)
{
    lh_usage_give(downgrade->caller, LH_USAGE_PENDING, 1);
    lh_arena_finish(&downgrade->strings);
    free(downgrade);
}

static void reply(struct downgrade_call *downgrade)
{
    struct lh_arena *arena = &downgrade->service->scratch;
    Leasehold__V1__DowngradeResponse response = LEASEHOLD__V1__DOWNGRADE_RESPONSE__INIT;

    response.lease = lh_message_lease(&downgrade->downgrade.lease, LH_LEASE_WITH_KEY, arena);
    response.waited = lh_message_duration(downgrade->request.batch.sent_us - downgrade->entry.own.arrived_us, arena);
    lh_call_reply(downgrade->call, &response.base, arena);
    lh_arena_reset(arena);
}

static void refuse(const struct downgrade_call *downgrade)
{
    const struct lh_downgrade *answer = &downgrade->downgrade;
    struct lh_violations violations = {0};
    char path[LH_VIOLATION_FIELD_BYTES];
    const char *field = answer->field == NULL ? "units" : lh_call_field(answer->field, path);

    if (answer->bound != NULL)
        lh_violations_add(&violations, field, "must be %s", answer->bound);
    else
        lh_violations_add(&violations, field, "is refused: %s",
                          downgrade->entry.item.message != NULL ? downgrade->entry.item.message : "it does not fit");
    lh_call_refuse(downgrade->call, &violations);
}

static bool is_connected(const struct lh_place *place)
{
    return place->store->ops->is_connected(place->store);
}

/* Not done, for a reason that is not the request's. */
static void fail(const struct downgrade_call *downgrade)
{
    const struct lh_holder_item *item = &downgrade->entry.item;
    struct lh_failure failure = {.ns = item->ns, .key = item->key, .message = item->message};
    char words[LH_CONTENTION_TEXT_BYTES];

    if (downgrade->downgrade.is_over_quota) {
        failure.status = LH_QUOTA_EXCEEDED;
        failure.limit = downgrade->downgrade.bound;
    } else if (item->outcome == LH_OUTCOME_REJECTED) {
        failure.status = LH_HOOK_REJECTED;
    } else if (item->outcome == LH_OUTCOME_LOST) {
        failure.status = LH_NOT_HELD;
        snprintf(words, sizeof(words), "lease %s is not held with this lease key: %s",
                 LH_SCOPE_NAME(item->ns, item->key), item->message);
        failure.message = words;
    } else if (!is_connected(lh_places_of(downgrade->service->places, item->ns, item->key))) {
        lh_call_fail(downgrade->call, LH_DATABASE_UNAVAILABLE, NULL, item->ns, item->key);
        return;
    } else {
        failure.status = LH_SCOPE_BUSY;
        lh_contention_refused(LH_SCOPE_BUSY, item->ns, item->key, NULL, words);
        failure.message = words;
    }
    lh_failure_send(downgrade->call, &failure);
}

static void on_done(struct lh_holder_request *request)
{
    struct downgrade_call *downgrade = request->arg;
    enum lh_outcome outcome = downgrade->entry.item.outcome;

    if (outcome == LH_OUTCOME_OK)
        lh_hold_downgraded(downgrade->service, &downgrade->downgrade.lease);
    if (downgrade->call != NULL) {
        lh_tracing_answered(downgrade->call, request);
        lh_rpc_call_set_data(downgrade->call, NULL);
        if (outcome == LH_OUTCOME_OK)
            reply(downgrade);
        else if (outcome == LH_OUTCOME_INVALID && !downgrade->downgrade.is_over_quota)
            refuse(downgrade);
        else
            fail(downgrade);
    }
    destroy(downgrade);
}

static void begin(struct lh_rpc_call *call, const struct lh_holder_item *item, int32_t units)
{
    const struct lh_place *place = lh_places_holding(lh_call_service(call)->places, item->ns, item->key);
    struct downgrade_call *downgrade;
    struct lh_usage *caller;
    enum lh_status status;

    if (place == NULL) {
        lh_call_fail(call, LH_DATABASE_UNAVAILABLE, NULL, item->ns, item->key);
        return;
    }
    if (!lh_usage_take(call, LH_USAGE_PENDING, 1, &caller))
        return;
    downgrade = lh_alloc_zero(1, sizeof(*downgrade));
    downgrade->caller = caller;
    downgrade->service = lh_call_service(call);
    downgrade->call = call;
    downgrade->downgrade.units = units;
    downgrade->downgrade.principal = lh_arena_strdup(&downgrade->strings, lh_rpc_call_principal(call));
    downgrade->entry.item.ns = lh_arena_strdup(&downgrade->strings, item->ns);
    downgrade->entry.item.key = lh_arena_strdup(&downgrade->strings, item->key);
    downgrade->entry.item.lease_key = item->lease_key;
    downgrade->entry.item.downgrade = &downgrade->downgrade;
    downgrade->request =
        (struct lh_holder_request){.items = &downgrade->entry, .count = 1, .on_done = on_done, .arg = downgrade};
    lh_rpc_call_set_data(call, downgrade);
    status = lh_coordinator_downgrade(place->coordinator, &downgrade->request);
    if (status == LH_OK)
        return;
    lh_rpc_call_set_data(call, NULL);
    lh_call_fail(call, status, NULL, downgrade->entry.item.ns, downgrade->entry.item.key);
    destroy(downgrade);
}

void lh_downgrade_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__DowngradeRequest *request = message;
    struct lh_holder_item item = {0};
    int32_t units = 0;
    bool is_valid = lh_validate_lease_ref(&asked->v, request->lease, "lease", &item.ns, &item.key, &item.lease_key);

    is_valid &= lh_validate_units(&asked->v, request->units, "units", &units);
    if (lh_asked_check(asked, is_valid) && lh_permit(asked->call, LH_RIGHT_LEASE, item.ns))
        begin(asked->call, &item, units);
}

void lh_downgrade_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct downgrade_call *downgrade = lh_rpc_call_data(call);

    lh_tracing_end(call);
    if (downgrade != NULL)
        downgrade->call = NULL;
}
