/*
 * Acquire and AcquireAll, from the message to the coordinator. The request is checked against the bounds of the API,
 * every field that is out of them is named at once, and the caller must have the right. The message is in scratch
 * memory; the call keeps a copy in one allocation, because there may be many waiters and each may stay for hours.
 */
#include <stdio.h>
#include <string.h>

#include "service/call_internal.h"
#include "service/words_internal.h"

/* --- the fields --- */

/* A field of the request itself, or of one of its items. */
static const char *name_of(const char *item, const char *field, char path[LH_VIOLATION_FIELD_BYTES])
{
    return item == NULL ? field : lh_field_member(path, item, field);
}

/* What is asked of one scope. `item` is its path, or NULL. */
static bool validate_mode(struct lh_validator *v, Leasehold__V1__Mode mode, int32_t units,
                          const Google__Protobuf__Duration *at_least, const char *item, int32_t *units_asked,
                          int64_t *at_least_us)
{
    char path[LH_VIOLATION_FIELD_BYTES], words[LH_BOUND_WORDS_BYTES];
    bool is_shared = mode == LEASEHOLD__V1__MODE__MODE_SHARED;
    const char *field = lh_bound_mode(is_shared, "MODE_SHARED", units, at_least != NULL, words);

    *units_asked = is_shared && units == 0 ? 1 : units;
    *at_least_us = LH_AT_LEAST_POLICY;
    if (field != NULL)
        return lh_violations_add(v->violations, name_of(item, field, path), "%s", words);
    return at_least == NULL ||
           lh_validate_duration(v, at_least, 0, LH_AT_LEAST_MAX_US, name_of(item, "at_least", path), at_least_us);
}

static bool check_labels(struct lh_validator *v, const Leasehold__V1__AcquireRequest *request)
{
    Leasehold__V1__AcquireRequest__LabelsEntry *const *labels = request->labels;
    bool is_valid = true;

    if (request->n_labels > LH_LABELS_MAX)
        return lh_violations_add(v->violations, "labels", "must be at most %d, are %zu", LH_LABELS_MAX,
                                 request->n_labels);
    for (size_t i = 0; i < request->n_labels; i++) {
        char path[LH_VIOLATION_FIELD_BYTES];
        snprintf(path, sizeof(path), "labels[%zu].key", i);
        is_valid &= lh_validate_text(v, LH_TEXT_LABEL_NAME, labels[i]->key, path);
        for (size_t j = 0; j < i; j++) {
            if (strcmp(labels[i]->key, labels[j]->key) == 0) {
                is_valid = lh_violations_add(v->violations, path, "must be unique: labels[%zu] has the same name", j);
                break;
            }
        }
        snprintf(path, sizeof(path), "labels[%zu].value", i);
        is_valid &= lh_validate_text(v, LH_TEXT_LABEL_VALUE, labels[i]->value, path);
    }
    return is_valid;
}

static bool validate_wait(struct lh_validator *v, const Leasehold__V1__AcquireRequest *request,
                          struct lh_acquire *acquire)
{
    acquire->wait_us = 0;
    if (request->wait != NULL &&
        !lh_validate_duration(v, request->wait, 0, LH_DURATION_MAX_US, "wait", &acquire->wait_us))
        return false;
    if (request->wait_forever && acquire->wait_us > 0)
        return lh_violations_add(v->violations, "wait", "must not be given together with wait_forever");
    if (request->wait_forever && request->wait_while_alive)
        return lh_violations_add(v->violations, "wait_while_alive", "must not be given together with wait_forever");
    if (request->wait_forever)
        acquire->wait = LH_WAIT_UNTIL_GRANTED;
    else if (request->wait_while_alive)
        acquire->wait = LH_WAIT_WHILE_ALIVE;
    else
        acquire->wait = acquire->wait_us > 0 ? LH_WAIT_TIME : LH_WAIT_NONE;
    return true;
}

/* What is asked of all scopes alike. */
static bool validate_duration_and_wait(struct lh_validator *v, const Leasehold__V1__AcquireRequest *request,
                                       struct lh_acquire *acquire)
{
    bool is_valid = true;

    if (request->duration == NULL) {
        is_valid = lh_violations_add(v->violations, "duration", "must be given");
    } else {
        is_valid =
            lh_validate_duration(v, request->duration, 1, LH_DURATION_MAX_US, "duration", &acquire->terms.duration_us);
    }
    return validate_wait(v, request, acquire) && is_valid;
}

static bool validate_holder(struct lh_validator *v, const Leasehold__V1__AcquireRequest *request,
                            struct lh_acquire *acquire)
{
    bool is_valid = lh_validate_text(v, LH_TEXT_OWNER, request->owner, "owner");

    acquire->terms.owner = request->owner;
    if (request->lease_key[0] == '\0')
        acquire->lease_key = lh_uuid_random();
    else
        is_valid &= lh_validate_lease_key(v, request->lease_key, "lease_key", &acquire->lease_key);
    is_valid &= check_labels(v, request);
    if (is_valid)
        acquire->terms.labels = lh_json_from_labels(request->labels, request->n_labels, v->arena);
    return is_valid;
}

static bool validate_numbers(struct lh_validator *v, const Leasehold__V1__AcquireRequest *request,
                             struct lh_acquire *acquire)
{
    const int32_t numbers[] = {LH_ACQUIRE_NUMBERS(LH_NUMBER_VALUE, request)};
    char words[LH_BOUND_WORDS_BYTES];
    bool is_valid = true;

    for (size_t i = 0; i < LH_ACQUIRE_NUMBER_COUNT; i++)
        if (!lh_bound_number(numbers[i], lh_acquire_numbers[i].most, words))
            is_valid = lh_violations_add(v->violations, lh_acquire_numbers[i].name, "%s", words);
    LH_ACQUIRE_NUMBERS(LH_NUMBER_COPY, &acquire->terms, request)
    return is_valid;
}

bool lh_validate_acquire(struct lh_validator *v, const Leasehold__V1__AcquireRequest *request,
                         struct lh_acquire *acquire)
{
    bool is_valid = lh_validate_scope(v, request->scope, "scope", &acquire->ns, &acquire->key);

    is_valid &= validate_duration_and_wait(v, request, acquire);
    is_valid &= validate_mode(v, request->mode, request->units, request->at_least, NULL, &acquire->units,
                              &acquire->at_least_us);
    is_valid &= validate_numbers(v, request, acquire);
    acquire->asks = request->ask_hand_over;
    if (acquire->asks && is_valid && acquire->wait == LH_WAIT_NONE)
        is_valid = lh_violations_add(v->violations, "ask_hand_over", "must be false in a request that does not wait");
    return validate_holder(v, request, acquire) && is_valid;
}

static bool check_unique(struct lh_validator *v, const struct lh_wanted_scope *scopes, size_t n, const char *path)
{
    char field[LH_VIOLATION_FIELD_BYTES];

    for (size_t i = 0; i < n; i++) {
        if (strcmp(scopes[i].key, scopes[n].key) == 0 && strcmp(scopes[i].ns, scopes[n].ns) == 0)
            return lh_violations_add(v->violations, lh_field_member(field, path, "scope"),
                                     "must be unique: items[%zu] has the same", i);
    }
    return true;
}

/* They are acquired in one transaction. */
static bool check_together(struct lh_validator *v, const struct lh_wanted_scope *scopes, size_t n, const char *path)
{
    char field[LH_VIOLATION_FIELD_BYTES];
    const struct lh_place *first, *place;

    if (v->places == NULL)
        return true;
    first = lh_places_of(v->places, scopes[0].ns, scopes[0].key);
    place = lh_places_of(v->places, scopes[n].ns, scopes[n].key);
    if (place == first)
        return true;
    return lh_violations_add(v->violations, lh_field_member(field, path, "scope"),
                             "must be in one database with the others: items[0] lives in %s, this one in %s",
                             first->name, place->name);
}

static bool validate_items(struct lh_validator *v, Leasehold__V1__AcquireItem *const *items, size_t n,
                           struct lh_acquire *acquire)
{
    struct lh_wanted_scope *scopes;
    bool is_valid = true;

    if (n < 1 || n > LH_ALL_ITEMS_MAX)
        return lh_violations_add(v->violations, "items", "must be 1 to %d, are %zu", LH_ALL_ITEMS_MAX, n);
    scopes = lh_arena_alloc(v->arena, n * sizeof(scopes[0]));
    for (size_t i = 0; i < n; i++) {
        char path[LH_VIOLATION_FIELD_BYTES], field[LH_VIOLATION_FIELD_BYTES];
        lh_field_nth(path, "items", i);
        is_valid &=
            lh_validate_scope(v, items[i]->scope, lh_field_member(field, path, "scope"), &scopes[i].ns, &scopes[i].key);
        is_valid &= validate_mode(v, items[i]->mode, items[i]->units, items[i]->at_least, path, &scopes[i].units,
                                  &scopes[i].at_least_us);
        is_valid = is_valid && check_unique(v, scopes, i, path) && check_together(v, scopes, i, path);
    }
    acquire->ns = scopes[0].ns;
    acquire->key = scopes[0].key;
    acquire->units = scopes[0].units;
    acquire->at_least_us = scopes[0].at_least_us;
    acquire->also = scopes + 1;
    acquire->also_count = n - 1;
    return is_valid;
}

bool lh_validate_acquire_all(struct lh_validator *v, const Leasehold__V1__AcquireAllRequest *request,
                             struct lh_acquire *acquire)
{
    /* Its labels have a type of their own, which is the same. */
    _Static_assert(sizeof(Leasehold__V1__AcquireAllRequest__LabelsEntry) ==
                       sizeof(Leasehold__V1__AcquireRequest__LabelsEntry),
                   "labels");
    Leasehold__V1__AcquireRequest alike = LEASEHOLD__V1__ACQUIRE_REQUEST__INIT;
    bool is_valid = validate_items(v, request->items, request->n_items, acquire);

    alike.duration = request->duration;
    alike.wait = request->wait;
    alike.wait_forever = request->wait_forever;
    alike.owner = request->owner;
    alike.lease_key = request->lease_key;
    alike.labels = (Leasehold__V1__AcquireRequest__LabelsEntry **)(void *)request->labels;
    alike.n_labels = request->n_labels;
    is_valid &= validate_duration_and_wait(v, &alike, acquire);
    return validate_holder(v, &alike, acquire) && is_valid;
}

bool lh_validate_claim(struct lh_validator *v, const Leasehold__V1__ClaimTickRequest *request,
                       struct lh_acquire *acquire)
{
    _Static_assert(sizeof(Leasehold__V1__ClaimTickRequest__LabelsEntry) ==
                       sizeof(Leasehold__V1__AcquireRequest__LabelsEntry),
                   "labels");
    Leasehold__V1__AcquireRequest alike = LEASEHOLD__V1__ACQUIRE_REQUEST__INIT;
    bool is_valid = lh_validate_schedule_name(v, request->namespace_, "namespace", &acquire->ns);

    alike.wait = request->wait;
    alike.owner = request->owner;
    alike.lease_key = request->lease_key;
    alike.labels = (Leasehold__V1__AcquireRequest__LabelsEntry **)(void *)request->labels;
    alike.n_labels = request->n_labels;
    acquire->terms.duration_us = 0;
    if (request->duration != NULL)
        is_valid &=
            lh_validate_duration(v, request->duration, 1, LH_DURATION_MAX_US, "duration", &acquire->terms.duration_us);
    is_valid &= validate_wait(v, &alike, acquire);
    return validate_holder(v, &alike, acquire) && is_valid;
}

/* --- the call --- */

void lh_acquire_set_rights(const struct lh_access_caller *who, struct lh_acquire *request)
{
    if (request->terms.priority > 0 && lh_access_may(who, LH_RIGHT_ADMIN, request->ns))
        request->terms.priority = -request->terms.priority;
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
    kept->acquire.on_done = lh_acquire_on_done;
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
    lh_acquire_call_destroy(acquire);
}

static void begin(struct lh_rpc_call *call, const struct lh_acquire *request, lh_progress_cb *on_progress,
                  acquire_granted_fn *tell)
{
    struct lh_access_caller who;
    const char *forbidden;

    lh_tracing_scope(call, request->ns, request->key);
    if (!lh_permit_enter(call, &who))
        return;
    forbidden = lh_permit_forbidden(&who, request);
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
        begin(asked->call, &acquire, on_progress, tell);
}

void lh_acquire_on_request(struct lh_asked *asked, const void *request)
{
    lh_acquire_begin(asked, request, NULL, lh_acquire_tell_lease);
}

void lh_acquire_all_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_acquire acquire = {0};

    if (lh_asked_check(asked, lh_validate_acquire_all(&asked->v, request, &acquire)))
        begin(asked->call, &acquire, NULL, lh_acquire_tell_leases);
}
