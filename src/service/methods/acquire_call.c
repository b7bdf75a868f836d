/*
 * Acquire, and the parts of it that AcquireAll and AcquireStream share. The request is unpacked into scratch memory.
 * The call keeps one allocation, because there may be many waiters and each may stay for hours.
 *
 *     WAITING --- on_done: answered, not granted -------------------------> gone
 *        |   `--- on_done: refused, several hold it --> REFUSED --- their names are there, or on_end ---> gone
 *        |   `--- on_done: granted, replied ---> TOLD --- on_end ---------> not sent: released again, gone
 *        |                                          `---- on_end: sent ---> kept for 2 s, then gone; a cancel that
 *        |                                                                  crossed the reply: released again, gone;
 *        |                                                                  of a stream: gone
 *        `------- on_end: the client is gone --> ABANDONED --- on_done ---> gone
 *
 * A client that cancels a unary call has not read the reply. A client that cancels a stream may have read `granted` and
 * may work under the lease. The server cannot know, so it leaves the lease to its deadline. A lease without a holder
 * does less harm than a lease taken from its holder.
 *
 * A client may call again with the same lease key, here or at another coordinator, while the end of its first call is
 * on its way to us. If that call renews the lease, the client keeps it: a renewed lease is not released again.
 */
#include "service/methods/acquire_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "service/words_internal.h"

/* As long as a cancel may be on its way, and no more than so many. */
#define TOLD_KEPT_US (2 * LH_US_PER_S)
#define TOLD_MAX 4096

/* --- the scopes of a request --- */

size_t lh_acquire_scope_count(const struct lh_acquire *request)
{
    return 1 + request->also_count;
}

struct lh_wanted_scope lh_acquire_nth_scope(const struct lh_acquire *request, size_t i)
{
    if (i > 0)
        return request->also[i - 1];
    return (struct lh_wanted_scope){request->ns, request->key, request->units, request->at_least_us};
}

const char *lh_acquire_forbidden(const struct lh_access_caller *who, const struct lh_acquire *request)
{
    for (size_t i = 0; i < lh_acquire_scope_count(request); i++) {
        struct lh_wanted_scope scope = lh_acquire_nth_scope(request, i);
        if (!lh_access_may(who, LH_RIGHT_LEASE, scope.ns))
            return scope.ns;
    }
    return NULL;
}

void lh_acquire_set_rights(const struct lh_access_caller *who, struct lh_acquire *request)
{
    if (request->terms.priority > 0 && lh_access_may(who, LH_RIGHT_ADMIN, request->ns))
        request->terms.priority = -request->terms.priority;
}

/* --- a lease nobody heard of is given back --- */

/* Its last user is gone. */
static void release_memory(struct acquire_call *acquire)
{
    lh_list_remove(&acquire->in_order);
    lh_access_leave(&acquire->who);
    free(acquire);
}

struct give_back {
    struct lh_holder_request request;
    struct acquire_call *acquire; /* keeps the strings */
    struct lh_holder_entry items[];
};

static void on_given_back(struct lh_holder_request *request)
{
    struct give_back *back = request->arg;

    for (size_t i = 0; i < request->count; i++) {
        if (back->items[i].item.outcome != LH_OUTCOME_OK)
            lh_info("lease of an ended call was not released, it ends by its deadline scope=%s",
                    LH_SCOPE_NAME(back->items[i].item.ns, back->items[i].item.key));
    }
    release_memory(back->acquire);
    free(back);
}

static void give_back(struct acquire_call *acquire)
{
    const struct lh_acquire *request = &acquire->acquire;
    size_t count = lh_acquire_scope_count(request);
    struct give_back *back = lh_alloc_zero(1, sizeof(*back) + count * sizeof(back->items[0]));

    back->acquire = acquire;
    for (size_t i = 0; i < count; i++) {
        struct lh_wanted_scope scope = lh_acquire_nth_scope(request, i);
        back->items[i].item.ns = scope.ns;
        back->items[i].item.key = scope.key;
        back->items[i].item.lease_key = request->lease_key;
        /* He may have asked another coordinator meanwhile, and have it from there. */
        back->items[i].item.is_unheard = true;
    }
    back->request.items = back->items;
    back->request.count = count;
    back->request.on_done = on_given_back;
    back->request.arg = back;
    if (lh_coordinator_release(acquire->coordinator, &back->request) != LH_OK)
        on_given_back(&back->request);
}

/* --- grants whose replies went out lately --- */

static bool is_call(const struct lh_table_entry *entry, const void *key)
{
    return LH_CONTAINER(struct acquire_call, by_call, entry)->call_id == *(const uint64_t *)key;
}

void lh_acquires_start(struct lh_service *service)
{
    lh_table_init(&service->told, is_call);
    lh_list_init(&service->told_in_order);
    lh_list_init(&service->acquires);
    lh_list_init(&service->refusals);
}

static void take_out(struct acquire_call *acquire)
{
    lh_table_remove(&acquire->service->told, &acquire->by_call);
    lh_list_remove(&acquire->in_order);
}

static void forget_told(struct lh_service *service, int64_t before_us)
{
    LH_LIST_EACH(struct acquire_call, acquire, &service->told_in_order, in_order) {
        if (acquire->told_us >= before_us && service->told.count <= TOLD_MAX)
            return;
        take_out(acquire);
        release_memory(acquire);
    }
}

void lh_acquire_tick(struct lh_service *service)
{
    forget_told(service, lh_clock_us() - TOLD_KEPT_US);
    lh_refusals_tick(service);
}

void lh_acquire_finish(struct lh_service *service)
{
    forget_told(service, INT64_MAX);
    lh_table_finish(&service->told);
}

static void keep_told(struct acquire_call *acquire)
{
    struct lh_service *service = acquire->service;

    acquire->told_us = lh_clock_us();
    lh_table_insert(&service->told, &acquire->by_call, lh_hash(&acquire->call_id, sizeof(acquire->call_id), 0));
    lh_list_append(&service->told_in_order, &acquire->in_order);
    forget_told(service, acquire->told_us - TOLD_KEPT_US);
}

void lh_service_on_late_cancel(void *arg, uint64_t call_id)
{
    struct lh_service *service = arg;
    struct lh_table_entry *entry = lh_table_find(&service->told, lh_hash(&call_id, sizeof(call_id), 0), &call_id);

    if (entry != NULL) {
        struct acquire_call *acquire = LH_CONTAINER(struct acquire_call, by_call, entry);
        take_out(acquire);
        give_back(acquire);
    }
}

/* --- answers --- */

Leasehold__V1__Lease *lh_acquire_lease(const struct acquire_call *acquire, const struct lh_acquire_result *result,
                                       size_t n)
{
    struct lh_wanted_scope scope = lh_acquire_nth_scope(&acquire->acquire, n);
    struct lh_held_lease lease = result->all == NULL ? *result->lease : result->all[n].lease;

    lease.ns = scope.ns;
    lease.key = scope.key;
    lease.lease_key = acquire->acquire.lease_key;
    return lh_message_lease(&lease, LH_LEASE_WITH_KEY, &acquire->service->scratch);
}

static void tell_granted(struct acquire_call *acquire, const struct lh_acquire_result *result)
{
    struct lh_arena *arena = &acquire->service->scratch;
    Leasehold__V1__AcquireResponse response;

    leasehold__v1__acquire_response__init(&response);
    response.lease = lh_acquire_lease(acquire, result, 0);
    response.waited = lh_message_duration(result->waited_us, arena);
    lh_call_reply(acquire->call, &response.base, arena);
    lh_arena_reset(arena);
}

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

void lh_acquire_name_holders(struct lh_service *service, const struct lh_acquire *request,
                             const struct lh_acquire_result *result, lh_refusal_cb *then, void *arg)
{
    struct lh_wanted_scope scope = lh_acquire_nth_scope(request, result->about);

    if (!tells_contention(result->status) || result->contention == NULL || result->contention->holder_count <= 1 ||
        !lh_refusal_look_up(service, &scope, result, then, arg))
        then(arg, result);
}

enum lh_usage_bound lh_acquire_bound(const struct lh_acquire *request)
{
    return request->wait == LH_WAIT_NONE ? LH_USAGE_PENDING : LH_USAGE_WAITERS;
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

static void on_refused(void *arg, const struct lh_acquire_result *result)
{
    struct acquire_call *acquire = arg;

    if (acquire->call != NULL) {
        lh_acquire_fail(acquire->call, &acquire->who, &acquire->acquire, result);
        lh_rpc_call_set_data(acquire->call, NULL);
    }
    release_memory(acquire);
}

static void on_done(struct lh_acquire *request, const struct lh_acquire_result *result)
{
    struct acquire_call *acquire = request->arg;

    lh_usage_give(acquire->caller, lh_acquire_bound(request), lh_acquire_scope_count(request));
    lh_list_remove(&acquire->in_order);
    if (acquire->call != NULL)
        lh_tracing_acquired(acquire->call, result);
    if (acquire->call != NULL && result->status == LH_OK) {
        acquire->tell_granted(acquire, result);
        /* A renewal is not ours to take back: its holder has it, whatever becomes of this reply. */
        acquire->is_told = !result->is_renewal;
        if (acquire->is_told)
            return;
    } else if (acquire->call != NULL) {
        acquire->is_refused = true;
        lh_acquire_name_holders(acquire->service, request, result, on_refused, acquire);
        return;
    } else if (result->status == LH_OK && !result->is_renewal) {
        /* Granted in the instant of the cancel, and on its way to us before the coordinator heard of it. */
        give_back(acquire);
        return;
    }
    if (acquire->call != NULL)
        lh_rpc_call_set_data(acquire->call, NULL);
    release_memory(acquire);
}

/* --- the call --- */

struct lh_coordinator *lh_acquire_coordinator(const struct lh_service *service, const struct lh_acquire *request)
{
    const struct lh_place *place = NULL;

    for (size_t i = 0; i < lh_acquire_scope_count(request); i++) {
        struct lh_wanted_scope scope = lh_acquire_nth_scope(request, i);
        const struct lh_place *of = lh_places_granting(service->places, scope.ns, scope.key);
        if (of == NULL || (place != NULL && of != place))
            return NULL;
        place = of;
    }
    return place->coordinator;
}

static const char *keep_text(char **at, const char *text)
{
    const char *kept = *at;

    *at = stpcpy(*at, text) + 1;
    return kept;
}

static size_t text_size(const struct lh_acquire *acquire, const char *principal)
{
    size_t size = strlen(acquire->terms.owner) + strlen(acquire->terms.labels) + strlen(principal) + 3;

    for (size_t i = 0; i < lh_acquire_scope_count(acquire); i++) {
        struct lh_wanted_scope scope = lh_acquire_nth_scope(acquire, i);
        size += strlen(scope.ns) + strlen(scope.key) + 2;
    }
    return size;
}

static struct acquire_call *keep(const struct lh_acquire *acquire, struct lh_rpc_call *call,
                                 const struct lh_access_caller *who)
{
    const char *principal = lh_rpc_call_principal(call);
    size_t fixed = sizeof(struct acquire_call) + acquire->also_count * sizeof(acquire->also[0]);
    struct acquire_call *kept = lh_alloc(fixed + text_size(acquire, principal));
    char *at = (char *)kept + fixed;

    memset(kept, 0, sizeof(*kept));
    kept->acquire = *acquire;
    lh_acquire_set_rights(who, &kept->acquire);
    kept->service = lh_call_service(call);
    kept->call = call;
    kept->call_id = lh_rpc_call_id(call);
    kept->who = lh_access_copy(who);
    kept->rights_round = kept->service->rights_round;
    lh_list_append(&kept->service->acquires, &kept->in_order);
    kept->acquire.ns = keep_text(&at, acquire->ns);
    kept->acquire.key = keep_text(&at, acquire->key);
    kept->acquire.terms.owner = keep_text(&at, acquire->terms.owner);
    kept->acquire.terms.labels = keep_text(&at, acquire->terms.labels);
    kept->acquire.terms.principal = keep_text(&at, principal);
    kept->acquire.also = acquire->also == NULL ? NULL : kept->also; /* not NULL: of AcquireAll, with one scope too */
    for (size_t i = 0; i < acquire->also_count; i++) {
        kept->also[i] = acquire->also[i];
        kept->also[i].ns = keep_text(&at, acquire->also[i].ns);
        kept->also[i].key = keep_text(&at, acquire->also[i].key);
    }
    kept->acquire.on_done = on_done;
    kept->acquire.arg = kept;
    return kept;
}

static void start(struct lh_rpc_call *call, const struct lh_access_caller *who, const struct lh_acquire *request,
                  lh_progress_cb *on_progress, acquire_granted_fn *tell)
{
    size_t count = lh_acquire_scope_count(request);
    struct lh_coordinator *coordinator = lh_acquire_coordinator(lh_call_service(call), request);
    struct acquire_call *acquire;
    struct lh_usage *caller;
    enum lh_status status;

    if (lh_call_service(call)->is_draining && (request->wait != LH_WAIT_NONE || on_progress != NULL)) {
        struct lh_acquire_result result = {.status = LH_SHUTTING_DOWN};
        lh_acquire_fail(call, who, request, &result);
        return;
    }
    if (coordinator == NULL) {
        lh_acquire_refuse_moved(call, request);
        return;
    }
    if (!lh_usage_take(call, lh_acquire_bound(request), count, &caller))
        return;
    acquire = keep(request, call, who);
    acquire->caller = caller;
    acquire->acquire.on_progress = on_progress;
    acquire->tell_granted = tell;
    acquire->coordinator = coordinator;
    lh_rpc_call_set_data(call, acquire);
    status = lh_coordinator_acquire(coordinator, &acquire->acquire);
    if (status == LH_OK)
        return;
    lh_rpc_call_set_data(call, NULL);
    lh_acquire_refuse(call, &acquire->acquire, status);
    lh_usage_give(caller, lh_acquire_bound(request), count);
    release_memory(acquire);
}

void lh_acquire_begin_call(struct lh_rpc_call *call, const struct lh_acquire *request, lh_progress_cb *on_progress,
                           acquire_granted_fn *tell)
{
    struct lh_access_caller who;
    const char *forbidden;

    lh_tracing_scope(call, request->ns, request->key);
    if (!lh_permit_enter(call, &who))
        return;
    forbidden = lh_acquire_forbidden(&who, request);
    if (forbidden == NULL)
        start(call, &who, request, on_progress, tell);
    else
        lh_permit_refuse(call, &who, LH_RIGHT_LEASE, forbidden);
    lh_access_leave(&who);
}

void lh_acquire_begin(struct lh_asked *asked, const void *request, lh_progress_cb *on_progress,
                      acquire_granted_fn *tell)
{
    struct lh_acquire acquire = {0};

    if (lh_asked_check(asked, lh_validate_acquire(&asked->v, request, &acquire)))
        lh_acquire_begin_call(asked->call, &acquire, on_progress, tell);
}

void lh_acquire_on_request(struct lh_asked *asked, const void *request)
{
    lh_acquire_begin(asked, request, NULL, tell_granted);
}

void lh_acquire_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct acquire_call *acquire = lh_rpc_call_data(call);

    lh_tracing_end(call);
    if (acquire == NULL)
        return;
    acquire->call = NULL;
    if (acquire->is_refused)
        return;
    if (!acquire->is_told)
        lh_coordinator_cancel(acquire->coordinator, &acquire->acquire);
    else if (reason == LH_RPC_END_FINISHED && acquire->acquire.on_progress == NULL)
        keep_told(acquire);
    else if (reason == LH_RPC_END_FINISHED)
        release_memory(acquire);
    else
        give_back(acquire);
}

bool lh_acquire_check_rights(struct lh_service *service, int max)
{
    struct acquire_call *acquire;

    while ((acquire = LH_LIST_FIRST(struct acquire_call, &service->acquires, in_order)) != NULL &&
           acquire->rights_round != service->rights_round) {
        struct lh_rpc_call *call = acquire->call;
        if (max-- == 0)
            return true;
        acquire->rights_round = service->rights_round;
        lh_list_remove(&acquire->in_order);
        lh_list_append(&service->acquires, &acquire->in_order);
        const char *forbidden = call == NULL ? NULL : lh_acquire_forbidden(&acquire->who, &acquire->acquire);
        bool is_moved = lh_acquire_coordinator(service, &acquire->acquire) != acquire->coordinator;
        if (call == NULL || (forbidden == NULL && !is_moved))
            continue;
        acquire->call = NULL;
        lh_rpc_call_set_data(call, NULL);
        if (forbidden != NULL)
            lh_permit_refuse(call, &acquire->who, LH_RIGHT_LEASE, forbidden);
        else
            lh_acquire_refuse_moved(call, &acquire->acquire);
        lh_coordinator_cancel(acquire->coordinator, &acquire->acquire);
    }
    return false;
}
