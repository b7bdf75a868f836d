#include "service/edge/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lease/readiness.h"
#include "service/words_internal.h"
#include "json/policy_setting.h"

struct lh_requester lh_call_requester(const struct lh_rpc_call *call)
{
    return (struct lh_requester){lh_rpc_call_principal(call), lh_rpc_call_peer(call)};
}

struct lh_service *lh_call_service(const struct lh_rpc_call *call)
{
    return lh_rpc_call_arg(call);
}

static void on_finding(void *arg, const struct lh_wire_finding *finding)
{
    lh_violations_add(arg, finding->field[0] == '\0' ? "message" : finding->field, "%s", finding->text);
}

void *lh_call_unpack_into(const ProtobufCMessageDescriptor *type, const void *data, size_t size, struct lh_arena *arena,
                          struct lh_violations *violations)
{
    ProtobufCMessage *message = NULL;

    if (lh_wire_check(type, data, size, on_finding, violations) && violations->count == 0) {
        message = lh_wire_unpack(type, data, size, arena);
        if (message == NULL)
            lh_violations_add(violations, "message", "is not a well-formed protobuf message");
    }
    return message;
}

void *lh_call_unpack(struct lh_rpc_call *call, const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                     struct lh_arena *arena)
{
    struct lh_violations violations = {0};
    void *message = lh_call_unpack_into(type, data, size, arena, &violations);

    if (message == NULL)
        lh_call_refuse(call, &violations);
    return message;
}

const struct lh_method *lh_method_of(const struct lh_rpc_call *call)
{
    return lh_rpc_call_method(call)->arg;
}

bool lh_asked_check(const struct lh_asked *asked, bool is_valid)
{
    if (!is_valid)
        lh_call_refuse(asked->call, &asked->violations);
    return is_valid;
}

void lh_call_reply(struct lh_rpc_call *call, const ProtobufCMessage *message, struct lh_arena *arena)
{
    const void *data;
    size_t size = lh_message_pack(message, arena, &data);
    lh_rpc_call_reply(call, data, size);
}

void lh_call_refuse(struct lh_rpc_call *call, const struct lh_violations *violations)
{
    char sentence[512];
    struct lh_failure failure = {.status = LH_INVALID_ARGUMENT, .message = sentence, .violations = violations};

    lh_violations_sentence(violations, sentence, sizeof(sentence));
    lh_failure_send(call, &failure);
}

const char *lh_call_field(const char *field, char path[LH_VIOLATION_FIELD_BYTES])
{
    if (strcmp(field, "namespace") == 0 || strcmp(field, "key") == 0) {
        snprintf(path, LH_VIOLATION_FIELD_BYTES, "scope.%s", field);
        return path;
    }
    if (lh_policy_setting(field) == NULL)
        return field;
    snprintf(path, LH_VIOLATION_FIELD_BYTES, "policy.%s", field);
    return path;
}

static void refuse_with_error(struct lh_rpc_call *call, const struct lh_error *error)
{
    struct lh_violations violations = {0};
    char path[LH_VIOLATION_FIELD_BYTES];

    if (error->bound[0] != '\0')
        lh_violations_add(&violations, lh_call_field(error->field, path), "must be %s", error->bound);
    else
        lh_violations_add(&violations, lh_call_field(error->field, path), "is refused: %s", error->message);
    lh_call_refuse(call, &violations);
}

/* A database that has just been lost still counts as ready for some seconds. */
static bool is_away(const struct lh_place *place)
{
    struct lh_readiness readiness;

    lh_coordinator_readiness(place->coordinator, &readiness);
    return !readiness.is_ready || !place->store->ops->is_connected(place->store);
}

/* The database of the scope or the namespace, or the home. Where that is not away, the first that is, of the namespace if
   there is one: the call needed it too. */
static const struct lh_place *find_away(const struct lh_service *service, const char *ns, const char *key)
{
    const struct lh_places *places = service->places;
    const struct lh_place *of = NULL, *other = NULL;

    if (ns != NULL)
        of = key != NULL ? lh_places_of(places, ns, key) : lh_places_find(places, ns);
    if (of == NULL)
        of = lh_places_home(places);
    if (is_away(of))
        return of;
    for (size_t i = 0; i < lh_places_count(places); i++) {
        const struct lh_place *place = lh_places_at(places, i);
        bool has_it = ns != NULL && lh_places_has(places, place, ns, false);
        if ((other == NULL || has_it) && is_away(place))
            other = place;
        if (other != NULL && has_it)
            return other;
    }
    return other != NULL ? other : of;
}

const char *lh_call_words_of_outage(const struct lh_service *service, const char *ns, const char *key,
                                    const char *what_next, char words[LH_OUTAGE_WORDS_BYTES])
{
    const struct lh_place *place = find_away(service, ns, key);
    char why_not[LH_SPREAD_WORDS_BYTES];
    struct lh_readiness readiness;
    bool has_cause;

    if (ns != NULL && key != NULL && lh_places_why_not(service->places, ns, key, why_not)) {
        snprintf(words, LH_OUTAGE_WORDS_BYTES, "%s: %s", why_not, what_next);
        return words;
    }
    lh_coordinator_readiness(place->coordinator, &readiness);
    has_cause = readiness.cause[0] != '\0';
    snprintf(words, LH_OUTAGE_WORDS_BYTES, "the database %s%sis unavailable%s%s%s: nothing is known to be lost, %s",
             place->name, place->name[0] != '\0' ? " " : "", has_cause ? " (" : "", readiness.cause,
             has_cause ? ")" : "", what_next);
    return words;
}

void lh_call_fail(struct lh_rpc_call *call, enum lh_status status, const struct lh_error *error, const char *ns,
                  const char *key)
{
    struct lh_failure failure = {.status = status, .ns = ns, .key = key};
    char words[LH_OUTAGE_WORDS_BYTES];

    switch (status) {
    case LH_INTERNAL:
    case LH_OK:
        lh_failure_send_internal(call, error != NULL ? error->message : NULL);
        return;
    case LH_CANCELED: /* the store is stopping */
        failure.status = LH_SHUTTING_DOWN;
        break;
    case LH_DATABASE_UNAVAILABLE: /* its own words speak of hosts and roles: they are for the log */
        failure.message = lh_call_words_of_outage(lh_call_service(call), ns, key, "call again", words);
        break;
    case LH_INVALID_ARGUMENT:
        if (error != NULL && error->field[0] != '\0') {
            refuse_with_error(call, error);
            return;
        }
        /* fall through */
    default:
        if (error != NULL && error->message[0] != '\0')
            failure.message = error->message;
        break;
    }
    lh_failure_send(call, &failure);
}

struct lh_store_call *lh_store_call_create(struct lh_rpc_call *call, const char *ns, const char *key)
{
    size_t ns_size = ns == NULL ? 0 : strlen(ns) + 1, key_size = key == NULL ? 0 : strlen(key) + 1;
    struct lh_store_call *store_call;
    struct lh_usage *caller;
    char *strings;

    if (!lh_usage_take(call, LH_USAGE_CONTROL, 1, &caller))
        return NULL;
    store_call = lh_alloc(sizeof(*store_call) + ns_size + key_size);
    strings = (char *)(store_call + 1);
    memset(store_call, 0, sizeof(*store_call));
    store_call->caller = caller;
    store_call->call = call;
    store_call->service = lh_call_service(call);
    if (ns != NULL)
        store_call->ns = memcpy(strings, ns, ns_size);
    if (key != NULL)
        store_call->key = memcpy(strings + ns_size, key, key_size);
    lh_rpc_call_set_data(call, store_call);
    return store_call;
}

void lh_store_call_destroy(struct lh_store_call *store_call)
{
    if (store_call->call != NULL)
        lh_rpc_call_set_data(store_call->call, NULL);
    lh_usage_give(store_call->caller, LH_USAGE_CONTROL, 1);
    free(store_call);
}

void lh_store_call_check(struct lh_store_call *store_call, enum lh_status status)
{
    if (status == LH_OK)
        return;
    lh_call_fail(store_call->call, status, NULL, store_call->ns, store_call->key);
    lh_store_call_destroy(store_call);
}

void lh_store_call_administer(struct lh_store_call *store_call, const struct lh_admin_request *request,
                              lh_rows_cb *on_done)
{
    struct lh_store *store;

    if (store_call == NULL)
        return;
    store = store_call->service->store;
    lh_store_call_check(store_call, store->ops->administer(store, request, on_done, store_call));
}

bool lh_store_call_is_answered(struct lh_store_call *store_call, enum lh_status status, const struct lh_error *error)
{
    if (store_call->call == NULL)
        return false;
    if (status == LH_OK)
        return true;
    lh_call_fail(store_call->call, status, error, store_call->ns, store_call->key);
    return false;
}

void lh_store_call_fail_not_held(const struct lh_store_call *store_call)
{
    char name[LH_SCOPE_NAME_BYTES];
    struct lh_failure failure = {.status = LH_NOT_HELD, .ns = store_call->ns, .key = store_call->key};
    char *words;

    lh_scope_name(store_call->ns, store_call->key, name);
    if (store_call->token != 0)
        words = lh_format("lease %s is not held with token %lld", name, (long long)store_call->token);
    else
        words = lh_format("lease %s is not held", name);
    failure.message = words;
    lh_failure_send(store_call->call, &failure);
    free(words);
}

void lh_store_call_reply(const struct lh_store_call *store_call, const ProtobufCMessage *message)
{
    lh_call_reply(store_call->call, message, &store_call->service->scratch);
    lh_arena_reset(&store_call->service->scratch);
}

void lh_store_call_append(const struct lh_store_call *store_call, struct lh_buffer *packed,
                          const ProtobufCMessage *part)
{
    const void *data;
    size_t size = lh_message_pack(part, &store_call->service->scratch, &data);

    lh_buffer_append(packed, data, size);
    lh_arena_reset(&store_call->service->scratch);
}

void lh_store_call_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct lh_store_call *store_call = lh_rpc_call_data(call);
    if (store_call != NULL)
        store_call->call = NULL;
}
