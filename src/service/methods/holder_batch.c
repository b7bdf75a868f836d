/*
 * Heartbeat and Release: any number of leases in one call. An item that is out of bounds, on the wire or by its
 * content, is answered OUTCOME_INVALID and skipped; the others are not affected. The request stays unpacked in the
 * call's own arena until all items are answered; if the call has ended by then, the answer is dropped.
 */
#include "service/call_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "service/words_internal.h"

/* Longer ones are no UUIDs in any spelling; 10,000 of them would be a reply beyond what clients take. */
#define LEASE_KEY_ECHO_MAX_BYTES 64

struct batch;

/* What the two do differently. Each message is a list. */
struct verb {
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *response;
    bool (*validate)(struct lh_validator *v, const void *asked, const char *field, struct lh_holder_item *item);
    enum lh_status (*send)(const struct lh_service *service, struct lh_holder_request *request);
    void *(*result)(struct batch *batch, size_t i);
};

struct batch {
    const struct verb *verb;
    struct lh_rpc_call *call;    /* NULL once it has ended, and when this is one of many of a stream */
    lh_heartbeats_cb *on_answer; /* the stream's */
    void *arg;
    struct lh_service *service;
    struct lh_usage *caller;
    size_t taken; /* of what its caller may have */
    struct lh_arena arena;
    struct lh_access_caller who;
    const char **problems; /* of each item that is decided: why */
    void **asked;          /* the items of the message */
    struct lh_holder_request request;
};

static struct batch *create(struct lh_rpc_call *call, const struct verb *verb)
{
    struct batch *batch = lh_alloc_zero(1, sizeof(*batch));
    batch->verb = verb;
    batch->service = lh_call_service(call);
    batch->caller = lh_usage_of(call);
    return batch;
}

static void destroy(struct batch *batch)
{
    if (batch->call != NULL)
        lh_rpc_call_set_data(batch->call, NULL);
    if (batch->taken > 0) /* else its caller may be gone */
        lh_usage_give(batch->caller, LH_USAGE_PENDING, batch->taken);
    lh_access_leave(&batch->who);
    lh_arena_finish(&batch->arena);
    free(batch);
}

/* False: its caller has too much under way. */
static bool take(struct batch *batch, size_t count)
{
    if (!lh_usage_may_take(batch->caller, LH_USAGE_PENDING, count))
        return false;
    batch->taken = count;
    return true;
}

void lh_batch_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct batch *batch = lh_rpc_call_data(call);

    lh_tracing_end(call);
    if (batch != NULL)
        batch->call = NULL;
}

/* --- items that are bad on the wire --- */

struct finding {
    struct finding *next;
    int64_t item;
    const char *problem;
};

struct findings {
    struct lh_arena *arena;
    struct finding *items;
    struct lh_violations violations; /* of the request itself */
};

static void on_finding(void *arg, const struct lh_wire_finding *finding)
{
    struct findings *findings = arg;
    struct finding *item;

    if (finding->item < 0 || finding->is_fatal) {
        lh_violations_add(&findings->violations, finding->field[0] == '\0' ? "message" : finding->field, "%s",
                          finding->text);
        return;
    }
    item = lh_arena_alloc(findings->arena, sizeof(*item));
    item->next = findings->items;
    item->item = finding->item;
    item->problem = lh_arena_format(findings->arena, "%s %s", finding->field, finding->text);
    findings->items = item;
}

/* False: the findings say why. */
static bool unpack(struct batch *batch, const void *data, size_t size, struct findings *findings)
{
    ProtobufCMessage *message = NULL;

    findings->arena = &batch->arena;
    if (lh_wire_check(batch->verb->request, data, size, on_finding, findings) && findings->violations.count == 0) {
        message = lh_wire_unpack(batch->verb->request, data, size, &batch->arena);
        if (message == NULL)
            lh_violations_add(&findings->violations, "message", "is not a well-formed protobuf message");
        else
            batch->asked = lh_message_list(message, &batch->request.count);
    }
    return message != NULL;
}

static void note_findings(struct batch *batch, const struct findings *findings, size_t count)
{
    batch->problems = lh_arena_alloc(&batch->arena, (count + 1) * sizeof(*batch->problems));
    memset(batch->problems, 0, (count + 1) * sizeof(*batch->problems));
    for (const struct finding *item = findings->items; item != NULL; item = item->next)
        if ((size_t)item->item < count)
            batch->problems[item->item] = item->problem;
}

static const char *violations_problem(struct batch *batch, const struct lh_violations *violations)
{
    char sentence[LH_ITEM_MESSAGE_MAX_BYTES];
    lh_violations_sentence(violations, sentence, sizeof(sentence));
    return lh_arena_strdup(&batch->arena, sentence);
}

/* --- answers --- */

/* What the caller sent, right or wrong, so that it finds its item again; unless that cannot be sent back. */
static char *echo_lease_key(const Leasehold__V1__LeaseRef *ref)
{
    size_t size = ref == NULL ? 0 : strlen(ref->lease_key);
    bool is_sendable = size > 0 && size <= LEASE_KEY_ECHO_MAX_BYTES && lh_utf8_is_valid(ref->lease_key, size);
    return is_sendable ? ref->lease_key : (char *)protobuf_c_empty_string;
}

static void add_asked(struct batch *batch, const struct lh_holder_item *item, Leasehold__V1__HeartbeatResult *result)
{
    struct lh_coordinator *coordinator = lh_places_coordinator(batch->service->places, item->ns, item->key);
    const struct lh_hand_over *asked;

    if (item->shared.token == 0) /* an exclusive lease has the token that it was granted with */
        asked = lh_coordinator_asked_under(coordinator, item->ns, item->key, &item->lease_key);
    else
        asked = lh_coordinator_asked(coordinator, item->ns, item->key, item->shared.token);
    if (asked != NULL && asked->refusal == NULL && lh_uuid_equal(&asked->lease_key, &item->lease_key))
        result->asked = lh_message_hand_over(asked, &batch->arena);
}

static void *heartbeat_result(struct batch *batch, size_t i)
{
    const struct lh_holder_item *item = &batch->request.items[i].item;
    Leasehold__V1__HeartbeatResult *result =
        lh_message_new(&leasehold__v1__heartbeat_result__descriptor, &batch->arena);

    result->lease_key = echo_lease_key(batch->asked[i]);
    result->outcome = (Leasehold__V1__Outcome)item->outcome;
    if (result->outcome == LEASEHOLD__V1__OUTCOME__OUTCOME_OK) {
        result->remaining = lh_message_duration(item->remaining_us, &batch->arena);
        result->deadline = lh_message_timestamp(item->deadline_us, &batch->arena);
        result->heartbeats = item->heartbeats;
        result->token = item->shared.token;
        result->units = item->shared.units;
        result->has_slots = item->shared.has_slots;
        result->deadline_is_final = item->end_reason == LH_END_MAX_HOLD;
        add_asked(batch, item, result);
    }
    if (result->outcome != LEASEHOLD__V1__OUTCOME__OUTCOME_OK || result->deadline_is_final) {
        const char *words = batch->problems[i] != NULL ? batch->problems[i] : item->message;
        char *message = lh_message_cut(words, &batch->arena);
        if (message != NULL)
            result->message = message;
    }
    if (result->outcome == LEASEHOLD__V1__OUTCOME__OUTCOME_LOST)
        result->end_reason = (Leasehold__V1__EndReason)item->end_reason;
    return result;
}

static void *release_result(struct batch *batch, size_t i)
{
    const struct lh_holder_item *item = &batch->request.items[i].item;
    Leasehold__V1__ReleaseResult *result = lh_message_new(&leasehold__v1__release_result__descriptor, &batch->arena);
    const char *words = batch->problems[i] != NULL ? batch->problems[i] : item->message;
    char *message;

    /* The store names the field within its item. */
    if (words == item->message && words != NULL && item->outcome == LH_OUTCOME_INVALID)
        words = lh_arena_format(&batch->arena, "items[%zu].%s", i, words);
    message = lh_message_cut(words, &batch->arena);
    result->lease_key = echo_lease_key(((const Leasehold__V1__ReleaseItem *)batch->asked[i])->lease);
    result->outcome = (Leasehold__V1__Outcome)item->outcome;
    if (message != NULL && result->outcome != LEASEHOLD__V1__OUTCOME__OUTCOME_OK)
        result->message = message;
    if (result->outcome == LEASEHOLD__V1__OUTCOME__OUTCOME_LOST)
        result->end_reason = (Leasehold__V1__EndReason)item->end_reason;
    return result;
}

static size_t pack(struct batch *batch, const void **data)
{
    ProtobufCMessage *response = lh_message_new(batch->verb->response, &batch->arena);
    size_t count = batch->request.count;
    void **results = lh_arena_alloc(&batch->arena, (count + 1) * sizeof(*results));

    for (size_t i = 0; i < count; i++)
        results[i] = batch->verb->result(batch, i);
    lh_message_set_list(response, results, count);
    return lh_message_pack(response, &batch->arena, data);
}

static void on_done(struct lh_holder_request *request)
{
    struct batch *batch = request->arg;
    const void *data;

    if (batch->on_answer != NULL) {
        size_t size = pack(batch, &data);
        batch->on_answer(batch->arg, data, size);
    } else if (batch->call != NULL) {
        lh_tracing_answered(batch->call, request);
        size_t size = pack(batch, &data);
        lh_rpc_call_reply(batch->call, data, size);
    }
    destroy(batch);
}

/* --- calls --- */

/* What is invalid or denied does not go to the coordinator. */
static void decide(struct batch *batch, struct lh_rpc_call *call, struct lh_holder_entry *entry, size_t i)
{
    char words[LH_PERMIT_WORDS_BYTES];

    if (batch->problems[i] != NULL) {
        entry->item.outcome = LH_OUTCOME_INVALID;
    } else if (!lh_access_may(&batch->who, LH_RIGHT_LEASE, entry->item.ns) &&
               !lh_permit_knows_rules(call, entry->item.ns, false)) {
        entry->item.outcome = LH_OUTCOME_RETRY;
        batch->problems[i] = "the access rules are not loaded yet";
    } else if (!lh_access_may(&batch->who, LH_RIGHT_LEASE, entry->item.ns)) {
        entry->item.outcome = LH_OUTCOME_DENIED;
        lh_permit_refuse_item(call, &batch->who, LH_RIGHT_LEASE, entry->item.ns, words);
        batch->problems[i] = lh_arena_strdup(&batch->arena, words);
    }
    entry->skip = batch->problems[i] != NULL;
}

static void fill(struct batch *batch, struct lh_rpc_call *call)
{
    struct lh_violations violations; /* emptied for each item by its counts alone: it is large */
    struct lh_validator v = {.arena = &batch->arena, .violations = &violations, .places = batch->service->places};

    for (size_t i = 0; i < batch->request.count; i++) {
        char field[LH_VIOLATION_FIELD_BYTES];

        violations.count = violations.omitted = 0;
        lh_field_nth(field, batch->verb->request->fields[0].name, i);
        if (batch->problems[i] == NULL &&
            !batch->verb->validate(&v, batch->asked[i], field, &batch->request.items[i].item))
            batch->problems[i] = violations_problem(batch, &violations);
        decide(batch, call, &batch->request.items[i], i);
    }
}

/* LH_INVALID_ARGUMENT: the findings say why. LH_OVERLOADED and not all taken: its caller's bound does. */
static enum lh_status start(struct batch *batch, struct lh_rpc_call *call, const void *data, size_t size,
                            struct findings *findings)
{
    struct lh_holder_request *request = &batch->request;

    if (!unpack(batch, data, size, findings))
        return LH_INVALID_ARGUMENT;
    if (!take(batch, request->count))
        return LH_OVERLOADED;
    request->items = lh_arena_alloc(&batch->arena, (request->count + 1) * sizeof(*request->items));
    memset(request->items, 0, (request->count + 1) * sizeof(*request->items));
    request->on_done = on_done;
    request->arg = batch;
    note_findings(batch, findings, request->count);
    fill(batch, call);
    return batch->verb->send(batch->service, request);
}

static void on_message(struct lh_rpc_call *call, const struct verb *verb, const void *data, size_t size)
{
    struct batch *batch = create(call, verb);
    struct findings findings = {0};
    enum lh_status status;

    batch->call = call;
    lh_rpc_call_set_data(call, batch);
    lh_tracing_begin(call);
    if (!lh_permit_enter(call, &batch->who)) {
        destroy(batch);
        return;
    }
    status = start(batch, call, data, size, &findings);
    if (status == LH_OK)
        return;
    if (status == LH_INVALID_ARGUMENT)
        lh_call_refuse(call, &findings.violations);
    else if (status == LH_OVERLOADED && batch->taken < batch->request.count)
        lh_usage_refuse(call, LH_USAGE_PENDING);
    else
        lh_call_fail(call, status, NULL, NULL, NULL);
    destroy(batch);
}

/* --- Heartbeat --- */

static bool validate_heartbeat(struct lh_validator *v, const void *asked, const char *field,
                               struct lh_holder_item *item)
{
    return lh_validate_lease_ref(v, asked, field, &item->ns, &item->key, &item->lease_key);
}

static const struct verb heartbeat = {
    .request = &leasehold__v1__heartbeat_request__descriptor,
    .response = &leasehold__v1__heartbeat_response__descriptor,
    .validate = validate_heartbeat,
    .send = lh_route_heartbeat,
    .result = heartbeat_result,
};

void lh_heartbeat_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    on_message(call, &heartbeat, data, size);
}

enum lh_status lh_heartbeats_start(struct lh_rpc_call *call, const struct lh_access_caller *who, const void *data,
                                   size_t size, size_t *count, struct lh_violations *violations,
                                   lh_heartbeats_cb *on_answer, void *arg)
{
    struct batch *batch = create(call, &heartbeat);
    struct findings findings = {0};
    enum lh_status status;

    batch->who = lh_access_copy(who);
    batch->on_answer = on_answer;
    batch->arg = arg;
    status = start(batch, call, data, size, &findings);
    *count = batch->request.count;
    if (status == LH_OK)
        return LH_OK;
    *violations = findings.violations;
    destroy(batch);
    return status;
}

/* --- Release --- */

static bool validate_release(struct lh_validator *v, const void *asked, const char *field, struct lh_holder_item *item)
{
    return lh_validate_release_item(v, asked, field, item);
}

static const struct verb release = {
    .request = &leasehold__v1__release_request__descriptor,
    .response = &leasehold__v1__release_response__descriptor,
    .validate = validate_release,
    .send = lh_route_release,
    .result = release_result,
};

void lh_release_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    on_message(call, &release, data, size);
}
