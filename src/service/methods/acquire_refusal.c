/*
 * Why an acquire was not granted: the answer, and the holders that are in the way. The database answers an acquire with
 * the oldest one. If several share the scope, the others are looked up first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "service/call_internal.h"
#include "service/words_internal.h"

#define HOLDERS_MAX 10 /* of a Contention */
#define PATIENCE_US (1 * LH_US_PER_S)
/* At once: they share the connection on which the daemon keeps itself known. */
#define LOOK_UPS_MAX 32

/* --- the words --- */

/* A field of the database's answer, as the request has it: of several scopes, in the item that the answer is about. */
static const char *field_of(const struct lh_acquire_result *result, bool is_all, char path[LH_VIOLATION_FIELD_BYTES])
{
    static const char *const of_items[] = {"namespace", "key", "mode", "units", "at_least"};
    const char *field = result->field == NULL ? "message" : result->field;

    for (size_t i = 0; is_all && i < sizeof(of_items) / sizeof(of_items[0]); i++) {
        if (strcmp(field, of_items[i]) == 0) {
            snprintf(path, LH_VIOLATION_FIELD_BYTES, "items[%zu].%s%s", result->about, i < 2 ? "scope." : "", field);
            return path;
        }
    }
    return lh_call_field(field, path);
}

static void refuse_invalid(struct lh_rpc_call *call, const struct lh_acquire_result *result, bool is_all)
{
    struct lh_violations violations = {0};
    char path[LH_VIOLATION_FIELD_BYTES];
    const char *field = field_of(result, is_all, path);

    if (result->bound != NULL)
        lh_violations_add(&violations, field, "must be %s", result->bound);
    else
        lh_violations_add(&violations, field, "is refused: %s",
                          result->message != NULL ? result->message : lh_status_text(result->status));
    lh_call_refuse(call, &violations);
}

void lh_acquire_hide_holder(const struct lh_access_caller *who, const char *ns, const char *key,
                            struct lh_contention *contention)
{
    if (lh_access_may(who, LH_RIGHT_READ, ns))
        return;
    contention->holder_count = 0;
    contention->units_free = LH_UNITS_UNBOUNDED;
    if (!contention->has_holder)
        return;
    contention->is_holder_hidden = true;
    contention->holder = (struct lh_held_lease){.ns = ns, .key = key};
}

/* Others may know who holds it, but it is not why they fail. */
static bool tells_contention(enum lh_status status)
{
    return status == LH_LEASE_HELD || status == LH_WAIT_TIMEOUT || status == LH_BLOCKING_TIMEOUT;
}

static const char with_the_key[] = "call again with the same lease key";

/* What a person is told; `words` is room for it. */
static const char *describe(const struct lh_service *service, const struct lh_acquire *request,
                            const struct lh_wanted_scope *scope, const struct lh_acquire_result *result,
                            const struct lh_contention *contention, char words[LH_CONTENTION_TEXT_BYTES])
{
    switch (result->status) {
    case LH_LEASE_HELD:
        lh_contention_held(scope->ns, scope->key, contention, words);
        return words;
    case LH_WAIT_TIMEOUT:
        lh_contention_wait_timeout(scope->ns, scope->key, request->wait_us, contention, words);
        return words;
    case LH_BLOCKING_TIMEOUT:
        lh_contention_blocking_timeout(scope->ns, scope->key, service->max_block_us, contention, words);
        return words;
    case LH_CANCELED:
    case LH_SHUTTING_DOWN:
        return "the server is shutting down: call another, or again, with the same lease key; the place in the queue "
               "is kept for 10 s";
    case LH_DATABASE_UNAVAILABLE:
        if (result->bound == NULL)
            return lh_call_words_of_outage(service, scope->ns, scope->key, with_the_key, words);
        snprintf(words, LH_CONTENTION_TEXT_BYTES, "%s: %s", result->bound, with_the_key); /* it is elsewhere */
        return words;
    case LH_ACCESS_DENIED:
        snprintf(words, LH_CONTENTION_TEXT_BYTES, "%s must be %s", result->field, result->bound);
        return words;
    default:
        if (result->message != NULL && result->message[0] != '\0')
            return result->message;
        lh_contention_refused(result->status, scope->ns, scope->key, result->bound, words);
        return words;
    }
}

void lh_acquire_fail(struct lh_rpc_call *call, const struct lh_access_caller *who, const struct lh_acquire *request,
                     const struct lh_acquire_result *result)
{
    struct lh_wanted_scope scope = lh_acquire_nth_scope(request, result->about);
    struct lh_failure failure = {.status = result->status, .ns = scope.ns, .key = scope.key, .limit = result->bound};
    struct lh_contention contention;
    char words[LH_CONTENTION_TEXT_BYTES];

    if (result->status == LH_INVALID_ARGUMENT) {
        refuse_invalid(call, result, request->also != NULL);
        return;
    }
    if (result->status == LH_INTERNAL) {
        lh_failure_send_internal(call, result->message);
        return;
    }
    if (result->status == LH_ACCESS_DENIED) {
        char unused[LH_PERMIT_WORDS_BYTES];
        lh_permit_refuse_item(call, who, LH_RIGHT_ADMIN, scope.ns, unused);
        failure.field = result->field;
        failure.principal = lh_access_name(who);
        failure.right = lh_right_name(LH_RIGHT_ADMIN);
    }
    if (result->status == LH_CANCELED) /* not by us: the coordinator is going */
        failure.status = LH_SHUTTING_DOWN;
    if (result->contention != NULL && tells_contention(result->status)) {
        contention = *result->contention;
        contention.holder.ns = scope.ns;
        contention.holder.key = scope.key;
        contention.holder.asked =
            lh_places_asked(lh_call_service(call)->places, scope.ns, scope.key, contention.holder.token);
        lh_acquire_hide_holder(who, scope.ns, scope.key, &contention);
        failure.contention = &contention;
    }
    failure.message = describe(lh_call_service(call), request, &scope, result, failure.contention, words);
    lh_failure_send(call, &failure);
}

void lh_acquire_refuse(struct lh_rpc_call *call, const struct lh_acquire *request, enum lh_status status)
{
    struct lh_violations violations = {0};

    if (status != LH_INVALID_ARGUMENT) {
        lh_call_fail(call, status, NULL, request->ns, request->key);
        return;
    }
    if (request->also != NULL)
        lh_violations_add(&violations, "items",
                          "must be those of the request that waits with the same lease_key, in the same order");
    else
        lh_violations_add(&violations, "mode",
                          "must be that of the request that waits with the same lease_key, and so must units");
    lh_call_refuse(call, &violations);
}

/* The first of its scopes that no database may grant, or that is in another than the first one. */
static struct lh_wanted_scope moved_scope(const struct lh_service *service, const struct lh_acquire *request)
{
    size_t i = 0;

    while (i + 1 < lh_acquire_scope_count(request) &&
           lh_places_granting(service->places, lh_acquire_nth_scope(request, i).ns,
                              lh_acquire_nth_scope(request, i).key) != NULL)
        i++;
    return lh_acquire_nth_scope(request, i);
}

void lh_acquire_refuse_moved(struct lh_rpc_call *call, const struct lh_acquire *request)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_wanted_scope scope = moved_scope(service, request);
    const struct lh_place *place = lh_places_granting(service->places, scope.ns, scope.key);
    char words[LH_OUTAGE_WORDS_BYTES];
    struct lh_failure failure = {.status = LH_DATABASE_UNAVAILABLE, .ns = scope.ns, .key = scope.key, .message = words};

    if (place == NULL)
        lh_call_words_of_outage(service, scope.ns, scope.key, with_the_key, words);
    else
        snprintf(words, sizeof(words), "this key is in database %s now: %s", place->name, with_the_key);
    lh_failure_send(call, &failure);
}

/* --- the holders --- */

struct refusal {
    struct lh_link link; /* in lh_service.refusals, until the caller is told */
    struct lh_service *service;
    struct lh_acquire_result result;
    struct lh_contention contention;
    char *owner, *principal; /* of its holder */
    lh_refusal_cb *then;
    void *arg;
    int64_t since_us;
};

static void tell(struct refusal *refusal)
{
    lh_list_remove(&refusal->link);
    refusal->then(refusal->arg, &refusal->result);
}

static void on_holders(void *arg, enum lh_status status, const struct lh_error *error,
                       const struct lh_list_answer *holders)
{
    struct refusal *refusal = arg;
    struct lh_contention *contention = &refusal->contention;

    refusal->service->refusal_count--;
    if (lh_link_is_linked(&refusal->link)) {
        /* All may have ended meanwhile: then the one of before stands for why it was refused. */
        if (status == LH_OK && holders->lease_count > 0) {
            if (contention->holder.token != holders->leases[0].token)
                contention->holder = holders->leases[0];
            contention->holders = holders->leases;
            contention->listed = (int32_t)holders->lease_count;
            if (!holders->has_more)
                contention->holder_count = contention->listed;
        }
        tell(refusal);
    }
    free(refusal->owner);
    free(refusal->principal);
    free(refusal);
}

/* Calls `then` once, later, with the same result, whose contention has the holders; without them if the store does not
   answer within PATIENCE_US. False: too many look-ups are out, or the store is away. */
static bool look_up(struct lh_service *service, const struct lh_wanted_scope *scope,
                    const struct lh_acquire_result *result, lh_refusal_cb *then, void *arg)
{
    struct lh_store *store = service->store;
    struct refusal *refusal;

    if (service->refusal_count >= LOOK_UPS_MAX)
        return false;
    refusal = lh_alloc_zero(1, sizeof(*refusal));
    if (store->ops->holders(store, scope->ns, scope->key, HOLDERS_MAX, on_holders, refusal) != LH_OK) {
        free(refusal);
        return false;
    }
    refusal->service = service;
    refusal->then = then;
    refusal->arg = arg;
    refusal->since_us = lh_clock_us();
    refusal->result = (struct lh_acquire_result){.status = result->status,
                                                 .about = result->about,
                                                 .waited_us = result->waited_us,
                                                 .batch = result->batch,
                                                 .contention = &refusal->contention};
    refusal->contention = *result->contention;
    refusal->contention.holder.labels = NULL;
    refusal->contention.holder.slots = NULL;
    refusal->contention.holder.slot_count = 0;
    refusal->contention.holder.owner = refusal->owner = lh_strdup(result->contention->holder.owner);
    refusal->contention.holder.principal = refusal->principal = lh_strdup(result->contention->holder.principal);
    service->refusal_count++;
    lh_list_append(&service->refusals, &refusal->link);
    return true;
}

void lh_acquire_name_holders(struct lh_service *service, const struct lh_acquire *request,
                             const struct lh_acquire_result *result, lh_refusal_cb *then, void *arg)
{
    struct lh_wanted_scope scope = lh_acquire_nth_scope(request, result->about);

    if (!tells_contention(result->status) || result->contention == NULL || result->contention->holder_count <= 1 ||
        !look_up(service, &scope, result, then, arg))
        then(arg, result);
}

void lh_refusals_tick(struct lh_service *service)
{
    struct refusal *refusal;

    while ((refusal = LH_LIST_FIRST(struct refusal, &service->refusals, link)) != NULL &&
           refusal->since_us + PATIENCE_US <= lh_clock_us())
        tell(refusal);
}
