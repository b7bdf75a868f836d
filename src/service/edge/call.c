#include "service/call_internal.h"

#include <stdio.h>
#include <string.h>

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
        of = places->home;
    if (is_away(of))
        return of;
    for (const struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;) {
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
    if (key == NULL && !is_away(place) && lh_places_lack_leases(service->places, ns != NULL ? ns : "", why_not)) {
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
